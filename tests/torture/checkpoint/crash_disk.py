"""A disk that lost its power: what may be on it after the first calls of a record.

The model is stricter than ext4: a write is safe after fsync or fdatasync of its file, an entry of a directory (a new
file, a rename, a removal) after fsync of that directory, and nothing else is. What is not safe is there, or not, each
for itself; a write may be there in part. So a library that passes does not depend on a file system's good manners.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DiskCall = dict[str, Any]
Survival = Callable[[], bool]

_SECTOR = 512


@dataclass(eq=False)
class _File:
    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsafe: list[Callable[[bytearray, random.Random], None]] = field(default_factory=list)

    def change(self, apply: Callable[[bytearray], None], partly: Callable[[bytearray, random.Random], None]) -> None:
        apply(self.data)
        self.unsafe.append(partly)

    def sync(self) -> None:
        self.durable = bytearray(self.data)
        self.unsafe.clear()

    def after_crash(self, chance: random.Random, survives: Survival) -> bytes:
        found = bytearray(self.durable)
        for partly in self.unsafe:
            if survives():
                partly(found, chance)
        return bytes(found)


@dataclass(eq=False)
class _Directory:
    entries: dict[str, _File | _Directory] = field(default_factory=dict)
    durable: dict[str, _File | _Directory] = field(default_factory=dict)
    unsafe: list[Callable[[dict[str, _File | _Directory]], object]] = field(default_factory=list)

    def change(self, apply: Callable[[dict[str, _File | _Directory]], object]) -> None:
        apply(self.entries)
        self.unsafe.append(apply)

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.unsafe.clear()

    def after_crash(self, survives: Survival) -> dict[str, _File | _Directory]:
        found = dict(self.durable)
        for apply in self.unsafe:
            if survives():
                apply(found)
        return found


class CrashDisk:
    """Follows a record of calls and gives what a crash may leave.

    The directory that was recorded exists before the first call.
    """

    def __init__(self) -> None:
        self._root = _Directory()
        self._descriptors: dict[int, _File | _Directory] = {}
        self.announced = 0
        """The newest step that the library had called durable."""

    def follow(self, calls: Sequence[DiskCall]) -> None:
        """Take the next calls of the record."""
        for call in calls:
            getattr(self, f"_{call['call']}")(call)

    def leave(self, target: Path, *, survives: Survival, chance: random.Random) -> None:
        """Write what is on the disk after a crash now into an empty directory.

        Args:
            target: The directory.
            survives: Decides for each unsafe change whether it is there.
            chance: Decides how much of a write is there.
        """
        self._leave(self._root, target, survives, chance)

    def leave_everything(self, target: Path) -> None:
        """Write what is there when nothing is lost."""
        self._leave_entries(self._root.entries, target, lambda file: bytes(file.data))

    def _leave(self, directory: _Directory, target: Path, survives: Survival, chance: random.Random) -> None:
        target.mkdir(exist_ok=True)
        for name, entry in directory.after_crash(survives).items():
            if isinstance(entry, _Directory):
                self._leave(entry, target / name, survives, chance)
            else:
                (target / name).write_bytes(entry.after_crash(chance, survives))

    def _leave_entries(
        self, entries: dict[str, _File | _Directory], target: Path, content: Callable[[_File], bytes]
    ) -> None:
        target.mkdir(exist_ok=True)
        for name, entry in entries.items():
            if isinstance(entry, _Directory):
                self._leave_entries(entry.entries, target / name, content)
            else:
                (target / name).write_bytes(content(entry))

    def _find(self, path: str) -> _File | _Directory:
        entry: _File | _Directory = self._root
        for part in path.split("/"):
            if part != ".":
                assert isinstance(entry, _Directory)
                entry = entry.entries[part]
        return entry

    def _parent(self, path: str) -> tuple[_Directory, str]:
        above, _, name = path.rpartition("/")
        parent = self._find(above or ".")
        assert isinstance(parent, _Directory)
        return parent, name

    def _file(self, descriptor: int) -> _File:
        found = self._descriptors[descriptor]
        assert isinstance(found, _File)
        return found

    def _announce(self, call: DiskCall) -> None:
        self.announced = max(self.announced, call["step"])

    def _failed(self, call: DiskCall) -> None:
        """Take a call that failed: it changed nothing, and made nothing safe."""

    def _exchange(self, call: DiskCall) -> None:
        """Take a message between ranks, which changes no disk."""

    def _open(self, call: DiskCall) -> None:
        if call["create"]:
            parent, name = self._parent(call["path"])
            if name not in parent.entries:
                made = _File()
                parent.change(lambda entries: entries.update({name: made}))
        entry = self._find(call["path"])
        if call["truncate"] and isinstance(entry, _File):
            self._resize(entry, 0)
        self._descriptors[call["fd"]] = entry

    def _close(self, call: DiskCall) -> None:
        self._descriptors.pop(call["fd"])

    def _write(self, call: DiskCall) -> None:
        raw, offset = base64.b64decode(call["data"]), call["offset"]

        def put(data: bytearray, start: int, end: int) -> None:
            # Seen on journalling disks after a crash: the size has grown, the bytes are not there.
            data.extend(bytes(max(0, offset + len(raw) - len(data))))
            data[offset + start : offset + end] = raw[start:end]

        def partly(data: bytearray, chance: random.Random) -> None:
            sectors = -(-len(raw) // _SECTOR)
            start, end = sorted(chance.choice((0, chance.randint(0, sectors), sectors)) for _ in range(2))
            put(data, start * _SECTOR, min(end * _SECTOR, len(raw)))

        self._file(call["fd"]).change(lambda data: put(data, 0, len(raw)), partly)

    _pwrite = _writev = _pwritev = _write

    def _fsync(self, call: DiskCall) -> None:
        self._descriptors[call["fd"]].sync()

    _fdatasync = _fsync

    def _ftruncate(self, call: DiskCall) -> None:
        self._resize(self._file(call["fd"]), call["length"])

    def _truncate(self, call: DiskCall) -> None:
        entry = self._find(call["path"])
        assert isinstance(entry, _File)
        self._resize(entry, call["length"])

    def _posix_fallocate(self, call: DiskCall) -> None:
        file = self._file(call["fd"])
        self._resize(file, max(len(file.data), call["offset"] + call["length"]))

    @staticmethod
    def _resize(file: _File, length: int) -> None:
        def resize(data: bytearray) -> None:
            data.extend(bytes(max(0, length - len(data))))
            del data[length:]

        file.change(resize, lambda data, _chance: resize(data))

    def _mkdir(self, call: DiskCall) -> None:
        if call["path"] == ".":
            return
        parent, name = self._parent(call["path"])
        made = _Directory()
        parent.change(lambda entries: entries.update({name: made}))

    def _unlink(self, call: DiskCall) -> None:
        parent, name = self._parent(call["path"])
        parent.change(lambda entries: entries.pop(name, None))

    _rmdir = _unlink

    def _rename(self, call: DiskCall) -> None:
        (old_parent, old), (new_parent, new) = self._parent(call["path"]), self._parent(call["target"])
        moved = old_parent.entries[old]

        def move(entries: dict[str, _File | _Directory]) -> None:
            if old_parent is new_parent:
                entries.pop(old, None)
            entries[new] = moved

        if old_parent is not new_parent:
            old_parent.change(lambda entries: entries.pop(old, None))
        new_parent.change(move)

    _replace = _rename
