"""Worlds of real nodes: what becomes of a run when its nodes come, are taken, and are lost."""

from __future__ import annotations

import io
import tarfile
import time
from dataclasses import replace

import pytest

from spotkeep_fleet.record import FAILED, FINISHED, TRAINING
from tests.spotkeep_agent.cloud import Cloud, Instance
from tests.spotkeep_agent.conftest import events_of, steps_of

from .conftest import SIGCONT, SIGSTOP, STEPS, Fleet, leader_and_others, said_by, stop_all, wait_until, worlds

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.long]


def model(cloud: Cloud) -> str:
    """What the training computed, and the number of its last ranks."""
    body, _ = cloud.objects["bucket/runs/run/output/model.tar.gz"]
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        file = archive.extractfile("total")
        assert file is not None
        return file.read().decode()


def trains(fleet: Fleet, instances: list[Instance], *, nodes: int, after: int = 0) -> int:
    """Wait for a world of so many nodes, after so many worlds, that has stepped, and whose step 2 is in S3.

    Return the number of worlds so far. On a busy machine a run may begin before its second node has come.
    """

    def holds() -> bool:
        found = worlds(*instances)[after:]
        record = fleet.cloud.record
        return bool(
            found
            and found[-1]["hosts"] == nodes
            and len(record.world) == nodes
            and record.training.state == TRAINING
            and (record.training.step or 0) >= 4
            and (record.training.uploaded_step or 0) >= 2
        )

    wait_until(holds, what=f"a world of {nodes}", instances=instances)
    return len(worlds(*instances))


def ends_well(fleet: Fleet, *instances: Instance, ranks: int) -> None:
    fleet.go_on()
    assert [each.finish() for each in instances] == [0] * len(instances)
    training = fleet.cloud.record.training
    assert training.state == FINISHED, f"{training.failure}; they said:\n{said_by(list(instances))}"
    assert model(fleet.cloud) == f"{sum(range(STEPS))} {ranks}"


def begins(instances: list[Instance], number: int) -> int | None:
    """The step from which a world goes on."""
    wait_until(lambda: len(worlds(*instances)) > number, what=f"world {number}", instances=instances)
    step = worlds(*instances)[number]["step"]
    return None if step is None else int(step)


def saved_before(leader: Instance, number: int) -> int:
    """The newest step that was saved before a world. This node is the leader of all."""
    found = events_of(leader)
    began = [place for place, event in enumerate(found) if event["event"] == "world-began"][number]
    return max(int(event["step"]) for event in found[:began] if event["event"] == "saved")


def test_two_nodes_train_together_to_the_end(fleet: Fleet) -> None:
    fleet.launch(at_least=2, at_most=2)
    instances = fleet.boot(2)
    ends_well(fleet, *instances, ranks=2)
    record = fleet.cloud.record
    assert record.training.step == record.training.uploaded_step == STEPS
    assert record.lease is None
    [world] = worlds(*instances)
    assert sorted(world["nodes"]) == [each.id for each in instances]
    assert world["step"] is None
    assert not fleet.cloud.ec2.volumes
    # The role of instances writes no other stream.
    assert {stream.partition("/algo-")[0] for stream in fleet.cloud.log_streams} == {"run-1"}
    assert [event["event"] for event in fleet.cloud.events if event["event"] != "left"] == ["training", "finished"]


def test_in_a_rehearsal_a_run_begins_with_all_nodes_however_late_the_last_one_comes(fleet: Fleet) -> None:
    fleet.launch(at_least=1, at_most=2)
    waits = {"SPOTKEEP_LOCAL_FIRST_WORLD_SECONDS": "600"}
    [first] = fleet.boot(1, **waits)
    wait_until(lambda: fleet.cloud.record.lease, what="a leader", instances=[first])
    time.sleep(3.0)  # Time is twenty times as fast, so it would begin alone after 1.5 s.
    assert not worlds(first)
    [second] = fleet.boot(1, **waits)
    ends_well(fleet, first, second, ranks=2)
    assert [world["hosts"] for world in worlds(first, second)] == [2]


def test_after_a_notice_to_a_node_the_others_go_on_at_the_same_step_and_take_a_new_one_in(fleet: Fleet) -> None:
    fleet.launch(at_least=1, at_most=2)
    instances = fleet.boot(2)
    number = trains(fleet, instances, nodes=2)
    leader, [other] = leader_and_others(fleet.cloud, instances)
    other.announce(60)
    assert other.finish() == 0
    step = begins(instances, number)
    saved = saved_before(leader, number)
    assert step == saved
    record = fleet.cloud.record
    assert [each.instance for each in record.training.noticed] == [other.id]
    assert record.training.interruptions == 1
    [third] = fleet.boot(1)
    trains(fleet, [leader, third], nodes=2, after=number + 1)
    assert (begins([leader, third], number + 1) or 0) >= saved
    assert {event["instance"] for event in events_of(leader) if event["event"] == "node-joined"} == {other.id, third.id}
    ends_well(fleet, leader, third, ranks=2)


def test_after_a_notice_to_the_leader_another_node_leads(fleet: Fleet) -> None:
    fleet.launch(at_least=1, at_most=2)
    instances = fleet.boot(2)
    number = trains(fleet, instances, nodes=2)
    leader, [other] = leader_and_others(fleet.cloud, instances)
    leader.announce(60)
    assert leader.finish() == 0
    assert begins(instances, number) == max(steps_of(leader, "saved"))
    assert worlds(other)[0]["nodes"] == [other.id]
    assert [each.instance for each in fleet.cloud.record.training.noticed] == [leader.id]
    ends_well(fleet, other, ranks=1)


@pytest.mark.parametrize("lost", ["leader", "other"])
def test_a_node_lost_without_a_notice_costs_the_steps_since_the_last_checkpoint_in_s3(fleet: Fleet, lost: str) -> None:
    fleet.launch(at_least=1, at_most=2)
    instances = fleet.boot(2)
    number = trains(fleet, instances, nodes=2)
    leader, [other] = leader_and_others(fleet.cloud, instances)
    gone, stays = (leader, other) if lost == "leader" else (other, leader)
    in_s3 = fleet.cloud.record.training.uploaded_step  # A save after it is whole when the ranks are held no more.
    gone.power_off()
    assert begins(instances, number) == in_s3
    ends_well(fleet, stays, ranks=1)
    assert fleet.cloud.record.training.interruptions == 0


def test_with_fewer_nodes_than_a_run_needs_the_rest_waits_with_all_steps_saved(fleet: Fleet) -> None:
    fleet.launch(at_least=2, at_most=2)
    instances = fleet.boot(2)
    trains(fleet, instances, nodes=2)
    leader, [other] = leader_and_others(fleet.cloud, instances)
    other.announce(60)
    assert other.finish() == 0
    wait_until(lambda: not fleet.cloud.record.world, what="waiting", instances=instances)
    record = fleet.cloud.record
    assert [each.instance for each in record.nodes] == [leader.id]
    assert record.training.uploaded_step == max(steps_of(leader, "saved"))
    assert len(worlds(*instances)) == 1
    [third] = fleet.boot(1)
    ends_well(fleet, leader, third, ranks=2)
    assert worlds(leader)[1]["step"] == record.training.uploaded_step


@pytest.mark.parametrize("cut_off", ["leader", "other"])
def test_a_node_that_is_cut_off_and_lives_on_is_replaced_and_comes_back(fleet: Fleet, cut_off: str) -> None:
    """All of its processes stand still for longer than the others wait. Then they go on, in a world that is over.

    The sum would be another one if a world went on from what such a node saves.
    """
    fleet.launch(at_least=1, at_most=2)
    instances = fleet.boot(2)
    number = trains(fleet, instances, nodes=2)
    leader, [other] = leader_and_others(fleet.cloud, instances)
    still = leader if cut_off == "leader" else other
    stop_all(still, SIGSTOP)
    trains(fleet, instances, nodes=1, after=number)
    stop_all(still, SIGCONT)
    trains(fleet, instances, nodes=2, after=number + 1)
    began = worlds(*instances)
    assert [world["fence"] for world in began] == sorted({world["fence"] for world in began})
    ends_well(fleet, *instances, ranks=2)


def test_a_clock_that_is_an_hour_wrong_takes_no_lease_from_a_leader(fleet: Fleet) -> None:
    """The clock of the second node is an hour ahead, by which the lease of the first one is over at each look."""
    fleet.launch(at_least=1, at_most=2)
    [first] = fleet.boot(1)
    trains(fleet, [first], nodes=1)
    [second] = fleet.boot(1, CLOCK_AHEAD_SECONDS="3600")
    trains(fleet, [first, second], nodes=2, after=1)
    lease = fleet.cloud.record.lease
    assert lease is not None
    assert lease.holder == first.id
    first.power_off()
    trains(fleet, [second], nodes=1)
    [third] = fleet.boot(1)
    trains(fleet, [second, third], nodes=2, after=1)
    lease = fleet.cloud.record.lease
    assert lease is not None
    assert lease.holder == second.id
    ends_well(fleet, second, third, ranks=2)


def test_a_rank_that_fails_on_any_node_fails_the_run_with_its_reason(fleet: Fleet) -> None:
    script = """
    import os
    import torch.distributed as dist
    dist.init_process_group("gloo")
    dist.barrier()
    if dist.get_rank() == 1:
        raise ValueError("the data of rank 1 are wrong")
    dist.barrier()
    """
    fleet.launch(at_least=2, at_most=2, script=script)
    instances = fleet.boot(2)
    assert [each.finish() for each in instances] == [0, 0]
    record = fleet.cloud.record
    assert record.training.state == FAILED
    assert "the data of rank 1 are wrong" in (record.training.failure or "")
    assert record.training.script_failures == 1


def test_a_run_that_is_asked_to_stop_saves_and_all_nodes_leave(fleet: Fleet) -> None:
    fleet.launch(at_least=2, at_most=2)
    instances = fleet.boot(2)
    trains(fleet, instances, nodes=2)
    leader, _ = leader_and_others(fleet.cloud, instances)
    fleet.cloud.change(lambda record: replace(record, stop_requested=True))
    assert [each.finish() for each in instances] == [0, 0]
    record = fleet.cloud.record
    assert record.training.uploaded_step == max(steps_of(leader, "saved"))
    assert (record.lease, record.training.state, record.training.interruptions) == (None, TRAINING, 0)


def test_a_node_that_is_ended_because_the_run_is_over_says_so(fleet: Fleet) -> None:
    """The functions terminate the instances of a run that is over, and SIGTERM may come before the leader's word."""
    fleet.launch(at_least=2, at_most=2)
    instances = fleet.boot(2)
    trains(fleet, instances, nodes=2)
    _, [other] = leader_and_others(fleet.cloud, instances)
    fleet.cloud.change(lambda record: replace(record, stop_requested=True))
    assert other.agent is not None
    other.agent.terminate()
    assert [each.finish() for each in instances] == [0, 0]
    [left] = [event for event in events_of(other) if event["event"] == "instance-left"]
    assert (left["why"], left["failed"], left["interrupted"]) == ("the run is asked to stop", False, False)


def test_a_leader_whose_record_cannot_be_read_has_all_ranks_save_and_leaves(fleet: Fleet) -> None:
    """A script may write anything there. No stop would reach a leader that trains on."""
    fleet.launch(at_least=2, at_most=2)
    instances = fleet.boot(2)
    trains(fleet, instances, nodes=2)
    leader, _ = leader_and_others(fleet.cloud, instances)
    item = fleet.cloud.record_item
    item.update(version={"N": str(int(item["version"]["N"]) + 1)}, record={"S": "no record"})
    assert [each.finish() for each in instances] == [0, 0]
    assert max(steps_of(leader, "saved")) >= 4
