"""A host that is a process group of this machine: the program `boot`, and what the server does for it from outside.

A training job's host is one, and an instance's where the machine allows no namespaces. What differs between them is
data: the command, its environment, the directories that it sees elsewhere.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import secrets
import signal
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spotkeep_local.hosts.boot import MARK, kill_marked
from spotkeep_local.hosts.program import as_shell, exit_codes, say, start_program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_LOG = logging.getLogger(__name__)
_DRAIN_SECONDS = 5.0
_MOST_LINE_BYTES = 200_000
"""No message in CloudWatch Logs is longer."""


@dataclass(frozen=True, kw_only=True)
class GroupSpecification:
    """What a process group is made from.

    Attributes:
        folder: Where its configuration goes; there already.
        command: The first process and its arguments.
        working_directory: Of the command.
        environment: All of the command's environment; nothing of the server's leaks into it.
        mounts: Directories of this machine, by the paths at which the command sees them, in a mount namespace of its
            own. Empty for none.
        confined: The command has no more of root's capabilities than a container has.
        ends_with_command: The group ends when the command does; otherwise it stays until it is ended.
        shutdown_flag: A file; the group ends when it appears.
        console: The file that takes what is printed; None hands it to `on_line`.
    """

    folder: Path
    command: Sequence[str]
    working_directory: Path
    environment: Mapping[str, str]
    mounts: Mapping[str, str] = field(default_factory=dict)
    confined: bool = False
    ends_with_command: bool = True
    shutdown_flag: Path | None = None
    console: Path | None = None


class ProcessGroup:
    """A running process group; ends when the server does.

    Args:
        specification: What it is made from.
        on_line: Called in a thread of its own with each line that is printed.
        on_command_end: Called once with the command's exit code as a shell sees it.
        on_end: Called once, after the last line, when nothing of the group is left.
    """

    def __init__(
        self,
        specification: GroupSpecification,
        *,
        on_line: Callable[[str], None] = lambda _: None,
        on_command_end: Callable[[int], None] = lambda _: None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        # Of this group alone, whatever else runs on this machine; its processes keep it in any group or session.
        self._mark = secrets.token_hex(16)
        self._on_line, self._on_command_end, self._on_end = on_line, on_command_end, on_end
        self._command_ended = False
        self._process, self._control = start_program(
            {
                "namespaces": False,
                "command": list(specification.command),
                "working_directory": str(specification.working_directory),
                "mounts": dict(specification.mounts),
                "confined": specification.confined,
                "ends_with_command": specification.ends_with_command,
                "shutdown_flag": None if specification.shutdown_flag is None else str(specification.shutdown_flag),
            },
            folder=specification.folder,
            environment={**specification.environment, MARK: self._mark},
            console=specification.console,
        )
        self._hearer = threading.Thread(target=self._hear, name=f"host-{self.pid}", daemon=True)
        self._reader = threading.Thread(target=self._read, name=f"host-{self.pid}-output", daemon=True)
        self._waiter = threading.Thread(target=self._wait, name=f"host-{self.pid}-end", daemon=True)

    @property
    def pid(self) -> int:
        """Its first process, which is also the process group."""
        return self._process.pid

    def watch(self) -> None:
        """Begins to call what the constructor was given; called once."""
        for thread in (self._hearer, self._reader, self._waiter):
            thread.start()

    def terminate(self) -> None:
        """Sends SIGTERM to the command's first process alone, as a container's runtime does."""
        say(self._control, signal=int(signal.SIGTERM))

    def shut_down(self, *, seconds: float) -> None:
        """Sends SIGTERM to all of the group, and after these seconds SIGKILL; returns at once."""
        say(self._control, shutdown_seconds=seconds)

    def kill(self) -> None:
        """Sends SIGKILL to the whole group."""
        # ProcessLookupError: it is gone. PermissionError: what macOS answers when only zombies are left.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _hear(self) -> None:
        for code in exit_codes(self._control):
            self._end_command(code)

    def _end_command(self, code: int) -> None:
        if not self._command_ended:
            self._command_ended = True
            self._on_command_end(code)

    def _read(self) -> None:
        if self._process.stdout is None:
            return
        with self._process.stdout as output:
            # A line may have no end; what is longer goes on as several.
            for line in iter(functools.partial(output.readline, _MOST_LINE_BYTES), b""):
                self._on_line(line.decode("utf-8", errors="replace").rstrip("\r\n"))

    def _wait(self) -> None:
        if hasattr(os, "waitid"):
            # Not reaped yet, so the group's id cannot belong to another process while it is signalled.
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            self.kill()
        code = self._process.wait()
        self.kill()
        kill_marked(self._mark)
        self._reader.join(_DRAIN_SECONDS)
        if self._reader.is_alive():
            _LOG.warning("a process of host %d left its group and keeps its output open", self.pid)
        self._hearer.join()
        self._control.close()
        # The program was killed with the command, or refused before it started it.
        self._end_command(as_shell(code))
        self._on_end()
