"""Losses are planned from the caller's words, and placed in the run left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_rehearsal.losses import PlannedLoss, notice_seconds_of, place, planned_losses, read_point

TIMES = [float(number) for number in range(1, 11)]


@pytest.mark.parametrize(
    ("point", "loss"),
    [
        ("40%", PlannedLoss(at_fraction=0.4, notice=True)),
        ("120", PlannedLoss(at_step=120, notice=True)),
        ("30s", PlannedLoss(at_seconds=30.0, notice=True)),
        ("first-save", PlannedLoss(before_first_save=True, notice=True)),
    ],
)
def test_a_point_is_a_share_a_step_a_time_or_the_first_save(point: str, loss: PlannedLoss) -> None:
    assert read_point(point, notice=True) == loss


@pytest.mark.parametrize("point", ["", "late", "0%", "100%", "0", "1.5", "-3"])
def test_another_point_is_refused(point: str) -> None:
    with pytest.raises(ValueError, match="--interrupt-at takes"):
        read_point(point, notice=False)


def test_without_points_a_machine_goes_before_the_first_save_after_a_notice_and_without_one() -> None:
    first, second, third = planned_losses([], drawn=None, seed=0, notice=True)
    assert (first.before_first_save, first.notice) == (True, False)
    assert (second.at_fraction, second.notice) == (0.35, True)
    assert (third.at_fraction, third.notice) == (0.7, False)
    assert not any(loss.notice for loss in planned_losses([], drawn=None, seed=0, notice=False))


@given(drawn=st.integers(1, 20), seed=st.integers(0, 10_000))
def test_drawn_losses_follow_from_the_seed_and_lie_inside_the_run(drawn: int, seed: int) -> None:
    losses = planned_losses([], drawn=drawn, seed=seed, notice=True)
    assert losses == planned_losses([], drawn=drawn, seed=seed, notice=True)
    moments = [loss.at_fraction or 0.0 for loss in losses]
    assert len(moments) == drawn
    assert moments == sorted(moments)
    assert all(0.1 <= moment <= 0.9 for moment in moments)


@given(share=st.floats(0.01, 0.99), first_save=st.none() | st.floats(0.1, 10))
def test_a_share_is_placed_half_way_between_two_milestones_before_the_last(
    share: float, first_save: float | None
) -> None:
    placed = place(PlannedLoss(at_fraction=share), times=TIMES, seconds=11, first_save_seconds=first_save)
    assert placed is not None
    assert placed.position is not None
    assert 0 <= placed.position <= len(TIMES) - 2
    assert placed.seconds == 0.5
    if first_save is not None and share >= 0.5:
        assert placed.position == len(TIMES) - 2 or TIMES[placed.position] >= first_save


def test_a_loss_before_the_first_save_comes_before_it() -> None:
    loss = PlannedLoss(before_first_save=True)
    early = place(loss, times=TIMES, seconds=11, first_save_seconds=5.0)
    assert early is not None
    assert early.position == 2
    without_milestone = place(loss, times=TIMES, seconds=11, first_save_seconds=1.0)
    assert without_milestone is not None
    assert (without_milestone.position, without_milestone.seconds) == (None, 0.6)
    assert place(loss, times=TIMES, seconds=11, first_save_seconds=None) is None


def test_a_step_that_is_never_reached_has_no_place() -> None:
    assert place(PlannedLoss(at_step=11), times=TIMES, seconds=11, first_save_seconds=None) is None
    reached = place(PlannedLoss(at_step=30), times=TIMES, seconds=11, first_save_seconds=None, steps=range(10, 110, 10))
    assert reached is not None
    assert reached.position == 2


def test_where_nothing_is_printed_the_checkpoints_that_are_written_count_and_else_the_time() -> None:
    loss = PlannedLoss(at_fraction=0.7)
    by_writes = place(loss, times=[], seconds=10, first_save_seconds=1, writes=TIMES, fraction_before=0.35)
    assert by_writes is not None
    assert (by_writes.writes, by_writes.in_life) == (3, True)
    by_time = place(loss, times=[], seconds=10, first_save_seconds=4, fraction_before=0.35)
    assert by_time is not None
    assert (by_time.position, by_time.seconds, by_time.in_life) == (None, 4.8, True)


@given(seen=st.lists(st.floats(0.1, 20), min_size=1, max_size=10).map(sorted), share=st.floats(0.1, 0.9))
def test_a_loss_comes_though_the_rehearsal_missed_files_and_never_before_the_first_one(
    seen: list[float], share: float
) -> None:
    loss = place(PlannedLoss(at_fraction=share), times=[], seconds=11, first_save_seconds=1, writes=TIMES)
    assert loss is not None
    assert loss.writes is not None
    assert not loss.is_due_by_writes([], seconds=1_000)
    assert not loss.is_due_by_writes(seen[:1], seconds=seen[0] + loss.seconds / 2)
    assert loss.is_due_by_writes(seen[:1], seconds=max(TIMES[loss.writes], seen[0] + loss.seconds))
    if len(seen) >= loss.writes:
        assert loss.is_due_by_writes(seen, seconds=seen[loss.writes - 1] + loss.seconds)


@given(st.floats(0, 100_000))
def test_the_time_of_a_notice_is_a_part_of_the_run_within_bounds(seconds: float) -> None:
    assert 3 <= notice_seconds_of(seconds) <= 10


def test_files_of_one_save_are_not_torn_apart_by_a_loss_that_counts_them() -> None:
    saves = [time + file / 100 for time in range(2, 12) for file in range(3)]
    for share in (0.3, 0.5, 0.6, 0.7, 0.95):
        found = place(PlannedLoss(at_fraction=share), times=(), seconds=13.0, first_save_seconds=2.0, writes=saves)
        assert found is not None
        assert found.writes is not None
        assert (found.writes % 3, round(found.seconds, 2)) == (0, 0.49)
        assert abs(found.writes - share * len(saves)) <= 3


@given(slower=st.floats(1.0, 4.0), share=st.floats(0.1, 0.9))
def test_files_of_one_save_are_not_torn_apart_on_a_slower_machine_either(slower: float, share: float) -> None:
    saves = [time + file / 100 for time in range(2, 12) for file in range(3)]
    loss = place(PlannedLoss(at_fraction=share), times=(), seconds=13.0, first_save_seconds=2.0, writes=saves)
    assert loss is not None
    files = [slower * time for time in saves]
    moments = (now / 100 for now in range(6_000))
    comes = next(now for now in moments if loss.is_due_by_writes([each for each in files if each <= now], seconds=now))
    assert sum(each <= comes for each in files) % 3 == 0
