"""Copies of checkpoints between a job's directory and S3, as SageMaker's sync agent makes them.

At every start, all files are copied from S3 to every host. While the job trains, each host copies its own files to the
one prefix, in no order. A marker file stands beside each, first `<file>.sagemaker-uploading`, then
`<file>.sagemaker-uploaded`. A file that a host deletes is deleted in S3 too. A job that ends in good order gets one
last pass. Lost hosts get none.
Source: https://docs.aws.amazon.com/sagemaker/latest/dg/model-checkpoints.html
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from botocore.exceptions import BotoCoreError, ClientError

from spotkeep_local.training.errors import JobFailedError
from spotkeep_local.training.object_store import ObjectStore, S3Location, file_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import FileIO
    from typing import BinaryIO

_LOG = logging.getLogger(__name__)

UPLOADING = ".sagemaker-uploading"
UPLOADED = ".sagemaker-uploaded"


@dataclass(frozen=True)
class _Version:
    """The marks that distinguish one content of a file from the next."""

    size: int
    modified_ns: int
    inode: int


@dataclass(frozen=True)
class _Pending:
    version: _Version
    due_at: float


class _LostHostError(Exception):
    """The host is gone in the middle of an upload."""


class _TornFileError(Exception):
    """The job made a file shorter in the middle of its upload."""


class CheckpointSync:
    """The sync of one host's checkpoint directory.

    Args:
        store: S3.
        remote: The job's CheckpointConfig.S3Uri.
        local: Its LocalPath on this machine.
        interval_seconds: Between two readings of the directory.
        upload_delay_seconds: The seconds that a file takes to reach S3.
        in_s3: The files below the prefix, which the syncs of all hosts keep together.
        on_upload: Called when a file has reached S3.
        turn: The lock of the syncs of all hosts, which send one file at a time. So no more files reach S3 once
            `on_upload` has lost the hosts.
    """

    def __init__(
        self,
        *,
        store: ObjectStore,
        remote: S3Location,
        local: Path,
        interval_seconds: float,
        upload_delay_seconds: float,
        in_s3: set[str] | None = None,
        on_upload: Callable[[], None] = lambda: None,
        turn: threading.Lock | None = None,
    ) -> None:
        self._store = store
        self._remote = remote
        self._local = local
        self._interval_seconds = interval_seconds
        self._upload_delay_seconds = upload_delay_seconds
        self._on_upload = on_upload
        self._turn = threading.Lock() if turn is None else turn
        self._in_s3 = set[str]() if in_s3 is None else in_s3
        self._known: dict[str, _Version | None] = {}
        self._pending: dict[str, _Pending] = {}
        self._unread: dict[str, _Version] = {}
        self._read: set[str] = set()
        self._sees_reads = True
        self._over = threading.Event()
        self._lost = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"checkpoints-{remote.uri}", daemon=True)
        self.uploads = 0
        self.deletions = 0

    def restore(self) -> int:
        """Copy everything below the S3 prefix to the directory.

        Returns:
            How many files.

        Raises:
            JobFailedError: S3 refused.
        """
        try:
            for relative in self._remote_files():
                self._store.download(self._remote.child(relative), file_in(self._local, relative))
                self._known[relative] = _version(self._local / relative)
                _forget_reads(self._local / relative)
        except ClientError as error:
            raise JobFailedError(
                f"ClientError: Checkpoint download failed: {self._remote.uri}: {error.response['Error']['Message']}"
            ) from error
        except OSError as error:
            raise JobFailedError(f"ClientError: Checkpoint download failed: {self._remote.uri}: {error}") from error
        self._in_s3.update(self._known)
        self._unread = {name: version for name, version in self._known.items() if version}
        self._sees_reads = self._shows_reads()
        return len(self._known)

    def start(self) -> None:
        """Begin to copy in the background."""
        self._thread.start()

    def finish(self, *, deadline: float | None = None) -> None:
        """Copy all files that are not in S3 yet, without the delay, and end.

        Args:
            deadline: A monotonic time after which the host is gone, even with files still to copy.

        Raises:
            JobFailedError: S3 refused.
        """
        self._stop_thread()
        try:
            changes = list(self._changes())
            random.shuffle(changes)
            for relative in changes:
                if self._lost.is_set() or (deadline is not None and time.monotonic() >= deadline):
                    return
                self._upload(relative)
            self._mirror_deletions()
        except _LostHostError:
            return
        except (ClientError, BotoCoreError) as error:
            raise JobFailedError(f"ClientError: Checkpoint upload failed: {error}") from error

    def lose(self) -> None:
        """Lose the host and return at once. No further byte goes to S3, and a half-sent file is dropped."""
        self._lost.set()
        self._over.set()

    def join(self) -> None:
        """Wait until the background copy has ended, after `lose`."""
        self._stop_thread()

    def stored_files(self) -> tuple[str, ...]:
        """Return files of all hosts that are in S3, also where a disk has them newer.

        To be asked once the copies of all hosts have ended.
        """
        return tuple(sorted(self._in_s3))

    def unsent_files(self) -> tuple[str, ...]:
        """Return files on the disk that are not, or not so, in S3. To be asked once the copy has ended."""
        return tuple(sorted(self._changes()))

    def read_files(self) -> tuple[str, ...] | None:
        """Return restored files that were read before they changed. None where this disk keeps no access times."""
        self._notice_reads()
        return tuple(sorted(self._read)) if self._sees_reads else None

    def _shows_reads(self) -> bool:
        """Try whether the disk notes when a file is read. Without a file there is nothing to be seen."""
        name = next((name for name, version in self._unread.items() if version.size), None)
        if name is None:
            return True
        path = self._local / name
        with path.open("rb") as file:
            file.read(1)
        seen = path.stat().st_atime_ns > 0
        _forget_reads(path)
        return seen

    def _notice_reads(self) -> None:
        for name, version in list(self._unread.items()):
            path = self._local / name
            # What has changed is read for its upload, by this very process.
            if _version(path) != version:
                del self._unread[name]
            elif path.stat().st_atime_ns > 0:
                self._read.add(name)
                del self._unread[name]

    def _stop_thread(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        wait_seconds = 0.0
        while not self._over.wait(wait_seconds):
            try:
                self._pass()
            except _LostHostError:
                return
            except (ClientError, BotoCoreError, OSError) as error:
                _LOG.warning("checkpoint sync of %s goes on after: %s", self._remote.uri, error)
            dues = [pending.due_at - time.monotonic() for pending in self._pending.values()]
            wait_seconds = max(0.0, min([self._interval_seconds, *dues]))

    def _pass(self) -> None:
        self._notice_reads()
        for relative in self._changes():
            if relative not in self._pending:
                self._mark(relative, UPLOADING)
                version = _version(self._local / relative)
                if version:
                    due_at = time.monotonic() + self._upload_delay_seconds
                    self._pending[relative] = _Pending(version, due_at)
        pending_files = list(self._pending.items())
        random.shuffle(pending_files)
        for relative, pending in pending_files:
            if self._over.is_set():
                return
            if pending.due_at <= time.monotonic():
                self._upload(relative)
        self._mirror_deletions()

    def _changes(self) -> Iterator[str]:
        for relative in self._local_files():
            version = _version(self._local / relative)
            if version is not None and self._known.get(relative) != version:
                yield relative

    def _upload(self, relative: str) -> None:
        with self._turn:
            if self._lost.is_set():
                raise _LostHostError
            self._send(relative)

    def _send(self, relative: str) -> None:
        self._pending.pop(relative, None)
        path = self._local / relative
        version = _version(path)
        try:
            with path.open("rb", buffering=0) as file:
                body = _UploadedFile(file, self._lost)
                self._store.upload(cast("BinaryIO", body), self._remote.child(relative))
        except FileNotFoundError:
            self._unmark(relative)
            return
        except (_TornFileError, ClientError, BotoCoreError):
            if self._lost.is_set():
                raise _LostHostError from None
            if body.torn:
                # Not in S3, so the next pass takes it up as a change.
                return
            raise
        self._known[relative] = version
        self._in_s3.add(relative)
        self.uploads += 1
        self._mark(relative, UPLOADED)
        self._on_upload()

    def _mirror_deletions(self) -> None:
        present = set(self._local_files())
        for relative in sorted(self._known.keys() - present):
            if self._lost.is_set():
                raise _LostHostError
            self._store.delete(self._remote.child(relative))
            del self._known[relative]
            self._in_s3.discard(relative)
            self._unmark(relative)
            self.deletions += 1

    def _mark(self, relative: str, marker: str) -> None:
        other = UPLOADED if marker == UPLOADING else UPLOADING
        path = self._local / relative
        try:
            path.with_name(path.name + other).unlink(missing_ok=True)
            path.with_name(path.name + marker).touch()
        except (FileNotFoundError, NotADirectoryError):
            # The job removed the folder meanwhile; the next pass mirrors that.
            return

    def _unmark(self, relative: str) -> None:
        path = self._local / relative
        for marker in (UPLOADING, UPLOADED):
            path.with_name(path.name + marker).unlink(missing_ok=True)

    def _local_files(self) -> Iterator[str]:
        for folder, _, names in os.walk(self._local):
            for name in sorted(names):
                if not name.endswith((UPLOADING, UPLOADED)):
                    yield (Path(folder) / name).relative_to(self._local).as_posix()

    def _remote_files(self) -> Iterator[str]:
        folder = S3Location(self._remote.bucket, f"{self._remote.key.rstrip('/')}/".lstrip("/"))
        for key in self._store.list_keys(folder):
            if not key.endswith((UPLOADING, UPLOADED)):
                yield key.removeprefix(folder.key)


class _UploadedFile:
    """A file as long as it was when its upload began, unreadable once its host is lost.

    The job may write to the file meanwhile. Growth is for the next upload. A file that shrank cannot fill the length
    that was announced to S3, so its upload is given up.
    """

    def __init__(self, file: FileIO, lost: threading.Event) -> None:
        self._file = file
        self._lost = lost
        self._size = os.fstat(file.fileno()).st_size
        self._position = 0
        self.torn = False

    def read(self, size: int = -1) -> bytes:
        if self._lost.is_set():
            raise _LostHostError
        left = self._size - self._position
        wanted = left if size is None or size < 0 else min(size, left)
        chunk = self._file.read(wanted) or b""
        if not chunk and wanted:
            self.torn = True
            raise _TornFileError
        self._position += len(chunk)
        return chunk

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = self._file.seek(base + offset)
        return self._position

    def tell(self) -> int:
        return self._position


def _forget_reads(path: Path) -> None:
    """Set the time of the last access before that of the last change, so that the next read is noted (relatime)."""
    os.utime(path, ns=(0, path.stat().st_mtime_ns))


def _version(path: Path) -> _Version | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return _Version(stat.st_size, stat.st_mtime_ns, stat.st_ino)
