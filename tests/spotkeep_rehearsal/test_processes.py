"""A command's output is read as it comes, and its end is the end of everything that it has started."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spotkeep_rehearsal.evidence import RehearsalError
from spotkeep_rehearsal.processes import MARK_VARIABLE, RunningCommand

LEAVES = """
import os, sys, time
for _ in range(2):  # twice, as a daemon does
    if os.fork():
        os._exit(0) if _ else os.wait() and os._exit(0)
    os.setsid()
open("pid.new", "w").write(str(os.getpid())); os.replace("pid.new", "pid")
os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(300)"], {})
"""


def started(folder: Path, code: str) -> RunningCommand:
    mark = os.urandom(8).hex()
    environment = {**os.environ, MARK_VARIABLE: mark, "PYTHONUNBUFFERED": "1"}
    return RunningCommand([sys.executable, "-c", code], environment=environment, directory=folder, mark=mark)


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return Path("/proc", str(pid), "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="macOS gives orphans to launchd alone")
def test_a_daemon_that_left_the_session_and_cleared_its_environment_ends_too(tmp_path: Path) -> None:
    own = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    try:
        with started(tmp_path, LEAVES) as command:
            wait_for((tmp_path / "pid").exists)
            pid = int((tmp_path / "pid").read_text(encoding="ascii"))
            wait_for(lambda: command.exit_code is not None)
            assert is_running(pid)
        assert not is_running(pid)
        # A process that was there before belongs to another.
        assert own.poll() is None
    finally:
        own.kill()
        own.wait()


def test_lines_come_with_their_times_also_those_of_a_progress_bar(tmp_path: Path) -> None:
    with started(tmp_path, "print('a 1\\ra 2\\r\\n\\nlast', end='')") as command:
        wait_for(lambda: command.exit_code is not None)
        command.kill()
        assert [text for _, text in command.new_lines()] == ["a 1", "a 2", "last"]


def test_a_signal_shows_as_a_shell_shows_it_and_a_missing_program_is_named(tmp_path: Path) -> None:
    with started(tmp_path, "import os; os.kill(os.getpid(), 15)") as command:
        wait_for(lambda: command.exit_code is not None)
        assert command.exit_code == 143
    with pytest.raises(RehearsalError, match="'no-such-program' cannot be started"):
        RunningCommand(["no-such-program"], environment={}, directory=tmp_path, mark="x")
