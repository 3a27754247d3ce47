"""Compares processes by their start times, because the kernel uses process ids again."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def start_time(pid: int) -> str | None:
    """Return the start time of a process, in the machine's own terms. It is only good for comparing.

    Args:
        pid: A process id.

    Returns:
        An opaque text, or None when there is no such process (or only its unreaped remains).
    """
    if Path("/proc/self/stat").exists():
        return _from_proc(pid)
    return _from_ps(pid)


def is_same_process(pid: int, started: str | None) -> bool:
    """Return whether `pid` is the process that `start_time` answered `started` for."""
    return started is not None and start_time(pid) == started


def signal_if_same(pid: int, started: str | None, signal_number: int) -> bool:
    """Send a signal, unless the id belongs to another process by now.

    Returns:
        Whether it was sent.
    """
    if not is_same_process(pid, started):
        return False
    try:
        os.kill(pid, signal_number)
    except ProcessLookupError:
        return False
    return True


def _from_proc(pid: int) -> str | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name is in parentheses and may hold anything; the fields after it are numbered from 3.
    fields = text.rpartition(")")[2].split()
    state, threads, started_ticks = fields[0], int(fields[17]), fields[19]
    # The first thread of a killed process may be over before the others, which still have its port and its files.
    return None if state in "ZX" and threads <= 1 else started_ticks


def _from_ps(pid: int) -> str | None:
    answer = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    state, _, started = answer.stdout.strip().partition(" ")
    return None if not state or state.startswith("Z") else " ".join(started.split())
