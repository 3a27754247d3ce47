"""One host of a job at work, with its process, its copies of checkpoints and its log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spotkeep_local.training.job import HostLifetime
from spotkeep_local.training.job_network import host_name
from spotkeep_local.training.opt_ml import OptMl
from spotkeep_local.training.warm_pools import strip_host

if TYPE_CHECKING:
    from pathlib import Path

    from spotkeep_local.hosts.host import Host
    from spotkeep_local.training.checkpoint_sync import CheckpointSync
    from spotkeep_local.training.file_systems import MountedChannel
    from spotkeep_local.training.job_network import HostPlace


@dataclass(kw_only=True)
class WorkingHost:
    """A host of a job, from its directories to the end of its process.

    All hosts of a job begin together. They end together, too.

    Attributes:
        place: Its place among the job's hosts.
        folder: Its own directory.
        sync: Its copies of checkpoints. None for a job without.
        mounted: The channels on file systems.
        process: Its process, once it runs.
        exit_code: The exit code of the process as a shell sees it. None until it has ended.
    """

    place: HostPlace
    folder: Path
    sync: CheckpointSync | None = None
    mounted: list[MountedChannel] = field(default_factory=list)
    process: Host | None = None
    exit_code: int | None = None

    @property
    def opt_ml(self) -> OptMl:
        """Its `/opt/ml`."""
        return OptMl(self.folder / "ml")

    def lose(self) -> None:
        """Take it away. No byte of it goes to S3 any more. Return at once."""
        if self.sync:
            self.sync.lose()
        if self.process:
            self.process.kill()

    def lifetime(self) -> HostLifetime:
        """Return the facts of its life, once its process and its copies have ended."""
        return HostLifetime(
            name=host_name(self.place.number),
            exit_code=self.exit_code,
            uploads=self.sync.uploads if self.sync else 0,
            unsent_files=self.sync.unsent_files() if self.sync else (),
        )


def host_folder(hosts: Path, number: int) -> Path:
    """Return the directory of a host among those of its job.

    Hosts are counted from 1. Each capacity of a job has directories of its own.
    """
    return hosts / host_name(number)


def host_directories(hosts: Path) -> list[OptMl]:
    """Return the `/opt/ml` of each host that is left in a job's directory.

    The first host's comes first. A host that was taken has left none.
    """
    folders = [*hosts.iterdir()] if hosts.is_dir() else []
    ordered = sorted(folders, key=lambda folder: int(folder.name.rpartition("-")[2]))
    return [OptMl(folder / "ml") for folder in ordered if (folder / "ml").is_dir()]


def strip_hosts(hosts: Path) -> None:
    """Remove the job's files from each host in a job's directory.

    The files that stay with a host in a warm pool are left. The next job finds them there.
    """
    for folder in hosts.iterdir():
        strip_host(folder)
