"""Files of safetensors, written and read without the library. Memory holds one piece of an array.

Large states are several files and an index, as Hugging Face's libraries write them. The index names the file of each
array. Source: https://huggingface.co/docs/safetensors/index#format
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from spotkeep.errors import ExchangeError

from .elements import ITEM_BYTES, PIECE_BYTES, Array, require_little_endian
from .files import opened, read_json

NAMES = {
    "bool": "BOOL",
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"F{bits}" for bits in (16, 32, 64)},
    "bfloat16": "BF16",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
}
"""The format's names of the element types that it has."""
MAX_HEADER_BYTES = 100_000_000
"""The most bytes of a header that the reference implementation reads."""
METADATA = "__metadata__"
"""The name that the format keeps for itself."""
_DTYPES = {name: dtype for dtype, name in NAMES.items()}
_ALIGNMENT_BYTES = 8
_MOST_DIMENSIONS = 64
_MOST_INDEX_BYTES = 2**28
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}\.safetensors")


def write_safetensors(file: BinaryIO, arrays: Mapping[str, Array], *, metadata: Mapping[str, str]) -> int:
    """Write a whole file. Return its size in bytes.

    Args:
        file: A file open for writing, and able to seek. Arrays are read in the order given, and may be placed in
            another.
        arrays: The arrays, of types that the format has.
        metadata: Free text beside them.

    Raises:
        ExchangeError: The header is longer than readers take.
    """
    require_little_endian()
    document: dict[str, object] = {METADATA: dict(metadata)}
    offsets: dict[str, int] = {}
    end = 0
    # The largest elements first: each array is aligned to its own.
    for name, array in sorted(arrays.items(), key=lambda item: -ITEM_BYTES[item[1].dtype]):
        offsets[name] = end
        end += array.size
        document[name] = {
            "dtype": NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [offsets[name], end],
        }
    header = json.dumps(document, separators=(",", ":")).encode()
    header += b" " * (-len(header) % _ALIGNMENT_BYTES)
    if len(header) > MAX_HEADER_BYTES:
        raise ExchangeError(
            f"a safetensors file cannot hold this state: its names and values make a header of {len(header):,} bytes",
            hint="export it as torch",
        )
    file.write(len(header).to_bytes(8, "little"))
    file.write(header)
    data_start = 8 + len(header)
    for name, array in arrays.items():
        file.seek(data_start + offsets[name])
        for piece in array.pieces():
            file.write(piece)
    return data_start + end


def shards(arrays: Mapping[str, Array], *, most_bytes: int) -> list[dict[str, Array]]:
    """Divide arrays into files, in their order. An array that is larger than a file has one of its own.

    Args:
        arrays: The arrays.
        most_bytes: The most bytes of arrays in a file.
    """
    found: list[dict[str, Array]] = [{}]
    room = most_bytes
    for name, array in arrays.items():
        if array.size > room and found[-1]:
            found.append({})
            room = most_bytes
        found[-1][name] = array
        room -= array.size
    return found


def shard_names(name: str, count: int) -> list[str]:
    """Name the files of a state of several: `model.safetensors` becomes `model-00001-of-00003.safetensors`."""
    stem = name[: -len(".safetensors")] if name.endswith(".safetensors") else name
    return [f"{stem}-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]


def index_document(files: Sequence[str], parts: Sequence[Mapping[str, Array]]) -> dict[str, Any]:
    """Return the index of a state of several files.

    Args:
        files: The names of the files.
        parts: The arrays of each.
    """
    return {
        "metadata": {"total_size": sum(array.size for part in parts for array in part.values())},
        "weight_map": {name: file for file, part in zip(files, parts) for name in part},
    }


@contextmanager
def read_safetensors(path: Path) -> Iterator[tuple[dict[str, Array], dict[str, str]]]:
    """Read a file, an index of several files, or a folder with one of either. Bytes are read when they are asked for.

    Args:
        path: The file or folder.

    Yields:
        The arrays and the metadata of all files. The files are closed at the end of the block.

    Raises:
        ExchangeError: A file is none of safetensors, or claims more than it has.
    """
    require_little_endian()
    files, expected = _files(path)
    arrays: dict[str, Array] = {}
    metadata: dict[str, str] = {}
    with opened(files) as descriptors:
        for file, descriptor in zip(files, descriptors):
            found, texts = _read_header(descriptor, name=file.name)
            wanted = None if expected is None else {name for name, where in expected.items() if where == file.name}
            if wanted is not None and wanted != set(found):
                raise ExchangeError(f"{file.name} does not have the arrays that the index names")
            arrays.update(found)
            metadata.update(texts)
        yield arrays, metadata


def _files(path: Path) -> tuple[list[Path], dict[str, str] | None]:
    """Return the files, and the file of each array where there is an index."""
    if path.is_dir():
        indices = sorted(path.glob("*.safetensors.index.json"))
        found = indices or sorted(path.glob("*.safetensors"))
        if len(found) != 1:
            raise ExchangeError(f"{path} has {len(found)} files of safetensors or indices: name one of them")
        (path,) = found
    if not path.name.endswith(".json"):
        return [path], None
    weights = read_json(path, most_bytes=_MOST_INDEX_BYTES).get("weight_map")
    if not isinstance(weights, dict) or not weights:
        raise ExchangeError(f"{path.name} has no weight_map")
    for name in weights.values():
        # A name with a folder in it could lead anywhere.
        if not isinstance(name, str) or not _FILE_NAME.fullmatch(name):
            raise ExchangeError(f"{path.name} names {str(name)[:80]!r}, which is no file beside it")
    return [path.parent / name for name in sorted(set(weights.values()))], weights


def _read_header(descriptor: int, *, name: str) -> tuple[dict[str, Array], dict[str, str]]:
    size = os.fstat(descriptor).st_size
    length = int.from_bytes(os.pread(descriptor, 8, 0).ljust(8, b"\xff"), "little")
    if length > min(MAX_HEADER_BYTES, size - 8):
        raise ExchangeError(f"{name} is no file of safetensors: its header has {length:,} bytes")
    try:
        header = json.loads(os.pread(descriptor, length, 8), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise ExchangeError(f"{name} is no file of safetensors: {str(error)[:100]}") from error
    if not isinstance(header, dict):
        raise ExchangeError(f"{name} is no file of safetensors")
    texts = header.pop(METADATA, {})
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise ExchangeError(f"{name} has metadata that are no texts")
    data_start = 8 + length
    arrays, places = {}, []
    for key, entry in header.items():
        dtype, shape, (first, end) = _checked(entry, key)
        places.append((first, end))
        read = partial(_pieces, descriptor, data_start + first, end - first, name)
        arrays[key] = Array("tensor", dtype, shape, read)
    last = 0
    # The format leaves no holes, and no two arrays share bytes.
    for first, end in sorted(places):
        if first != last:
            raise ExchangeError(f"{name} has arrays that overlap or leave a hole at byte {min(first, last):,}")
        last = end
    if data_start + last != size:
        raise ExchangeError(f"{name} has {size:,} bytes, and its arrays end at {data_start + last:,}")
    return arrays, texts


def _checked(entry: Any, name: str) -> tuple[str, tuple[int, ...], tuple[int, int]]:
    known = isinstance(entry, dict) and entry.keys() == {"dtype", "shape", "data_offsets"}
    shape: Any = entry["shape"] if known else None
    offsets: Any = entry["data_offsets"] if known else None
    sizes = isinstance(shape, list) and isinstance(offsets, list) and len(offsets) == 2
    if not sizes or not all(type(number) is int and 0 <= number < 2**62 for number in (*shape, *offsets)):
        raise ExchangeError(f"the array {name[:80]!r} has a description that makes no sense")
    dtype = _DTYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if dtype is None or len(shape) > _MOST_DIMENSIONS:
        raise ExchangeError(f"the array {name[:80]!r} has the type {str(entry['dtype'])[:40]}, which is not read here")
    count = ITEM_BYTES[dtype]
    for number in shape:
        count *= number
    if offsets[1] - offsets[0] != count:
        raise ExchangeError(f"the array {name[:80]!r} does not have the bytes of its shape")
    return dtype, tuple(shape), (offsets[0], offsets[1])


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) != len(pairs):
        raise ValueError("a name stands in it twice")
    return found


def _pieces(descriptor: int, start: int, size: int, name: str) -> Iterator[bytes]:
    end = start + size
    while start < end:
        piece = os.pread(descriptor, min(PIECE_BYTES, end - start), start)
        if not piece:
            raise ExchangeError(f"{name} is cut off")
        start += len(piece)
        yield piece
