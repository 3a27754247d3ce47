"""A host on a machine that allows no namespaces: a process group, with directories for volumes.

Its metadata service listens on a free port of loopback, which AWS_EC2_METADATA_SERVICE_ENDPOINT names; its volumes
appear as links in `<SPOTKEEP_LOCAL_INSTANCE_ROOT>/dev/disk/by-id`. It shares files, users and network with the machine.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import socket
import threading
from typing import TYPE_CHECKING

from spotkeep_local.hosts.host import HostEnd, by_id_name, instance_environment
from spotkeep_local.hosts.metadata_service import MetadataService
from spotkeep_local.hosts.process_group import GroupSpecification, ProcessGroup

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from spotkeep_local.hosts.host import HostSpecification
    from spotkeep_local.hosts.images import Images
    from spotkeep_local.hosts.metadata import InstanceMetadata

_SETTLE_SECONDS = 10.0
SHUTDOWN_FLAG = "shutdown-requested"
"""The file that says that the instance wants to be shut down."""


class DirectoryHost:
    """A host, started when the constructor returns. The arguments are those of `NamespaceHost`."""

    def __init__(
        self,
        specification: HostSpecification,
        *,
        images: Images,
        read_metadata: Callable[[], InstanceMetadata],
        on_end: Callable[[HostEnd], None],
    ) -> None:
        self._images = images
        self._folder = specification.folder
        self._on_end = on_end
        self._ending: HostEnd | None = None
        self._ended = threading.Event()
        self.user_data_exit_code: int | None = None
        self._by_id = self._folder / "root/dev/disk/by-id"
        self._by_id.mkdir(parents=True, exist_ok=True)
        for path, target in specification.links.items():
            link = self._folder / "root" / path
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)
        listening = socket.create_server(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self._metadata = MetadataService(listening, read=read_metadata)
        self._group = ProcessGroup(
            _group_of(specification, metadata_endpoint=endpoint),
            on_command_end=self._note_user_data_end,
            on_end=self._end,
        )
        self.process_id = self._group.pid
        self._group.watch()

    def attach(self, volume_id: str) -> None:
        """See `Host`."""
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            (self._by_id / by_id_name(volume_id)).symlink_to(self._images.path(volume_id))

    def detach(self, volume_id: str, *, force: bool) -> bool:  # noqa: ARG002 - nothing is ever mounted
        """See `Host`. A process that has the directory open goes on writing to it."""
        (self._by_id / by_id_name(volume_id)).unlink(missing_ok=True)
        return True

    def power_off(self) -> None:
        """See `Host`. What its processes wrote is in the directories, written through or not."""
        self._ending = self._ending or HostEnd.POWER_OFF
        self._group.kill()
        self._ended.wait()

    def shut_down(self, *, seconds: float) -> None:
        """See `Host`."""
        self._ending = self._ending or HostEnd.SHUT_DOWN
        self._group.shut_down(seconds=seconds)
        if not self._ended.wait(seconds + _SETTLE_SECONDS):
            self.power_off()

    def _note_user_data_end(self, code: int) -> None:
        self.user_data_exit_code = code

    def _end(self) -> None:
        self._ending = self._ending or HostEnd.FROM_INSIDE
        self._metadata.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._ended.set()
        self._on_end(self._ending)


def _group_of(specification: HostSpecification, *, metadata_endpoint: str) -> GroupSpecification:
    folder = specification.folder
    home = folder / "home"
    home.mkdir()
    script = folder / "user-data"
    script.write_text(specification.user_data if specification.user_data.startswith("#!") else "#!/bin/sh\n")
    script.chmod(0o700)
    environment = instance_environment(specification, metadata_endpoint=metadata_endpoint)
    commands, flag = folder / "bin", folder / SHUTDOWN_FLAG
    _write_power_commands(commands, flag=flag)
    return GroupSpecification(
        folder=folder,
        command=[str(script)],
        working_directory=home,
        environment=environment
        | {
            "PATH": f"{commands}:{environment['PATH']}",
            "HOME": str(home),
            "SPOTKEEP_LOCAL_INSTANCE_ROOT": str(folder / "root"),
        },
        ends_with_command=False,
        shutdown_flag=flag,
        console=specification.console,
    )


def _write_power_commands(folder: Path, *, flag: Path) -> None:
    """The machine's own would shut the machine down; these end the instance."""
    folder.mkdir()
    for name in ("shutdown", "poweroff", "halt", "reboot"):
        command = folder / name
        command.write_text(f"#!/bin/sh\nexec touch {shlex.quote(str(flag))}\n")
        command.chmod(0o755)
