"""I3, little is lost: an interruption with notice costs no finished step, one without at most an interval."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import spotkeep
from spotkeep import (
    Best,
    Checkpointer,
    MixedStateError,
    NewerFormatError,
    SaveError,
    StateError,
    StateMismatchError,
    UsageError,
)
from spotkeep.disk import checkpoint_directory
from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.chunked_files import read_data_file
from spotkeep.disk.manifest import CHUNK_BYTES
from spotkeep.disk.storage import LocalStorage
from spotkeep.errors import LockLostError
from spotkeep.saves import Saves


def interrupt():
    os.kill(os.getpid(), signal.SIGTERM)


def die():
    raise KeyboardInterrupt


def no_more_threads(thread):
    raise RuntimeError("can't start new thread")


class Training:
    """A training whose result depends on every step, each taken once and in order, and on its random numbers."""

    def __init__(self):
        self.weights = np.zeros(3)
        self.rng = np.random.default_rng(7)
        self.seen = {"steps": []}

    def checkpointer(self, directory, **options):
        state = {"weights": self.weights, "rng": self.rng, "seen": self.seen}
        return Checkpointer(state, directory, **{"every_steps": 4, **options})

    def step(self, step):
        self.weights += self.rng.normal(size=3) * (step + 1)
        self.seen["steps"].append(step)


def undisturbed(total):
    training = Training()
    for step in range(total):
        training.step(step)
    return training


def train(directory, total, *, dies_after=None, notice_after=None, **options):
    """One process: dies after so many steps of its own, or gets a notice; None when it came to the end."""
    training = Training()
    done = 0
    try:
        with training.checkpointer(directory, **options) as checkpointer:
            for step in checkpointer.steps(total):
                if dies_after is not None and done >= dies_after:
                    die()
                training.step(step)
                done += 1
                if done == notice_after:
                    interrupt()
    except (KeyboardInterrupt, SystemExit) as ending:
        return training, ending
    return training, None


def test_a_training_left_alone_sees_each_step_once(tmp_path):
    training, ending = train(tmp_path, 10)
    assert ending is None
    assert training.seen["steps"] == list(range(10))


def test_a_notice_saves_after_the_current_step_and_exits_with_75(tmp_path, job_events):
    _, ending = train(tmp_path, 10, notice_after=3, every_steps=100)
    assert isinstance(ending, SystemExit)
    assert ending.code == 75
    events = [event for event in job_events() if event["event"] in ("notice", "saved")]
    kinds = [(event["event"], event.get("step"), event.get("reason")) for event in events]
    assert kinds == [("notice", None, None), ("saved", 3, "notice")]
    training, _ = train(tmp_path, 10)
    assert training.seen["steps"] == list(range(10))
    assert training.weights.tobytes() == undisturbed(10).weights.tobytes()


def test_a_notice_that_comes_while_it_is_decided_whether_to_save_is_not_left_without_a_save(tmp_path, monkeypatch):
    decided = Saves.is_due

    def a_notice_just_then(saves, step):
        if step == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return decided(saves, step)

    monkeypatch.setattr(Saves, "is_due", a_notice_just_then)
    with pytest.raises(SystemExit) as left, Checkpointer({"numbers": [0]}, tmp_path, every_steps=100) as checkpointer:
        for _ in checkpointer.steps(10):
            pass
    assert left.value.code == 75
    assert [path.name for path in tmp_path.iterdir()] == ["step-3"]


def test_without_notice_at_most_an_interval_is_done_again(tmp_path, job_events):
    train(tmp_path, 20, dies_after=11)
    job_events().clear()
    training, _ = train(tmp_path, 20)
    assert job_events()[0] == {**job_events()[0], "event": "resume", "step": 8, "checkpoint": "step-8"}
    assert training.weights.tobytes() == undisturbed(20).weights.tobytes()


@given(
    total=st.integers(1, 25),
    every=st.integers(1, 9),
    keep_last=st.integers(1, 4),
    disturbances=st.lists(st.tuples(st.sampled_from(["dies_after", "notice_after"]), st.integers(1, 10)), max_size=6),
)
@settings(max_examples=25)
def test_any_interruptions_end_where_none_ends(tmp_path_factory, total, every, keep_last, disturbances):
    directory = tmp_path_factory.mktemp("run")
    for kind, after in disturbances:
        train(directory, total, every_steps=every, keep_last=keep_last, **{kind: after})
    training, ending = train(directory, total, every_steps=every, keep_last=keep_last)
    assert ending is None
    assert training.seen["steps"] == list(range(total))
    assert training.weights.tobytes() == undisturbed(total).weights.tobytes()


class Readers:
    """Processes that copy or upload checkpoints while the training goes on: they have every file open that a manifest
    names."""

    def __init__(self, directory):
        self._directory = directory
        self._open = {}  # by inode, so that each is taken once: a descriptor, and what the file held

    def __enter__(self):
        return self

    def __exit__(self, *ending):
        for descriptor, _ in self._open.values():
            os.close(descriptor)

    def open_all(self):
        for manifest in self._directory.glob("step-*/manifest.json"):
            for path in manifest.parent.iterdir():
                if path.stat().st_ino not in self._open:
                    self._open[path.stat().st_ino] = os.open(path, os.O_RDONLY), path.read_bytes()

    def find_what_they_opened(self):
        return all(os.pread(descriptor, len(held) + 1, 0) == held for descriptor, held in self._open.values())


@given(
    keep_last=st.integers(1, 3),
    happenings=st.lists(
        st.tuples(st.sampled_from(["saved", "saved", "disk full", "restarted", "damaged"]), st.integers(1, 3000)),
        min_size=1,
        max_size=12,
    ),
)
@example(keep_last=2, happenings=[("saved", 1000)] * 6)
@settings(max_examples=15)
def test_a_file_that_a_manifest_named_holds_for_its_whole_life_what_it_held_then(
    tmp_path_factory, keep_last, happenings
):
    directory = tmp_path_factory.mktemp("run")

    def restarted():
        state = {"filled": {}}
        checkpointer = Checkpointer(state, directory, every_steps=10**6, keep_last=keep_last)
        checkpointer.restore()
        return state, checkpointer

    def refuse(self, descriptor, raw, offset):
        raise OSError(errno.ENOSPC, "No space left on device")

    with Readers(directory) as readers:
        state, checkpointer = restarted()
        for number, (happening, size) in enumerate(happenings):
            if happening in ("restarted", "damaged"):
                manifests = sorted(directory.glob("step-*/manifest.json"), key=os.path.getmtime)
                if happening == "damaged" and len(manifests) > 1:
                    manifests[-1].unlink()
                    manifests[-1].write_text("nonsense")
                state, checkpointer = restarted()
                continue
            state["filled"]["w"] = np.full(size, number, dtype="u1")
            with pytest.MonkeyPatch.context() as patch:
                if happening == "disk full":
                    patch.setattr(LocalStorage, "write_some", refuse)
                checkpointer.save(checkpointer.step + 1, wait=False)
                checkpointer._session.wait_until_over()
            readers.open_all()
            assert readers.find_what_they_opened()


def test_the_events_tell_the_story(tmp_path, job_events):
    training = Training()
    with training.checkpointer(tmp_path, every_steps=2) as checkpointer:
        for step in checkpointer.steps(3):
            training.step(step)
            checkpointer.log(loss=1.0 / (step + 1))
    events = [(event["event"], event["step"]) for event in job_events()]
    # A checkpoint is reported when it is durable, which may be a step later.
    assert [event for event in events if event[0] != "saved"] == [
        ("resume", 0),
        ("progress", 1),
        ("progress", 2),
        ("progress", 3),
        ("finish", 3),
    ]
    assert [event for event in events if event[0] != "progress"] == [
        ("resume", 0),
        ("saved", 2),
        ("saved", 3),
        ("finish", 3),
    ]
    by_kind = {event["event"]: event for event in reversed(job_events())}
    resume, progress, saved = by_kind["resume"], by_kind["progress"], by_kind["saved"]
    assert resume["checkpoint"] is None
    assert (progress["total_steps"], progress["metrics"]) == (3, {"loss": 1.0})
    assert saved["reason"] == "interval"
    assert saved["bytes"] == sum(path.stat().st_size for path in (tmp_path / "step-2").iterdir())
    assert saved["seconds"] >= 0


def test_what_was_measured_up_to_the_checkpoint_is_reported_again_after_a_restart(tmp_path, job_events, monkeypatch):
    """A machine that loses its power takes with it what it has not sent, and those steps are not trained again."""
    monkeypatch.setenv("SPOTKEEP_PROGRESS_SECONDS", "1000")
    with contextlib.suppress(InterruptedError), Checkpointer({}, tmp_path, every_steps=4) as checkpointer:
        checkpointer.log(learning_rate=0.5)
        for step in checkpointer.steps(10):
            if step == 2:
                checkpointer.log(validation_loss=9.0)
            if step == 5:
                raise InterruptedError
            checkpointer.log(loss=step / 10, unknown=math.nan)
    job_events().clear()
    with Checkpointer({}, tmp_path) as checkpointer:
        reported = [(event["event"], event["step"], event.get("metrics")) for event in job_events()]
        checkpointer.save(8)
    assert reported == [
        ("resume", 4, None),
        ("metrics", 1, {"learning_rate": 0.5}),
        ("metrics", 3, {"validation_loss": 9.0}),
        ("metrics", 4, {"loss": 0.3}),
    ]
    assert CheckpointDirectory(tmp_path).read_manifest(8).measured_at == {
        "learning_rate": 1,
        "validation_loss": 3,
        "loss": 4,
    }


def test_a_run_that_is_done_does_no_step_again(tmp_path, job_events):
    train(tmp_path, 5)
    job_events().clear()
    training, ending = train(tmp_path, 5)
    assert ending is None
    assert training.seen["steps"] == list(range(5)), "restored, not repeated"
    assert [event["event"] for event in job_events()] == ["resume", "finish"]


def test_a_notice_in_the_last_step_lets_the_script_write_its_model(tmp_path):
    _, ending = train(tmp_path, 5, notice_after=5)
    assert ending is None
    assert (tmp_path / "step-5" / "manifest.json").exists()


def test_a_notice_before_the_first_step_costs_nothing(tmp_path):
    train(tmp_path, 5, dies_after=4)
    training = Training()
    with training.checkpointer(tmp_path) as checkpointer:
        interrupt()
        with pytest.raises(SystemExit):
            next(checkpointer.steps(5))
    assert training.seen["steps"] == [0, 1, 2, 3]


def test_a_step_that_was_not_finished_is_not_saved(tmp_path):
    training = Training()
    with training.checkpointer(tmp_path, every_steps=1) as checkpointer:
        for step in checkpointer.steps(10):
            if step == 3:
                break
            training.step(step)
    assert Checkpointer({"weights": training.weights, "rng": training.rng, "seen": {}}, tmp_path).restore() == 3


def test_a_damaged_newest_checkpoint_falls_back_and_says_which_file(tmp_path, job_events, caplog):
    train(tmp_path, 20, dies_after=13)
    data = tmp_path / "step-12" / "data-00000.bin"
    data.write_bytes(b"\xff" + data.read_bytes()[1:])
    (tmp_path / "step-16").mkdir()
    job_events().clear()
    training, _ = train(tmp_path, 20)
    fallback, resume = job_events()[:2]
    assert (fallback["event"], fallback["step"], fallback["file"]) == ("fallback", 12, "step-12/data-00000.bin")
    assert "altered: chunk 0" in fallback["problem"]
    assert (resume["event"], resume["step"]) == ("resume", 8)
    assert "passing over a damaged checkpoint" in caplog.text
    assert training.weights.tobytes() == undisturbed(20).weights.tobytes()


def test_when_every_checkpoint_is_damaged_the_training_starts_over_and_says_so(tmp_path, job_events):
    train(tmp_path, 20, dies_after=9)
    for path in tmp_path.glob("step-*/manifest.json"):
        path.write_text("{}")
    job_events().clear()
    training, _ = train(tmp_path, 20)
    assert [event["event"] for event in job_events()[:3]] == ["fallback", "fallback", "resume"]
    assert job_events()[2]["step"] == 0
    assert training.weights.tobytes() == undisturbed(20).weights.tobytes()


def test_a_good_checkpoint_that_does_not_fit_the_script_ends_it(tmp_path):
    train(tmp_path, 5)
    other = Checkpointer({"weights": np.zeros(99), "rng": np.random.default_rng(), "seen": {}}, tmp_path)
    with pytest.raises(StateMismatchError, match="step 5 does not fit"):
        other.restore()


def test_a_state_that_cannot_be_saved_is_refused_before_any_training(tmp_path):
    with pytest.raises(StateError, match="holds Python objects"), Checkpointer({"x": np.array([None])}, tmp_path):
        pytest.fail("entered")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "SIGTERM was given back"


def test_a_full_disk_does_not_end_the_training(tmp_path, job_events, monkeypatch, caplog):
    full = [False]
    really_write = LocalStorage.write_some

    def write_some(self, descriptor, raw, offset):
        if full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return really_write(self, descriptor, raw, offset)

    monkeypatch.setattr(LocalStorage, "write_some", write_some)
    training = Training()
    with training.checkpointer(tmp_path, every_steps=2) as checkpointer:
        for step in checkpointer.steps(12):
            checkpointer._session.saves._writer.wait()
            full[0] = 5 <= step < 9
            training.step(step)
    events = [(event["event"], event["step"]) for event in job_events() if event["event"] in ("saved", "save-failed")]
    assert events == [("saved", 2), ("saved", 4), ("save-failed", 6), ("save-failed", 8), ("saved", 10), ("saved", 12)]
    failed = next(event for event in job_events() if event["event"] == "save-failed")
    assert "the disk is full" in failed["problem"]
    assert "no checkpoint of step 6" in caplog.text


def test_a_system_that_starts_no_more_threads_does_not_end_the_training(tmp_path, job_events, monkeypatch):
    training = Training()
    with training.checkpointer(tmp_path) as checkpointer:
        for step in checkpointer.steps(10):
            training.step(step)
            if step == 1:
                monkeypatch.setattr(threading.Thread, "start", no_more_threads)
    monkeypatch.undo()
    assert [event["step"] for event in job_events() if event["event"] == "saved"] == [4, 8, 10]
    again = Training()
    assert again.checkpointer(tmp_path).restore() == 10
    assert again.weights.tobytes() == undisturbed(10).weights.tobytes()


def test_a_full_disk_makes_room_by_keeping_two(tmp_path, monkeypatch):
    training = Training()

    def refuse(self, descriptor, raw, offset):
        raise OSError(errno.ENOSPC, "No space left on device")

    with training.checkpointer(tmp_path, every_steps=1, keep_last=5) as checkpointer:
        for step in checkpointer.steps(6):
            if step == 5:
                checkpointer.wait()
                monkeypatch.setattr(LocalStorage, "write_some", refuse)
            training.step(step)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-4", "step-5"]


def test_a_notice_while_the_disk_is_full_still_exits_with_75(tmp_path, monkeypatch, job_events):
    def refuse(self, descriptor, raw, offset):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(LocalStorage, "write_some", refuse)
    _, ending = train(tmp_path, 10, notice_after=2)
    assert ending.code == 75
    assert job_events()[-1]["event"] == "save-failed"


def test_saving_by_the_clock(tmp_path, monkeypatch, job_events):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    training = Training()
    with training.checkpointer(tmp_path, every_steps=None, every_seconds=10) as checkpointer:
        for step in checkpointer.steps(9):
            training.step(step)
            checkpointer.wait()
            now[0] += 4.0
    assert [event["step"] for event in job_events() if event["event"] == "saved"] == [3, 6, 9]


def test_old_checkpoints_go(tmp_path):
    train(tmp_path, 20, every_steps=3, keep_last=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-18", "step-20"]


def test_under_sagemaker_nothing_goes_that_was_not_copied(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINING_JOB_NAME", "digits-1")
    train(tmp_path, 20, every_steps=5, keep_last=2)
    assert len(list(tmp_path.iterdir())) == 4


def test_a_loop_of_ones_own_saves_and_looks_for_the_notice(tmp_path, job_events):
    training = Training()
    with training.checkpointer(tmp_path) as checkpointer:
        step = checkpointer.step
        while not checkpointer.interrupted:
            training.step(step)
            step += 1
            if step == 3:
                checkpointer.save(step)
                checkpointer.save(step)
                interrupt()
    assert [event["event"] for event in job_events()] == ["resume", "saved", "notice"]
    assert Training().checkpointer(tmp_path).restore() == 3


def test_a_loop_that_a_trainer_runs_counts_its_steps_and_saves_when_due(tmp_path, job_events):
    state = {"count": 0}
    with Checkpointer(state, tmp_path, every_steps=4) as checkpointer:
        for step in range(1, 10):
            checkpointer.complete_step(total_steps=10)
            state["count"] = step
            if step == 9:
                signal.raise_signal(signal.SIGTERM)
            assert checkpointer.save_if_due() is (step == 9)
            if step == 9:
                assert checkpointer.durable_step == 9, "there is nothing to do but leave"
    with Checkpointer(state := {"count": 0}, tmp_path) as checkpointer:
        assert (checkpointer.step, state["count"]) == (9, 9)
        checkpointer.complete_step(total_steps=10)
        assert not checkpointer.save_if_due(last=True)
    events = [(event["step"], event["reason"]) for event in job_events() if event["event"] == "saved"]
    assert events == [(4, "interval"), (8, "interval"), (9, "notice"), (10, "end")]
    assert [event["step"] for event in job_events() if event["event"] == "finish"] == [10]
    with pytest.raises(UsageError, match="inside `with checkpointer:`"):
        checkpointer.complete_step()


def test_saving_by_hand_tells_of_a_full_disk(tmp_path, monkeypatch):
    def refuse(self, descriptor, raw, offset):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(LocalStorage, "write_some", refuse)
    with pytest.raises(SaveError), Training().checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1)


def test_a_checkpoint_of_a_newer_library_is_not_passed_over(tmp_path):
    import hashlib
    import json

    train(tmp_path, 5)
    body = json.dumps({"format": 5, "library": "spotkeep 9.0"}).encode()
    sealed = b'{"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'","manifest":' + body + b"}\n"
    (tmp_path / "step-5" / "manifest.json").write_bytes(sealed)
    with pytest.raises(NewerFormatError):
        Training().checkpointer(tmp_path).restore()


@pytest.mark.parametrize("options", [{"every_steps": 0}, {"every_seconds": -1}, {"keep_last": 0}])
def test_numbers_that_make_no_sense_are_refused(tmp_path, options):
    with pytest.raises(UsageError, match="pass a number above zero"):
        Checkpointer({}, tmp_path, **options)


def test_steps_outside_the_with_block_are_refused(tmp_path):
    with pytest.raises(UsageError, match="inside `with"):
        next(Training().checkpointer(tmp_path).steps(1))


def test_checkpoints_are_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Checkpointer({}).directory.name == "checkpoints"
    monkeypatch.setenv("SPOTKEEP_CHECKPOINT_DIR", str(tmp_path / "elsewhere"))
    assert Checkpointer({}).directory == tmp_path / "elsewhere"
    assert Checkpointer({}, tmp_path / "mine").directory == tmp_path / "mine"


def test_nodes_refuse_a_training_and_a_rule_that_their_agents_would_lose(tmp_path, monkeypatch):
    monkeypatch.setenv("SPOTKEEP_CHECKPOINT_DIR", str(tmp_path))
    monkeypatch.setenv("SPOTKEEP_NODES", "2")
    with pytest.raises(UsageError, match=r"would lose the training 'fold-2', .*; and the best .* remote="):
        Checkpointer({}, name="fold-2", keep_best=Best("loss")).restore()
    assert Checkpointer({}, keep_every=5).restore() == 0


class Epochs:
    """Counts steps and epoch ends; the schedule it steps at the end of an epoch is part of the state."""

    def __init__(self):
        self.schedule = {"rate": 1.0, "log": []}

    def run(self, directory, *, stop_at=None, notice=True, total=3, size=4, every=3):
        try:
            with Checkpointer({"schedule": self.schedule}, directory, every_steps=every) as checkpointer:
                for epoch in checkpointer.epochs(total, steps_per_epoch=size):
                    for index in epoch:
                        self.schedule["log"].append((epoch.index, index))
                        self.disturb(stop_at == (epoch.index, index), notice)
                    self.schedule["rate"] *= 0.5
                    self.schedule["log"].append((epoch.index, "end"))
                    self.disturb(stop_at == (epoch.index, "end"), notice)
        except (SystemExit, KeyboardInterrupt):
            return False
        return True

    @staticmethod
    def disturb(now, notice):
        if now and notice:
            interrupt()
        elif now:
            die()


PLACES = [(epoch, place) for epoch in range(3) for place in (0, 1, 2, 3, "end")]


@pytest.mark.parametrize("notice", [True, False])
@pytest.mark.parametrize("stop_at", [(0, 0), (0, "end"), (1, 2), (2, 3), (2, "end")])
def test_an_epoch_is_taken_up_in_its_middle_and_its_end_runs_once(tmp_path, stop_at, notice):
    finished = Epochs().run(tmp_path, stop_at=stop_at, notice=notice)
    assert finished == (notice and stop_at == (2, "end")), "a notice at the very end lets the script finish"
    resumed = Epochs()
    assert resumed.run(tmp_path)
    assert resumed.schedule["log"] == PLACES
    assert resumed.schedule["rate"] == 0.125


def test_an_epoch_that_is_left_early_is_a_mistake_that_is_reported(tmp_path):
    with Checkpointer({}, tmp_path) as checkpointer:
        epochs = checkpointer.epochs(2, steps_per_epoch=4)
        epoch = next(epochs)
        assert [next(epoch.steps), next(epoch.steps)] == [0, 1]
        with pytest.raises(UsageError, match="left after 1 of 4 steps"):
            next(epochs)


def test_another_number_of_steps_an_epoch_is_refused(tmp_path):
    Epochs().run(tmp_path, stop_at=(1, 2))
    with pytest.raises(UsageError, match="keep the batch size"):
        Epochs().run(tmp_path, size=2)


def test_a_state_that_changes_right_after_save_returns_is_saved_as_it_was(tmp_path, held_disk):
    state = {"w": np.arange(2**20, dtype="f4"), "count": 3}
    with Checkpointer(state, tmp_path) as checkpointer:
        held_disk.let_go.clear()
        checkpointer.save(1, wait=False)
        state["w"] *= -1
        state["count"] = 4
        assert checkpointer.durable_step is None
        assert not checkpointer.wait(0.01)
        held_disk.let_go.set()
        assert checkpointer.wait()
        assert checkpointer.durable_step == 1
    restored = {"w": np.zeros(2**20, dtype="f4"), "count": 0}
    Checkpointer(restored, tmp_path).restore()
    assert (restored["count"], restored["w"].tobytes()) == (3, np.arange(2**20, dtype="f4").tobytes())


def test_the_training_goes_on_while_a_save_by_the_clock_is_written(tmp_path, held_disk, job_events):
    training = Training()
    with training.checkpointer(tmp_path, every_steps=None, every_seconds=1e-9) as checkpointer:
        for step in checkpointer.steps(9):
            training.step(step)
            held_disk.let_go.clear() if step < 7 else held_disk.let_go.set()
    assert training.seen["steps"] == list(range(9)), "seven steps passed while the first save was held back"
    saved = [event["step"] for event in job_events() if event["event"] == "saved"]
    assert saved[0] == 1
    assert saved[-1] == 9


def test_leaving_the_block_waits_for_a_save_that_is_running(tmp_path, held_disk, job_events):
    training = Training()
    with training.checkpointer(tmp_path) as checkpointer:
        held_disk.let_go.clear()
        checkpointer.save(4, wait=False)
        threading.Timer(0.05, held_disk.let_go.set).start()
    assert [event["event"] for event in job_events()] == ["resume", "saved"]


def test_a_failure_beside_the_training_is_raised_where_it_is_waited_for(tmp_path, monkeypatch):
    def refuse(self, descriptor, raw, offset):
        raise OSError(errno.EIO, "Input/output error")

    with Training().checkpointer(tmp_path) as checkpointer:
        with monkeypatch.context() as patch:
            patch.setattr(LocalStorage, "write_some", refuse)
            checkpointer.save(1, wait=False)
            with pytest.raises(SaveError):
                checkpointer.wait()
        checkpointer.save(1)
        assert checkpointer.durable_step == 1, "the same step is tried again"


def test_a_notice_too_short_for_the_disk_keeps_what_is_durable_and_says_so(
    tmp_path, monkeypatch, held_disk, job_events
):
    monkeypatch.setenv("SPOTKEEP_NOTICE_SECONDS", "0")
    monkeypatch.setattr("spotkeep.notices.notice._GRACE_SECONDS", 0.05)
    training = Training()

    def noticed_while_the_disk_stands_still():
        with training.checkpointer(tmp_path, every_steps=2) as checkpointer:
            for step in checkpointer.steps(9):
                training.step(step)
                if step == 2:
                    checkpointer.wait()
                    held_disk.let_go.clear()
                    interrupt()

    with pytest.raises(SystemExit) as ending:
        noticed_while_the_disk_stands_still()
    assert ending.value.code == 75
    events = [event for event in job_events() if event["event"] in ("saved", "save-failed")]
    assert [(event["event"], event["step"]) for event in events] == [("saved", 2), ("save-failed", 3)]
    assert "the newest durable checkpoint is that of step 2" in events[1]["problem"]
    assert Training().checkpointer(tmp_path).restore() == 2
    held_disk.let_go.set()


def test_auto_tells_its_interval_and_the_reason(tmp_path, monkeypatch, job_events):
    monkeypatch.setattr("spotkeep.schedule.save_schedule._FIRST_SECONDS", 1e-9)
    training = Training()
    with training.checkpointer(tmp_path, every_steps=None, every_seconds="auto") as checkpointer:
        for step in checkpointer.steps(4):
            training.step(step)
    schedules = [event for event in job_events() if event["event"] == "schedule"]
    assert schedules
    assert schedules[0]["seconds"] >= 1
    assert "an interruption is expected every" in schedules[0]["reason"]


def test_the_environment_says_what_auto_expects(tmp_path, monkeypatch, job_events):
    monkeypatch.setattr("spotkeep.schedule.save_schedule._FIRST_SECONDS", 1e-9)
    monkeypatch.setenv("SPOTKEEP_MEAN_SECONDS_BETWEEN_INTERRUPTIONS", "600")
    monkeypatch.setenv("SPOTKEEP_NOTICE_CHANCE", "0.25")
    with Training().checkpointer(tmp_path, every_steps=None, every_seconds="auto") as checkpointer:
        list(checkpointer.steps(3))
    schedule, *_ = [event for event in job_events() if event["event"] == "schedule"]
    assert "every 600 s, 25% of them with a notice" in schedule["reason"]
    for wrong in ("-1", "often"):
        monkeypatch.setenv("SPOTKEEP_MEAN_SECONDS_BETWEEN_INTERRUPTIONS", wrong)
        with pytest.raises(UsageError):
            Checkpointer({}, tmp_path)


def test_each_nth_and_the_best_stay_beside_the_newest(tmp_path):
    training = Training()
    losses = [9, 1, 5, 5, 5, 5, 5, 5, 5, 5]
    with training.checkpointer(
        tmp_path, every_steps=1, keep_last=2, keep_every=4, keep_best=Best("loss", "min")
    ) as checkpointer:
        for step in checkpointer.steps(10):
            training.step(step)
            checkpointer.log(loss=losses[step])
    assert sorted(int(path.name[5:]) for path in tmp_path.iterdir()) == [2, 4, 8, 9, 10]


def test_arrays_are_read_into_the_memory_that_the_script_holds(tmp_path):
    size = 4 * CHUNK_BYTES
    ones = {"w": np.ones(size, dtype="u1"), "deep": [{"f": np.asfortranarray(np.ones((2, size // 2), dtype="u1"))}]}
    with Checkpointer(ones, tmp_path) as checkpointer:
        checkpointer.save(1)
        checkpointer.save(2)
    live = {"w": np.zeros(size, dtype="u1"), "deep": [{"f": np.zeros((2, size // 2), dtype="u1", order="F")}]}
    held = live["w"], live["deep"][0]["f"]
    tracemalloc.start()
    try:
        assert Checkpointer(live, tmp_path).restore() == 2
        assert tracemalloc.get_traced_memory()[1] < size / 2, "no memory was taken for whole arrays"
    finally:
        tracemalloc.stop()
    assert all(array.all() for array in held)


def damage(directory, *steps):
    for step in steps:
        path = directory / f"step-{step}" / "data-00000.bin"
        raw = bytearray(path.read_bytes())
        raw[5] ^= 1
        path.write_bytes(raw)


def test_what_a_damaged_checkpoint_has_overwritten_the_older_one_overwrites_whole(tmp_path):
    size = 3 * CHUNK_BYTES
    for step in (1, 2):
        with Checkpointer({"w": np.full(size, step, dtype="u1"), "v": np.full(size, step, dtype="u1")}, tmp_path) as it:
            it.save(step)
    raw = bytearray((tmp_path / "step-2" / "data-00000.bin").read_bytes())
    raw[-1] ^= 1
    (tmp_path / "step-2" / "data-00000.bin").write_bytes(raw)
    live = {"w": np.zeros(size, dtype="u1"), "v": np.zeros(size, dtype="u1")}
    assert Checkpointer(live, tmp_path).restore() == 1
    assert (live["w"] == 1).all()
    assert (live["v"] == 1).all()


def test_a_single_damaged_checkpoint_changes_nothing(tmp_path, job_events):
    with Checkpointer({"w": np.ones(9)}, tmp_path) as checkpointer:
        checkpointer.save(1)
    damage(tmp_path, 1)
    live = {"w": np.zeros(9)}
    assert Checkpointer(live, tmp_path).restore() == 0
    assert live["w"].tolist() == [0.0] * 9


class TakesLater:
    """Keeps what it gets for something that does not exist yet, as the adapters of frameworks do."""

    def __init__(self):
        self.state = None

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        self.state = state


@pytest.mark.parametrize(("steps", "damaged", "restored"), [(1, (), 1), (2, (), 2), (3, (3, 2), 1), (2, (2, 1), 0)])
def test_where_nothing_can_be_overwritten_each_checkpoint_is_read_once(tmp_path, steps, damaged, restored, monkeypatch):
    with Checkpointer({"late": {"w": np.arange(9)}}, tmp_path) as checkpointer:
        for step in range(1, steps + 1):
            checkpointer.save(step)
    damage(tmp_path, *damaged)
    read = []
    monkeypatch.setattr(
        checkpoint_directory,
        "read_data_file",
        lambda file, *rest, **more: read.append(file) or read_data_file(file, *rest, **more),
    )
    late = TakesLater()
    assert Checkpointer({"late": late}, tmp_path).restore() == restored
    assert (late.state is None) == (restored == 0)
    assert restored == 0 or late.state["w"].tolist() == list(range(9))
    assert len(read) == len(damaged) + (restored > 0)


def test_a_state_that_was_mixed_up_is_not_trained_on(tmp_path):
    train(tmp_path, 8)
    damage(tmp_path, 4, 8)
    with pytest.raises(MixedStateError, match="move them away"), Training().checkpointer(tmp_path):
        pytest.fail("entered")
    assert (tmp_path / "step-8" / "manifest.json").exists(), "nothing is removed"


KILLED = """
import sys, numpy as np
sys.path.insert(0, sys.argv[2])
from spotkeep import Checkpointer
state = {"w": np.zeros(2**20, dtype="u4"), "count": 0}
with Checkpointer(state, sys.argv[1], every_steps=1, keep_last=2) as checkpointer:
    assert (state["w"] == checkpointer.step).all() and state["count"] == checkpointer.step
    print("ready", checkpointer.step, flush=True)
    for step in checkpointer.steps(10**6):
        state["w"] += 1
        state["count"] += 1
        print(checkpointer.durable_step or 0, flush=True)
"""


@pytest.mark.long
def test_a_process_killed_at_any_moment_loses_nothing_that_was_durable(tmp_path):
    library = str(Path(spotkeep.__file__).parents[1])
    chance = random.Random(seed := random.randrange(2**32))  # noqa: S311 - not secret
    print(f"drawn with random.Random({seed})")
    durable = 0
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path / "checkpoints"), library], stdout=subprocess.PIPE, text=True
        )
        with process:
            ready = process.stdout.readline().split()
            assert ready[:1] == ["ready"], "the state is that of one step"
            assert int(ready[1]) >= durable
            for _ in range(chance.randrange(2, 12)):
                durable = max(durable, int(process.stdout.readline()))
            process.kill()
    assert durable > 3


PUBLIC = [
    pytest.param(member, id=name)
    for name, member in vars(Checkpointer).items()
    if not name.startswith("_") and (callable(member) or isinstance(member, property))
]


@pytest.mark.parametrize("member", PUBLIC)
def test_each_method_says_if_all_ranks_must_call_it_and_which_thread_may(member):
    text = member.__doc__
    assert "ollective" in text
    assert "or the thread that trains." in text or "ny thread may" in text


class TestWritersOfARun:
    """I1, one writer: an attempt whose machine lives on after the run went on elsewhere."""

    def attempt(self, tmp_path, monkeypatch, number, *, every=5):
        monkeypatch.setenv("SPOTKEEP_ATTEMPT", str(number))
        return Checkpointer({"place": {"step": 0}}, tmp_path, every_steps=every)

    def test_a_resume_goes_on_under_a_token_of_its_own(self, tmp_path, monkeypatch):
        for number, total in ((1, 10), (1, 20), (2, 30)):
            with self.attempt(tmp_path, monkeypatch, number) as checkpointer:
                assert checkpointer.step == total - 10
                list(checkpointer.steps(total))
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "step-20-1.0.2",
            "step-25-2.0.1",
            "step-30-2.0.1",
            "writers-1.0.2.json",
            "writers-2.0.1.json",
        ]
        assert checkpointer.all_steps() == [20, 25, 30]

    def test_the_replaced_one_ends_with_the_reason_and_the_other_loses_nothing(self, tmp_path, monkeypatch, job_events):
        checkpointer = self.attempt(tmp_path, monkeypatch, 1)

        def train():
            with checkpointer:
                for step in checkpointer.steps(100):
                    if step == 7:
                        checkpointer.wait()
                        with self.attempt(tmp_path, monkeypatch, 2) as other:
                            list(other.steps(12))

        with pytest.raises(LockLostError, match="it has lost the run's lock, so it saves nothing more"):
            train()
        assert checkpointer.step < 20
        with self.attempt(tmp_path, monkeypatch, 2) as resumed:
            assert resumed.step == 12
        assert [event["step"] for event in job_events() if event["event"] == "save-failed"] == [10]

    def test_a_disk_that_takes_no_note_does_not_end_the_training_and_a_later_save_begins(
        self, tmp_path, monkeypatch, job_events, caplog
    ):
        create, full = LocalStorage.create, [True]

        def refuse(storage, path, **options):
            if full and path.name.startswith("writers-"):
                raise OSError(28, "No space left on device")
            return create(storage, path, **options)

        monkeypatch.setattr(LocalStorage, "create", refuse)
        with self.attempt(tmp_path, monkeypatch, 1) as checkpointer:
            assert "no checkpoint can be saved yet: the note of the writer 1.0.1" in caplog.text
            for step in checkpointer.steps(15):
                if step == 7:
                    full.clear()
        assert checkpointer.all_steps() == [10, 15]
        assert [event["step"] for event in job_events() if event["event"] == "save-failed"] == [5]

    def test_a_full_disk_that_takes_no_note_makes_room_from_the_attempt_before(self, tmp_path, monkeypatch, job_events):
        with self.attempt(tmp_path, monkeypatch, 1, every=1) as first:
            list(first.steps(3))
        create = LocalStorage.create

        def only_beside_two(storage, path, **options):
            if path.name.startswith("writers-") and len(list(tmp_path.glob("step-*"))) > 2:
                raise OSError(28, "No space left on device")
            return create(storage, path, **options)

        monkeypatch.setattr(LocalStorage, "create", only_beside_two)
        with self.attempt(tmp_path, monkeypatch, 2, every=2) as second:
            list(second.steps(7))
        assert [event["step"] for event in job_events() if event["event"] == "save-failed"] == [5]
        assert second.all_steps() == [2, 3, 7]

    def test_a_replaced_attempt_deletes_nothing(self, tmp_path, monkeypatch):
        first = self.attempt(tmp_path, monkeypatch, 1)
        first.save(5)
        second = self.attempt(tmp_path, monkeypatch, 2)
        second.save(10)
        with pytest.raises(LockLostError, match="this process is attempt 1"):
            first.delete(5)
        third = self.attempt(tmp_path, monkeypatch, 2)
        third.save(15)
        with pytest.raises(LockLostError, match=r"this process is writer 2\.0\.1"):
            second.delete(5)
        third.delete(5)
        assert third.all_steps() == [10, 15]

    def test_saving_by_hand_tells_of_a_disk_that_takes_no_note(self, tmp_path, monkeypatch):
        def refuse(storage, path, **options):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(LocalStorage, "create", refuse)
        with pytest.raises(SaveError, match=r"the note of the writer 1\.0\.1 cannot be written"):
            self.attempt(tmp_path, monkeypatch, 1).save(5)

    def test_an_earlier_attempt_does_not_begin_again(self, tmp_path, monkeypatch):
        with self.attempt(tmp_path, monkeypatch, 2) as checkpointer:
            list(checkpointer.steps(5))
        with pytest.raises(LockLostError, match="this process is attempt 1"), self.attempt(tmp_path, monkeypatch, 1):
            raise AssertionError

    def test_a_script_that_only_reads_leaves_no_note(self, tmp_path, monkeypatch):
        with self.attempt(tmp_path, monkeypatch, 1) as checkpointer:
            list(checkpointer.steps(5))
        reader = self.attempt(tmp_path, monkeypatch, 1)
        assert reader.restore() == 5
        assert [path.name for path in tmp_path.glob("writers-*")] == ["writers-1.0.1.json"]

    def test_a_loop_that_saves_without_a_restore_keeps_the_older_checkpoints_readable(self, tmp_path, monkeypatch):
        with self.attempt(tmp_path, monkeypatch, 1) as checkpointer:
            list(checkpointer.steps(5))
        other = self.attempt(tmp_path, monkeypatch, 2)
        other.save(3)
        assert other.all_steps() == [3, 5]
