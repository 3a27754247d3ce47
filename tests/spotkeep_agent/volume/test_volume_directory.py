"""Volumes as directories: the same seam, where no process is root."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotkeep_agent.errors import DamagedFilesystemError, VolumeError
from spotkeep_agent.volume.actions import MachineVolumes
from spotkeep_agent.volume.machine import MARK, DeviceLinks, DirectoryMachine, link_name


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """An attached volume."""
    directory = tmp_path / "vol-1"
    directory.mkdir()
    (tmp_path / "by-id").mkdir()
    (tmp_path / "by-id" / link_name("vol-1")).symlink_to(directory)
    return directory


@pytest.fixture
def machine(tmp_path: Path) -> DirectoryMachine:
    return DirectoryMachine(mount_point=tmp_path / "ml", devices=DeviceLinks(tmp_path / "by-id"))


def test_it_is_formatted_mounted_and_unmounted(volume: Path, machine: DirectoryMachine) -> None:
    assert machine.inspect("vol-1") == ""
    machine.format("vol-1")
    assert machine.inspect("vol-1") == "directory"
    machine.check("vol-1")
    machine.mount("vol-1")
    (machine.mount_point / "data").write_text("kept")
    assert machine.survey() == MachineVolumes(mounted="vol-1", devices=("vol-1",))
    machine.unmount()
    assert machine.survey() == MachineVolumes(devices=("vol-1",))
    assert (volume / "data").read_text() == "kept"


def test_what_holds_something_is_not_formatted(volume: Path, machine: DirectoryMachine) -> None:
    (volume / "data").write_text("")
    with pytest.raises(VolumeError, match="not empty"):
        machine.format("vol-1")


def test_a_mount_point_that_is_taken_is_an_error(volume: Path, machine: DirectoryMachine) -> None:
    machine.mount_point.mkdir()
    with pytest.raises(VolumeError, match="cannot be linked"):
        machine.mount("vol-1")


def test_damage_is_reported(volume: Path, machine: DirectoryMachine) -> None:
    (volume / MARK).write_text("half")
    with pytest.raises(DamagedFilesystemError):
        machine.check("vol-1")
