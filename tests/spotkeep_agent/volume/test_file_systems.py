"""The mounts of file systems by programs that stand for `mount` and `umount`, in good and in bad order."""

from __future__ import annotations

import os
import shlex
import threading
import time
from pathlib import Path

import pytest

from spotkeep_agent.as_user.files import UserFiles
from spotkeep_agent.errors import DataRefusedError, SourceUnavailableError
from spotkeep_agent.volume import file_systems
from spotkeep_agent.volume.file_systems import FileSystems
from spotkeep_fleet.instance_job import LUSTRE, NFS, FileSystemSpec

DNS = "fs-0123456789abcdef0.fsx.us-east-1.amazonaws.com"
TRAIN = FileSystemSpec(LUSTRE, f"{DNS}@tcp:/abcdefgh/cifar10")
SHARED = FileSystemSpec(NFS, "fs-0fedcba9876543210.efs.us-east-1.amazonaws.com:/", writable=True)


class Machine:
    """A machine whose `mount` writes its words down, and makes a link to a folder of data, or does something else."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.data, self.volume, self._said = folder / "data", folder / "volume", folder / "said"
        self._bin = folder / "bin"
        for each in (self.data, self.volume, self._bin):
            each.mkdir()
        (self.data / "rows.csv").write_text("1\n")
        self.cancelled = threading.Event()
        self.files = UserFiles(self.volume)
        self.program("mount", 'rmdir "$6" && ln -s {data} "$6"')
        self.program("umount", 'for last; do :; done; rm "$last" && mkdir "$last"')
        monkeypatch.setattr(file_systems, "_PAUSE_SECONDS", 0.0)
        monkeypatch.setattr(file_systems, "_UNMOUNT_SECONDS", 0.3)

    def program(self, name: str, text: str) -> None:
        program = self._bin / name
        words = shlex.quote(str(self._said))
        does = text.format(data=shlex.quote(str(self.data)), folder=shlex.quote(str(self.folder)))
        program.write_text(f'#!/bin/sh\necho "{name} $*" >>{words}\n{does}\n')
        program.chmod(0o755)

    def mounts(self, *, mount_seconds: float = 30.0, path: str | None = None) -> FileSystems:
        path = f"{self._bin}{os.pathsep}{os.defpath}" if path is None else path
        point = self.folder / "mnt/spotkeep"
        return FileSystems(point, environment={"PATH": path}, cancelled=self.cancelled, mount_seconds=mount_seconds)

    @property
    def said(self) -> list[str]:
        return self._said.read_text().splitlines() if self._said.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_both_kinds_are_mounted_once_shown_as_channels_and_unmounted(machine: Machine) -> None:
    (machine.volume / "input/data/train").mkdir(parents=True)
    mounts, wanted = machine.mounts(), {"train": TRAIN, "shared": SHARED}
    mounts.mount(wanted)
    mounts.show(wanted, files=machine.files)
    point = machine.folder / "mnt/spotkeep"
    lustre, nfs = machine.said
    assert lustre == f"mount -t lustre -o relatime,flock,nodev,nosuid,ro {TRAIN.source} {point}/train"
    assert nfs == (
        "mount -t nfs4 -o nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport,nodev,nosuid "
        f"{SHARED.source} {point}/shared"
    )
    for name in wanted:
        assert (machine.volume / "input/data" / name / "rows.csv").read_text() == "1\n"
    machine.mounts().mount(wanted)  # The agent that follows one that crashed.
    assert len(machine.said) == 2
    mounts.unmount()
    assert machine.said[2:] == [f"umount {point}/shared", f"umount {point}/train"]
    assert (machine.data / "rows.csv").exists()
    mounts.unmount()
    assert len(machine.said) == 4


@pytest.mark.parametrize(
    ("kind", "said", "words"),
    [
        (TRAIN, "mount: /mnt/spotkeep/train: unknown filesystem type 'lustre'.", "the package lustre-client"),
        (TRAIN, "mount.lustre: mount failed: No such device\nAre the lustre modules loaded?", "instance_ami"),
        (SHARED, "mount: bad option; you might need a /sbin/mount.<type> helper program.", "the package nfs-utils"),
        (TRAIN, "mount.lustre: failed: No such file or directory\nIs the MGS specification correct?", "correct path"),
        (SHARED, "mount.nfs4: access denied by server while mounting", "the policy of the file system"),
    ],
)
def test_what_no_instance_can_mount_is_a_fault_of_the_input(
    machine: Machine, kind: FileSystemSpec, said: str, words: str
) -> None:
    machine.program("mount", f"printf %s {shlex.quote(said)} >&2; exit 32")
    with pytest.raises(DataRefusedError) as refused:
        machine.mounts().mount({"train": kind})
    assert f"channel train cannot be mounted ({kind.source}): " in str(refused.value)
    assert said.splitlines()[0].rstrip(".") in str(refused.value)
    assert words in str(refused.value)
    assert len(machine.said) == 1


def test_a_machine_without_mount_is_named_with_the_image(machine: Machine) -> None:
    with pytest.raises(DataRefusedError, match=r"mount is not on this machine.*instance_ami"):
        machine.mounts(path=str(machine.volume)).mount({"train": TRAIN})


def test_another_failure_is_tried_again_and_then_left_to_the_next_instance(machine: Machine) -> None:
    machine.program("mount", "echo 'mount.nfs4: Failed to resolve server' >&2; exit 32")
    with pytest.raises(SourceUnavailableError, match=r"3 times: mount\.nfs4: Failed to resolve server"):
        machine.mounts().mount({"train": SHARED})
    machine.program(
        "mount", '[ -e {folder}/tried ] || {{ touch {folder}/tried; exit 32; }}; rmdir "$6"; ln -s {data} "$6"'
    )
    machine.mounts().mount({"train": SHARED})


def test_a_mount_that_reports_no_error_and_mounts_nothing_is_a_failure(machine: Machine) -> None:
    machine.program("mount", "exit 0")
    with pytest.raises(SourceUnavailableError, match="nothing is mounted"):
        machine.mounts().mount({"train": TRAIN})


def test_a_mount_without_an_answer_is_given_up(machine: Machine) -> None:
    # Nothing of it answers to a signal that can be caught, and its output stays open.
    machine.program("mount", "trap '' TERM; sleep 60")
    with pytest.raises(SourceUnavailableError, match=r"took more than 0 s.*TCP closed at port 988 and 1018 to 1023"):
        machine.mounts(mount_seconds=0.2).mount({"train": TRAIN})
    assert len(machine.said) == 1


def test_a_notice_breaks_a_mount_off(machine: Machine) -> None:
    machine.program("mount", "sleep 60")
    began = time.monotonic()
    threading.Timer(0.2, machine.cancelled.set).start()
    with pytest.raises(SourceUnavailableError, match="broken off"):
        machine.mounts(mount_seconds=3600.0).mount({"train": TRAIN})
    assert time.monotonic() - began < 60.0


def test_an_unmount_that_hangs_is_followed_by_one_that_lets_go(machine: Machine) -> None:
    mounts = machine.mounts()
    mounts.mount({"train": TRAIN})
    machine.program("umount", 'case "$1" in --lazy) rm "$2" && mkdir "$2";; *) sleep 60;; esac')
    mounts.unmount()
    assert [each.split()[:2] for each in machine.said[-1:]] == [["umount", "--lazy"]]
    assert not (machine.folder / "mnt/spotkeep/train").is_symlink()
