"""A training state from a document and raw bytes, into new memory or that of a running script. See `encoding.py`.

A document may be hostile. Nothing in it can name code, and decoding builds plain values only.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import math
import struct
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Callable, Protocol

from spotkeep.loaded import loaded

from . import arrays
from .divided import Box, DividedArray, Part, cover_problem, divided_of, is_dtensor, new_like
from .encoding import ALIGNMENT_BYTES, Json, MalformedStateError, encode_state, object_state, stateful_kind
from .resharding import Piece, SavedBox, Scattered, pieces_of
from .state_dicts import StateDict, is_optimizer

_MAPS = Path("/proc/self/maps")


class ProcessMemory:
    """The read-only parts of this process's memory, at the first question. Nothing can be filled in place there.

    A read of a checkpoint into such memory fails or ends the process. So the library finds it before the training
    begins.

    On systems other than Linux, which do not say, all memory counts as writable.
    """

    @functools.cached_property
    def _spans(self) -> tuple[list[int], list[int]]:
        """The starts and the ends of these parts, read when the first tensor asks."""
        starts: list[int] = []
        ends: list[int] = []
        with contextlib.suppress(OSError):
            for line in _MAPS.read_text("utf-8", "replace").splitlines():
                span, permissions, *_ = line.split(None, 2)
                if "w" not in permissions:
                    start, _, end = span.partition("-")
                    starts.append(int(start, 16))
                    ends.append(int(end, 16))
        return starts, ends

    def may_be_written(self, tensor: Any) -> bool:
        """Say whether the memory of a tensor may be written to. That of other devices always may."""
        if not tensor.is_cpu or tensor.layout != loaded("torch").strided or not tensor.numel():
            return True
        with contextlib.suppress(RuntimeError):  # one without memory of its own
            starts, ends = self._spans
            place = bisect.bisect_right(starts, tensor.data_ptr()) - 1
            return place < 0 or tensor.data_ptr() >= ends[place]
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
            if math.prod(shape) * item_bytes != size or offset % ALIGNMENT_BYTES:
                raise MalformedStateError(f"an array of shape {shape} does not have {size} bytes at {offset}")
            return [SavedBox(Box.whole(shape), stream, offset)] if size else []
        boxes = list(self._divided[_count(body, "divided")])
        problem = cover_problem(shape, [saved.box for saved in boxes])
        if problem is not None:
            raise MalformedStateError(f"a divided array is not whole: {problem}")
        for saved in boxes:
            if saved.offset < self._box_ends.get(saved.stream, 0) or saved.offset % ALIGNMENT_BYTES:
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
