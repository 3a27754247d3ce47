"""A process that has dropped to the user that trains, and performs operations there for root.

It starts as root and gives up root for good, and no process may look into it. The user may end or stop it, and gains
nothing by that. Root trusts its answers no more than the user itself. Root takes regular files of the right file system
only, and waits for a bounded time.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import resource
import socket
import stat
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Callable

from .operations import GIVE_DESCRIPTORS, OPERATIONS, end_processes

SECONDS = 60.0
"""The most seconds of one request."""

_END_SECONDS = 1.0
_LENGTH = struct.Struct("!I")
_MOST_REQUEST_BYTES = 2**24
_MOST_ANSWER_BYTES = 2**28
_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from spotkeep_agent.as_user.process import serve; serve(sys.argv[2:])"
)
# To end all processes of a user is for a process that is certain to be of no other one.
_OPERATIONS_HERE: dict[str, Callable[..., Any]] = {**OPERATIONS, "end_processes": end_processes}

Perform = Callable[..., Any]
"""Performs an operation by its name, as `perform(name, *arguments, base=..., descriptor=..., seconds=...)`."""


def perform_here(
    name: str,
    *arguments: Any,
    base: Path | None = None,
    descriptor: int | None = None,
    seconds: float = SECONDS,
) -> Any:
    """Perform an operation in this process. With only one user, it has that user's rights."""
    del seconds
    below = [] if base is None else [str(base)]
    handed = [] if descriptor is None else [descriptor]
    return OPERATIONS[name](*below, *arguments, *handed)


class UserProcess:
    """The process of one user. It starts at once, and anew after a death. Several threads may use it.

    Args:
        uid: The user's id.
        gid: The user's group id.
    """

    def __init__(self, *, uid: int, gid: int) -> None:
        self._ids = (str(uid), str(gid))
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._start()

    def perform(
        self,
        name: str,
        *arguments: Any,
        base: Path | None = None,
        descriptor: int | None = None,
        seconds: float = SECONDS,
    ) -> Any:
        """Have an operation performed with the user's rights.

        Args:
            name: The operation's name in `OPERATIONS`.
            arguments: Its own, JSON values.
            base: The folder of its paths, or None for an operation without one.
            descriptor: A file to hand over, which stays open here.
            seconds: The longest time for it.

        Returns:
            The operation's result. A descriptor belongs to this process.

        Raises:
            OSError: The operation raised it, or the process has died or not answered in time.
        """
        below = [] if base is None else [str(base)]
        request = json.dumps([name, [*below, *arguments]]).encode("ascii")
        handed = [] if descriptor is None else [descriptor]
        with self._lock:
            try:
                connection = self._send(request, handed, seconds)
                answer, received = _receive(connection, most_bytes=_MOST_ANSWER_BYTES)
            except (OSError, ValueError, EOFError) as error:
                self._end()
                what = "took too long" if isinstance(error, socket.timeout) else f"ended: {error}"
                raise OSError(errno.EIO, f"what was to be done as the user that trains {what}", name) from error
        return _result(name, answer, received, base)

    def close(self) -> None:
        """End it."""
        with self._lock:
            self._end()

    def _send(self, request: bytes, handed: list[int], seconds: float) -> socket.socket:
        for again in (False, True):
            connection = self._socket or self._start()
            connection.settimeout(seconds)
            try:
                _send(connection, request, handed)
            except (BrokenPipeError, ConnectionResetError):  # the user has ended it: it may
                self._end()
                if again:
                    raise
            else:
                return connection
        raise AssertionError("unreachable")

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                root = str(Path(__file__).absolute().parents[2])
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _START, root, str(theirs.fileno()), *self._ids],
                    cwd="/",
                    env={},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        self._socket = ours
        return ours

    def _end(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            self._process.kill()
            # In the kernel it does not see the signal, where a file system does not answer. Then it is left.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECONDS)
        self._socket = self._process = None


def serve(arguments: list[str]) -> None:
    """Be that process, until the agent lets go of it.

    Args:
        arguments: The descriptor of its socket, the user's id, the group's.
    """
    connection = socket.socket(fileno=int(arguments[0]))
    become(uid=int(arguments[1]), gid=int(arguments[2]))
    while True:
        try:
            request, handed = _receive(connection, most_bytes=_MOST_REQUEST_BYTES)
        except EOFError:
            return
        answer, given = _answer(request, handed)
        _send(connection, answer, given)
        for descriptor in (*handed, *given):
            os.close(descriptor)


def become(*, uid: int, gid: int) -> None:
    """Give up root for good. The user cannot trace this process or read its memory then, nor gain rights by it."""
    os.chdir("/")
    os.umask(0o022)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc = ctypes.CDLL(None, use_errno=True)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    for option, value in ((_PR_SET_NO_NEW_PRIVS, 1), (_PR_SET_DUMPABLE, 0)):
        if libc.prctl(option, value, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


def _answer(request: bytes, handed: list[int]) -> tuple[bytes, list[int]]:
    name, arguments = json.loads(request)
    try:
        result: Any = _OPERATIONS_HERE[name](*arguments, *handed)
    except OSError as error:
        document: dict[str, Any] = {"errno": error.errno or errno.EIO, "problem": error.strerror or str(error)}
        return json.dumps({**document, "path": str(error.filename)}).encode("ascii"), []
    except (RecursionError, MemoryError, ValueError) as error:
        return json.dumps({"errno": errno.EIO, "problem": repr(error), "path": name}).encode("ascii"), []
    if name in GIVE_DESCRIPTORS:
        return b'{"result": null}', [result]
    return json.dumps({"result": result}).encode("ascii"), []


def _result(name: str, answer: bytes, received: list[int], base: Path | None) -> Any:
    try:
        document = json.loads(answer)
        if "problem" in document:
            raise OSError(int(document["errno"]), str(document["problem"]), str(document["path"]))
        if name not in GIVE_DESCRIPTORS:
            return document["result"]
        found = os.fstat(received[0])
        # Of another file system, a read might never end; of anything but a file, neither.
        if not stat.S_ISREG(found.st_mode) or base is None or found.st_dev != _device_of(base):
            raise OSError(errno.ELOOP, "not a regular file of this file system", name)
        return received.pop(0)
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise OSError(errno.EIO, f"what was done as the user that trains gave no answer: {error!r}", name) from error
    finally:
        for descriptor in received:
            os.close(descriptor)


def _device_of(base: Path) -> int:
    """Return the device of a folder. Where a file system gives root no rights, it shows the mount point alone."""
    try:
        return base.stat().st_dev
    except PermissionError:
        return base.parent.stat().st_dev


def _send(connection: socket.socket, message: bytes, descriptors: list[int]) -> None:
    # The first bytes bring the descriptors.
    header = _LENGTH.pack(len(message))
    sent = socket.send_fds(connection, [header], descriptors) if descriptors else connection.send(header)
    connection.sendall(header[sent:] + message)


def _receive(connection: socket.socket, *, most_bytes: int) -> tuple[bytes, list[int]]:
    header, descriptors, _, _ = socket.recv_fds(connection, _LENGTH.size, 1, socket.MSG_CMSG_CLOEXEC)
    try:
        if not header:
            raise EOFError("the other end is gone")  # noqa: TRY301 - what it brought is let go of below
        header += _exactly(connection, _LENGTH.size - len(header))
        (size,) = _LENGTH.unpack(header)
        if size > most_bytes:
            raise ValueError(f"a message of {size:,} bytes")  # noqa: TRY301
        return _exactly(connection, size), descriptors
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise


def _exactly(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = connection.recv(min(size - len(received), 2**20))
        if not piece:
            raise EOFError("the other end is gone, in the middle of a message")
        received += piece
    return bytes(received)
