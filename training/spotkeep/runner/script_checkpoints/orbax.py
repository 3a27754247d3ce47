"""Orbax's checkpoints, and Flax's, which it writes with Orbax.

Each step has a folder, with an item in it or in a folder of it.

An item's arrays are in a database (OCDBT), or in a folder of zarr for each. The files of a database that refer to
others begin with their own length. The files with the arrays have random names, which only packed files know. So a
missing or cut-off one of several is not seen here. Orbax itself refuses it.

Source: `orbax/checkpoint/_src`, Orbax 0.12, https://google.github.io/tensorstore/kvstore/ocdbt, zarr 2 and 3.
"""

from __future__ import annotations

import itertools
import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .folder import Folder, Kind, Series
from .reading import json_object, open_unnoticed

_ROOT, _ITEM, _COMMITTED = "_CHECKPOINT_METADATA", "_METADATA", "commit_success.txt"
_MANIFEST, _DATA = "manifest.ocdbt", "d"
_ZARR_2, _ZARR_3 = ".zarray", "zarr.json"
_NOT_FINISHED = ".orbax-checkpoint-tmp"
_JSON = re.compile(r"_CHECKPOINT_METADATA|_METADATA|_sharding|process_[0-9]+|metadata|metrics|\.zarray|zarr\.json")
_IN_EACH = re.compile(rf"{_JSON.pattern}|commit_success\.txt|orbax\.checkpoint|manifest\.ocdbt")
_OF_ANOTHER_PROCESS = re.compile(r"process_[1-9][0-9]*")
_LEADS_ON = (b"\x0c\xdb\x3a\x2a", b"\x0c\xdb\x20\xde", b"\x0c\xdb\x1c\xde")
"""The first bytes of a database's manifest, of a node of its tree, and of a node of its versions."""
_ARRAYS = frozenset({"jax.Array", "np.ndarray", "scalar"})
_OF_ARRAYS = re.compile(r"\.(PyTree|Standard|Array)[A-Za-z]*Handler$")
_DIGIT = re.compile(r"[0-9]")
_MOST_CHUNKS = 100_000


def _recognises(folder: Folder) -> bool:
    if _NOT_FINISHED in folder.path.name or {_ROOT, _ITEM, _MANIFEST} & folder.names:
        return True
    items = (each for name, each in folder.folders.items() if not _DIGIT.search(name))
    return _DIGIT.search(folder.path.name) is not None and any(
        {_ITEM, _MANIFEST} & each.names and _ROOT not in each.names for each in items
    )


def _problem(folder: Folder, series: Series) -> str | None:
    if _NOT_FINISHED in folder.path.name:
        return "it was being written"
    for inner in folder.below():
        for name in sorted(inner.files):
            if _JSON.fullmatch(name) and json_object(inner.path / name) is None:
                return f"{folder.name_of(inner.path / name)} is not whole"
    root = json_object(folder.path / _ROOT) or {} if _ROOT in folder.files else {}
    if "commit_timestamp_nsecs" in root and root["commit_timestamp_nsecs"] is None:
        return "it was being written"
    missing = _arrays_in(root) - folder.names if _items_are_missed(folder, series) else set()
    missing |= _in_the_one_before(folder, series.earlier[-1]) - set(_parts(folder)) if series.earlier else set()
    if missing:
        return f"{min(missing)} is missing"
    return next(itertools.chain.from_iterable(map(_array_problems, folder.below())), None)


def _arrays_in(root: dict[str, Any]) -> set[str]:
    """Name the items that hold arrays. Some others are listed though nothing was written for them."""
    items = root.get("item_handlers")
    pairs = items.items() if isinstance(items, dict) else ()
    return {name for name, handler in pairs if isinstance(handler, str) and _OF_ARRAYS.search(handler)}


def _items_are_missed(folder: Folder, series: Series) -> bool:
    """Say whether an item must be there. A script may have removed unneeded items of older checkpoints."""
    return not series.after or any(set(each.folders) - folder.names for each in series.earlier[-1:])


def _in_the_one_before(folder: Folder, earlier: Folder) -> set[str]:
    """Give the items of that checkpoint, but for those that this one was saved without."""
    here = frozenset(folder.folders)
    return {part for part in _parts(earlier) if "/" not in part or part.partition("/")[0] in here}


def _parts(folder: Folder) -> Iterator[str]:
    """Give the names in each checkpoint of a training. Random ones count as one."""
    for inner in folder.below():
        for name in inner.files | inner.links:
            if _IN_EACH.fullmatch(name) and not _OF_ANOTHER_PROCESS.search(folder.name_of(inner.path / name)):
                yield folder.name_of(inner.path / name)
        if inner.path.name == _DATA and any(_holds_data(inner, name) for name in inner.files):
            yield f"{folder.name_of(inner.path)}/<arrays>"


def _array_problems(folder: Folder) -> Iterator[str]:
    if _MANIFEST in folder.names and not _data_files(folder):
        yield f"the data of its {_MANIFEST} are missing"
    if any(_length_in(folder.folders[_DATA], name) for name in _data_files(folder)) and _MANIFEST not in folder.names:
        yield f"its {_MANIFEST} is missing"
    for name in sorted(folder.files):
        if name == _MANIFEST or folder.path.name == _DATA:
            size, length = (folder.path / name).stat().st_size, _length_in(folder, name)
            if size < (length or 1):
                yield f"{name} has {size:,} of {length or 1:,} bytes"
    item = json_object(folder.path / _ITEM) or {} if _ITEM in folder.files else {}
    if _holds_arrays(item) and not any({_MANIFEST, _ZARR_2, _ZARR_3} & each.names for each in folder.below()):
        yield "its arrays are missing"
    for name in (_ZARR_2, _ZARR_3):
        if name in folder.files:
            yield from (
                f"{chunk} is missing" for chunk in _chunks(folder, name) if not _has_content(folder.path / chunk)
            )


def _data_files(folder: Folder) -> frozenset[str]:
    return folder.folders[_DATA].files if _DATA in folder.folders else frozenset()


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _length_in(folder: Folder, name: str) -> int | None:
    """Read the length of a file that refers to others. None for data."""
    with open_unnoticed(folder.path / name) as file:
        head = file.read(12)
    if not head.startswith(_LEADS_ON):
        return None
    return struct.unpack_from("<Q", head, 4)[0] if len(head) == 12 else 12


def _holds_data(folder: Folder, name: str) -> bool:
    """Say whether packed bytes of arrays are in the file. A node may stand before them in the same file."""
    return (folder.path / name).stat().st_size > (_length_in(folder, name) or 0)


def _holds_arrays(item: dict[str, object]) -> bool:
    tree = item.get("tree_metadata")
    leaves = tree.values() if isinstance(tree, dict) else ()
    values = (leaf.get("value_metadata") for leaf in leaves if isinstance(leaf, dict))
    # Older ones, and small values, are in a file of their own (`skip_deserialize`).
    return any(isinstance(each, dict) and _is_apart(each) for each in values)


def _is_apart(value: dict[str, object]) -> bool:
    return str(value.get("value_type")) in _ARRAYS and not value.get("skip_deserialize")


def _chunks(folder: Folder, name: str) -> list[str]:
    """Name the chunks of an array. Orbax writes each, also one of zeros. None of them where its form is not known."""
    array = json_object(folder.path / name) or {}
    try:
        if name == _ZARR_2:
            prefix, separator, sizes = "", array["dimension_separator"], array["chunks"]
        else:
            prefix, separator, sizes = "c", "/", array["chunk_grid"]["configuration"]["chunk_shape"]
            if array["chunk_key_encoding"] != {"name": "default"}:
                return []
        counts = [-(-length // size) for length, size in zip(array["shape"], sizes)]
        if math.prod(counts) > _MOST_CHUNKS:
            return []
        places = itertools.product(*(map(str, range(count)) for count in counts))
        return [separator.join([*filter(None, [prefix]), *place]) or "0" for place in places]
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError):
        return []


ORBAX = Kind(_recognises, _problem)
