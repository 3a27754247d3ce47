"""Each machine has a copy of the source, and of the one before nothing but the checkpoint folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spotkeep_rehearsal.folders import (
    LARGEST_COPY_BYTES,
    CheckpointPlace,
    Disk,
    copy_plan,
    detect_place,
    is_log,
    remove_tree,
)


def files_in(folder: Path, *names: str, size: int = 1) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x" * size)
    return folder


def test_source_is_copied_and_data_are_linked_by_size_and_kind(tmp_path: Path) -> None:
    files_in(tmp_path, "train.py", "small.npy", "old.pt", "__pycache__/train.pyc", ".venv/pyvenv.cfg", ".git/HEAD")
    files_in(tmp_path, "large.npy", "large.pt", "large.py", size=LARGEST_COPY_BYTES + 1)
    files_in(tmp_path, *[f"images/{number}.jpg" for number in range(201)])
    files_in(tmp_path, "few/1.jpg")
    plan = dict(copy_plan(tmp_path, leave_out=lambda name: name == "old.pt"))
    assert plan == {
        "train.py": "copy",
        "small.npy": "copy",
        "large.npy": "link",
        "large.pt": "copy",
        "large.py": "copy",
        ".venv": "link",
        ".git": "link",
        "few/1.jpg": "copy",
        **{f"images/{number}.jpg": "link" for number in range(201)},
    }


def test_a_folder_of_very_many_data_is_linked_as_a_whole_and_an_empty_one_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files_in(tmp_path, *[f"images/{number}.jpg" for number in range(301)])
    monkeypatch.setattr("spotkeep_rehearsal.folders._MOST_LINKED_FILES", 300)
    (tmp_path / "empty").mkdir()
    assert dict(copy_plan(tmp_path, leave_out=lambda name: False)) == {"images": "link", "empty": "folder"}


def test_data_are_copied_once_and_those_that_a_command_overwrites_are_its_own(tmp_path: Path) -> None:
    folder, scratch = files_in(tmp_path / "project", "large.npy", size=LARGEST_COPY_BYTES + 1), tmp_path / "scratch"
    scratch.mkdir()
    disk = Disk(folder, scratch=scratch, isolated=False)
    disk.fresh()
    assert (disk.root / "large.npy").resolve() == scratch / "data" / "large.npy"
    (disk.root / "large.npy").write_bytes(b"changed")
    for _ in range(2):
        disk.fresh()
        assert (disk.root / "large.npy").read_bytes() == (folder / "large.npy").read_bytes()
        assert not (disk.root / "large.npy").is_symlink()
    assert disk.checkpoint_files() == {}


def test_data_without_space_for_a_copy_are_linked_and_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spotkeep_rehearsal.folders._MOST_DATA_BYTES", 0)
    folder, scratch = files_in(tmp_path / "project", "large.npy", size=LARGEST_COPY_BYTES + 1), tmp_path / "scratch"
    scratch.mkdir()
    disk = Disk(folder, scratch=scratch, isolated=False)
    disk.fresh()
    before = disk.watched_files()
    (disk.root / "large.npy").write_bytes(b"changed")
    after = disk.watched_files()
    assert {name for name in before if before[name] != after[name]} == {str(folder / "large.npy")}


@pytest.mark.parametrize("isolated", [False, True])
def test_a_new_machine_has_the_source_and_the_checkpoints_and_nothing_else(tmp_path: Path, isolated: bool) -> None:
    folder, scratch = files_in(tmp_path / "project", "train.py"), tmp_path / "scratch"
    scratch.mkdir()
    disk = Disk(folder, scratch=scratch, isolated=isolated)
    disk.place = CheckpointPlace(inside="ckpt")
    disk.fresh()
    files_in(disk.root, "ckpt/1/model.pt", "log.csv", "train.py", size=7)
    assert set(disk.checkpoint_files()) == {"1/model.pt"}
    disk.fresh(disk.take_checkpoints())
    assert set(disk.checkpoint_files()) == {"1/model.pt"}
    assert not (disk.root / "log.csv").exists()
    found = disk.keep_as("kept")
    assert {name: file.is_checkpoint for name, file in found.items()} == {"ckpt/1/model.pt": True}
    assert (folder / "train.py").stat().st_size == 1
    remove_tree(scratch)
    assert not scratch.exists()


@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize(("there", "inside"), [((), "out/ckpt"), (("ckpt/old.pt",), "ckpt")])
def test_the_named_folder_is_there_and_empty_when_the_command_begins(
    tmp_path: Path, isolated: bool, there: tuple[str, ...], inside: str
) -> None:
    folder, scratch = files_in(tmp_path / "project", "train.py", *there), tmp_path / "scratch"
    scratch.mkdir()
    disk = Disk(folder, scratch=scratch, isolated=isolated)
    disk.place = CheckpointPlace(inside=inside)
    disk.fresh()
    words, environment, directory = disk.launch([sys.executable, "-c", f"import os; print(os.listdir({inside!r}))"], {})
    shown = subprocess.run(words, env=environment, cwd=directory, capture_output=True, text=True, check=False)
    assert shown.stdout == "[]\n", shown.stderr
    assert not (folder / "out").exists()
    remove_tree(scratch)


def test_the_folder_of_checkpoints_is_the_one_that_is_written_while_it_trains(tmp_path: Path) -> None:
    writes = [(float(number), f"runs/a/ckpt-{number}.pt") for number in range(9)] + [(9.9, "final/model.bin")]
    names = [*dict.fromkeys(name for _, name in writes), "runs/log.csv", "metrics.json"]
    assert detect_place(names, writes, seconds=10, folder=tmp_path) == CheckpointPlace(inside="runs", was_seen=True)


def test_other_folders_that_are_written_are_named_and_logs_are_the_last_resort(tmp_path: Path) -> None:
    writes = [(float(number), name) for number in range(9) for name in ("a/m.pt", "b/o.pt", "b/o.pt", "log.json")]
    names = ["a/m.pt", "b/o.pt", "c/end.pt", "log.json"]
    found = detect_place(names, writes, seconds=10, folder=tmp_path)
    assert found == CheckpointPlace(inside="b", was_seen=True, others=("a/",))
    logs = [(1.0, "log.json"), (2.0, "log.json")]
    assert detect_place(["log.json"], logs, seconds=10, folder=tmp_path) is None
    found = detect_place(["log.json"], logs, seconds=10, folder=tmp_path, of_logs=True)
    assert found is not None
    assert (found.names, found.is_of_logs) == (frozenset({"log.json"}), True)


def test_checkpoints_that_are_removed_at_the_end_are_found_by_their_writes(tmp_path: Path) -> None:
    writes = [(float(number), "ckpt/newest.pt") for number in range(9)] + [(9.9, "model.pt")]
    found = detect_place(["model.pt"], writes, seconds=10, folder=tmp_path)
    assert found == CheckpointPlace(inside="ckpt", was_seen=True)


def test_checkpoints_beside_the_source_are_known_by_their_names(tmp_path: Path) -> None:
    files_in(tmp_path, "train.py")
    found = detect_place(["ckpt-1.pt", "ckpt-2.pt", "log.txt"], [(1.0, "ckpt-1.pt")], seconds=10, folder=tmp_path)
    assert found is not None
    assert found.names == frozenset({"ckpt-#.pt"})
    assert found.holds("ckpt-17.pt")
    assert not found.holds("train.py")


def test_a_folder_that_holds_source_is_no_checkpoint_folder(tmp_path: Path) -> None:
    files_in(tmp_path, "src/train.py")
    found = detect_place(["src/out/a.pt"], [(1.0, "src/out/a.pt")], seconds=10, folder=tmp_path)
    assert found == CheckpointPlace(inside="src/out", was_seen=True)
    assert detect_place(["log.csv"], [], seconds=10, folder=tmp_path) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("out/model.json", False),
        ("lightgbm-003.txt", False),
        ("state.json", False),
        ("step-8/manifest.json", False),
        ("model/1/saved_model.pb", True),
        ("model/1/variables/variables.data-00000-of-00001", False),
        ("checkpoint-5/trainer_state.json", True),
        ("model_config.json", True),
        ("runs/events.out.tfevents.17.host.3", True),
        ("log.csv", True),
        ("model.pt", False),
    ],
)
def test_logs_are_told_from_what_a_training_needs(name: str, expected: bool) -> None:
    assert is_log(name) is expected
