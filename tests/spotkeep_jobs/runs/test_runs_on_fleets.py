"""Runs on fleets of EC2 with a max_cost: the controller counts their cost and ends them before it is exceeded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from controller.full_pass import FullPass
from spotkeep_jobs.errors import RequestRefusedError
from spotkeep_jobs.record.record import Attempt, Run
from spotkeep_jobs.record.states import EndReason, RunState, TimelineKind
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

    def said(self, kind: TimelineKind) -> list[str]:
        return [entry.text for entry in self.table.runs.timeline("first") if entry.kind is kind]

    @property
    def sent(self) -> list[str]:
        return [each.kind.value for each in self.table.notifications.of_run("first")]


@pytest.fixture
def story() -> Iterator[Story]:
    return Story()


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
    assert story.run.cost is not None
    assert story.run.cost.billed_usd == pytest.approx(2.76, abs=0.03)
    assert (story.instances.runs["first"].saved, story.instances.live) == (17, [])
    assert story.sent == ["max-cost-near", "stopped"]
    with pytest.raises(RequestRefusedError, match=r"max_cost.* is spent: the run has cost 2\.7"):
        story.resume()
    with_more = {"max_cost": 6.0}
    story.resume(**with_more)
    assert story.has_instance().spot
    story.passes(minutes=30)
    assert story.instances.runs["first"].resumed_at == [0, 17]


def test_the_cost_counts_over_replaced_instances_attempts_and_storage(story: Story) -> None:
    story.launched(**MAX_COST)
    for zone in ("us-east-1a", "us-east-1b"):
        instance = story.has_instance(zone=zone)
        story.passes(minutes=3 * 60)
        story.instances.be_taken(instance, notice=True)
        story.passes(minutes=60)
    RunActions(story.plane.launcher).stop("first")
    story.passes(minutes=10)
    before = story.run.cost
    assert before is not None
    assert before.billed_usd == pytest.approx(1.8 + 0.15, abs=0.01)
    story.resume()
    story.has_instance()
    story.passes(minutes=90)
    assert story.said(TimelineKind.MAX_COST) == ["About 2.41 USD are spent, 80% of max_cost (3.00 USD)"]
    story.passes(minutes=75)
    assert (story.run.state, story.run.end_reason) == (RunState.STOPPED, EndReason.MAX_COST)
    assert story.run.cost.billed_usd < 3.0


def test_on_demand_counts_at_its_price(story: Story) -> None:
    story.launched(**MAX_COST, capacity="on-demand")
    story.has_instance()
    story.passes(minutes=160)
    assert story.run.state is RunState.TRAINING
    story.passes(minutes=20)
    assert story.run.end_reason is EndReason.MAX_COST
    assert 2.7 < story.run.cost.billed_usd < 3.0


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


def test_a_throttled_question_for_prices_ends_no_run_and_the_next_pass_counts(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.launched(**MAX_COST)
    story.has_instance()
    story.passes(minutes=7 * 60)
    ask = story.ec2.describe_spot_price_history

    def throttled(**_query: Any) -> Any:
        raise client_error("DescribeSpotPriceHistory", "RequestLimitExceeded")

    monkeypatch.setattr(story.ec2, "describe_spot_price_history", throttled)
    story.passes(minutes=60)
    assert (story.run.state, story.said(TimelineKind.MAX_COST)) == (RunState.TRAINING, [])
    monkeypatch.setattr(story.ec2, "describe_spot_price_history", ask)
    story.passes(minutes=5)
    assert len(story.said(TimelineKind.MAX_COST)) == 1


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
