"""The file systems that the training reads as channels, mounted by the machine's own `mount`.

Each has a folder of the agent's, outside the volume. The channel's folder on the volume is a link to it, which the user
that trains may replace. So root mounts nothing below a folder of that user's, and the volume can be detached while a
file system does not answer.

A mount without an answer stays in the kernel, where no signal ends it. The agent gives it up and does not wait for it.
A client of Lustre that goes without an unmount holds its locks until the servers give it up, and others wait for them.

Sources: "Mounting from an Amazon EC2 instance", "Installing the Lustre client" and "Handling Amazon EC2 Spot Instance
interruptions" (FSx for Lustre user guide). "Recommended NFS mount options" (Amazon EFS user guide). mount(8) and
umount(8).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from spotkeep_agent.as_user.files import UserFiles
from spotkeep_agent.errors import DataRefusedError, SourceUnavailableError
from spotkeep_fleet.instance_job import LUSTRE, NFS, FileSystemSpec

from .machine import mounted_source

MOUNT_SECONDS = 120.0
"""The longest time that a mount may take."""
_UNMOUNT_SECONDS = 10.0
_POLL_SECONDS = 0.1
_ATTEMPTS = 3
_PAUSE_SECONDS = 5.0
_LONGEST_SAID = 400
_NOT_FOUND = 127
_OPTIONS = {
    LUSTRE: "relatime,flock",
    NFS: "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport",
}
_PORTS = {LUSTRE: "988 and 1018 to 1023", NFS: "2049"}
_PACKAGES = {
    LUSTRE: "lustre-client (Amazon Linux 2023: dnf install -y lustre-client), for the kernel that runs",
    NFS: "nfs-utils (Amazon Linux) or nfs-common (Ubuntu)",
}
_NO_CLIENT = r"is not on this machine|unknown filesystem type|bad option|wrong fs type|No such device|modules loaded"
_NO_DIRECTORY = r"No such file or directory"
_DENIED = r"access denied|Permission denied|Operation not permitted"

_logger = logging.getLogger("spotkeep.agent")


class _Done(NamedTuple):
    code: int | None
    said: str


class FileSystems:
    """The file systems of a job on this machine.

    Args:
        folder: The agent's folder for their mount points.
        environment: The agent's, whose PATH has `mount` and `umount`.
        cancelled: Set it to give a mount up.
        mount_seconds: The longest time that a mount may take.
    """

    def __init__(
        self,
        folder: Path,
        *,
        environment: Mapping[str, str],
        cancelled: threading.Event,
        mount_seconds: float = MOUNT_SECONDS,
    ) -> None:
        path = f"{environment.get('PATH', os.defpath)}:/usr/sbin:/sbin"
        self._environment = {**environment, "PATH": path, "LC_ALL": "C"}
        self._folder = folder
        self._cancelled = cancelled
        self._mount_seconds = mount_seconds

    def mount(self, file_systems: Mapping[str, FileSystemSpec]) -> None:
        """Mount file systems.

        Args:
            file_systems: The file systems by channel name.

        Raises:
            DataRefusedError: No instance of this deployment can mount one.
            SourceUnavailableError: This instance cannot mount one now, or it is cancelled.
            OSError: The root disk cannot be written.
        """
        for name, spec in file_systems.items():
            point = self.point(name)
            # An agent that crashed has left it.
            if not _is_mounted(point):
                point.mkdir(parents=True, exist_ok=True)
                self._mount(name, spec, point)

    def show(self, names: Iterable[str], *, files: UserFiles) -> None:
        """Make the folders of channels lead to their file systems.

        Args:
            names: The names of the channels.
            files: The files on the volume, with the rights of the user that trains.

        Raises:
            OSError: The volume cannot be written.
        """
        for name in names:
            channel = f"input/data/{name}"
            files.make_folder("input/data")
            files.remove(channel)
            files.link(channel, str(self.point(name)))

    def hide(self, names: Iterable[str], *, files: UserFiles) -> None:
        """Remove links to file systems that an earlier job of the run had in the place of these channels.

        Args:
            names: The names of the channels.
            files: The files on the volume, with the rights of the user that trains.

        Raises:
            OSError: The volume cannot be written.
        """
        for name in names:
            channel = f"input/data/{name}"
            target = files.link_target(channel)
            if target is not None and Path(target).parent == self._folder:
                files.remove(channel)

    def unmount(self) -> None:
        """Unmount all of them. One that does not answer is left to the kernel."""
        for point in sorted(self._folder.iterdir()) if self._folder.is_dir() else ():
            for command in (["umount", str(point)], ["umount", "--lazy", str(point)]):
                if not _is_mounted(point):
                    break
                done = self._run(command, seconds=_UNMOUNT_SECONDS, cancelled=threading.Event())
                if done.code != 0:
                    _logger.warning("%s: %s", " ".join(command), done.said)

    def point(self, name: str) -> Path:
        """Return the mount point of a channel's file system."""
        return self._folder / name

    def _mount(self, name: str, spec: FileSystemSpec, point: Path) -> None:
        options = f"{_OPTIONS[spec.kind]},nodev,nosuid{'' if spec.writable else ',ro'}"
        command = ["mount", "-t", spec.kind, "-o", options, spec.source, str(point)]
        what = f"channel {name} cannot be mounted ({spec.source})"
        done = _Done(None, "")
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._cancelled.wait(_PAUSE_SECONDS)
            done = self._run(command, seconds=self._mount_seconds, cancelled=self._cancelled)
            # Believe the kernel, not the exit code: a file on what is not mounted would be on the root disk.
            if done.code == 0 and _is_mounted(point):
                return
            if self._cancelled.is_set():
                raise SourceUnavailableError(f"{what}: it was broken off")
            if done.code is None:
                raise SourceUnavailableError(
                    f"{what}: mount took more than {self._mount_seconds:.0f} s. A security group, a network ACL or a "
                    f"firewall may keep TCP closed at port {_PORTS[spec.kind]}"
                )
            for pattern, fix in _for_good(spec.kind):
                if re.search(pattern, done.said, re.IGNORECASE):
                    raise DataRefusedError(f"{what}: {done.said}. {fix}")
        raise SourceUnavailableError(f"{what}, {_ATTEMPTS} times: {done.said or 'nothing is mounted'}")

    def _run(self, command: Sequence[str], *, seconds: float, cancelled: threading.Event) -> _Done:
        """Run a command. Its code is None where it takes too long or is cancelled."""
        program = shutil.which(command[0], path=self._environment["PATH"])
        if program is None:
            return _Done(_NOT_FOUND, f"{command[0]} is not on this machine")
        process = subprocess.Popen(
            [program, *command[1:]],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        ends = time.monotonic() + seconds
        while True:
            try:
                said, _ = process.communicate(timeout=_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                if not cancelled.is_set() and time.monotonic() < ends:
                    continue
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                # In the kernel it does not see the signal. Then it is left.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_SECONDS)
                process.stdout.close()
                return _Done(None, f"no answer after {seconds:.0f} s")
            lines = [line.strip() for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
            return _Done(process.returncode, " / ".join(lines)[:_LONGEST_SAID].rstrip("."))


def _is_mounted(point: Path) -> bool:
    """Return True where a file system is mounted. Its folder is not asked, as its server may not answer."""
    path = f"{os.path.realpath(point.parent)}/{point.name}"
    if sys.platform == "linux" and mounted_source(path) is not None:
        return True
    # The local AWS has hosts without mounts, whose `mount` makes a link.
    return point.is_symlink()


def _for_good(kind: str) -> tuple[tuple[str, str], ...]:
    """Return messages of `mount` that the next instance would get as well, each with a remedy."""
    package = _PACKAGES[kind]
    return (
        (_NO_CLIENT, f"Deploy with an AMI that has the package {package} (the setting instance_ami)"),
        (_NO_DIRECTORY, "Make the directory in the file system, or correct path in the job file"),
        (
            _DENIED,
            "Let the policy of the file system allow clients without TLS and IAM, or correct its root squash settings",
        ),
    )
