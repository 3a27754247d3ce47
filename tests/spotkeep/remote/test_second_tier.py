"""A training whose machine is lost with its disk goes on from S3; and the log says so when an upload never comes."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import spotkeep
from spotkeep import Checkpointer, RemoteError, SaveError, UsageError
from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.retention import Retention
from spotkeep.disk.upload_markers import UPLOADED_SUFFIX
from spotkeep.events import EVENT_PREFIX, TrainingEvents
from spotkeep.remote import second_tier as module
from spotkeep.remote.second_tier import SecondTier
from spotkeep.state.encoding import encode_state


@pytest.fixture
def remote(bucket, network, monkeypatch):
    monkeypatch.setattr("spotkeep.remote.remote_checkpoints._FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr("spotkeep.remote.background_upload._FIRST_PAUSE_SECONDS", 0.001)
    return f"s3://{bucket.name}/runs/digits"


def train(directory, total, *, at=None, **options):
    """One process on a machine whose disk is `directory`; `at` is called with the checkpointer after each step."""
    state = {"seen": []}
    ending = None
    try:
        with Checkpointer(state, directory, **{"every_steps": 2, **options}) as checkpointer:
            for step in checkpointer.steps(total):
                state["seen"].append(step)
                if at is not None:
                    at(checkpointer, step)
    except SystemExit as left:
        ending = left.code
    return state["seen"], ending


def notice_in(step_of_notice):
    def at(checkpointer, step):
        if step == step_of_notice:
            os.kill(os.getpid(), signal.SIGTERM)

    return at


def keys(bucket):
    return {found.key.removeprefix("runs/digits/").split("/")[0] for found in bucket.objects.all()}


def kinds(events, *wanted):
    return [(event["event"], event.get("step")) for event in events if event["event"] in wanted]


def test_what_a_lost_machine_had_uploaded_is_taken_up_by_the_next(tmp_path, remote, bucket, job_events):
    assert train(tmp_path / "first", 7, at=notice_in(4), remote=remote) == ([0, 1, 2, 3, 4], 75)
    assert kinds(job_events(), "uploaded")[-1] == ("uploaded", 5)
    shutil.rmtree(tmp_path / "first")
    job_events().clear()
    assert train(tmp_path / "second", 7, remote=remote) == (list(range(7)), None)
    assert kinds(job_events(), "downloaded", "resume", "finish") == [("downloaded", 5), ("resume", 5), ("finish", 7)]
    assert kinds(job_events(), "uploaded")[-1] == ("uploaded", 7)


KILLED = """
import sys, time
from spotkeep import Checkpointer
state = {"seen": []}
with Checkpointer(state, sys.argv[1], every_steps=3, keep_last=2) as checkpointer:
    assert state["seen"] == list(range(checkpointer.step))
    for step in checkpointer.steps(10**6):
        state["seen"].append(step)
        time.sleep(0.005)
"""


@pytest.mark.long
def test_a_machine_that_vanishes_with_its_disk_at_any_moment_loses_only_what_had_not_arrived(tmp_path, remote):
    chance = random.Random(seed := random.randrange(2**32))  # noqa: S311 - not secret
    print(f"drawn with random.Random({seed})")
    arrived = 0
    for number in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path / f"disk-{number}")],
            env={
                **os.environ,
                "PYTHONPATH": str(Path(spotkeep.__file__).parents[1]),
                "SPOTKEEP_CHECKPOINT_URI": remote,
                "SPOTKEEP_EVENTS": "stdout",
                "SPOTKEEP_PROGRESS_SECONDS": "1000",
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        with process:
            wanted = chance.randrange(1, 5)
            for line in process.stdout:
                event = json.loads(line.partition(EVENT_PREFIX)[2])
                if event["event"] == "resume":
                    assert event["step"] >= arrived
                if event["event"] == "uploaded":
                    arrived = event["step"]
                    wanted -= 1
                if not wanted:
                    break
            time.sleep(chance.random() * 0.1)
            process.kill()
    assert arrived >= 9


def test_the_environment_may_name_the_place(tmp_path, remote, bucket, monkeypatch):
    monkeypatch.setenv("SPOTKEEP_CHECKPOINT_URI", remote)
    train(tmp_path, 3)
    assert "step-3" in keys(bucket)


def test_both_places_keep_the_same(tmp_path, remote, bucket):
    def until_it_has_arrived(checkpointer, step):
        checkpointer.wait()
        checkpointer._session.tier.finish(lambda: 30.0)

    train(tmp_path, 12, at=until_it_has_arrived, remote=remote)
    assert keys(bucket) == {path.name for path in tmp_path.iterdir()} == {"step-8", "step-10", "step-12"}


def test_a_second_block_of_the_same_checkpointer_uploads_too(tmp_path, remote, bucket):
    state = {"w": np.zeros(4)}
    checkpointer = Checkpointer(state, tmp_path, remote=remote)
    for step in (1, 2):
        with checkpointer:
            checkpointer.save(step)
        assert f"step-{step}" in keys(bucket)


def test_a_local_checkpoint_that_never_arrived_is_uploaded_by_the_next_process(tmp_path, remote, bucket, network):
    train(tmp_path, 4)
    train(tmp_path, 4, remote=remote)
    assert keys(bucket) == {"step-4"}


@pytest.mark.long
def test_the_newer_of_both_places_is_restored(tmp_path, remote, job_events):
    train(tmp_path / "first", 6, at=notice_in(2), remote=remote)
    train(tmp_path / "second", 6, at=notice_in(4), remote=remote)
    job_events().clear()
    train(tmp_path / "first", 6, remote=remote)
    assert kinds(job_events(), "downloaded", "resume") == [("downloaded", 5), ("resume", 5)]
    job_events().clear()
    train(tmp_path / "first", 6, remote=remote)
    assert kinds(job_events(), "downloaded", "resume") == [("resume", 6)]


def damage(path):
    raw = bytearray(path.read_bytes())
    raw[3] ^= 1
    path.write_bytes(raw)


def test_a_damaged_local_checkpoint_comes_back_from_s3(tmp_path, bucket, remote, job_events):
    train(tmp_path, 4, remote=remote)
    damage(tmp_path / "step-4" / "manifest.json")
    job_events().clear()
    train(tmp_path, 4, remote=remote)
    assert kinds(job_events(), "fallback", "downloaded", "resume") == [
        ("fallback", 4),
        ("downloaded", 4),
        ("resume", 4),
    ]


def test_a_damaged_one_in_s3_falls_back_to_an_older_one_there(tmp_path, bucket, remote, job_events):
    train(tmp_path / "first", 4, remote=remote, at=lambda checkpointer, step: checkpointer.wait())
    bucket.Object("runs/digits/step-4/manifest.json").put(Body=b"?")
    for name in ("data-00000.bin", "manifest.json"):
        source = tmp_path / "first" / "step-2" / name
        if source.exists():
            bucket.Object(f"runs/digits/step-2/{name}").put(Body=source.read_bytes())
    job_events().clear()
    assert train(tmp_path / "second", 4, remote=remote)[0] == [0, 1, 2, 3]
    assert kinds(job_events(), "fallback", "downloaded", "resume") == [
        ("fallback", 4),
        ("downloaded", 2),
        ("resume", 2),
    ]


def test_a_place_that_cannot_be_read_is_no_reason_to_start_over(tmp_path, remote, network):
    network.fault = lambda request: 403
    with pytest.raises(RemoteError, match="cannot be listed"), Checkpointer({}, tmp_path, remote=remote):
        pytest.fail("entered")


def test_a_failing_upload_is_reported_and_does_not_end_the_training(tmp_path, remote, network, job_events):
    network.fault = lambda request: 403 if request.startswith("PUT") else None
    seen, ending = train(tmp_path, 4, remote=remote)
    assert (seen, ending) == ([0, 1, 2, 3], None)
    failed = [event for event in job_events() if event["event"] == "upload-failed"]
    assert "AccessDenied" in failed[0]["problem"]
    assert "the newest checkpoint in S3 is none" in failed[-1]["problem"]


def test_a_place_that_takes_no_note_costs_no_older_checkpoint_of_this_machine(tmp_path, remote, network, monkeypatch):
    with Checkpointer({"n": 0}, tmp_path, every_steps=1, keep_last=4) as outside:
        list(outside.steps(4))
    monkeypatch.setenv("SPOTKEEP_ATTEMPT", "1")
    network.fault = lambda request: 403 if request.startswith("PUT") else None
    with Checkpointer({"n": 0}, tmp_path, every_steps=1, remote=remote) as checkpointer:
        list(checkpointer.steps(6))
    assert checkpointer.all_steps() == [1, 2, 3, 4]


def test_a_pause_waits_until_its_checkpoint_is_in_s3(tmp_path, remote, job_events, monkeypatch):
    monkeypatch.setenv("SPOTKEEP_PAUSE_AT_STEP", "3")
    assert train(tmp_path / "first", 7, remote=remote) == ([0, 1, 2], 0)
    assert kinds(job_events(), "uploaded", "paused")[-2:] == [("uploaded", 3), ("paused", 3)]
    shutil.rmtree(tmp_path / "first")
    monkeypatch.delenv("SPOTKEEP_PAUSE_AT_STEP")
    assert train(tmp_path / "second", 7, remote=remote) == (list(range(7)), None)


def test_a_pause_whose_checkpoint_does_not_arrive_in_s3_is_an_error(tmp_path, remote, network, job_events, monkeypatch):
    monkeypatch.setenv("SPOTKEEP_PAUSE_AT_STEP", "3")
    network.fault = lambda request: 403 if request.startswith("PUT") else None
    with pytest.raises(SaveError, match="the checkpoint of step 3 is not in S3"):
        train(tmp_path, 7, remote=remote)
    assert kinds(job_events(), "paused") == []


def test_a_notice_too_short_for_the_upload_says_what_has_arrived(tmp_path, remote, network, job_events, monkeypatch):
    monkeypatch.setenv("SPOTKEEP_NOTICE_SECONDS", "0")
    monkeypatch.setattr("spotkeep.notices.notice._GRACE_SECONDS", 2.0)
    held = threading.Event()

    def at(checkpointer, step):
        if step == 3:
            checkpointer.wait()
            checkpointer._session.tier.finish(lambda: 30.0)
            network.fault = lambda request: held.wait(30) and None
            os.kill(os.getpid(), signal.SIGTERM)

    _, ending = train(tmp_path, 9, at=at, remote=remote)
    held.set()
    assert ending == 75
    events = [event for event in job_events() if event["event"] in ("saved", "upload-failed")]
    assert (events[-2]["event"], events[-2]["step"], events[-2]["reason"]) == ("saved", 4, "notice")
    assert (events[-1]["event"], events[-1]["step"]) == ("upload-failed", 4)
    assert "the newest checkpoint in S3 is that of step 2" in events[-1]["problem"]


@pytest.mark.long
def test_a_notice_while_a_checkpoint_is_downloaded_ends_the_process(tmp_path, remote, network):
    state = {"w": np.zeros(40 * 2**20, dtype="u1")}
    with Checkpointer(state, tmp_path / "first", remote=remote) as checkpointer:
        checkpointer.save(1)

    def interrupt(request):
        if request.startswith("GET") and "data-" in request:
            os.kill(os.getpid(), signal.SIGTERM)

    network.fault = interrupt
    with pytest.raises(SystemExit) as left, Checkpointer(state, tmp_path / "second", remote=remote):
        pytest.fail("entered")
    assert left.value.code == 75
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "SIGTERM was given back"


@pytest.mark.long
def test_what_was_seen_of_interruptions_goes_along(tmp_path, remote, bucket, job_events, monkeypatch):
    monkeypatch.setattr("spotkeep.schedule.save_schedule._FIRST_SECONDS", 1e-9)
    train(tmp_path / "first", 9, at=notice_in(2), remote=remote, every_steps=None, every_seconds="auto")
    job_events().clear()
    train(tmp_path / "second", 9, remote=remote, every_steps=None, every_seconds="auto")
    schedule, *_ = [event for event in job_events() if event["event"] == "schedule"]
    assert "every 5,40" in schedule["reason"], "half of three hours and a moment"
    assert "75% of them with a notice in time" in schedule["reason"]


def test_an_address_that_is_none_is_refused(tmp_path):
    with pytest.raises(UsageError, match="s3://bucket/prefix"):
        Checkpointer({}, tmp_path, remote="/mnt/checkpoints")


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now


def test_under_sagemaker_a_copying_that_has_stopped_is_reported(tmp_path, monkeypatch, job_events, caplog):
    monkeypatch.setenv("TRAINING_JOB_NAME", "digits-1")
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    directory = CheckpointDirectory(tmp_path)
    tier = SecondTier(directory, remote=None, retention=Retention(), events=TrainingEvents())
    for step in (10, 20):
        directory.write(encode_state({"a": 1}), step=step)
        tier.saved(step)
    (tmp_path / "step-10" / ("manifest.json" + UPLOADED_SUFFIX)).touch()
    for clock.now in (100.0, 800.0):
        tier.warn_when_late()
    assert job_events() == []
    clock.now = 1000.0
    directory.write(encode_state({"a": 1}), step=30)
    tier.saved(30)
    tier.warn_when_late()
    (late,) = job_events()
    reported = {name: late[name] for name in ("event", "step", "uploaded_step", "seconds", "expected_seconds")}
    assert reported == {
        "event": "upload-late",
        "step": 30,
        "uploaded_step": 10,
        "seconds": 1000,
        "expected_seconds": 900,
    }
    assert "the newest one there is that of step 10" in caplog.text


def test_elsewhere_no_upload_is_expected(tmp_path, job_events):
    train(tmp_path, 4)
    assert kinds(job_events(), "upload-late", "uploaded", "upload-failed") == []


def test_trainings_with_names_come_back_from_s3_each_for_itself(tmp_path, remote, bucket, new_process, job_events):
    assert train(tmp_path / "lost", 4, remote=remote, name="fold-1") == ([0, 1, 2, 3], None)
    assert train(tmp_path / "lost", 5, at=notice_in(2), remote=remote, name="fold-2") == ([0, 1, 2], 75)
    assert keys(bucket) == {"fold-1", "fold-2"}
    uploaded = [(event["step"], event["training"]) for event in job_events() if event["event"] == "uploaded"]
    assert {(4, "fold-1"), (3, "fold-2")} <= set(uploaded)
    new_process()
    for fold, steps in ((1, 4), (2, 5)):
        assert train(tmp_path / "next", steps, remote=remote, name=f"fold-{fold}") == (list(range(steps)), None)


def test_trainings_with_directories_of_their_own_and_one_place_in_s3_are_refused(tmp_path, remote, bucket, new_process):
    """A machine without the first one's directory would take its checkpoints from S3."""
    train(tmp_path / "a", 2, remote=remote)
    with pytest.raises(
        UsageError, match=r"s3://.* holds the checkpoints of a training that ended.* or a remote= of its"
    ):
        train(tmp_path / "b", 2, remote=remote)
    train(tmp_path / "b", 2, remote=remote, name="b")
