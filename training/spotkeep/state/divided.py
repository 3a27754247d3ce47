"""Arrays that are divided among ranks, and the geometry of their boxes.

A `DividedArray` is one rank's view of an array that several ranks hold together. It has the shape of the whole, and the
boxes of it that this rank holds. A box is a range of indices in each dimension.

The geometry is pure, and it counts in elements. The memory of a box is its elements in C order, the last dimension
innermost. A caller with an array in another order permutes its boxes first (`Box.permuted`).

| question | answered by |
|---|---|
| which elements do two boxes share | `intersection` |
| which part of a box does each of its holders write | `slice_of` |
| which ranks hold the same box | `turns` |
| how do shared elements lie in the memory of two boxes | `Overlap` |
| how is a box read through a small buffer | `slabs`, `span` |
| do boxes cover an array exactly once | `cover_problem` |
| which indices does a rank hold after several splits | `kept_ranges` |

`divided_dtensor` turns a DTensor of torch into a `DividedArray`, and `new_like` makes a new one in the same division.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from spotkeep.loaded import loaded

from . import arrays

_LEAST_SLICE = 1024
"""A slice of fewer elements costs more as a box of its own than as bytes of one writer."""

_EVEN_ENOUGH = 1.1
"""The largest slice of a box, compared with an even one."""

_PAIRS_AT_ONCE = 16
"""So few boxes are compared pair by pair."""

_VISITS_A_BOX = 200
_FREE_VISITS = 10_000
_SHOWN = 3


class UndividableArrayError(Exception):
    """A tensor is spread over the ranks in a way that has no boxes. The message says which."""


@dataclass(frozen=True)
class Box:
    """A range of indices in each dimension of an array.

    Attributes:
        offsets: The first index in each dimension.
        shape: The number of indices in each dimension.
    """

    offsets: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def whole(cls, shape: Sequence[int]) -> Box:
        """Give the box of a whole array."""
        return cls((0,) * len(shape), tuple(shape))

    @property
    def ends(self) -> tuple[int, ...]:
        """The index behind the last one in each dimension."""
        return tuple(offset + size for offset, size in zip(self.offsets, self.shape))

    @property
    def volume(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def permuted(self, order: Sequence[int] | None) -> Box:
        """Give the box with its dimensions in another order, the outermost in memory first. None keeps them."""
        if order is None:
            return self
        return Box(tuple(self.offsets[axis] for axis in order), tuple(self.shape[axis] for axis in order))

    def slices_in(self, outer: Box) -> tuple[slice, ...]:
        """Give the index of this box in an array that holds `outer`."""
        return tuple(
            slice(offset - first, offset - first + size)
            for offset, first, size in zip(self.offsets, outer.offsets, self.shape)
        )


@dataclass(frozen=True)
class Part:
    """A box of an array in this rank's memory.

    Attributes:
        box: The box.
        local: The tensor or array with its elements, of the shape of the box. It is the live memory, so writing to it
            changes the training's state.
        holders: The number of ranks that hold the same box, with equal elements.
        turn: The number of this rank among them, from 0.
    """

    box: Box
    local: Any
    holders: int = 1
    turn: int = 0

    def written(self) -> Part | None:
        """Give the slice that this rank writes. None where others write all of it."""
        box = slice_of(self.box, holders=self.holders, turn=self.turn)
        if box is None:
            return None
        return self if box == self.box else Part(box, self.local[box.slices_in(self.box)])


@dataclass(frozen=True)
class DividedArray:
    """One rank's parts of an array that several ranks hold together.

    Shape, kind, dtype and order are equal on all ranks. The parts differ, and a rank may have none.

    Attributes:
        kind: `"tensor"` for one of torch, `"ndarray"` for one of NumPy. The local arrays are of that library.
        dtype: The element type, as documents spell it: `"float32"` for torch, `"<f4"` for NumPy.
        shape: The shape of the whole.
        parts: The boxes that this rank holds. None has zero elements.
        order: The dimensions as they lie in memory, the outermost first. None is C order. It holds for all boxes.
        requires_grad: True for a leaf tensor that is trained.
        one_writer: True where holders of a box may have unequal elements. The first of them writes all of it.
        source: The object that the parts belong to, for example a DTensor. None where there is none.
    """

    kind: str
    dtype: str
    shape: tuple[int, ...]
    parts: tuple[Part, ...]
    order: tuple[int, ...] | None = None
    requires_grad: bool = False
    one_writer: bool = False
    source: Any = field(default=None, compare=False, repr=False)

    @property
    def boxes(self) -> tuple[Box, ...]:
        """The boxes that this rank holds."""
        return tuple(part.box for part in self.parts)

    def with_new_memory(self) -> DividedArray:
        """Give the same boxes of NumPy arrays with new memory. It holds anything until it is filled."""
        return replace(self, parts=tuple(replace(part, local=arrays.empty_like(part.local)) for part in self.parts))


def intersection(one: Box, other: Box) -> Box | None:
    """Give the elements that two boxes share. None without any."""
    offsets = tuple(map(max, one.offsets, other.offsets))
    shape = tuple(min(end, other_end) - offset for end, other_end, offset in zip(one.ends, other.ends, offsets))
    return Box(offsets, shape) if all(size > 0 for size in shape) else None


def slice_of(box: Box, *, holders: int, turn: int) -> Box | None:
    """Give the part of a box that one of its holders writes. The slices of all holders cover the box exactly once.

    A slice lies in one piece of the box's memory where that divides it evenly enough. A small box has fewer writers
    than holders.

    Args:
        box: A box that several ranks hold.
        holders: The number of these ranks.
        turn: The number of this one, from 0.

    Returns:
        The slice, or None where this holder writes nothing.
    """
    writers = max(1, min(holders, box.volume // _LEAST_SLICE))
    if writers == 1 or turn >= writers:
        return box if writers == 1 and turn == 0 and box.volume else None
    axis = _axis_to_slice(box.shape, writers)
    size = box.shape[axis]
    start, end = size * turn // writers, size * (turn + 1) // writers
    if start == end:
        return None
    offsets, shape = list(box.offsets), list(box.shape)
    offsets[axis] += start
    shape[axis] = end - start
    return Box(tuple(offsets), tuple(shape))


def _axis_to_slice(shape: Sequence[int], writers: int) -> int:
    """Choose the outermost dimension that gives even slices, or else the longest one."""
    for axis, size in enumerate(shape):
        if size >= writers and -(-size // writers) * writers <= _EVEN_ENOUGH * size:
            return axis
    return max(range(len(shape)), key=lambda axis: shape[axis])


def turns(boxes_of_ranks: Sequence[Iterable[Box]]) -> list[dict[Box, tuple[int, int]]]:
    """Find the ranks that hold the same boxes.

    Args:
        boxes_of_ranks: The boxes of each rank, of one array.

    Returns:
        For each rank and box the number of its holders, and the turn of this rank.
    """
    held = [list(dict.fromkeys(boxes)) for boxes in boxes_of_ranks]
    holders: dict[Box, list[int]] = {}
    for rank, boxes in enumerate(held):
        for box in boxes:
            holders.setdefault(box, []).append(rank)
    return [{box: (len(holders[box]), holders[box].index(rank)) for box in boxes} for rank, boxes in enumerate(held)]


@dataclass(frozen=True)
class Run:
    """Elements that lie in one piece in the memory of two boxes.

    Attributes:
        source: The number of elements before it in the first box.
        target: The number of elements before it in the second box.
        length: The number of elements.
    """

    source: int
    target: int
    length: int


@dataclass(frozen=True)
class Overlap:
    """The elements that two boxes share, and their place in the memory of both.

    Attributes:
        region: The shared elements, a box inside both.
        source: The first box.
        target: The second box.
    """

    region: Box
    source: Box
    target: Box

    @classmethod
    def of(cls, source: Box, target: Box) -> Overlap | None:
        """Give the overlap of two boxes. None without any."""
        region = intersection(source, target)
        return None if region is None else cls(region, source, target)

    @property
    def run_length(self) -> int:
        """The number of elements in each run. All runs are equally long, and none could be longer."""
        return math.prod(self.region.shape[self._outer :])

    @property
    def run_count(self) -> int:
        """The number of runs."""
        return math.prod(self.region.shape[: self._outer])

    def runs(self) -> Iterator[Run]:
        """Give the runs, in the order of both memories."""
        length = self.run_length
        source, target = _strides(self.source.shape), _strides(self.target.shape)
        source_start = _place(self.region.offsets, self.source, source)
        target_start = _place(self.region.offsets, self.target, target)
        outer = self._outer
        for index in itertools.product(*map(range, self.region.shape[:outer])):
            yield Run(
                source_start + sum(map(int.__mul__, index, source)),
                target_start + sum(map(int.__mul__, index, target)),
                length,
            )

    @property
    def _outer(self) -> int:
        """The number of dimensions outside of a run.

        A run takes in a dimension when both boxes have all of the dimensions inside of it.
        """
        axis = len(self.region.shape)
        while axis and self.region.shape[axis:] == self.source.shape[axis:] == self.target.shape[axis:]:
            axis -= 1
        # Dimensions of one element lie in one piece with what is inside of them.
        while axis and self.region.shape[axis - 1] == 1:
            axis -= 1
        return axis


def span(box: Box, region: Box) -> tuple[int, int]:
    """Give the piece of a box's memory from the first to the last element of a region of it.

    Returns:
        The number of elements before it, and the number of elements in it.
    """
    strides = _strides(box.shape)
    first = _place(region.offsets, box, strides)
    last = _place([end - 1 for end in region.ends], box, strides)
    return first, last - first + 1


def slabs(box: Box, region: Box, *, most: int) -> Iterator[Box]:
    """Divide a region of a box, so that each piece lies close together in the box's memory.

    Args:
        box: The box with the memory.
        region: A box inside it.
        most: The most elements from the first to the last of a piece, at least 1.

    Returns:
        Boxes that cover the region once, in the order of the box's memory.
    """
    if span(box, region)[1] <= most:
        yield region
        return
    axis = next(axis for axis, size in enumerate(region.shape) if size > 1)
    stride = _strides(box.shape)[axis]
    inner = span(box, _narrowed(region, axis, 0, 1))[1]
    count = max(1, (most - inner) // stride + 1) if inner <= most else 1
    for start in range(0, region.shape[axis], count):
        piece = _narrowed(region, axis, start, min(count, region.shape[axis] - start))
        yield from slabs(box, piece, most=most)


def cover_problem(shape: Sequence[int], boxes: Sequence[Box]) -> str | None:
    """Say why boxes do not cover an array exactly once. None if they do.

    The work grows with the number of boxes, and not with its square. Boxes that no saved division has may be refused
    because they are too entangled to be judged.

    Args:
        shape: The shape of the array.
        boxes: Boxes of any origin, also of a hostile one.
    """
    for box in boxes:
        if len(box.offsets) != len(shape) or len(box.shape) != len(shape):
            return f"{_said(box)} does not have the {len(shape)} dimensions of the array"
        if any(offset < 0 or size < 1 for offset, size in zip(box.offsets, box.shape)):
            return f"{_said(box)} has no elements, or begins before the array"
        if any(end > size for end, size in zip(box.ends, shape)):
            return f"{_said(box)} reaches beyond the shape {list(shape)}"
    held, needed = sum(box.volume for box in boxes), math.prod(shape)
    # Boxes inside the array, none in two, with as many elements as the array, leave out none.
    problem = _Overlaps(len(boxes)).problem(list(boxes))
    if problem is None and held != needed:
        problem = f"{len(boxes)} boxes have {held} of {needed} elements"
    return problem


class _Overlaps:
    """Looks for two boxes that share an element, with bounded work.

    Args:
        count: The number of boxes.
    """

    def __init__(self, count: int) -> None:
        self._visits_left = _FREE_VISITS + _VISITS_A_BOX * count

    def problem(self, boxes: list[Box]) -> str | None:
        left = [boxes]
        while left:
            group = left.pop()
            if len(group) < 2:
                continue
            halves = None if len(group) <= _PAIRS_AT_ONCE else self._halves(group)
            if halves is not None:
                left += halves
                continue
            for one, other in itertools.combinations(group, 2):
                self._visits_left -= 1
                if self._visits_left < 0:
                    return f"{len(boxes)} boxes are too entangled to be judged"
                if intersection(one, other) is not None:
                    return f"{_said(one)} and {_said(other)} share elements"
        return None

    def _halves(self, group: list[Box]) -> list[list[Box]] | None:
        """Cut space in two, where few boxes are cut. A cut box goes to both halves. None where no cut helps."""
        self._visits_left -= len(group) * len(group[0].shape)
        best: tuple[int, int, int] | None = None
        for axis in range(len(group[0].shape)):
            starts = sorted(box.offsets[axis] for box in group)
            ends = sorted(box.offsets[axis] + box.shape[axis] for box in group)
            middle = starts[len(starts) // 2]
            # The cuts next to the middle, where a box begins.
            for cut in {middle, ends[len(ends) // 2]}:
                below = sum(1 for start in starts if start < cut)
                above = sum(1 for end in ends if end > cut)
                largest = max(below, above)
                if largest < len(group) and (best is None or (largest, axis, cut) < best):
                    best = (largest, axis, cut)
        if best is None or self._visits_left < 0:
            return None
        _, axis, cut = best
        return [
            [box for box in group if box.offsets[axis] < cut],
            [box for box in group if box.offsets[axis] + box.shape[axis] > cut],
        ]


def _said(box: Box) -> str:
    return f"the box at {list(box.offsets)[:64]} of shape {list(box.shape)[:64]}"


def _strides(shape: Sequence[int]) -> list[int]:
    """Give the elements from one index to the next in each dimension of C order."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return strides


def _place(index: Sequence[int], box: Box, strides: Sequence[int]) -> int:
    return sum((at - offset) * stride for at, offset, stride in zip(index, box.offsets, strides))


def _narrowed(box: Box, axis: int, start: int, size: int) -> Box:
    offsets, shape = list(box.offsets), list(box.shape)
    offsets[axis] += start
    shape[axis] = size
    return Box(tuple(offsets), tuple(shape))


@dataclass(frozen=True)
class Split:
    """One split of a dimension among ranks, as torch makes it.

    Attributes:
        ranks: The number of ranks.
        rank: The number of this one.
        groups: Into so many pieces the dimension is cut first, and each rank gets its share of each. 1 for a plain
            split.
    """

    ranks: int
    rank: int
    groups: int = 1


def kept_ranges(size: int, splits: Iterable[Split]) -> list[range]:
    """Give the indices of a dimension that a rank holds after several splits, one after another.

    A share is as long as that of rank 0, but for the last ones. They are shorter, or empty.

    Args:
        size: The number of indices.
        splits: The splits, the first one first.

    Returns:
        Ranges in the order of this rank's memory, none empty, and none going on where the one before it ends.
    """
    ranges = [range(size)] if size else []
    for split in splits:
        length = sum(map(len, ranges))
        group = -(-length // split.groups)
        kept: list[range] = []
        for start in range(0, length, group or 1):
            end = min(start + group, length)
            share = -(-(end - start) // split.ranks)
            first = start + share * split.rank
            kept += _within(ranges, first, min(first + share, end))
        ranges = _joined(kept)
    return ranges


def _within(ranges: Sequence[range], start: int, end: int) -> list[range]:
    """Give the places from `start` to `end` of ranges that are read as one."""
    found = []
    for each in ranges:
        if start < end and start < len(each) and end > 0:
            found.append(each[max(start, 0) : end])
        start, end = start - len(each), end - len(each)
    return [each for each in found if len(each)]


def _joined(ranges: Iterable[range]) -> list[range]:
    joined: list[range] = []
    for each in ranges:
        if joined and joined[-1].stop == each.start:
            joined[-1] = range(joined[-1].start, each.stop)
        else:
            joined.append(each)
    return joined


def is_dtensor(value: Any) -> bool:
    """Say whether this is a DTensor of torch, or a parameter that is one."""
    tensors = loaded("torch.distributed.tensor")
    return tensors is not None and isinstance(value, tensors.DTensor)


def divided_dtensor(tensor: Any) -> DividedArray:
    """Give the parts of a DTensor that this rank holds. They are its own memory, so writing to them changes it.

    Ranks on which the tensor is replicated count as holders of one box. A DTensor knows the ranks of its own mesh only.
    Where several meshes hold the same tensor (tensor parallelism in each of several replicas), `turns` finds that.

    Args:
        tensor: A DTensor with plain, strided or no splits. Uneven ones and meshes of several dimensions are fine.

    Raises:
        UndividableArrayError: A placement is `Partial`, or of a kind that this version does not know.
    """
    shape = tuple(tensor.shape)
    splits: dict[int, list[Split]] = {}
    holders, turn = 1, 0
    mesh = tensor.device_mesh
    at = mesh.get_coordinate()
    for dimension, placement in enumerate(tensor.placements):
        ranks = mesh.size(dimension)
        rank = at[dimension] if at is not None else 0
        if placement.is_replicate():
            holders, turn = holders * ranks, turn * ranks + rank
        elif type(placement).__name__ in ("Shard", "_StridedShard"):
            groups = getattr(placement, "split_factor", 1)
            splits.setdefault(placement.dim % len(shape), []).append(Split(ranks, rank, groups))
        else:
            raise UndividableArrayError(
                f"a DTensor with the placement {placement!r} has terms of a sum on each rank, and no values yet: "
                "call redistribute() with Replicate() or Shard() before it is saved"
                if placement.is_partial()
                else f"a DTensor has the placement {placement!r}, which this version of Spotkeep does not know: call "
                "redistribute() with Replicate() or Shard() before it is saved"
            )
    order = arrays.torch_order(tensor)
    return DividedArray(
        kind="tensor",
        dtype=arrays.dtype_name(tensor.dtype),
        shape=shape,
        parts=() if at is None else _parts(_local(tensor), shape, splits, holders=holders, turn=turn),
        order=None if order is None else tuple(order),
        requires_grad=bool(tensor.requires_grad and tensor.is_leaf),
        source=tensor,
    )


def _local(tensor: Any) -> Any:
    """Give the memory of a DTensor on this rank."""
    torch: Any = loaded("torch")
    with torch.no_grad():
        local = tensor.to_local()
    # What a collective still works on is waited for.
    return (local.wait() if hasattr(local, "wait") else local).detach()


def _parts(
    local: Any, shape: Sequence[int], splits: dict[int, list[Split]], *, holders: int, turn: int
) -> tuple[Part, ...]:
    """Divide the memory of a rank into boxes. There is more than one where a split leaves gaps between its indices."""
    kept = [kept_ranges(size, splits.get(axis, ())) for axis, size in enumerate(shape)]
    expected = tuple(sum(map(len, ranges)) for ranges in kept)
    if tuple(local.shape) != expected and (local.numel() or math.prod(expected)):
        raise UndividableArrayError(
            f"a DTensor of shape {tuple(shape)} has {tuple(local.shape)} elements on this rank, and its placements say "
            f"{expected}: make it with distribute_tensor(), or give from_local() its shape and stride"
        )
    parts = []
    for ranges in itertools.product(*(_placed(each) for each in kept)):
        part = local
        for axis, (start, found) in enumerate(ranges):
            if len(found) != part.shape[axis]:
                part = part.narrow(axis, start, len(found))
        box = Box(tuple(found.start for _, found in ranges), tuple(len(found) for _, found in ranges))
        parts.append(Part(box, part, holders=holders, turn=turn))
    return tuple(parts)


def _placed(ranges: Sequence[range]) -> list[tuple[int, range]]:
    """Give ranges, each with the number of indices before it."""
    before = itertools.accumulate((len(each) for each in ranges), initial=0)
    return list(zip(before, ranges))


def is_sharded_tensor(value: Any) -> bool:
    """Say whether this is a ShardedTensor, as torch's older `FullyShardedDataParallel` gives them."""
    sharded = loaded("torch.distributed._shard.sharded_tensor")
    return sharded is not None and isinstance(value, sharded.ShardedTensor)


def divided_sharded_tensor(tensor: Any) -> DividedArray:
    """Give the parts of a ShardedTensor that this rank holds. They are its own memory.

    A ShardedTensor does not know other ranks with the same parts (`HYBRID_SHARD`). `turns` finds them.

    Args:
        tensor: A ShardedTensor.
    """
    parts = [
        Part(Box(tuple(shard.metadata.shard_offsets), tuple(shard.metadata.shard_sizes)), shard.tensor.detach())
        for shard in tensor.local_shards()
    ]
    metadata = tensor.metadata()  # which torch gives without a warning, unlike the attributes of a tensor
    return DividedArray(
        kind="tensor",
        dtype=arrays.dtype_name(metadata.tensor_properties.dtype),
        shape=tuple(metadata.size),
        parts=tuple(part for part in parts if part.box.volume),
        source=tensor,
    )


def divided_of(value: Any) -> DividedArray | None:
    """Give the parts of a value that several ranks hold together. None for any other value.

    Raises:
        UndividableArrayError: Its parts are no boxes.
    """
    if isinstance(value, DividedArray):
        return value
    if is_dtensor(value):
        return divided_dtensor(value)
    return divided_sharded_tensor(value) if is_sharded_tensor(value) else None


def new_like(array: DividedArray, *, dtype: str | None = None) -> DividedArray:
    """Make a new array in the division of another, with memory that is not filled yet.

    The state of an optimizer that has made no step is such an array. It lies as its parameter does.

    Args:
        array: The array of a DTensor or a ShardedTensor (`divided_of`).
        dtype: Its element type. None for that of the other.

    Raises:
        UndividableArrayError: The other one is of another kind.
    """
    torch: Any = loaded("torch")
    tensor = array.source
    kind = getattr(torch, array.dtype if dtype is None else dtype)
    if is_dtensor(tensor):
        return divided_dtensor(
            loaded("torch.distributed.tensor").DTensor.from_local(
                torch.empty_like(_local(tensor), dtype=kind),
                tensor.device_mesh,
                tensor.placements,
                run_check=False,
                shape=tensor.shape,
                stride=tensor.stride(),
            )
        )
    if not is_sharded_tensor(tensor):
        raise UndividableArrayError(f"no array can be made in the division of a {type(tensor).__name__}")
    metadata = tensor.metadata()
    properties = replace(metadata.tensor_properties, dtype=kind, requires_grad=False)
    shards = [
        replace(shard, tensor=torch.empty_like(shard.tensor, dtype=kind, requires_grad=False))
        for shard in tensor.local_shards()
    ]
    return divided_sharded_tensor(
        type(tensor)._init_from_local_shards_and_global_metadata(
            shards, replace(metadata, tensor_properties=properties), process_group=tensor._process_group
        )
    )
