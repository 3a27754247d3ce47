"""A training state as a JSON document plus raw bytes. Pure, without files. `decoding.py` is the way back.

The document holds the structure and the small values. Each large value (an array, a tensor, bytes) becomes a blob, and
the document holds its place. Nothing in the document can name code.

| value | in the document |
|---|---|
| None, bool, str, int below 2^53, finite float | itself |
| list | a JSON array |
| any other value | an object with one key that names the kind, for example `{"tuple": [...]}` |
"""

from __future__ import annotations

import bisect
import re
import struct
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable

from spotkeep.errors import StateError

from . import arrays
from .divided import (
    Box,
    DividedArray,
    UndividableArrayError,
    divided_of,
    is_dtensor,
)
from .random_states import bit_generator_state
from .state_dicts import StateDict, is_module, module_state

Json = Any

ALIGNMENT_BYTES = 64
_PAGE_BYTES = 4096
_MAX_DEPTH = 100
_PLAIN_INT = 2**53
_SURROGATE = re.compile("[\ud800-\udfff]")
LEFT_OUT: Json = {"left out": None}
"""Stands for an object that was not asked."""

_PLAIN_TYPES = frozenset((type(None), bool, int, float, complex, str, bytes, bytearray))
_HASHABLE_KEYS = (str, int, float, complex, bool, bytes, tuple, type(None))


class MalformedStateError(Exception):
    """A state document makes no sense. The message says why."""


@dataclass(frozen=True)
class Blob:
    """Raw bytes and the place where they go.

    Attributes:
        offset: First byte within the stream, a multiple of 64, and of 4096 for 4096 bytes or more.
        raw: The bytes, or their place on a GPU.
    """

    offset: int
    raw: arrays.Buffer | arrays.DeviceBytes


@dataclass(frozen=True)
class StreamPart:
    """A part of a stream that this process writes, in data files of its own.

    Attributes:
        size: Its length in bytes, a multiple of 4096. It has whole chunks where another process writes what follows.
        blobs: Its bytes. Their offsets count from its beginning.
    """

    size: int
    blobs: tuple[Blob, ...]

    @classmethod
    def whole(cls, blobs: Sequence[Blob]) -> StreamPart:
        """Give a whole stream."""
        return cls(stream_size(blobs), tuple(blobs))

    def between(self, start: int, end: int) -> StreamPart:
        """Give the part of it between two places."""
        if start == 0 and end == self.size:
            return self
        offsets = [blob.offset for blob in self.blobs]
        first = max(bisect.bisect_right(offsets, start) - 1, 0)
        found = []
        for blob in self.blobs[first : bisect.bisect_left(offsets, end)]:
            low, high = max(start - blob.offset, 0), min(end - blob.offset, len(blob.raw))
            if low < high:
                raw = blob.raw if high - low == len(blob.raw) else arrays.part_of(blob.raw, low, high)
                found.append(Blob(blob.offset + low - start, raw))
        return StreamPart(end - start, tuple(found))


def stream_size(blobs: Sequence[Blob]) -> int:
    """Give the length of a stream with these bytes."""
    end = blobs[-1].offset + len(blobs[-1].raw) if blobs else 0
    return -(-end // _PAGE_BYTES) * _PAGE_BYTES


@dataclass(frozen=True)
class EncodedState:
    """A state, ready to be written.

    Attributes:
        document: The JSON document.
        blobs: The raw bytes, in the order of their offsets in one stream, never overlapping.
        divided: The arrays that this rank has parts of. The document refers to them by their numbers.
    """

    document: Json
    blobs: tuple[Blob, ...]
    divided: tuple[DividedArray, ...] = ()

    @property
    def parts(self) -> tuple[StreamPart, ...]:
        """The parts of streams that one process writes."""
        return (StreamPart.whole(self.blobs),)


def encode_state(
    state: dict[str, Any],
    *,
    left_out: Callable[[Any], bool] = lambda _: False,
    one_process: bool = False,
) -> EncodedState:
    """Turn a state into a document and blobs.

    Args:
        state: Names and values of the kinds in `docs/checkpoint-format.md`.
        left_out: Objects whose state is not encoded. `LEFT_OUT` stands for it, which nothing decodes.
        one_process: A divided array is a plain one, because this process has all of it.

    Raises:
        StateError: An entry cannot be saved. The message names each.
    """
    encoder = _Encoder(left_out, one_process=one_process)
    document = encoder.encode(state, "state", depth=0, live=True)
    if encoder.problems:
        raise StateError(encoder.problems)
    return EncodedState(document=document, blobs=tuple(encoder.places.blobs), divided=tuple(encoder.divided))


def stateful_kind(value: Any) -> str | None:
    """Name the way in which an object gives its state, `state_dict`, `bit_generator`, `set_state` or `setstate`.

    None without one.
    """
    if isinstance(value, type):
        return None
    if callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None)):
        return "state_dict"
    if isinstance(getattr(getattr(value, "bit_generator", None), "state", None), dict):
        return "bit_generator"
    if callable(getattr(value, "get_state", None)) and callable(getattr(value, "set_state", None)):
        return "set_state"
    if callable(getattr(value, "getstate", None)) and callable(getattr(value, "setstate", None)):
        return "setstate"
    return None


def object_state(value: Any) -> Any:
    """Ask an object of any `stateful_kind` for its state."""
    kind = stateful_kind(value)
    if is_module(value):
        return module_state(value)
    if kind == "state_dict":
        return value.state_dict()
    if kind == "bit_generator":
        return bit_generator_state(value.bit_generator)
    return value.get_state() if kind == "set_state" else value.getstate()


def objects_in(value: Any, path: str = "state", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Find the arrays, tensors and objects in a state, with their places."""
    if isinstance(value, (dict, list, tuple)) or (depth == 0 and isinstance(value, Mapping)):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            # There may be a hundred thousand numbers.
            if type(item) not in _PLAIN_TYPES and depth < _MAX_DEPTH:
                yield from objects_in(item, f"{path}[{key!r}]", depth + 1)
    else:
        yield path, value


def encoded_pairs(node: Json) -> list[Json]:
    """Give the pairs of an encoded mapping, which is a dictionary, a counter, or a kept `state_dict`."""
    ((kind, body),) = node.items()
    pairs: list[Json] = body["items"] if kind == "state_dict" else body
    return pairs


class BlobPlaces:
    """Gives raw bytes their places in one stream, one after another.

    Args:
        stream: The number of the stream.

    Attributes:
        blobs: Those that have a place.
    """

    def __init__(self, stream: int = 0) -> None:
        self.blobs: list[Blob] = []
        self._stream = stream
        self._end = 0

    def place(self, raw: arrays.Buffer | arrays.DeviceBytes) -> dict[str, int]:
        """Give the next place, as a document describes it."""
        alignment = _PAGE_BYTES if len(raw) >= _PAGE_BYTES else ALIGNMENT_BYTES
        offset = -(-self._end // alignment) * alignment
        self._end = offset + len(raw)
        if len(raw):
            self.blobs.append(Blob(offset=offset, raw=raw))
        place = {"offset": offset, "size": len(raw)}
        return place if not self._stream else {"stream": self._stream, **place}


def is_place(node: Json) -> bool:
    """Say whether a dictionary in a document describes bytes in a stream. Only arrays, tensors and bytes do."""
    return "offset" in node


class _Encoder:
    def __init__(self, left_out: Callable[[Any], bool], *, one_process: bool) -> None:
        self._left_out = left_out
        self._one_process = one_process
        self.problems: list[str] = []
        self.divided: list[DividedArray] = []
        self.places = BlobPlaces()
        self._open_containers: set[int] = set()

    def encode(self, value: Any, path: str, *, depth: int, live: bool) -> Json:
        if value is None or type(value) is bool:
            return value
        if type(value) is int:
            return value if -_PLAIN_INT < value < _PLAIN_INT else {"int": hex(value)}
        if type(value) is float:
            # NaN, the infinities: JSON has none, and a NaN's bits matter to a bit-for-bit resume.
            return value if value - value == 0 else {"float": struct.pack(">d", value).hex()}
        if type(value) is complex:
            return {"complex": struct.pack(">dd", value.real, value.imag).hex()}
        if type(value) is str:
            # JSON joins a pair of lone surrogates into one character.
            if _SURROGATE.search(value):
                return {"str": value.encode("utf-8", "surrogatepass").hex()}
            return value
        if type(value) in (bytes, bytearray):
            return {type(value).__name__: self.places.place(value)}
        if arrays.is_torch_tensor(value):
            if arrays.is_wrapper(value) and is_dtensor(value):
                return self._encode_divided(value, path, live=live)
            return self._encode_array("tensor", value, path, live=live)
        if arrays.is_numpy_array(value):
            return self._encode_array("ndarray", value, path)
        if isinstance(value, DividedArray):
            return self._encode_divided(value, path, live=live)
        if arrays.is_numpy_scalar(value):
            return self._encode_array("scalar", value, path)
        if type(value) in (list, tuple, dict, OrderedDict, StateDict, Counter):
            return self._encode_container(value, path, depth=depth, live=live)
        if live and stateful_kind(value) is not None:
            if self._left_out(value):
                return LEFT_OUT
            return self.encode(object_state(value), path, depth=depth + 1, live=False)
        self._refuse(path, value)
        return None

    def _encode_array(self, kind: str, value: Any, path: str, *, live: bool = False) -> Json:
        try:
            meta, raw = arrays.dump_torch(value) if kind == "tensor" else arrays.dump_numpy(value)
        except arrays.UnsupportedArrayError as error:
            self.problems.append(f"{path}: {error}")
            return None
        if live and kind == "tensor" and value.requires_grad and value.is_leaf:
            meta["requires_grad"] = True
        return {kind: {**meta, **self.places.place(raw)}}

    def _encode_divided(self, value: Any, path: str, *, live: bool) -> Json:
        try:
            array = divided_of(value)
        except UndividableArrayError as error:
            self.problems.append(f"{path}: {error}")
            return None
        assert array is not None  # noqa: S101 - only divided ones come here
        if self._one_process:
            return self._encode_whole(array, path, live=live)
        meta: dict[str, Json] = {"dtype": array.dtype, "shape": list(array.shape)}
        if array.kind == "ndarray":
            meta["order"] = arrays.numpy_order(array.order)
        elif array.order is not None:
            meta["order"] = list(array.order)
        if live and array.requires_grad:
            meta["requires_grad"] = True
        self.divided.append(array)
        return {array.kind: {**meta, "divided": len(self.divided) - 1}}

    def _encode_whole(self, array: DividedArray, path: str, *, live: bool) -> Json:
        """Encode an array that is divided among the ranks, of which there is one."""
        if array.boxes != (Box.whole(array.shape),) and 0 not in array.shape:
            self.problems.append(f"{path}: this process has not all of it, and there is no other rank")
            return None
        local = array.parts[0].local if array.parts else arrays.new_empty(array.kind, array.dtype, array.shape)
        node = self._encode_array(array.kind, local, path)
        if live and array.requires_grad and node is not None:
            node[array.kind]["requires_grad"] = True
        return node

    def _encode_container(self, value: Any, path: str, *, depth: int, live: bool) -> Json:
        if id(value) in self._open_containers:
            self.problems.append(f"{path}: it contains itself, which a checkpoint cannot hold")
            return None
        if depth >= _MAX_DEPTH:
            self.problems.append(f"{path}: nested deeper than {_MAX_DEPTH} levels")
            return None
        self._open_containers.add(id(value))
        try:
            if type(value) in (list, tuple):
                items = [
                    self.encode(item, f"{path}[{index}]", depth=depth + 1, live=live)
                    for index, item in enumerate(value)
                ]
                return items if type(value) is list else {"tuple": items}
            pairs = self._pairs(value, path, depth=depth, live=live)
            metadata = getattr(value, "_metadata", None)
            if type(value) is StateDict or metadata:
                return {"state_dict": {"items": pairs, **self._beside(value, metadata, path, depth=depth)}}
            return {"counter" if type(value) is Counter else "dict": pairs}
        finally:
            self._open_containers.discard(id(value))

    def _pairs(self, value: Any, path: str, *, depth: int, live: bool) -> list[Json]:
        pairs = []
        for key, item in value.items():
            if not isinstance(key, _HASHABLE_KEYS):
                self.problems.append(
                    f"{path}: the key {key!r} is {with_article(_type_name(key))}; use str, int, float or tuple"
                )
                continue
            inside = f"{path}[{key!r}]"
            pairs.append(
                [
                    self.encode(key, f"{inside} (the key)", depth=depth + 1, live=False),
                    self.encode(item, inside, depth=depth + 1, live=live),
                ]
            )
        return pairs

    def _beside(self, value: Any, metadata: Any, path: str, *, depth: int) -> dict[str, Json]:
        """Encode the data that a `state_dict` carries beside its items.

        Most modules have the same metadata as the others.
        """
        beside: dict[str, Json] = {}
        if metadata:
            groups: dict[str, tuple[Any, list[str]]] = {}
            for name, local in metadata.items():
                key = str(local["version"]) if len(local) == 1 and "version" in local else repr(local)
                groups.setdefault(key, (local, []))[1].append(name)
            inside = f"{path}._metadata"
            beside["metadata"] = [
                [self.encode(dict(local), inside, depth=depth + 1, live=False), names]
                for local, names in groups.values()
            ]
        for name in ("frozen", "evaluating"):
            names = getattr(value, name, None)
            if names is not None:
                beside[name] = list(names)
        return beside

    def _refuse(self, path: str, value: Any) -> None:
        hint = "pass numbers, strings, arrays, containers of these, or an object with state_dict and load_state_dict"
        for plain in (bool, int, float, str, bytes, tuple, list, dict):
            if isinstance(value, plain):
                hint = f"it would come back as a plain {plain.__name__}, so convert it to one before saving"
                break
        self.problems.append(f"{path}: {with_article(_type_name(value))} cannot be saved; {hint}")


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def with_article(name: str) -> str:
    """Put the article before a type's name, as in "an int" and "a str"."""
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
