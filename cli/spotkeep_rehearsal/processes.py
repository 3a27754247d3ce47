"""Starts a command, reads its output, warns it and ends everything that it has started.

The command has a session of its own. Each of its processes carries a mark in its environment, by which Linux shows
those that have left the session. On Linux this process also becomes the parent of all whose own parent has ended, so
those without the mark are found as well. Only processes that this module started get a signal.

Source: prctl(2), PR_SET_CHILD_SUBREAPER.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from spotkeep.notices.notice import Notice, write_notice
from spotkeep.runner.process_table import PROCESSES, descendants_of, known_processes
from spotkeep.runner.supervision import receivers_behind
from spotkeep_rehearsal.evidence import RehearsalError

MARK_VARIABLE = "SPOTKEEP_REHEARSAL"
_ENDS = re.compile(rb"[\r\n]")
_MOST_LINE_BYTES = 65_536
_BLOCK_BYTES = 65_536
_LONGEST_KILL_SECONDS = 10.0
_LONGEST_DRAIN_SECONDS = 2.0
_SET_CHILD_SUBREAPER = 36


class RunningCommand:
    """A command that runs. Use it as a context manager. Its end is the end of all its processes.

    Args:
        words: The program and its arguments.
        environment: The whole environment, with the mark.
        directory: The working directory.
        mark: The value of the mark, which no other command has.

    Raises:
        RehearsalError: The program cannot be started.
    """

    def __init__(self, words: Sequence[str], *, environment: Mapping[str, str], directory: Path, mark: str) -> None:
        self._mark = f"{MARK_VARIABLE}={mark}".encode()
        self._queue: queue.SimpleQueue[tuple[float, str]] = queue.SimpleQueue()
        self._adopts = _adopt_orphans()
        self._before = {pid for pid, process in known_processes().items() if process.parent == os.getpid()}
        self.started = time.monotonic()
        try:
            self._process = subprocess.Popen(
                list(words),
                env=dict(environment),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise RehearsalError(
                f"the command {words[0]!r} cannot be started: {error.strerror}",
                hint="give the command behind `--` as you would type it here",
            ) from error
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def __enter__(self) -> RunningCommand:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()

    @property
    def seconds(self) -> float:
        """Seconds since its start."""
        return time.monotonic() - self.started

    @property
    def exit_code(self) -> int | None:
        """Its exit code, 128 and the signal's number after a signal. None while it runs."""
        code = self._process.poll()
        return None if code is None else code if code >= 0 else 128 - code

    def new_lines(self) -> Iterator[tuple[float, str]]:
        """Yield each new line of output with its time in seconds since the start."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._queue.get_nowait()

    def warn(self, *, notice_file: Path, seconds: float) -> None:
        """Send SIGTERM as the runner of a job does. A shell's programs get it, and not the shell's name alone.

        Args:
            notice_file: The file that the spotkeep library reads in every process.
            seconds: Seconds until the machine is gone.
        """
        write_notice(notice_file, Notice(source="SIGTERM", deadline=time.time() + seconds))
        if self._process.poll() is None:
            found = receivers_behind(self._process.pid, signal.SIGTERM)
            for pid in {*found.programs, *found.shells, self._process.pid}:
                _send(pid, signal.SIGTERM)

    def kill(self) -> None:
        """End all its processes at once, and wait for their end."""
        end = time.monotonic() + _LONGEST_KILL_SECONDS
        while True:
            living = self._living()
            if not living and self._process.poll() is not None:
                break
            for pid in living:
                _send(pid, signal.SIGKILL)
            if self._process.poll() is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            if time.monotonic() > end:
                break
            time.sleep(0.01)
        self._reader.join(_LONGEST_DRAIN_SECONDS)

    def _living(self) -> set[int]:
        """Return the processes of its session, its descendants, and those with its mark. Zombies are left out."""
        known = known_processes()
        session = {self._process.pid}
        for pid, process in known.items():
            is_child = process.parent == os.getpid() and pid not in self._before
            adopted = self._adopts and is_child and pid != self._process.pid
            if adopted and process.has_ended:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            elif adopted or process.session == self._process.pid or self._is_marked(pid):
                session.add(pid)
        if self._process.poll() is not None:
            session.discard(self._process.pid)
        found = session.union(*(descendants_of(pid, known) for pid in session)) - {os.getpid()}
        return {pid for pid in found if pid in known and not known[pid].has_ended}

    def _is_marked(self, pid: int) -> bool:
        try:
            return self._mark in (PROCESSES / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            return False

    def _read(self, stream: IO[bytes]) -> None:
        rest = b""
        with contextlib.suppress(OSError, ValueError), stream:
            while piece := os.read(stream.fileno(), _BLOCK_BYTES):
                *lines, rest = _ENDS.split(rest + piece)
                if len(rest) > _MOST_LINE_BYTES:
                    lines, rest = [*lines, rest], b""
                self._put(lines)
        self._put([rest])

    def _put(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            text = line[:_MOST_LINE_BYTES].decode("utf-8", "replace").rstrip()
            if text:
                self._queue.put((self.seconds, text))


def _adopt_orphans() -> bool:
    """Become the parent of processes whose own parent has ended. Return False where the system has no such thing."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            return not ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return False


def _send(pid: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signum)
