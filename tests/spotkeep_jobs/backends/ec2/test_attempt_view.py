"""An attempt on a fleet in the terms of every job: what it is, and how it ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spotkeep_fleet.record import FAILED, FINISHED, INPUT_ERROR, CurrentVolume
from spotkeep_jobs.backends.ec2.attempt_view import as_job_view
from spotkeep_jobs.backends.ec2.history import FleetEnding, InstanceLife, Transition, absorb, closed
from spotkeep_jobs.backends.job_view import JobPhase
from spotkeep_jobs.record.record import Volume
from spotkeep_jobs.record.states import EndReason
from tests.models.clock import NOON

from .readings import MARKS, NO_CAPACITY, at, history, instance, record, said, seen, trains


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


def test_data_that_do_not_work_are_no_failure_of_the_script_and_no_training() -> None:
    says = record(state=INPUT_ERROR, failure="channel train: s3://b/data/ holds no data")
    found = absorb(history(), seen=seen(instance("a", launched=1)), record=says, now=at(5))
    assert not (found.ending or FleetEnding.FUTILE).training_goes_on
    assert [life.training_at for life in found.lives] == [None]
    job = as_job_view(closed(found, charges=None, now=at(7)), says)
    assert (job.end_reason, job.ended) == (EndReason.INPUT_ERROR, True)
    assert job.failure_reason == "ClientError: channel train: s3://b/data/ holds no data"
    assert JobPhase.TRAINING not in {entry.phase for entry in job.transitions}


def test_a_training_whose_model_was_not_sent_has_trained() -> None:
    says = record(state=INPUT_ERROR, exit_code=0, failure="the model could not be sent to s3://b/: AccessDenied")
    found = absorb(history(), seen=seen(instance("a", launched=1)), record=says, now=at(5))
    job = as_job_view(closed(found, charges=None, now=at(7)), says)
    assert job.end_reason is EndReason.INPUT_ERROR
    assert JobPhase.TRAINING in {entry.phase for entry in job.transitions}


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


def test_a_live_attempt_is_shown_with_its_instance_its_times_and_its_volume() -> None:
    a = instance("a", launched=1)
    found = absorb(history(), seen=seen(a), record=trains("a", since=4), now=at(5))
    kept = CurrentVolume(id="vol-1", zone="us-east-1a", size_gb=8)
    job = as_job_view(found, replace(trains("a", since=4), volume=kept))
    assert (job.name, job.job_id, job.phase, job.environment) == ("count-1", "fleet-1", JobPhase.TRAINING, MARKS)
    assert (job.created_at, job.training_started_at, job.training_ended_at) == (NOON, at(1), None)
    assert (job.end_reason, job.failure_reason, job.last_modified_at) == (None, None, None)
    assert (job.instance_type, job.volume) == ("g5.xlarge", Volume(id="vol-1"))
    waits, *_, trains_now = job.transitions
    assert (waits.phase, waits.started_at, waits.text) == (JobPhase.WAITING, NOON, "Waits for capacity and starts")
    assert waits.ended_at == job.transitions[1].started_at
    assert (trains_now.phase, trains_now.ended_at, trains_now.text) == (JobPhase.TRAINING, None, "Trains")


def test_what_a_transition_says_is_shown_with_it() -> None:
    said_why = history(transitions=(Transition(phase=JobPhase.INTERRUPTED, at=at(3), message="it was taken"),))
    [shown] = as_job_view(said_why, None).transitions
    assert (shown.detail, shown.text) == ("it was taken", "Lost its capacity, waits for new")
    stopping = history(transitions=(Transition(phase=JobPhase.STOPPING, at=at(3)),))
    assert as_job_view(stopping, None).transitions[0].text == ""


def test_an_attempt_without_an_instance_has_no_type_no_start_and_no_volume() -> None:
    job = as_job_view(history(), None)
    assert (job.instance_type, job.training_started_at, job.training_seconds, job.volume) == (None, None, None, None)


@pytest.mark.parametrize(
    ("said_uri", "model"),
    [
        ("s3://bucket/runs/count/output/model.tar.gz", "s3://bucket/runs/count/output/model.tar.gz"),
        ("s3://bucket/runs/other/output/model.tar.gz", None),
        ("s3://bucket/runs/count/output/../../other/output/model.tar.gz", None),
        (None, None),
    ],
)
def test_a_model_is_where_the_attempts_outputs_go_or_nowhere(said_uri: str | None, model: str | None) -> None:
    says = record(state=FINISHED, exit_code=0, output_uri=said_uri)
    assert as_job_view(history(output_uri="s3://bucket/runs/count/output/"), says).model_uri == model
    assert as_job_view(history(output_uri=None), says).model_uri is None


def test_a_crash_of_which_nothing_is_known_says_so() -> None:
    over = {"ending": FleetEnding.SCRIPT_FAILED, "ending_at": at(5), "over_at": at(6)}
    unknown = "AlgorithmError: the command ended with exit code unknown"
    assert as_job_view(history(**over), None).failure_reason == unknown
    assert as_job_view(history(**over), record()).failure_reason == unknown
    assert as_job_view(history(**over), None).training_ended_at == at(6)


def test_instances_that_come_and_go_are_counted_and_the_last_one_is_named() -> None:
    def life(n: int, **why: Any) -> InstanceLife:
        place = {"instance_type": "g5.xlarge", "zone": "us-east-1a", "spot": True}
        return InstanceLife(instance_id=f"i-{n}", launched_at=at(n), ended_at=at(n + 1), **place, **why)

    lives = (life(0, ended_by="Client.UserInitiatedShutdown"), life(1), life(2, ended_by="Server.InternalError"))
    over = {"ending": FleetEnding.FUTILE, "ending_at": at(5), "over_at": at(6)}
    reason = as_job_view(history(**over, lives=lives, problem="no device"), None).failure_reason
    assert reason == (
        "ClientError: 3 instances, one after the other, went before they trained. The last one: i-2, ended by "
        "Server.InternalError; it said: no device. What to do: docs/runbook.md, 'Instances come and go'"
    )
    unnamed = as_job_view(history(**over, lives=lives[:2]), None).failure_reason
    assert "The last one: i-1, ended by an unknown cause. What to do:" in unnamed
    none = as_job_view(history(**over), None).failure_reason
    assert none.startswith("ClientError: 0 instances, one after the other, went before they trained. What to do:")


def test_what_the_instances_finished_counts_before_how_the_fleet_was_ended() -> None:
    stopped = history(ending=FleetEnding.STOPPED, ending_at=at(5), over_at=at(6))
    assert as_job_view(stopped, record(state=FINISHED, exit_code=0)).end_reason is EndReason.COMPLETED
    assert as_job_view(stopped, record()).end_reason is EndReason.STOPPED_BY_USER
