"""The watch for a command that hangs. It prints nothing and completes no step for longer than its job file allows.

Each piece of output counts as life, and so does each step of the library in any process of this host. The library
touches a file for that (`alive_file`), at most once a second.

A watch may only report the hang, or end the command for a new start. Then all processes of the command get a notice,
and those that were stopped are continued. SIGTERM and the time to save follow as before an interruption. SIGKILL ends
those that are left, with all of their children. Processes that were there before the command stay.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Collection
from pathlib import Path
from typing import Callable

from spotkeep.notices.notice import Notice, alive_file, left_file, notice_seconds, read_notice, write_notice
from spotkeep_fleet.training_spec import HangLimit

from .process_table import descendants_of, known_processes

NOTICE_SOURCE = "stuck"
_LONGEST_POLL_SECONDS = 3.0
_POLLS_A_LIMIT = 20
_STOPPED_ITSELF_SECONDS = 10.0
"""A poll that comes later than this shows that this process was stopped too. The rest of that time does not count."""
_LOOK_SECONDS = 0.1
_KILL_SECONDS = 60.0
"""So long SIGKILL may take. A process in a call of the kernel, such as to a lost file system, does not end."""
_PR_SET_CHILD_SUBREAPER = 36


class HangWatch:
    """Watches one command, in a thread of its own.

    Args:
        limit: The longest time without life, and the consequence.
        restarts: The number of starts after a hang before.
        notice_file: The file in which the processes of the job find a notice.
        announced: Gives True once a notice of the platform has come. It goes before any hang.
        terminate: Passes SIGTERM on to the command, as after a notice of the platform.
        say: Prints an event with its fields.
        longest_kill_seconds: Seconds for SIGKILL to have an effect.

    Attributes:
        has_ended_command: True when it has ended the command.
        given_up: Set when processes are left that SIGKILL has not ended.
    """

    def __init__(
        self,
        limit: HangLimit,
        *,
        restarts: int,
        notice_file: Path,
        announced: Callable[[], bool],
        terminate: Callable[[], None],
        say: Callable[..., None],
        longest_kill_seconds: float = _KILL_SECONDS,
    ) -> None:
        self.has_ended_command = False
        self.given_up = threading.Event()
        self._limit = limit
        self._restarts = restarts
        self._notice_file = notice_file
        self._alive_file = alive_file(notice_file)
        self._announced = announced
        self._terminate = terminate
        self._say = say
        self._longest_kill_seconds = longest_kill_seconds
        self._spared: set[int] = set()
        self._touched: int | None = None
        self._has_life = threading.Event()
        self._over = threading.Event()
        self._ended = threading.Event()

    def prepare(self) -> None:
        """Note the processes that stay, and leave the file that the library touches. Call it before the command."""
        with contextlib.suppress(OSError):
            self._alive_file.touch()
            self._touched = self._alive_file.stat().st_mtime_ns
        if self._limit.restart:
            _adopt_orphans()
            self._spared = descendants_of(os.getpid(), known_processes())

    def spare(self, pids: Collection[int]) -> None:
        """Leave these processes alone, which are no part of the command."""
        self._spared.update(pids)

    def note_life(self) -> None:
        """Note a piece of output."""
        self._has_life.set()

    def note_end(self) -> None:
        """Note that the command has ended. Its watch ends, or else ends the rest of its processes."""
        self._ended.set()
        self._over.set()

    def watch(self) -> None:
        """Watch until the command has ended. The work of the thread."""
        limit, silent, reported = self._limit, 0.0, False
        poll = min(limit.after_seconds / _POLLS_A_LIMIT, _LONGEST_POLL_SECONDS)
        last = time.monotonic()
        while not self._over.wait(poll):
            now = time.monotonic()
            passed, last = min(now - last, poll + _STOPPED_ITSELF_SECONDS), now
            if self._shows_life():
                if reported:
                    self._say("moves-again")
                silent, reported = 0.0, False
                continue
            silent += passed
            if reported or silent < limit.after_seconds or self._announced():
                continue
            reported = True
            self._report(silent)
            if limit.restart:
                self.has_ended_command = True
                self._end_command()
                return

    def take_back_notice(self) -> None:
        """Remove the notice of this watch, unless another one has replaced it. A new start must not find it."""
        with contextlib.suppress(OSError):
            if self._notice_file.exists() and read_notice(self._notice_file).source == NOTICE_SOURCE:
                self._notice_file.unlink()
                left_file(self._notice_file).unlink()

    def _shows_life(self) -> bool:
        shows = self._has_life.is_set()
        self._has_life.clear()
        with contextlib.suppress(OSError):
            touched = self._alive_file.stat().st_mtime_ns
            shows |= touched != self._touched
            self._touched = touched
        return shows

    def _report(self, silent_seconds: float) -> None:
        limit = self._limit
        restarts = {"restarts": self._restarts, "at_most": limit.at_most} if limit.restart else {}
        self._say("stuck", seconds=round(silent_seconds, 1), **restarts)
        what = f"no step and no line of output for {silent_seconds:.0f} s"
        after = "; its processes are asked to save, and ended" if limit.restart else ""
        sys.stderr.write(f"spotkeep: the command stands still, {what}{after}\n")
        sys.stderr.flush()

    def _end_command(self) -> None:
        ends = time.monotonic() + notice_seconds()
        # First the notice: a process that is continued must not train to its end before it finds one.
        # A full disk: the signal itself still reaches the command.
        with contextlib.suppress(OSError):
            write_notice(self._notice_file, Notice(source=NOTICE_SOURCE, deadline=time.time() + notice_seconds()))
        for pid in self._processes():
            _send(pid, signal.SIGCONT)
        self._terminate()
        while self._is_left() and time.monotonic() < ends:
            time.sleep(_LOOK_SECONDS)
        gives_up_at = time.monotonic() + self._longest_kill_seconds
        while self._is_left():
            for pid in self._processes():
                _send(pid, signal.SIGKILL)
            if time.monotonic() >= gives_up_at:
                self.given_up.set()
                return
            time.sleep(_LOOK_SECONDS)

    def _is_left(self) -> bool:
        return not self._ended.is_set() or bool(self._processes())

    def _processes(self) -> set[int]:
        """Give the living processes of the command."""
        known = known_processes()
        mine = descendants_of(os.getpid(), known)
        # A spared process may start others, which are no part of the command either.
        spared = {each for pid in self._spared & mine for each in descendants_of(pid, known)} | self._spared
        return {pid for pid in mine - spared if not known[pid].has_ended}


def _send(pid: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signum)


def _adopt_orphans() -> None:
    """Become the parent of processes whose own parent has ended, so that none of the command's is overlooked.

    Source: prctl(2), PR_SET_CHILD_SUBREAPER. Process 1 of a container is their parent anyway.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
