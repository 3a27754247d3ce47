"""Real devices: files as loop devices, linked by their ids as a Nitro instance links EBS volumes."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from spotkeep_agent.errors import BusyFilesystemError, DamagedFilesystemError, VolumeError
from spotkeep_agent.volume import machine as machine_module
from spotkeep_agent.volume.actions import MachineVolumes
from spotkeep_agent.volume.machine import BlockDeviceMachine, DeviceLinks, link_name

MIB = 2**20


def _why_not() -> str | None:
    if sys.platform != "linux" or os.geteuid() != 0:
        return "loop devices and mounts need root on Linux"
    if any(shutil.which(tool) is None for tool in ("losetup", "mkfs.ext4", "mount", "blkid", "e2fsck")):
        return "this machine lacks losetup, mkfs.ext4, mount, blkid or e2fsck"
    found = subprocess.run(["losetup", "--find"], capture_output=True, check=False)
    return None if found.returncode == 0 else "this machine gives out no loop devices"


WHY_NOT = _why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))


@pytest.fixture
def attach(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Makes a volume's device appear, as an attachment does, or grow, where it is there. Gives the file behind it."""
    by_id = tmp_path / "by-id"
    by_id.mkdir()
    devices: dict[str, str] = {}

    def attach(volume: str, *, size: int = 32 * MIB) -> Path:
        image = tmp_path / volume
        with image.open("ab") as file:
            file.truncate(max(size, image.stat().st_size))
        if volume in devices:
            subprocess.run(["losetup", "--set-capacity", devices[volume]], check=True)
            return image
        made = subprocess.run(["losetup", "--find", "--show", image], capture_output=True, text=True, check=True)
        devices[volume] = made.stdout.strip()
        (by_id / link_name(volume)).symlink_to(devices[volume])
        return image

    yield attach
    subprocess.run(["umount", "-q", tmp_path / "ml"], check=False)
    for device in devices.values():
        subprocess.run(["losetup", "--detach", device], check=False, capture_output=True)


@pytest.fixture
def machine(tmp_path: Path) -> BlockDeviceMachine:
    return BlockDeviceMachine(mount_point=tmp_path / "ml", devices=DeviceLinks(tmp_path / "by-id", appears_seconds=0.2))


def test_a_new_volume_is_formatted_mounted_and_unmounted(
    attach: Callable[..., Path], machine: BlockDeviceMachine
) -> None:
    attach("vol-1")
    assert machine.inspect("vol-1") == ""
    machine.format("vol-1")
    assert machine.inspect("vol-1") == "ext4"
    machine.check("vol-1")
    machine.mount("vol-1")
    (machine.mount_point / "data").write_text("kept")
    assert machine.survey() == MachineVolumes(mounted="vol-1", devices=("vol-1",))
    machine.unmount()
    assert machine.survey() == MachineVolumes(mounted=None, devices=("vol-1",))
    machine.mount("vol-1")
    assert (machine.mount_point / "data").read_text() == "kept"


def test_what_has_a_file_system_is_never_formatted(attach: Callable[..., Path], machine: BlockDeviceMachine) -> None:
    attach("vol-1")
    machine.format("vol-1")
    with pytest.raises(VolumeError, match="has a file system already"):
        machine.format("vol-1")


def test_a_partitioned_volume_is_refused(attach: Callable[..., Path], machine: BlockDeviceMachine) -> None:
    image = attach("vol-1")
    with image.open("r+b") as file:  # the signature of a partition table, and one partition
        file.seek(446)
        file.write(bytes([0, 0, 2, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 0x40, 0, 0]))
        file.seek(510)
        file.write(b"\x55\xaa")
    with pytest.raises(VolumeError, match="a partition table"):
        machine.inspect("vol-1")


def test_a_mount_that_fails_is_an_error_and_the_root_disk_is_not_used(
    attach: Callable[..., Path], machine: BlockDeviceMachine
) -> None:
    """The naive `mount || true` trains on the root disk, and loses it with the instance (trap 5)."""
    image = attach("vol-1")
    machine.format("vol-1")
    with image.open("r+b") as file:
        file.seek(1024)
        file.write(bytes(1024))  # the superblock
        file.seek(0)
    attach("vol-2")
    with pytest.raises(VolumeError):
        machine.mount("vol-2")
    assert machine.survey().mounted is None


def test_a_damaged_file_system_is_reported(attach: Callable[..., Path], machine: BlockDeviceMachine) -> None:
    image = attach("vol-1", size=64 * MIB)
    machine.format("vol-1")
    machine.mount("vol-1")
    for number in range(200):
        (machine.mount_point / f"file-{number}").write_bytes(bytes(5000))
    machine.unmount()
    with image.open("r+b") as file:
        file.seek(8192)
        file.write(os.urandom(3 * MIB))
        os.fsync(file.fileno())
    with pytest.raises(DamagedFilesystemError, match="e2fsck"):
        machine.check("vol-1")


@pytest.mark.parametrize(("before_mib", "after_mib"), [(32, 128), (64, 640)])
def test_the_file_system_grows_with_its_volume(
    attach: Callable[..., Path], machine: BlockDeviceMachine, before_mib: int, after_mib: int
) -> None:
    """Before it is mounted: root in a container may lack what growing a mounted one takes."""
    attach("vol-1", size=before_mib * MIB)
    machine.format("vol-1")
    machine.mount("vol-1")
    (machine.mount_point / "data").write_text("kept")
    before = shutil.disk_usage(machine.mount_point).total
    machine.unmount()
    attach("vol-1", size=after_mib * MIB)
    machine.check("vol-1")
    machine.mount("vol-1")
    assert shutil.disk_usage(machine.mount_point).total > before + (after_mib - before_mib) * MIB * 0.8
    assert (machine.mount_point / "data").read_text() == "kept"


def test_a_file_system_that_fits_its_volume_is_not_checked_again(
    attach: Callable[..., Path], machine: BlockDeviceMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full check of a large volume takes minutes, which each recovery would pay."""
    attach("vol-1")
    machine.format("vol-1")
    ran: list[str] = []
    run = machine_module._run
    monkeypatch.setattr(machine_module, "_run", lambda command, **how: ran.append(command[0]) or run(command, **how))
    machine.mount("vol-1")
    assert ran == ["blkid", "mount"]


def test_what_cannot_be_grown_is_mounted_as_it_is(
    attach: Callable[..., Path], machine: BlockDeviceMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach("vol-1")
    machine.format("vol-1")
    attach("vol-1", size=128 * MIB)
    run = machine_module._run

    def without_resize(command: Sequence[str], **how: Any) -> Any:
        if command[0] == "resize2fs":
            raise VolumeError("resize2fs is not on this machine; use an image that has it")
        return run(command, **how)

    monkeypatch.setattr(machine_module, "_run", without_resize)
    machine.mount("vol-1")
    assert machine.survey().mounted == "vol-1"


def test_a_process_that_uses_the_volume_is_ended_before_it_is_unmounted(
    attach: Callable[..., Path], machine: BlockDeviceMachine
) -> None:
    attach("vol-1")
    machine.format("vol-1")
    machine.mount("vol-1")
    process = subprocess.Popen(["sleep", "60"], cwd=machine.mount_point)
    try:
        machine.unmount()
        assert machine.survey().mounted is None
        assert process.wait(30) == -9
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()


def test_a_former_agents_training_is_ended_when_the_next_one_inspects(
    attach: Callable[..., Path], machine: BlockDeviceMachine
) -> None:
    attach("vol-1")
    machine.format("vol-1")
    machine.mount("vol-1")
    process = subprocess.Popen(["sleep", "60"], cwd=machine.mount_point)
    assert machine.survey().mounted == "vol-1"
    assert process.wait(30) == -9


def test_a_file_system_that_another_program_uses_is_waited_for_and_is_not_damaged(
    attach: Callable[..., Path], machine: BlockDeviceMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach("vol-1")
    machine.format("vol-1")
    device = os.open(tmp_path / "by-id" / link_name("vol-1"), os.O_RDONLY | os.O_EXCL)
    let_go = threading.Timer(0.5, os.close, [device])
    let_go.start()
    machine.check("vol-1")
    let_go.join()

    device = os.open(tmp_path / "by-id" / link_name("vol-1"), os.O_RDONLY | os.O_EXCL)
    monkeypatch.setattr(machine_module, "_IN_USE_SECONDS", 0.2)
    with pytest.raises(BusyFilesystemError, match="used by another program"):
        machine.check("vol-1")
    os.close(device)
