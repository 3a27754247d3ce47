"""Starts the command, passes signals on, and waits, as PID 1 of a container must.

The command shares this process's group, so a signal to the group ends all of it. The supervisor sends a signal to the
command alone, and not to its workers (a data loader's, for example). Where the command is a block, the signal goes to
the programs that bash has started. After a notice a command may end and leave other processes behind, as a shell does.
Only then do these get SIGTERM too.

A shell waits for its program and passes no signal on. So the supervisor sends the signal to the shell's programs, also
through nested shells. It leaves a program's own children alone.

The programs of a pipeline are started together. One that reads the output of another (`tee`, `grep`) ends when its
input ends. If it died of the signal first, the other could not print, and so could not save. It gets the signal only if
it has a handler for it. A shell that ignores the signal (`trap "" TERM`) keeps it from its programs.

macOS shows neither pipes nor handlers, so every program gets the signal there.

Source: proc(5), "/proc/pid/status".
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any, Callable

from spotkeep import events
from spotkeep.errors import CommandError, MissingToolError
from spotkeep.notices.notice import Notice, notice_seconds, write_notice
from spotkeep_fleet.secret_references import without_values
from spotkeep_fleet.training_spec import HangLimit, SearchedMetric

from .failure import memory_kills
from .hangs import HangWatch
from .metric_lines import BetweenLines, MetricLines, ShownLines, write_all
from .process_table import PROCESSES, Process, descendants_of, known_processes

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_BUSYBOX = "busybox"
_INPUT, _OUTPUTS = 0, (1, 2)


@dataclass(frozen=True)
class Receivers:
    """The targets of a signal that reaches a process.

    Attributes:
        programs: The programs that shells have started, or the process itself where it is no shell.
        shells: Shells that run nothing at the moment.
    """

    programs: tuple[int, ...]
    shells: tuple[int, ...]


def receivers_behind(shell: int, signum: int, *, processes: Path = PROCESSES) -> Receivers:
    """Find the processes for which a signal to this one is meant.

    Args:
        shell: A process id.
        signum: The signal.
        processes: The folder in which the kernel shows processes. Where there is none, `ps` shows them.
    """
    known = known_processes(processes)
    children: dict[int, list[int]] = {}
    for pid, process in known.items():
        children.setdefault(process.parent, []).append(pid)
    programs, shells, seen, open_ends = [], [], set(), [shell]
    while open_ends:
        pid = open_ends.pop()
        seen.add(pid)
        if not _is_shell(pid, known, processes):
            programs.append(pid)
        elif _has(signum, "SigIgn", pid, processes):
            continue
        elif pid in children:
            open_ends += children[pid]
        else:
            shells.append(pid)
    written = {pid: {_pipe(pid, end, processes) for end in _OUTPUTS} for pid in seen}
    return Receivers(
        programs=tuple(pid for pid in sorted(programs) if not _only_reads(pid, signum, written, processes)),
        shells=tuple(sorted(shells)),
    )


def _only_reads(pid: int, signum: int, written: dict[int, set[str]], processes: Path) -> bool:
    """Say whether it reads the output of another of them, and has no handler for the signal."""
    reads = _pipe(pid, _INPUT, processes)
    is_read = bool(reads) and any(reads in pipes for other, pipes in written.items() if other != pid)
    return is_read and not _has(signum, "SigCgt", pid, processes)


def _is_shell(pid: int, known: dict[int, Process], processes: Path) -> bool:
    """Tell a shell by the program that the process runs. A script that `#!` started has the script's name instead."""
    try:
        program = (processes / str(pid) / "exe").readlink().name
    except OSError:
        program = known[pid].name if pid in known else ""
    return program in _SHELLS or (program == _BUSYBOX and pid in known and known[pid].name in _SHELLS)


def _pipe(pid: int, descriptor: int, processes: Path) -> str:
    try:
        target = str((processes / str(pid) / "fd" / str(descriptor)).readlink())
    except OSError:
        return ""
    return target if target.startswith("pipe:") else ""


def _has(signum: int, what: str, pid: int, processes: Path) -> bool:
    """Say whether a process catches (`SigCgt`) or ignores (`SigIgn`) a signal. False where it has ended."""
    try:
        lines = (processes / str(pid) / "status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    mask = next((line.split()[1] for line in lines if line.startswith(f"{what}:")), "0")
    return bool(int(mask, 16) >> (signum - 1) & 1)


_STDOUT_FD = 1
_STDERR_FD = 2
_TAIL_BYTES = 16 * 1024
_DRAIN_SECONDS = 5.0
_POLL_SECONDS = 0.1
_KILL_SECONDS = 60.0
"""So long SIGKILL may take. A process in a call of the kernel, such as to a lost file system, does not end."""
_SHORTEST_LOOK_SECONDS, _LONGEST_LOOK_SECONDS = 0.02, 5.0
_ON_SIGTERM = (
    'spotkeep_code=$?; for spotkeep_job in $(jobs -p); do wait "$spotkeep_job" || :; done; exit $spotkeep_code'
)
"""A `wait` without a name would wait for a process substitution, which waits for the end of this bash's output."""
_ON_ERROR = 'echo "spotkeep: line $LINENO of the command ended with code $?" >&2'
_BEFORE_THE_BLOCK = f"trap '{_ON_SIGTERM}' TERM; trap '{_ON_ERROR}' ERR; "
"""On the first line, so that bash counts the lines as the job file has them."""
_PLACE_OF_BASH = re.compile(r"^\S*bash: (?:-c: )?", re.MULTILINE)
_CANNOT_BE_EXECUTED = 126
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True)
class CommandOutcome:
    """The end of a command.

    Attributes:
        exit_code: Its exit code. 128 + n when signal n killed it.
        noticed: True if a notice had come when it ended.
        stderr_tail: The end of its standard error, with the values of secrets masked.
        memory_kills: Number of processes on this machine that the kernel killed meanwhile because memory ran out.
        hung: True if it hung, and was ended for that.
        processes_left: True if it hung, and SIGKILL did not end all of its processes.
    """

    exit_code: int
    noticed: bool
    stderr_tail: bytes
    memory_kills: int
    hung: bool = False
    processes_left: bool = False


class Supervisor:
    """Runs one command. Use it as a context manager in the main thread, because it handles the signals.

    Args:
        notice_file: Path at which to write a notice for every process of the job. The processes write EC2's notices
            there, too.

    Attributes:
        notice: The platform's notice, which came as SIGTERM.
        secret_values: The values of the job's secrets, which no outcome shows.
    """

    def __init__(self, *, notice_file: Path) -> None:
        self.notice: Notice | None = None
        self.secret_values: Sequence[str] = ()
        self._notice_file = notice_file
        self._child: subprocess.Popen[bytes] | None = None
        self._is_block = self._signals_children = False
        self._has_ended = threading.Event()
        self._pending: list[int] = []
        self._ending_the_rest = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Supervisor:
        for signum in _FORWARDED:
            self._previous[signum] = signal.signal(signum, self._on_signal)
        return self

    def __exit__(self, *exception: object) -> None:
        for signum, handler in self._previous.items():
            signal.signal(signum, handler if handler is not None else signal.SIG_DFL)

    def run(
        self,
        command: Sequence[str] | str,
        *,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str],
        directory: Path | None,
        metrics: Mapping[str, SearchedMetric] | None = None,
        stuck: HangLimit | None = None,
        restarts: int = 0,
        signals_children: bool = False,
    ) -> CommandOutcome:
        """Run the command to its end.

        Args:
            command: Its words, or a block of lines for bash.
            arguments: They follow the words, or are `"$@"` in the block.
            environment: The command's whole environment.
            directory: The working directory.
            metrics: The metrics to search for in the command's output, by name. Without any, its standard output is the
                command's own.
            stuck: The limit for a command that hangs. Without one it may be silent for as long as it likes.
            restarts: The number of its starts after a hang before this one.
            signals_children: True where a signal goes to the processes that it has started, and not to itself. mpirun
                leaves its ranks few seconds after SIGTERM.

        Raises:
            CommandError: If it does not exist (exit code 127) or may not be executed (126).
            MissingToolError: If it is a block, and there is no bash.
        """
        self._is_block, self._signals_children = isinstance(command, str), signals_children
        self._has_ended.clear()
        words = (
            bash_words(command, arguments, environment=environment)
            if isinstance(command, str)
            else [*command, *arguments]
        )
        kills_before = memory_kills()
        output = BetweenLines(_STDOUT_FD)
        watch = None if stuck is None else self._hang_watch(stuck, restarts=restarts, output=output)
        if watch is not None:
            watch.prepare()
        child = _start(words, environment, directory, takes_output=bool(metrics) or watch is not None)
        self._child = child
        while self._pending:
            self._forward(self._pending.pop(0))
        search = MetricLines(metrics, environment=environment, output=output) if metrics else None
        note_life = _no_life if watch is None else watch.note_life
        streams = []
        if child.stdout is not None:
            lines = None if search is None else ShownLines(search)
            streams.append(_PassedStream(child.stdout, pass_on=output.pass_on, lines=lines, note_life=note_life))
        lines = None if search is None else ShownLines(search)
        errors = _PassedStream(child.stderr, pass_on=_to_stderr, lines=lines, note_life=note_life)
        streams.append(errors)
        watching = None
        if watch is not None:
            watch.spare([] if search is None else [search.pid])
            watching = start_thread(watch.watch, name="hangs")
        exit_code = self._wait_for(child, given_up=None if watch is None else watch.given_up)
        if watch is not None and watching is not None:
            watch.note_end()
            watching.join()
            watch.take_back_notice()
        noticed = self.announced  # one that comes from now on has not ended it
        self._child = None
        self._has_ended.set()
        if self.announced:
            self._end_the_rest()
        kills = memory_kills() - kills_before
        for stream in streams:
            stream.finish()
        if search is not None:
            search.finish(on_notice=self.announced)
        output.finish()
        tail = without_values(errors.tail.decode("utf-8", "surrogateescape"), self.secret_values)
        return CommandOutcome(
            exit_code=exit_code,
            noticed=noticed,
            stderr_tail=tail.encode("utf-8", "surrogateescape"),
            memory_kills=kills,
            hung=watch is not None and watch.has_ended_command,
            processes_left=watch is not None and watch.given_up.is_set(),
        )

    @property
    def announced(self) -> bool:
        """True once there is a notice of the platform, or of EC2 to some process of the job."""
        return self.notice is not None or self._notice_file.exists()

    def _hang_watch(self, stuck: HangLimit, *, restarts: int, output: BetweenLines) -> HangWatch:
        def say(event: str, **fields: Any) -> None:
            line = events.line(event, **fields)
            if line is not None:
                output.insert(line.encode())

        return HangWatch(
            stuck,
            restarts=restarts,
            notice_file=self._notice_file,
            announced=lambda: self.announced,
            terminate=lambda: self._forward(signal.SIGTERM),
            say=say,
        )

    def end_command(self, *, seconds: float) -> None:
        """Send SIGTERM to the command, and SIGKILL to its processes if it has not ended after some seconds.

        Args:
            seconds: The time for its processes to end by themselves.
        """
        kill_at = time.monotonic() + seconds
        give_up_at = kill_at + _KILL_SECONDS
        self._forward(signal.SIGTERM)
        while not self._has_ended.wait(_POLL_SECONDS) and time.monotonic() < give_up_at:
            child = self._child
            if child is not None and time.monotonic() >= kill_at:
                for pid in {child.pid, *descendants_of(child.pid, known_processes())}:
                    _send(pid, signal.SIGKILL)

    def hold_until_noticed(self, *, seconds: float) -> None:
        """Keep this process alive for some seconds, or until a notice comes, or the platform ends it."""
        ends = time.monotonic() + seconds
        while self.notice is None and time.monotonic() < ends:
            _reap_orphans()
            time.sleep(_POLL_SECONDS)

    def hold_until_deadline(self) -> None:
        """Keep this process alive until the notice is over, or the platform ends it."""
        while self.notice is not None and self.notice.seconds_left > 0:
            _reap_orphans()
            time.sleep(min(_POLL_SECONDS, self.notice.seconds_left))

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature is Python's
        if signum == signal.SIGTERM and self._ending_the_rest:
            # Our own: this process belongs to the group too.
            return
        if signum == signal.SIGTERM and self.notice is None:
            self.notice = Notice(source="SIGTERM", deadline=time.time() + notice_seconds())
            try:
                if not self._notice_file.exists():  # an earlier one knows better when it ends
                    write_notice(self._notice_file, self.notice)
            except OSError as error:
                # A full disk: the signal itself still reaches the command.
                os.write(_STDERR_FD, f"spotkeep: the notice file could not be written: {error}\n".encode())
            self._forward(signum)
        elif signum != signal.SIGTERM:
            self._forward(signum)

    def _forward(self, signum: int) -> None:
        if self._child is None:
            self._pending.append(signum)
        elif not (signum == signal.SIGINT and os.isatty(0)):
            # A terminal's Ctrl-C has already reached the whole group.
            # Popen.send_signal would wait for a command that has just ended, and its exit code would be lost.
            children = self._children_of(self._child) if self._signals_children else ()
            if self._is_block:
                self._forward_to_programs(self._child, signum)
            elif children:
                for pid in (each for child in children for each in receivers_behind(child, signum).programs):
                    _send(pid, signum)
            else:
                _send(self._child.pid, signum)

    @staticmethod
    def _children_of(child: subprocess.Popen[bytes]) -> tuple[int, ...]:
        return tuple(pid for pid, process in known_processes().items() if process.parent == child.pid)

    def _forward_to_programs(self, bash: subprocess.Popen[bytes], signum: int) -> None:
        if signum == signal.SIGTERM:
            _send(bash.pid, signum)  # First, so that it does not begin its next line: its trap waits for the programs.
        found = receivers_behind(bash.pid, signum)
        for pid in (*found.programs, *found.shells):
            if pid != bash.pid or signum != signal.SIGTERM:
                _send(pid, signum)
        if signum == signal.SIGTERM and not found.programs:
            start_thread(lambda: self._find_what_was_about_to_start(bash), name="about-to-start")

    def _find_what_was_about_to_start(self, bash: subprocess.Popen[bytes]) -> None:
        """Send SIGTERM to a program that bash was starting when the signal came. bash runs its trap only after that."""
        pause = _SHORTEST_LOOK_SECONDS
        while pause < _LONGEST_LOOK_SECONDS and self._child is bash:
            time.sleep(pause)
            pause *= 2
            found = receivers_behind(bash.pid, signal.SIGTERM).programs if self._child is bash else ()
            for pid in found:
                _send(pid, signal.SIGTERM)
            if found:
                return

    def _wait_for(self, child: subprocess.Popen[bytes], *, given_up: threading.Event | None) -> int:
        """Wait for the command's end. Give its exit code, or that of SIGKILL where it does not end."""
        while True:
            pid, status = os.waitpid(-1, 0 if given_up is None else os.WNOHANG)
            if pid == child.pid:
                code = os.waitstatus_to_exitcode(status)
                # Popen must not look for a process that has been waited for.
                child.returncode = code
                return code if code >= 0 else 128 - code
            if not pid and given_up is not None and given_up.wait(_POLL_SECONDS):
                return 128 + signal.SIGKILL

    def _end_the_rest(self) -> None:
        # Without a group of our own, the signal would reach the process that started us.
        self._ending_the_rest = True
        if os.getpid() == os.getpgrp():
            # Of process 1 the group is all others in the container, and there may be none.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(os.getpgrp(), signal.SIGTERM)


def bash_words(block: str, arguments: Sequence[str], *, environment: Mapping[str, str]) -> list[str]:
    """Give the words that run a block, which is a command of several lines for bash.

    bash gets `-euo pipefail`, so a line that fails ends the block. The hyperparameters are `"$@"`. The traps before the
    first line name the line that failed, and end the block after the program that a notice has ended. Without the trap
    of SIGTERM, bash would die of the signal and leave the program behind, or go on with the next line.

    Source: "The Set Builtin" and "Signals" in the Bash Reference Manual.

    Args:
        block: The lines of the block.
        arguments: The values of `"$@"` in it.
        environment: All of its variables.

    Raises:
        MissingToolError: If there is no bash.
        CommandError: If bash cannot read the block. bash would run the lines before the mistake.
    """
    bash = shutil.which("bash", path=environment.get("PATH", os.defpath))
    if bash is None:
        raise MissingToolError(
            "the command is a block of lines for bash, and this image has no bash (PATH is "
            f"{environment.get('PATH', os.defpath)}): use an image that has it, or write the command as a list of "
            "words, [python, train.py], which needs no shell"
        )
    read = subprocess.run(
        [bash, "-n", "-c", block], env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if read.returncode:
        said = _PLACE_OF_BASH.sub("", read.stderr.decode("utf-8", "replace")).strip()
        raise CommandError(f"bash cannot read the command: {said}", exit_code=_CANNOT_BE_EXECUTED)
    return [bash, "-euo", "pipefail", "-c", _BEFORE_THE_BLOCK + block, "bash", *arguments]


class _PassedStream:
    """Passes a stream through as it comes, remembers the end of it, and shows its lines to the search for metrics."""

    def __init__(
        self,
        stream: IO[bytes] | None,
        *,
        pass_on: Callable[[bytes], None],
        lines: ShownLines | None,
        note_life: Callable[[], None],
    ) -> None:
        assert stream is not None  # noqa: S101 - the command is started with a pipe
        self._stream = stream
        self._pass_on = pass_on
        self._lines = lines
        self._note_life = note_life
        self._tail = b""
        self._thread = start_thread(self._pass_through, name="output")

    @property
    def tail(self) -> bytes:
        """The end of the stream so far."""
        return self._tail

    def finish(self) -> None:
        """Wait for the rest, for a limited time, because an orphaned process may hold the pipe open."""
        self._thread.join(_DRAIN_SECONDS)
        if not self._thread.is_alive():
            self._stream.close()

    def _pass_through(self) -> None:
        descriptor = self._stream.fileno()
        while True:
            piece = os.read(descriptor, 65536)
            if not piece:
                break
            self._tail = (self._tail + piece)[-_TAIL_BYTES:]
            self._note_life()
            self._pass_on(piece)
            if self._lines is not None:
                self._lines.add(piece)
        if self._lines is not None:
            self._lines.finish()


def start_thread(work: Callable[[], None], *, name: str) -> threading.Thread:
    """Start a thread that gets no signals."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    # Signals must find the main thread, which waits in a system call and handles them there.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    thread.start()
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return thread


def _no_life() -> None:
    """Do nothing, where no watch counts the output."""


def _send(pid: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signum)


def _to_stderr(piece: bytes) -> None:
    write_all(_STDERR_FD, piece)


def _start(
    command: Sequence[str], environment: Mapping[str, str], directory: Path | None, *, takes_output: bool
) -> subprocess.Popen[bytes]:
    stdout = subprocess.PIPE if takes_output else None
    try:
        return subprocess.Popen(
            list(command), env=dict(environment), cwd=directory, stdout=stdout, stderr=subprocess.PIPE
        )
    except FileNotFoundError as error:
        where = f"in {directory}" if directory else "in the image"
        raise CommandError(
            f"the command {command[0]!r} was not found on PATH or {where}: check its spelling, or use an image that "
            "has it",
            exit_code=127,
        ) from error
    except OSError as error:
        hint = "start it with an interpreter, or give it a #! line" if error.errno == errno.ENOEXEC else "chmod +x it"
        raise CommandError(f"the command {command[0]!r} cannot be executed: {error}; {hint}", exit_code=126) from error


def _reap_orphans() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return
