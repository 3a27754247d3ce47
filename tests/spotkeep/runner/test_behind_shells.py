"""Which processes a signal is meant for that reaches a shell."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from spotkeep.runner.behind_shells import Receivers, receivers_behind


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
