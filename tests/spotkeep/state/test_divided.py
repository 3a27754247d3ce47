"""The geometry of divided arrays, compared with NumPy's own indexing."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.state.divided import (
    Box,
    Overlap,
    Part,
    Split,
    cover_problem,
    intersection,
    kept_ranges,
    slabs,
    slice_of,
    span,
    turns,
)

SHAPES = st.lists(st.integers(1, 5), max_size=4).map(tuple)


@st.composite
def boxes(draw, shape):
    starts = [draw(st.integers(0, size - 1)) for size in shape]
    return Box(
        tuple(starts), tuple(draw(st.integers(1, size - start)) for start, size in zip(starts, shape, strict=True))
    )


@st.composite
def pairs(draw):
    shape = draw(SHAPES)
    return shape, draw(boxes(shape)), draw(boxes(shape))


@st.composite
def covers(draw):
    """Give a shape and boxes that cover it, by cuts through one box after another."""
    shape = draw(SHAPES)
    parts = [Box.whole(shape)]
    for _ in range(draw(st.integers(0, 12)) if shape else 0):
        box = parts.pop(draw(st.integers(0, len(parts) - 1)))
        axis = draw(st.integers(0, len(shape) - 1))
        at = draw(st.integers(0, box.shape[axis]))
        for start, size in ((0, at), (at, box.shape[axis] - at)):
            if size:
                offsets, sizes = list(box.offsets), list(box.shape)
                offsets[axis] += start
                sizes[axis] = size
                parts.append(Box(tuple(offsets), tuple(sizes)))
    return shape, draw(st.permutations(parts))


def numbered(shape):
    return np.arange(math.prod(shape)).reshape(shape)


def inside(box, array):
    return array[box.slices_in(Box.whole(array.shape))]


def members(box, shape):
    return set(inside(box, numbered(shape)).ravel().tolist())


@given(pairs())
def test_an_intersection_has_the_shared_elements(case):
    shape, one, other = case
    both = intersection(one, other)
    assert (members(both, shape) if both else set()) == members(one, shape) & members(other, shape)


@given(pairs())
def test_runs_move_the_shared_elements_from_one_memory_to_the_other(case):
    shape, one, other = case
    overlap = Overlap.of(one, other)
    source = inside(one, numbered(shape)).ravel()
    target = np.full(other.volume, -1)
    runs = list(overlap.runs()) if overlap else []
    for run in runs:
        target[run.target : run.target + run.length] = source[run.source : run.source + run.length]
    shared = members(one, shape) & members(other, shape)
    expected = [number if number in shared else -1 for number in inside(other, numbered(shape)).ravel().tolist()]
    assert target.tolist() == expected
    if overlap:
        assert (overlap.run_count, {run.length for run in runs}) == (len(runs), {overlap.run_length})
        assert sum(run.length for run in runs) == overlap.region.volume
    for run, after in itertools.pairwise(runs):
        # None goes on where the one before ends, in both memories.
        ends = (run.source + run.length, run.target + run.length)
        assert ends != (after.source, after.target)
        assert ends <= (after.source, after.target)


@given(pairs(), st.integers(1, 30))
def test_slabs_cover_a_region_once_and_lie_close_together(case, most):
    shape, box, other = case
    region = intersection(box, other)
    if region is None:
        return
    source = inside(box, numbered(shape)).ravel()
    found = []
    for slab in slabs(box, region, most=most):
        first, length = span(box, slab)
        assert length <= most
        values = inside(slab, numbered(shape)).ravel().tolist()
        piece = source[first : first + length].tolist()
        assert (piece[0], piece[-1]) == (values[0], values[-1])
        assert set(values) <= set(piece)
        found += values
    assert found == inside(region, numbered(shape)).ravel().tolist()


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=3).map(tuple), st.integers(1, 9))
def test_the_holders_of_a_box_write_it_exactly_once(shape, holders):
    box = Box(tuple(7 for _ in shape), shape)
    slices = [slice_of(box, holders=holders, turn=turn) for turn in range(holders)]
    written = [Box(tuple(at - 7 for at in one.offsets), one.shape) for one in slices if one]
    assert cover_problem(shape, written) is None


@pytest.mark.parametrize(
    ("shape", "holders", "expected"),
    [
        ((4096, 4096), 8, [(512, 4096)] * 8),
        ((1, 4096, 4096), 4, [(1, 1024, 4096)] * 4),
        ((3, 4096), 2, [(3, 2048)] * 2),  # whole rows would be uneven
        ((1000,), 4, [(1000,), None, None, None]),  # too small to be divided
        ((2048,), 4, [(1024,), (1024,), None, None]),
        ((), 2, [(), None]),
        ((0, 5), 2, [None, None]),
    ],
)
def test_a_slice_is_even_and_in_one_piece(shape, holders, expected):
    box = Box.whole(shape)
    slices = [slice_of(box, holders=holders, turn=turn) for turn in range(holders)]
    assert [one and one.shape for one in slices] == expected


def test_a_part_gives_the_slice_that_its_rank_writes():
    local = np.arange(4096).reshape(64, 64)
    part = Part(Box((100, 0), (64, 64)), local, holders=2, turn=1)
    written = part.written()
    assert written.box == Box((132, 0), (32, 64))
    assert written.local.tolist() == local[32:].tolist()
    assert Part(Box((0,), (3,)), local[0, :3], holders=2, turn=1).written() is None


def test_ranks_with_the_same_box_take_turns():
    low, high = Box((0,), (4,)), Box((4,), (4,))
    assert turns([[low], [high], [low, high], []]) == [
        {low: (2, 0)},
        {high: (2, 0)},
        {low: (2, 1), high: (2, 1)},
        {},
    ]


@given(covers())
def test_boxes_that_cover_an_array_have_no_problem(case):
    shape, found = case
    assert cover_problem(shape, found) is None


@given(covers(), st.data())
def test_a_missing_box_and_one_that_is_there_twice_are_found(case, data):
    shape, found = case
    index = data.draw(st.integers(0, len(found) - 1))
    assert "elements" in cover_problem(shape, found[:index] + found[index + 1 :])
    assert "share elements" in cover_problem(shape, [*found, found[index]])
    if len(found) > 1:
        other = data.draw(st.integers(0, len(found) - 1).filter(lambda at: at != index))
        # As many elements as the array, and some twice.
        moved = [found[other] if at == index else box for at, box in enumerate(found)]
        assert cover_problem(shape, moved) is not None


@given(st.lists(st.tuples(st.integers(-1, 5), st.integers(-1, 5), st.integers(-1, 5), st.integers(-1, 5)), max_size=6))
def test_the_cover_check_agrees_with_counting(found):
    counts = np.zeros((4, 4), int)
    outside = False
    for x, y, width, height in found:
        outside |= min(x, y) < 0 or min(width, height) < 1 or x + width > 4 or y + height > 4
        if not outside:
            counts[x : x + width, y : y + height] += 1
    problem = cover_problem((4, 4), [Box((x, y), (width, height)) for x, y, width, height in found])
    assert (problem is None) == (not outside and bool((counts == 1).all()))


def test_boxes_of_another_number_of_dimensions_are_a_problem():
    assert "dimensions" in cover_problem((4,), [Box((0, 0), (2, 2))])
    assert "dimensions" in cover_problem((4,), [Box((0,), (2, 2))])


@pytest.mark.parametrize(
    "divisions", [(4096,), (1, 4096), (64, 64), (16, 16, 16), (2, 2, 1024)], ids=lambda divisions: f"{divisions}"
)
def test_thousands_of_boxes_are_judged_with_bounded_work(divisions):
    shape = tuple(3 * count for count in divisions)
    grid = [
        Box(tuple(3 * at for at in index), (3,) * len(shape)) for index in itertools.product(*map(range, divisions))
    ]
    grid = [grid[(at * 1009) % len(grid)] for at in range(len(grid))]  # 1009 shares no factor with 4096
    assert cover_problem(shape, grid) is None
    assert "share elements" in cover_problem(shape, [*grid[:-1], grid[0]])


def test_boxes_that_no_cut_parts_are_compared_or_refused():
    size = 4000
    chain = [Box((at, 0), (size + 1, 1)) for at in range(size)]
    assert "share elements" in cover_problem((3 * size, 1), chain)
    # Bars in three directions, none of which meet. A cut between some goes through many others.
    count = 24
    bars = [
        bar
        for one, other in itertools.product(range(0, 3 * count, 3), repeat=2)
        for bar in (
            Box((0, one, other), (3 * count, 1, 1)),
            Box((one, 0, other + 1), (1, 3 * count, 1)),
            Box((one + 1, other + 1, 0), (1, 1, 3 * count)),
        )
    ]
    assert "too entangled" in cover_problem((3 * count,) * 3, bars)


@given(
    st.integers(0, 40),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), max_size=3),
)
def test_every_index_of_a_split_dimension_belongs_to_one_rank(size, splits):
    counts = [ranks for ranks, _ in splits]
    found = []
    for at in itertools.product(*map(range, counts)):
        mine = kept_ranges(size, [Split(ranks, rank, groups) for (ranks, groups), rank in zip(splits, at, strict=True)])
        assert all(len(each) for each in mine)
        assert all(one.stop != other.start for one, other in itertools.pairwise(mine))
        found += [index for each in mine for index in each]
    assert sorted(found) == list(range(size))


@pytest.mark.parametrize(
    ("size", "splits", "expected"),
    [
        (10, [Split(4, 0)], [range(3)]),
        (10, [Split(4, 3)], [range(9, 10)]),
        (2, [Split(4, 3)], []),
        # Tensor parallelism on the inner mesh dimension first, then `fully_shard` on the outer one.
        (8, [Split(2, 0, groups=2), Split(2, 1)], [range(4, 6)]),
        (8, [Split(2, 1, groups=2)], [range(2, 4), range(6, 8)]),
    ],
)
def test_a_split_is_torchs(size, splits, expected):
    assert kept_ranges(size, splits) == expected
