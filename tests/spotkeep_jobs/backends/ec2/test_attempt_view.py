"""An attempt on a fleet in the terms of every job: what it is, and how it ended.

A history that adds up what is long over says the same as one that lists it all, and never outgrows its item.
"""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotkeep_fleet.record import FAILED, FINISHED, INPUT_ERROR, TRAINING, CurrentVolume, Departure, FleetRecord
from spotkeep_jobs.backends.backend import JobPhase, count_interruptions, first_on_instances
from spotkeep_jobs.backends.ec2.attempt_view import (
    KEPT_INSTANCES,
    KEPT_PHASES,
    MOST_INSTANCES,
    as_job_view,
    folded,
    must_fold,
    to_fold,
)
from spotkeep_jobs.backends.ec2.charges import AttemptStorage, charges_of
from spotkeep_jobs.backends.ec2.facts import Instance, ProvisionedVolume, SpotPrice
from spotkeep_jobs.backends.ec2.history import (
    FleetEnding,
    FleetHistory,
    InstanceLife,
    Transition,
    absorb,
    closed,
    futile_instances,
    trained_seconds,
)
from spotkeep_jobs.cost.run_cost import bill, usage_of
from spotkeep_jobs.progress.job_log import JobLog
from spotkeep_jobs.record.deployment_records import StoragePrices
from spotkeep_jobs.record.record import Attempt, Place, Volume
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
        "Server.InternalError; it said: no device. What to do: spotkeep help runbook instances come and go"
    )
    unnamed = as_job_view(history(**over, lives=lives[:2]), None).failure_reason
    assert "The last one: i-1, ended by an unknown cause. What to do:" in unnamed
    none = as_job_view(history(**over), None).failure_reason
    assert none.startswith("ClientError: 0 instances, one after the other, went before they trained. What to do:")


def test_what_the_instances_finished_counts_before_how_the_fleet_was_ended() -> None:
    stopped = history(ending=FleetEnding.STOPPED, ending_at=at(5), over_at=at(6))
    assert as_job_view(stopped, record(state=FINISHED, exit_code=0)).end_reason is EndReason.COMPLETED
    assert as_job_view(stopped, record()).end_reason is EndReason.STOPPED_BY_USER


TAKEN: Final = "Server.SpotInstanceTermination"
ITS_OWN_DOING: Final = "Client.InstanceInitiatedShutdown"
ON_DEMAND: Final = {"g5.xlarge": 1.006, "g6.xlarge": 0.8048}
TYPES: Final = tuple(ON_DEMAND)
ZONES: Final = ("us-east-1a", "us-east-1b")
STORAGE: Final = AttemptStorage(
    volume=ProvisionedVolume(size_gb=100, type="gp3"),
    root_volume=ProvisionedVolume(size_gb=60, type="gp3", throughput_mib_s=250),
    prices=StoragePrices(ebs_gp3=0.08, ebs_gp3_throughput=40.96),
)
LIMITS: Final = {"max_run_seconds": 28 * 86_400, "max_wait_seconds": 28 * 86_400}


class Story:
    """Interruption after interruption, as EC2 and the instances say; EC2 describes each for an hour after its end.

    Attributes:
        prices: Every spot price there was: a new one in each zone every few hours.
        minutes: Of the story.
        readings: What is seen, what the record says, and when.
    """

    def __init__(self, seed: int, *, interruptions: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - a story, no secret
        self.minutes = 1.0
        self.prices = [
            SpotPrice(instance_type=name, zone=zone, since=at(hour * 60), usd_per_hour=self._chance.uniform(0.2, 0.6))
            for name in TYPES
            for zone in ZONES
            for hour in range(-1, 24 * 14, self._chance.randint(8, 30))
        ]
        self._described: list[tuple[float, Instance]] = []
        self._noticed: tuple[Departure, ...] = ()
        self.readings: list[tuple[tuple[Instance, ...], FleetRecord, datetime]] = []
        for number in range(interruptions):
            self._live(str(number))
        self._end("last")

    def _live(self, name: str) -> None:
        chance = self._chance
        launched = self.minutes + chance.uniform(0.1, 5)
        self.minutes = launched + chance.choice([0.4, 3, 20, 61, 200]) * chance.uniform(0.5, 1.5)
        begins = launched + 0.2 if chance.random() < 0.8 else None
        given: dict[str, Any] = {
            "launched": launched, "type": chance.choice(TYPES), "zone": chance.choice(ZONES),
            "spot": chance.random() < 0.9,
        }  # fmt: skip
        if begins is not None:
            self._read(instance(name, **given), holder=name, state=TRAINING, since=begins)
        # One that goes by itself before it trains is futile, and five of these in a row would end the attempt.
        by = TAKEN if begins is None else chance.choice([TAKEN, TAKEN, ITS_OWN_DOING, None])
        if by == ITS_OWN_DOING and given["spot"] and chance.random() < 0.5:
            self._noticed = (*self._noticed, Departure(f"i-{name}", at(self.minutes - 0.1).timestamp()))[-20:]
        ended = instance(name, **given, state="terminated", reason=by, ended_at=at(self.minutes))
        self._described.append((self.minutes, ended))
        if chance.random() < 0.9:
            self._read(holder=None, state=TRAINING if begins is not None else "waiting", since=begins or launched)

    def _end(self, name: str) -> None:
        launched = self.minutes + 1
        self._read(instance(name, launched=launched), holder=name, state=TRAINING, since=launched + 0.5)
        self.minutes += 90
        gone = instance(name, launched=launched, state="terminated", reason=ITS_OWN_DOING, ended_at=at(self.minutes))
        self._described.append((self.minutes, gone))
        self._read(holder=None, state=FINISHED, since=self.minutes - 1)

    def _read(self, *running: Instance, holder: str | None, state: str, since: float) -> None:
        self.minutes = max(self.minutes, since)
        self._described = [(ended, each) for ended, each in self._described if self.minutes - ended < 60]
        says = record(
            holder=holder, until=self.minutes + 60, state=state, heartbeat_at=at(since).timestamp(),
            noticed=self._noticed,
        )  # fmt: skip
        self.readings.append(((*running, *(each for _, each in self._described)), says, at(self.minutes)))


def kept(found: FleetHistory) -> FleetHistory:
    """A history as the next function reads it."""
    return FleetHistory.model_validate_json(found.model_dump_json())


def history_of(story: Story, *, folds: bool) -> FleetHistory:
    found = history(**LIMITS)
    for instances, says, now in story.readings:
        found = absorb(found, seen=seen(*instances), record=says, now=now)
        if folds:
            found = folded(found, to_fold(found, now=now), spot_prices=story.prices, now=now)
        found = kept(found)
    end = at(story.minutes)
    charges = charges_of(
        found.lives, spot_prices=story.prices, on_demand_usd_per_hour=ON_DEMAND, until=end, storage=STORAGE,
        earlier=found.earlier_instances,
    )  # fmt: skip
    return kept(closed(found, charges=charges, now=end))


@settings(max_examples=4)
@given(seed=st.integers(0, 10**9), interruptions=st.integers(60, 180))
def test_a_folded_history_has_the_bill_of_the_whole_one(seed: int, interruptions: int) -> None:
    """I8, with hundreds of interruptions."""
    story = Story(seed, interruptions=interruptions)
    whole, short = history_of(story, folds=False), history_of(story, folds=True)
    assert KEPT_INSTANCES <= len(short.lives) <= MOST_INSTANCES
    assert len(short.transitions) <= KEPT_PHASES + 3
    assert short.earlier_instances is not None
    assert short.earlier_instances.count + len(short.lives) == len(whole.lives)
    assert short.charges == whole.charges
    assert (short.ending, short.over_at) == (FleetEnding.FINISHED, whole.over_at)
    assert trained_seconds(short, now=NOON) == trained_seconds(whole, now=NOON)
    seen_whole, seen_short = as_job_view(whole, None), as_job_view(short, None)
    assert seen_short.phase_count == len(seen_whole.transitions)
    assert seen_short.transitions == seen_whole.transitions[-len(seen_short.transitions) :]
    assert count_interruptions(seen_short) == count_interruptions(seen_whole)
    assert first_on_instances(seen_short) == first_on_instances(seen_whole)
    same = ("training_seconds", "billable_seconds", "training_started_at", "training_ended_at", "end_reason")
    assert [getattr(seen_short, name) for name in same] == [getattr(seen_whole, name) for name in same]
    used = [usage_of(job=job, log=JobLog(), earlier=(), ended_at=at(story.minutes)) for job in (seen_whole, seen_short)]
    assert used[0] == used[1]
    attempt = Attempt(
        run="count",
        attempt=1,
        place=Place(backend="ec2", capacity="spot", instance_type="g5.xlarge"),
        job_name="count-1",
        created_at=NOON,
    )
    bills = [bill([attempt.model_copy(update={"usage": each})], prices={}) for each in used]
    assert bills[0] == bills[1]


def test_what_ec2_may_still_change_its_mind_about_stays_listed() -> None:
    lives = [instance(str(n), launched=n, state="terminated", reason=TAKEN, ended_at=at(n + 0.5)) for n in range(60)]
    found = absorb(history(**LIMITS), seen=seen(*lives), record=record(), now=at(60))
    assert [life.instance_id for life in to_fold(found, now=at(10.6))] == ["i-0"]
    assert len(to_fold(found, now=at(60))) == 60 - KEPT_INSTANCES


def test_an_instance_that_ec2_describes_after_it_was_added_up_counts_once() -> None:
    lives = [instance(str(n), launched=n, state="terminated", reason=TAKEN, ended_at=at(n + 0.5)) for n in range(60)]
    found = absorb(history(**LIMITS), seen=seen(*lives), record=record(), now=at(70))
    short = folded(found, to_fold(found, now=at(70)), spot_prices=(), now=at(70))
    again = absorb(short, seen=seen(*lives), record=record(), now=at(71))
    assert (len(again.lives), again.earlier_instances) == (KEPT_INSTANCES, short.earlier_instances)


def test_an_instance_that_lives_is_never_added_up_however_old_it_is() -> None:
    old = instance("old", launched=0)
    lives = [
        instance(str(n), launched=n, state="terminated", reason=TAKEN, ended_at=at(n + 0.5)) for n in range(1, 300)
    ]
    found = absorb(history(**LIMITS), seen=seen(old, *lives), record=record(), now=at(400))
    short = folded(found, to_fold(found, now=at(400)), spot_prices=(), now=at(400))
    assert [life.instance_id for life in short.live] == ["i-old"]
    assert len(short.lives) == KEPT_INSTANCES + 1


def test_instances_that_went_before_they_trained_are_counted_among_those_added_up() -> None:
    """Four of them, then fifty that EC2 took: the next one is the fifth in a row, and ends the attempt."""
    own = [
        instance(str(n), launched=n, state="terminated", reason=ITS_OWN_DOING, ended_at=at(n + 0.5)) for n in range(4)
    ]
    taken = [instance(str(n), launched=n, state="terminated", reason=TAKEN, ended_at=at(n + 0.5)) for n in range(4, 60)]
    found = absorb(history(**LIMITS), seen=seen(*own, *taken), record=record(), now=at(80))
    short = folded(found, to_fold(found, now=at(80)), spot_prices=(), now=at(80))
    assert short.earlier_instances is not None
    assert futile_instances(short.lives) == 0
    fifth = instance("5th", launched=81, state="terminated", reason=ITS_OWN_DOING, ended_at=at(82))
    ended = absorb(short, seen=seen(fifth), record=record(), now=at(83))
    assert ended.ending is FleetEnding.FUTILE
    over = closed(ended, charges=None, now=at(84))
    assert "5 instances, one after the other" in (as_job_view(over, None).failure_reason or "")


@pytest.mark.parametrize(("number", "folds"), [(MOST_INSTANCES, False), (MOST_INSTANCES + 1, True)])
def test_a_price_that_cannot_be_asked_for_is_unknown_before_a_history_is_too_large(number: int, folds: bool) -> None:
    lives = [
        instance(str(n), launched=n, state="terminated", reason=ITS_OWN_DOING, ended_at=at(n + 0.5))
        for n in range(number)
    ]
    found = absorb(history(**LIMITS), seen=seen(*lives), record=record(), now=at(number))
    assert must_fold(found) is folds
    short = folded(found, to_fold(found, now=at(number) + timedelta(hours=1)), spot_prices=(), now=at(number))
    charges = charges_of(
        short.lives, spot_prices=(), on_demand_usd_per_hour=ON_DEMAND, until=at(number),
        earlier=short.earlier_instances,
    )  # fmt: skip
    assert (charges.instances_usd, charges.unknown) == (None, ("spot g5.xlarge in us-east-1a",))
