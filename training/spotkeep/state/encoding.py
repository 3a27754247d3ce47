"""A training state as a JSON document plus raw bytes, and back. Pure, without files.

The document holds the structure and the small values. Each large value (an array, a tensor, bytes) becomes a blob, and
the document holds its place. Nothing in the document can name code, and decoding builds plain values only.

| value | in the document |
|---|---|
| None, bool, str, int below 2^53, finite float | itself |
| list | a JSON array |
| any other value | an object with one key that names the kind, for example `{"tuple": [...]}` |
"""

from __future__ import annotations

import bisect
import contextlib
import math
import re
import struct
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Callable, Protocol

from spotkeep.errors import StateError
from spotkeep.loaded import loaded

from . import arrays
from .divided import (
    Box,
    DividedArray,
    Part,
    UndividableArrayError,
    cover_problem,
    divided_of,
    is_dtensor,
    new_like,
)
from .random_states import bit_generator_state
from .resharding import Piece, SavedBox, Scattered, pieces_of
from .state_dicts import StateDict, is_module, is_optimizer, module_state

_MAPS = Path("/proc/self/maps")


class ProcessMemory:
    """The read-only parts of this process's memory at the moment. Nothing can be filled in place there.

    A read of a checkpoint into such memory fails or ends the process. So the library finds it before the training
    begins.

    On systems other than Linux, which do not say, all memory counts as writable.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        with contextlib.suppress(OSError):
            for line in _MAPS.read_text("utf-8", "replace").splitlines():
                span, permissions, *_ = line.split(None, 2)
                if "w" not in permissions:
                    start, _, end = span.partition("-")
                    self._starts.append(int(start, 16))
                    self._ends.append(int(end, 16))

    def may_be_written(self, tensor: Any) -> bool:
        """Say whether the memory of a tensor may be written to. That of other devices always may."""
        if not tensor.is_cpu or tensor.layout != loaded("torch").strided or not tensor.numel():
            return True
        with contextlib.suppress(RuntimeError):  # one without memory of its own
            place = bisect.bisect_right(self._starts, tensor.data_ptr()) - 1
            return place < 0 or tensor.data_ptr() >= self._ends[place]
        return True


def array_problem(array: Any) -> str | None:
    """Say why a NumPy array cannot be filled in place. None if it can."""
    if array.flags.writeable:
        return None
    return (
        "it is read-only, so a checkpoint cannot be read into it: pass numpy.array(...) of it, or leave it out if it "
        "is data that stays as it is"
    )


def tensor_problem(tensor: Any, memory: ProcessMemory) -> str | None:
    """Say why a tensor cannot be filled in place. None if it can."""
    if tensor.is_inference():
        return (
            "it was made in torch.inference_mode() and cannot be changed outside of it: make it outside, or pass "
            "tensor.clone()"
        )
    if tensor.layout != loaded("torch").strided or arrays.is_wrapper(tensor):
        return None
    if any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride())):
        return (
            "several of its elements are one place in memory, as expand() makes it, so a checkpoint cannot be read "
            "into it: use tensor.clone()"
        )
    if not memory.may_be_written(tensor):
        return "its memory is a file that was mapped for reading only: use tensor.clone()"
    return None


Json = Any

_ALIGNMENT_BYTES = 64
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


def decode_state(
    document: Json,
    read: Callable[[int, int, int], arrays.Buffer],
    *,
    fill: Fill | None = None,
    live: Mapping[str, Any] | None = None,
    divided: Sequence[Sequence[SavedBox]] = (),
) -> dict[str, Any]:
    """Turn a document back into plain values.

    Args:
        document: A document of `encode_state`, or any JSON value found in its place.
        read: Gives the bytes for (stream, offset, size). May raise.
        fill: Takes the memory of arrays and tensors, to fill it now or later. By default it is filled at once by
            `read`.
        live: The objects of a script. A live array or tensor of the saved form is filled and given back, instead of a
            new one. Of a divided one the parts of this rank are filled.
        divided: The boxes of each divided array that the document refers to.

    Raises:
        MalformedStateError: The document is not one of `encode_state`.
    """
    try:
        state = _Decoder(read, fill or _FillNow(read), divided).decode(document, live)
    except RecursionError as error:
        raise MalformedStateError("the state is nested too deeply") from error
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise MalformedStateError("the state is not a mapping of names")
    return state


class Fill(Protocol):
    """Takes the memory of arrays and tensors that a checkpoint fills."""

    def later(self, stream: int, offset: int, piece: Piece) -> None:
        """Take the memory for some bytes of a stream."""

    def finally_do(self, act: Callable[[], None]) -> None:
        """Take a function to call when all memory is filled."""


class _FillNow:
    def __init__(self, read: Callable[[int, int, int], arrays.Buffer]) -> None:
        self._read = read

    def later(self, stream: int, offset: int, piece: Piece) -> None:
        raw = self._read(stream, offset, len(piece))
        if isinstance(piece, Scattered):
            piece.put(0, memoryview(raw))
        else:
            piece[:] = raw

    def finally_do(self, act: Callable[[], None]) -> None:
        act()


def copied_state(state: dict[str, Any]) -> dict[str, Any]:
    """Give a state as plain values that the training does not change any more.

    Raises:
        StateError: An entry cannot be saved.
    """
    encoded = encode_state(state)
    raw = {blob.offset: blob.raw for blob in encoded.blobs}
    return decode_state(encoded.document, lambda _stream, offset, _size: arrays.host_bytes(raw[offset]))


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
        alignment = _PAGE_BYTES if len(raw) >= _PAGE_BYTES else _ALIGNMENT_BYTES
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


class _Decoder:
    """Builds values from a document that may be hostile. Every claim is checked before it is used."""

    def __init__(
        self, read: Callable[[int, int, int], arrays.Buffer], fill: Fill, divided: Sequence[Sequence[SavedBox]]
    ) -> None:
        self._read = read
        self._fill = fill
        self._divided = divided
        # The ends of what was read of each stream, and of the boxes of divided arrays, which lie before the rest.
        self._ends: dict[int, int] = {}
        self._box_ends: dict[int, int] = {}
        self._memory: ProcessMemory | None = None

    def decode(self, node: Json, live: Any = None) -> Any:
        if node is None or isinstance(node, (bool, int, float, str)):
            return node
        if stateful_kind(live) is not None and not arrays.is_torch_tensor(live):
            live = _state_to_fill(live, node)
        if isinstance(node, list):
            return [self.decode(item, item_live) for item, item_live in zip(node, _items(live, len(node)))]
        if not isinstance(node, dict) or len(node) != 1:
            raise MalformedStateError(f"a value is {str(node)[:80]!r}, which is no kind of value")
        kind, body = next(iter(node.items()))
        decode_kind: Callable[[Json], Any] | None = {
            "int": self._int,
            "float": self._float,
            "complex": self._complex,
            "str": self._str,
            "bytes": lambda body: bytes(self._blob(body)),
            "bytearray": lambda body: bytearray(self._blob(body)),
            "tuple": lambda body: self._tuple(body, live),
            "dict": lambda body: self._dict(body, live),
            "counter": lambda body: Counter(self._dict(body, None)),
            "state_dict": lambda body: self._state_dict(body, live),
            "ndarray": lambda body: self._ndarray(body, live),
            "scalar": self._scalar,
            "tensor": lambda body: self._tensor(body, live),
        }.get(kind)
        if decode_kind is None:
            raise MalformedStateError(f"a value is of the unknown kind {kind[:80]!r}")
        try:
            return decode_kind(body)
        except (ValueError, TypeError, OverflowError, LookupError, struct.error, arrays.InvalidArrayError) as error:
            raise MalformedStateError(f"a value of kind {kind!r} cannot be read: {error}") from error

    def _int(self, body: Json) -> int:
        return int(_text(body), 16)

    def _float(self, body: Json) -> float:
        number: float = struct.unpack(">d", bytes.fromhex(_text(body)))[0]
        return number

    def _complex(self, body: Json) -> complex:
        return complex(*struct.unpack(">dd", bytes.fromhex(_text(body))))

    def _str(self, body: Json) -> str:
        return bytes.fromhex(_text(body)).decode("utf-8", "surrogatepass")

    def _tuple(self, body: Json, live: Any) -> tuple[Any, ...]:
        if not isinstance(body, list):
            raise MalformedStateError("a tuple has no items")
        return tuple(self.decode(item, item_live) for item, item_live in zip(body, _items(live, len(body))))

    def _dict(self, body: Json, live: Any) -> dict[Any, Any]:
        if not isinstance(body, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in body):
            raise MalformedStateError("a mapping has no pairs")
        known = live if isinstance(live, Mapping) else {}
        pairs = ((self.decode(key), item) for key, item in body)
        return {key: self.decode(item, known.get(key)) for key, item in pairs}

    def _state_dict(self, body: Json, live: Any) -> StateDict:
        if not isinstance(body, dict):
            raise MalformedStateError("a state_dict has no items")
        state = StateDict(self._dict(body.get("items"), live))
        groups = body.get("metadata")
        if groups is not None:
            state._metadata = OrderedDict(
                (name, self._dict(local["dict"], None)) for local, names in groups for name in _names(names)
            )
        if "frozen" in body:
            state.frozen = _names(body["frozen"])
        if "evaluating" in body:
            state.evaluating = _names(body["evaluating"])
        return state

    def _ndarray(self, body: Json, live: Any) -> Any:
        if _is_divided(body, live):
            return self._resharded("ndarray", body, live)
        stream, offset, size = self._place(body)
        array = arrays.new_numpy(body, size, like=live)
        if size:
            self._fill.later(stream, offset, arrays.numpy_bytes(array, body["order"]))
        return array

    def _scalar(self, body: Json) -> Any:
        raw = self._blob(body)
        array = arrays.new_numpy(body, len(raw))
        arrays.numpy_bytes(array, body["order"])[:] = raw
        return array[()]

    def _tensor(self, body: Json, live: Any) -> Any:
        if _is_divided(body, live):
            tensor = self._resharded("tensor", body, live)
        else:
            stream, offset, size = self._place(body)
            if arrays.is_torch_tensor(live):
                self._memory = self._memory or ProcessMemory()
                live = live if self._memory.may_be_written(live) else None
            tensor = arrays.new_torch(body, size, like=live)
            if size:
                self._fill.later(stream, offset, arrays.torch_bytes(tensor))
        if isinstance(tensor, DividedArray):
            return tensor
        trained = body.get("requires_grad") is True and (tensor.is_floating_point() or tensor.is_complex())
        return tensor.requires_grad_() if trained else tensor

    def _resharded(self, kind: str, body: Json, live: Any) -> Any:
        """Read an array that is divided, here or in the checkpoint."""
        if not isinstance(body, dict):
            raise MalformedStateError("an array has no description")
        shape, order = arrays.array_shape(body), arrays.array_order(body)
        item_bytes = arrays.item_bytes(kind, body)
        saved = self._saved_boxes(body, shape, item_bytes)
        value, parts = _live_parts(kind, body, shape, live)
        if value is None:
            size = math.prod(shape) * item_bytes
            like = None if isinstance(live, (DividedArray, NewState)) or is_dtensor(live) else live
            if kind == "tensor":
                value = arrays.new_torch(body, size, like=like)
            else:
                value = arrays.new_numpy({"order": "C", **body}, size, like=like)
            parts = (Part(Box.whole(shape), value),) if size else ()
        here = []
        for part in parts:
            local = part.local
            if arrays.is_torch_tensor(local) and not local.is_cpu:
                local = arrays.empty_here(local)
                self._fill.finally_do(partial(part.local.copy_, local))
            here.append(Part(part.box, local))
        for box in saved:
            for offset, piece in pieces_of(box, here, order=order, item_bytes=item_bytes):
                self._fill.later(box.stream, offset, piece)
        return value

    def _saved_boxes(self, body: Json, shape: tuple[int, ...], item_bytes: int) -> list[SavedBox]:
        """Give the boxes of a saved array, which cover it."""
        if "divided" not in body:
            stream, offset, size = self._place(body)
            if math.prod(shape) * item_bytes != size or offset % _ALIGNMENT_BYTES:
                raise MalformedStateError(f"an array of shape {shape} does not have {size} bytes at {offset}")
            return [SavedBox(Box.whole(shape), stream, offset)] if size else []
        boxes = list(self._divided[_count(body, "divided")])
        problem = cover_problem(shape, [saved.box for saved in boxes])
        if problem is not None:
            raise MalformedStateError(f"a divided array is not whole: {problem}")
        for saved in boxes:
            if saved.offset < self._box_ends.get(saved.stream, 0) or saved.offset % _ALIGNMENT_BYTES:
                raise MalformedStateError("two boxes of divided arrays share the same bytes")
            self._box_ends[saved.stream] = saved.offset + saved.box.volume * item_bytes
        return boxes

    def _blob(self, body: Json) -> arrays.Buffer:
        stream, offset, size = self._place(body)
        return self._read(stream, offset, size) if size else b""

    def _place(self, body: Json) -> tuple[int, int, int]:
        if not isinstance(body, dict):
            raise MalformedStateError("an array has no description")
        stream = _count(body, "stream") if "stream" in body else 0
        offset, size = (_count(body, name) for name in ("offset", "size"))
        # In order and apart, as they were written: a small file cannot be unfolded into a large memory. What a rank has
        # otherwise than rank 0 is in another stream.
        if offset < self._ends.get(stream, 0):
            raise MalformedStateError("two arrays share the same bytes")
        if size:
            self._ends[stream] = offset + size
        return stream, offset, size


@dataclass(frozen=True)
class NewState:
    """Stands for state that an optimizer does not have yet. It will be divided as its parameter is.

    Attributes:
        parameter: The parameter.
    """

    parameter: DividedArray


class _NewStates(dict[Any, Any]):
    """Stands for all the state of a divided parameter that its optimizer does not have yet."""

    def __init__(self, parameter: DividedArray) -> None:
        super().__init__()
        self._parameter = parameter

    def get(self, *_key: Any) -> Any:
        """Give the stand-in, whatever its name."""
        return NewState(self._parameter)


def _state_to_fill(value: Any, node: Json) -> Any:
    """Give the state of a live object, whose memory a saved one is read into.

    Args:
        value: The object.
        node: The saved state.
    """
    if is_optimizer(value):
        return _optimizer_state(value)
    # An object may have memory for what is not there yet (`united.py`).
    fill = getattr(value, "state_to_fill", None)
    return object_state(value) if fill is None else fill(node)


def _optimizer_state(optimizer: Any) -> Any:
    """Give the state of an optimizer. What it lacks of divided parameters is there by name of the division."""
    state = object_state(optimizer)
    if not isinstance(state, dict) or not isinstance(state.get("state"), dict):
        return state
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    new = {number: divided_of(parameter) for number, parameter in enumerate(parameters) if is_dtensor(parameter)}
    states = {number: _NewStates(array) for number, array in new.items() if array is not None}
    return {**state, "state": {**states, **state["state"]}}


def _is_divided(body: Json, live: Any) -> bool:
    if isinstance(body, dict) and "divided" in body:
        return True
    return isinstance(live, (DividedArray, NewState)) or is_dtensor(live)


def _live_parts(kind: str, body: Json, shape: tuple[int, ...], live: Any) -> tuple[Any, Sequence[Part]]:
    """Give a value for a saved array and its parts in this process. None where the live one has another form."""
    if isinstance(live, NewState):
        if live.parameter.kind != kind or live.parameter.shape != shape:
            return None, ()
        made = new_like(live.parameter, dtype=body["dtype"])
        return made.source, made.parts
    array = divided_of(live)
    if array is None or (array.kind, array.dtype, array.shape) != (kind, body["dtype"], shape):
        return None, ()
    if isinstance(live, DividedArray) and not all(map(_may_be_filled, array.parts)):
        # The live arrays of JAX never change. Others take their place.
        live = array = array.with_new_memory()
    return live, array.parts


def _may_be_filled(part: Part) -> bool:
    return not arrays.is_numpy_array(part.local) or bool(part.local.flags.writeable)


def _items(live: Any, count: int) -> Sequence[Any]:
    return live if isinstance(live, (list, tuple)) and len(live) == count else [None] * count


def _names(body: Json) -> tuple[str, ...]:
    if not isinstance(body, list) or not all(isinstance(name, str) for name in body):
        raise MalformedStateError(f"expected names, found {str(body)[:80]!r}")
    return tuple(body)


def _text(body: Json) -> str:
    if not isinstance(body, str):
        raise MalformedStateError(f"expected text, found {str(body)[:80]!r}")
    return body


def _count(body: dict[str, Json], name: str) -> int:
    number = body.get(name)
    if type(number) is not int or number < 0:
        raise MalformedStateError(f"an array's {name} is {str(number)[:80]!r}")
    return number


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def with_article(name: str) -> str:
    """Put the article before a type's name, as in "an int" and "a str"."""
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
