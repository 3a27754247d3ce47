"""Checkpoints of `torch.distributed.checkpoint` (DCP), written and read without torch.

Such a checkpoint is a folder. Its `.metadata` is a pickle with the shape of each tensor, its chunks, and the place of
each chunk in the `.distcp` files. A chunk is a whole file of `torch.save` there. Other values are such files, too.
Source: `torch/distributed/checkpoint/filesystem.py` and `metadata.py`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Callable

from spotkeep.errors import ExchangeError
from spotkeep.pickle_operations import MalformedPickleError
from spotkeep.state.divided import Box, Overlap, cover_problem, slabs

from .elements import ITEM_BYTES, PIECE_BYTES, Array, Stray
from .files import opened, read_whole
from .pickles import Call, Global, Instance, name_of, read_pickle, written_pickle
from .states import key_text
from .torch_files import TensorPlace, read_torch_file, write_torch_file

METADATA = ".metadata"
_DATA = "__0_0.distcp"
_CHUNK_BYTES = 64 * 2**20
"""The most bytes of a chunk that is written. A reader holds one chunk at a time."""
_MOST_METADATA_BYTES = 2**30
_MOST_VALUES = 1_000_000
_MOST_DIMENSIONS = 64
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_NAMES = "torch.distributed.checkpoint.metadata"
_PLACES = "torch.distributed.checkpoint.filesystem"
_Path = tuple[Any, ...]


class _FromHere:
    """A file for writing that begins at the place of another one.

    Args:
        file: The other file.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._start = file, file.tell()
        self.write: Callable[[bytes], int] = file.write
        self.flush = file.flush

    def tell(self) -> int:
        """Return the place."""
        return self._file.tell() - self._start

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place."""
        return self._file.seek(offset + (self._start if whence == os.SEEK_SET else 0), whence) - self._start

    def seekable(self) -> bool:
        """Return True."""
        return True


def flattened(state: Mapping[Any, Any]) -> Iterator[tuple[_Path, Any]]:
    """Give the values of a state with their paths, as DCP takes a state apart.

    Lists are taken apart where they hold tensors or dictionaries, and tuples never.
    """
    for key, value in state.items():
        yield from _flattened((key_text(key),), value)


def _flattened(path: _Path, value: Any) -> Iterator[tuple[_Path, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flattened((*path, key_text(key)), item)
    elif isinstance(value, list) and _holds_tensors(value):
        for index, item in enumerate(value):
            yield from _flattened((*path, index), item)
    else:
        yield path, value


def _holds_tensors(value: Sequence[Any]) -> bool:
    return any(isinstance(item, (Array, dict)) or (isinstance(item, list) and _holds_tensors(item)) for item in value)


def write_dcp(folder: Path, state: Mapping[Any, Any]) -> int:
    """Write a checkpoint that `torch.distributed.checkpoint.load` reads on any number of ranks. Return its bytes.

    Args:
        folder: An empty folder.
        state: Plain values by name, with an `Array` for each tensor.

    Raises:
        ExchangeError: Two values have the same name, or DCP cannot hold one.
    """
    described: dict[str, Any] = {}
    paths: dict[str, _Path] = {}
    places: dict[Any, Any] = {}
    with (folder / _DATA).open("wb") as file:
        for path, value in flattened(state):
            name = ".".join(map(str, path))
            if name in described:
                raise ExchangeError(f"two values have the name {name!r} in DCP, which joins names with dots")
            paths[name] = path
            if isinstance(value, Array):
                chunks = list(_chunks(value))
                described[name] = _tensor(value, [box for box, _ in chunks])
                for number, (box, part) in enumerate(chunks):
                    places[_index(name, box, number)] = _written(file, part)
            else:
                described[name] = Instance(Global(_NAMES, "BytesStorageMetadata"), ())
                places[_index(name, None, None)] = _written(file, value)
        size = file.tell()
    meta = Instance(Global(_NAMES, "Metadata"), (), {
        "state_dict_metadata": described, "planner_data": paths, "storage_data": places, "storage_meta": None,
    })  # fmt: skip
    content = written_pickle(meta)
    # Last: a reader that finds it finds everything.
    (folder / METADATA).write_bytes(content)
    return size + len(content)


def _chunks(array: Array) -> Iterator[tuple[Box, Array]]:
    """Divide a tensor into pieces that follow one another in C order."""
    whole = Box.whole(array.shape)
    if not whole.volume or array.size <= _CHUNK_BYTES:
        yield whole, array
        return
    source = _Following(array)
    for box in slabs(whole, whole, most=_CHUNK_BYTES // ITEM_BYTES[array.dtype]):
        size = box.volume * ITEM_BYTES[array.dtype]
        yield box, Array(array.kind, array.dtype, box.shape, partial(source.read, size))


class _Following:
    """The bytes of an array for readers that come one after another.

    Args:
        array: The array.
    """

    def __init__(self, array: Array) -> None:
        self._pieces, self._rest = array.pieces(), memoryview(b"")

    def read(self, size: int) -> Iterator[bytes]:
        """Give the next bytes."""
        while size:
            if not self._rest:
                self._rest = memoryview(next(self._pieces, b""))
                if not self._rest:
                    return
            piece, self._rest = self._rest[:size], self._rest[size:]
            size -= len(piece)
            yield bytes(piece)


def _written(file: BinaryIO, value: Any) -> Instance:
    start = file.tell()
    write_torch_file(_FromHere(file), value)  # type: ignore[arg-type]
    place = {"relative_path": _DATA, "offset": start, "length": file.tell() - start}
    return Instance(Global(_PLACES, "_StorageInfo"), (), place)


def _size(sizes: Sequence[int]) -> Call:
    return Call(Global("torch", "Size"), (tuple(sizes),))


def _index(name: str, box: Box | None, number: int | None) -> Instance:
    offset = None if box is None else _size(box.offsets)
    return Instance(Global(_NAMES, "MetadataIndex"), (), {"fqn": name, "index": number, "offset": offset})


def _tensor(array: Array, boxes: Sequence[Box]) -> Instance:
    layout = Call(Global("torch.serialization", "_get_layout"), ("torch.strided",))
    memory_format = Call(Global(_NAMES, "_MEM_FORMAT_ENCODING"), (0,))
    properties = Instance(
        Global(_NAMES, "TensorProperties"), (), (Global("torch", array.dtype), layout, False, memory_format, False)
    )
    chunks = [
        Instance(Global(_NAMES, "ChunkStorageMetadata"), (), {"offsets": _size(box.offsets), "sizes": _size(box.shape)})
        for box in boxes
    ]
    return Instance(
        Global(_NAMES, "TensorStorageMetadata"),
        (),
        {"properties": properties, "size": _size(array.shape), "chunks": chunks},
    )


@dataclass(frozen=True)
class _Place:
    file: str
    offset: int
    length: int


@contextmanager
def read_dcp(folder: Path) -> Iterator[dict[Any, Any]]:
    """Read a checkpoint of any number of ranks. The bytes of tensors are read when they are asked for.

    Yields:
        Its state, with an `Array` for each tensor and a `Stray` for each value that only code could make. The files are
        closed at the end of the block.

    Raises:
        ExchangeError: It is no such checkpoint, it is damaged, or it claims more than it has.
    """
    try:
        metadata = _fields(read_pickle(read_whole(folder / METADATA, most_bytes=_MOST_METADATA_BYTES)), "Metadata")
    except MalformedPickleError as error:
        raise ExchangeError(f"{METADATA} cannot be read: {error}") from error
    described, paths = metadata.get("state_dict_metadata"), metadata.get("planner_data")
    places = _places(metadata.get("storage_data"))
    if not isinstance(described, dict) or len(described) > _MOST_VALUES:
        raise ExchangeError(f"{METADATA} describes no state")
    names = sorted({place.file for place in places.values()})
    with opened([folder / name for name in names]) as descriptors:
        if sum(place.length for place in places.values()) > sum(os.fstat(file).st_size for file in descriptors):
            raise ExchangeError("its values have more bytes than its files")
        read = partial(_stored, descriptors=dict(zip(names, descriptors)))
        state: dict[Any, Any] = {}
        for name, description in described.items():
            if not isinstance(name, str):
                raise ExchangeError(f"{METADATA} has a name that is no text")
            value = _value(name, description, places, read)
            path = paths.get(name) if isinstance(paths, dict) else None
            _put(state, path if isinstance(path, tuple) and path else (name,), value)
        yield with_numbers_as_keys(_lists(state))


def _fields(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, Call) or getattr(value.function, "name", None) != name:
        raise ExchangeError(f"{METADATA} has something else in the place of a {name}")
    if not isinstance(value.state, dict):
        raise ExchangeError(f"a {name} in {METADATA} has no fields")
    return value.state


def _places(found: Any) -> dict[tuple[str, tuple[int, ...] | None], _Place]:
    if not isinstance(found, dict):
        raise ExchangeError(f"{METADATA} names no places")
    places = {}
    for index, info in found.items():
        key, fields = _fields(index, "MetadataIndex"), _fields(info, "_StorageInfo")
        file, offset, length = (fields.get(name) for name in ("relative_path", "offset", "length"))
        if fields.get("transform_descriptors"):
            raise ExchangeError("its files are compressed or otherwise transformed: save them without")
        name, at = key.get("fqn"), key.get("offset")
        if not isinstance(file, str) or not isinstance(name, str) or type(offset) is not int or type(length) is not int:
            raise ExchangeError(f"{METADATA} has a place that makes no sense")
        # A name with a folder in it could lead anywhere.
        if not _FILE_NAME.fullmatch(file):
            raise ExchangeError(f"{METADATA} names {file[:80]!r}, which is no file beside it")
        if not 0 <= offset < 2**62 or not 0 <= length < 2**62:
            raise ExchangeError(f"{METADATA} has a place that makes no sense")
        places[name, None if at is None else _sizes(at)] = _Place(file, offset, length)
    return places


def _sizes(value: Any) -> tuple[int, ...]:
    arguments = value.arguments if isinstance(value, Call) and name_of(value.function) == "torch.Size" else ()
    sizes = arguments[0] if len(arguments) == 1 else None
    if not isinstance(sizes, (tuple, list)) or len(sizes) > _MOST_DIMENSIONS:
        raise ExchangeError(f"{METADATA} has a shape that makes no sense")
    if not all(type(size) is int and 0 <= size < 2**62 for size in sizes):
        raise ExchangeError(f"{METADATA} has a shape that makes no sense")
    return tuple(sizes)


def _stored(place: _Place, *, descriptors: Mapping[str, int]) -> tuple[Any, list[TensorPlace]]:
    return read_torch_file(descriptors[place.file], start=place.offset, size=place.length)


def _value(
    name: str,
    description: Any,
    places: Mapping[tuple[str, tuple[int, ...] | None], _Place],
    read: Callable[[_Place], tuple[Any, list[TensorPlace]]],
) -> Any:
    if getattr(getattr(description, "function", None), "name", None) == "BytesStorageMetadata":
        place = places.get((name, None))
        if place is None:
            raise ExchangeError(f"the place of {name[:80]!r} is missing")
        return read(place)[0]
    fields = _fields(description, "TensorStorageMetadata")
    shape = _sizes(fields.get("size"))
    properties = fields.get("properties")
    state = properties.state if isinstance(properties, Call) else None
    dtype = state[0] if isinstance(state, tuple) and state else None
    if not isinstance(dtype, Global) or dtype.name not in ITEM_BYTES:
        return Stray(f"a tensor of type {name_of(dtype)[:60]}")
    chunks = fields.get("chunks")
    if not isinstance(chunks, list):
        raise ExchangeError(f"{name[:80]!r} has no chunks")
    boxes = []
    for chunk in chunks:
        part = _fields(chunk, "ChunkStorageMetadata")
        boxes.append(Box(_sizes(part.get("offsets")), _sizes(part.get("sizes"))))
    if math.prod(shape):
        boxes = [box for box in boxes if box.volume]
        problem = cover_problem(shape, boxes)
        if problem is not None:
            raise ExchangeError(f"{name[:80]!r} is not whole: {problem}")
    parts = [(box, _part(name, box, dtype.name, places, read)) for box in boxes] if math.prod(shape) else []
    return Array("tensor", dtype.name, shape, partial(_assembled, shape, dtype.name, parts))


def _part(
    name: str,
    box: Box,
    dtype: str,
    places: Mapping[tuple[str, tuple[int, ...] | None], _Place],
    read: Callable[[_Place], tuple[Any, list[TensorPlace]]],
) -> Callable[[], TensorPlace]:
    place = places.get((name, box.offsets))
    if place is None:
        raise ExchangeError(f"the place of a chunk of {name[:80]!r} is missing")
    if box.volume * ITEM_BYTES[dtype] > place.length:
        raise ExchangeError(f"a chunk of {name[:80]!r} has fewer bytes than its shape needs")

    def found() -> TensorPlace:
        value, tensors = read(place)
        if not isinstance(value, Array) or len(tensors) != 1:
            raise ExchangeError(f"a chunk of {name[:80]!r} is no tensor")
        (tensor,) = tensors
        if tensor.dtype != dtype or tensor.shape != box.shape:
            raise ExchangeError(f"a chunk of {name[:80]!r} has another shape or type than {METADATA} says")
        return tensor

    return found


def _assembled(
    shape: tuple[int, ...], dtype: str, parts: Sequence[tuple[Box, Callable[[], TensorPlace]]]
) -> Iterator[bytes]:
    """Give a tensor's bytes in C order, put together from its chunks. Memory holds one piece."""
    if not parts:
        return
    item, whole = ITEM_BYTES[dtype], Box.whole(shape)
    tensors = [(box, find()) for box, find in parts]
    if len(tensors) == 1:
        yield from tensors[0][1].read()
        return
    loose = {box: b"".join(tensor.read()) for box, tensor in tensors if not tensor.is_contiguous}
    for slab in slabs(whole, whole, most=max(PIECE_BYTES // item, 1)):
        piece = bytearray(slab.volume * item)
        for box, tensor in tensors:
            overlap = Overlap.of(box, slab)
            for run in () if overlap is None else overlap.runs():
                first, end = run.source * item, (run.source + run.length) * item
                raw = loose[box][first:end] if box in loose else tensor.bytes_at(run.source, run.length)
                piece[run.target * item : run.target * item + len(raw)] = raw
        yield bytes(piece)


def _put(state: dict[Any, Any], path: _Path, value: Any) -> None:
    """Put a value to its path. Lists are dictionaries by number until all is there."""
    if len(path) > _MOST_DIMENSIONS or not all(isinstance(key, str) or type(key) is int for key in path):
        raise ExchangeError(f"{METADATA} has a path that makes no sense")
    for key in path[:-1]:
        state = state.setdefault(key, {})
        if not isinstance(state, dict):
            raise ExchangeError(f"{METADATA} puts two values into one place")
    if path[-1] in state:
        raise ExchangeError(f"{METADATA} puts two values into one place")
    state[path[-1]] = value


def _lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    items = {key: _lists(item) for key, item in value.items()}
    if items and all(type(key) is int for key in items) and sorted(items) == list(range(len(items))):
        return [items[index] for index in range(len(items))]
    return items


def with_numbers_as_keys(state: Any) -> Any:
    """Give an optimizer's state its numbers back. DCP writes the keys of all dictionaries as texts."""
    if isinstance(state, list):
        return [with_numbers_as_keys(item) for item in state]
    if not isinstance(state, dict):
        return state
    found = {key: with_numbers_as_keys(item) for key, item in state.items()}
    states = found.get("state")
    numbered = isinstance(states, dict) and all(isinstance(key, str) and key.isdecimal() for key in states)
    if numbered and isinstance(found.get("param_groups"), list):
        found["state"] = {int(key): item for key, item in found["state"].items()}
    return found
