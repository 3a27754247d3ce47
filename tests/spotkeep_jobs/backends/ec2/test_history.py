"""What readings of a fleet add up to: late, twice, out of order, or never."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_fleet.record import FAILED, FINISHED, INPUT_ERROR, TRAINING, Departure, FleetRecord
from spotkeep_jobs.backends.ec2.attempt_view import as_job_view
from spotkeep_jobs.backends.ec2.facts import FleetEvent, FleetEventKind
from spotkeep_jobs.backends.ec2.history import (
    MAX_FUTILE_INSTANCES,
    FleetEnding,
    FleetHistory,
    absorb,
    closed,
    last_words,
    trained_seconds,
)
from tests.models.clock import NOON

from .readings import NO_CAPACITY, at, history, instance, record, said, seen, trains


def statuses(found: FleetHistory) -> list[str]:
    return [entry.phase.value for entry in found.transitions]


def test_an_instance_is_reported_from_its_launch_to_its_loss() -> None:
    found = absorb(history(), seen=seen(), record=record(), now=at(1))
    found = absorb(found, seen=seen(instance("a", launched=2)), record=record(), now=at(3))
    found = absorb(found, seen=seen(instance("a", launched=2)), record=trains("a", since=4), now=at(5))
    lost = instance("a", launched=2, state="terminated", reason="Server.SpotInstanceTermination")
    ended = FleetEvent(at=at(9), kind=FleetEventKind.INSTANCE, sub_type="terminated", instance_id="i-a")
    found = absorb(found, seen=seen(lost, events=(ended,)), record=trains("a", since=4), now=at(12))
    assert [(entry.phase.value, entry.at) for entry in found.transitions] == [
        ("WAITING", NOON), ("LOADING", at(2)), ("TRAINING", at(4)), ("INTERRUPTED", at(9)),
    ]  # fmt: skip
    assert found.lives[0].ended_by == "Server.SpotInstanceTermination"
    assert found.ending is None


def test_the_next_instance_tells_that_the_one_before_is_gone_even_when_it_was_not_seen_to_go() -> None:
    found = absorb(history(), seen=seen(instance("a", launched=1)), record=trains("a", since=2), now=at(3))
    both = seen(instance("a", launched=1), instance("b", launched=6))
    found = absorb(found, seen=both, record=trains("b", since=8), now=at(9))
    assert statuses(found) == ["WAITING", "LOADING", "TRAINING", "INTERRUPTED", "LOADING", "TRAINING"]
    late = seen(instance("a", launched=1, state="terminated"), instance("b", launched=6))
    assert statuses(absorb(found, seen=late, record=trains("b", since=8), now=at(10))) == statuses(found)


def test_an_interruption_that_was_not_seen_before_the_end_is_reported_all_the_same() -> None:
    done = record(state=FINISHED, exit_code=0, heartbeat_at=at(20).timestamp())
    lost = instance("a", launched=1, state="terminated", ended_at=at(9))
    last = instance("b", launched=10, state="terminated", ended_at=at(21))
    found = absorb(history(), seen=seen(lost, last), record=done, now=at(22))
    assert statuses(found) == ["WAITING", "LOADING", "INTERRUPTED", "LOADING", "TRAINING"]
    assert found.ending is FleetEnding.FINISHED


def test_an_instance_that_went_before_it_trained_was_not_interrupted() -> None:
    gone = instance("a", launched=1, state="terminated", ended_at=at(3), reason="Client.InstanceInitiatedShutdown")
    found = absorb(history(), seen=seen(gone, instance("b", launched=4)), record=trains("b", since=5), now=at(6))
    assert statuses(found) == ["WAITING", "LOADING", "WAITING", "LOADING", "TRAINING"]
    assert found.transitions[2].message == "i-a, g5.xlarge in us-east-1a, went before it trained"


def test_an_instance_that_an_answer_of_ec2_leaves_out_is_there_until_ec2_must_know_it() -> None:
    found = absorb(history(), seen=seen(instance("a", launched=1)), record=record(), now=at(2))
    found = absorb(found, seen=seen(), record=record(), now=at(10))
    assert [life.ended_at for life in found.live] == [None]
    said = FleetEvent(at=at(9), kind=FleetEventKind.INSTANCE, sub_type="terminated", instance_id="i-a")
    assert not absorb(found, seen=seen(events=(said,)), record=record(), now=at(10)).live
    assert not absorb(found, seen=seen(), record=record(), now=at(11)).live


@given(data=st.data())
def test_what_was_reported_once_is_never_reported_differently(data: st.DataObject) -> None:
    instances = [
        instance(name, launched=minute, state=state)
        for name, minute in (("a", 1), ("b", 10), ("c", 20))
        for state in ("running", "terminated")
    ]
    found, before = history(), statuses(history())
    for minute in range(1, 8):
        shown = data.draw(st.lists(st.sampled_from(instances), max_size=3, unique_by=lambda each: each.id))
        holder = data.draw(st.sampled_from(["a", "b", "c"]))
        reported = data.draw(st.sampled_from([record(), trains(holder, since=25)]))
        found = absorb(found, seen=seen(*shown), record=reported, now=at(25 + minute))
        again = absorb(found, seen=seen(*shown), record=reported, now=at(25 + minute))
        assert again.transitions == found.transitions
        assert statuses(found)[: len(before)] == before
        times = [entry.at for entry in found.transitions]
        assert times == sorted(times)
        before = statuses(found)


# Why it waits


@pytest.mark.parametrize(
    ("events", "because"),
    [
        pytest.param((), None, id="EC2 has said nothing"),
        pytest.param(
            (said(2, "allLaunchSpecsTemporarilyBlacklisted", NO_CAPACITY),),
            f"allLaunchSpecsTemporarilyBlacklisted: {NO_CAPACITY}",
            id="no capacity",
        ),
        pytest.param(
            (said(2, "spotInstanceCountLimitExceeded"),), "spotInstanceCountLimitExceeded", id="a quota, without a word"
        ),
        pytest.param(
            (
                said(2, "fleetProgressHalted", "the price is below the market", FleetEventKind.INFORMATION),
                said(3, "launchSpecUnusable", "g5.xlarge in us-east-1a", FleetEventKind.INFORMATION),
            ),
            "fleetProgressHalted: the price is below the market",
            id="what stops all of it before what stops a part",
        ),
        pytest.param((said(2, "progress", "on its way", FleetEventKind.FLEET),), None, id="no error"),
    ],
)
def test_why_it_waits_is_what_ec2_said_last(events: tuple[FleetEvent, ...], because: str | None) -> None:
    found = absorb(history(), seen=seen(events=events), record=record(), now=at(4))
    assert found.waits_because == because
    assert as_job_view(found, record()).waits_because == because
    later = absorb(found, seen=seen(), record=record(), now=at(49 * 60))
    assert later.waits_because == because, "EC2 keeps events for 48 hours"


def test_with_an_instance_it_does_not_wait_and_an_earlier_reason_is_not_reported_again() -> None:
    events = (said(2, "allLaunchSpecsTemporarilyBlacklisted", NO_CAPACITY),)
    found = absorb(history(), seen=seen(events=events), record=record(), now=at(3))
    found = absorb(found, seen=seen(instance("a", launched=5), events=events), record=record(), now=at(6))
    assert found.waits_because is None
    lost = instance("a", launched=5, state="terminated", reason="Server.SpotInstanceTermination")
    found = absorb(found, seen=seen(lost, events=events), record=record(), now=at(8))
    assert found.waits_because is None


def test_an_instance_that_cannot_be_launched_says_why_by_its_code() -> None:
    """A key that EC2 may not use, for example, stops an instance after the fleet launched it."""
    failed = instance("a", launched=1, state="terminated", reason="Client.InternalError")
    found = absorb(history(), seen=seen(failed), record=record(), now=at(2))
    assert found.waits_because == "Client.InternalError: i-a went before it trained"


# How it ends


@pytest.mark.parametrize(
    ("reported", "ending"),
    [
        (record(state=FINISHED, exit_code=0), FleetEnding.FINISHED),
        (record(state=FAILED, exit_code=1), FleetEnding.SCRIPT_FAILED),
        (record(state=INPUT_ERROR, exit_code=1), FleetEnding.INPUT_ERROR),
        (replace(record(), stop_requested=True), FleetEnding.STOPPED),
        (record(), None),
    ],
)
def test_the_record_says_how_it_ends(reported: FleetRecord, ending: FleetEnding | None) -> None:
    found = absorb(history(), seen=seen(instance("a", launched=1)), record=reported, now=at(5))
    assert found.ending == ending


def test_instances_that_leave_before_they_train_are_not_replaced_for_ever() -> None:
    went = {"state": "terminated", "reason": "Client.InstanceInitiatedShutdown"}
    left = [instance(f"{n}", launched=n, **went) for n in range(MAX_FUTILE_INSTANCES)]
    found = absorb(history(), seen=seen(*left[:-1]), record=record(), now=at(10))
    assert found.ending is None
    found = absorb(found, seen=seen(*left), record=replace(record(), problem="no such bucket"), now=at(11))
    assert found.ending is FleetEnding.FUTILE
    job = as_job_view(closed(found, charges=None, now=at(12)), record())
    assert "no such bucket" in (job.failure_reason or "")


def test_neither_interruptions_in_between_nor_a_training_long_ago_hide_that_nothing_trains_any_more() -> None:
    trained = instance("t", launched=0, state="terminated", reason="Server.SpotInstanceTermination")
    # Every other one is taken by EC2: neither a proof that it would have trained, nor that it would not.
    reasons = ["Client.InternalError", "Server.SpotInstanceTermination"] * MAX_FUTILE_INSTANCES
    gone = [instance(f"{n}", launched=3 + n, state="terminated", reason=why) for n, why in enumerate(reasons)]
    found = absorb(history(), seen=seen(instance("t", launched=0)), record=trains("t", since=1), now=at(2))
    found = absorb(found, seen=seen(trained, *gone[:-2]), record=record(), now=at(20))
    assert found.ending is None
    found = absorb(found, seen=seen(trained, *gone), record=record(), now=at(21))
    assert found.ending is FleetEnding.FUTILE
    reason = as_job_view(closed(found, charges=None, now=at(22)), record()).failure_reason
    assert "i-8, ended by Client.InternalError" in reason
    assert "spotkeep help runbook" in reason


def test_instances_that_left_on_a_notice_before_they_trained_say_nothing_of_the_next() -> None:
    """They power themselves off when EC2 is late, and EC2 then says that they went by themselves."""
    went = {"state": "terminated", "reason": "Client.InstanceInitiatedShutdown"}
    left = [instance(f"{n}", launched=n, ended_at=at(n + 0.5), **went) for n in range(MAX_FUTILE_INSTANCES)]
    departures = [Departure(each.id, each.launched_at.timestamp() + 20) for each in left]
    last = record(noticed=tuple(departures[1:]))
    found = absorb(history(), seen=seen(*left[:1]), record=record(noticed=tuple(departures[:1])), now=at(1))
    found = absorb(found, seen=seen(*left), record=last, now=at(11))
    assert found.ending is None
    assert statuses(found)[1:5] == ["LOADING", "INTERRUPTED", "LOADING", "INTERRUPTED"]


def test_an_instance_that_waits_for_ec2_after_a_notice_works_no_more() -> None:
    """The wait may be free, and is nothing that an uninterrupted run would have paid for (I8)."""
    found = absorb(history(), seen=seen(instance("a", launched=1)), record=trains("a", since=2), now=at(3))
    left = record(state=TRAINING, noticed=(Departure("i-a", at(9).timestamp()),))
    taken = instance("a", launched=1, state="terminated", ended_at=at(11), reason="Server.SpotInstanceTermination")
    found = absorb(found, seen=seen(taken), record=left, now=at(12))
    assert (found.transitions[-1].phase.value, found.transitions[-1].at) == ("INTERRUPTED", at(9))
    assert trained_seconds(found, now=at(12)) == 7 * 60
    stopped = closed(found.model_copy(update={"ending": FleetEnding.STOPPED}), charges=None, now=at(13))
    assert as_job_view(stopped, left).training_seconds == 8 * 60


def test_a_loss_that_ec2_did_not_cause_says_who_did() -> None:
    found = absorb(history(), seen=seen(instance("a", launched=1)), record=trains("a", since=2), now=at(3))
    gone = instance("a", launched=1, state="terminated", reason="Client.UserInitiatedShutdown")
    found = absorb(found, seen=seen(gone), record=trains("a", since=2), now=at(5))
    assert found.transitions[-1].phase.value == "INTERRUPTED"
    assert found.transitions[-1].message == "i-a, g5.xlarge in us-east-1a, ended by Client.UserInitiatedShutdown"


def test_the_console_tells_why_an_instance_gave_up_before_it_could_tell_the_record() -> None:
    said = "cloud-init ran\nspotkeep: s3://b/k cannot be fetched: status 403\nspotkeep-boot: it goes\n"
    assert last_words(said).startswith("s3://b/k cannot")
    said = "[  12.3] cloud-init[1]: spotkeep: this image has no python3\r\n"
    assert last_words(said).startswith("this image has no python3")
    assert last_words("kernel panic\n") is None
