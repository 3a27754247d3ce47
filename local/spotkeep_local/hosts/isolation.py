"""What this machine allows its hosts to be, found out by trying it once."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spotkeep_local.hosts.directory_host import DirectoryHost
from spotkeep_local.hosts.errors import HostRefusedError
from spotkeep_local.hosts.host import HostSpecification
from spotkeep_local.hosts.images import BlockImages, DirectoryImages
from spotkeep_local.hosts.loop_devices import LoopDevice
from spotkeep_local.hosts.metadata import InstanceMetadata
from spotkeep_local.hosts.namespace_host import NamespaceHost
from spotkeep_local.isolation import Isolation

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotkeep_local.hosts.host import Host, HostEnd
    from spotkeep_local.hosts.images import Images

_TOOLS = ("mkfs.ext4", "mount", "blkid", "ip")


@dataclass(frozen=True, kw_only=True)
class HostPlatform:
    """The kind of hosts that instances get.

    Attributes:
        isolation: `namespace`, or `relocated` for process groups with directories for volumes.
        reason: Why not namespaces; None with them.
        images: Where volumes and snapshots lie.
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
    ) -> Host:
        """Starts a host. The arguments are those of `NamespaceHost`.

        Raises:
            HostRefusedError: The machine did not let it be made.
        """
        kind = NamespaceHost if self.isolation is Isolation.NAMESPACE else DirectoryHost
        return kind(specification, images=self.images, read_metadata=read_metadata, on_end=on_end)


def host_platform(*, wanted: Isolation, folder: Path) -> HostPlatform:
    """Decides what hosts are on this machine.

    Args:
        wanted: `auto` tries namespaces and takes what works.
        folder: For the images; those of one kind mean nothing to the other, so each has its own directory below it.

    Raises:
        HostRefusedError: Namespaces are demanded and the machine refuses them; says why.
    """
    reason = "isolation is `relocated`" if wanted is Isolation.RELOCATED else _refusal(folder)
    if reason is None:
        return HostPlatform(isolation=Isolation.NAMESPACE, reason=None, images=BlockImages(folder / "blocks"))
    if wanted is Isolation.NAMESPACE:
        raise HostRefusedError(f"{reason}; use isolation `auto` or `relocated`")
    return HostPlatform(isolation=Isolation.RELOCATED, reason=reason, images=DirectoryImages(folder / "directories"))


def _refusal(folder: Path) -> str | None:
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
    nothing = InstanceMetadata(
        instance_id="i-0",
        instance_type="",
        image_id="",
        account_id="",
        region="",
        zone="",
        zone_id="",
        private_ip="",
        hostname="",
        spot=False,
        reservation_id="",
        launched_at=0.0,
    )
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    specification = HostSpecification(
        instance_id="i-0", folder=folder / "host", hostname="trial", user_data="", endpoint_port=port
    )
    try:
        host = NamespaceHost(
            specification, images=BlockImages(folder), read_metadata=lambda: nothing, on_end=lambda _: None
        )
    except HostRefusedError as error:
        return str(error)
    host.power_off()
    return None
