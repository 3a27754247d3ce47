"""What a hard kill leaves in ministack's files is put right before the next start."""

import json
from pathlib import Path

import pytest

from spotkeep_local import crash_repair


@pytest.fixture
def services(tmp_path: Path) -> Path:
    path = tmp_path / "services"
    (path / "lambda-blobs").mkdir(parents=True)
    return path


@pytest.fixture
def objects(tmp_path: Path) -> Path:
    path = tmp_path / "objects"
    (path / "000000000000" / "bucket" / "runs").mkdir(parents=True)
    return path


def test_an_object_that_was_being_written_does_not_come_back(services: Path, objects: Path) -> None:
    folder = objects / "000000000000" / "bucket" / "runs"
    for name in ("whole", "whole.meta.json", "half.tmp", "half.meta.json.tmp", "mine.tmp", "mine.tmp.meta.json"):
        (folder / name).touch()
    crash_repair.repair(services=services, objects=objects)
    assert sorted(path.name for path in folder.iterdir()) == [
        "mine.tmp",
        "mine.tmp.meta.json",
        "whole",
        "whole.meta.json",
    ]


def test_code_that_the_state_on_disk_names_survives_its_removal(services: Path, objects: Path) -> None:
    code = services / "lambda-blobs"
    (code / "old.zip").write_bytes(b"old")
    crash_repair.keep_function_code(services)
    # ministack replaces the function's code, and is killed before it has written the state that names it.
    (code / "old.zip").unlink()
    (code / "new.zip").write_bytes(b"new")
    crash_repair.repair(services=services, objects=objects)
    assert {path.name: path.read_bytes() for path in code.iterdir()} == {"old.zip": b"old", "new.zip": b"new"}


def test_code_that_no_state_names_any_more_is_let_go(services: Path, objects: Path) -> None:
    code = services / "lambda-blobs"
    (code / "old.zip").write_bytes(b"old")
    crash_repair.keep_function_code(services)
    (code / "old.zip").unlink()
    crash_repair.keep_function_code(services)
    crash_repair.repair(services=services, objects=objects)
    assert list(code.iterdir()) == []


@pytest.mark.parametrize(
    ("found", "settled"),
    [
        ("CREATE_IN_PROGRESS", "ROLLBACK_FAILED"),
        ("UPDATE_IN_PROGRESS", "UPDATE_ROLLBACK_COMPLETE"),
        ("DELETE_IN_PROGRESS", "DELETE_FAILED"),
        ("CREATE_COMPLETE", "CREATE_COMPLETE"),
        ("REVIEW_IN_PROGRESS", "REVIEW_IN_PROGRESS"),
    ],
)
def test_nobody_waits_for_a_stack_that_nobody_works_on(services: Path, objects: Path, found: str, settled: str) -> None:
    path = services / "cloudformation.json"
    stacks = {"data": {"key": {"StackName": "S", "StackStatus": found}}}
    path.write_text(json.dumps({"payload": {"stacks": stacks}}))
    crash_repair.repair(services=services, objects=objects)
    repaired = json.loads(path.read_text())["payload"]["stacks"]["data"]["key"]
    assert repaired["StackStatus"] == settled
    assert [path.name for path in services.glob("cloudformation*")] == ["cloudformation.json"]


def test_an_empty_state_directory_needs_no_repair(tmp_path: Path) -> None:
    crash_repair.repair(services=tmp_path / "services", objects=tmp_path / "objects")
    assert list(tmp_path.iterdir()) == []
