"""I3 at the moments that are easily forgotten: when a notice comes, and how much of it is left.

Whatever happens, a durable checkpoint stays, the next process goes on from it, and the log says what happened.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import spotkeep
from spotkeep import Checkpointer
from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.events import EVENT_PREFIX
from spotkeep.schedule.interruption_history import LEFT, NOTICED, parse_history


def interrupt():
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def short_notice(monkeypatch):
    """A notice that is over a moment after it came."""
    monkeypatch.setenv("SPOTKEEP_NOTICE_SECONDS", "0")
    monkeypatch.setattr("spotkeep.notices.notice._GRACE_SECONDS", 0.1)


def run(directory, at, *, total=9, **options):
    """Train; `at(checkpointer, step)` is called in each step. Gives the exit code, None when it came to the end."""
    state = {"seen": []}
    try:
        with Checkpointer(state, directory, **{"every_steps": 100, **options}) as checkpointer:
            for step in checkpointer.steps(total):
                state["seen"].append(step)
                at(checkpointer, step)
    except SystemExit as left:
        return left.code
    return None


def resumed(directory):
    state = {"seen": []}
    checkpointer = Checkpointer(state, directory)
    step = checkpointer.restore()
    assert state["seen"] == list(range(step))
    return step


def steps_of(events, *kinds):
    kinds = kinds or ("saved", "save-failed")
    return [(event["event"], event.get("step")) for event in events if event["event"] in kinds]


def wait_until_logged(events, kind):
    for _ in range(3000):
        if any(event["event"] == kind for event in events()):
            return
        time.sleep(0.01)
    raise AssertionError(f"nothing said {kind}")


def test_a_notice_during_a_save_lets_it_finish_and_saves_the_newer_state_too(tmp_path, held_disk, job_events):
    def at(checkpointer, step):
        if step == 1:
            held_disk.let_go.clear()
        if step == 2:
            held_disk.waited_for.wait(30)
            interrupt()
            threading.Timer(0.05, held_disk.let_go.set).start()

    assert run(tmp_path, at, every_steps=2) == 75
    assert steps_of(job_events()) == [("saved", 2), ("saved", 3)]
    assert resumed(tmp_path) == 3


def test_a_save_that_cannot_be_in_time_is_not_begun(tmp_path, job_events, monkeypatch):
    monkeypatch.setenv("SPOTKEEP_NOTICE_SECONDS", "30")

    def at(checkpointer, step):
        if step == 3:
            checkpointer.wait()
            # As if it had taken so long.
            checkpointer._setup.schedule.extra_time._durable[-1] = 1000.0
        if step == 4:
            interrupt()

    assert run(tmp_path, at, every_steps=3) == 75
    (failed,) = [event for event in job_events() if event["event"] == "save-failed"]
    assert "a save takes 1,000 s at best" in failed["problem"]
    assert "the newest durable checkpoint is that of step 3" in failed["problem"]
    assert resumed(tmp_path) == 3


def test_a_step_that_outlasts_the_notice_is_reported_before_the_machine_is_gone(tmp_path, short_notice, job_events):
    def at(checkpointer, step):
        if step == 4:
            checkpointer.wait()
            interrupt()
            wait_until_logged(job_events, "save-failed")

    assert run(tmp_path, at, every_steps=4) == 75
    (failed,) = [event for event in job_events() if event["event"] == "save-failed"]
    assert failed["step"] == 5
    assert "the step takes longer; the newest durable checkpoint is that of step 4" in failed["problem"]
    # A process that outlives the notice leaves at once: for how long it lives is unknown.
    assert resumed(tmp_path) in (4, 5)


def test_a_disk_that_stands_still_in_a_loop_of_ones_own_is_reported_too(tmp_path, short_notice, held_disk, job_events):
    with Checkpointer({"a": [1]}, tmp_path) as checkpointer:
        checkpointer.save(1)
        held_disk.let_go.clear()
        checkpointer.save(2, wait=False)
        interrupt()
        wait_until_logged(job_events, "save-failed")
        held_disk.let_go.set()
    failed = next(event for event in job_events() if event["event"] == "save-failed")
    assert failed["step"] == 2
    assert "the newest durable checkpoint is that of step 1" in failed["problem"]


def test_a_notice_that_is_over_while_nothing_is_left_to_save_needs_no_word(tmp_path, short_notice, job_events):
    with Checkpointer({"a": [1]}, tmp_path) as checkpointer:
        checkpointer.save(1)
        interrupt()
        while checkpointer._setup.watch.seconds_left > 0:
            time.sleep(0.01)
        checkpointer._on_notice_change()
    assert steps_of(job_events()) == [("saved", 1)]


def test_a_notice_in_a_restore_ends_it_before_the_first_step(tmp_path, job_events, monkeypatch):
    run(tmp_path, lambda checkpointer, step: step == 3 and interrupt())
    really_open = CheckpointDirectory.open

    def open_while_the_notice_comes(directory, step, **options):
        interrupt()
        return really_open(directory, step, **options)

    job_events().clear()
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointDirectory, "open", open_while_the_notice_comes)
        assert run(tmp_path, lambda checkpointer, step: pytest.fail("a step was begun")) == 75
    assert sorted(steps_of(job_events(), "notice", "resume", "saved", "save-failed")) == [
        ("notice", None),
        ("resume", 4),
    ]
    assert resumed(tmp_path) == 4


def test_a_second_notice_that_ends_sooner_is_reported(tmp_path, job_events, monkeypatch):
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)  # A busy machine reports the notice a moment after it came.

    def at(checkpointer, step):
        if step == 2:
            interrupt()
            assert checkpointer.interrupted
            interrupt()
            assert checkpointer.interrupted
            monkeypatch.setenv("SPOTKEEP_NOTICE_SECONDS", "20")
            interrupt()
            assert checkpointer.interrupted

    assert run(tmp_path, at) == 75
    assert [event["seconds_left"] for event in job_events() if event["event"] == "notice"] == [120.0, 20.0]
    assert steps_of(job_events()) == [("saved", 3)]


def test_on_a_notice_the_script_does_not_wait_until_old_checkpoints_are_removed(tmp_path, monkeypatch):
    release, second_step = threading.Event(), threading.Event()

    def prune(directory, retention, **options):
        second_step.wait(30)
        threading.Timer(0.05, interrupt).start()
        release.wait(30)
        return []

    monkeypatch.setattr(CheckpointDirectory, "prune", prune)
    try:
        assert run(tmp_path, lambda checkpointer, step: step and second_step.set(), every_steps=1) == 75
    finally:
        release.set()
    assert resumed(tmp_path) == 2, "the second save began when the notice came"


def test_a_rebalance_recommendation_saves_and_the_training_goes_on(tmp_path, job_events):
    def at(checkpointer, step):
        if step == 4:
            checkpointer._setup.watch._save_advised = True

    assert run(tmp_path, at) is None
    reasons = [(event["step"], event["reason"]) for event in job_events() if event["event"] == "saved"]
    assert reasons == [(5, "rebalance"), (9, "end")]


def history(directory):
    return [life.ending for life in parse_history((directory / "interruptions.json").read_bytes())]


def test_auto_remembers_how_each_process_ended(tmp_path, held_disk, monkeypatch):
    auto = {"every_steps": None, "every_seconds": "auto"}
    assert run(tmp_path, lambda checkpointer, step: step == 3 and interrupt(), **auto) == 75
    assert history(tmp_path) == [NOTICED]

    def fail(checkpointer, step):
        assert history(tmp_path) == [NOTICED, None], "a process that vanishes says nothing"
        raise OSError("a mistake in the script")

    with pytest.raises(OSError, match="a mistake"):
        run(tmp_path, fail, **auto)
    assert run(tmp_path, lambda checkpointer, step: None, **auto) is None
    assert history(tmp_path) == [NOTICED, LEFT, LEFT]


def test_a_notice_that_came_too_late_for_the_last_step_does_not_count_as_one_in_time(
    tmp_path, held_disk, short_notice, monkeypatch
):
    def at(checkpointer, step):
        if step == 3:
            held_disk.let_go.clear()
            interrupt()

    assert run(tmp_path, at, every_steps=None, every_seconds="auto") == 75
    assert history(tmp_path) == [None]


def test_without_auto_nothing_is_remembered(tmp_path):
    run(tmp_path, lambda checkpointer, step: None)
    assert [path.name for path in tmp_path.iterdir()] == ["step-9"]


SCRIPT = """
import sys, threading, time
import spotkeep
from spotkeep.notices import instance_metadata
instance_metadata._POLL_SECONDS = 0.02
def train():
    state = {"progress": {"steps": []}}
    with spotkeep.Checkpointer(state, sys.argv[1], every_steps=1000) as checkpointer:
        for step in checkpointer.steps(6):
            state["progress"]["steps"].append(step)
            if step == 3:
                print("waiting", flush=True)
                while not checkpointer.interrupted:
                    time.sleep(0.01)
    assert state["progress"]["steps"] == [0, 1, 2, 3, 4, 5]
train()
"""


class Process:
    """A script of its own process, and what it says."""

    def __init__(self, directory, **environment):
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(directory)],
            env={
                **inherited,
                "PYTHONPATH": str(Path(spotkeep.__file__).parents[1]),
                "SPOTKEEP_EVENTS": "stdout",
                "SPOTKEEP_INSTANCE_METADATA": "off",
                **environment,
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        self.lines = []

    def wait_for(self, text):
        for line in self.process.stdout:
            self.lines.append(line)
            if text in line:
                return
        raise AssertionError(f"it ended without saying {text}; it said {self.lines}")

    def finish(self):
        with self.process:
            self.lines.extend(self.process.stdout)
        return self.process.returncode

    @property
    def events(self):
        return [json.loads(line[len(EVENT_PREFIX) :]) for line in self.lines if line.startswith(EVENT_PREFIX)]


def test_a_spot_interruption_of_ec2_in_a_real_process(tmp_path, metadata_service):
    options = {
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata_service.url,
        "SPOTKEEP_INSTANCE_METADATA": "on",
        "SPOTKEEP_NOTICE_FILE": str(tmp_path / "notice.json"),
    }
    process = Process(tmp_path / "checkpoints", **options)
    process.wait_for("waiting")
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 120))
    metadata_service.tokens.clear()
    metadata_service.action = json.dumps({"action": "terminate", "time": at}).encode()
    assert process.finish() == 75
    kinds = [
        (event["event"], event.get("step"), event.get("reason") or event.get("source")) for event in process.events
    ]
    assert kinds[-2:] == [("notice", None, "EC2 terminate"), ("saved", 4, "notice")]
    notice = next(event for event in process.events if event["event"] == "notice")
    assert 100 < notice["seconds_left"] <= 121
    assert (tmp_path / "notice.json").exists()
    # The next machine has another metadata service, and no notice.
    metadata_service.action = None
    again = Process(tmp_path / "checkpoints", **{**options, "SPOTKEEP_NOTICE_FILE": ""})
    assert again.finish() == 0
    assert [event["step"] for event in again.events if event["event"] in ("resume", "finish")] == [4, 6]
