"""How an attempt on a fleet ended, in the terms of every job."""

from __future__ import annotations

from dataclasses import replace

from spotkeep_fleet.record import FAILED, FINISHED
from spotkeep_jobs.backends.ec2.attempt_view import as_job_view
from spotkeep_jobs.backends.ec2.history import FleetEnding, absorb, closed
from spotkeep_jobs.record.states import EndReason

from .readings import NO_CAPACITY, at, history, instance, record, said, seen


def test_a_run_that_waited_too_long_ends_with_what_ec2_said() -> None:
    events = (said(2, "allLaunchSpecsTemporarilyBlacklisted", NO_CAPACITY),)
    found = absorb(history(), seen=seen(events=events), record=record(), now=at(200))
    assert found.ending is FleetEnding.MAX_WAIT
    job = as_job_view(closed(found, charges=None, now=at(203)), record())
    assert (job.end_reason, job.waits_because) == (EndReason.MAX_WAIT_EXCEEDED, None)
    assert job.failure_reason == f"allLaunchSpecsTemporarilyBlacklisted: {NO_CAPACITY}"


def test_a_crash_of_the_script_is_no_success() -> None:
    """Trap 8: deleting the fleet without reading the exit code calls a crash a success."""
    crashed = record(state=FAILED, exit_code=3, failure="out of memory")
    found = absorb(history(), seen=seen(instance("a", launched=1)), record=crashed, now=at(5))
    found = absorb(found, seen=seen(instance("a", launched=1, state="terminated")), record=crashed, now=at(6))
    job = as_job_view(closed(found, charges=None, now=at(7)), crashed)
    assert (job.end_reason, job.ended) == (EndReason.SCRIPT_FAILED, True)
    assert job.failure_reason == "AlgorithmError: the command ended with exit code 3: out of memory"


def test_a_script_that_says_that_it_paused_is_not_done() -> None:
    paused = record(state=FINISHED, exit_code=0, step=1000, paused_step=1000)
    found = absorb(history(), seen=seen(instance("a", launched=1)), record=paused, now=at(5))
    assert found.ending is FleetEnding.PAUSED
    assert not found.ending.training_goes_on
    found = closed(found, charges=None, now=at(7))
    assert as_job_view(found, paused).end_reason is EndReason.PAUSED
    assert as_job_view(found, None).end_reason is EndReason.PAUSED


def test_what_finished_while_it_was_asked_to_stop_has_finished() -> None:
    live = seen(instance("a", launched=1))
    found = absorb(history(), seen=live, record=replace(record(), stop_requested=True), now=at(5))
    done = replace(record(state=FINISHED, exit_code=0), stop_requested=True)
    found = absorb(found, seen=live, record=done, now=at(6))
    assert as_job_view(closed(found, charges=None, now=at(7)), done).end_reason is EndReason.COMPLETED
