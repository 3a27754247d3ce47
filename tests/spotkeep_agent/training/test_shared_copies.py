"""Checkpoints of several nodes in one folder: a world reads what the last one wrote, and S3 has copies of it."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotkeep.disk.retention import Retention
from spotkeep.errors import LockLostError

from .nodes import PREFIX, Run, make_quick, train, wait_for


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        make_quick(patch)
        # A node that dies ends its threads with its death.
        patch.setattr(threading, "excepthook", lambda _: None)
        yield


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path, nodes=3, is_shared=True)
    yield run
    run.close()


def test_a_world_goes_on_from_what_s3_never_had_and_brings_it_there(run: Run) -> None:
    leader, *others = run.nodes
    assert run.begin(run.nodes) is None
    run.save(1)
    leader.die()
    assert run.whole_in_s3() == {}
    new = run.join()
    assert run.begin([others[1], others[0], new]) == 1
    assert [node.copies.brought_bytes for node in run.nodes] == [0, 0, 300, 0], "the leader alone verifies"
    assert run.arrived(1)
    assert run.whole_in_s3() == {"step-1-1.1.2": True}


def test_the_leader_alone_sends_the_files_of_all_and_the_others_wait_for_nothing(run: Run) -> None:
    leader, *others = run.nodes
    run.begin(run.nodes)
    for node in others:
        node.copies._objects._client.put_object = None
    train(run, 1)
    assert run.whole_in_s3() == {"step-1-1.1.2": True}
    run.save(2)
    assert all(node.copies.finish(lambda: 60.0, exit_code=75, goes_on=True) for node in (*others, leader))
    assert run.whole_in_s3()["step-2-1.1.2"]


def test_what_a_world_without_the_lock_writes_is_never_read_and_never_in_s3(run: Run) -> None:
    old, *others = run.nodes
    run.begin(run.nodes)
    train(run, 1)
    assert run.form(others, is_split=True) == 1
    run.save(5, world=[old])
    assert others[0].copies.newest_whole() == 1
    run.restore(1)
    old.copies.offer(5)
    old.copies.finish(lambda: 900.0, exit_code=75, goes_on=True)
    run.save(2)
    run.save(6, world=[old])
    assert others[0].copies.newest_whole() == 2
    assert others[1].library.steps() == [2, 1]
    with pytest.raises(LockLostError):
        old.copies.claim((1, 1), step=5)
    run.end()
    assert run.begin([*others, run.join()]) == 2
    assert run.whole_in_s3() == {"step-1-1.1.2": True, "step-2-1.2.2": True}


def test_a_folder_that_is_lost_comes_back_from_s3_once(run: Run) -> None:
    run.begin(run.nodes)
    train(run, 1)
    run.end()
    shutil.rmtree(run.nodes[0].root / "checkpoints")
    assert run.begin(run.nodes) == 1
    brought = [node.copies.brought_bytes for node in run.nodes]
    assert brought[0] > 0
    assert brought[1:] == [0, 0]
    assert run.nodes[1].folders() == {"step-1-1.1.2"}


def test_damage_in_s3_costs_nothing_that_the_folder_has(run: Run) -> None:
    run.begin(run.nodes)
    train(run, 1)
    run.end()
    for key in [each for each in run.stored.objects if each.endswith("manifest.json")]:
        run.stored.objects[key] = (b"torn", run.stored.objects[key][1])
    assert run.begin(run.nodes) == 1


def folder_of(run: Run) -> Path:
    return run.nodes[0].root / "checkpoints"


def test_a_folder_that_is_lost_gets_the_files_of_the_script_back(run: Run) -> None:
    run.begin(run.nodes)
    (folder_of(run) / "log.csv").write_text("1")
    train(run, 1)
    assert run.end(exit_code=75)
    assert run.stored.objects[f"{PREFIX}log.csv"][0] == b"1"
    shutil.rmtree(folder_of(run))
    assert run.begin([run.join(), *run.nodes[:2]]) == 1
    assert (folder_of(run) / "log.csv").read_text() == "1"


def test_a_world_sends_no_file_of_the_script_again(run: Run) -> None:
    run.begin(run.nodes)
    (folder_of(run) / "log.csv").write_text("1")
    train(run, 1)
    assert run.end(exit_code=75)
    sent = run.nodes[0].operations.count("PutObject")
    run.begin(run.nodes)
    assert run.end(exit_code=75)
    assert run.nodes[0].operations.count("PutObject") == sent + 1, "the note of the writer alone"


def test_a_file_that_the_script_removed_between_two_worlds_goes_from_s3(run: Run) -> None:
    run.begin(run.nodes)
    (folder_of(run) / "model-1.bin").write_text("1")
    wait_for(lambda: f"{PREFIX}model-1.bin" in run.stored.objects)
    run.end(exit_code=75)
    run.begin(run.nodes)
    (folder_of(run) / "model-1.bin").unlink()
    assert run.end(exit_code=0)
    assert f"{PREFIX}model-1.bin" not in run.stored.objects


def test_damage_in_the_folder_costs_nothing_that_s3_has(run: Run) -> None:
    run.begin(run.nodes)
    train(run, 1)
    run.end()
    (file,) = folder_of(run).glob("step-1-*/data-00001.bin")
    raw = file.read_bytes()
    file.write_bytes(bytes([raw[0] ^ 1]) + raw[1:])
    assert run.begin(run.nodes) == 1


def test_damage_that_s3_cannot_mend_costs_the_steps_since_the_checkpoint_before(run: Run) -> None:
    run.begin(run.nodes)
    train(run, 1)
    run.nodes[0].die()
    run.save(2)
    for file in folder_of(run).glob("step-*/data-00001.bin"):
        file.write_bytes(b"." * file.stat().st_size)
    assert run.begin([run.join(), *run.nodes[1:3]]) == 1
    assert run.whole_in_s3()["step-1-1.1.2"]


def test_a_world_goes_on_from_the_newest_checkpoint_where_one_without_the_lease_has_removed_the_chosen_one(
    run: Run,
) -> None:
    """It saves and prunes while the next one is formed."""
    old, *others = run.nodes
    run.begin([old])
    for step in (1, 2):
        run.save(step)
    run.fence += 1
    leader = others[0]
    assert leader.copies.newest_whole() == 2
    for node in others:
        node.copies.bring(2, nodes=2, leads=node is leader)
    for step in (3, 4):
        run.save(step, world=[old])
        old.library.prune(Retention(last=2))
    leader.copies.claim((1, run.fence), step=2)
    assert leader.library.steps()[0] == 4
    for step in (5, 6):
        run.save(step, world=[old])
        assert old.library.prune(Retention(last=2)) == []
    assert leader.library.steps()[0] == 4


def test_s3_takes_no_manifest_of_a_world_that_was_replaced_while_it_sent(run: Run) -> None:
    old, *others = run.nodes
    run.begin([old])
    train(run, 1)
    leader = others[0]
    run.fence += 1
    assert leader.copies.newest_whole() == 1
    held = threading.Event()
    run.save(2, world=[old])
    old.hang_after(0, until=held)
    old.copies.offer(2)
    assert old.hung.wait(60)
    for node in others:
        node.copies.bring(1, nodes=2, leads=node is leader)
    leader.copies.claim((1, run.fence), step=1)
    held.set()
    old.copies.finish(lambda: 60.0, exit_code=75, goes_on=True)
    assert "step-2-1.1.2" not in run.whole_in_s3()


@given(worlds=st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=5))
@settings(deadline=None, max_examples=30)
def test_each_world_goes_on_from_the_newest_step_that_any_world_saved(worlds: list[tuple[int, bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run, newest = Run(Path(folder), nodes=2, is_shared=True), None
        try:
            for saves, dies in worlds:
                assert run.begin([run.nodes[-1], run.nodes[-2]]) == newest
                for _ in range(saves):
                    newest = 1 if newest is None else newest + 1
                    run.save(newest)
                if dies:
                    run.world[0].die()
                    run.join()
                    run.join()
                else:
                    assert run.end()
            assert all(run.whole_in_s3().values())
        finally:
            run.close()
