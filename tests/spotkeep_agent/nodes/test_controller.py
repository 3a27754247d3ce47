"""Nodes of a run in one process, with real connections: how they begin together, and what each hears of the others."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spotkeep.errors import DamagedCheckpointError
from spotkeep_agent.as_user.files import UserFiles
from spotkeep_agent.errors import AwsUnavailableError, InputError, NodePortError
from spotkeep_agent.nodes.connections import Lost, NodeNames, NodeServer, listening
from spotkeep_agent.nodes.controller import NodesController
from spotkeep_agent.nodes.decisions import DONE, FAILED, INTERRUPTED, NodeEnd
from spotkeep_agent.nodes.lease import NodesLease
from spotkeep_agent.nodes.world import NodesTimes, World
from spotkeep_agent.volume.protocol import Leaving
from spotkeep_fleet.instance_job import NodesSpec, VolumeSpec
from spotkeep_fleet.record import INPUT_ERROR, MOST_SETBACKS, Lease, TrainingReport, decode, encode
from tests.models.ec2 import instance_job
from tests.ports import free_ports

from .conftest import KEY
from .test_lease import Records

ADDRESS = "127.0.0.1"
TIMES = NodesTimes(lease=1e6, silent=60.0, settle=1.0, first=1.0, rejoin=1.0, look=0.1)
LONG_SECONDS = 60.0


class Copies:
    """Checkpoints in S3, of which some are damaged, as a node brings and sends them."""

    def __init__(self, ask: Callable[[int, str], None], on_sent: Callable[[int], None], in_s3: dict[int, bool]) -> None:
        self.ask, self.on_sent, self.in_s3 = ask, on_sent, in_s3
        self.happened: list[Any] = []
        self.over = threading.Event()
        self.brought_bytes = 0
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.removed: set[int] = set()

    def newest_whole(self, *, before: int | None = None) -> int | None:
        return max((step for step in self.in_s3 if before is None or step < before), default=None)

    def bring(self, step: int | None, *, nodes: int, leads: bool) -> None:
        if step is not None and not self.in_s3[step] and not leads:
            raise DamagedCheckpointError("data", "it is damaged")
        self.goes_on.wait(LONG_SECONDS)
        self.over = threading.Event()
        self.happened.append(("brought", step, nodes, leads))

    def claim(self, lock: tuple[int, int], *, step: int | None) -> None:
        if step in self.removed:
            self.removed.clear()
            raise DamagedCheckpointError(f"step-{step}", "it was removed")
        self.happened.append(("claimed", lock, step))

    def start(self) -> None:
        self.happened.append("started")

    def send_own(self, folder: str) -> None:
        self.happened.append(("sends", folder))
        self.on_sent(int(folder.split("-")[1]))

    def others_have_sent(self, step: int, *, one_is_gone: bool) -> None:
        self.happened.append(("others have sent", step, one_is_gone))
        self.over.set()

    def leader_is_done(self) -> None:
        self.over.set()

    def finish(self, seconds_left: Callable[[], float], *, exit_code: int | None, goes_on: bool) -> bool:
        while not self.over.is_set() and seconds_left() > 0:
            time.sleep(0.01)
        return self.over.is_set()


class Run:
    """A run with nodes, and what they say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records = Records()
        self.in_s3: dict[int, bool] = {}
        self.port = free_ports()
        self.events: list[dict[str, Any]] = []
        self.nodes: list[NodesController] = []

    def node(
        self,
        *,
        at_least: int = 1,
        at_most: int = 3,
        lease_seconds: float = TIMES.lease,
        address: str = ADDRESS,
        times: NodesTimes = TIMES,
    ) -> NodesController:
        instance = f"i-{len(self.nodes)}"
        names = NodeNames(run="r", attempt=1, launch="feed", instance=instance, address=address)
        given: Any = self.records
        job = instance_job(
            volume=VolumeSpec(size_gb=8),
            checkpoint_uri="s3://bucket/checkpoints/",
            nodes=NodesSpec(at_least=at_least, at_most=at_most, wait_seconds=600, key=KEY),
        )
        base = self.folder / instance
        base.mkdir()
        new_copies: Any = lambda ask, on_sent: Copies(ask, on_sent, self.in_s3)  # noqa: E731
        self.nodes.append(
            NodesController(
                names,
                instance_type="g5.xlarge",
                job=job,
                lease=NodesLease(names, records=given, ec2=given, lease_seconds=lease_seconds),
                new_copies=new_copies,
                files=UserFiles(base),
                tell=lambda event, **fields: self.events.append({"event": event, **fields}),
                pause=time.sleep,
                times=times,
                port=self.port,
            )
        )
        return self.nodes[-1]

    def has_set_back(self, number: int) -> bool:
        return self.records.read().setbacks == number

    def leads(self, node: NodesController) -> bool:
        return node.leads(should_leave=stays())


def stays() -> Callable[[], str | None]:
    """A node stays for a limited time, so that no test hangs."""
    ends = time.monotonic() + LONG_SECONDS
    return lambda: "the test hangs" if time.monotonic() > ends else None


def left() -> Callable[[], float]:
    ends = time.monotonic() + LONG_SECONDS
    return lambda: ends - time.monotonic()


def begin(*nodes: NodesController) -> list[World | Leaving]:
    """Let nodes begin at the same time."""
    with ThreadPoolExecutor(len(nodes)) as pool:
        return list(pool.map(lambda node: node.begin(should_leave=stays()), nodes))


def worlds(*nodes: NodesController) -> list[World]:
    found = begin(*nodes)
    assert all(isinstance(each, World) for each in found), found
    return [each for each in found if isinstance(each, World)]


def end(node: NodesController, kind: str = INTERRUPTED, code: int = 75, failure: str = "") -> NodeEnd:
    return node.ended(NodeEnd(kind, code, failure), seconds_left=left())


def copies_of(node: NodesController) -> Copies:
    found: Any = node.copies
    return found  # type: ignore[no-any-return]


def attended(node: NodesController, until: Callable[[], object]) -> None:
    ends = time.monotonic() + LONG_SECONDS
    while not until():
        assert time.monotonic() < ends, "it never happened"
        node.tend()
        time.sleep(0.01)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    yield run
    for node in run.nodes:
        node.leave(why="the test is over", seconds_left=left())


def two(run: Run, **given: Any) -> tuple[NodesController, NodesController]:
    leader = run.node(**given)
    assert run.leads(leader)
    other = run.node(**given)
    assert not run.leads(other)
    return leader, other


def test_two_nodes_begin_from_one_checkpoint_under_one_fence(run: Run) -> None:
    run.in_s3 = {4: True, 8: True}
    leader, other = two(run, at_most=2)
    first, second = worlds(leader, other)
    assert first == replace(second, place=0)
    assert (second.place, second.step, second.hosts) == (1, 8, (ADDRESS, ADDRESS))
    record = run.records.read()
    assert record.world == ("i-0", "i-1")
    assert [node.instance for node in record.nodes] == ["i-0", "i-1"]
    assert record.fence == first.fence
    assert record.lease is not None
    assert record.lease.address == ADDRESS
    assert copies_of(leader).happened == [("brought", 8, 2, True), ("claimed", (1, first.fence), 8), "started"]
    assert copies_of(other).happened == [("brought", 8, 2, False), "started"]
    written = json.loads((run.folder / "i-1/input/config/resourceconfig.json").read_text())
    assert written == {
        "current_host": ADDRESS,
        "hosts": [ADDRESS, ADDRESS],
        "current_instance_type": "g5.xlarge",
        "network_interface_name": "lo",
    }
    assert [event["event"] for event in run.events] == ["node-joined", "world-began"]


def test_a_first_world_may_wait_for_all_nodes_for_longer_than_a_larger_one_for_more(run: Run) -> None:
    times = replace(TIMES, settle=0.0, first=1e6)
    leader = run.node(at_most=2, times=times)
    assert run.leads(leader)
    assert leader._leading is not None
    assert leader._leading.begin(lambda _: None) is None
    other = run.node(at_most=2, times=times)
    assert not run.leads(other)
    assert [len(each.hosts) for each in worlds(leader, other)] == [2, 2]


@pytest.mark.parametrize("factor", [1.0, 20.0])
def test_the_wait_before_a_first_world_is_shortened_with_all_times_unless_it_is_given(factor: float) -> None:
    scaled = NodesTimes.scaled(factor)
    assert scaled.first == scaled.settle == NodesTimes().first / factor
    assert NodesTimes.scaled(factor, first=900.0) == replace(scaled, first=900.0)


def test_a_checkpoint_that_a_node_cannot_bring_is_passed_over_by_all(run: Run) -> None:
    run.in_s3 = {4: True, 8: False}
    leader, other = two(run, at_most=2)
    first, second = worlds(leader, other)
    assert first.step == second.step == 4
    assert [event["step"] for event in run.events if event["event"] == "world-began"] == [8, 4]
    assert ("claimed", (1, first.fence - 1), 8) not in copies_of(leader).happened


def test_a_checkpoint_that_is_removed_before_its_world_begins_is_chosen_anew_by_the_next_one(run: Run) -> None:
    run.in_s3 = {8: True}
    leader, other = two(run)
    copies_of(leader).removed = {8}
    with ThreadPoolExecutor(1) as pool:
        began = pool.submit(leader.begin, should_leave=stays())
        assert isinstance(first := other.begin(should_leave=stays()), World)
        attended(other, lambda: other.attend(has_stepped=False))
        end(other)
        assert isinstance(second := other.begin(should_leave=stays()), World)
        assert isinstance(world := began.result(), World)
    assert (world.fence, world.step) == (second.fence, 8)
    assert first.fence < second.fence
    assert [each for each in copies_of(leader).happened if each[0] == "claimed"] == [("claimed", (1, world.fence), 8)]


def test_the_files_of_other_nodes_are_asked_for_and_counted(run: Run) -> None:
    leader, other = two(run, at_most=2)
    worlds(leader, other)
    copies_of(leader).ask(6, "step-6-1.2.1")
    attended(other, lambda: ("sends", "step-6-1.2.1") in copies_of(other).happened)
    attended(leader, lambda: ("others have sent", 6, False) in copies_of(leader).happened)
    copies_of(leader).over = threading.Event()
    copies_of(leader).ask(6, "step-6-1.2.1")
    assert ("others have sent", 6, True) not in copies_of(leader).happened
    other.leave(why="notice", taken=True, seconds_left=left())
    attended(leader, lambda: ("others have sent", 6, True) in copies_of(leader).happened)


def test_the_end_of_a_world_is_known_to_the_leader_and_the_next_one_begins_at_once(run: Run) -> None:
    leader, other = two(run, at_most=3)
    worlds(leader, other)
    end(other)
    assert end(leader).kind == INTERRUPTED
    copies_of(leader).over.set()
    assert leader.finish_copies(left(), exit_code=75, goes_on=True)
    assert other.finish_copies(left(), exit_code=75, goes_on=True)
    run.in_s3[6] = True
    again, _ = worlds(leader, other)
    assert again.step == 6
    assert run.events[-1]["nodes"] == ["i-0", "i-1"]


def test_a_node_that_hangs_while_it_brings_a_checkpoint_is_gone_though_it_gives_signs_of_life(run: Run) -> None:
    run.in_s3[4] = True
    leader, other = two(run, at_most=2, times=replace(TIMES, stall=0.5))
    copies_of(other).goes_on.clear()
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(other.begin, should_leave=stays())
        [world] = worlds(leader)
        assert world.hosts == (ADDRESS,)
        assert run.records.read().world == ("i-0",)
        left_at = next(each for each in run.events if each["event"] == "node-left")
        assert left_at["reason"].startswith("its connection is over: it has brought no more of the checkpoint for ")
        copies_of(other).goes_on.set()
        hanging.result()
    attended(other, lambda: other.attend(has_stepped=False) is not None)


@pytest.mark.long
def test_a_leader_that_hangs_while_it_brings_a_checkpoint_leads_no_more_though_its_agent_lives(run: Run) -> None:
    run.in_s3[4] = True
    leader, other = two(run, at_most=2, lease_seconds=6.0, times=replace(TIMES, stall=0.5))
    copies_of(leader).goes_on.clear()
    with ThreadPoolExecutor(2) as pool:
        hanging = pool.submit(leader.begin, should_leave=stays())
        first = pool.submit(other.begin, should_leave=stays()).result()
        assert first.hosts == (ADDRESS, ADDRESS)
        attended(other, lambda: other.attend(has_stepped=False) is not None)
        end(other)
        other.finish_copies(left(), exit_code=75, goes_on=True)
        [world] = worlds(other)
        assert world.hosts == (ADDRESS,)
        assert world.fence > first.fence
        copies_of(leader).goes_on.set()
        attended(other, lambda: len(run.records.read().nodes) == 2)
        other.leave(why="it is taken", taken=True, seconds_left=left())
        again = hanging.result()
    assert isinstance(again, World)
    assert again.fence > world.fence
    claimed = [each for each in copies_of(leader).happened if each[0] == "claimed"]
    assert claimed == [("claimed", (1, again.fence), 4)]


@pytest.mark.parametrize(("kind", "found"), [(DONE, DONE), (FAILED, FAILED)])
def test_a_failure_on_another_node_is_that_of_the_run(run: Run, kind: str, found: str) -> None:
    leader, other = two(run, at_most=2)
    worlds(leader, other)
    end(other, kind, 0 if kind == DONE else 3, "" if kind == DONE else "ValueError: no")
    ended = end(leader, DONE, 0)
    assert ended.kind == found
    assert ended.failure == ("" if kind == DONE else f"on {ADDRESS}: ValueError: no")


def test_a_node_that_is_lost_ends_the_world_without_a_save(run: Run) -> None:
    leader, other = two(run, at_most=2)
    worlds(leader, other)
    other.leave(why="S3 cannot be read", failed=True, seconds_left=left())
    attended(leader, lambda: len(run.records.read().nodes) == 1)
    ending = leader.attend(has_stepped=True)
    assert ending is not None
    assert (ending.saves, ending.why) == (False, f"{ADDRESS} is gone")
    record = run.records.read()
    assert (record.setbacks, record.problem) == (1, "S3 cannot be read")
    assert end(leader, FAILED, 1, "connection reset").kind == INTERRUPTED


def test_a_node_that_ec2_takes_is_counted_as_an_interruption(run: Run) -> None:
    leader, other = two(run, at_most=2)
    worlds(leader, other)
    end(other)
    other.leave(why="notice: EC2 terminate", taken=True, seconds_left=left())
    attended(leader, lambda: run.records.read().training.interruptions)
    assert [each.instance for each in run.records.read().training.noticed] == ["i-1"]
    assert run.events[-1] == {"event": "node-left", "instance": "i-1", "reason": "notice: EC2 terminate"}


def test_nodes_that_cannot_train_end_the_run_after_some_for_each_place(run: Run) -> None:
    leader = run.node(at_most=2)
    assert run.leads(leader)
    for number in range(2 * MOST_SETBACKS):
        node = run.node(at_most=2)
        assert not run.leads(node)
        assert run.records.read().training.state != INPUT_ERROR
        node.leave(why="no driver", failed=True, seconds_left=left())
        attended(leader, partial(run.has_set_back, number + 1))
    assert run.records.read().training.state == INPUT_ERROR
    found = leader.begin(should_leave=stays())
    assert isinstance(found, Leaving)
    assert found.why == "the training has failed"


def test_input_that_works_on_no_node_is_a_matter_of_the_leader(run: Run) -> None:
    leader, other = two(run, at_least=2)
    other.refuse("the source does not exist")
    with pytest.raises(InputError, match=f"on {ADDRESS}: the source does not exist"):
        leader.begin(should_leave=stays())


def test_a_leader_that_leaves_gives_its_lease_back_and_another_node_goes_on(run: Run) -> None:
    leader, other = two(run, at_most=2)
    first, _ = worlds(leader, other)
    end(other)
    end(leader)
    copies_of(leader).over.set()
    leader.finish_copies(left(), exit_code=75, goes_on=True)
    other.finish_copies(left(), exit_code=75, goes_on=True)
    leader.leave(why="notice", taken=True, seconds_left=left())
    [second] = worlds(other)
    assert second.fence > first.fence
    assert run.records.read().world == ("i-1",)


def test_a_leader_whose_lease_another_node_has_ends_its_world_and_connects_to_that_node(run: Run) -> None:
    old, other = two(run, at_most=2)
    worlds(old, other)
    record = run.records.read()
    following = replace(record, fence=99, lease=Lease("i-9", 99, 1.0, address=ADDRESS), version=record.version + 1)
    run.records.text = encode(following)
    with pytest.raises(Exception, match="another instance has the lease"):
        old.write(lambda given: given)
    ending = old.attend(has_stepped=True)
    assert ending is not None
    assert not ending.saves
    attended(other, lambda: other.attend(has_stepped=True) is not None)
    end(other)
    end(old)
    names = NodeNames(run="r", attempt=1, launch="feed", instance="i-9", address=ADDRESS)
    old.finish_copies(lambda: 0.0, exit_code=75, goes_on=True)
    old._find_role(lambda: None if old._leading is not None else "it leads no more")
    server = NodeServer(names, key=KEY, listener=listening(ADDRESS, port=run.port), silent_seconds=60)
    try:
        assert not run.leads(old)
    finally:
        server.close()


@pytest.mark.parametrize("known_by", ["its machine", "EC2", "its lease"])
def test_a_leader_that_is_gone_is_replaced(run: Run, known_by: str) -> None:
    """Its machine refuses connections, or EC2 says that it is gone, or its lease stays unchanged for its time."""
    leader, other = two(run, at_most=2, lease_seconds=1.0 if known_by == "its lease" else TIMES.lease)
    first, _ = worlds(leader, other)
    assert leader._leading is not None
    assert other._following is not None
    if known_by != "its machine":
        other._following._connection.happened.put(Lost("i-0", "nothing came from it for 15 s"))
        attended(other, lambda: other.attend(has_stepped=True) is not None)
    leader._leading.close()  # Its connections are over, it renews its lease no more, and gives it to no node.
    attended(other, lambda: other.attend(has_stepped=True) is not None)
    end(other)
    assert other.finish_copies(left(), exit_code=137, goes_on=True)
    if known_by == "EC2":
        run.records.gone = {"i-0"}
    [second] = worlds(other)
    assert second.fence > first.fence
    assert run.records.read().world == ("i-1",)
    run.nodes.remove(leader)


def test_a_silent_leader_that_ec2_has_ended_is_not_waited_for_again(run: Run) -> None:
    """Its address may take no connection and refuse none. Here it would take one."""
    leader = run.node(at_most=2)
    assert run.leads(leader)
    other = run.node(at_most=2, address="127.0.0.2")
    assert not run.leads(other)
    worlds(leader, other)
    assert other._following is not None
    other._following._connection.happened.put(Lost("i-0", "nothing came from it for 15 s"))
    attended(other, lambda: other.attend(has_stepped=True) is not None)
    run.records.gone = {"i-0"}
    end(other)
    assert other.finish_copies(left(), exit_code=137, goes_on=True)
    assert run.leads(other)
    lease = run.records.read().lease
    assert lease is not None
    assert lease.holder == "i-1"


def test_a_leader_that_drops_a_node_and_lives_is_connected_to_again(run: Run) -> None:
    leader, other = two(run, at_most=2)
    worlds(leader, other)
    assert other._following is not None
    other._following._connection.happened.put(Lost("i-0", "the other end has closed it", is_closed=True))
    attended(other, lambda: other.attend(has_stepped=True) is not None)
    assert not run.leads(other)
    assert run.records.read().fence == leader.fence


@pytest.mark.parametrize("change", [{"stop_requested": True}, {"ended": True}])
def test_a_run_that_is_over_is_over_for_each_node(run: Run, change: dict[str, Any]) -> None:
    leader, other = two(run, at_least=2)
    record = run.records.read()
    run.records.text = encode(replace(record, **change, version=record.version + 1))
    leader.write(lambda given: given)
    leaving = leader.begin(should_leave=stays())
    assert isinstance(leaving, Leaving)
    leader.leave(why=leaving.why, seconds_left=left())
    found = other.begin(should_leave=stays())
    assert isinstance(found, Leaving)
    assert found.why == leaving.why


@pytest.mark.parametrize("leads", [False, True])
def test_why_a_run_is_over_stands_in_the_record_before_the_leader_says_it(run: Run, leads: bool) -> None:
    leader, other = two(run, at_least=2)
    node = leader if leads else other
    assert node.why_over() is None
    record = run.records.read()
    finished = replace(record, training=TrainingReport(state="finished"), version=record.version + 1)
    run.records.text = encode(finished)
    leader.write(lambda given: given)
    assert node.why_over() == "the training has finished"


def test_a_node_whose_record_cannot_be_reached_knows_of_no_end(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    _, other = two(run, at_least=2)

    def unreachable() -> None:
        raise AwsUnavailableError("no answer")

    monkeypatch.setattr(run.records, "read", unreachable)
    assert other.why_over() is None


def test_a_node_that_comes_after_the_end_has_nothing_to_do(run: Run) -> None:
    record = run.records.read()
    run.records.text = encode(replace(record, training=TrainingReport(state="finished")))
    found = run.node().begin(should_leave=stays())
    assert found == Leaving("the training has finished")
    assert decode(run.records.text).lease is None


def test_a_port_that_another_program_has_is_a_fault_of_this_node(run: Run) -> None:
    names = NodeNames(run="another", attempt=1, launch="", instance="i-9", address=ADDRESS)
    server = NodeServer(names, key=KEY, listener=listening(ADDRESS, port=run.port))
    try:
        with pytest.raises(NodePortError, match=f"port {run.port} of {ADDRESS}"):
            run.leads(run.node())
    finally:
        server.close()


def test_a_node_says_that_it_has_booted_before_it_brings_its_data(run: Run) -> None:
    leader, other = two(run)
    assert other.bring(should_leave=stays()) is None
    assert run.records.read().booted == ("i-1",)
    assert leader.holds_lease


def test_a_node_of_a_run_that_is_over_brings_nothing(run: Run) -> None:
    late = run.node()
    run.records.text = encode(replace(run.records.read(), stop_requested=True))
    assert late.bring(should_leave=stays()) == Leaving("the run is asked to stop")


def test_a_world_that_trains_loses_no_step_by_a_node_that_finds_its_input_wrong(run: Run) -> None:
    leader, other = two(run, at_most=3)
    worlds(leader, other)
    joining = run.node(at_most=3)
    assert not run.leads(joining)
    joining.refuse("channel train cannot be mounted: access denied")
    ends, ending = time.monotonic() + LONG_SECONDS, None
    while leader._leading is not None and leader._leading.refused is None and time.monotonic() < ends:
        ending = leader.attend(has_stepped=True)
        time.sleep(0.01)
    ending = leader.attend(has_stepped=True)
    assert ending is None or ending.saves, ending


def test_a_node_that_has_brought_long_ago_is_not_given_up_by_a_leader_that_brings_for_longer(run: Run) -> None:
    """The leader takes in what others say only after it has brought the checkpoint itself."""
    run.in_s3 = {8: True}
    leader, other = two(run, at_least=2, at_most=2, times=replace(TIMES, stall=0.5))
    copies_of(leader).goes_on.clear()
    with ThreadPoolExecutor(2) as pool:
        began = [pool.submit(node.begin, should_leave=stays()) for node in (leader, other)]
        while ("brought", 8, 2, False) not in copies_of(other).happened:
            time.sleep(0.01)
        time.sleep(1.0)
        copies_of(leader).goes_on.set()
        assert isinstance(began[0].result(), World)
    time.sleep(1.0)
    assert leader.attend(has_stepped=False) is None
    assert [event["event"] for event in run.events] == ["node-joined", "world-began"]


def test_a_node_whose_port_is_taken_counts_as_one_that_cannot_train(run: Run) -> None:
    node = run.node()
    with listening(ADDRESS, port=run.port):
        with pytest.raises(NodePortError):
            node.begin(should_leave=stays())
        node.leave(why="its port is taken", failed=True, seconds_left=left())
    record = run.records.read()
    assert (record.setbacks, record.problem, record.lease) == (1, "its port is taken", None)
    run.nodes.clear()
