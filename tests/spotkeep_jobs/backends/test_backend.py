"""What the phases of a job say, whichever backend listed them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.backends.backend import (
    ON_INSTANCES_PHASES,
    WAITING_PHASES,
    JobPhase,
    JobView,
    PhaseChange,
    end_of,
    first_on_instances,
    has_lost_its_capacity,
    instance_time,
    interruption_before,
    on_instances_since,
    training_since,
    waiting_since,
)
from spotkeep_jobs.record.record import QueuedTrainingJob, TrainingJobs

W, L, T, X, U = JobPhase.WAITING, JobPhase.LOADING, JobPhase.TRAINING, JobPhase.INTERRUPTED, JobPhase.UPLOADING


def at(minute: int) -> datetime:
    return datetime(2026, 11, 21, 12, 0, tzinfo=UTC) + timedelta(minutes=minute)


def job(*phases: JobPhase) -> JobView:
    """A job that enters a phase each minute, and is in the last of them."""
    changes = [PhaseChange(phase=phase, started_at=at(minute), ended_at=None) for minute, phase in enumerate(phases, 1)]
    ended = [
        PhaseChange(phase=before.phase, started_at=before.started_at, ended_at=after.started_at)
        for before, after in pairwise(changes)
    ]
    return JobView(
        name="digits-1", job_id="arn:digits-1", created_at=at(0), last_modified_at=at(99), environment={},
        phase=phases[-1] if phases else JobPhase.WAITING, transitions=(*ended, *changes[-1:]),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("phases", "minute"),
    [((), 0), ((W,), 0), ((W, X), 0), ((W, L, T), None), ((W, L, T, X), 4), ((W, L, X, W, W), 3), ((W, L, U), None)],
)
def test_a_wait_begins_with_the_job_or_with_the_end_of_its_capacity(
    phases: tuple[JobPhase, ...], minute: int | None
) -> None:
    assert waiting_since(job(*phases)) == (None if minute is None else at(minute))


def test_capacity_is_had_since_the_first_phase_on_it_without_a_wait_between() -> None:
    trains_again = job(W, L, T, X, W, L, T)
    assert on_instances_since(trains_again, now=at(50)) == at(6)
    assert first_on_instances(trains_again) == at(2)
    assert training_since(trains_again) == at(7)
    assert on_instances_since(job(W, L, T, X), now=at(50)) is None
    assert training_since(job(W, L, T, U)) is None


@pytest.mark.parametrize(
    ("phases", "lost"), [((W,), False), ((W, X, W), True), ((W, L, T, X, W), True), ((W, L, T, X, W, L), False)]
)
def test_capacity_is_lost_from_an_interruption_until_there_is_some_again(
    phases: tuple[JobPhase, ...], lost: bool
) -> None:
    assert has_lost_its_capacity(job(*phases)) is lost


def test_a_training_ends_the_interruption_since_the_training_before_it() -> None:
    lived = job(W, T, X, W, L, T, T)
    assert interruption_before(lived, 1) is None
    assert interruption_before(lived, 5) == lived.transitions[2]
    assert interruption_before(lived, 6) is None


def test_a_job_ended_when_its_last_phase_did() -> None:
    assert end_of(job(W, L, T, JobPhase.ENDED)) == at(4)
    assert end_of(job(W, L, T)) == at(99)  # A phase that is not known to have ended: when the job last changed.
    assert end_of(job()) == at(99)


@given(phases=st.lists(st.sampled_from(JobPhase)))
def test_a_job_waits_or_has_capacity_never_both(phases: list[JobPhase]) -> None:
    lived = job(*phases)
    assert (waiting_since(lived) is not None) is (lived.phase in WAITING_PHASES)
    assert (on_instances_since(lived, now=at(999)) is not None) is (lived.phase in ON_INSTANCES_PHASES)


S, E, Q = JobPhase.STOPPING, JobPhase.ENDED, JobPhase.UNKNOWN


@pytest.mark.parametrize(
    ("phases", "minutes", "since"),
    [
        ((), 0, None),
        ((W,), 0, None),
        ((W, L, T), 0, 2),
        ((W, L, T, X), 2, None),
        ((W, L, T, X, W, L, T), 2, 6),
        ((W, L, T, S), 0, 2),
        ((W, L, T, Q), 0, 2),
        ((W, L, T, X, S), 2, None),
        ((W, L, T, S, E), 3, None),
        ((W, S, E), 0, None),
    ],
)
def test_a_job_is_billed_from_its_first_instance_on_until_it_has_lost_them_or_is_over(
    phases: tuple[JobPhase, ...], minutes: int, since: int | None
) -> None:
    found = instance_time(job(*phases))
    assert found.seconds == 60 * minutes
    assert found.since == (None if since is None else at(since))
    assert found.seconds_until(at(20)) == 60 * (minutes + (0 if since is None else 20 - since))


def test_a_preempted_training_job_was_billed_while_it_saved() -> None:
    preempted = QueuedTrainingJob(name="a", preempted=True, phases=())
    jobs = TrainingJobs(listed=(preempted, preempted))
    assert instance_time(replace(job(W, T, X), training_jobs=jobs)).seconds == 60 + 2 * 120
