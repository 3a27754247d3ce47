"""One save at a time, beside the training."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.manifest import Progress
from spotkeep.disk.retention import Retention
from spotkeep.disk.staged_state import StagedState
from spotkeep.disk.storage import LocalStorage
from spotkeep.errors import SaveError
from spotkeep.events import TrainingEvents
from spotkeep.notices.notice import NoticeWatch
from spotkeep.remote.second_tier import SecondTier
from spotkeep.saves import BackgroundWriter
from spotkeep.state.encoding import encode_state


class HeldDisk(LocalStorage):
    """Lets nothing be written until it is let go."""

    def __init__(self):
        self.let_go = threading.Event()

    def write_some(self, descriptor, raw, offset):
        self.let_go.wait()
        return super().write_some(descriptor, raw, offset)


def writer_to(directory):
    tier = SecondTier(directory, remote=None, retention=Retention(), events=TrainingEvents())
    return BackgroundWriter(directory, retention=Retention(), tier=tier, watch=NoticeWatch())


def note_tidying(directory, monkeypatch):
    """Give a list that gets the steps that are there each time when old checkpoints are removed."""
    tidied = []
    monkeypatch.setattr(directory, "prune", lambda retention: tidied.append(directory.steps()))
    return tidied


def start(saver, state, step=1):
    saver.start(encode_state(state), step=step, reason="interval", progress=Progress())


def start_no_thread(monkeypatch):
    """The system starts no thread any more, as where a limit on processes is reached."""

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)


@pytest.fixture
def disk():
    return HeldDisk()


@pytest.fixture
def directory(tmp_path, disk):
    return CheckpointDirectory(tmp_path, storage=disk)


def test_the_state_may_change_as_soon_as_start_returns(directory, disk):
    weights = np.arange(3 * 2**20, dtype="f4")
    expected = weights.copy()
    saver = writer_to(directory)
    start(saver, {"weights": weights, "plain": [1]})
    weights[:] = -1
    disk.let_go.set()
    assert saver.wait_until_idle()
    assert directory.read(1).state["weights"].tobytes() == expected.tobytes()


def test_it_is_saving_until_the_outcome_is_known_and_tells_it_once(directory, disk, monkeypatch):
    tidied = note_tidying(directory, monkeypatch)
    saver = writer_to(directory)
    start(saver, {"a": np.ones(5)}, step=7)
    assert saver.saving
    assert not saver.wait(0.01)
    assert not saver.wait_until_idle(0.01)
    assert saver.collect() is None
    disk.let_go.set()
    assert saver.wait()
    assert saver.wait_until_idle()
    outcome = saver.collect()
    assert (outcome.step, outcome.reason, outcome.problem) == (7, "interval", None)
    assert outcome.size_bytes > 4096
    assert saver.collect() is None
    assert tidied == [[7]], "old ones go when the new one is durable"


def test_a_failure_is_an_outcome_and_nothing_is_tidied(tmp_path, faulty_storage, monkeypatch):
    directory = CheckpointDirectory(tmp_path, storage=faulty_storage(free_bytes=10))
    tidied = note_tidying(directory, monkeypatch)
    saver = writer_to(directory)
    start(saver, {"a": np.ones(5)})
    saver.wait_until_idle()
    assert isinstance(saver.collect().problem, SaveError)
    assert (tidied, directory.steps()) == ([], [])


def test_a_copy_that_is_broken_off_leaves_no_checkpoint(directory, disk, monkeypatch):
    def break_off(raw, blobs):
        raise KeyboardInterrupt

    monkeypatch.setattr("spotkeep.disk.staged_state.file_copy", break_off)
    disk.let_go.set()
    saver = writer_to(directory)
    with pytest.raises(KeyboardInterrupt):
        start(saver, {"a": np.ones(5)})
    assert not saver.saving
    assert saver.collect() is None
    assert directory.steps() == []


def test_where_no_thread_can_be_started_the_training_waits_for_the_checkpoint(tmp_path, monkeypatch, caplog):
    directory = CheckpointDirectory(tmp_path)
    tidied = note_tidying(directory, monkeypatch)
    saver = writer_to(directory)
    weights = np.arange(3 * 2**20, dtype="f4")
    with monkeypatch.context() as refusing:
        start_no_thread(refusing)
        start(saver, {"weights": weights}, step=7)
    assert not saver.saving
    assert saver.wait_until_idle()
    assert (saver.collect().problem, tidied) == (None, [[7]])
    assert directory.read(7).state["weights"].tobytes() == weights.tobytes()
    assert "the training waits while the checkpoint of step 7 is written: can't start new thread" in caplog.text
    start(saver, {"weights": weights}, step=8)
    assert saver.wait_until_idle()
    assert directory.steps() == [8, 7]


def test_and_a_disk_that_refuses_is_an_outcome_there_too(tmp_path, faulty_storage, monkeypatch):
    start_no_thread(monkeypatch)
    saver = writer_to(CheckpointDirectory(tmp_path, storage=faulty_storage(free_bytes=10)))
    start(saver, {"a": np.ones(5)})
    assert not saver.saving
    assert isinstance(saver.collect().problem, SaveError)


@pytest.mark.parametrize("began", [False, True])
def test_an_interruption_of_the_start_leaves_nothing_saving(tmp_path, monkeypatch, began):
    really_start = threading.Thread.start

    def interrupt(thread):
        if began:
            really_start(thread)
        raise KeyboardInterrupt

    directory = CheckpointDirectory(tmp_path)
    saver = writer_to(directory)
    with monkeypatch.context() as interrupting:
        interrupting.setattr(threading.Thread, "start", interrupt)
        with pytest.raises(KeyboardInterrupt):
            start(saver, {"a": np.ones(5)})
    assert not saver.saving
    assert saver.wait_until_idle()
    assert (saver.collect(), directory.steps()) == (None, [])


@pytest.mark.parametrize(
    ("broken", "threads_start", "declined"),
    [("arrange", True, True), ("copy", True, False), ("copy", False, True)],
    ids=["before anything is written", "while the thread writes", "where no thread writes"],
)
def test_a_start_that_fails_is_declined_unless_the_write_takes_part(
    directory, disk, monkeypatch, broken, threads_start, declined
):
    problem = MemoryError("no room for a copy")
    declines = []

    def fail(*_arguments):
        raise problem

    disk.let_go.set()
    monkeypatch.setattr(directory, "decline", declines.append)
    monkeypatch.setattr(StagedState, broken, fail)
    if not threads_start:
        start_no_thread(monkeypatch)
    saver = writer_to(directory)
    with pytest.raises(MemoryError):
        start(saver, {"a": np.ones(5)})
    assert declines == ([problem] if declined else [])
    assert not saver.saving
    assert (saver.collect(), directory.steps()) == (None, [])
