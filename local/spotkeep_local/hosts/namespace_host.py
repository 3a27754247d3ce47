"""A host with namespaces of its own: the program `boot`, and what the server does for it from outside."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import signal
import socket
import stat
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from spotkeep_local.hosts import file_system_cut
from spotkeep_local.hosts.errors import HostRefusedError
from spotkeep_local.hosts.forwarding import Forwarding
from spotkeep_local.hosts.host import HostEnd, by_id_name, instance_environment
from spotkeep_local.hosts.loop_devices import LoopDevice
from spotkeep_local.hosts.metadata_service import MetadataService
from spotkeep_local.hosts.program import exit_codes, say, start_program

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotkeep_local.hosts.host import HostSpecification
    from spotkeep_local.hosts.images import Images
    from spotkeep_local.hosts.metadata import InstanceMetadata

_LOG = logging.getLogger(__name__)
_BOOT_SECONDS = 30.0
_MESSAGE_BYTES = 1 << 16
_METADATA_ENDPOINT = "http://169.254.169.254"
_SETTLE_SECONDS = 10.0


class NamespaceHost:
    """A host, booted when the constructor returns.

    Args:
        specification: What it is made from.
        images: Where its volumes' bytes are.
        read_metadata: What is true of the instance now.
        on_end: Called once, from a thread of its own, when nothing of it is left.

    Raises:
        HostRefusedError: The machine refuses a namespace, a mount or a socket.
    """

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
        self._devices: dict[str, tuple[LoopDevice, str]] = {}
        self._lock = threading.RLock()
        self._ending: HostEnd | None = None
        self._ended = threading.Event()
        self.user_data_exit_code: int | None = None
        self._folder.mkdir(parents=True, exist_ok=True)
        self._process, self._control = start_program(
            _configuration(specification), folder=self._folder, environment={}, console=specification.console
        )
        self.process_id = 0
        listening = self._wait_for_boot()
        self._metadata = MetadataService(listening[0], read=read_metadata)
        self._forwarding = Forwarding(listening[1], port=specification.endpoint_port)
        self._control.settimeout(None)
        say(self._control)
        threading.Thread(target=self._hear, name=f"host-{specification.instance_id}", daemon=True).start()
        threading.Thread(target=self._wait, name=f"host-{specification.instance_id}-end", daemon=True).start()

    def attach(self, volume_id: str) -> None:
        """See `Host`."""
        with self._lock:
            if volume_id in self._devices or self._ending:
                return
            device = LoopDevice(self._images.path(volume_id))
            dev = self._dev()
            taken = {name for _, name in self._devices.values()}
            name = next(name for number in range(1, 1000) if (name := f"nvme{number}n1") not in taken)
            try:
                os.mknod(dev / name, stat.S_IFBLK | 0o660, device.number)
                (dev / "disk/by-id" / by_id_name(volume_id)).symlink_to(f"../../{name}")
            except OSError:
                device.release()
                if self._process.poll() is None:
                    raise
                return
            self._devices[volume_id] = (device, name)

    def detach(self, volume_id: str, *, force: bool) -> bool:
        """See `Host`."""
        with self._lock:
            if volume_id not in self._devices:
                return True
            device, name = self._devices[volume_id]
            mounted = bool(file_system_cut.mount_points(self.process_id, device.number))
            if mounted and not force:
                return False
            file_system_cut.cut(self.process_id, device.number)
            for path in (self._dev() / "disk/by-id" / by_id_name(volume_id), self._dev() / name):
                with contextlib.suppress(OSError):
                    path.unlink()
            del self._devices[volume_id]
            device.release()
            if not mounted:
                device.wait_until_free(seconds=_SETTLE_SECONDS)
            return True

    def power_off(self) -> None:
        """See `Host`."""
        with self._lock:
            self._ending = self._ending or HostEnd.POWER_OFF
            for device, _ in self._devices.values():
                file_system_cut.cut(self.process_id, device.number)
            self._kill()
        self._ended.wait()

    def shut_down(self, *, seconds: float) -> None:
        """See `Host`."""
        with self._lock:
            self._ending = self._ending or HostEnd.SHUT_DOWN
            say(self._control, shutdown_seconds=seconds)
        if not self._ended.wait(seconds + _SETTLE_SECONDS):
            self._kill()
            self._ended.wait()

    def _dev(self) -> Path:
        return Path(f"/proc/{self.process_id}/root/dev")

    def _kill(self) -> None:
        # Its parent is our child and not reaped before `_wait` has waited, so the id is no other process's.
        if self._process.poll() is None and self.process_id:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process_id, signal.SIGKILL)

    def _wait_for_boot(self) -> list[socket.socket]:
        self._control.settimeout(_BOOT_SECONDS)
        descriptors: list[int] = []
        said = b""
        problem = "it did not boot in time"
        with contextlib.suppress(TimeoutError):
            while True:
                data, more, _, _ = socket.recv_fds(self._control, _MESSAGE_BYTES, 2)
                descriptors += more
                said += data
                messages = [json.loads(line) for line in said.splitlines(keepends=True) if line.endswith(b"\n")]
                for message in messages:
                    self.process_id = message.get("process_one", self.process_id)
                if not data:
                    problem = next((str(m["refused"]) for m in messages if "refused" in m), "it ended while it booted")
                    break
                if any("booted" in message for message in messages) and self.process_id:
                    return [socket.socket(fileno=descriptor) for descriptor in descriptors]
        for descriptor in descriptors:
            os.close(descriptor)
        self._process.kill()
        self._process.wait()
        self._control.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        raise HostRefusedError(f"this machine does not let an instance have namespaces of its own: {problem}")

    def _hear(self) -> None:
        for code in exit_codes(self._control):
            self.user_data_exit_code = code

    def _wait(self) -> None:
        self._process.wait()
        with self._lock:
            ending = self._ending = self._ending or HostEnd.FROM_INSIDE
            devices = [device for device, _ in self._devices.values()]
            self._devices.clear()
        for device in devices:
            device.release()
            if not device.wait_until_free(seconds=_SETTLE_SECONDS):
                _LOG.warning("a loop device of an instance that ended is still in use")
        self._metadata.close()
        self._forwarding.close()
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._ended.set()
        self._on_end(ending)


def _configuration(specification: HostSpecification) -> dict[str, object]:
    return {
        "namespaces": True,
        "folder": str(specification.folder),
        "console": str(specification.console),
        "hostname": specification.hostname,
        "endpoint_port": specification.endpoint_port,
        "user_data": specification.user_data,
        "environment": instance_environment(specification, metadata_endpoint=_METADATA_ENDPOINT),
        "links": dict(specification.links),
        "reachable": [sys.prefix, sys.base_prefix],
    }
