"""What a job does between a notice and its end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from spotkeep.notices.notice import Notice, read_notice
from spotkeep.runner import failure, supervision
from spotkeep.runner.layout import import_root
from spotkeep.runner.supervision import Receivers, Supervisor, receivers_behind


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only during a sleep."""
    now = [1000.0]

    def sleep(seconds):
        assert seconds > 0
        now[0] += seconds

    monkeypatch.setattr(supervision.time, "time", lambda: now[0])
    monkeypatch.setattr(supervision.time, "sleep", sleep)
    return now


def test_the_container_is_kept_until_the_notice_is_over_and_no_longer(tmp_path, clock):
    supervisor = Supervisor(notice_file=tmp_path / "notice.json")
    supervisor.notice = Notice(source="SIGTERM", deadline=1120.0)
    supervisor.hold_until_deadline()
    assert clock[0] == pytest.approx(1120.0)


def test_without_a_notice_nothing_is_waited_for(tmp_path, clock):
    Supervisor(notice_file=tmp_path / "notice.json").hold_until_deadline()
    assert clock[0] == 1000.0


def test_sigterm_leaves_a_notice_for_every_process_of_the_job(tmp_path, clock):
    path = tmp_path / "notice.json"
    before = signal.getsignal(signal.SIGTERM)
    with Supervisor(notice_file=path) as supervisor:
        os.kill(os.getpid(), signal.SIGTERM)
        first = supervisor.notice
        os.kill(os.getpid(), signal.SIGTERM)
        assert supervisor.notice is first
    assert read_notice(path) == first == Notice(source="SIGTERM", deadline=1120.0)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_signal_that_comes_before_the_command_has_started_is_passed_on_when_it_has(tmp_path):
    with Supervisor(notice_file=tmp_path / "notice.json") as supervisor:
        os.kill(os.getpid(), signal.SIGUSR1)
        outcome = supervisor.run(["sleep", "600"], environment=dict(os.environ), directory=None)
    assert outcome.exit_code == 128 + signal.SIGUSR1


def test_a_notice_file_that_cannot_be_written_does_not_keep_the_signal(tmp_path, capfd):
    with Supervisor(notice_file=tmp_path / "missing" / "notice.json") as supervisor:
        os.kill(os.getpid(), signal.SIGTERM)
        assert supervisor.notice is not None
    assert "the notice file could not be written" in capfd.readouterr().err


def test_a_command_that_ends_while_a_signal_is_handled_still_has_its_exit_code(tmp_path, monkeypatch):
    def end_the_command(*_):
        os.kill(supervisor._child.pid, signal.SIGKILL)
        # Ended, and not waited for: that is the supervisor's to do.
        os.waitid(os.P_PID, supervisor._child.pid, os.WEXITED | os.WNOWAIT)

    def interrupted(stream, **passing):
        os.kill(os.getpid(), signal.SIGTERM)
        return passed(stream, **passing)

    passed = supervision._PassedStream
    monkeypatch.setattr(supervision, "_PassedStream", interrupted)
    monkeypatch.setattr(supervision, "write_notice", end_the_command)
    monkeypatch.setattr(supervision.os, "getpgrp", lambda: 0)  # this process may lead the group of the tests
    with Supervisor(notice_file=tmp_path / "notice.json") as supervisor:
        outcome = supervisor.run(["sleep", "60"], environment=dict(os.environ), directory=None)
    assert outcome.exit_code == 128 + signal.SIGKILL


def test_a_program_that_bash_was_about_to_start_when_sigterm_came_gets_it_too(tmp_path, monkeypatch):
    """bash has looked for signals, and starts its next line: a search for its programs at that time finds none."""

    def found_later(bash, signum):
        monkeypatch.setattr(supervision, "receivers_behind", receivers_behind)
        return Receivers(programs=(), shells=(bash,))

    begun = tmp_path / "begun"
    monkeypatch.setattr(supervision, "receivers_behind", found_later)
    monkeypatch.setattr(supervision.os, "getpgrp", lambda: 0)
    with Supervisor(notice_file=tmp_path / "notice.json") as supervisor:
        watch = threading.Thread(target=_signal_when, args=(begun,))
        watch.start()
        outcome = supervisor.run(
            f"bash -c 'echo > {begun}; exec sleep 600'\n", environment=dict(os.environ), directory=None
        )
        watch.join()
    assert outcome.exit_code == 128 + signal.SIGTERM


def _signal_when(path):
    while not path.exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)


_AS_PROCESS_1 = """
import os, sys
from pathlib import Path
from spotkeep.runner.supervision import Supervisor

notice = Path(sys.argv[1])
with Supervisor(notice_file=notice) as supervisor:
    notice.write_text("{}")
    outcome = supervisor.run(["sh", "-c", "exit 75"], environment=dict(os.environ), directory=None)
print(os.getpid(), os.getpgrp(), outcome.exit_code)
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("setsid") is None,
    reason="a process 1 needs root, unshare and setsid",
)
def test_a_containers_process_1_that_is_alone_after_a_notice_gives_the_commands_exit_code(tmp_path):
    """Its group is number 1, and a signal to that group goes to all others in the container: there may be none."""
    command = [
        "unshare",
        "--pid",
        "--fork",
        "setsid",
        sys.executable,
        "-c",
        _AS_PROCESS_1,
        str(tmp_path / "notice.json"),
    ]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": import_root()}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["1", "1", "75"], done.stderr


@pytest.mark.parametrize("counted_before", [0, 3])
def test_kills_for_memory_are_those_while_the_command_ran(tmp_path, monkeypatch, counted_before):
    counts = tmp_path / "vmstat"
    counts.write_text(f"nr_free_pages 1\noom_kill {counted_before}\n")
    monkeypatch.setattr(failure, "_KERNEL_COUNTS", counts)
    command = ["sh", "-c", f"echo oom_kill {counted_before + 1} > {counts}; kill -9 $$"]
    outcome = Supervisor(notice_file=tmp_path / "notice.json").run(
        command, environment=dict(os.environ), directory=None
    )
    assert (outcome.exit_code, outcome.memory_kills) == (137, 1)


@pytest.mark.parametrize("counts", [None, "nr_free_pages 1\n"], ids=["no such file", "an old kernel"])
def test_where_the_kernel_does_not_count_kills_there_are_none(tmp_path, monkeypatch, counts):
    path = tmp_path / "vmstat"
    if counts is not None:
        path.write_text(counts)
    monkeypatch.setattr(failure, "_KERNEL_COUNTS", path)
    outcome = Supervisor(notice_file=tmp_path / "notice.json").run(
        ["true"], environment=dict(os.environ), directory=None
    )
    assert (outcome.exit_code, outcome.memory_kills) == (0, 0)


@pytest.mark.skipif(shutil.which("ps") is None, reason="needs ps")
@pytest.mark.parametrize("processes", [Path("/proc"), Path("/nowhere")], ids=["the kernel's files", "ps, as on macOS"])
def test_a_program_behind_two_shells_is_found_and_a_program_is_itself(processes):
    lines = "( sleep 60; true ) & echo $!; wait"
    with subprocess.Popen(["bash", "-c", f"bash -c '{lines}'; true"], stdout=subprocess.PIPE, text=True) as shell:
        try:
            subshell = int(shell.stdout.readline())
            [program] = _children(subshell)
            for pid in (shell.pid, program):
                found = receivers_behind(pid, signal.SIGTERM, processes=processes)
                assert found == Receivers(programs=(program,), shells=())
        finally:
            for pid in receivers_behind(shell.pid, signal.SIGKILL).programs:
                subprocess.run(["kill", "-9", str(pid)], check=True)


def test_a_shell_that_runs_nothing_is_no_program():
    with subprocess.Popen(["bash", "-c", "read line"], stdin=subprocess.PIPE, text=True) as shell:
        assert receivers_behind(shell.pid, signal.SIGTERM) == Receivers(programs=(), shells=(shell.pid,))
        shell.communicate("")


def _children(parent: int) -> list[int]:
    """Wait for what a shell has started, and give it."""
    while True:
        listed = subprocess.run(
            ["ps", "-A", "-o", "ppid=,pid=,comm="], capture_output=True, text=True, check=True
        ).stdout
        rows = [line.split(None, 2) for line in listed.splitlines()]
        found = [int(pid) for ppid, pid, name in rows if int(ppid) == parent and name.strip().endswith("sleep")]
        if found:
            return found
