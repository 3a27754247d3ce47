"""The interruption notice, by which a script learns that its machine will soon be gone.

It arrives in three ways, and any is enough. SIGTERM sets a flag (in the main thread, where Python delivers signals). A
notice file reaches every process of the job, even if a shell, a launcher or a thread keeps the signal from it. On an
EC2 instance the metadata service announces the interruption. The process that reads it there writes the notice file for
the others.

A thread of the watch's own checks all of this, because the training's thread may be busy for minutes. In a step that is
one long call, Python does not even run the handler of a signal.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import selectors
import signal
import socket
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Callable, Optional, Union

from spotkeep.errors import UsageError

from .instance_metadata import InstanceMetadataService, SpotAction, metadata_endpoint, poll_metadata

EXIT_INTERRUPTED = 75
"""The exit code of a script that left because of a notice. It is EX_TEMPFAIL, which asks for another try."""

NOTICE_FILE_VARIABLE = "SPOTKEEP_NOTICE_FILE"
NOTICE_SECONDS_VARIABLE = "SPOTKEEP_NOTICE_SECONDS"
REBALANCE_VARIABLE = "SPOTKEEP_REBALANCE"
REBALANCE_MODES = ("save", "leave", "ignore")

_DEFAULT_NOTICE_SECONDS = 120.0
_MAX_FILE_BYTES = 4096
_POLL_SECONDS = 1.0
_ALIVE_SECONDS = 1.0
_LEAVE_SECONDS = 2.0
_GRACE_SECONDS = 5.0
_STOP, _LOOK = b"\0", b"\xff"

_Handler = Union[Callable[[int, Optional[FrameType]], Any], int, None]

_logger = logging.getLogger("spotkeep")


@dataclass(frozen=True)
class Notice:
    """A warning that this machine will be taken away.

    Attributes:
        source: The source of the notice, for example `SIGTERM`.
        deadline: The end of the notice, in seconds since the epoch.
    """

    source: str
    deadline: float

    @property
    def seconds_left(self) -> float:
        """Seconds until the machine is gone. Never negative."""
        return max(0.0, self.deadline - time.time())


@dataclass(frozen=True)
class _Seen:
    """A notice, and until when it is acted on, by a clock that cannot be set."""

    notice: Notice
    box_ends: float


class NoticeWatch:
    """Watches for a notice while it is started. Safe to start in any thread. Signals reach only the main one.

    Of several notices the one that ends first counts.

    Attributes:
        came: Set in the watch's own thread once there is a notice.

    Args:
        on_change: Called in the watch's own thread when there is a notice, when there is one that ends sooner, and when
            the time to act on it is over.
        environment: The variables with the settings. The process's own by default.

    Raises:
        UsageError: If a setting makes no sense.
    """

    # Of the process, whose last word counts: a training that ends inside of another one has said it for both.
    _said_done = False

    def __init__(
        self, *, on_change: Callable[[], None] | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        environment = os.environ if environment is None else environment
        self._on_change = on_change
        self._rebalance_mode = environment.get(REBALANCE_VARIABLE) or "save"
        if self._rebalance_mode not in REBALANCE_MODES:
            raise UsageError(
                f"{REBALANCE_VARIABLE} is {self._rebalance_mode!r}; set it to one of {', '.join(REBALANCE_MODES)}"
            )
        self.came = threading.Event()
        endpoint = metadata_endpoint(environment)
        self._metadata = None if endpoint is None else InstanceMetadataService(endpoint)
        path = environment.get(NOTICE_FILE_VARIABLE)
        self._file = Path(path) if path else None
        self._file_written: int | None = None
        self._advice_seen = False
        self._seen: _Seen | None = None
        self._save_advised = False
        self._sigterm = _Sigterm(self)
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def start(self) -> None:
        """Take over SIGTERM and begin to look. A handler that was there before is still called.

        Raises:
            RuntimeError: If the system starts no more threads. Nothing was taken over then.
        """
        if self._thread is not None:
            return
        self._stopping = threading.Event()
        awaited = self._sigterm.open()
        if threading.current_thread() is threading.main_thread():
            self._sigterm.take_over()
        elif self._file is None and self._metadata is None:
            _logger.warning(
                "this is not the main thread, so SIGTERM is not noticed here: enter the Checkpointer in the main "
                "thread, or start the script with `spotkeep.pyz run`"
            )
        _watching.add(self)
        self._thread = threading.Thread(target=self._watch, args=(awaited,), name="spotkeep-notice", daemon=True)
        try:
            self._thread.start()
            if self._metadata is not None:
                polled = (self._metadata, self._stopping)
                threading.Thread(target=self._poll_metadata, args=polled, name="spotkeep-metadata", daemon=True).start()
        except BaseException:
            # No thread, no watch: then SIGTERM must end the process as it did before.
            self.stop()
            awaited.close()
            raise

    def stop(self) -> None:
        """Give SIGTERM back, unless other code has taken it meanwhile, and end the threads."""
        if self._thread is None:
            return
        _watching.discard(self)
        if threading.current_thread() is threading.main_thread():
            self._sigterm.give_back()
        self._stopping.set()
        self._sigterm.wake(_STOP)
        if self._thread.ident is not None:
            self._thread.join()
        self._thread = None
        self._sigterm.close()

    @property
    def is_watching(self) -> bool:
        """True from `start` to `stop`."""
        return self._thread is not None

    def notice(self) -> Notice | None:
        """Give the notice, once there is one."""
        self._look_at_file()
        return None if self._seen is None else self._seen.notice

    @property
    def seconds_left(self) -> float:
        """Seconds that are left to act. Infinite without a notice.

        A little of the notice is reserved for leaving. After the notice is over, a process may still live for a moment.
        So there are always some seconds from when the notice is seen.
        """
        return math.inf if self._seen is None else max(self._seen.box_ends - time.monotonic(), 0.0)

    def take(self, notice: Notice) -> None:
        """Take a notice that came to another process."""
        self._take(notice)
        self._sigterm.wake(_LOOK)

    def note_leaving(self) -> None:
        """Let the runner know that the script leaves because of the notice, whatever its launcher makes of that."""
        if self._file is not None and self._seen is not None:
            with contextlib.suppress(OSError):
                left_file(self._file).touch()

    def note_training(self, *, done: bool) -> None:
        """Let the runner know that the training of this process is done, or that one has begun, or goes on."""
        NoticeWatch._said_done = done
        if self._file is not None:
            try:
                note_training(self._file, done=done)
            except OSError as error:
                _logger.warning("the runner does not hear whether the training is done: %s", error)

    def note_step(self) -> None:
        """Let the runner know that a training goes on.

        The runner may watch for a training that hangs. And the process may have said before that its training is done.
        """
        if NoticeWatch._said_done:
            self.note_training(done=False)
        if self._file is not None:
            _life_sign.give(self._file)

    @property
    def advises_save(self) -> bool:
        """True from a rebalance recommendation of EC2 until `take_save_advice`."""
        return self._save_advised

    def take_save_advice(self) -> bool:
        """Give True once when EC2 recommends a rebalance, which advises a save now."""
        advised, self._save_advised = self._save_advised, False
        return advised

    def _take(self, notice: Notice) -> None:
        # No lock: a signal's handler interrupts the thread that holds it. At worst one of two notices of the same
        # moment wins.
        seen = self._seen
        if seen is None or notice.deadline < seen.notice.deadline:
            ends = time.monotonic() + max(notice.seconds_left - _LEAVE_SECONDS, _GRACE_SECONDS)
            self._seen = _Seen(notice, ends if seen is None else min(ends, seen.box_ends))

    def _look_at_file(self) -> None:
        if self._file is None:
            return
        with contextlib.suppress(OSError):
            written = self._file.stat().st_mtime_ns
            if written != self._file_written:  # again by who leaves us less time than EC2: there is more to do after us
                self._file_written = written
                self._take(read_notice(self._file))

    def _look_at_advice(self) -> None:
        """Read a recommendation from the instance's agent, the only source where the metadata service is closed."""
        if self._file is None or self._advice_seen or self._rebalance_mode != "save":
            return
        with contextlib.suppress(OSError):
            if save_advice_file(self._file).exists():
                self._advice_seen = self._save_advised = True

    def _watch(self, awaited: socket.socket) -> None:
        reported: _Seen | None = None
        time_up_reported = False
        with awaited, selectors.DefaultSelector() as selector:
            selector.register(awaited, selectors.EVENT_READ)
            while True:
                selector.select(_POLL_SECONDS if time_up_reported else min(_POLL_SECONDS, self.seconds_left))
                with contextlib.suppress(BlockingIOError):
                    # Python writes the number of each signal there, at once, whatever the main thread is doing.
                    if signal.SIGTERM in awaited.recv(4096):
                        self._take(_notice_from_now("SIGTERM"))
                if self._stopping.is_set():
                    return
                self._look_at_file()
                self._look_at_advice()
                if self._seen is not reported:
                    reported = self._seen
                    self.came.set()
                    self._tell()
                if reported is not None and not time_up_reported and self.seconds_left <= 0:
                    time_up_reported = True
                    self._tell()

    def _tell(self) -> None:
        if self._on_change is not None:
            # Standard output may be gone; the watch goes on.
            with contextlib.suppress(OSError, ValueError):
                self._on_change()

    def _poll_metadata(self, metadata: InstanceMetadataService, stopping: threading.Event) -> None:
        mode = self._rebalance_mode
        poll_metadata(
            metadata,
            stopping=stopping,
            on_action=self._on_action,
            on_rebalance=None if mode == "ignore" else self._on_rebalance,
        )

    def _on_action(self, action: SpotAction) -> None:
        seconds = notice_seconds() if action.seconds_left is None else action.seconds_left
        self._announce(Notice(source=f"EC2 {action.action}", deadline=time.time() + seconds))

    def _on_rebalance(self) -> None:
        if self._rebalance_mode == "leave":
            self._announce(_notice_from_now("EC2 rebalance"))
        else:
            self._save_advised = True

    def _announce(self, notice: Notice) -> None:
        self._take(notice)
        if self._file is not None and not self._file.exists():
            try:
                write_notice(self._file, notice)
            except OSError as error:
                _logger.warning("other processes of the job do not hear of the notice: %s", error)
        self._sigterm.wake(_LOOK)

    def _forget_after_fork(self) -> None:
        self._thread = None
        self._sigterm.forget()


class _LifeSign:
    """The touch of a file by which the runner sees that this process completes steps."""

    def __init__(self) -> None:
        self._given_at = -math.inf

    def give(self, notice_file: Path) -> None:
        """Touch the file, at most once a second. There is none where the runner does not watch for a hang."""
        now = time.monotonic()
        if now - self._given_at >= _ALIVE_SECONDS:
            self._given_at = now
            with contextlib.suppress(OSError):
                os.utime(alive_file(notice_file))


_life_sign = _LifeSign()


class _Sigterm:
    """SIGTERM of this process while a watch has it, and the socket that wakes the thread of the watch.

    Attributes:
        previous: The handler before the watch, which is still called.

    Args:
        watch: Gets a notice for each signal.
    """

    def __init__(self, watch: NoticeWatch) -> None:
        self.previous: _Handler = None
        self._watch = watch
        self._installed: _Handler = None
        self._previous_wakeup = -1
        self._wakeup: socket.socket | None = None

    @property
    def wakeup_descriptor(self) -> int:
        """Number of the open socket that Python writes each signal to, -1 for none."""
        return -1 if self._wakeup is None else self._wakeup.fileno()

    def open(self) -> socket.socket:
        """Make the sockets. Gives the one that the thread of the watch waits for."""
        awaited, self._wakeup = socket.socketpair()
        for end in (awaited, self._wakeup):
            end.setblocking(False)
        return awaited

    def take_over(self) -> None:
        """Handle the signal from now on. The main thread alone may call this."""
        self._installed = self._handle
        self.previous = signal.signal(signal.SIGTERM, self._handle)
        self._previous_wakeup = signal.set_wakeup_fd(self.wakeup_descriptor, warn_on_full_buffer=False)
        if self._previous_wakeup != -1:
            # Other code (an event loop) is woken by signals already, and more than one cannot be.
            signal.set_wakeup_fd(self._previous_wakeup)

    def wake(self, byte: bytes) -> None:
        """Wake the thread of the watch."""
        with contextlib.suppress(OSError):
            if self._wakeup is not None:
                self._wakeup.send(byte)

    def give_back(self) -> None:
        """Give the signal back, unless other code has taken it meanwhile. The main thread alone may call this."""
        if self._installed is None:
            return
        if signal.getsignal(signal.SIGTERM) == self._installed:
            signal.signal(signal.SIGTERM, self.previous if self.previous is not None else signal.SIG_DFL)
        if self._wakeup is not None and self._previous_wakeup == -1:
            current = signal.set_wakeup_fd(-1)
            if current not in (-1, self.wakeup_descriptor):
                signal.set_wakeup_fd(current)
        self._installed = None

    def close(self) -> None:
        """Close the socket that wakes."""
        if self._wakeup is not None:
            self._wakeup.close()

    def forget(self) -> None:
        """Let go of the signal and the socket in a process that was forked off."""
        self._installed = None
        self.close()
        self._wakeup = None

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self._installed is None:
            # Stopped while a later handler had the signal, which has given it back since.
            signal.signal(signum, self.previous if self.previous is not None else signal.SIG_DFL)
            signal.raise_signal(signum)
            return
        # Nothing but a flag: the handler may interrupt anything, a print in the middle included.
        self._watch.take(_notice_from_now("SIGTERM"))
        if callable(self.previous):
            self.previous(signum, frame)


_watching: weakref.WeakSet[NoticeWatch] = weakref.WeakSet()


def _forget_all_after_fork() -> None:
    """Let a worker that was forked off die of SIGTERM as always, and not wake the parent's watch."""
    if not _watching:
        return
    while isinstance(owner := getattr(signal.getsignal(signal.SIGTERM), "__self__", None), _Sigterm):
        signal.signal(signal.SIGTERM, owner.previous if owner.previous is not None else signal.SIG_DFL)
    awoken = signal.set_wakeup_fd(-1)
    if awoken not in (-1, *(watch._sigterm.wakeup_descriptor for watch in _watching)):
        signal.set_wakeup_fd(awoken)
    for watch in list(_watching):
        watch._forget_after_fork()
    _watching.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all_after_fork)


def notice_seconds(environment: Mapping[str, str] = os.environ) -> float:
    """Give the duration of a notice in seconds. It is SPOTKEEP_NOTICE_SECONDS, or SageMaker's 120."""
    try:
        seconds = float(environment.get(NOTICE_SECONDS_VARIABLE, _DEFAULT_NOTICE_SECONDS))
    except ValueError:
        return _DEFAULT_NOTICE_SECONDS
    return max(0.0, seconds) if math.isfinite(seconds) else _DEFAULT_NOTICE_SECONDS


def left_file(notice_file: Path) -> Path:
    """Name the file that says that the script has left because of the notice."""
    return notice_file.with_name(notice_file.name + ".left")


def save_advice_file(notice_file: Path) -> Path:
    """Name the file that says that EC2 recommends a rebalance, so that a save is advised."""
    return notice_file.with_name(notice_file.name + ".save")


def alive_file(notice_file: Path) -> Path:
    """Name the file that a step of a training touches, where the runner watches for a training that hangs."""
    return notice_file.with_name(notice_file.name + ".alive")


def write_notice(path: Path, notice: Notice) -> None:
    """Leave a notice for every process of the job, at once and whole."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    draft.write_bytes(notice_bytes(notice))
    draft.replace(path)


def notice_bytes(notice: Notice) -> bytes:
    """Give the content of the notice file."""
    return json.dumps({"source": notice.source, "deadline": notice.deadline}).encode()


def read_notice(path: Path) -> Notice:
    """Read the file of `write_notice`. A file that cannot be read is still a notice."""
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(_MAX_FILE_BYTES))
        notice = Notice(source=str(document["source"]), deadline=float(document["deadline"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        notice = _notice_from_now(path.name)
    return notice if math.isfinite(notice.deadline) else _notice_from_now(notice.source)


def _notice_from_now(source: str) -> Notice:
    return Notice(source=source, deadline=time.time() + notice_seconds())


_BEGUN, _DONE = "begun", "done"
_MAX_BYTES = 2**20


def trainings_file(notice_file: Path) -> Path:
    """Name the file that says which trainings of the job are under way, and which are done."""
    return notice_file.with_name(notice_file.name + ".trainings")


def note_training(notice_file: Path, *, done: bool) -> None:
    """Say that a training of this process is done, or that one has begun, or goes on.

    A script that ends with code 0 on a notice may be done, or a library may have ended it early. Only the training
    knows. Each process adds a line at the beginning of a training and after its last step. The last line counts. The
    runner reads the lines when the script has ended.

    Raises:
        OSError: If the file cannot be written.
    """
    line = f"{os.getpid()} {_DONE if done else _BEGUN}\n".encode("ascii")
    # Many processes write: a short line that is appended stays whole.
    descriptor = os.open(trainings_file(notice_file), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def forget_trainings(notice_file: Path) -> None:
    """Remove the reports of an earlier job that had the same notice file."""
    with contextlib.suppress(OSError):
        trainings_file(notice_file).unlink()


def all_are_done(notice_file: Path) -> bool:
    """Say whether trainings have said that they are done, and none is under way. False where nothing can be read."""
    try:
        with trainings_file(notice_file).open("rb") as file:
            lines = file.read(_MAX_BYTES).splitlines()
    except OSError:
        return False
    last = dict(line.partition(b" ")[::2] for line in lines)
    return bool(last) and set(last.values()) == {_DONE.encode("ascii")}
