"""Volumes are found by their ids, whatever letters their devices got."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotkeep_agent.errors import DamagedFilesystemError, VolumeError
from spotkeep_agent.volume.actions import MachineVolumes
from spotkeep_agent.volume.machine import MARK, DeviceLinks, DirectoryMachine, link_name, volume_of_link


def test_the_link_of_a_volume_names_it() -> None:
    assert link_name("vol-0123456789abcdef0") == "nvme-Amazon_Elastic_Block_Store_vol0123456789abcdef0"
    assert volume_of_link(link_name("vol-0123456789abcdef0")) == "vol-0123456789abcdef0"


@pytest.mark.parametrize(
    "name",
    [
        "nvme-Amazon_EC2_NVMe_Instance_Storage_AWS22CE0DB98C9A6B4D7",
        "nvme-Amazon_Elastic_Block_Store_vol0123-part1",
        "nvme-Amazon_Elastic_Block_Store_vol0123_1-ns-1",
        "nvme-Amazon_Elastic_Block_Store_",
    ],
)
def test_an_instance_store_a_namespace_or_a_partition_is_no_volume(name: str) -> None:
    assert volume_of_link(name) is None


def test_what_is_attached_is_found_by_its_id_and_not_by_its_letter(tmp_path: Path) -> None:
    """Devices come in any order: the second volume may be nvme1n1, and an instance store as well."""
    for name in ("nvme1n1", "nvme2n1", "nvme3n1"):
        (tmp_path / name).touch()
    links = tmp_path / "by-id"
    links.mkdir()
    (links / link_name("vol-b")).symlink_to(tmp_path / "nvme1n1")
    (links / link_name("vol-a")).symlink_to(tmp_path / "nvme3n1")
    (links / "nvme-Amazon_EC2_NVMe_Instance_Storage_AWS1").symlink_to(tmp_path / "nvme2n1")
    (links / link_name("vol-c")).symlink_to(tmp_path / "gone")
    found = DeviceLinks(links)
    assert found.attached() == {"vol-a": str(tmp_path / "nvme3n1"), "vol-b": str(tmp_path / "nvme1n1")}
    assert found.wait_for("vol-a") == str(tmp_path / "nvme3n1")


def test_nothing_is_attached_where_nothing_is_linked(tmp_path: Path) -> None:
    assert DeviceLinks(tmp_path / "by-id").attached() == {}


def test_a_device_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "nvme1n1").touch()
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            (tmp_path / link_name("vol-1")).symlink_to(tmp_path / "nvme1n1")

    assert DeviceLinks(tmp_path, sleep=sleep).wait_for("vol-1") == str(tmp_path / "nvme1n1")


def test_a_device_that_does_not_appear_ends_the_wait(tmp_path: Path) -> None:
    with pytest.raises(VolumeError, match="did not appear"):
        DeviceLinks(tmp_path, sleep=lambda seconds: None).wait_for("vol-9")


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
