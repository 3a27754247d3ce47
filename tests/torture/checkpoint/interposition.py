"""Stands between the library and the operating system: counts each call that changes a disk, breaks one, records all.

It replaces functions of the `os` module inside one process, so it knows nothing of how the library is built and sees
whatever it does. A library that went around `os` would be caught: replaying a record has to give the very directory
that the process left (`trials.LostWrites`).
"""

from __future__ import annotations

import base64
import errno
import fcntl
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

OF_ONE_PROCESS = ("kill", "kill-midway", "eio", "enospc", "short", "no-rename")
KINDS = (*OF_ONE_PROCESS, "kill-message", "stop")
"""What can happen at a call.

`kill` ends the process before it, `kill-midway` after half of a write. `eio` fails it once. `enospc` fails it and every
write after it. `short` writes half. `no-rename` reports a rename that never happens. `kill-message` ends the process
before it sends a message to other ranks. Messages are counted apart from the other calls. `stop` suspends the process
before the call, as a machine that hangs.
"""

EXCHANGE = "exchange"
"""The name of a message between ranks in a record."""

_RANK_DESCRIPTORS = 1_000_000
_WRITES = ("write", "pwrite", "writev", "pwritev")
_RENAMES = ("rename", "replace")
_ALIGNMENT = 4096


@dataclass(frozen=True, kw_only=True)
class DiskFault:
    """One fault at one call.

    Attributes:
        kind: One of `KINDS`.
        call: Its number, counted from 0 over the life of the process.
    """

    kind: str
    call: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.call}"


def parse_fault(text: str) -> DiskFault:
    """Read `KIND:CALL`.

    Raises:
        ValueError: If it is anything else.
    """
    kind, _, call = text.partition(":")
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is no fault; choose one of {', '.join(KINDS)}")
    return DiskFault(kind=kind, call=int(call))


def applies(kind: str, call: str) -> bool:
    """Say whether a fault makes sense at a call of this name."""
    if call == EXCHANGE or kind == "kill-message":
        return call == EXCHANGE and kind == "kill-message"
    if kind in ("kill-midway", "short"):
        return call in _WRITES
    if kind == "no-rename":
        return call in _RENAMES
    if kind == "enospc":
        return call in (*_WRITES, "open", "mkdir", "posix_fallocate")
    return kind in ("kill", "stop") or call != "close"


def install(
    directory: Path, *, fault: DiskFault | None = None, record: Path | None = None, rank: int | None = None
) -> Interposition:
    """Replace the functions of `os` for the rest of this process.

    Args:
        directory: Only calls in here count; whatever else the process does is left alone.
        fault: What goes wrong, if anything.
        record: Where each call is written down, one JSON document a line.
        rank: The number of this process, when several share the record. One call is made at a time then, so the record
            has the calls of all in their order.
    """
    log = None if record is None else record.open("w" if rank is None else "a", encoding="ascii")
    interposition = Interposition(Path(os.path.realpath(directory)), fault=fault, log=log, rank=rank)
    interposition.install()
    return interposition


class Interposition:
    """The replaced functions of one process.

    Args:
        directory: The directory whose calls count.
        fault: The fault, if any.
        log: The record, if any.
        rank: The number of this process, when several share the record.
    """

    def __init__(self, directory: Path, *, fault: DiskFault | None, log: IO[str] | None, rank: int | None) -> None:
        self._directory = str(directory)
        self._fault = fault
        self._log = log
        self._rank = rank
        self._lock = threading.RLock() if rank is None or log is None else _LockOfRanks(log.fileno())
        self._calls = 0
        self._messages = 0
        self._disk_full = False
        self._paths: dict[int, str] = {}
        self._really = {name: getattr(os, name) for name in _WRAPPED if hasattr(os, name)}

    def install(self) -> None:
        """Replace the functions."""
        # shutil and pathlib look functions up in `os` when they call them; shutil compares some when it is imported.
        assert shutil is not None
        for name in self._really:
            setattr(os, name, getattr(self, f"_{name}"))
        if self._log is not None and self._rank is None:
            sys.stdout = _Announcing(sys.stdout, self.announce)

    def exchange(self) -> None:
        """Count a message to the other ranks, before it is sent."""
        with self._lock:
            fault = self._fault
            if fault is not None and fault.kind == "kill-message" and fault.call == self._messages:
                os.kill(os.getpid(), signal.SIGKILL)
            self._messages += 1
            self._write_down({"call": EXCHANGE})

    def announce(self, step: int) -> None:
        """Write down that the library calls a step durable."""
        with self._lock:
            self._write_down({"call": "announce", "step": step})

    def _path(self, path: Any, dir_fd: int | None = None) -> str | None:
        if isinstance(path, int):
            return self._paths.get(path)
        text = os.fsdecode(path)
        if dir_fd is not None:
            base = self._paths.get(dir_fd)
            return None if base is None else f"{base}/{text}"
        text = os.path.abspath(text)  # noqa: PTH100 - what Path.absolute does not do: take `..` out
        if text == self._directory:
            return "."
        return text[len(self._directory) + 1 :] if text.startswith(self._directory + "/") else None

    def _perform(self, name: str, act: Callable[[], Any], entry: dict[str, Any]) -> Any:
        """Count one call, break it or make it, and write it down when it was made."""
        with self._lock:
            number = self._calls
            self._calls += 1
            try:
                if self._fault is not None and self._strikes(name, number):
                    return None
                result = act()
            except OSError:
                self._write_down({"call": "failed", "name": name})
                raise
            self._write_down({"call": name, **entry, **({"fd": result} if name == "open" else {})})
            return result

    def _strikes(self, name: str, number: int) -> bool:
        """Apply the fault; true when the call must not be made."""
        fault = self._fault
        if self._disk_full and applies("enospc", name):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if fault is None or number != fault.call:
            return False
        if fault.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault.kind == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif fault.kind == "eio":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        elif fault.kind == "enospc":
            self._disk_full = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return fault.kind == "no-rename"

    def _write_down(self, entry: dict[str, Any]) -> None:
        if self._log is not None:
            if self._rank is not None:
                entry = {**entry, "rank": self._rank}
                if "fd" in entry:
                    entry["fd"] += self._rank * _RANK_DESCRIPTORS
            self._log.write(json.dumps(entry) + "\n")
            self._log.flush()

    # One method for each function that is replaced. Its signature is the one of the function in `os`.

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        where = self._path(path, dir_fd)

        def act() -> int:
            return int(self._really["open"](path, flags, mode, dir_fd=dir_fd))

        if where is None:
            return act()
        # Opening for reading changes nothing, but the descriptor may be one of a directory that is synced.
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
            entry = {
                "path": where,
                "changes": True,
                "create": bool(flags & os.O_CREAT),
                "truncate": bool(flags & os.O_TRUNC),
            }
            descriptor = int(self._perform("open", act, entry))
        else:
            with self._lock:
                descriptor = act()
                entry = {"path": where, "changes": False, "create": False, "truncate": False}
                self._write_down({"call": "open", **entry, "fd": descriptor})
        self._paths[descriptor] = where
        return descriptor

    def _close(self, fd: int) -> None:
        if fd in self._paths:
            del self._paths[fd]
            with self._lock:
                self._write_down({"call": "close", "fd": fd})
        self._really["close"](fd)

    def _write(self, fd: int, data: Any) -> int:
        return self._store("write", fd, [data], None)

    def _writev(self, fd: int, buffers: Any) -> int:
        return self._store("writev", fd, buffers, None)

    def _pwrite(self, fd: int, data: Any, offset: int) -> int:
        return self._store("pwrite", fd, [data], offset)

    def _pwritev(self, fd: int, buffers: Any, offset: int, flags: int = 0) -> int:
        return self._store("pwritev", fd, buffers, offset, flags)

    def _store(self, name: str, fd: int, buffers: Any, offset: int | None, flags: int = 0) -> int:
        def put(pieces: list[memoryview]) -> int:
            if offset is None:
                return int(self._really["writev"](fd, pieces))
            return int(self._really["pwritev"](fd, pieces, offset, flags))

        pieces = [memoryview(buffer).cast("B") for buffer in buffers]
        if fd not in self._paths:
            return put(pieces)
        with self._lock:
            if self._fault is not None and self._fault.call == self._calls and applies("short", name):
                pieces = _first_half(pieces) if self._fault.kind in ("short", "kill-midway") else pieces
            at = os.lseek(fd, 0, os.SEEK_CUR) if offset is None else offset
            entry: dict[str, Any] = {"fd": fd, "offset": at}

            def act() -> int:
                written = put(pieces)
                if self._log is not None:
                    entry["data"] = base64.b64encode(b"".join(pieces)[:written]).decode("ascii")
                return written

            written = self._perform(name, act, entry)
            if self._fault is not None and self._fault.kind == "kill-midway" and self._fault.call == self._calls - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return int(written)

    def _fsync(self, fd: int) -> None:
        self._on_descriptor("fsync", fd)

    def _fdatasync(self, fd: int) -> None:
        self._on_descriptor("fdatasync", fd)

    def _ftruncate(self, fd: int, length: int) -> None:
        self._on_descriptor("ftruncate", fd, length=length)

    def _posix_fallocate(self, fd: int, offset: int, length: int) -> None:
        self._on_descriptor("posix_fallocate", fd, offset=offset, length=length)

    def _on_descriptor(self, name: str, fd: int, **arguments: int) -> None:
        def act() -> Any:
            return self._really[name](fd, *arguments.values())

        if fd in self._paths:
            self._perform(name, act, {"fd": fd, **arguments})
        else:
            act()

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        self._on_name("mkdir", path, lambda: self._really["mkdir"](path, mode, dir_fd=dir_fd), dir_fd)

    def _unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._on_name("unlink", path, lambda: self._really["unlink"](path, dir_fd=dir_fd), dir_fd)

    def _remove(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._unlink(path, dir_fd=dir_fd)

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._on_name("rmdir", path, lambda: self._really["rmdir"](path, dir_fd=dir_fd), dir_fd)

    def _truncate(self, path: Any, length: int) -> None:
        self._on_name("truncate", path, lambda: self._really["truncate"](path, length), length=length)

    def _on_name(
        self, name: str, path: Any, act: Callable[[], Any], dir_fd: int | None = None, **arguments: int
    ) -> None:
        where = self._path(path, dir_fd)
        if where is None:
            act()
        else:
            self._perform(name, act, {"path": where, **arguments})

    def _rename(
        self, source: Any, target: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        self._move("rename", source, target, src_dir_fd, dst_dir_fd)

    def _replace(
        self, source: Any, target: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        self._move("replace", source, target, src_dir_fd, dst_dir_fd)

    def _move(self, name: str, source: Any, target: Any, source_fd: int | None, target_fd: int | None) -> None:
        old, new = self._path(source, source_fd), self._path(target, target_fd)

        def act() -> None:
            self._really[name](source, target, src_dir_fd=source_fd, dst_dir_fd=target_fd)
            for descriptor, path in self._paths.items():
                if path == old or path.startswith(f"{old}/"):
                    self._paths[descriptor] = f"{new}{path[len(str(old)) :]}"

        if old is None or new is None:
            act()
        else:
            self._perform(name, act, {"path": old, "target": new})


class _LockOfRanks:
    """A lock of all threads of all ranks, each of which has opened the file itself."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._threads = threading.RLock()
        self._depth = 0

    def __enter__(self) -> None:
        self._threads.acquire()
        if not self._depth:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self._threads.release()


class _Announcing:
    """Standard output that notes when the library says that a checkpoint is durable."""

    def __init__(self, stream: Any, announce: Callable[[int], None]) -> None:
        self._stream = stream
        self._announce = announce

    def write(self, text: str) -> int:
        if '"event":"saved"' in text:
            self._announce(int(json.loads(text[text.index("{") :])["step"]))
        return int(self._stream.write(text))

    def flush(self) -> None:
        self._stream.flush()


def _first_half(pieces: list[memoryview]) -> list[memoryview]:
    left = sum(len(piece) for piece in pieces) // 2
    # Direct I/O takes whole blocks only.
    if left >= _ALIGNMENT:
        left -= left % _ALIGNMENT
    if left == 0:
        return pieces
    half = []
    for piece in pieces:
        half.append(piece[:left])
        left -= len(half[-1])
        if left == 0:
            break
    return half


_WRAPPED = (
    *("open", "close", *_WRITES, "fsync", "fdatasync", "ftruncate", "truncate", "posix_fallocate"),
    *("mkdir", "unlink", "remove", "rmdir", *_RENAMES),
)
