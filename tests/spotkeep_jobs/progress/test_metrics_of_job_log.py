"""What a script measures: each step once, the last and the best of what counts, a curve that stays small."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep import events
from spotkeep_jobs.progress.job_events import JobEvent, JobEventKind, read_line
from spotkeep_jobs.progress.job_log import MOST_KEPT, MOST_METRICS, MOST_POINTS, MetricsFollower
from spotkeep_jobs.record.record import Goal, Metric, ScriptMetrics
from spotkeep_jobs.record.table_client import fields_of, from_dynamodb, record_of, to_dynamodb

STEPS = st.integers(min_value=1, max_value=5_000)
VALUES = st.floats(allow_nan=False, allow_infinity=False)
CURVES = st.dictionaries(STEPS, VALUES, min_size=1, max_size=200)
GOALS = st.sampled_from(["minimize", "maximize"])


def said(kind: str, step: int | None = None, **fields: Any) -> JobEvent:
    return JobEvent(kind=JobEventKind(kind), at=1_795_262_400.0, step=step, fields=fields)


def measured(step: int | None, value: float, name: str = "loss", kind: str = "metrics") -> JobEvent:
    return said(kind, step, metrics={name: value})


def measurements(values: Iterable[tuple[int, float]]) -> list[JobEvent]:
    return [measured(step, value) for step, value in values]


def follow(known: ScriptMetrics | None, events: Sequence[JobEvent], **goals: Goal | None) -> ScriptMetrics | None:
    follower = MetricsFollower(known, goals=goals)
    for event in events:
        follower.add(event)
    return follower.metrics()


def loss_after(*events: JobEvent, goal: Goal | None = "minimize") -> Metric:
    metrics = follow(None, events, loss=goal)
    assert metrics is not None
    return metrics.metrics["loss"]


def test_nothing_measured_is_nothing_known() -> None:
    assert follow(None, [said("start"), said("progress", 3, metrics={})]) is None


def test_last_and_best_are_known_with_their_steps() -> None:
    loss = loss_after(measured(1, 3.0), measured(2, 1.0, kind="progress"), measured(3, 2.0))
    assert (loss.last, loss.last_step, loss.best, loss.best_step) == (2.0, 3, 1.0, 2)
    assert loss.points == ((1, 3.0), (2, 1.0), (3, 2.0))


def test_without_a_goal_there_is_no_best() -> None:
    loss = loss_after(measured(1, 3.0), goal=None)
    assert (loss.last, loss.best, loss.best_step) == (3.0, None, None)


def test_the_script_says_by_what_it_keeps_its_best_checkpoint_and_the_request_counts_more() -> None:
    kept_by = said("resume", 0, best_metric="loss", best_mode="max")
    assert loss_after(kept_by, measured(1, 1.0), measured(2, 3.0), measured(3, 2.0), goal=None).best == 3.0
    assert loss_after(kept_by, measured(1, 1.0), measured(2, 3.0), measured(3, 2.0)).best == 1.0


def test_steps_after_the_checkpoint_that_is_resumed_from_count_no_more_until_they_are_trained_again() -> None:
    before = (said("start"), said("resume", 0), *measurements([(10, 3.0), (20, 2.0), (30, 0.5)]))
    resumed = loss_after(*before, said("start"), said("resume", 20))
    assert (resumed.last_step, resumed.best, resumed.best_step) == (20, 2.0, 20)
    again = loss_after(*before, said("start"), said("resume", 20), measured(30, 0.7))
    assert (again.last, again.best, again.points) == (0.7, 0.7, ((10, 3.0), (20, 2.0), (30, 0.7)))


def test_a_process_that_does_not_say_from_where_goes_on_before_the_first_step_it_reports() -> None:
    first_life = (said("start"), *measurements([(1, 3.0), (2, 2.0), (3, 0.5)]))
    assert loss_after(*first_life, said("start"), measured(2, 2.5)).points == ((1, 3.0), (2, 2.5))
    assert loss_after(*first_life, said("start")).points == ((1, 3.0), (2, 2.0), (3, 0.5))


def test_values_without_a_step_have_a_last_and_a_best_and_no_curve() -> None:
    loss = loss_after(measured(None, 3.0), measured(None, 1.0), measured(None, 2.0))
    assert (loss.last, loss.last_step, loss.best, loss.best_step, loss.points) == (2.0, None, 1.0, None, ())


@given(values=CURVES, goal=GOALS, seed=st.integers(0, 9))
def test_reported_late_twice_or_out_of_order_a_value_counts_once(
    values: dict[int, float], goal: Goal, seed: int
) -> None:
    in_order = measurements(sorted(values.items()))
    otherwise = [*in_order, *in_order]
    random.Random(seed).shuffle(otherwise)  # noqa: S311 - reproducible, not secret
    assert follow(None, otherwise, loss=goal) == follow(None, in_order, loss=goal)


@given(values=CURVES, goal=GOALS)
def test_last_and_best_are_exact_and_the_curve_is_small_in_order_and_made_of_what_was_measured(
    values: dict[int, float], goal: Goal
) -> None:
    loss = loss_after(*measurements(values.items()), goal=goal)
    best = min(values.values()) if goal == "minimize" else max(values.values())
    assert (loss.last_step, loss.last) == (max(values), values[max(values)])
    assert loss.best == best
    assert loss.best_step == min(step for step, value in values.items() if value == best)
    assert 1 <= len(loss.points) <= MOST_KEPT
    assert len(loss.bests) <= MOST_POINTS
    assert list(loss.points) == sorted(set(loss.points))
    assert set(loss.points) <= set(values.items())
    if len(values) <= MOST_POINTS:
        assert set(loss.points) == set(values.items())
    else:
        assert len(loss.points) > MOST_POINTS / 4 or loss.span > max(values) / MOST_POINTS / 2


@given(values=CURVES, seed=st.integers(0, 9))
def test_the_first_last_least_and_greatest_value_stay_in_the_curve(values: dict[int, float], seed: int) -> None:
    in_any_order = list(values.items())
    random.Random(seed).shuffle(in_any_order)  # noqa: S311 - reproducible, not secret
    points = loss_after(*measurements(in_any_order)).points
    assert (points[0], points[-1]) == ((min(values), values[min(values)]), (max(values), values[max(values)]))
    kept = [value for _, value in points]
    assert (min(kept), max(kept)) == (min(values.values()), max(values.values()))


@given(values=CURVES, resumed=STEPS, cut=st.integers(0, 200))
def test_of_values_measured_again_the_earlier_ones_are_gone_also_the_greatest(
    values: dict[int, float], resumed: int, cut: int
) -> None:
    again = {step: 0.0 for step in values if step > resumed}
    log = [*measurements(sorted(values.items())), said("start"), said("resume", resumed)]
    log += measurements(sorted(again.items()))
    metrics = follow(follow(None, log[:cut], loss=None), log[cut:], loss=None)
    assert metrics is not None
    if "loss" in metrics.metrics:
        assert set(metrics.metrics["loss"].points) <= ({**values, **again}).items()


@given(resumes=st.lists(st.integers(0, 59), max_size=5), reported=st.lists(st.integers(1, 60), min_size=5, max_size=5))
def test_all_values_of_a_short_training_stay_over_any_number_of_attempts(
    resumes: list[int], reported: list[int]
) -> None:
    log, begin = list[JobEvent](), 0
    for resumed, until in [*zip(resumes, reported, strict=False), (60, 60)]:
        log += [said("start"), said("resume", begin)]
        log += measurements((step, step / 7) for step in range(begin + 1, until + 1))
        begin = min(resumed, max(begin, until))
    assert loss_after(*log).points == tuple((step, step / 7) for step in range(1, 61))


def test_a_log_that_the_library_writes_in_a_second_has_each_value(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOTKEEP_EVENTS", "stdout")
    for name in ("_held_back", "_values_reported"):
        monkeypatch.setattr(events, name, {})
    for step in range(1, MOST_POINTS + 1):
        events.report_progress(step=step, loss=1 / step)
    log = [event for line in capsys.readouterr().out.splitlines() if isinstance(event := read_line(line), JobEvent)]
    assert loss_after(*log).points == tuple((step, 1 / step) for step in range(1, MOST_POINTS + 1))


@given(values=CURVES, cut=st.integers(0, 200), goal=GOALS)
def test_a_log_read_in_pieces_says_what_it_says_as_a_whole(values: dict[int, float], cut: int, goal: Goal) -> None:
    events = [said("start"), said("resume", 0), *measurements(values.items())]
    stored = follow(None, events[:cut], loss=goal)
    if stored is not None:
        stored = record_of(ScriptMetrics, from_dynamodb(to_dynamodb(fields_of(stored))))
    assert follow(stored, events[cut:], loss=goal) == follow(None, events, loss=goal)


@given(values=CURVES, goal=GOALS)
def test_a_log_that_is_read_again_as_a_whole_counts_once(values: dict[int, float], goal: Goal) -> None:
    log = [said("start"), said("resume", 0), *measurements(sorted(values.items()))]
    once = follow(None, log, loss=goal)
    again = follow(once, log, loss=goal)
    assert once is not None
    assert again is not None
    kept, reread = once.metrics["loss"], again.metrics["loss"]
    assert (kept.last, kept.last_step, kept.best, kept.best_step) == (
        reread.last, reread.last_step, reread.best, reread.best_step,
    )  # fmt: skip
    assert reread.points == kept.points


@given(values=CURVES, resumed=STEPS, goal=GOALS)
def test_no_value_of_a_step_that_was_lost_stays(values: dict[int, float], resumed: int, goal: Goal) -> None:
    metrics = follow(None, [*measurements(values.items()), said("start"), said("resume", resumed)], loss=goal)
    for metric in () if metrics is None else metrics.metrics.values():
        assert max(step for step, _ in (*metric.points, *metric.bests)) <= resumed
        assert metric.last_step is not None
        assert metric.last_step <= resumed
        assert metric.best_step is None or metric.best_step <= resumed


def test_of_a_strangers_names_only_so_many_are_kept_and_those_of_the_request_have_a_place() -> None:
    strangers = [measured(1, 1.0, name=f"stranger-{number}") for number in range(1_000)]
    metrics = follow(None, [*strangers, measured(1, 2.0)], loss="minimize")
    assert metrics is not None
    assert len(metrics.metrics) == MOST_METRICS
    assert metrics.metrics["loss"].last == 2.0
    assert metrics.left_out
    again = follow(metrics, strangers, loss="minimize")
    assert again is not None
    assert len(again.metrics) == MOST_METRICS


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "\x1b[31mred", "\u202eloss"])
def test_a_name_that_would_steer_a_readers_eye_is_not_kept(name: str) -> None:
    assert follow(None, [measured(1, 1.0, name=name)]) is None


def test_a_training_that_begins_after_another_one_takes_nothing_away_of_what_that_measured() -> None:
    first = [said("start"), said("resume", 0, training="a"), *measurements([(1, 0.5), (9, 0.1)])]
    second = [said("resume", 0, training="b"), measured(1, 0.4)]
    loss = loss_after(*first, *second)
    assert loss.points == ((1, 0.4), (9, 0.1))
    assert (loss.best_step, loss.best) == (9, 0.1)
