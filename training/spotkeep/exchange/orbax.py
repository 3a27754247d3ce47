"""Checkpoints of Orbax, written and read with TensorStore, piece by piece.

Such a checkpoint is a folder. Its `_METADATA` has the tree of names as JSON. The arrays are in one key-value store of
the format OCDBT, each as a Zarr array. Orbax brings TensorStore with it.
Source: https://orbax.readthedocs.io/en/latest/guides/checkpoint/checkpoint_format.html
"""

from __future__ import annotations

import importlib
import itertools
import json
import math
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from spotkeep.errors import ExchangeError, MissingLibraryError

from .elements import ITEM_BYTES, PIECE_BYTES, Array, Stray
from .files import read_json
from .states import key_text

_TREE, _ROOT, _STORE = "_METADATA", "_CHECKPOINT_METADATA", "manifest.ocdbt"
_MOST_METADATA_BYTES = 2**28
_MOST_DIMENSIONS = 32
_CHUNK_BYTES = 32 * 2**20
_IN_A_DICT, _IN_A_LIST = 2, 1
_ARRAYS = frozenset(("jax.Array", "np.ndarray"))
_CACHE = {"cache_pool": {"total_bytes_limit": 64 * 2**20}}
"""The most memory that TensorStore keeps."""


def write_orbax(folder: Path, state: Mapping[str, Any], left_out: list[tuple[str, str]]) -> None:
    """Write a checkpoint that Orbax's `StandardCheckpointer` reads.

    Args:
        folder: An empty folder.
        state: Plain values by name, with an `Array` for each array.
        left_out: Takes the values that Orbax has no form for, with the reasons.

    Raises:
        ExchangeError: Two values have the same name.
        MissingLibraryError: Orbax is not installed.
    """
    np, ts = _library("numpy"), _library("tensorstore")
    context = ts.Context(_CACHE)
    tree: dict[str, Any] = {}
    names: set[str] = set()
    for keys, value in _leaves(state, ()):
        name = ".".join(str(key) for key, _ in keys)
        kind = _kind_of(value)
        if kind is None:
            left_out.append((name, _why_not(value)))
            continue
        if name in names:
            raise ExchangeError(f"two values have the name {name!r} in Orbax, which joins names with dots")
        names.add(name)
        tree[str(tuple(str(key) for key, _ in keys))] = {
            "key_metadata": [{"key": str(key), "key_type": where} for key, where in keys],
            "value_metadata": {"value_type": kind, "skip_deserialize": kind == "None"},
        }
        if isinstance(value, Array):
            _write_array(np, ts, context, folder, name, value)
        elif value is not None:
            number = np.asarray(value)
            raw = number.tobytes()
            single = Array("ndarray", str(number.dtype), (), lambda raw=raw: iter([raw]))  # type: ignore[misc]
            _write_array(np, ts, context, folder, name, single)
    document = {
        "tree_metadata": tree, "use_ocdbt": True, "use_zarr3": False, "store_array_data_equal_to_fill_value": True,
        "custom_metadata": None,
    }  # fmt: skip
    (folder / _TREE).write_text(json.dumps(document), encoding="utf-8")
    now = time.time_ns()
    root = {
        "item_handlers": "orbax.checkpoint._src.handlers.standard_checkpoint_handler.StandardCheckpointHandler",
        "metrics": {}, "performance_metrics": {}, "init_timestamp_nsecs": now, "commit_timestamp_nsecs": now,
        "custom_metadata": {},
    }  # fmt: skip
    (folder / _ROOT).write_text(json.dumps(root), encoding="utf-8")


def _leaves(value: Any, keys: tuple[tuple[Any, int], ...]) -> Iterator[tuple[tuple[tuple[Any, int], ...], Any]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, (*keys, (key_text(key), _IN_A_DICT)))
    elif isinstance(value, (list, tuple)) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, (*keys, (index, _IN_A_LIST)))
    else:
        yield keys, value


def _kind_of(value: Any) -> str | None:
    """Return Orbax's word for the kind of a value. None for one that it has no form for."""
    if isinstance(value, Array):
        return "np.ndarray" if math.prod(value.shape) else None
    if value is None:
        return "None"
    fits = type(value) in (bool, float) or (type(value) is int and -(2**63) <= value < 2**63)
    return "scalar" if fits else None


def _why_not(value: Any) -> str:
    if isinstance(value, Array):
        return "Orbax writes no array without elements"
    return f"Orbax has no form for {'an integer beyond 64 bits' if type(value) is int else type(value).__name__}"


def _write_array(np: Any, ts: Any, context: Any, folder: Path, name: str, array: Array) -> None:
    item = ITEM_BYTES[array.dtype]
    chunk = _chunk_shape(array.shape, most=_CHUNK_BYTES // item)
    spec = {
        "driver": "zarr",
        "kvstore": {"driver": "ocdbt", "base": _base(folder), "path": f"{name}/"},
        "metadata": {"shape": list(array.shape), "chunks": list(chunk)},
    }
    store = ts.open(spec, create=True, dtype=getattr(ts, array.dtype), context=context).result()
    pieces, rest = array.pieces(), bytearray()
    # Chunks follow one another in C order: only the innermost divided dimension has several indices in a chunk.
    for first in itertools.product(*(range(0, size, step) for size, step in zip(array.shape, chunk))):
        place = tuple(slice(at, min(at + step, size)) for at, step, size in zip(first, chunk, array.shape))
        shape = tuple(one.stop - one.start for one in place)
        needed = math.prod(shape) * item
        while len(rest) < needed:
            rest += next(pieces)
        values = np.frombuffer(bytes(rest[:needed]), dtype=store.dtype.numpy_dtype).reshape(shape)
        del rest[:needed]
        store[place].write(values).result()
    for _ in pieces:
        pass  # There are none. Another number of bytes is found here.


def _chunk_shape(shape: tuple[int, ...], *, most: int) -> tuple[int, ...]:
    """Divide an array into chunks of at most so many elements, which follow one another in C order."""
    for axis in range(len(shape)):
        inner = math.prod(shape[axis + 1 :])
        if inner <= most:
            return (1,) * axis + (max(1, min(shape[axis], most // inner)), *shape[axis + 1 :])
    return shape


def read_orbax(folder: Path) -> dict[str, Any]:
    """Read a checkpoint. The bytes of arrays are read when they are asked for.

    Returns:
        Its state, with an `Array` for each array. Tuples are lists, as Orbax keeps no difference.

    Raises:
        ExchangeError: It is no such checkpoint, it is damaged, or it claims more than it has.
        MissingLibraryError: Orbax is not installed.
    """
    _library("numpy")
    ts = _library("tensorstore")
    folder = _item(folder)
    # TensorStore follows links.
    link = next((path for path in folder.rglob("*") if path.is_symlink()), None)
    if link is not None:
        raise ExchangeError(f"{link.relative_to(folder)} is a link, which is not followed")
    metadata = read_json(folder / _TREE, most_bytes=_MOST_METADATA_BYTES)
    tree = metadata.get("tree_metadata")
    if not isinstance(tree, dict):
        raise ExchangeError(f"{_TREE} has no tree")
    context = ts.Context(_CACHE)
    ocdbt, driver = bool(metadata.get("use_ocdbt")), "zarr3" if metadata.get("use_zarr3") else "zarr"
    state: dict[str, Any] = {}
    for entry in tree.values():
        keys, kind = _keys(entry)
        name = ".".join(str(key) for key, _ in keys)
        base = _base(folder)
        # A key-value store has no folders, and a folder of its own must not be left.
        if not ocdbt and ("/" in name or name.startswith(".")):
            raise ExchangeError(f"{_TREE} has the name {name[:80]!r}, which is no folder beside it")
        whole = {"driver": "ocdbt", "base": base, "path": f"{name}/"}
        kvstore = whole if ocdbt else {**base, "path": f"{base['path']}{name}/"}
        value = _stored(ts, context, {"driver": driver, "kvstore": kvstore}, name=name, kind=kind)
        _put(state, keys, value)
    return {str(key): _listed(item) for key, item in state.items()}


def _base(folder: Path) -> dict[str, str]:
    return {"driver": "file", "path": f"{folder.absolute()}/"}


def _item(folder: Path) -> Path:
    """Return the folder with the arrays. Orbax's manager puts it below the step, under the name of the item."""
    if (folder / _TREE).is_file():
        return folder
    below = [path for path in sorted(folder.iterdir()) if (path / _TREE).is_file()] if folder.is_dir() else []
    if len(below) != 1:
        raise ExchangeError(f"{folder} has no {_TREE}, or {len(below)} folders with one: name one of them")
    return below[0]


def _keys(entry: Any) -> tuple[list[tuple[Any, int]], str]:
    known = isinstance(entry, dict) and isinstance(entry.get("key_metadata"), list)
    parts = entry["key_metadata"] if known else []
    value = entry.get("value_metadata") if isinstance(entry, dict) else None
    if not parts or not all(isinstance(part, dict) and isinstance(part.get("key"), str) for part in parts):
        raise ExchangeError(f"{_TREE} has a name that makes no sense")
    if len(parts) > _MOST_DIMENSIONS or not isinstance(value, dict) or not isinstance(value.get("value_type"), str):
        raise ExchangeError(f"{_TREE} has an entry that makes no sense")
    keys = []
    for part in parts:
        number = part.get("key_type") == _IN_A_LIST and part["key"].isdecimal()
        keys.append((int(part["key"]) if number else part["key"], _IN_A_LIST if number else _IN_A_DICT))
    return keys, value["value_type"]


def _stored(ts: Any, context: Any, spec: Any, *, name: str, kind: str) -> Any:
    if kind == "None":
        return None
    if kind in ("Dict", "List", "Tuple"):
        return {} if kind == "Dict" else []
    if kind not in _ARRAYS and kind != "scalar":
        return Stray(f"a value of the kind {kind[:40]}")
    try:
        store = ts.open(spec, open=True, read=True, context=context).result()
    except (ValueError, OSError) as error:
        raise ExchangeError(f"the array {name[:80]!r} cannot be read: {str(error)[:200]}") from error
    dtype, shape = str(store.dtype.name), tuple(int(size) for size in store.shape)
    if dtype not in ITEM_BYTES or len(shape) > _MOST_DIMENSIONS:
        return Stray(f"an array of type {dtype[:40]}")
    if kind == "scalar" and not shape:
        return _read(name, store, ()).item()
    largest = math.prod(min(int(one), size) for one, size in zip(store.chunk_layout.read_chunk.shape or (), shape))
    if largest * ITEM_BYTES[dtype] > 2**32:
        raise ExchangeError(f"the array {name[:80]!r} has chunks of more than 4 GiB")
    return Array("ndarray", dtype, shape, partial(_pieces, store, name, dtype, shape))


def _pieces(store: Any, name: str, dtype: str, shape: tuple[int, ...]) -> Iterator[bytes]:
    step = _chunk_shape(shape, most=max(PIECE_BYTES, _CHUNK_BYTES) // ITEM_BYTES[dtype])
    for first in itertools.product(*(range(0, size, one) for size, one in zip(shape, step))):
        place = tuple(slice(at, min(at + one, size)) for at, one, size in zip(first, step, shape))
        raw: bytes = _read(name, store, place).tobytes()
        yield raw


def _read(name: str, store: Any, place: tuple[slice, ...]) -> Any:
    try:
        return store[place].read().result() if place else store.read().result()
    except (ValueError, OSError) as error:
        raise ExchangeError(f"the array {name[:80]!r} cannot be read: {str(error)[:200]}") from error


def _put(state: dict[Any, Any], keys: list[tuple[Any, int]], value: Any) -> None:
    for key, _ in keys[:-1]:
        state = state.setdefault(key, {})
        if not isinstance(state, dict):
            raise ExchangeError(f"{_TREE} puts two values into one place")
    if keys[-1][0] in state:
        raise ExchangeError(f"{_TREE} puts two values into one place")
    state[keys[-1][0]] = value


def _listed(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    items = {key: _listed(item) for key, item in value.items()}
    if items and all(type(key) is int for key in items) and sorted(items) == list(range(len(items))):
        return [items[index] for index in range(len(items))]
    return items


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingLibraryError(
            f"a checkpoint of Orbax needs {name}, which is not installed here: pip install orbax-checkpoint"
        ) from error
