"""The files of one local AWS, all below one directory."""

from __future__ import annotations

import errno
import json
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from spotkeep_local.errors import PersistenceError

CONTROL_TARGET = "SpotkeepLocal"
"""The text before an operation's name in the header X-Amz-Target."""
_FULL = "the disk is full: free some space, or name a directory on another disk"
_NO_RIGHTS = "this user may not write there: change its rights, or name a directory of your own"
_NO_DIRECTORY = "a file is in its place: remove it, or name another directory"
_REFUSALS = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: "the file system is read-only: name a directory on another one",
    errno.EACCES: _NO_RIGHTS,
    errno.EPERM: _NO_RIGHTS,
    errno.EEXIST: _NO_DIRECTORY,
    errno.ENOTDIR: _NO_DIRECTORY,
}
"""The refusals of a system with a remedy of their own."""


@dataclass(frozen=True, kw_only=True)
class ServerRecord:
    """One running server.

    Attributes:
        pid: Its process.
        process_started: The time when that process began, as `process_identity.start_time` returns it.
        nonce: A random text that only this server answers with.
        port: Its port on 127.0.0.1.
        region: The region of its resources.
        account_id: The account in its ARNs.
    """

    pid: int
    process_started: str
    nonce: str
    port: int
    region: str
    account_id: str

    @property
    def endpoint_url(self) -> str:
        """The address for clients."""
        return f"http://127.0.0.1:{self.port}"

    def write(self, path: Path) -> None:
        """Replace the record, atomically."""
        temporary = path.with_suffix(".new")
        document = {**asdict(self), "endpoint": self.endpoint_url}
        temporary.write_text(json.dumps(document, indent=2) + "\n")
        temporary.replace(path)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read a record.

        Returns:
            None when there is none, or when it is not whole: a record that cannot be used is as good as none.
        """
        try:
            document = json.loads(path.read_text())
            document.pop("endpoint")
            return cls(**document)
        except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
            return None


@dataclass(frozen=True)
class StateDirectory:
    """The layout of a state directory.

    Attributes:
        root: The directory itself, absolute.
    """

    root: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", Path(self.root).absolute())

    @property
    def record(self) -> Path:
        """The record of the running server."""
        return self.root / "local.json"

    @property
    def credentials(self) -> Path:
        """The access key of the person at the command line."""
        return self.root / "credentials.json"

    @property
    def last_port(self) -> Path:
        """The port of the last server, so that the next one takes the same."""
        return self.root / "port"

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.root / "server.log"

    @property
    def start_lock(self) -> Path:
        """Held while a server is being started or stopped."""
        return self.root / "start.lock"

    @property
    def server_lock(self) -> Path:
        """The lock of the living server, one for each state directory."""
        return self.root / "server.lock"

    @property
    def services(self) -> Path:
        """The state of ministack's services, one file each."""
        return self.root / "services"

    @property
    def objects(self) -> Path:
        """The objects in S3."""
        return self.root / "objects"

    @property
    def training(self) -> Path:
        """The training service's jobs and their files."""
        return self.root / "training"

    @property
    def file_systems(self) -> Path:
        """The folders of file systems, with the user's own files. Also those of a killed server stay."""
        return self.root / "file-systems"

    @property
    def ec2(self) -> Path:
        """EC2's resources, the bytes of volumes and snapshots, and its hosts' files."""
        return self.root / "ec2"

    @property
    def fis(self) -> Path:
        """FIS's experiment templates."""
        return self.root / "fis"

    @property
    def batch(self) -> Path:
        """Batch's resources and service jobs."""
        return self.root / "batch"

    @property
    def unsaved(self) -> Path:
        """A file from a server's start until it has saved its state. A killed server leaves it behind."""
        return self.root / "unsaved"

    @property
    def home(self) -> Path:
        """The home directory that functions see."""
        return self.root / "home"

    @property
    def bare_python(self) -> Path:
        """The program that starts functions on Python with the standard library alone."""
        return self.root / "bare-python"

    @property
    def unpacked(self) -> Path:
        """The unpacked archives of functions and layers."""
        return self.root / "unpacked"

    @property
    def temporary(self) -> Path:
        """Temporary files. The server removes them at its end, and those of a killed server at the next start."""
        return self.root / "tmp"

    @property
    def discarded(self) -> Path:
        """Unneeded files of an earlier server, until they are removed."""
        return self.root / "discarded"

    def discard_temporary(self) -> None:
        """Move the temporary files of an earlier server away, to `discarded`, which is to be removed."""
        self._discard(self.temporary)

    def discard_unsaved(self) -> bool:
        """Move the state of a killed server away, because its parts do not fit together.

        Returns:
            Whether there was such a state.
        """
        if not self.unsaved.exists():
            return False
        for directory in (self.services, self.objects, self.training, self.ec2, self.fis, self.batch):
            self._discard(directory)
        self.unsaved.unlink()
        return True

    def _discard(self, directory: Path) -> None:
        if directory.exists():
            self.discarded.mkdir(exist_ok=True)
            directory.rename(self.discarded / secrets.token_hex(8))

    def create(self) -> None:
        """Create the directories that are not there yet, and keep other users out of all of them.

        Raises:
            PersistenceError: One cannot be created.
        """
        for directory in (self.root, self.services, self.objects, self.home, self.temporary):
            try:
                directory.mkdir(parents=True, exist_ok=True)
                if directory == self.root:
                    directory.chmod(0o700)
            except OSError as error:
                raise PersistenceError(
                    f"the local AWS cannot keep its state in {directory}: {_found(error)}"
                ) from error


def _found(error: OSError) -> str:
    """Return the refusal of the system in words, with the remedy."""
    return _REFUSALS.get(error.errno or 0, f"{error.strerror}: name another directory")
