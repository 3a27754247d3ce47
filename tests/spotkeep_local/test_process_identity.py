"""A process id is only trusted together with when its process began."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spotkeep_local import process_identity

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


def test_only_the_process_that_was_meant_is_signalled() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = process_identity.start_time(process.pid)
        assert not process_identity.signal_if_same(process.pid, "another time", signal.SIGKILL)
        assert not process_identity.signal_if_same(process.pid, None, signal.SIGKILL)
        assert process.poll() is None
        assert process_identity.signal_if_same(process.pid, started, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert not process_identity.signal_if_same(process.pid, started, signal.SIGKILL)
