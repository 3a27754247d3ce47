"""A notice reaches the script by signal, by file or from EC2, whatever the script is doing; SIGTERM is given back."""

from __future__ import annotations

import ctypes
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from spotkeep import Checkpointer, UsageError
from spotkeep.notices.notice import (
    NOTICE_FILE_VARIABLE,
    Notice,
    NoticeWatch,
    all_are_done,
    forget_trainings,
    note_training,
    notice_seconds,
    read_notice,
    trainings_file,
    write_notice,
)


@pytest.fixture
def watch():
    watching = NoticeWatch()
    watching.start()
    yield watching
    watching.stop()


def test_there_is_none_until_it_comes(watch):
    assert watch.notice() is None


def test_sigterm_is_a_notice_of_two_minutes(watch):
    before = time.time()
    os.kill(os.getpid(), signal.SIGTERM)
    notice = watch.notice()
    assert notice.source == "SIGTERM"
    assert before + 120 <= notice.deadline <= time.time() + 120


def test_of_several_notices_the_one_that_ends_first_counts(watch, monkeypatch):
    os.kill(os.getpid(), signal.SIGTERM)
    first = watch.notice()
    os.kill(os.getpid(), signal.SIGTERM)
    assert watch.notice() is first
    left = watch.seconds_left
    monkeypatch.setenv("SPOTKEEP_NOTICE_SECONDS", "30")
    os.kill(os.getpid(), signal.SIGTERM)
    assert watch.notice().deadline < first.deadline
    assert watch.seconds_left < left - 80


def test_a_file_is_a_notice_for_a_process_that_gets_no_signal(tmp_path, monkeypatch):
    path = tmp_path / "notice.json"
    monkeypatch.setenv("SPOTKEEP_NOTICE_FILE", str(path))
    seen = []

    def work():
        watching = NoticeWatch()
        watching.start()
        seen.append(watching.notice())
        write_notice(path, Notice(source="EC2", deadline=2e9))
        seen.append(watching.notice())
        watching.stop()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [None, Notice(source="EC2", deadline=2e9)]
    assert seen[1].seconds_left > 0


def test_a_file_that_is_written_again_may_leave_less_time(tmp_path, monkeypatch):
    """The agent of an instance keeps a part of EC2's notice to let go of the volume."""
    path = tmp_path / "notice.json"
    monkeypatch.setenv("SPOTKEEP_NOTICE_FILE", str(path))
    watching = NoticeWatch()
    deadlines = []
    for at, deadline in enumerate([2e9, 1e9, 3e9]):
        write_notice(path, Notice(source="EC2 terminate", deadline=deadline))
        os.utime(path, ns=(at, at))
        deadlines.append(watching.notice().deadline)
    assert deadlines == [2e9, 1e9, 1e9]


def test_a_notice_that_is_over_has_no_seconds_left():
    assert Notice(source="SIGTERM", deadline=time.time() - 5).seconds_left == 0


@pytest.mark.parametrize(("given", "taken"), [("30", 30.0), ("-1", 0.0), ("soon", 120.0), ("inf", 120.0)])
def test_how_long_a_notice_lasts_can_be_said(monkeypatch, given, taken):
    monkeypatch.setenv("SPOTKEEP_NOTICE_SECONDS", given)
    assert notice_seconds() == taken


def test_a_handler_that_was_there_is_still_called_and_comes_back():
    calls = []

    def mine(signum, frame):
        calls.append(signum)

    original = signal.signal(signal.SIGTERM, mine)
    try:
        outer, inner = NoticeWatch(), NoticeWatch()
        outer.start()
        inner.start()
        os.kill(os.getpid(), signal.SIGTERM)
        assert calls == [signal.SIGTERM]
        assert outer.notice() is not None
        assert inner.notice() is not None
        inner.stop()
        outer.stop()
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, original)


def test_a_handler_that_came_later_stays():
    original = signal.getsignal(signal.SIGTERM)
    watch = NoticeWatch()
    watch.start()
    later = signal.SIG_IGN
    signal.signal(signal.SIGTERM, later)
    watch.stop()
    assert signal.getsignal(signal.SIGTERM) is later
    signal.signal(signal.SIGTERM, original)


def test_there_is_time_to_leave_and_a_moment_for_who_is_late(watch, monkeypatch):
    assert watch.seconds_left == math.inf
    monkeypatch.setenv("SPOTKEEP_NOTICE_SECONDS", "100")
    os.kill(os.getpid(), signal.SIGTERM)
    assert 90 < watch.seconds_left <= 98
    monkeypatch.setenv("SPOTKEEP_NOTICE_SECONDS", "0")
    os.kill(os.getpid(), signal.SIGTERM)
    assert 0 < watch.seconds_left <= 5


class Changes:
    """Counts the changes that a watch reports, and waits for them."""

    def __init__(self):
        self.times = 0
        self.changed = threading.Condition()

    def __call__(self):
        with self.changed:
            self.times += 1
            self.changed.notify_all()

    def wait(self, times):
        with self.changed:
            assert self.changed.wait_for(lambda: self.times >= times, 30)


@pytest.fixture
def started(monkeypatch):
    """Start watches with variables of their own, and stop them."""
    watches = []

    def start(changes=None, **environment):
        watches.append(NoticeWatch(on_change=changes, environment=environment))
        watches[-1].start()
        return watches[-1]

    yield start
    for watch in reversed(watches):
        watch.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "spotkeep-notice"]


def test_it_is_reported_when_it_comes_and_when_the_time_to_act_is_over(started, monkeypatch):
    monkeypatch.setenv("SPOTKEEP_NOTICE_SECONDS", "0")
    monkeypatch.setattr("spotkeep.notices.notice._GRACE_SECONDS", 0.05)
    changes = Changes()
    watch = started(changes)
    os.kill(os.getpid(), signal.SIGTERM)
    changes.wait(2)
    assert watch.seconds_left == 0


def test_a_signal_is_noticed_while_the_main_thread_is_in_a_call_that_nothing_interrupts(started):
    changes = Changes()
    watch = started(changes)
    library = ctypes.CDLL(None)
    mutex = ctypes.create_string_buffer(128)
    held, seen = threading.Event(), []

    def notice_comes():
        library.pthread_mutex_lock(mutex)
        held.set()
        os.kill(os.getpid(), signal.SIGTERM)
        changes.wait(1)
        seen.append(watch.notice())
        library.pthread_mutex_unlock(mutex)

    thread = threading.Thread(target=notice_comes)
    thread.start()
    held.wait()
    library.pthread_mutex_lock(mutex)
    thread.join()
    assert [notice.source for notice in seen] == ["SIGTERM"]


def test_a_file_is_noticed_without_being_asked_for(started, tmp_path):
    changes = Changes()
    path = tmp_path / "notice.json"
    started(changes, SPOTKEEP_NOTICE_FILE=str(path))
    write_notice(path, Notice(source="SIGTERM", deadline=2e9))
    changes.wait(1)


@pytest.mark.parametrize("started_before", [0, 1])
def test_a_watch_that_cannot_be_started_gives_sigterm_back(monkeypatch, started_before):
    really_start, before, wakeup = threading.Thread.start, signal.getsignal(signal.SIGTERM), signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    started = []

    def start(thread):
        if len(started) == started_before:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        really_start(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    watching = NoticeWatch(environment={"SPOTKEEP_INSTANCE_METADATA": "on"})
    with pytest.raises(RuntimeError):
        watching.start()
    assert signal.getsignal(signal.SIGTERM) == before
    assert signal.set_wakeup_fd(wakeup) == wakeup
    assert not [thread for thread in threading.enumerate() if thread.name == "spotkeep-notice"]


def test_outside_the_main_thread_it_is_said_that_no_signal_comes(started, caplog, tmp_path):
    def start(**environment):
        thread = threading.Thread(target=started, kwargs=environment)
        thread.start()
        thread.join()

    start(SPOTKEEP_NOTICE_FILE=str(tmp_path / "notice.json"))
    assert caplog.text == "", "there the file tells"
    start()
    assert "SIGTERM is not noticed here" in caplog.text


def test_a_worker_that_was_forked_off_dies_of_sigterm_and_wakes_no_other_process(started):
    changes = Changes()
    outer, inner = started(changes), started(changes)
    ready, is_ready = os.pipe()
    child = os.fork()
    if not child:
        os.write(is_ready, b"!")
        signal.pause()
        os._exit(0)
    os.read(ready, 1)
    os.kill(child, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    assert outer.notice() is inner.notice() is None
    assert changes.times == 0
    os.close(ready)
    os.close(is_ready)


def test_an_event_loop_that_is_woken_by_signals_still_is(started):
    awaited, wakeup = socket.socketpair()
    with awaited, wakeup:
        wakeup.setblocking(False)
        signal.set_wakeup_fd(wakeup.fileno())
        try:
            watch = started()
            os.kill(os.getpid(), signal.SIGTERM)
            assert awaited.recv(1) == bytes([signal.SIGTERM])
            assert watch.notice() is not None
            watch.stop()
        finally:
            assert signal.set_wakeup_fd(-1) == wakeup.fileno()


def test_watches_may_stop_in_any_order():
    calls = []
    original = signal.signal(signal.SIGTERM, lambda *_: calls.append(1))
    first, second = NoticeWatch(), NoticeWatch()
    first.start()
    second.start()
    first.stop()
    second.stop()
    os.kill(os.getpid(), signal.SIGTERM)
    assert calls == [1], "no watch is there any more that would keep it to itself"
    signal.signal(signal.SIGTERM, original)


def ec2(metadata_service, **environment):
    return {"AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata_service.url, **environment}


def action(seconds):
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
    return json.dumps({"action": "terminate", "time": at}).encode()


def test_what_ec2_announces_is_a_notice_with_its_own_deadline(started, metadata_service, tmp_path):
    metadata_service.action = action(60)
    changes, path = Changes(), tmp_path / "notice.json"
    watch = started(changes, **ec2(metadata_service, SPOTKEEP_NOTICE_FILE=str(path)))
    changes.wait(1)
    assert watch.notice().source == "EC2 terminate"
    assert 50 < watch.notice().seconds_left <= 61
    assert read_notice(path) == watch.notice(), "the other processes of the job see it"


def test_an_announcement_without_a_time_lasts_as_long_as_notices_do(started, metadata_service):
    metadata_service.action = b'{"action": "stop", "time": "?"}'
    changes = Changes()
    watch = started(changes, **ec2(metadata_service))
    changes.wait(1)
    assert 110 < watch.notice().seconds_left <= 120


def test_on_a_rebalance_a_save_is_advised_once(started, metadata_service):
    metadata_service.rebalance = b'{"noticeTime": "2026-11-21T12:00:00Z"}'
    watch = started(**ec2(metadata_service))
    while not watch.take_save_advice():
        time.sleep(0.01)
    assert not watch.take_save_advice()
    assert watch.notice() is None


def test_a_rebalance_can_be_a_notice(started, metadata_service):
    metadata_service.rebalance = b'{"noticeTime": "2026-11-21T12:00:00Z"}'
    changes = Changes()
    watch = started(changes, **ec2(metadata_service, SPOTKEEP_REBALANCE="leave"))
    changes.wait(1)
    assert watch.notice().source == "EC2 rebalance"


def test_a_wish_about_rebalances_that_is_none_is_refused():
    with pytest.raises(UsageError, match="save, leave, ignore"):
        NoticeWatch(environment={"SPOTKEEP_REBALANCE": "yes"})


@pytest.mark.parametrize("fault", ["hang", 500])
def test_a_metadata_service_that_is_broken_neither_delays_nor_notices(started, metadata_service, fault, caplog):
    metadata_service.token = metadata_service.action = fault
    watch = started(**ec2(metadata_service))
    assert watch.notice() is None
    watch.stop()


@pytest.mark.parametrize(
    "text", ["{", "[]", "null", '{"source": 1, "deadline": NaN}', '{"source": 1, "deadline": 1e999}', "[" * 9999]
)
def test_a_notice_file_of_any_content_is_a_notice_with_a_deadline(tmp_path, text):
    path = tmp_path / "notice.json"
    path.write_text(text)
    assert 0 < read_notice(path).seconds_left <= 120


@pytest.fixture
def notice_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "notice.json"
    monkeypatch.setenv(NOTICE_FILE_VARIABLE, str(path))
    return path


def test_a_job_without_a_training_is_not_done(notice_file: Path) -> None:
    assert not all_are_done(notice_file)


def test_a_training_is_done_after_its_last_step(notice_file: Path, tmp_path: Path) -> None:
    with Checkpointer({}, tmp_path / "checkpoints") as checkpointer:
        assert not all_are_done(notice_file)
        assert [all_are_done(notice_file) for _ in checkpointer.steps(2)] == [False, False]
        assert all_are_done(notice_file), "what follows the loop, as the writing of a model, is no training"
    assert all_are_done(notice_file)
    with Checkpointer({}, tmp_path / "checkpoints") as checkpointer:
        assert not list(checkpointer.steps(2))
    assert all_are_done(notice_file), "one that was done before is done again"


def test_one_that_goes_on_or_another_one_takes_that_back(notice_file: Path, tmp_path: Path) -> None:
    with Checkpointer({}, tmp_path / "one") as checkpointer:
        list(checkpointer.steps(1))
        for _ in checkpointer.steps(2):
            assert not all_are_done(notice_file)
        checkpointer.complete_step()
        checkpointer.save_if_due(last=True)
        assert all_are_done(notice_file)
    with Checkpointer({}, tmp_path / "two"):
        assert not all_are_done(notice_file)
    assert not all_are_done(notice_file), "a block that is left without the last step says nothing"


def test_one_that_ends_inside_of_another_one_does_not_end_that(notice_file: Path, tmp_path: Path) -> None:
    said = []
    with Checkpointer({}, tmp_path / "outer") as outer:
        for step in outer.steps(3):
            said.append(all_are_done(notice_file))
            if step == 1:
                with Checkpointer({}, tmp_path / "inner") as inner:
                    list(inner.steps(2))
    assert said == [False, False, False]
    assert all_are_done(notice_file)


def test_a_pause_is_done_with_what_it_was_to_do(
    notice_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOTKEEP_PAUSE_AT_STEP", "1")
    with pytest.raises(SystemExit) as left, Checkpointer({}, tmp_path / "checkpoints") as checkpointer:
        list(checkpointer.steps(2))
    assert left.value.code == 0
    assert all_are_done(notice_file)


def test_what_an_earlier_job_has_said_is_forgotten(notice_file: Path) -> None:
    note_training(notice_file, done=True)
    forget_trainings(notice_file)
    forget_trainings(notice_file)
    assert not all_are_done(notice_file)


def test_all_processes_must_be_done(notice_file: Path) -> None:
    note_training(notice_file, done=True)
    code = "from spotkeep.notices.notice import note_training; import pathlib, sys; note_training(pathlib.Path("
    command = [sys.executable, "-S", "-c", f"{code}sys.argv[1]), done=False)", str(notice_file)]
    subprocess.run(command, check=True, env={"PYTHONPATH": os.pathsep.join(sys.path)})
    assert not all_are_done(notice_file)


def test_where_nothing_can_be_said_the_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(NOTICE_FILE_VARIABLE, str(tmp_path / "missing" / "notice.json"))
    with Checkpointer({}, tmp_path / "checkpoints") as checkpointer:
        assert list(checkpointer.steps(2)) == [0, 1]
    assert "the runner does not hear whether the training is done" in caplog.text
    assert not trainings_file(tmp_path / "missing" / "notice.json").exists()
