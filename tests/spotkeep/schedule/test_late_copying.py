"""The way of each save: the first ones compare, one in a hundred does, and what is not safe is copied at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spotkeep.schedule.late_copying import COMPARED_EVERY, COMPARED_SAVES, CopyWay, LateCopying

SAFE = {"goes_on": True, "stepped": True}


def test_the_first_saves_are_compared_and_then_one_in_a_hundred():
    copying = LateCopying()
    ways = [copying.next_way(**SAFE) for _ in range(COMPARED_SAVES + 3 * COMPARED_EVERY)]
    assert ways[:COMPARED_SAVES] == [CopyWay.COMPARED] * COMPARED_SAVES
    later = ways[COMPARED_SAVES:]
    assert [index + 1 for index, way in enumerate(later) if way is CopyWay.COMPARED] == [
        COMPARED_EVERY * number for number in (1, 2, 3)
    ]
    assert set(later) == {CopyWay.COMPARED, CopyWay.LATE}


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
