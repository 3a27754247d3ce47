"""A process id is only trusted together with when its process began."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spotkeep_local.hosts import process_identity

readers = pytest.mark.parametrize(
    "read",
    [
        pytest.param(
            process_identity._from_proc,
            marks=pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here"),
            id="proc",
        ),
        pytest.param(process_identity._from_ps, id="ps"),
    ],
)


@readers
def test_a_process_keeps_its_start_time_and_loses_it_when_it_ends(
    read: Callable[[int], str | None],
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = read(process.pid)
        assert started
        assert read(process.pid) == started
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert read(process.pid) is None, "its unreaped remains are no process"
    assert read(process.pid) is None


_OUTLIVED_BY_A_THREAD = """
import ctypes, platform, threading, time
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print(flush=True)
EXIT_OF_A_THREAD = {"x86_64": 60, "aarch64": 93}
ctypes.CDLL(None).syscall(EXIT_OF_A_THREAD[platform.machine()], 0)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here")
def test_a_process_is_there_until_its_last_thread_has_ended() -> None:
    """A killed process has its port, and its files, until then; its first thread may end before."""
    command = [sys.executable, "-c", _OUTLIVED_BY_A_THREAD]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        started = process_identity.start_time(process.pid)
        while " Z " not in Path(f"/proc/{process.pid}/stat").read_text():
            time.sleep(0.01)
        was_there = process_identity.is_same_process(process.pid, started)
        process.kill()
        assert was_there
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert process_identity.start_time(process.pid) is None


def test_only_the_process_that_was_meant_is_signalled() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = process_identity.start_time(process.pid)
        assert not process_identity.signal_if_same(process.pid, "another time", signal.SIGKILL)
        assert not process_identity.signal_if_same(process.pid, None, signal.SIGKILL)
        assert process.poll() is None
        assert process_identity.signal_if_same(process.pid, started, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert not process_identity.signal_if_same(process.pid, started, signal.SIGKILL)
