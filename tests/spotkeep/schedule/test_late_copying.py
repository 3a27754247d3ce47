"""The way of each save: the first ones compare, some try both ways, and what is not safe is copied at once."""

from __future__ import annotations

import statistics

from hypothesis import given
from hypothesis import strategies as st

from spotkeep.schedule.late_copying import COMPARED_EVERY, COMPARED_SAVES, TRIED_SAVES, CopyWay, LateCopying

SAFE = {"goes_on": True, "stepped": True}


def saved(copying: LateCopying, *, late: float, at_once: float) -> CopyWay:
    way = copying.next_way(**SAFE)
    copying.took(way, late if way is CopyWay.LATE else at_once)
    return way


IN_TURN = [CopyWay.LATE, CopyWay.AT_ONCE, CopyWay.AT_ONCE, CopyWay.LATE] * (TRIED_SAVES // 2)


def test_the_first_saves_are_compared_and_then_both_ways_are_tried_in_turn():
    copying = LateCopying()
    ways = [saved(copying, late=1.0, at_once=2.0) for _ in range(COMPARED_SAVES + 2 * TRIED_SAVES)]
    assert ways == [CopyWay.COMPARED] * COMPARED_SAVES + IN_TURN
    assert copying.medians == {CopyWay.LATE: 1.0, CopyWay.AT_ONCE: 2.0}


@given(
    late=st.lists(st.floats(0.1, 10), min_size=TRIED_SAVES, max_size=TRIED_SAVES),
    at_once=st.lists(st.floats(0.1, 10), min_size=TRIED_SAVES, max_size=TRIED_SAVES),
)
def test_the_way_with_the_lower_median_stays(late: list[float], at_once: list[float]):
    copying = LateCopying()
    tried = [(a, b) for a, b in zip(late, at_once, strict=True) for _ in range(2)]
    for a, b in [(0.0, 0.0)] * COMPARED_SAVES + tried:
        saved(copying, late=a, at_once=b)
    later = {saved(copying, late=0.0, at_once=0.0) for _ in range(2 * COMPARED_EVERY)}
    if statistics.median(late) < statistics.median(at_once):
        assert later == {CopyWay.LATE, CopyWay.COMPARED}
    else:
        assert later == {CopyWay.AT_ONCE}


@given(slower=st.booleans(), first=st.integers(0, 1), seconds=st.floats(10, 100))
def test_work_after_each_second_save_does_not_choose_the_way(slower: bool, first: int, seconds: float):
    """Two saves an epoch, and a validation at its end."""
    copying = LateCopying()
    for number in range(COMPARED_SAVES + 2 * TRIED_SAVES):
        more = seconds * (number % 2 == first)
        saved(copying, late=more + 1.0, at_once=more + (0.9 if slower else 1.1))
    assert (saved(copying, late=0.0, at_once=0.0) is CopyWay.AT_ONCE) is slower


def test_one_in_a_hundred_later_ones_is_compared():
    copying = LateCopying()
    ways = [saved(copying, late=1.0, at_once=2.0) for _ in range(COMPARED_SAVES + 3 * COMPARED_EVERY)]
    assert ways[:COMPARED_SAVES] == [CopyWay.COMPARED] * COMPARED_SAVES
    later = ways[COMPARED_SAVES:]
    assert [index + 1 for index, way in enumerate(later) if way is CopyWay.COMPARED] == [
        COMPARED_EVERY * number for number in (1, 2, 3)
    ]
    assert set(later[2 * TRIED_SAVES :]) == {CopyWay.COMPARED, CopyWay.LATE}


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=300))
def test_no_save_is_late_before_enough_were_compared_nor_after_a_difference(saves):
    copying = LateCopying()
    compared, off = 0, False
    for goes_on, stepped, differs in saves:
        way = copying.next_way(goes_on=goes_on, stepped=stepped)
        if off or not goes_on or not stepped:
            assert way is CopyWay.AT_ONCE
        if way is CopyWay.LATE:
            assert compared >= COMPARED_SAVES
        compared += way is CopyWay.COMPARED
        if differs and way is not CopyWay.AT_ONCE:
            copying.turn_off("a tensor changed")
            off = True


def test_it_is_turned_off_once_and_for_the_first_reason():
    copying = LateCopying()
    copying.turn_off("first")
    copying.turn_off("second")
    assert copying.why_off == "first"
