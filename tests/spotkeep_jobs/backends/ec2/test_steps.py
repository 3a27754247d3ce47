"""What is due about a fleet: it is deleted first, its instance has its time to save, and nothing is left."""

from __future__ import annotations

from dataclasses import replace

from spotkeep_fleet.record import FINISHED
from spotkeep_jobs.backends.backend import JobPhase
from spotkeep_jobs.backends.ec2.attempt_view import as_job_view
from spotkeep_jobs.backends.ec2.facts import FleetReading
from spotkeep_jobs.backends.ec2.history import MAX_FUTILE_INSTANCES, FleetEnding, absorb, closed
from spotkeep_jobs.backends.ec2.steps import LEAVING_TAKES, FleetStep, steps_due, to_terminate
from spotkeep_jobs.record.states import EndReason

from .readings import at, history, instance, record, seen, trains


def test_a_fleet_is_deleted_before_its_instance_goes_and_the_instance_keeps_its_time_to_save() -> None:
    """Trap 7: no other instance takes the volume from an instance that has not let go of it."""
    done = record(holder="a", state=FINISHED, exit_code=0)
    live = seen(instance("a", launched=1))
    found = absorb(history(), seen=live, record=done, now=at(5))
    assert steps_due(found, seen=live, record=done, now=at(5)) == (FleetStep.DELETE_FLEET,)
    deleted = seen(instance("a", launched=1), state="deleted_running")
    assert steps_due(found, seen=deleted, record=done, now=at(6)) == ()
    left = replace(done, lease=None)
    assert steps_due(found, seen=deleted, record=left, now=at(6)) == (FleetStep.TERMINATE,)
    assert to_terminate(found, record=left, now=at(6)) == ("i-a",)


def test_an_instance_that_never_lets_go_is_terminated_in_the_end() -> None:
    hanging = record(holder="a", state=FINISHED, exit_code=0)
    found = absorb(history(), seen=seen(instance("a", launched=1)), record=hanging, now=at(5))
    assert to_terminate(found, record=hanging, now=at(5) + LEAVING_TAKES) == ("i-a",)


def test_it_is_over_when_nothing_runs_and_nothing_can_come_any_more() -> None:
    done = record(state=FINISHED, exit_code=0)
    gone = instance("a", launched=1, state="terminated")
    found = absorb(history(), seen=seen(gone), record=done, now=at(5))
    assert steps_due(found, seen=seen(gone, state="deleted_running"), record=done, now=at(5)) == ()
    assert steps_due(found, seen=seen(gone, state="deleted"), record=done, now=at(5)) == (FleetStep.CLOSE,)
    assert steps_due(found, seen=seen(gone, state="deleted_running"), record=done, now=at(8)) == (FleetStep.CLOSE,)


def test_a_fleet_that_ec2_does_not_show_yet_is_not_gone_and_is_deleted_all_the_same() -> None:
    unseen = FleetReading(fleet=None, instances=())
    found = absorb(history(), seen=unseen, record=record(), now=at(1))
    assert found.ending is None
    stopped = replace(record(), stop_requested=True)
    found = absorb(found, seen=unseen, record=stopped, now=at(2))
    assert steps_due(found, seen=unseen, record=stopped, now=at(2)) == (FleetStep.DELETE_FLEET,)


def test_a_fleet_that_a_user_deleted_lets_its_instance_save() -> None:
    live = seen(instance("a", launched=1), state="deleted_running")
    found = absorb(history(), seen=live, record=trains("a", since=2), now=at(5))
    assert found.ending is FleetEnding.FLEET_GONE
    assert steps_due(found, seen=live, record=trains("a", since=2), now=at(5)) == (FleetStep.ASK_TO_STOP,)


def test_an_instance_that_never_says_a_word_is_ended_and_counted() -> None:
    mute = instance("mute", launched=1)
    found = absorb(history(), seen=seen(mute), record=record(), now=at(20))
    assert steps_due(found, seen=seen(mute), record=record(), now=at(20)) == ()
    found = absorb(found, seen=seen(mute), record=record(), now=at(21))
    assert steps_due(found, seen=seen(mute), record=record(), now=at(21)) == (FleetStep.TERMINATE,)
    assert to_terminate(found, record=record(), now=at(21)) == ("i-mute",)
    ended = [
        instance(f"{n}", launched=20 * n, state="terminated", reason="Client.UserInitiatedShutdown")
        for n in range(MAX_FUTILE_INSTANCES)
    ]
    assert absorb(found, seen=seen(*ended), record=record(), now=at(110)).ending is FleetEnding.FUTILE


def test_an_instance_whose_agent_was_heard_of_may_wait_for_its_volume_as_long_as_it_must() -> None:
    waits = seen(instance("a", launched=1))
    found = absorb(history(), seen=waits, record=record(holder="a", until=6), now=at(5))
    found = absorb(found, seen=waits, record=record(), now=at(90))
    assert steps_due(found, seen=waits, record=record(), now=at(90)) == ()


def test_an_instance_that_waits_for_the_lease_of_another_one_is_not_silent() -> None:
    both = seen(instance("a", launched=1), instance("b", launched=2))
    found = absorb(history(), seen=both, record=trains("a", since=3), now=at(30))
    assert steps_due(found, seen=both, record=trains("a", since=3), now=at(30)) == ()


def test_limits_end_a_run_gently() -> None:
    live = seen(instance("a", launched=1))
    found = absorb(history(), seen=live, record=trains("a", since=2), now=at(3))
    found = absorb(found, seen=live, record=trains("a", since=2), now=at(63))
    assert found.ending is FleetEnding.MAX_RUN
    assert steps_due(found, seen=live, record=trains("a", since=2), now=at(63)) == (
        FleetStep.ASK_TO_STOP,
        FleetStep.DELETE_FLEET,
    )
    waiting = absorb(history(), seen=seen(), record=record(), now=at(121))
    assert waiting.ending is FleetEnding.MAX_WAIT
    job = as_job_view(closed(waiting, charges=None, now=at(121)), record())
    assert (job.phase, job.end_reason, job.training_seconds) == (JobPhase.ENDED, EndReason.MAX_WAIT_EXCEEDED, None)
