"""Divided arrays on their way to the streams of a checkpoint and back, for any division.

A saved array is one box, or several that cover it. So is a live one. Each pair of boxes shares elements. Long rows of
these are read straight into the live memory. Short ones lie apart there, and pass through a small buffer.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Union

from . import arrays
from .divided import Box, DividedArray, Overlap, Part, intersection, span

_LONG_BYTES = 2**16
"""Shorter rows of elements cost more one by one than through a buffer."""

_FAR_BYTES = 2**20
"""Rows that are farther apart are read one by one, so that nothing between them is."""

_UNITS = {1: "u1", 2: "u2", 4: "u4", 8: "u8"}


@dataclass(frozen=True)
class SavedBox:
    """A box of a saved array, and the place of its bytes.

    Attributes:
        box: The box.
        stream: The number of the stream.
        offset: Its first byte in the stream.
    """

    box: Box
    stream: int
    offset: int


def written_boxes(array: DividedArray) -> Iterator[tuple[Box, arrays.Buffer | arrays.DeviceBytes]]:
    """Give the boxes that this rank writes, with their bytes."""
    for part in array.parts:
        written = part.written()
        if written is not None:
            yield written.box, _bytes_of(written.local, array)


def written_bytes(array: DividedArray) -> int:
    """Count the bytes that this rank writes."""
    found = (part.written() for part in array.parts)
    return sum(part.box.volume * part.local.itemsize for part in found if part is not None)


def _bytes_of(local: Any, array: DividedArray) -> arrays.Buffer | arrays.DeviceBytes:
    """Give the elements of a part in the order of the whole."""
    order = range(len(array.shape)) if array.order is None else array.order
    if array.kind == "tensor":
        return arrays.dump_torch(local.detach().permute(tuple(order)).contiguous())[1]
    numpy = arrays.numpy_for("arrays")
    return arrays.dump_numpy(numpy.ascontiguousarray(local.transpose(order)))[1]


class Scattered:
    """Elements of live arrays whose bytes lie close together in a saved box, in short rows.

    Args:
        box: The saved box, with its dimensions in the order of its memory.
        parts: The live boxes that share elements with it, in the same order of dimensions.
        item_bytes: The size of an element.
    """

    def __init__(self, box: Box, parts: Sequence[tuple[Box, Any]], *, item_bytes: int) -> None:
        self._unit = next(size for size in (8, 4, 2, 1) if item_bytes % size == 0)
        # An element of more than a unit is a dimension of its own.
        inner = item_bytes // self._unit
        self._box = _with_units(box, inner)
        self._parts = [(_with_units(live, inner), _units(local, self._unit, inner)) for live, local in parts]
        regions = [intersection(self._box, live) for live, _ in self._parts]
        spans = [span(self._box, region) for region in regions if region is not None]
        self._first = min(first for first, _ in spans)
        self._count = max(first + count for first, count in spans) - self._first

    @property
    def start(self) -> int:
        """The number of bytes of the saved box that come before."""
        return self._first * self._unit

    def __len__(self) -> int:
        return self._count * self._unit

    def __getitem__(self, part: slice) -> Scattered:
        """Give the elements of some of the bytes, from the beginning of an element to that of another."""
        found = copy.copy(self)
        found._first, found._count = self._first + part.start // self._unit, (part.stop - part.start) // self._unit
        return found

    def put(self, start: int, raw: memoryview) -> None:
        """Put bytes in their places.

        Args:
            start: The number of bytes before them.
            raw: The bytes.
        """
        for live, read in self._pairs(start, raw):
            live[...] = read

    def differs(self, start: int, raw: memoryview) -> bool:
        """Say whether any of the elements there are not those bytes."""
        return any(bool((live != read).any()) for live, read in self._pairs(start, raw))

    def _pairs(self, start: int, raw: memoryview) -> Iterator[tuple[Any, Any]]:
        numpy = arrays.numpy_for("elements that lie apart in a tensor")
        flat = numpy.frombuffer(raw, _UNITS[self._unit])
        first = self._first + start // self._unit
        for piece in boxes_between(self._box.shape, first, first + len(flat)):
            there = Box(tuple(map(int.__add__, piece.offsets, self._box.offsets)), piece.shape)
            before = span(self._box, there)[0] - first
            read = flat[before : before + piece.volume].reshape(piece.shape)
            for live, local in self._parts:
                region = intersection(there, live)
                if region is not None:
                    yield local[region.slices_in(live)], read[region.slices_in(there)]


def boxes_between(shape: Sequence[int], start: int, end: int) -> Iterator[Box]:
    """Give the boxes that have the elements between two places of an array in C order. Each lies in one piece."""
    if start >= end:
        return
    if len(shape) <= 1:
        yield Box((start,), (end - start,)) if shape else Box((), ())
        return
    inner = 1
    for size in shape[1:]:
        inner *= size
    first, last = -(-start // inner), end // inner
    if first > last:  # all of it lies in one row
        yield from _in_row(shape, last, start, end, inner)
        return
    if start < first * inner:
        yield from _in_row(shape, first - 1, start, first * inner, inner)
    if first < last:
        yield Box((first, *(0 for _ in shape[1:])), (last - first, *shape[1:]))
    if last * inner < end:
        yield from _in_row(shape, last, last * inner, end, inner)


def _in_row(shape: Sequence[int], row: int, start: int, end: int, inner: int) -> Iterator[Box]:
    for box in boxes_between(shape[1:], start - row * inner, end - row * inner):
        yield Box((row, *box.offsets), (1, *box.shape))


def _with_units(box: Box, inner: int) -> Box:
    return Box((*box.offsets, 0), (*box.shape, inner))


def _units(local: Any, unit: int, inner: int) -> Any:
    """Give the memory of an array or tensor as whole numbers, those of one element along the last dimension."""
    numpy = arrays.numpy_for("elements that lie apart in a tensor")
    if arrays.is_torch_tensor(local):
        address, strides = local.data_ptr(), [step * local.element_size() for step in local.stride()]
    else:
        address, strides = local.__array_interface__["data"][0], list(local.strides)
    return numpy.asarray(_Memory(local, address, (*local.shape, inner), (*strides, unit), _UNITS[unit]))


class _Memory:
    """Memory of another object, as NumPy takes it."""

    def __init__(self, keeps_alive: Any, address: int, shape: Sequence[int], strides: Sequence[int], kind: str) -> None:
        self.keeps_alive = keeps_alive
        self.__array_interface__ = {
            "version": 3,
            "typestr": f"<{kind}",
            "data": (address, False),
            "shape": tuple(map(int, shape)),
            "strides": tuple(map(int, strides)),
        }


Piece = Union[memoryview, Scattered]
"""Live memory for bytes that lie in one piece in a stream."""


def pieces_of(
    saved: SavedBox, parts: Sequence[Part], *, order: Sequence[int] | None, item_bytes: int
) -> Iterator[tuple[int, Piece]]:
    """Find the live memory for the bytes of a saved box. The pieces of one box never overlap.

    Args:
        saved: The saved box.
        parts: The live boxes. Their memory is here, in any order.
        order: The order of the dimensions in the memory of the saved box, the outermost first. None for C order.
        item_bytes: The size of an element.

    Returns:
        The places in the stream, in order for each live box, and the memory.
    """
    box = saved.box.permuted(order)
    live = [(part.box.permuted(order), _permuted(part.local, order)) for part in parts]
    found = [(overlap, local) for target, local in live if (overlap := Overlap.of(box, target)) is not None]
    if not found:
        return
    memories = [contiguous_bytes(local) for _, local in found]
    if any(memory is None or not _is_direct(overlap, item_bytes) for memory, (overlap, _) in zip(memories, found)):
        scattered = Scattered(box, [(overlap.target, local) for overlap, local in found], item_bytes=item_bytes)
        yield saved.offset + scattered.start, scattered
        return
    for memory, (overlap, _) in zip(memories, found):
        assert memory is not None  # noqa: S101 - else they are scattered
        for run in overlap.runs():
            start, end = run.target * item_bytes, (run.target + run.length) * item_bytes
            yield saved.offset + run.source * item_bytes, memory[start:end]


def _is_direct(overlap: Overlap, item_bytes: int) -> bool:
    """Say whether the shared elements are read row by row, straight into live memory."""
    if overlap.run_count == 1 or overlap.run_length * item_bytes >= _LONG_BYTES:
        return True
    # Between two rows of a region lies at least the rest of the innermost dimension that it does not fill.
    spanned = span(overlap.source, overlap.region)[1] * item_bytes
    return spanned // overlap.run_count >= _FAR_BYTES


def _permuted(local: Any, order: Sequence[int] | None) -> Any:
    if order is None:
        return local
    return local.permute(*order) if arrays.is_torch_tensor(local) else local.transpose(order)


def contiguous_bytes(local: Any) -> memoryview | None:
    """Give the memory of an array or tensor, to be read or filled. None where its elements lie apart."""
    if arrays.is_torch_tensor(local):
        return arrays.torch_bytes(local) if local.is_contiguous() else None
    return arrays.numpy_bytes(local, "C") if local.flags.c_contiguous else None
