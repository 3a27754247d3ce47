"""Finds and ends the processes that use a file system, from /proc alone."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

_POLL_SECONDS = 0.05
_PROC = Path("/proc")


def users_of(directory: Path) -> list[int]:
    """List the processes, other than this one, that have a file below a directory open, or work in it."""
    root = os.path.realpath(directory)
    return [pid for pid in _pids() if pid != os.getpid() and any(_is_below(path, root) for path in _paths(pid))]


def end_users_of(directory: Path, *, seconds: float) -> list[int]:
    """Kill the processes that use a directory. Return those that still run after so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        found = users_of(directory)
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found or time.monotonic() >= deadline:
            return found
        time.sleep(_POLL_SECONDS)


def _pids() -> Iterator[int]:
    for entry in os.listdir(_PROC):  # noqa: PTH208 - names are all that is needed, of hundreds of entries
        if entry.isdigit():
            yield int(entry)


def _paths(pid: int) -> Iterator[str]:
    base = _PROC / str(pid)
    for link in ("cwd", "root", "exe"):
        with contextlib.suppress(OSError):
            yield os.readlink(base / link)  # noqa: PTH115 - as text
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(base / "fd"):  # noqa: PTH208
            with contextlib.suppress(OSError):
                yield os.readlink(base / "fd" / descriptor)  # noqa: PTH115
    with contextlib.suppress(OSError):
        for line in (base / "maps").read_text(encoding="utf-8", errors="replace").splitlines():
            _, slash, rest = line.partition("/")
            if slash:
                yield "/" + rest


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")
