"""The kinds of hosts that this machine allows, found by one trial."""

from __future__ import annotations

import functools
import os
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
from spotkeep_local.hosts.instance_host import HostSpecification
from spotkeep_local.hosts.loop_devices import LoopDevice
from spotkeep_local.hosts.metadata import InstanceMetadata
from spotkeep_local.hosts.namespaces import NamespaceHost
from spotkeep_local.hosts.relocation import RelocatedHost
from spotkeep_local.isolation import Isolation

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotkeep_local.hosts.images import Images
    from spotkeep_local.hosts.instance_host import HostEnd, InstanceHost

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
"""An instance of no account, whose metadata the trial host serves."""


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
            read_metadata: Returns the current metadata of the instance.
            on_end: Called once, from a thread of its own, when nothing of it remains.

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
