"""The places of an attempt with nodes: left when too few nodes come, one after the other, with one fleet at a time."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from spotkeep_fleet.instance_job import NodesSpec
from spotkeep_fleet.record import Lease, Node
from spotkeep_jobs.backends.backend import JobPhase
from spotkeep_jobs.backends.ec2.facts import Fleet, FleetReading
from spotkeep_jobs.backends.ec2.history import KNOWN_AFTER, PLACE_LEFT, FleetEnding, FleetHistory, absorb
from spotkeep_jobs.backends.ec2.jobs import LEAVING_TAKES, FleetStep, steps_due
from spotkeep_jobs.errors import AwsBusyError, AwsRefusedError
from spotkeep_jobs.record.states import EndReason, RunState
from tests.models.faults import Fault, ProcessDiedError

from . import world as deployed
from .readings import at, history, node, nodes_history, record
from .world import World, run_item

WAIT_MINUTES = 10
TWO: dict[str, Any] = {"nodes": {"min": 2, "max": 2}, "distributed": "torchrun"}
MOVES = (FleetStep.NEXT_PLACE, FleetStep.DELETE_EARLIER, FleetStep.CREATE_FLEET)
DELETED = {FleetStep.NEXT_PLACE, FleetStep.DELETE_EARLIER}


@pytest.fixture
def world() -> World:
    return World()


def seen(*instances: Any, fleet: str | None = "fleet-1", state: str = "active") -> FleetReading:
    found = None if fleet is None else Fleet(id=fleet, state=state, tags={}, created_at=at(0))
    return FleetReading(fleet=found, instances=instances)


# The decision


def test_a_place_without_enough_nodes_is_left_after_the_wait_and_not_before() -> None:
    one = seen(node("a", launched=1))
    found = absorb(nodes_history(), seen=one, record=record(), now=at(5))
    assert steps_due(found, seen=one, record=record(), now=at(9.9)) == ()
    assert steps_due(found, seen=one, record=record(), now=at(10)) == MOVES


def test_the_wait_counts_from_the_loss_and_ends_with_the_node_that_comes() -> None:
    both = seen(node("a", launched=1), node("b", launched=2))
    found = absorb(nodes_history(), seen=both, record=record(), now=at(3))
    assert steps_due(found, seen=both, record=record(), now=at(60)) == (FleetStep.TERMINATE,), "they never reported"
    lost = seen(node("a", launched=1, state="terminated", ended_at=at(62)), node("b", launched=2))
    found = absorb(found, seen=lost, record=record(), now=at(64))
    assert found.short_since == at(62)
    found = absorb(found, seen=lost, record=record(), now=at(71))
    assert found.short_since == at(62)
    again = absorb(found, seen=seen(*lost.instances, node("c", launched=71)), record=record(), now=at(71))
    assert again.short_since is None
    assert FleetStep.NEXT_PLACE in steps_due(found, seen=lost, record=record(), now=at(72))


@pytest.mark.parametrize("unsure", [seen(fleet=None), seen(state="deleted_running")])
def test_a_fleet_that_ec2_does_not_show_as_active_is_not_left(unsure: FleetReading) -> None:
    found = nodes_history(short_since=at(0))
    assert FleetStep.NEXT_PLACE not in steps_due(found, seen=unsure, record=record(), now=at(30))


def test_one_instance_never_moves() -> None:
    waits = seen()
    found = absorb(history(), seen=waits, record=record(), now=at(100))
    assert steps_due(found, seen=waits, record=record(), now=at(100)) == ()


# With EC2


def test_the_next_fleet_is_in_the_next_subnet_then_of_the_next_type_and_round_again(world: World) -> None:
    world.create(**TWO, instance_types=("g5.xlarge", "g6.xlarge"))
    for _ in range(4):
        world.passes(5)
        world.jobs.settle("count-1")
        world.passes(6)
        world.jobs.settle("count-1")
    found = [each.request for each in world.ec2.fleets.values()]
    overrides = [request["LaunchTemplateConfigs"][0]["Overrides"] for request in found]
    assert [[(each["InstanceType"], each["SubnetId"]) for each in place] for place in overrides] == [
        [("g5.xlarge", "subnet-a")], [("g5.xlarge", "subnet-b")], [("g6.xlarge", "subnet-a")],
        [("g6.xlarge", "subnet-b")], [("g5.xlarge", "subnet-a")],
    ]  # fmt: skip
    assert [request["TargetCapacitySpecification"]["TotalTargetCapacity"] for request in found] == [2] * 5
    assert [request["ClientToken"] for request in found] == [f"{1:016x}", *(f"{1:016x}-{n}" for n in (1, 2, 3, 4))]
    assert world.active == ["fleet-5"]
    assert world.jobs.observe("count-1").job_id == "fleet-5"


def test_the_nodes_that_came_go_with_their_fleet_and_are_no_interruption_and_no_bad_boot(world: World) -> None:
    world.create(**TWO)
    for number in range(12):
        world.node(f"a{number}")
        world.passes(11)
        world.jobs.settle("count-1")
        world.passes(0.5)
        world.jobs.settle("count-1")
    assert world.live == []
    assert len(world.ec2.fleets) == 13
    job = world.jobs.observe("count-1")
    assert not job.ended
    assert {phase.phase for phase in job.transitions} == {JobPhase.WAITING}
    assert world.history.lives[0].ended_by == PLACE_LEFT


def details_of(world: World) -> list[str]:
    """Return why each place was left, as the timeline says it."""
    return [phase.detail for phase in world.jobs.observe("count-1").transitions[1:]]


def test_the_timeline_names_the_place_that_is_left_and_the_one_where_the_next_fleet_asks(world: World) -> None:
    world.create(**TWO, instance_types=("g5.xlarge", "g6.xlarge"))
    for _ in range(2):
        world.passes(11)
        world.jobs.settle("count-1")
    assert details_of(world) == [
        "fewer than 2 nodes of g5.xlarge in us-east-1a for 10m: fleet 2 asks for all of them, g5.xlarge in us-east-1b",
        "fewer than 2 nodes of g5.xlarge in us-east-1b for 10m: fleet 3 asks for all of them, g6.xlarge in us-east-1a",
    ]


def test_the_timeline_names_a_subnet_where_its_zone_is_not_known_or_is_that_of_the_place_that_is_left(
    world: World,
) -> None:
    del world.zones["subnet-b"]
    world.create(**TWO, instance_types=("g5.xlarge",))
    world.passes(11)
    world.jobs.settle("count-1")
    world.zones["subnet-b"] = "us-east-1a"
    world.passes(11)
    world.jobs.settle("count-1")
    assert details_of(world) == [
        "fewer than 2 nodes of g5.xlarge in us-east-1a for 10m: fleet 2 asks for all of them, g5.xlarge in subnet-b",
        "fewer than 2 nodes of g5.xlarge in us-east-1a for 10m: fleet 3 asks for all of them, in another subnet there",
    ]


def test_with_one_place_the_timeline_says_that_each_fleet_asks_there_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployed, "SUBNETS", {})
    world.create(**TWO, subnet_id="subnet-0123456789abcdef0", instance_types=("u7in-32tb.224xlarge",))
    for _ in range(2):
        world.passes(11)
        world.jobs.settle("count-1")
    place = "u7in-32tb.224xlarge in subnet-0123456789abcdef0"
    assert details_of(world) == [
        f"fewer than 2 nodes of {place} for 10m, the only place: fleet {number} asks for all of them there again"
        for number in (2, 3)
    ]


def test_places_that_were_left_long_ago_are_not_in_the_history(world: World) -> None:
    world.create(**TWO)
    for _ in range(20):
        world.passes(11)
        world.jobs.settle("count-1")
    assert len(world.history.earlier_fleets) <= 2
    world.ec2.fleets["fleet-1"].deleted = False  # A fault of no one: only the search for orphans looks at it.
    assert world.jobs.observe("count-1").job_id == "fleet-21"


def test_an_answer_that_was_lost_and_a_launcher_that_comes_again_make_no_second_fleet_at_a_place(world: World) -> None:
    world.create(**TWO)
    world.passes(11)
    world.faults.strike(Fault.ANSWER_LOST, operation="CreateFleet")
    with pytest.raises(AwsBusyError):
        world.jobs.settle("count-1")
    assert world.active == ["fleet-2"]
    assert world.jobs.create(world.asked[1]) == "fleet-1", "the newest that is known"
    world.jobs.settle("count-1")
    assert (world.active, world.history.fleet_id, world.history.place) == (["fleet-2"], "fleet-2", 1)
    assert world.jobs.create(world.asked[1]) == "fleet-2"


def test_at_a_place_that_ec2_refuses_the_next_one_is_tried_with_the_next_pass(world: World) -> None:
    world.create(**TWO)
    world.passes(11)
    world.ec2.refuses = ("UnsupportedOperation", "no such type there")
    world.jobs.settle("count-1")
    job = world.jobs.observe("count-1")
    assert (world.active, job.job_id, job.ended) == ([], "fleet-1", False)
    assert "no such type there" in (job.waits_because or "")
    world.passes(5)
    world.jobs.settle("count-1")
    world.ec2.refuses = None
    world.passes(5)
    world.jobs.settle("count-1")
    assert (world.active, world.history.place) == (["fleet-2"], 3)


def test_a_place_whose_fleet_ec2_has_made_and_does_not_show_is_not_left(world: World) -> None:
    """Once the fleet would have been forgotten, and have launched nodes beside that of the next place."""
    world.create(**TWO)
    world.passes(11)
    world.faults.strike(Fault.ANSWER_LOST, operation="CreateFleet")
    with pytest.raises(AwsBusyError):
        world.jobs.settle("count-1")
    hidden = world.ec2.fleets.pop("fleet-2")
    for _ in range(4):
        world.passes(5)
        world.faults.strike(Fault.REFUSED, operation="CreateFleet")
        with pytest.raises(AwsBusyError):
            world.jobs.settle("count-1")
        assert world.history.place == 1
    world.faults.strike(None)
    world.ec2.refuses = ("MaxFleetCountExceeded", "there are too many")

    def shows_it(operation: str) -> None:
        if operation == "CreateFleet":
            world.ec2.fleets["fleet-2"] = hidden

    world.faults.before_call = shows_it
    world.jobs.settle("count-1")
    assert (world.active, world.history.fleet_id) == (["fleet-2"], "fleet-2"), "it is there although EC2 refused"


@pytest.mark.parametrize("calls", range(12))
@pytest.mark.parametrize("fault", [Fault.DEATH, Fault.ANSWER_LOST, Fault.REFUSED])
def test_a_crash_at_any_call_of_a_move_leaves_one_fleet_and_no_node_at_an_earlier_place(
    world: World, fault: Fault, calls: int
) -> None:
    world.create(**TWO)
    world.node("a")
    world.passes(1)
    world.jobs.settle("count-1")
    world.passes(11)
    world.faults.strike(fault, call=calls)
    _interrupted(lambda: world.jobs.settle("count-1"))
    assert len(world.active) <= 1
    world.faults.strike(None)
    for _ in range(3):
        world.passes(1)
        world.jobs.settle("count-1")
        assert len(world.active) <= 1
    assert (world.active, world.live, world.history.place) == (["fleet-2"], [], 1)


@pytest.mark.parametrize("calls", range(14))
def test_a_run_that_is_stopped_after_a_crash_of_a_move_leaves_nothing(world: World, calls: int) -> None:
    world.create(**TWO)
    world.node("a")
    world.passes(11)
    world.faults.strike(Fault.DEATH, call=calls)
    _interrupted(lambda: world.jobs.settle("count-1"))
    world.faults.strike(None)
    world.jobs.stop("count-1")
    for _ in range(4):
        world.passes(LEAVING_TAKES.total_seconds() / 60)
        over = world.jobs.settle("count-1")
    assert (world.active, world.live, over.end_reason) == ([], [], EndReason.STOPPED_BY_USER)
    assert list(world.ec2.versions) == [1]


def test_an_attempt_that_is_over_waits_for_a_fleet_whose_answer_was_lost(world: World) -> None:
    """EC2 may not show it for minutes, and it would bill for ever."""
    world.create(**TWO)
    world.passes(11)
    world.faults.strike(Fault.ANSWER_LOST, operation="CreateFleet")
    with pytest.raises(AwsBusyError):
        world.jobs.settle("count-1")
    hidden = world.ec2.fleets.pop("fleet-2")
    world.jobs.stop("count-1")
    world.passes(5)
    assert not world.jobs.settle("count-1").ended
    world.ec2.fleets["fleet-2"] = hidden
    world.passes(1)
    world.jobs.settle("count-1")
    assert world.active == []
    world.passes(5)
    assert world.jobs.settle("count-1").ended


def test_max_wait_bounds_the_search(world: World) -> None:
    world.create(**TWO, max_wait=3600 * 2)
    for _ in range(17):
        world.passes(8)
        world.jobs.settle("count-1")
    over = world.jobs.observe("count-1")
    assert (over.end_reason, world.active) == (EndReason.MAX_WAIT_EXCEEDED, [])


def test_the_key_of_nodes_is_in_their_job_alone_and_of_each_attempt_another(world: World) -> None:
    world.create(**TWO, nodes_wait=900)
    first = world.records.job("count").nodes
    assert first == NodesSpec(2, 2, 900, first.key)
    assert len(first.key) == 32
    assert first.key not in str(world.asked[1])
    world.jobs.create(world.asked[1])
    assert world.records.job("count").nodes == first
    world.change_record(ended=True)
    world.create(2, **TWO)
    assert world.records.job("count").nodes.key != first.key


def test_nodes_of_a_cluster_are_in_the_group_that_the_deployment_has_for_their_subnet(world: World) -> None:
    world.ec2.placement_groups = [
        {
            "GroupName": f"{deployment}-{subnet}",
            "Tags": [{"Key": "spotkeep:deployment", "Value": deployment}, {"Key": "spotkeep:subnet", "Value": subnet}],
        }
        for deployment in ("another", "spotkeep")
        for subnet in ("subnet-b", "subnet-a")
    ]
    world.create(**TWO, network={"placement": "cluster"})
    world.passes(11)
    world.jobs.settle("count-1")
    overrides = [fleet.request["LaunchTemplateConfigs"][0]["Overrides"] for fleet in world.ec2.fleets.values()]
    assert [[each["Placement"] for each in place] for place in overrides] == [
        [{"GroupName": "spotkeep-subnet-a"}],
        [{"GroupName": "spotkeep-subnet-b"}],
    ]


def test_a_deployment_without_a_group_for_the_subnet_is_deployed_again(world: World) -> None:
    with pytest.raises(AwsRefusedError, match=r"no placement group for subnet-a: deploy it again"):
        world.create(**TWO, network={"placement": "cluster"})
    assert not world.ec2.fleets


def test_nodes_anywhere_in_a_subnet_ask_for_no_group(world: World) -> None:
    world.create(**TWO)
    [fleet] = world.ec2.fleets.values()
    assert "Placement" not in fleet.request["LaunchTemplateConfigs"][0]["Overrides"][0]


def test_an_earlier_fleet_that_still_launches_is_an_orphan_and_goes_with_its_nodes_alone(world: World) -> None:
    world.create(**TWO)
    world.passes(11)
    world.jobs.settle("count-1")
    world.ec2.fleets["fleet-1"].deleted = False
    world.node("late", fleet="fleet-1")
    world.node("own")
    orphans = world.orphans(run_item(RunState.TRAINING))
    assert orphans.remove_all().fleets == [], "it may be on its way"
    orphans.now = lambda: at(90)
    assert orphans.remove_all().fleets == ["fleet-1"]
    assert world.live == ["i-own"]


def _interrupted(act: Callable[[], object]) -> None:
    with contextlib.suppress(AwsBusyError, AwsRefusedError, ProcessDiedError, ClientError):
        act()


# Whatever happens


class Market:
    """EC2 and the nodes, as a test draws what happens to them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.numbers = itertools.count(1)

    def node_comes(self, data: st.DataObject) -> None:
        fleets = [f for f in self.world.active if sum(self._of(f, each) for each in self.world.live) < 3]
        if fleets:
            self.world.node(str(next(self.numbers)), fleet=data.draw(st.sampled_from(fleets)))

    def node_goes(self, data: st.DataObject) -> None:
        if self.world.live:
            reason = data.draw(st.sampled_from(["Server.SpotInstanceTermination", "Client.InstanceInitiatedShutdown"]))
            self.world.ec2.ends(data.draw(st.sampled_from(self.world.live)), reason=reason)

    def nodes_train(self, data: st.DataObject) -> None:
        names = data.draw(st.lists(st.sampled_from(self.world.live or ["i-x"]), max_size=3, unique=True))
        if names and not self.world.record.ended:
            self.world.world(*(name.removeprefix("i-") for name in names))

    def lease_goes(self, data: st.DataObject) -> None:
        if not self.world.record.ended:
            nodes = tuple(Node(name, "10.0.0.1") for name in self.world.live if data.draw(st.booleans()))
            lease = data.draw(st.sampled_from([None, Lease("i-1", 1, 0.0)]))
            self.world.change_record(lease=lease, nodes=nodes, world=())

    def time_goes_by(self, data: st.DataObject) -> None:
        self.world.passes(data.draw(st.sampled_from([1, 4, 6, 11, 25])))

    def function_comes(self, data: st.DataObject) -> None:
        self.world.faults.strike(data.draw(st.sampled_from([None, *Fault])), call=data.draw(st.integers(0, 12)))
        _interrupted(lambda: self.world.jobs.settle("count-1"))
        self.world.faults.strike(None)

    def launcher_comes_again(self, _data: st.DataObject) -> None:
        assert self.world.jobs.create(self.world.asked[1])

    def _of(self, fleet: str, name: str) -> bool:
        return bool(self.world.ec2.instances[name].fleet == fleet)


HAPPENINGS = [
    Market.node_comes, Market.node_comes, Market.node_goes, Market.nodes_train, Market.lease_goes, Market.time_goes_by,
    Market.function_comes, Market.function_comes, Market.launcher_comes_again,
]  # fmt: skip


@given(data=st.data())
@hypothesis_settings(deadline=None)
def test_whatever_happens_one_fleet_is_not_being_deleted_and_the_end_leaves_nothing(data: st.DataObject) -> None:
    world = World()
    world.create(nodes={"min": 2, "max": 3}, distributed="torchrun", max_wait=24 * 3600)
    market = Market(world)
    for happens in data.draw(st.lists(st.sampled_from(HAPPENINGS), max_size=40)):
        happens(market, data)
        assert len(world.active) <= 1, f"{world.active} are all active"
    for _ in range(2):
        world.passes(1)
        world.jobs.settle("count-1")
    present = world.active
    assert all(world.ec2.instances[each].fleet in present for each in world.live) or world.history.ending is not None
    if world.history.over_at is None:
        assert present or world.history.ending is not None, "it looks for nodes at one place"
        world.jobs.stop("count-1")
    for _ in range(5):
        world.passes(KNOWN_AFTER.total_seconds() / 60)
        world.jobs.settle("count-1")
    assert (world.active, world.live) == ([], [])
    assert world.history.over_at is not None


def test_a_history_without_an_ending_knows_no_step_for_a_fleet_that_is_gone() -> None:
    gone: FleetHistory = nodes_history()
    found = absorb(gone, seen=seen(fleet=None), record=record(), now=at(11))
    assert found.ending is FleetEnding.FLEET_GONE
    assert DELETED.isdisjoint(steps_due(found, seen=seen(fleet=None), record=replace(record()), now=at(11)))
