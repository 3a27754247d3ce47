"""The kinds of hosts that this machine allows, found by one trial."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import shutil
import socket
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spotkeep_local.hosts.host import Host, HostRefusedError, process_group
from spotkeep_local.hosts.images import BlockImages, DirectoryImages
from spotkeep_local.hosts.instance_host import HostSpecification, InstanceHost, by_id_name
from spotkeep_local.hosts.isolation import Isolation
from spotkeep_local.hosts.metadata import InstanceMetadata, MetadataService
from spotkeep_local.hosts.namespaces import LoopDevice, NamespaceHost
from spotkeep_local.hosts.network import network_refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotkeep_local.hosts.images import Images
    from spotkeep_local.hosts.instance_host import HostEnd

_TOOLS = ("mkfs.ext4", "mount", "blkid", "ip")
_TRIAL_SECONDS = 30.0
_TRIAL_INSTANCE = InstanceMetadata(
    instance_id="i-0",
    instance_type="t3.micro",
    image_id="ami-0",
    account_id="000000000000",
    region="us-east-1",
    zone="us-east-1a",
    zone_id="use1-az1",
    private_ip="10.0.0.1",
    hostname="trial",
    spot=False,
    reservation_id="r-0",
    launched_at=0.0,
)
"""An instance of no account. The trial host serves its metadata."""


class RelocatedHost(InstanceHost):
    """A host that is a process group. All files that its processes write are on the machine, written through or not."""

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
                **({} if specification.clock is None else {"LD_PRELOAD": str(specification.clock)}),
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

    def connect_to_aws(self, *, connected: bool) -> None:
        """Connect what is always connected. Refuse to cut it off, because it reaches the local AWS by itself.

        Raises:
            HostRefusedError: It is to be cut off.
        """
        if not connected:
            raise HostRefusedError("instances share this machine's network, so none can be cut off")

    def _cut_power(self) -> None:
        """Do nothing, because the file system is the machine's."""

    def _close(self) -> None:
        """End the service. The links go with the host's folder."""
        self._metadata.close()


def _write_power_commands(folder: Path, *, flag: Path) -> None:
    """Write commands that end the instance. The machine's own would shut the machine down."""
    for name in ("shutdown", "poweroff", "halt", "reboot"):
        command = folder / name
        command.write_text(f"#!/bin/sh\nexec touch {shlex.quote(str(flag))}\n")
        command.chmod(0o755)


@dataclass(frozen=True, kw_only=True)
class HostPlatform:
    """The kind of hosts that instances get.

    Attributes:
        isolation: `namespace`, or `relocated` for process groups with directories for volumes.
        reason: The reason against namespaces. None with them.
        images: The images of volumes and snapshots.
    """

    isolation: Isolation
    reason: str | None
    images: Images

    @property
    def network_refusal(self) -> str | None:
        """The reason why an instance has no interface to the others of its VPC. None where it has one."""
        if self.isolation is Isolation.NAMESPACE:
            return network_refusal()
        return "instances share this machine's network"

    def start(
        self,
        specification: HostSpecification,
        *,
        read_metadata: Callable[[], InstanceMetadata],
        on_end: Callable[[HostEnd], None],
    ) -> InstanceHost:
        """Start the host of an instance.

        Args:
            specification: Its parts.
            read_metadata: Returns the instance's metadata.
            on_end: Called once, from its own thread, when nothing remains.

        Raises:
            HostRefusedError: The machine refused to make it.
        """
        kind = NamespaceHost if self.isolation is Isolation.NAMESPACE else RelocatedHost
        return kind(specification, images=self.images, read_metadata=read_metadata, on_end=on_end)


def host_platform(*, wanted: Isolation, folder: Path) -> HostPlatform:
    """Decide the kind of the hosts of instances on this machine.

    Args:
        wanted: `auto` tries namespaces and takes the kind that works.
        folder: For the images. Each kind has its own directory below it, because it cannot use the other's.

    Raises:
        HostRefusedError: Namespaces are demanded and the machine refuses them. The message says why.
    """
    isolation, reason = _decide(wanted, refusal=lambda: _instance_refusal(folder))
    images = BlockImages(folder / "blocks") if reason is None else DirectoryImages(folder / "directories")
    return HostPlatform(isolation=isolation, reason=reason, images=images)


def job_isolation(wanted: Isolation) -> Isolation:
    """Decide the kind of the hosts of training jobs on this machine, `namespace` or `relocated`.

    Raises:
        HostRefusedError: Namespaces are demanded and the machine refuses them. The message says why.
    """
    return _decide(wanted, refusal=_job_refusal)[0]


def _decide(wanted: Isolation, *, refusal: Callable[[], str | None]) -> tuple[Isolation, str | None]:
    if wanted is Isolation.RELOCATED:
        return wanted, "isolation is `relocated`"
    reason = refusal()
    if reason is None:
        return Isolation.NAMESPACE, None
    if wanted is Isolation.NAMESPACE:
        raise HostRefusedError(f"{reason}; use isolation `auto` or `relocated`")
    return Isolation.RELOCATED, reason


@functools.cache
def _job_refusal() -> str | None:
    """Try the need of a job's host, a mount namespace, which any user may have."""
    if sys.platform != "linux":
        return "mount namespaces exist on Linux only"
    with tempfile.TemporaryDirectory(prefix="spotkeep-") as folder:
        lines: list[str] = []
        codes: list[int] = []
        ended = threading.Event()
        group = process_group(command=["true"], working_directory=Path("/"), mounts={"/opt/ml": folder}, confined=True)
        trial = Host(
            group,
            folder=Path(folder),
            environment={"PATH": os.defpath},
            on_line=lines.append,
            on_command_end=codes.append,
            on_end=lambda _: ended.set(),
        )
        trial.watch()
        if not ended.wait(_TRIAL_SECONDS):
            trial.kill()
            ended.wait()
    return None if codes == [0] else "; ".join(lines) or f"exit code {codes}"


def _instance_refusal(folder: Path) -> str | None:
    """Try the needs of an instance's host. They are namespaces of every kind, mounts and loop devices, and so root."""
    if sys.platform != "linux":
        return f"network namespaces and loop devices exist on Linux only, and this is {sys.platform}"
    if os.geteuid() != 0:
        return "mounting volumes needs root: run `spotkeep local up` as root to have hosts with block devices"
    if missing := [tool for tool in _TOOLS if shutil.which(tool, path=f"/usr/sbin:/sbin:{os.defpath}") is None]:
        return f"{', '.join(missing)} is not installed (package e2fsprogs, util-linux, iproute2)"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="trial-", dir=folder) as trial:
        return _refusal_of_a_loop_device(Path(trial)) or _refusal_of_a_host(Path(trial))


def _refusal_of_a_loop_device(folder: Path) -> str | None:
    image = folder / "image"
    image.touch()
    os.truncate(image, 1 << 20)
    try:
        LoopDevice(image).release()
    except OSError as error:
        return f"this machine has no loop devices: {error}"
    return None


def _refusal_of_a_host(folder: Path) -> str | None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    specification = HostSpecification(
        instance_id=_TRIAL_INSTANCE.instance_id,
        folder=folder / "host",
        hostname=_TRIAL_INSTANCE.hostname,
        user_data=_TRIAL_INSTANCE.user_data,
        endpoint_port=port,
    )
    try:
        host = NamespaceHost(
            specification,
            images=BlockImages(folder),
            read_metadata=lambda: _TRIAL_INSTANCE,
            on_end=lambda _: None,
        )
    except HostRefusedError as error:
        return str(error)
    host.power_off()
    return None
