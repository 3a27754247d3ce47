"""Where everything that belongs to one local AWS lies: below one directory, and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from spotkeep_local.errors import PersistenceError


@dataclass(frozen=True)
class StateDirectory:
    """The layout of a state directory.

    Attributes:
        root: The directory itself; absolute.
    """

    root: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", Path(self.root).absolute())

    @property
    def record(self) -> Path:
        """What is known about the running server."""
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
        """Held by the server as long as it lives: one server for each state directory."""
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
        """What the training service keeps: its jobs and their files."""
        return self.root / "training"

    @property
    def ec2(self) -> Path:
        """What EC2 keeps: its resources, the bytes of volumes and snapshots, and its hosts' files."""
        return self.root / "ec2"

    @property
    def fis(self) -> Path:
        """The journal of experiment templates and experiments."""
        return self.root / "fis"

    @property
    def jobs(self) -> Path:
        """The journal of the training jobs."""
        return self.training / "jobs"

    @property
    def home(self) -> Path:
        """The home directory that functions see."""
        return self.root / "home"

    @property
    def bare_python(self) -> Path:
        """Starts the Python that functions run on: the standard library and nothing else."""
        return self.root / "bare-python"

    @property
    def temporary(self) -> Path:
        """Temporary files; emptied at every start."""
        return self.root / "tmp"

    @property
    def discarded(self) -> Path:
        """The temporary files of a server before, until they are removed."""
        return self.root / "discarded"

    def create(self) -> None:
        """Creates the directories that are not there yet, and keeps other users out of all of them.

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
                    f"the local AWS cannot keep its state in {directory}: {error.strerror}; "
                    "name a directory that can be written to"
                ) from error
