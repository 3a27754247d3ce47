"""Runs on fleets of EC2 with a max_cost, a deadline, or capacity: auto.

The controller counts their cost and ends them before it is exceeded. It moves them on demand, to the same volume.
"""

from __future__ import annotations

from typing import Any

import pytest

from controller.full_pass import FullPass
from spotkeep_jobs.backends.ec2.fleet_table import FleetTable
from spotkeep_jobs.backends.ec2.history import FleetHistory
from spotkeep_jobs.backends.ec2.launch import FleetLaunch, launch_of
from spotkeep_jobs.errors import RequestRefusedError, RunChangedError
from spotkeep_jobs.record.record import Attempt, Run
from spotkeep_jobs.record.run_store import RunStore
from spotkeep_jobs.record.states import EndReason, RunState, TimelineKind
from spotkeep_jobs.record.table_client import RecordRefusedError
from spotkeep_jobs.runs.launch import Launcher
from spotkeep_jobs.runs.run_actions import RunActions
from tests.models.control_plane import ControlPlane
from tests.models.ec2 import ModelInstance
from tests.models.faults import client_error
from tests.models.instances import Instances

DOCUMENT = {
    "name": "first", "run": "first", "token": "token-1", "command": "python train.py", "backend": "ec2",
    "instance_types": ["g5.xlarge"], "max_run": "20h", "max_wait": "25d", "notify": ["completed", "stopped", "failed"],
}  # fmt: skip


class Story:
    """Everything that acts on the run, on one clock. A spot instance costs 0.30 USD an hour, and 1.00 on demand."""

    def __init__(self) -> None:
        self.plane = ControlPlane(has_fleets=True)
        self.ec2, self.account = self.plane.ec2, self.plane.service
        self.instances = Instances(self.ec2, self.account.dynamodb, now=self.account.now)
        self.table = self.plane.record
        self.full_pass = FullPass(self.plane.controller)

    def launched(self, **fields: Any) -> Run:
        return Launcher(self.plane.launcher).launch(DOCUMENT | fields, default_token="token-1").run

    def resume(self, **changes: Any) -> None:
        RunActions(self.plane.launcher).resume("first", changes=changes)

    def has_instance(self, *, zone: str = "us-east-1a") -> ModelInstance:
        [fleet] = self.instances.fleets_without_one
        return self.instances.get_capacity(fleet, zone=zone)

    def passes(self, *, minutes: float, every: float = 5) -> None:
        """Let time go by with a pass every five minutes. Instances read the record before each."""
        for _ in range(round(minutes / every)):
            self.account.seconds += 60 * every
            self.instances.heed_record()
            self.reconcile()

    def reconcile(self) -> None:
        assert self.full_pass.run().failures == {}

    @property
    def run(self) -> Run:
        return self.table.runs.get("first")  # type: ignore[return-value]

    @property
    def attempts(self) -> list[Attempt]:
        return self.table.runs.attempts("first")

    @property
    def billed_usd(self) -> float:
        assert self.run.cost is not None
        assert self.run.cost.billed_usd is not None
        return self.run.cost.billed_usd

    def launch_of(self, attempt: int) -> FleetLaunch:
        request = self.attempts[attempt - 1].job_request
        assert request is not None
        return launch_of(request)

    def said(self, kind: TimelineKind) -> list[str]:
        return [entry.text for entry in self.table.runs.timeline("first") if entry.kind is kind]

    @property
    def sent(self) -> list[str]:
        return [each.kind.value for each in self.table.notifications.of_run("first")]


@pytest.fixture
def story() -> Story:
    return Story()


def history_of(story: Story) -> FleetHistory:
    found = FleetTable(story.account.dynamodb, table_name="runs", retention_days=90).history("first", 1)
    assert found is not None
    return found


def loses_its_instance(story: Story) -> None:
    story.launched()
    instance = story.has_instance()
    story.passes(minutes=5)
    story.instances.be_taken(instance, notice=False)
    story.account.seconds += 60


def test_the_answer_of_ec2_and_the_change_of_the_run_are_one_write(story: Story) -> None:
    loses_its_instance(story)
    before = history_of(story)
    story.reconcile()
    after = history_of(story)
    assert (after.version, after.live, len(before.live)) == (before.version + 1, (), 1)
    assert story.run.interruptions == 1


@pytest.mark.parametrize("changed", ["the run", "the history"])
def test_where_another_function_is_faster_both_are_decided_again(
    story: Story, changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loses_its_instance(story)
    commit, others = RunStore.commit, [history_of(story)]

    def late(store: RunStore, change: Any, **given: Any) -> Any:
        if others:
            history = others.pop()
            if changed == "the run":
                raise RunChangedError("first")
            FleetTable(story.account.dynamodb, table_name="runs", retention_days=90).write_history(history)
        return commit(store, change, **given)

    monkeypatch.setattr(RunStore, "commit", late)
    story.reconcile()
    assert not others
    assert history_of(story).live == ()
    assert story.run.interruptions == 1


def test_the_answer_of_ec2_is_kept_although_the_change_of_the_run_is_refused(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EC2 forgets an instance in an hour."""
    loses_its_instance(story)

    def refuse(*_: Any, **__: Any) -> Any:
        raise RecordRefusedError("it is too large")

    monkeypatch.setattr(RunStore, "commit", refuse)
    assert story.full_pass.run().failures
    assert history_of(story).live == ()
    assert story.run.interruptions == 0
    monkeypatch.undo()
    story.reconcile()
    assert story.run.interruptions == 1


MAX_COST = {"max_cost": 3.0, "notify": ["stopped", "max-cost-near"]}


def test_a_fleet_is_ended_with_a_save_before_it_exceeds_its_max_cost_and_is_warned_of(story: Story) -> None:
    """Spot at 0.30 USD an hour, and 0.02 for storage. What its end may cost at the on-demand price is kept."""
    story.launched(**MAX_COST)
    instance = story.has_instance()
    story.passes(minutes=7 * 60)
    story.instances.train(instance, 17)
    assert story.said(TimelineKind.MAX_COST) == []
    story.passes(minutes=45)
    assert story.said(TimelineKind.MAX_COST) == ["About 2.40 USD are spent, 80% of max_cost (3.00 USD)"]
    assert story.run.state is RunState.TRAINING
    story.passes(minutes=90)
    assert story.said(TimelineKind.MAX_COST)[1:] == [
        "max_cost (3.00 USD) is spent: 2.75 USD so far, and the rest is kept for its end. Its instance saves first"
    ]
    assert (story.run.state, story.run.end_reason) == (RunState.STOPPED, EndReason.MAX_COST)
    assert story.billed_usd == pytest.approx(2.76, abs=0.03)
    assert (story.instances.runs["first"].saved, story.instances.live) == (17, [])
    assert story.sent == ["max-cost-near", "stopped"]
    with pytest.raises(RequestRefusedError, match=r"max_cost.* is spent: the run has cost 2\.7"):
        story.resume()
    story.resume(max_cost=6.0)
    assert story.has_instance().spot
    story.passes(minutes=30)
    assert story.instances.runs["first"].resumed_at == [0, 17]


def test_a_resume_makes_no_nodes_of_one_instance(story: Story) -> None:
    """The volume of one instance has files that no node would see."""
    story.launched()
    story.has_instance()
    story.passes(minutes=10)
    RunActions(story.plane.launcher).stop("first")
    story.passes(minutes=10)
    with pytest.raises(RequestRefusedError, match="its volume has files that are not in S3"):
        story.resume(nodes=2, distributed="torchrun")
    story.resume(nodes=1)


def test_a_resume_between_one_instance_and_several_names_its_other_problems_too(story: Story) -> None:
    def refused(**changes: Any) -> set[str]:
        with pytest.raises(RequestRefusedError) as found:
            story.resume(**changes)
        return {each.field for each in found.value.problems}

    story.launched(nodes=2, distributed="torchrun", nodes_wait="5m")
    RunActions(story.plane.launcher).stop("first")
    story.passes(minutes=10)
    assert refused(nodes=1) == {"nodes", "nodes_wait"}
    assert refused(nodes=1, nodes_wait=None) == {"nodes"}
    with pytest.raises(RequestRefusedError) as unreadable:
        story.resume(nodes=0)
    assert [each.problem for each in unreadable.value.problems] == ["is neither a whole number of 1 to 64 nor a range"]


def test_the_cost_counts_over_replaced_instances_attempts_and_storage(story: Story) -> None:
    story.launched(**MAX_COST)
    for zone in ("us-east-1a", "us-east-1b"):
        instance = story.has_instance(zone=zone)
        story.passes(minutes=3 * 60)
        story.instances.be_taken(instance, notice=True)
        story.passes(minutes=60)
    RunActions(story.plane.launcher).stop("first")
    story.passes(minutes=10)
    assert story.billed_usd == pytest.approx(1.8 + 0.15, abs=0.01)
    story.resume()
    story.has_instance()
    story.passes(minutes=90)
    assert story.said(TimelineKind.MAX_COST) == ["About 2.41 USD are spent, 80% of max_cost (3.00 USD)"]
    story.passes(minutes=75)
    assert (story.run.state, story.run.end_reason) == (RunState.STOPPED, EndReason.MAX_COST)
    assert story.billed_usd < 3.0


def test_on_demand_counts_at_its_price(story: Story) -> None:
    story.launched(**MAX_COST, capacity="on-demand")
    story.has_instance()
    story.passes(minutes=160)
    assert story.run.state is RunState.TRAINING
    story.passes(minutes=20)
    assert story.run.end_reason is EndReason.MAX_COST
    assert 2.7 < story.billed_usd < 3.0


def test_a_run_that_waits_for_capacity_pays_for_its_volume_alone(story: Story) -> None:
    story.launched(**MAX_COST, volume={"size_gb": 1000})
    story.instances._volume_gb = 1000
    instance = story.has_instance()
    story.passes(minutes=60)
    story.instances.be_taken(instance, notice=True)
    story.passes(minutes=18 * 60, every=30)
    assert len(story.said(TimelineKind.MAX_COST)) == 1, "0.12 USD an hour"
    story.passes(minutes=3 * 60, every=30)
    assert story.run.end_reason is EndReason.MAX_COST
    with pytest.raises(RequestRefusedError, match=r"max_cost.* is spent"):
        story.resume()
    story.resume(instance_types=["g6.xlarge"])


def test_a_run_that_goes_on_pays_for_its_volume_before_its_first_instance(story: Story) -> None:
    """1,000 GiB cost 0.11 USD an hour, and the run has no instance after its resume."""
    story.launched(**MAX_COST, volume={"size_gb": 1000})
    story.instances._volume_gb = 1000
    story.has_instance()
    story.passes(minutes=60)
    RunActions(story.plane.launcher).stop("first")
    story.passes(minutes=10)
    before_usd = story.billed_usd
    story.resume()
    story.passes(minutes=26 * 60, every=30)
    assert story.run.end_reason is EndReason.MAX_COST
    assert 2.4 < story.billed_usd < 3.0, f"{before_usd} of it before the resume"
    assert story.run.cost is not None
    assert story.run.cost.saved_percent is not None
    assert story.run.cost.unknown_prices == ()


def test_the_cost_of_attempts_counts_when_their_records_have_expired(story: Story) -> None:
    story.launched(**MAX_COST)
    story.has_instance()
    story.passes(minutes=5 * 60)
    RunActions(story.plane.launcher).stop("first")
    story.passes(minutes=10)
    before_usd = story.billed_usd
    story.resume()
    story.account.dynamodb._remove(("run#first", "attempt#0001"))
    story.has_instance()
    story.passes(minutes=5 * 60)
    assert story.run.end_reason is EndReason.MAX_COST
    last = story.attempts[-1].usage
    assert last is not None
    assert last.charges is not None
    assert last.charges.instances_usd is not None
    assert before_usd + last.charges.instances_usd < 3.0
    assert story.run.cost is None
    with pytest.raises(RequestRefusedError, match=r"what the run has cost is not known"):
        story.resume()


def test_a_spot_price_that_ec2_does_not_give_counts_as_on_demand_and_that_is_said(story: Story) -> None:
    story.launched(**MAX_COST)
    story.ec2.zones = ("us-east-1b",)
    story.has_instance()
    story.passes(minutes=145)
    assert story.said(TimelineKind.MAX_COST) == [
        "About 2.47 USD are spent, 82% of max_cost (3.00 USD), with the on-demand price for spot g5.xlarge in "
        "us-east-1a"
    ]
    [notification] = story.table.notifications.of_run("first")
    assert "with the on-demand price for spot" in " ".join(notification.body.split())


def test_a_price_of_storage_that_is_not_known_is_said(story: Story) -> None:
    volume = {"size_gb": 100, "type": "io2", "iops": 100}
    judged = Launcher(story.plane.launcher).validate(DOCUMENT | MAX_COST | {"volume": volume})
    assert any("max_cost does not count the run's volume: the price of io2 storage" in each for each in judged.warnings)
    story.launched(**MAX_COST, volume=volume)
    story.has_instance()
    story.passes(minutes=8 * 60)
    assert story.said(TimelineKind.MAX_COST)[0].endswith("without io2 storage, as no price is known")


def throttled(**_query: Any) -> Any:
    raise client_error("DescribeSpotPriceHistory", "RequestLimitExceeded")


def test_while_the_question_for_prices_is_throttled_the_last_count_goes_on_at_the_on_demand_price(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.launched(**MAX_COST)
    story.has_instance()
    story.passes(minutes=6 * 60)
    known = story.attempts[0].counted_cost
    assert known is not None
    assert (known.usd, known.remark) == (pytest.approx(1.92, abs=0.03), "")
    ask = story.ec2.describe_spot_price_history
    monkeypatch.setattr(story.ec2, "describe_spot_price_history", throttled)
    story.passes(minutes=30)
    counted = story.attempts[0].counted_cost
    assert counted is not None
    assert counted.usd == pytest.approx(known.usd + 0.55, abs=0.08)
    assert counted.remark == "with the on-demand price while EC2 gives no prices of spot"
    assert story.said(TimelineKind.MAX_COST)[0].endswith(f"of max_cost (3.00 USD), {counted.remark}")
    monkeypatch.setattr(story.ec2, "describe_spot_price_history", ask)
    story.passes(minutes=5)
    counted = story.attempts[0].counted_cost
    assert counted is not None
    assert (counted.usd, counted.remark) == (pytest.approx(known.usd + 35 / 60 * 0.32, abs=0.03), "")
    assert story.run.state is RunState.TRAINING


def test_a_run_whose_prices_stay_unknown_ends_before_its_max_cost_is_exceeded(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(story.ec2, "describe_spot_price_history", throttled)
    story.launched(**MAX_COST)
    story.has_instance()
    while story.attempts[0].asked_to_end is None:
        story.passes(minutes=5)
    ended = next(text for text in story.said(TimelineKind.MAX_COST) if "is spent: " in text)
    assert "with the on-demand price" in ended
    monkeypatch.undo()
    story.passes(minutes=15)
    assert (story.run.end_reason, story.billed_usd < 3.0) == (EndReason.MAX_COST, True)
    assert story.attempts[0].counted_cost is None


def test_a_run_without_a_max_cost_asks_for_no_price_while_it_trains(story: Story) -> None:
    story.launched()
    story.has_instance()
    story.account.calls.clear()
    story.passes(minutes=60)
    assert story.account.calls["DescribeSpotPriceHistory"] == 0
    RunActions(story.plane.launcher).stop("first")
    story.passes(minutes=10)
    assert story.account.calls["DescribeSpotPriceHistory"] == 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"max_cost": 0.25}, "is not worth a start: 16m at the on-demand price are kept for the end of a fleet"),
        ({"max_cost": 5, "instance_types": ["p5.48xlarge"]}, "does not know the price of p5.48xlarge"),
    ],
)
def test_a_max_cost_that_cannot_be_kept_is_refused(story: Story, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestRefusedError) as refused:
        story.launched(**fields)
    assert [each.field for each in refused.value.problems if words in each.problem] == ["max_cost"]
    assert story.ec2.fleets == {}


AUTO = {"capacity": "auto", "longest_wait": "30m", "instance_types": ["g5.xlarge", "g6.xlarge"], "max_price": 0.4}


def fleets(story: Story) -> list[tuple[str, set[str], str | None]]:
    """Return the capacity, the types and the highest price of each fleet."""
    found = []
    for each in story.ec2.fleets.values():
        overrides = each.request["LaunchTemplateConfigs"][0]["Overrides"]
        capacity = each.request["TargetCapacitySpecification"]["DefaultTargetCapacityType"]
        found.append((capacity, {one["InstanceType"] for one in overrides}, overrides[0].get("MaxPrice")))
    return found


def test_a_run_without_spot_capacity_goes_on_demand_on_the_same_volume_and_no_step_is_lost(story: Story) -> None:
    story.launched(**AUTO, notify=["completed", "next-fallback", "on-demand", "interrupted"])
    instance = story.has_instance()
    story.passes(minutes=20)
    story.instances.train(instance, 17)
    story.instances.be_taken(instance, notice=True)
    story.passes(minutes=25)
    assert story.run.state is RunState.INTERRUPTED
    story.passes(minutes=15)
    assert (story.run.attempt, story.run.place.capacity, story.run.place.backend) == (2, "on-demand", "ec2")
    both = {"g5.xlarge", "g6.xlarge"}
    assert fleets(story) == [("spot", both, "0.4"), ("on-demand", both, None)]
    assert story.ec2.fleet_state("fleet-1") == "deleted"
    assert [each.end_reason for each in story.attempts] == [EndReason.MAX_WAIT_EXCEEDED, None]
    usage = story.attempts[0].usage
    assert usage is not None
    assert usage.waited_seconds >= 30 * 60, "until its fleet was asked to end, not until its last instance went"
    second = story.has_instance(zone="us-east-1b")
    assert second.tags["Name"] == "first-2"
    assert (second.spot, second.tags["spotkeep:attempt"]) == (False, "2")
    story.passes(minutes=10)
    story.instances.finish(second)
    story.passes(minutes=10)
    assert (story.run.state, story.instances.live) == (RunState.COMPLETED, [])
    assert story.instances.runs["first"].resumed_at == [0, 17]
    assert story.sent == ["interrupted", "next-fallback", "on-demand", "completed"]
    assert story.billed_usd > 0.1
    assert list(story.ec2.versions) == [1], "each attempt's version of the template is gone"
    begun = story.said(TimelineKind.ATTEMPT_BEGUN)
    assert begun == [
        "Attempt 2 looks for on-demand g5.xlarge or g6.xlarge: there was no capacity in time for spot g5.xlarge or "
        "g6.xlarge"
    ]


def test_the_time_and_the_money_of_a_run_count_over_both_fleets(story: Story) -> None:
    fields = AUTO | {"max_run": "4h", "max_wait": "5h", "longest_wait": "1h", "max_cost": 20}
    story.launched(**fields)
    instance = story.has_instance()
    story.passes(minutes=3 * 60)
    story.instances.be_taken(instance, notice=True)
    story.passes(minutes=75)
    assert story.run.attempt == 2
    launch = story.launch_of(2)
    assert launch.max_run_seconds == 3_600
    assert launch.max_wait_seconds is not None
    assert 2_700 <= launch.max_wait_seconds <= 3_600
    story.passes(minutes=60)
    assert (story.run.state, story.run.end_reason) == (RunState.STOPPED, EndReason.MAX_WAIT_EXCEEDED)
    assert story.run.ending is not None
    assert story.run.ending.no_more_jobs_because == "on-demand g5.xlarge or g6.xlarge is the last that it looks for"


def test_a_run_that_has_taken_its_max_wait_goes_nowhere_else(story: Story) -> None:
    story.launched(**AUTO | {"max_run": "1h", "max_wait": "2h", "longest_wait": "4h"})
    story.passes(minutes=150)
    assert (story.run.attempt, story.run.end_reason) == (1, EndReason.MAX_WAIT_EXCEEDED)
    assert story.run.ending is not None
    assert story.run.ending.no_more_jobs_because == "the run has taken all the time that it may (max_wait)"


def test_a_fleet_of_one_kind_of_capacity_is_not_followed_by_another(story: Story) -> None:
    story.launched(max_run="1h", max_wait="2h", script_retries=3)
    story.has_instance()
    story.passes(minutes=3 * 60)
    assert (story.run.state, story.run.attempt) == (RunState.STOPPED, 1)


DEADLINE = {"deadline": "6h", "work": "3h", "restart": "10m", "max_run": "6h", "max_wait": None}
"""Leaves spot with a decision in ten minutes, a handover of fifteen, and ten to restart: after 2 h 25 min."""


def test_a_run_that_would_miss_its_deadline_on_spot_goes_on_demand_after_a_save(story: Story) -> None:
    story.launched(**DEADLINE, notify=["completed", "next-fallback", "on-demand"])
    instance = story.has_instance()
    story.passes(minutes=2 * 60 + 20)
    assert story.run.steered is not None
    assert (story.run.attempt, story.run.steered.choice) == (1, "spot")
    story.instances.train(instance, 13)
    story.passes(minutes=15)
    assert (story.run.attempt, story.run.place.capacity) == (2, "on-demand")
    assert story.attempts[0].end_reason is EndReason.DEADLINE
    assert story.said(TimelineKind.STEERED)[-1].startswith("Leaves spot for on-demand: the last safe moment")
    second = story.has_instance()
    story.passes(minutes=3 * 60 + 5)
    story.instances.finish(second)
    story.passes(minutes=10)
    assert story.run.state is RunState.COMPLETED
    assert story.run.ended_at is not None
    assert story.run.deadline_at is not None
    assert story.run.ended_at <= story.run.deadline_at
    assert story.instances.runs["first"].resumed_at == [0, 13]
    assert story.sent == ["next-fallback", "on-demand", "completed"]


def test_a_deadline_that_leaves_no_time_for_spot_begins_on_demand_and_one_that_is_lost_is_refused(story: Story) -> None:
    with pytest.raises(RequestRefusedError, match="cannot be kept even on demand"):
        story.launched(**DEADLINE | {"deadline": "3h"})
    run = story.launched(**DEADLINE | {"deadline": "3h30m"})
    assert (run.place.capacity, run.attempt) == ("on-demand", 1)
    assert story.said(TimelineKind.STEERED) == [
        "On demand from the start: the deadline leaves no time to try spot: 30 min to spare"
    ]
    assert fleets(story) == [("on-demand", {"g5.xlarge"}, None)]


def test_a_fleet_that_reaches_max_run_before_the_deadline_is_followed(story: Story) -> None:
    story.launched(**DEADLINE | {"max_run": "3h", "deadline": "20h"})
    story.has_instance()
    story.passes(minutes=3 * 60 + 20)
    assert (story.run.attempt, story.run.place.capacity) == (2, "spot")
    assert story.attempts[0].end_reason is EndReason.MAX_RUNTIME_EXCEEDED


def test_a_run_that_waits_ends_one_max_run_after_its_deadline(story: Story) -> None:
    story.launched(**DEADLINE)
    assert story.launch_of(1).max_wait_seconds == 12 * 3_600
    story.passes(minutes=13 * 60, every=10)
    assert (story.run.state, story.run.end_reason) == (RunState.STOPPED, EndReason.MAX_WAIT_EXCEEDED)
    assert story.run.attempt == 2
