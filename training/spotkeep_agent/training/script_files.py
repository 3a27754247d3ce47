"""Files of the script's own among the checkpoints, copied to S3 with the library's, and back to a new volume.

No mark shows that such a file is whole. So the agent copies it when no process has it open for writing and it has not
changed between two scans. The agent copies it again after a later change. In S3 a copy is there whole or not at all.

Checkpoints of the library's in a folder below (`fold-2/step-10`), of one training of several, are copied in the same
way. Their manifest confirms the other files of its folder, so it follows when these are in S3.

TensorBoard's event files are open from the first step to the last, and only grow. Their content can be read at any
time. So they are copied as they are, as long as they are small.

When the script removes a file, the agent removes the copy from S3 a quarter of an hour later. Only a scan that finds
everything else copied removes it, since its replacement may still be on its way there.

A small file in the agent's own folder on the volume lists the copies made from this volume. A volume without it is new,
and gets the files from S3. A file that is on the volume is never replaced from S3.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, NamedTuple

from spotkeep.disk.manifest import MANIFEST_NAME
from spotkeep.disk.storage import LocalStorage
from spotkeep.disk.upload_markers import UPLOADED_SUFFIX, UPLOADING_SUFFIX
from spotkeep.errors import RemoteError
from spotkeep.remote.s3_objects import S3Objects, S3Place
from spotkeep.remote.transfer import Pace, TransferCancelledError, require_not_cancelled
from spotkeep_agent.as_user.files import UserFiles
from spotkeep_agent.aws.object_files import DRAFT_SUFFIX, WantedFile, fetch_files, send_file

CHECKPOINTS = "checkpoints"
"""The folder on the volume that a script keeps its checkpoints in."""
SCAN_SECONDS = 30.0
REMOVAL_SECONDS = 900.0
_RECORD_NAME = "copied.json"
_MODIFIED_LABEL = "spotkeep-modified-ns"
_MOST_FILES = 100_000
_MOST_OBJECTS = 200_000
_MOST_RECORD_BYTES = 64 * 2**20
_LONGEST_KEY_BYTES = 1024
_ATTEMPTS_AT_THE_END = 3
_RETRY_SECONDS = 5.0
_LET_GO_SECONDS = 2.0
_MOST_GROWING_BYTES = 64 * 2**20
"""A larger event file would be sent again and again. It is copied when it is closed."""
_EVENT_FILE = re.compile(r"(.*/)?[^/]*\.tfevents\.[^/]*")
_OURS = re.compile(
    r"step-[0-9]+(-[0-9.]+)?/(manifest\.json|data-[0-9]{5}\.bin|[^/]*\.draft)"
    r"|(interruptions|exits-on-notice)\.json(\.draft)?"
    r"|writers-[0-9.]+\.json"
    r"|.*/(step-[0-9]+(-[0-9.]+)?/[^/]*|interruptions\.json)\.draft"
    r"|\.spare/.*"  # of earlier versions
)

_logger = logging.getLogger("spotkeep.agent")


class _Stamp(NamedTuple):
    """The marks of a file's version, its size and the time of its last write in nanoseconds since the epoch."""

    size: int
    modified_ns: int


class _UnsettledError(OSError):
    """A file has changed, or is being written."""


def is_of_the_script(name: str) -> bool:
    """Return True when a file among the checkpoints is the script's own, and none of the library or SageMaker.

    Args:
        name: The path relative to the directory, with slashes. A half-made file's name gives False.
    """
    parts = name.split("/")
    last = parts[-1]
    if any(part in ("", ".", "..") for part in parts) or last.startswith(".spotkeep-"):
        return False
    return not last.endswith((UPLOADING_SUFFIX, UPLOADED_SUFFIX, DRAFT_SUFFIX)) and _OURS.fullmatch(name) is None


class ScriptFiles:
    """The script's own files of one run.

    Args:
        place: The prefix of the copies in S3.
        files: The files on the volume, with the rights of the user that trains.
        kept: A folder on the volume that is the agent's own.
        objects: The bucket.
        fetching: The bucket, for files that are fetched before the training starts.
        pace: The speed of sending.
        is_replaced: Asked before a scan changes anything in S3. True where the files there are another writer's by now.
        scan_seconds: Seconds between two scans.
        clock: Seconds that only go forward.
    """

    def __init__(
        self,
        place: S3Place,
        files: UserFiles,
        *,
        kept: Path,
        objects: S3Objects,
        fetching: S3Objects,
        pace: Pace,
        is_replaced: Callable[[], bool] = lambda: False,
        scan_seconds: float = SCAN_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place = place
        self._files = files
        self._objects = objects
        self._fetching = fetching
        self._pace = pace
        self._is_replaced = is_replaced
        self._scan_seconds = scan_seconds
        self._clock = clock
        self._record = kept / _RECORD_NAME
        self._copied: dict[str, _Stamp] = {}
        self._before: dict[str, _Stamp] = {}
        self._gone_since: dict[str, float] = {}
        self._ending = threading.Event()
        self._cancelled = threading.Event()
        self._left_whole = False
        self._done = False
        self._is_taken_over = False
        self._thread: threading.Thread | None = None

    def in_s3(self) -> Iterator[tuple[str, int]]:
        """List the copies by name and size.

        Raises:
            RemoteError: If S3 cannot be read.
        """
        return self._listed(self._fetching)

    def _listed(self, objects: S3Objects) -> Iterator[tuple[str, int]]:
        for count, found in enumerate(objects.listing(self._place.prefix)):
            if count >= _MOST_OBJECTS:
                raise RemoteError(
                    f"{self._place} holds more than {_MOST_OBJECTS:,} objects: give the run its own prefix"
                )
            name = found.key[len(self._place.prefix) :]
            if is_of_the_script(name):
                yield name, found.size

    def take_over(self) -> None:
        """Copy next from a directory of which another machine has made the copies until now.

        A copy that is as the file here is not made again. A copy without a file goes, as after a removal by the script.
        """
        self._is_taken_over = True

    def forget(self) -> None:
        """Take the directory for one that is new, because another machine may have lost its files."""
        self._record.unlink(missing_ok=True)

    def restore(
        self,
        *,
        cancelled: threading.Event,
        again: bool = False,
        on_brought: Callable[[int], None] = lambda _: None,
    ) -> bool:
        """Bring the copies in S3 to a new volume. Return True when it was new.

        Args:
            cancelled: Set it to break off before the next part. The next call goes on.
            again: True where another disk may have sent newer files. They replace those that are here.
            on_brought: Called in several threads with the size in bytes of each part that is here.

        Raises:
            TransferCancelledError: If it was set.
            RemoteError: If S3 cannot be read. Going on would lose the copies there.
            OSError: If the volume cannot be read or written.
        """
        known = self._read_record()
        if known is not None and not again:
            self._copied = known
            return False
        brought: list[str] = []

        def wanted() -> Iterator[WantedFile]:
            for name, size in self._of_now(dict(self.in_s3())).items():
                path = self._at(name)
                (here,) = self._files.find([path])
                if here is not None and not again:
                    continue
                brought.append(name)
                modified_ns = self._modified_ns(self._fetching, name)
                if here is None or (here.size, here.modified_ns) != (size, modified_ns):
                    yield WantedFile(
                        self._fetching, self._place.prefix + name, size, self._files, path, modified_ns=modified_ns
                    )

        fetch_files(wanted(), cancelled=cancelled, on_brought=on_brought)
        here = self._files.find([self._at(name) for name in brought])
        self._copied = {
            name: _Stamp(found.size, found.modified_ns) for name, found in zip(brought, here) if found is not None
        }
        self._write_record()
        return True

    def _of_now(self, sizes: dict[str, int]) -> dict[str, int]:
        """Leave out paths that the script has replaced, a file by a folder of that name or the reverse.

        S3 holds both until the older one is removed there.
        """
        below: dict[str, list[str]] = {}
        for name in sizes:
            above = name.rpartition("/")[0]
            while above:
                if above in sizes:
                    below.setdefault(above, []).append(name)
                above = above.rpartition("/")[0]
        for name, others in below.items():
            newest = max((name, *others), key=lambda each: self._modified_ns(self._fetching, each) or 0)
            for gone in others if newest == name else [name]:
                sizes.pop(gone, None)
        return sizes

    def _modified_ns(self, objects: S3Objects, name: str) -> int | None:
        """Return the time of the last write that a copy was sent with, or None without one."""
        found = objects.head(self._place.prefix + name)
        modified = "" if found is None else found.labels.get(_MODIFIED_LABEL, "")
        return int(modified) if re.fullmatch("[0-9]{1,19}", modified) else None

    def start(self) -> None:
        """Begin to copy the script's files."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="script-files", daemon=True)
            self._thread.start()

    def finish(self, seconds_left: Callable[[], float], *, left_whole: bool) -> bool:
        """Copy the remaining files after the script's end, and stop. Return True when all of them are in S3.

        Args:
            seconds_left: The function that gives the seconds left, called again and again.
            left_whole: True when the script ended by itself, with whole files. Otherwise files changed after the last
                scan may be incomplete, and stay on the volume.
        """
        if self._thread is None:
            return self._done
        self._left_whole = left_whole
        self._ending.set()
        while self._thread.is_alive() and (seconds := seconds_left()) > 0:
            self._thread.join(min(seconds, 1.0))
        self._cancelled.set()
        self._thread.join(_LET_GO_SECONDS)
        return self._done

    def _work(self) -> None:
        while not self._ending.wait(self._scan_seconds):
            self._try_to_copy(settled_only=True)
        for attempt in range(_ATTEMPTS_AT_THE_END):
            if attempt and self._cancelled.wait(_RETRY_SECONDS):
                return
            done = self._try_to_copy(settled_only=not self._left_whole)
            if done is not None:
                self._done = done
                return

    def _try_to_copy(self, *, settled_only: bool) -> bool | None:
        """Scan once. Return True when all is in S3, or None when S3 or the volume failed and a retry makes sense."""
        try:
            return self.copy(settled_only=settled_only)
        except TransferCancelledError:
            return False
        except (RemoteError, OSError) as error:
            _logger.warning("files of the script's own are not in S3 yet: %s", error)
            return None

    def copy(self, *, settled_only: bool) -> bool:
        """Scan once, and copy new whole files in the order of their writes. Return True when all are in S3.

        Args:
            settled_only: True to leave out files that have changed since the scan before.

        Raises:
            TransferCancelledError: If `finish` ran out of time.
            RemoteError: If S3 refuses.
            OSError: If the directory cannot be read, or holds too much.
        """
        found = self._scan()
        if self._is_taken_over:
            self._copied = self._copied_as_here(found)
            self._is_taken_over = False
        if found != self._copied and self._is_replaced():
            return False
        before = self._before
        if not self._ending.is_set():  # when the script has ended, nothing changes that was cut off in the middle
            self._before = found
        copied_all, changed = True, False
        unfinished: set[str] = set()  # folders with a file that is not in S3
        for name, stamp in sorted(found.items(), key=lambda item: item[1].modified_ns):
            if self._copied.get(name) == stamp:
                continue
            folder, _, last = name.rpartition("/")
            grows = _EVENT_FILE.fullmatch(name) is not None and stamp.size <= _MOST_GROWING_BYTES
            vouches = last == MANIFEST_NAME and folder in unfinished
            if vouches or (settled_only and before.get(name) != stamp and not grows):
                copied_all = False
                unfinished.add(folder)
                continue
            try:
                self._send(name, stamp, grows=grows)
            except _UnsettledError:
                copied_all = False
                unfinished.add(folder)
                continue
            self._copied[name] = stamp
            changed = True
        changed = self._remove(found, copied_all=copied_all) or changed
        if changed:
            self._write_record()
        return copied_all

    def _copied_as_here(self, found: dict[str, _Stamp]) -> dict[str, _Stamp]:
        """Return the copies that are as the files here, and those without a file."""
        known = self._read_record() or {}
        copied = {}
        for name, size in self._listed(self._objects):
            require_not_cancelled(self._cancelled)
            here = found.get(name)
            if here is None:
                copied[name] = _Stamp(size, 0)
            elif size == here.size and (
                known.get(name) == here or self._modified_ns(self._objects, name) == here.modified_ns
            ):
                copied[name] = here
        return copied

    def _remove(self, found: dict[str, _Stamp], *, copied_all: bool) -> bool:
        """Remove from S3 the files that the script removed long enough ago. Return True when there was one."""
        now = self._clock()
        self._gone_since = {name: self._gone_since.get(name, now) for name in self._copied if name not in found}
        removed = [
            name
            for name, since in self._gone_since.items()
            if copied_all and (now - since >= REMOVAL_SECONDS or self._left_whole)
        ]
        for name in removed:
            self._objects.delete(self._place.prefix + name)
            del self._copied[name]
        return bool(removed)

    def _scan(self) -> dict[str, _Stamp]:
        found: dict[str, _Stamp] = {}
        for name, stamp in self._files.scan(CHECKPOINTS).items():
            if is_of_the_script(name) and _fits_s3(self._place.prefix + name):
                found[name] = _Stamp(*stamp)
            if len(found) > _MOST_FILES:
                raise OSError(f"{CHECKPOINTS} holds more than {_MOST_FILES:,} files of the script's own")
        return found

    def _at(self, name: str) -> str:
        return f"{CHECKPOINTS}/{name}"

    def _send(self, name: str, stamp: _Stamp, *, grows: bool) -> None:
        """Copy one file. A growing file is copied in its current length.

        Raises:
            _UnsettledError: If it changes, is being written, or is of another kind than its name says.
            TransferCancelledError: If `finish` ran out of time.
            RemoteError: If S3 refuses.
        """
        try:
            # Links are followed as long as they stay in the directory.
            descriptor = self._files.open_within(CHECKPOINTS, name)
        except OSError as error:
            raise _UnsettledError(str(error)) from error
        try:

            def require_whole() -> None:
                if not grows and (_stamp(os.fstat(descriptor)) != stamp or _is_being_written(descriptor)):
                    raise _UnsettledError(name)

            require_whole()
            os.fsync(descriptor)  # after a crash the volume shall not have less than S3
            try:
                send_file(
                    self._objects,
                    self._place.prefix + name,
                    descriptor,
                    labels={_MODIFIED_LABEL: str(stamp.modified_ns)},
                    cancelled=self._cancelled,
                    pace=self._pace,
                    require_whole=require_whole,
                )
            except RemoteError:
                raise
            except OSError as error:
                raise _UnsettledError(str(error)) from error
        finally:
            os.close(descriptor)

    def _read_record(self) -> dict[str, _Stamp] | None:
        """Read the record of this volume's copies in this place. Return None when there is no record."""
        try:
            document = json.loads(bytes(LocalStorage().read(self._record, max_bytes=_MOST_RECORD_BYTES)))
            if document["place"] != str(self._place):
                return None
            return {name: _Stamp(int(size), int(at)) for name, (size, at) in document["files"].items()}
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            _logger.warning("%s cannot be understood and is written anew: %s", self._record, error)
            return None

    def _write_record(self) -> None:
        document: dict[str, Any] = {"place": str(self._place), "files": self._copied}
        draft = self._record.with_name(_RECORD_NAME + ".draft")
        draft.unlink(missing_ok=True)
        with draft.open("x", encoding="utf-8") as file:  # a volume of a user's own may bring a link there
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._record)


def _stamp(status: os.stat_result) -> _Stamp:
    return _Stamp(status.st_size, status.st_mtime_ns)


def _fits_s3(key: str) -> bool:
    try:
        return len(key.encode()) <= _LONGEST_KEY_BYTES
    except UnicodeEncodeError:
        return False


def _is_being_written(descriptor: int) -> bool:
    """Return True when a process has a file open for writing, so that the kernel gives no read lease (fcntl(2)).

    A file system without leases cannot show this, and gives False.
    """
    try:
        # While there is a lease, a writer would wait, and we would get a signal: by default one that ends the process.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    return False
