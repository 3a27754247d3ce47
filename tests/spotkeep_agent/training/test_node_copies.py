"""Checkpoints of several nodes come together in S3, and come back to each node, whatever dies in the middle."""

from __future__ import annotations

import random
import tempfile
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotkeep.disk.retention import Retention
from spotkeep.errors import LockLostError
from spotkeep_agent.aws.calls import AwsCalls
from spotkeep_agent.aws.object_store import objects_of
from spotkeep_agent.errors import InputError
from spotkeep_agent.training import checkpoint_copies
from tests.models.faults import ProcessDiedError

from .nodes import PREFIX, Node, Run, make_quick, train, wait_for

KEPT = Retention(last=2)


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        make_quick(patch)
        # A node that dies ends its threads with its death.
        patch.setattr(threading, "excepthook", lambda _: None)
        yield


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path, nodes=3)
    yield run
    run.close()


def hold(node: Node, call: str, *, at: str) -> threading.Event:
    """Let a node hang in a call for a key or a prefix, until the event is set."""
    client = node.copies._objects._client
    make, held = getattr(client, call), threading.Event()

    def wait(**asked: Any) -> Any:
        if (asked.get("Key") or asked.get("Prefix")).endswith(at):
            node.hung.set()
            held.wait(60)
        return make(**asked)

    setattr(client, call, wait)
    return held


def test_a_manifest_stands_for_the_files_of_every_node(run: Run) -> None:
    assert run.begin(run.nodes, retention=KEPT) is None
    train(run, 1, 2, 3)
    assert run.end()
    assert run.whole_in_s3() == {"step-2-1.1.2": True, "step-3-1.1.2": True}
    assert run.begin(run.nodes) == 3


def test_a_node_that_joins_brings_the_whole_step_and_one_that_stayed_the_missing_files(run: Run) -> None:
    run.begin(run.nodes)
    train(run, 1)
    run.end()
    asked: dict[str, list[str]] = {}
    new = run.join()
    world = [run.nodes[1], run.nodes[0], new]
    for node in world:
        get = node.copies._fetching._client.get_object
        node.copies._fetching._client.get_object = lambda name=node.name, get=get, **wanted: (
            asked.setdefault(name, []).append(wanted["Key"].rpartition("/")[2]),
            get(**wanted),
        )[1]
    assert run.begin(world) == 1
    fetched = {name: {key for key in keys if key.startswith("data-")} for name, keys in asked.items()}
    everything = {f"data-0000{number}.bin" for number in range(3)}
    assert fetched == {
        "i-1": everything - {"data-00000.bin"},
        "i-2": everything - {"data-00001.bin"},
        "i-4": everything,
    }


def test_a_newer_checkpoint_that_is_on_disks_alone_is_read_by_no_later_world(run: Run) -> None:
    run.begin(run.nodes)
    train(run, 1)
    run.save(2)
    run.nodes[2].die()
    run.offer(2)
    assert not run.end(), "the lost node alone has a file of it"
    assert run.begin(run.nodes[:2]) == 1
    train(run, 2)
    assert run.end()
    assert run.whole_in_s3() == {"step-1-1.1.2": True, "step-2-1.2.2": True}


def test_the_end_of_a_world_waits_for_all_nodes_but_not_for_one_that_is_gone(run: Run) -> None:
    run.begin(run.nodes)
    run.save(1)
    run.offer(1)
    assert run.end()
    assert run.durable == {1}
    run.begin(run.nodes)
    run.save(2)
    run.nodes[1].die_after(0)
    run.offer(2)
    assert not run.end()
    assert run.begin([run.nodes[2], run.nodes[0]]) == 1


def test_a_leader_of_an_older_world_uploads_no_manifest(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    old, *others = run.nodes
    run.begin(run.nodes)
    train(run, 1)
    held = hold(old, "_list_objects_v2", at="writers-")
    run.save(2)
    run.offer(2)
    assert old.hung.wait(60), "before it asks for its lock, with all files in S3"
    run.end()
    assert run.begin(others) == 1
    held.set()
    wait_for(lambda: "the checkpoint of step 2 has not reached S3: " in caplog.text)
    assert run.whole_in_s3() == {"step-1-1.1.2": True}
    train(run, 2)
    run.end()
    with pytest.raises(LockLostError):
        old.copies.claim((1, 1), step=1)
    assert run.begin([*others, run.join()]) == 2


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_replaced_leader_does_not_wait_for_copies_that_s3_takes_no_more(run: Run, nodes: int) -> None:
    """It has a quarter of an hour to finish its copies, and would take part in no world meanwhile."""
    old, *others = run.nodes
    run.form(run.nodes[:nodes])
    run.restore(None)
    run.save(1)
    run.form(others, is_split=True)
    ended: list[bool] = []

    def finish() -> None:
        ended.append(old.copies.finish(lambda: 900.0, exit_code=75, goes_on=True))

    threading.Thread(target=finish, daemon=True).start()
    wait_for(lambda: bool(ended))
    assert ended == [False]
    assert run.whole_in_s3() == {}


def test_a_manifest_that_a_replaced_leader_was_just_sending_is_never_read(run: Run) -> None:
    """It has asked for its lock before the next world's note is there, and writes after it."""
    old, *others = run.nodes
    run.begin(run.nodes)
    train(run, 1)
    held = hold(old, "put_object", at="manifest.json")
    run.save(5)
    run.offer(5)
    assert old.hung.wait(60)
    run.end()
    assert run.begin(others) == 1
    held.set()
    wait_for(lambda: "step-5-1.1.2" in run.whole_in_s3())
    assert run.durable == {1}, "it is not reported, for the lease is another node's"
    run.end()
    assert run.begin(others) == 1


def test_a_manifest_that_the_same_leader_was_just_sending_for_its_last_world_is_not_reported(run: Run) -> None:
    leader = run.nodes[0]
    run.begin(run.nodes)
    train(run, 1)
    held = hold(leader, "put_object", at="step-5-1.1.2/manifest.json")
    run.save(5)
    run.offer(5)
    assert leader.hung.wait(60)
    last = leader.copies._upload
    run.wake()
    assert run.begin(run.nodes) == 1
    held.set()
    assert last._thread is not None
    last._thread.join(60)
    assert run.whole_in_s3()["step-5-1.1.2"]
    assert run.durable == {1}
    run.end()
    assert run.begin(run.nodes) == 1


def test_nodes_share_a_bucket_of_the_local_aws(tmp_path: Path, local_aws: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the agent's own requests, conditions, and files in several parts."""
    monkeypatch.setattr(checkpoint_copies, "objects_of", objects_of)
    bucket = f"nodes-{uuid.uuid4().hex[:8]}"
    local_aws.session().client("s3").create_bucket(Bucket=bucket)
    calls = AwsCalls(region="us-east-1", environment=local_aws.environment())
    run = Run(tmp_path, nodes=2, bucket=bucket, calls=calls)
    try:
        assert run.begin(run.nodes, retention=KEPT) is None
        for step in (1, 2, 3):
            run.save(step, size=9 * 2**20)
            run.offer(step)
            assert run.arrived(step)
        assert run.end()
        assert run.begin([run.nodes[1], run.join()]) == 3
        assert run.nodes[0].copies._fetched.steps() == [3, 2]
    finally:
        run.close()


@pytest.mark.parametrize("place", ["S3", "the disk", "S3, and a node has it whole"])
def test_damage_falls_back_to_the_older_step_on_all_nodes_or_is_mended(run: Run, place: str) -> None:
    run.begin(run.nodes)
    train(run, 1, 2)
    run.end()
    key = "step-2-1.1.2/data-00001.bin"
    if place == "the disk":
        (run.nodes[1].root / "checkpoints" / key).write_bytes(b"damaged".ljust(100))
        assert run.begin(run.nodes) == 2
        return
    raw, labels = run.stored.objects[PREFIX + key]
    run.stored.objects[PREFIX + key] = (b"!" + raw[1:], labels)
    assert run.begin([run.nodes[1]] if "a node" in place else run.nodes) == (2 if "a node" in place else 1)


def test_a_checkpoint_of_which_s3_lacks_a_file_is_not_named(run: Run) -> None:
    run.begin(run.nodes)
    train(run, 1, 2)
    run.end()
    del run.stored.objects[f"{PREFIX}step-2-1.1.2/data-00002.bin"]
    assert run.begin(run.nodes) == 1


def test_a_run_whose_checkpoints_are_all_damaged_does_not_begin_anew(run: Run) -> None:
    run.begin(run.nodes)
    train(run, 1, 2)
    run.end()
    for step in (1, 2):
        key = f"{PREFIX}step-{step}-1.1.2/manifest.json"
        run.stored.objects[key] = (b"{}", run.stored.objects[key][1])
    with pytest.raises(InputError, match=r"checkpoints of the steps 2, 1, and none of them can be used"):
        run.begin([run.nodes[1], run.join()])


def test_a_note_that_s3_never_had_counts_on_no_disk(run: Run) -> None:
    """The library of one world fell back to nothing, and that world ended before it saved anything."""
    run.begin(run.nodes)
    train(run, 1)
    run.end()
    run.begin(run.nodes)
    library = run.nodes[0].library
    library.begin((1, 2), step=None)
    assert library.steps() == []
    run.end()
    assert run.begin(run.nodes) == 1


def test_of_checkpoints_that_wait_the_newest_is_next_on_all_nodes(run: Run) -> None:
    run.begin(run.nodes, retention=Retention(last=2, every=2))
    held = hold(run.nodes[0], "put_object", at="step-1-1.1.2/data-00000.bin")
    for step in (1, 2, 3, 5):
        run.save(step)
        run.offer(step)
        assert run.nodes[0].hung.wait(60), "in the middle of the first one"
    held.set()
    run.nodes[0].hung.clear()
    assert run.arrived(5)
    assert run.arrived(2), "the retention keeps it, so it follows"
    assert 3 not in run.durable
    run.end()
    assert all(run.whole_in_s3().values())


def test_files_of_the_script_come_from_the_leader_that_was_the_last(run: Run) -> None:
    def write(leader: int, text: str) -> Path:
        path = run.nodes[leader].root / "checkpoints" / "log.csv"
        path.write_text(text)
        return path

    one, other = run.nodes[:2]
    run.begin([one, other])
    write(0, "1")
    write(1, "of another rank")
    assert run.end(exit_code=0)
    assert run.stored.objects[f"{PREFIX}log.csv"][0] == b"1"
    run.begin([other, one])
    assert (other.root / "checkpoints/log.csv").read_text() == "1"
    write(1, "1, 2")
    assert run.end(exit_code=0)
    run.begin([one, other])
    assert (one.root / "checkpoints/log.csv").read_text() == "1, 2"
    assert run.end(exit_code=0)
    assert run.stored.objects[f"{PREFIX}log.csv"][0] == b"1, 2"


def test_a_replaced_leader_leaves_the_files_of_the_script_to_the_next_one(run: Run) -> None:
    old, *others = run.nodes
    kept, dropped = (old.root / "checkpoints" / name for name in ("log.csv", "draft.csv"))
    run.form([old])
    run.restore(None)
    for path in (kept, dropped):
        path.write_text("1")
        wait_for(lambda path=path: f"{PREFIX}{path.name}" in run.stored.objects)
    run.form(others, is_split=True)
    kept.write_text("1, and what the old leader adds")
    dropped.unlink()
    assert not old.copies.finish(lambda: 60.0, exit_code=0, goes_on=True)
    (others[0].root / "checkpoints" / "log.csv").write_text("1, 2")
    assert run.end(exit_code=0)
    assert run.stored.objects[f"{PREFIX}log.csv"][0] == b"1, 2"
    assert f"{PREFIX}draft.csv" in run.stored.objects


def test_a_world_of_one_node_needs_no_other(run: Run) -> None:
    run.begin(run.nodes[:1])
    train(run, 1)
    assert run.end()
    assert run.begin(run.nodes[1:]) == 1


@pytest.mark.parametrize("name", ["../step-1", "step-1/../..", "step-1-", "", "writers-1.1.1.json"])
def test_another_name_than_that_of_a_checkpoint_is_not_sent(run: Run, name: str) -> None:
    run.begin(run.nodes)
    with pytest.raises(ValueError, match="no checkpoint"):
        run.nodes[1].copies.send_own(name)


@dataclass(frozen=True)
class World:
    """What one world of a history meets.

    Attributes:
        joins: True where a new node comes first.
        size: The most nodes of it.
        order: Decides which nodes are in it, who leads, and in which order they hear of a checkpoint.
        fates: What its nodes meet: nothing, or a death or a hang after so many operations.
        retention: What the script keeps.
        saves: The steps from one checkpoint to the next, each with True to wait until it has arrived.
        seconds: The time for its end.
        wakes: True where those that hang go on after it.
        reboots: True where one that has died comes back before it.
    """

    joins: bool
    size: int
    order: int
    fates: tuple[tuple[str, int], ...]
    retention: Retention | None
    saves: tuple[tuple[int, bool], ...]
    seconds: float
    wakes: bool
    reboots: bool


FATES = st.tuples(st.sampled_from(["stays", "stays", "dies", "hangs"]), st.integers(0, 150))
WORLDS = st.builds(
    World,
    joins=st.booleans(),
    size=st.integers(1, 4),
    order=st.integers(0, 2**32),
    fates=st.tuples(FATES, FATES, FATES, FATES),
    retention=st.sampled_from([None, KEPT]),
    saves=st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=4).map(tuple),
    seconds=st.sampled_from([0.0, 0.01, 60.0]),
    wakes=st.booleans(),
    reboots=st.booleans(),
)


@pytest.mark.long
@given(nodes=st.integers(2, 4), worlds=st.lists(WORLDS, min_size=2, max_size=5))
@settings(deadline=None)
def test_what_a_leader_reported_or_a_newer_one_is_restored_whole_by_the_next_world(
    nodes: int, worlds: list[World]
) -> None:
    """I2 and I3, over histories of two to four nodes that die or hang at any operation, and that join."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), nodes=nodes)
        hanging = threading.Event()
        try:
            for world in worlds:
                live(run, world, hanging)
                if world.wakes:
                    hanging.set()
                    hanging = threading.Event()
                    run.wake()
            # The nodes of the last world show what it has left.
            live(run, World(True, 4, 0, (("stays", 0),) * 4, None, ((1, True),), 60.0, False, False), hanging)
        finally:
            hanging.set()
            run.close()


def live(run: Run, plan: World, hanging: threading.Event) -> None:
    chance = random.Random(plan.order)  # noqa: S311 - not secret
    run.order = lambda members: chance.sample(list(members), len(members))
    dead = [node for node in run.nodes if node.is_dead]
    if dead and plan.reboots:
        run.reboot(dead[0])
    there = [node for node in run.nodes if not node.is_gone]
    if len(there) < 2 or plan.joins:
        there.append(run.join())
    world = chance.sample(there, min(plan.size, len(there)))
    for node, (fate, operations) in zip(world, plan.fates, strict=False):
        if fate == "dies":
            node.die_after(operations)
        elif fate == "hangs":
            node.hang_after(operations, until=hanging)
    before = max(run.durable, default=None)
    try:
        begun = run.begin(world, retention=plan.retention)
    except ProcessDiedError:
        return
    assert before is None or (begun is not None and begun >= before), "nothing that was reported is lost"
    step = begun or 0
    for more, waits in plan.saves:
        if any(node.is_gone for node in world):
            break
        step += more
        run.save(step)
        run.offer(step)
        if waits:
            run.arrived(step)
    run.end(seconds=plan.seconds)


def test_files_of_the_script_count_as_brought_so_that_no_leader_is_taken_for_one_that_hangs(run: Run) -> None:
    run.begin(run.nodes)
    (run.nodes[0].root / "checkpoints" / "model.bin").write_bytes(b"." * 1000)
    assert run.end(exit_code=0)
    run.begin([*run.nodes[1:], run.nodes[0]])
    assert run.nodes[1].copies.brought_bytes >= 1000
