"""The volumes of this machine, which are found, mounted and divided with the user. One seam with two implementations.

`BlockDeviceMachine` takes real devices with the machine's own tools blkid, mkfs.ext4, e2fsck and mount. It needs root.
`DirectoryMachine` takes directories for volumes, so that the same protocol runs without root. A host links an attached
volume's directory where a device would be linked. Mounting is a link from the mount point to it. The mark of a file
system is a file in it.

A volume is found by its id, in the links below /dev/disk/by-id, never by a letter. `/dev/nvme*n1` come in any order,
and instance stores are alike. Processes that use a file system are found in /proc.

A mounted volume is the user's that trains, but one folder, which is root's. The volume's own directory is root's too,
and sticky. The user makes and removes files there, and cannot remove or replace the agent's folder.

Sources: "Make an Amazon EBS volume available for use", "Extend the file system" and "Map NVMe disks to volumes", EBS
user guide. blkid(8), e2fsck(8), resize2fs(8). "Ext4 Disk Layout" of the kernel's documentation.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Callable, Protocol

from spotkeep_agent.errors import BusyFilesystemError, DamagedFilesystemError, VolumeError
from spotkeep_agent.volume.actions import MachineVolumes


class VolumeMachine(Protocol):
    """The seam."""

    @property
    def mount_point(self) -> Path:
        """The mount point of the volume."""

    def survey(self) -> MachineVolumes:
        """List mounts and devices, and end the processes of an earlier agent."""

    def inspect(self, volume: str) -> str:
        """Wait for the volume's device. Return the type of its file system, or an empty text without one.

        Raises:
            VolumeError: If the device does not appear, or holds something else, a partition table for example.
        """

    def format(self, volume: str) -> None:
        """Make a file system.

        Raises:
            VolumeError: If there is one already, or it cannot be made.
        """

    def check(self, volume: str) -> None:
        """Check the file system, and make safe repairs.

        Raises:
            DamagedFilesystemError: It needs more.
        """

    def mount(self, volume: str) -> None:
        """Mount it, grown to its volume.

        Raises:
            VolumeError: If it cannot be mounted. Nothing is mounted then.
        """

    def unmount(self) -> None:
        """End the processes on it, flush it, unmount it.

        Raises:
            BusyFilesystemError: It cannot be unmounted.
        """


BY_ID = Path("/dev/disk/by-id")
PREFIX = "nvme-Amazon_Elastic_Block_Store_"
"""On Nitro, the serial number of an EBS volume's device is the volume's id."""

_APPEARS_SECONDS = 120.0
_LINK_POLL_SECONDS = 0.05


def link_name(volume: str) -> str:
    """Return the name of a volume's device below /dev/disk/by-id."""
    return PREFIX + volume.replace("-", "")


def volume_of_link(name: str) -> str | None:
    """Return the volume of such a name, or None for other names and for a device's partitions."""
    digits = name[len(PREFIX) :]
    if not name.startswith(PREFIX) or not digits.startswith("vol") or not digits.isalnum():
        return None
    return "vol-" + digits[3:]


class DeviceLinks:
    """The volumes that are attached to this machine.

    Args:
        folder: The folder in which they are linked by their ids.
        sleep: Waits before the links are read again.
        appears_seconds: The most seconds until an attached volume appears.
    """

    def __init__(
        self,
        folder: Path = BY_ID,
        *,
        sleep: Callable[[float], None] = time.sleep,
        appears_seconds: float = _APPEARS_SECONDS,
    ) -> None:
        self._folder = folder
        self._sleep = sleep
        self._appears_seconds = appears_seconds

    def attached(self) -> dict[str, str]:
        """Return the target of each volume's link, which is a device, or a directory on machines without root."""
        if not self._folder.is_dir():
            return {}
        return {
            volume: os.path.realpath(link)
            for link in sorted(self._folder.iterdir())
            if (volume := volume_of_link(link.name)) is not None and link.exists()
        }

    def wait_for(self, volume: str) -> str:
        """Wait until a volume appears. Return the target of its link.

        Raises:
            VolumeError: If it does not.
        """
        link = self._folder / link_name(volume)
        waited = 0.0
        while not link.exists():
            if waited >= self._appears_seconds:
                raise VolumeError(
                    f"the device of {volume} did not appear as {link}: instance types must be of the Nitro system"
                )
            self._sleep(_LINK_POLL_SECONDS)
            waited += _LINK_POLL_SECONDS
        return os.path.realpath(link)


_END_POLL_SECONDS = 0.05
_PROC = Path("/proc")


def users_of(directory: Path) -> list[int]:
    """List the processes, other than this one, that have a file below a directory open, or work in it."""
    root = os.path.realpath(directory)
    return [pid for pid in _pids() if pid != os.getpid() and any(_is_below(path, root) for path in _paths(pid))]


def end_users_of(directory: Path, *, seconds: float) -> list[int]:
    """Kill the processes that use a directory. Return those that still run after so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        found = users_of(directory)
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found or time.monotonic() >= deadline:
            return found
        time.sleep(_END_POLL_SECONDS)


def _pids() -> Iterator[int]:
    for entry in os.listdir(_PROC):  # noqa: PTH208 - names are all that is needed, of hundreds of entries
        if entry.isdigit():
            yield int(entry)


def _paths(pid: int) -> Iterator[str]:
    base = _PROC / str(pid)
    for link in ("cwd", "root", "exe"):
        with contextlib.suppress(OSError):
            yield os.readlink(base / link)  # noqa: PTH115 - as text
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(base / "fd"):  # noqa: PTH208
            with contextlib.suppress(OSError):
                yield os.readlink(base / "fd" / descriptor)  # noqa: PTH115
    with contextlib.suppress(OSError):
        for line in (base / "maps").read_text(encoding="utf-8", errors="replace").splitlines():
            _, slash, rest = line.partition("/")
            if slash:
                yield "/" + rest


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


_POLL_SECONDS = 0.1
_IN_USE_SECONDS = 20.0
_END_SECONDS = 5.0
_NOTHING_FOUND = 2  # blkid(8)
_REPAIRED = (0, 1, 2)  # e2fsck(8): no errors, errors corrected, corrected and a reboot advised for a root file system
_EXT = ("ext2", "ext3", "ext4")
_SUPERBLOCK_OFFSET, _SUPERBLOCK_BYTES = 1024, 1024
_INCOMPAT_64BIT = 0x80

_logger = logging.getLogger("spotkeep.agent")


class BlockDeviceMachine:
    """Block devices of this machine.

    Args:
        mount_point: The mount point of the volume.
        devices: Those of attached volumes.
    """

    def __init__(self, *, mount_point: Path, devices: DeviceLinks) -> None:
        self._mount_point = mount_point
        self._devices = devices

    @property
    def mount_point(self) -> Path:
        """The mount point of the volume."""
        return self._mount_point

    def survey(self) -> MachineVolumes:
        """List mounts and devices, and end the processes of an earlier agent."""
        devices = self._devices.attached()
        source = self._mounted_device()
        if source is None:
            return MachineVolumes(devices=tuple(devices))
        end_users_of(self._mount_point, seconds=_END_SECONDS)
        mounted = next((volume for volume, device in devices.items() if device == source), "of another device")
        return MachineVolumes(mounted=mounted, devices=tuple(devices))

    def inspect(self, volume: str) -> str:
        """Wait for the volume's device, and read its file system's kind."""
        device = self._devices.wait_for(volume)
        found = _run(["blkid", "-p", "-o", "export", device], allowed=(0, _NOTHING_FOUND))
        if found.returncode == _NOTHING_FOUND:
            return ""
        facts = dict(line.partition("=")[::2] for line in found.stdout.splitlines())
        if facts.get("USAGE") == "filesystem" and facts.get("TYPE"):
            return facts["TYPE"]
        what = (facts.get("PTTYPE") and "a partition table") or facts.get("TYPE") or "something unknown"
        raise VolumeError(
            f"{volume} holds {what}, not a file system: use a volume that as a whole is one file system (ext4, xfs)"
        )

    def format(self, volume: str) -> None:
        """Make an ext4 file system on a device that blkid finds nothing on."""
        if self.inspect(volume):
            raise VolumeError(f"{volume} has a file system already and is not formatted")
        # Its inode tables are made later, in the background: a large volume is ready at once.
        _run(
            ["mkfs.ext4", "-q", "-m", "0", "-L", "spotkeep", "-E", "lazy_itable_init=1", self._devices.wait_for(volume)]
        )

    def check(self, volume: str) -> None:
        """Let e2fsck make its safe repairs. XFS repairs itself at the mount."""
        if self.inspect(volume) not in _EXT:
            return
        _check(self._devices.wait_for(volume))

    def mount(self, volume: str) -> None:
        """Mount it, grown to its volume. ext4 grows before, XFS after."""
        kind, device = self.inspect(volume), self._devices.wait_for(volume)
        if kind in _EXT and _ext_bytes(device) < _device_bytes(device):
            # resize2fs wants a full check first; to grow it while it is mounted would need CAP_SYS_RESOURCE.
            _check(device, "-f")
            _grow(["resize2fs", device], volume)
        self._mount_point.mkdir(parents=True, exist_ok=True)
        _run(["mount", "-o", "noatime,nodev,nosuid", device, str(self._mount_point)])
        # Believe the kernel, not the exit code: what is not mounted would be the root disk.
        if self._mounted_device() != device:
            raise VolumeError(f"{volume} is not mounted on {self._mount_point}, although mount reported no error")
        if kind == "xfs":
            _grow(["xfs_growfs", str(self._mount_point)], volume)

    def unmount(self) -> None:
        """End the processes on it, flush it, unmount it."""
        os.sync()
        for _ in range(3):
            if self._mounted_device() is None:
                return
            left = end_users_of(self._mount_point, seconds=_END_SECONDS)
            done = _run(["umount", str(self._mount_point)], allowed=range(256))
            if done.returncode and left:
                time.sleep(_POLL_SECONDS)
        if self._mounted_device() is not None:
            raise BusyFilesystemError(f"{self._mount_point} cannot be unmounted: {done.stderr.strip()}")

    def _mounted_device(self) -> str | None:
        source = mounted_source(os.path.realpath(self._mount_point))
        return None if source is None else os.path.realpath(source)


def mounted_source(point: str) -> str | None:
    """Return the source that is mounted at a path without links, or None. A source that does not answer is no matter.

    Args:
        point: The path.
    """
    found: str | None = None
    with open("/proc/self/mountinfo", encoding="utf-8") as lines:  # noqa: PTH123
        for line in lines:
            before, _, after = line.partition(" - ")
            if _unescaped(before.split()[4]) == point:
                found = _unescaped(after.split()[1])  # the last one covers the others
    return found


def _check(device: str, *options: str) -> None:
    _wait_until_unused(device)
    done = _run(["e2fsck", "-p", *options, device], allowed=range(256))
    if done.returncode not in _REPAIRED:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise DamagedFilesystemError(
            f"its file system is damaged (e2fsck says {done.returncode}: {' / '.join(said[-3:])}); "
            "look at a copy of it with e2fsck -f"
        )


def _wait_until_unused(device: str) -> None:
    """Wait for other users of a device to end.

    A mount that has just ended stays for a moment in a mount namespace that another program made meanwhile.
    """
    give_up_at = time.monotonic() + _IN_USE_SECONDS
    while _is_used(device):
        if time.monotonic() >= give_up_at:
            raise BusyFilesystemError(f"{device} is used by another program, and cannot be checked")
        time.sleep(_POLL_SECONDS)


def _is_used(device: str) -> bool:
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL))
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise VolumeError(f"{device} cannot be opened: {error.strerror}") from error
        return True
    return False


def _grow(command: Sequence[str], volume: str) -> None:
    try:
        _run(command)
    except VolumeError as error:
        # It is whole, only not as large as it could be.
        _logger.warning("%s was not grown to its volume: %s", volume, error)


def _device_bytes(device: str) -> int:
    with open(device, "rb") as file:  # noqa: PTH123
        return file.seek(0, os.SEEK_END)


def _ext_bytes(device: str) -> int:
    """Read from its superblock how large an ext file system is."""
    with open(device, "rb") as file:  # noqa: PTH123
        file.seek(_SUPERBLOCK_OFFSET)
        raw = file.read(_SUPERBLOCK_BYTES)
    low, log_block_size, incompatible, high = (
        int.from_bytes(raw[offset : offset + 4], "little") for offset in (0x4, 0x18, 0x60, 0x150)
    )
    blocks = low | (high << 32 if incompatible & _INCOMPAT_64BIT else 0)
    return blocks * (1024 << log_block_size)


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def _run(command: Sequence[str], *, allowed: Sequence[int] | range = (0,)) -> subprocess.CompletedProcess[str]:
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    program = shutil.which(command[0], path=path)
    if program is None:
        raise VolumeError(f"{command[0]} is not on this machine; use an image that has it")
    # No person answers a question here.
    done = subprocess.run(
        [program, *command[1:]],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PATH": path, "LC_ALL": "C"},
    )
    if done.returncode not in allowed:
        said = (done.stderr.strip() or done.stdout.strip()).replace("\n", " / ")
        raise VolumeError(f"{' '.join(command)} failed with {done.returncode}: {said}")
    return done


MARK = ".spotkeep-filesystem"
_KIND = "directory"


class DirectoryMachine:
    """Directories of this machine.

    Args:
        mount_point: The path that becomes a link to the volume.
        devices: The directories of attached volumes.
    """

    def __init__(self, *, mount_point: Path, devices: DeviceLinks) -> None:
        self._mount_point = mount_point
        self._devices = devices

    @property
    def mount_point(self) -> Path:
        """The path at which the volume is reached."""
        return self._mount_point

    def survey(self) -> MachineVolumes:
        """See which volume is linked. End the processes that a former agent left running in it."""
        devices = self._devices.attached()
        if not self._mount_point.is_symlink():
            return MachineVolumes(devices=tuple(devices))
        target = os.path.realpath(self._mount_point)
        end_users_of(Path(target), seconds=_END_SECONDS)
        mounted = next((volume for volume, directory in devices.items() if directory == target), "of another host")
        return MachineVolumes(mounted=mounted, devices=tuple(devices))

    def inspect(self, volume: str) -> str:
        """Wait for the directory. See if it has ever had a file system made."""
        return _KIND if (self._directory(volume) / MARK).exists() else ""

    def format(self, volume: str) -> None:
        """Mark an empty directory."""
        directory = self._directory(volume)
        if any(directory.iterdir()):
            raise VolumeError(f"{volume} is not empty and is not formatted")
        (directory / MARK).write_text("ok\n", encoding="utf-8")

    def check(self, volume: str) -> None:
        """Check that the mark is the written one."""
        if (self._directory(volume) / MARK).read_text(encoding="utf-8", errors="replace") != "ok\n":
            raise DamagedFilesystemError(f"its mark {MARK} is damaged")

    def mount(self, volume: str) -> None:
        """Link it."""
        self._mount_point.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._mount_point.symlink_to(self._directory(volume), target_is_directory=True)
        except OSError as error:
            raise VolumeError(f"{volume} cannot be linked to {self._mount_point}: {error}") from error

    def unmount(self) -> None:
        """End the processes that use it, flush it, and remove the link."""
        os.sync()
        left = end_users_of(Path(os.path.realpath(self._mount_point)), seconds=_END_SECONDS)
        if left:
            raise BusyFilesystemError(f"{self._mount_point} is used by the processes {left}")
        self._mount_point.unlink(missing_ok=True)

    def _directory(self, volume: str) -> Path:
        return Path(self._devices.wait_for(volume))


KEPT_NAME = ".spotkeep"
"""The agent's folder on a volume."""
_OWNER_NAME = "owner"
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_STAMP_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SHARED_MODE = 0o1775


def divide_volume(base: Path, *, uid: int, gid: int) -> None:
    """Give a volume to the user that trains, and keep a folder of it. Run as root.

    Without root, there is one user only.

    Files of the user already are passed over. No link is followed, not even one that takes the place of a file
    meanwhile.

    Args:
        base: The mount point of the volume.
        uid: The user's.
        gid: The user's.

    Raises:
        VolumeError: The agent's folder is not root's alone.
        OSError: The volume cannot be read or written.
    """
    kept = base / KEPT_NAME
    if os.geteuid() != 0 or uid == 0:
        kept.mkdir(mode=0o700, exist_ok=True)
        return
    top = os.open(base, _FOLDER_FLAGS)
    try:
        os.fchown(top, 0, gid)
        os.fchmod(top, _SHARED_MODE)
        with contextlib.suppress(FileExistsError):
            os.mkdir(KEPT_NAME, 0o700, dir_fd=top)
        _require_roots(top, kept)
        owner = f"{uid}:{gid}\n".encode()
        stamp = os.open(kept / _OWNER_NAME, _STAMP_FLAGS, 0o600)
        try:
            if os.pread(stamp, len(owner) + 1, 0) != owner:
                _give(top, uid=uid, gid=gid)
                os.ftruncate(stamp, 0)
                os.pwrite(stamp, owner, 0)
                os.fsync(stamp)
        finally:
            os.close(stamp)
    finally:
        os.close(top)


def _require_roots(top: int, kept: Path) -> None:
    found = os.stat(KEPT_NAME, dir_fd=top, follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or found.st_mode & 0o077:
        raise VolumeError(
            f"{kept} is not the agent's own folder: attach the volume to an instance of yours and rename what is there"
        )


def _give(top: int, *, uid: int, gid: int) -> None:
    for folder, folders, names, descriptor in os.fwalk(".", dir_fd=top, onerror=_raise):
        if folder == ".":
            folders.remove(KEPT_NAME)
        for name in (*folders, *names):
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                if (found.st_uid, found.st_gid) != (uid, gid):
                    os.chown(name, uid, gid, dir_fd=descriptor, follow_symlinks=False)


def _raise(error: OSError) -> None:
    raise error
