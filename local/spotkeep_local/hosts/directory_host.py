"""A host on a machine that allows no namespaces: a process group, with directories for volumes.

Its metadata service listens on a free port of loopback, which AWS_EC2_METADATA_SERVICE_ENDPOINT names; its volumes
appear as links in `<SPOTKEEP_LOCAL_INSTANCE_ROOT>/dev/disk/by-id`. It shares files, users and network with the machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from spotkeep_local.hosts.host import HostEnd, by_id_name, host_environment, instance_environment, own_python
from spotkeep_local.hosts.metadata_service import MetadataService

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotkeep_local.hosts.host import HostSpecification
    from spotkeep_local.hosts.images import Images
    from spotkeep_local.hosts.metadata import InstanceMetadata
    from spotkeep_local.hosts.metadata_service import MetadataFault

_TETHER = Path(__file__).with_name("tether.py")
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
        self._control, theirs = socket.socketpair()
        self._process = _start(specification, theirs, metadata_endpoint=endpoint)
        self.process_id = self._process.pid
        theirs.close()
        threading.Thread(target=self._hear, name=f"host-{specification.instance_id}", daemon=True).start()
        threading.Thread(target=self._wait, name=f"host-{specification.instance_id}-end", daemon=True).start()

    def attach(self, volume_id: str) -> None:
        """See `Host`."""
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            (self._by_id / by_id_name(volume_id)).symlink_to(self._images.path(volume_id))

    def detach(self, volume_id: str, *, force: bool) -> bool:  # noqa: ARG002 - nothing is ever mounted
        """See `Host`. A process that has the directory open goes on writing to it."""
        (self._by_id / by_id_name(volume_id)).unlink(missing_ok=True)
        return True

    def grow(self, volume_id: str) -> None:
        """See `Host`. A directory has room for as much as the machine has."""

    def set_metadata_fault(self, fault: MetadataFault) -> None:
        """See `Host`."""
        self._metadata.fault = fault

    def power_off(self) -> None:
        """See `Host`. What its processes wrote is in the directories, written through or not."""
        self._ending = self._ending or HostEnd.POWER_OFF
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        if not self._ended.wait(_SETTLE_SECONDS):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process_id, signal.SIGKILL)
            self._ended.wait()

    def shut_down(self, *, seconds: float) -> None:
        """See `Host`."""
        self._ending = self._ending or HostEnd.SHUT_DOWN
        with contextlib.suppress(OSError):
            self._control.sendall(json.dumps({"shutdown_seconds": seconds}).encode() + b"\n")
        if not self._ended.wait(seconds + _SETTLE_SECONDS):
            self.power_off()

    def _hear(self) -> None:
        said = b""
        with contextlib.suppress(OSError):
            while data := self._control.recv(4096):
                said += data
                *lines, said = said.split(b"\n")
                for line in lines:
                    self.user_data_exit_code = json.loads(line)["user_data_exit_code"]

    def _wait(self) -> None:
        self._process.wait()
        self._ending = self._ending or HostEnd.FROM_INSIDE
        self._metadata.close()
        self._control.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._ended.set()
        self._on_end(self._ending)


def _start(
    specification: HostSpecification, control: socket.socket, *, metadata_endpoint: str
) -> subprocess.Popen[bytes]:
    folder = specification.folder
    home = folder / "home"
    home.mkdir()
    script = folder / "user-data"
    script.write_text(specification.user_data if specification.user_data.startswith("#!") else "#!/bin/sh\n")
    script.chmod(0o700)
    environment = instance_environment(specification, metadata_endpoint=metadata_endpoint)
    commands = folder / "bin"
    _write_power_commands(commands, flag=folder / SHUTDOWN_FLAG)
    environment |= {
        "PATH": f"{commands}:{environment['PATH']}",
        "HOME": str(home),
        "SPOTKEEP_LOCAL_INSTANCE_ROOT": str(folder / "root"),
    }
    specification.console.touch(mode=0o600)
    with specification.console.open("ab") as console:
        return subprocess.Popen(
            [own_python(), "-I", "-S", str(_TETHER), str(control.fileno()), str(folder / SHUTDOWN_FLAG), str(script)],
            cwd=home,
            env=host_environment(specification, environment),
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            pass_fds=[control.fileno()],
            start_new_session=True,
        )


def _write_power_commands(folder: Path, *, flag: Path) -> None:
    """The machine's own would shut the machine down; these end the instance."""
    folder.mkdir()
    for name in ("shutdown", "poweroff", "halt", "reboot"):
        command = folder / name
        command.write_text(f"#!/bin/sh\nexec touch {shlex.quote(str(flag))}\n")
        command.chmod(0o755)
