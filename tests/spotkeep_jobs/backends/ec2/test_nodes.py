"""Attempts with nodes that train together: their phases, interruptions, limits, endings, sessions and bill."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_fleet.record import FAILED, FINISHED, Departure, Lease
from spotkeep_jobs.backends.backend import JobPhase, count_interruptions
from spotkeep_jobs.backends.ec2 import attempt_view
from spotkeep_jobs.backends.ec2.attempt_view import as_job_view, folded, to_fold
from spotkeep_jobs.backends.ec2.history import (
    MAX_FUTILE_INSTANCES,
    PREPARES_WITHIN,
    FleetEnding,
    FleetHistory,
    absorb,
    closed,
    futile_so_far,
    trained_seconds,
)
from spotkeep_jobs.backends.ec2.jobs import BOOT_TAKES, LEAVING_TAKES, FleetStep, steps_due, to_terminate
from spotkeep_jobs.cost.run_cost import bill, usage_of
from spotkeep_jobs.progress.job_log import JobLog
from spotkeep_jobs.record.deployment_records import StoragePrices
from spotkeep_jobs.record.record import Attempt, Nodes, Place
from spotkeep_jobs.record.states import EndReason
from tests.models.clock import NOON

from .readings import at, node, nodes_history, record, seen, world_of
from .world import World

TAKEN = {"state": "terminated", "reason": "Server.SpotInstanceTermination"}
GAVE_UP = {"state": "terminated", "reason": "Client.InstanceInitiatedShutdown"}
TWO: dict[str, Any] = {"nodes": {"min": 2, "max": 2}, "distributed": "torchrun"}
RANGE: dict[str, Any] = {"nodes": {"min": 2, "max": 3}, "distributed": "torchrun"}


@pytest.fixture
def world() -> World:
    return World()


def phases(found: FleetHistory) -> list[tuple[str, float]]:
    return [(entry.phase.value, (entry.at - NOON).total_seconds() / 60) for entry in found.transitions]


def trained(at_least: int = 2, at_most: int = 3) -> FleetHistory:
    """Three nodes came at 1, 2 and 3, and train since 5."""
    three = seen(node("a", launched=1), node("b", launched=2), node("c", launched=3))
    found = absorb(nodes_history(at_least=at_least, at_most=at_most), seen=three, record=record(), now=at(4))
    return absorb(found, seen=three, record=world_of("a", "b", "c", since=5), now=at(6))


# Phases


def test_nodes_load_when_enough_are_there_and_train_when_their_world_does() -> None:
    assert phases(trained()) == [("WAITING", 0), ("LOADING", 2), ("TRAINING", 5)]
    assert phases(trained(at_least=3)) == [("WAITING", 0), ("LOADING", 3), ("TRAINING", 5)]
    one = seen(node("a", launched=1))
    assert phases(absorb(nodes_history(), seen=one, record=record(), now=at(4))) == [("WAITING", 0)]


def test_two_nodes_that_are_taken_from_one_world_are_two_interruptions_and_the_others_go_on() -> None:
    left = seen(node("a", launched=1), node("b", launched=2, ended_at=at(9), **TAKEN),
                node("c", launched=3, ended_at=at(9.5), **TAKEN), node("d", launched=9.6))  # fmt: skip
    found = absorb(trained(), seen=left, record=world_of("a", "d", since=12), now=at(12))
    assert phases(found)[3:] == [("INTERRUPTED", 9), ("LOADING", 9), ("INTERRUPTED", 9.5), ("LOADING", 9.6),
                                 ("TRAINING", 12)]  # fmt: skip
    job = as_job_view(found, world_of("a", "d", since=12))
    assert (count_interruptions(job), job.instance_count) == (2, 3)
    assert job.nodes == Nodes(connected=2, in_world=2)


def test_no_node_is_shown_that_ec2_has_taken_though_its_leader_could_not_write_it() -> None:
    """The record stays as the lost leader wrote it."""
    says = world_of("a", "b", "c", since=8)
    for taken, nodes in ((("c",), Nodes(connected=2, in_world=0)), (("a", "b", "c"), Nodes(connected=0, in_world=0))):
        left = seen(
            *(node(each, launched=1, **({"ended_at": at(9), **TAKEN} if each in taken else {})) for each in "abc")
        )
        assert as_job_view(absorb(trained(), seen=left, record=says, now=at(10)), says).nodes == nodes


def test_a_node_that_left_on_its_notice_is_an_interruption_before_ec2_takes_it() -> None:
    running = seen(node("a", launched=1), node("b", launched=2), node("c", launched=3))
    says = world_of("a", "b", since=10)
    says = replace(says, training=replace(says.training, noticed=(Departure("i-c", at(9).timestamp()),)))
    found = absorb(trained(), seen=running, record=says, now=at(10))
    assert phases(found)[3:] == [("INTERRUPTED", 9), ("LOADING", 9), ("TRAINING", 10)]
    gone = seen(*running.instances[:2], node("c", launched=3, ended_at=at(11), **TAKEN))
    assert absorb(found, seen=gone, record=says, now=at(12)).transitions == found.transitions


def test_a_world_that_has_a_node_that_left_on_its_notice_trains_no_more() -> None:
    """The leader writes the departure before the next world."""
    running = seen(node("a", launched=1), node("b", launched=2), node("c", launched=3))
    says = replace(world_of("a", "b", since=10), world=("i-a", "i-b", "i-c"))
    says = replace(says, training=replace(says.training, noticed=(Departure("i-c", at(9).timestamp()),)))
    found = absorb(trained(), seen=running, record=says, now=at(10))
    assert phases(found)[3:] == [("INTERRUPTED", 9), ("LOADING", 9)]


def test_the_nodes_that_a_leader_leaves_behind_are_no_world_while_they_are_too_few() -> None:
    """A leader that leaves writes which nodes of its world are there, for the next leader to wait for."""
    pair = seen(node("a", launched=1), node("b", launched=2))
    found = absorb(nodes_history(at_most=2), seen=pair, record=record(), now=at(4))
    found = absorb(found, seen=pair, record=world_of("a", "b", since=5), now=at(6))
    left = world_of("b", since=9)
    left = replace(left, training=replace(left.training, noticed=(Departure("i-a", at(9).timestamp()),)))
    found = absorb(found, seen=pair, record=left, now=at(9))
    assert phases(found)[2:] == [("TRAINING", 5), ("INTERRUPTED", 9)]
    assert as_job_view(found, left).nodes == Nodes(connected=1, in_world=0)


@pytest.mark.parametrize("holder", [None, "i-c"])
def test_nodes_train_again_when_their_next_leader_has_formed_a_world(holder: str | None) -> None:
    """The first of a world leads it. Before the next world the record still has the others of the former one."""
    three = seen(node("a", launched=1), node("b", launched=2), node("c", launched=3))
    left = world_of("b", "c", since=9.1)
    lease = None if holder is None else Lease(holder=holder, fence=4, expires_at=at(99).timestamp())
    left = replace(left, training=replace(left.training, noticed=(Departure("i-a", at(9).timestamp()),)), lease=lease)
    found = absorb(trained(), seen=three, record=left, now=at(9.2))
    assert phases(found)[3:] == [("INTERRUPTED", 9), ("LOADING", 9)]
    assert as_job_view(found, left).nodes == Nodes(connected=2, in_world=0)
    again = replace(world_of("c", "b", since=10), training=replace(left.training, heartbeat_at=at(10).timestamp()))
    assert phases(absorb(found, seen=three, record=again, now=at(10)))[5:] == [("TRAINING", 10)]


def test_the_timeline_counts_nodes_and_says_what_was_lost() -> None:
    left = seen(node("a", launched=1), node("b", launched=2, ended_at=at(9), **TAKEN))
    pair = seen(node("a", launched=1), node("b", launched=2))
    found = absorb(nodes_history(at_least=1, at_most=2), seen=pair, record=world_of("a", "b", since=5), now=at(6))
    found = absorb(found, seen=left, record=world_of("a", since=12), now=at(12))
    said = [(entry.text, entry.detail) for entry in as_job_view(found, record()).transitions]
    assert said == [
        ("Waits for capacity and starts", ""),
        ("Has enough nodes, which bring their data", "1 node, g5.xlarge in us-east-1a"),
        ("Trains", "2 nodes, g5.xlarge in us-east-1a"),
        ("Lost a node", "i-b, g5.xlarge in us-east-1a"),
        ("Has enough nodes, which bring their data", "1 node, g5.xlarge in us-east-1a"),
        ("Trains", "1 node, g5.xlarge in us-east-1a"),
    ]


def test_the_first_world_is_one_phase_though_its_report_is_more_precise_than_a_record() -> None:
    """Records keep milliseconds, and a heartbeat has more digits."""
    pair = seen(node("a", launched=1), node("b", launched=2))
    found = absorb(nodes_history(at_least=1, at_most=2), seen=pair, record=record(), now=at(4))
    found = absorb(found, seen=pair, record=world_of("a", "b", since=5.00001), now=at(6))
    said = [(entry.text, entry.detail) for entry in as_job_view(found, record()).transitions]
    assert said[2:] == [("Trains", "2 nodes, g5.xlarge in us-east-1a")]


def test_the_timeline_says_when_a_world_grows() -> None:
    pair = seen(node("a", launched=1), node("b", launched=2, ended_at=at(9), **TAKEN))
    found = absorb(nodes_history(at_least=1, at_most=3), seen=pair, record=world_of("a", "b", since=5), now=at(6))
    found = absorb(found, seen=pair, record=world_of("a", since=12), now=at(12))
    all_three = seen(*pair.instances, node("c", launched=13), node("d", launched=13))
    waits = world_of("a", since=14, waiting=("c", "d"))
    found = absorb(found, seen=all_three, record=waits, now=at(14))
    for minute in (20, 21):
        found = absorb(found, seen=all_three, record=world_of("a", "c", "d", since=minute), now=at(minute))
    job = as_job_view(found, record())
    assert [(entry.text, entry.detail) for entry in job.transitions[-2:]] == [
        ("Trains", "1 node, g5.xlarge in us-east-1a"),
        ("Trains with more nodes", "3 nodes, g5.xlarge in us-east-1a"),
    ]
    assert phases(found)[-2:] == [("TRAINING", 12), ("TRAINING", 20)]
    assert count_interruptions(job) == 1
    assert trained_seconds(found, now=at(30)) == 60 * (9 - 5 + 30 - 12)


def test_a_node_in_the_place_of_one_that_is_cut_off_is_no_growth() -> None:
    """EC2 still shows the node that no connection reaches."""
    four = seen(*(node(each, launched=1) for each in "abcd"))
    found = absorb(trained(), seen=four, record=world_of("a", "b", "d", since=20), now=at(20))
    assert found.transitions == trained().transitions


def test_a_node_that_waits_for_a_world_comes_and_goes_without_a_phase() -> None:
    more = seen(node("a", launched=1), node("b", launched=2), node("c", launched=3), node("d", launched=7))
    found = absorb(trained(), seen=more, record=world_of("a", "b", "c", since=8, waiting=("d",)), now=at(8))
    lost = seen(*more.instances[:3], node("d", launched=7, ended_at=at(9), **TAKEN))
    found = absorb(found, seen=lost, record=world_of("a", "b", "c", since=10), now=at(10))
    assert found.transitions == trained().transitions


def test_below_the_fewest_it_waits_interrupted_and_loads_again_with_the_one_that_comes() -> None:
    left = seen(node("a", launched=1), node("b", launched=2, ended_at=at(9), **TAKEN),
                node("c", launched=3, ended_at=at(9), **TAKEN))  # fmt: skip
    found = absorb(trained(), seen=left, record=world_of("a", "b", "c", since=8), now=at(10))
    assert found.short_since == at(9)
    assert phases(found)[3:] == [("INTERRUPTED", 9), ("LOADING", 9), ("INTERRUPTED", 9)]
    again = seen(*left.instances, node("d", launched=14))
    found = absorb(found, seen=again, record=record(), now=at(15))
    assert phases(found)[6:] == [("LOADING", 14)]


def test_an_old_word_of_the_world_that_lost_a_node_is_no_training() -> None:
    left = seen(node("a", launched=1), node("b", launched=2), node("c", launched=3, ended_at=at(9), **TAKEN))
    found = absorb(trained(), seen=left, record=world_of("a", "b", "c", since=10), now=at(10))
    assert phases(found)[3:] == [("INTERRUPTED", 9), ("LOADING", 9)]


def test_a_training_that_was_never_seen_before_its_end_is_there_all_the_same() -> None:
    over = seen(node("a", launched=1, ended_at=at(21), **GAVE_UP), node("b", launched=2, ended_at=at(21), **GAVE_UP))
    done = replace(record(state=FINISHED, exit_code=0, heartbeat_at=at(20).timestamp()), world=("i-a", "i-b"))
    found = absorb(nodes_history(), seen=over, record=done, now=at(22))
    assert phases(found) == [("WAITING", 0), ("LOADING", 2), ("TRAINING", 20)]
    assert found.ending is FleetEnding.FINISHED


@given(data=st.data())
def test_what_was_reported_of_nodes_once_is_never_reported_differently(data: st.DataObject) -> None:
    """EC2's answers come late, out of order and in part, and the leader's word is older or newer than they are."""
    instances = [
        node(name, launched=minute, **state)
        for name, minute in (("a", 1), ("b", 1), ("c", 10), ("d", 20))
        for state in ({}, {**TAKEN, "ended_at": at(minute + 14)}, {**GAVE_UP, "ended_at": at(minute + 2)})
    ]
    found, before = nodes_history(at_most=3), nodes_history().transitions
    for minute in range(1, 8):
        shown = data.draw(st.lists(st.sampled_from(instances), max_size=4, unique_by=lambda each: each.id))
        names = data.draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True))
        reported = data.draw(st.sampled_from([record(), world_of(*names, since=20 + minute)]))
        found = absorb(found, seen=seen(*shown), record=reported, now=at(25 + minute))
        assert absorb(found, seen=seen(*shown), record=reported, now=at(25 + minute)).transitions == found.transitions
        assert found.transitions[: len(before)] == before
        assert [entry.at for entry in found.transitions] == sorted(entry.at for entry in found.transitions)
        trainings = [entry for entry in found.transitions if entry.phase is JobPhase.TRAINING]
        assert trained_seconds(found, now=at(60)) == 0 or trainings, "what never trained is not counted"
        before = found.transitions


# Limits


def test_max_run_counts_the_time_of_the_run_and_not_of_its_nodes() -> None:
    live = seen(node("a", launched=1), node("b", launched=2), node("c", launched=3))
    found = trained()
    assert trained_seconds(found, now=at(65)) == 3600
    for minute in (30, 65):
        found = absorb(found, seen=live, record=world_of("a", "b", "c", since=minute), now=at(minute))
        assert found.ending is None
    found = absorb(found, seen=live, record=world_of("a", "b", "c", since=66), now=at(66))
    assert found.ending is FleetEnding.MAX_RUN


def bad_boots(count: int, *, first: int = 0) -> list[Any]:
    return [
        node(f"bad{n}", launched=n / 10, ended_at=at(n / 10 + 0.05), **GAVE_UP) for n in range(first, first + count)
    ]


def test_one_bad_boot_of_each_node_does_not_end_a_run_and_five_full_rounds_do() -> None:
    found = absorb(nodes_history(at_most=8), seen=seen(*bad_boots(8)), record=record(), now=at(5))
    assert found.ending is None
    found = absorb(found, seen=seen(*bad_boots(MAX_FUTILE_INSTANCES * 8 - 1)), record=record(), now=at(5))
    assert (found.ending, futile_so_far(found)) == (None, 39)
    found = absorb(found, seen=seen(*bad_boots(MAX_FUTILE_INSTANCES * 8)), record=record(), now=at(6))
    assert found.ending is FleetEnding.FUTILE
    reason = as_job_view(closed(found, charges=None, now=at(7)), record()).failure_reason or ""
    assert "40 instances, one after the other" in reason
    assert "i-bad39, ended by Client.InstanceInitiatedShutdown" in reason


def test_bad_boots_beside_a_world_that_trains_end_nothing_and_count_from_its_loss() -> None:
    live = [node("a", launched=1), node("b", launched=2), node("c", launched=3)]
    bad = bad_boots(20, first=60)
    found = absorb(trained(), seen=seen(*live, *bad), record=world_of("a", "b", "c", since=9), now=at(10))
    assert (found.ending, futile_so_far(found)) == (None, 0)
    gone = [node(name, launched=n, ended_at=at(11), **TAKEN) for n, name in enumerate("abc", start=1)]
    found = absorb(found, seen=seen(*gone, *bad), record=record(), now=at(12))
    assert (found.ending, futile_so_far(found)) == (None, 0)
    after = bad_boots(15, first=120)
    found = absorb(found, seen=seen(*gone, *bad, *after), record=record(), now=at(30))
    assert (found.ending, futile_so_far(found)) == (FleetEnding.FUTILE, 15)


# Nodes that do not report


def test_a_node_that_never_connects_is_terminated_although_another_one_leads() -> None:
    both = seen(node("a", launched=1), node("mute", launched=1))
    says = world_of("a", since=20)
    says = replace(says, lease=Lease("i-a", 1, at(25).timestamp()), world=())
    found = absorb(nodes_history(), seen=both, record=says, now=at(20))
    assert to_terminate(found, record=says, now=at(20)) == ()
    assert to_terminate(found, record=says, now=at(1) + BOOT_TAKES) == ("i-mute",)


@pytest.mark.parametrize("others_train", [True, False])
def test_a_node_that_brings_its_data_for_long_is_not_silent(others_train: bool) -> None:
    """It is connected with no leader before it has them, and may be the first of all."""
    both = seen(node("a", launched=1), node("slow", launched=1))
    says = replace(world_of("a", since=20) if others_train else record(), booted=("i-a", "i-slow"))
    found = absorb(nodes_history(), seen=both, record=says, now=at(20))
    assert to_terminate(found, record=says, now=at(1) + 2 * BOOT_TAKES) == ()
    forever = to_terminate(found, record=says, now=at(1) + PREPARES_WITHIN)
    assert forever == (("i-slow",) if others_train else ("i-a", "i-slow"))


def test_a_node_that_lost_its_connection_for_long_is_replaced_and_one_that_came_back_is_not() -> None:
    live = seen(node("a", launched=1), node("b", launched=2), node("c", launched=3))
    without = world_of("a", "b", since=10)
    found = absorb(trained(), seen=live, record=without, now=at(10))
    assert FleetStep.TERMINATE not in steps_due(found, seen=live, record=without, now=at(29))
    assert to_terminate(found, record=without, now=at(30)) == ("i-c",)
    back = absorb(found, seen=live, record=world_of("a", "b", since=29, waiting=("c",)), now=at(29))
    assert to_terminate(back, record=without, now=at(60)) == ()


def test_without_a_leader_no_node_is_missing() -> None:
    live = seen(node("a", launched=1), node("b", launched=2), node("c", launched=3))
    no_nodes = replace(world_of("a", "b", since=10), lease=Lease("i-a", 1, at(9).timestamp()))
    found = absorb(trained(), seen=live, record=no_nodes, now=at(10))
    assert to_terminate(found, record=no_nodes, now=at(59)) == ()


# Endings


@pytest.mark.parametrize(("state", "ended"), [(FINISHED, ("i-b", "i-c")), (FAILED, ("i-b", "i-c"))])
def test_when_the_training_is_over_the_leader_alone_has_something_to_send(state: str, ended: tuple[str, ...]) -> None:
    live = seen(node("a", launched=1), node("b", launched=2), node("c", launched=3))
    says = world_of("a", "b", "c", since=9)
    says = replace(says, training=replace(says.training, state=state, exit_code=0 if state == FINISHED else 1))
    found = absorb(trained(), seen=live, record=says, now=at(10))
    assert to_terminate(found, record=says, now=at(10)) == ended
    assert to_terminate(found, record=says, now=at(10) + LEAVING_TAKES) == ("i-a", "i-b", "i-c")


def test_at_a_stop_all_nodes_may_save_until_the_leader_has_given_the_lease_back() -> None:
    """The leader leaves last, when all have saved. Without it no checkpoint becomes whole, and the others wait."""
    live = seen(node("a", launched=1), node("b", launched=2), node("c", launched=3), node("late", launched=9))
    says = replace(world_of("a", "b", "c", since=9), stop_requested=True)
    found = absorb(trained(), seen=live, record=says, now=at(10))
    assert found.ending is FleetEnding.STOPPED
    assert to_terminate(found, record=says, now=at(10)) == ("i-late",)
    assert len(to_terminate(found, record=says, now=at(10) + LEAVING_TAKES)) == 4
    assert says.lease is not None
    silent = replace(says, lease=replace(says.lease, expires_at=at(9).timestamp()))
    assert to_terminate(found, record=silent, now=at(10)) == ("i-late",)
    left = replace(says, lease=None, world=("i-b", "i-c"), nodes=says.nodes[1:])
    assert to_terminate(found, record=left, now=at(10)) == ("i-a", "i-b", "i-c", "i-late")


def test_from_the_launch_to_the_bill_of_two_nodes(world: World) -> None:
    world.storage_prices = StoragePrices(ebs_gp3=0.08, ebs_gp3_throughput=40.96)
    world.ec2.images = [{"ImageId": "ami-1", "RootDeviceName": "/dev/xvda", "BlockDeviceMappings": []}]
    world.create(**TWO, volume={"size_gb": 200})
    template = world.ec2.versions[2]["LaunchTemplateData"]
    assert template["SecurityGroupIds"] == ["sg-nodes"]
    assert template["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] == 200
    world.node("a")
    world.node("b")
    world.passes(2)
    world.world("a", "b")
    world.jobs.settle("count-1")
    world.passes(60)
    world.report(state=FINISHED, exit_code=0)
    world.change_record(lease=replace(world.record.lease, expires_at=world.now.timestamp() + 30))
    world.jobs.settle("count-1")
    assert world.ec2.terminated == ["i-b"], "the leader has time to send the model"
    world.change_record(lease=None)
    world.jobs.settle("count-1")
    assert world.ec2.terminated == ["i-b", "i-a"]
    over = world.jobs.settle("count-1")
    assert (over.end_reason, over.training_seconds, over.instance_seconds) == (EndReason.COMPLETED, 62 * 60, 124 * 60)
    assert over.charges.instances_usd == pytest.approx(0.3 * 124 / 60)
    assert over.charges.root_volume_gb_hours == pytest.approx(200 * 124 / 60, abs=0.001)
    assert (over.charges.storage_gb_hours, over.charges.unknown, world.active, world.live) == (0.0, (), [], [])


def test_a_node_that_waits_is_on_the_bill_and_no_part_of_a_clean_run(world: World) -> None:
    """I8: an uninterrupted run would not have paid for the wait, nor for the second loading."""
    world.create(**RANGE)
    for name in "abc":
        world.node(name)
    world.passes(5)
    world.world("a", "b", "c")
    world.jobs.settle("count-1")
    world.passes(60)
    for name in "bc":
        world.ec2.ends(f"i-{name}", reason="Server.SpotInstanceTermination")
    world.jobs.settle("count-1")
    world.passes(30)  # The wait of the first node, which the place is not left for: no function comes.
    world.node("d")
    world.passes(5)
    world.world("a", "d")
    world.jobs.settle("count-1")
    world.passes(60)
    world.report(state=FINISHED, exit_code=0)
    for _ in range(2):
        over = world.jobs.settle("count-1")
    assert over.training_seconds == (65 + 65) * 60
    assert over.instance_seconds == (3 * 65 + 2 * 65) * 60
    assert over.charges.instance_seconds == (160 + 65 + 65 + 65) * 60
    usage = usage_of(job=over, log=JobLog(), earlier=(), ended_at=over.training_ended_at)
    assert usage.restart_overhead_seconds == 5 * 60
    assert usage.instances == 2.5
    attempt = Attempt(
        run="count", attempt=1, job_name="count-1", created_at=NOON, job_id="fleet-1", usage=usage,
        place=Place(backend="ec2", capacity="spot", instance_type="g5.xlarge", instance_count=3),
    )  # fmt: skip
    cost = bill([attempt], prices={"g5.xlarge": 1.0})
    assert cost is not None
    assert cost.clean_on_demand_seconds == (130 - 5) * 60 * 2.5


def test_sessions_are_taken_by_the_leader_then_by_the_world_then_by_those_that_wait(world: World) -> None:
    world.create(**RANGE)
    for name in "abcd":
        world.node(name)
        world.passes(1)
    world.world("c", "a", waiting=("d",))
    assert world.jobs.observe("count-1").session_targets == ("i-c", "i-a", "i-b", "i-d")


# Much of it


def test_a_history_that_adds_up_old_nodes_gives_the_same_work_and_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_view, "KEPT_INSTANCES", 6)
    monkeypatch.setattr(attempt_view, "KEPT_PHASES", 9)
    drawn = random.Random(7)  # noqa: S311 - no secret
    whole = short = nodes_history(at_least=2, at_most=4, max_run_seconds=10**9, max_wait_seconds=None)
    live: dict[str, Any] = {}
    gone: list[Any] = []
    names = iter(range(10_000))
    for minute in range(4, 900, 4):
        while len(live) < 4 and drawn.random() < 0.7:
            name = str(next(names))
            live[name] = node(name, launched=minute - 2)
        if len(live) > 1 and drawn.random() < 0.4:
            name = drawn.choice(sorted(live))
            gone.append(replace(live.pop(name), ended_at=at(minute - 1), **TAKEN))
        reading = seen(*live.values(), *gone[-8:])
        says = world_of(*sorted(live), since=minute) if len(live) > 1 else record()
        whole = absorb(whole, seen=reading, record=says, now=at(minute))
        short = absorb(short, seen=reading, record=says, now=at(minute))
        short = folded(short, to_fold(short, now=at(minute)), spot_prices=(), now=at(minute))
        assert trained_seconds(short, now=at(minute)) == trained_seconds(whole, now=at(minute))
    assert len(short.lives) < len(whole.lives) / 4
    assert len(short.transitions) == 9
    ended = [closed(each, charges=None, now=at(900)) for each in (whole, short)]
    a, b = (as_job_view(each, record()) for each in ended)
    assert (a.training_seconds, a.instance_seconds) == (b.training_seconds, b.instance_seconds)
    assert count_interruptions(a) == count_interruptions(b)
    assert (a.instance_seconds or 0) > 3600


@pytest.mark.long
def test_sixty_four_nodes_that_are_lost_again_and_again_fit_into_one_item(world: World) -> None:
    world.create(nodes={"min": 32, "max": 64}, distributed="torchrun", max_run=24 * 3600)
    for number in range(40):
        names = [f"{number}-{n}" for n in range(64)]
        for name in names:
            world.node(name)
        world.passes(3)
        world.world(*names)
        world.jobs.settle("count-1")
        world.passes(3)
        for name in names:
            world.ec2.ends(f"i-{name}", reason="Server.SpotInstanceTermination")
        world.jobs.settle("count-1")
        for old in [each for each in world.ec2.instances if each.startswith(f"i-{number - 5}-")]:
            del world.ec2.instances[old]
    world.passes(1)
    world.jobs.stop("count-1")
    over = world.jobs.settle("count-1")
    assert over.ended
    assert over.charges.instance_seconds == 40 * 64 * 6 * 60
    assert world.dynamodb.largest["run fleet-history"] < 150_000


def test_nodes_without_a_world_do_not_train_whatever_the_record_says() -> None:
    three = seen(node("a", launched=1), node("b", launched=2), node("c", launched=3))
    for nodes in (world_of("a", "b", "c", since=5).nodes, ()):  # A new leader begins with none.
        waits = replace(world_of("a", "b", "c", since=5), nodes=nodes, world=())
        found = absorb(nodes_history(at_most=3), seen=three, record=waits, now=at(6))
        assert phases(found) == [("WAITING", 0), ("LOADING", 2)]
        assert [life.training_at for life in found.lives] == [None] * 3
        assert as_job_view(found, waits).phase is JobPhase.LOADING
