"""Confines an instance where the machine allows no namespaces: a process group, with directories for volumes.

Its metadata service listens on a free port of loopback, which AWS_EC2_METADATA_SERVICE_ENDPOINT names; its volumes
appear as links in `<SPOTKEEP_LOCAL_INSTANCE_ROOT>/dev/disk/by-id`. It shares files, users and network with the machine.
"""

from __future__ import annotations

import contextlib
import shlex
import socket
from typing import TYPE_CHECKING

from spotkeep_local.hosts.host import Host, process_group
from spotkeep_local.hosts.instance_host import InstanceHost, by_id_name
from spotkeep_local.hosts.metadata_service import MetadataService

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from spotkeep_local.hosts.instance_host import HostSpecification
    from spotkeep_local.hosts.metadata import InstanceMetadata


class RelocatedHost(InstanceHost):
    """A host that is a process group. What its processes write is on the machine, written through or not."""

    def _start(self, specification: HostSpecification, read_metadata: Callable[[], InstanceMetadata]) -> Host:
        folder = specification.folder
        root, home, commands = folder / "root", folder / "home", folder / "bin"
        self._by_id = root / "dev/disk/by-id"
        for directory in (self._by_id, home, commands):
            directory.mkdir(parents=True)
        for path, target in specification.links.items():
            link = root / path
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)
        script = folder / "user-data"
        script.write_text(specification.user_data if specification.user_data.startswith("#!") else "#!/bin/sh\n")
        script.chmod(0o700)
        flag = folder / "shutdown-requested"
        _write_power_commands(commands, flag=flag)
        for name, text in specification.programs.items():
            (commands / name).write_text(text)
            (commands / name).chmod(0o755)
        listening = socket.create_server(("127.0.0.1", 0))
        environment = specification.environment(metadata_endpoint=f"http://127.0.0.1:{listening.getsockname()[1]}")
        self._metadata = MetadataService(listening, read=read_metadata)
        return Host(
            process_group(command=[str(script)], working_directory=home, ends_with_command=False, shutdown_flag=flag),
            folder=folder,
            environment={
                **environment,
                "PATH": f"{commands}:{environment['PATH']}",
                "HOME": str(home),
                "SPOTKEEP_LOCAL_INSTANCE_ROOT": str(root),
            },
            console=specification.console,
            on_command_end=self._note_user_data_end,
            on_end=self._end,
        )

    def _attach(self, volume_id: str) -> None:
        """Make the link."""
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            (self._by_id / by_id_name(volume_id)).symlink_to(self._images.path(volume_id))

    def _detach(self, volume_id: str, *, force: bool) -> bool:  # noqa: ARG002 - nothing is ever mounted
        """Remove the link. A process that has the directory open goes on writing to it."""
        (self._by_id / by_id_name(volume_id)).unlink(missing_ok=True)
        return True

    def _cut_power(self) -> None:
        """Do nothing: the file system is the machine's."""

    def _close(self) -> None:
        """End the service; the links go with the host's folder."""
        self._metadata.close()


def _write_power_commands(folder: Path, *, flag: Path) -> None:
    """Write commands that end the instance; the machine's own would shut the machine down."""
    for name in ("shutdown", "poweroff", "halt", "reboot"):
        command = folder / name
        command.write_text(f"#!/bin/sh\nexec touch {shlex.quote(str(flag))}\n")
        command.chmod(0o755)
