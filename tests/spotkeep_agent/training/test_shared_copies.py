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

from spotkeep.errors import LockLostError

from .nodes import Run, make_quick


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
    assert [node.copies.brought_bytes for node in run.nodes] == [0, 0, 0, 0]
    assert run.arrived(1)
    assert run.whole_in_s3() == {"step-1-1.1.2": True}


def test_the_leader_alone_sends_the_files_of_all_and_the_others_wait_for_nothing(run: Run) -> None:
    leader, *others = run.nodes
    run.begin(run.nodes)
    for node in others:
        node.copies._objects._client.put_object = None
    run.save(1)
    run.offer(1)
    assert run.arrived(1)
    assert run.whole_in_s3() == {"step-1-1.1.2": True}
    run.save(2)
    assert all(node.copies.finish(lambda: 60.0, exit_code=75, goes_on=True) for node in (*others, leader))
    assert run.whole_in_s3()["step-2-1.1.2"]


def test_what_a_world_without_the_lock_writes_is_never_read_and_never_in_s3(run: Run) -> None:
    old, *others = run.nodes
    run.begin(run.nodes)
    run.save(1)
    run.offer(1)
    assert run.arrived(1)
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
    run.save(1)
    run.offer(1)
    assert run.arrived(1)
    run.end()
    shutil.rmtree(run.nodes[0].root / "checkpoints")
    assert run.begin(run.nodes) == 1
    brought = [node.copies.brought_bytes for node in run.nodes]
    assert brought[0] > 0
    assert brought[1:] == [0, 0]
    assert run.nodes[1].folders() == {"step-1-1.1.2"}


def test_damage_in_s3_costs_nothing_that_the_folder_has(run: Run) -> None:
    run.begin(run.nodes)
    run.save(1)
    run.offer(1)
    assert run.arrived(1)
    run.end()
    for key in [each for each in run.stored.objects if each.endswith("manifest.json")]:
        run.stored.objects[key] = (b"torn", run.stored.objects[key][1])
    assert run.begin(run.nodes) == 1


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
