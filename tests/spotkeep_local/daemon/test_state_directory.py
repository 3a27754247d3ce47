"""The record of a running server: whole, or as good as absent."""

import errno
import os
from pathlib import Path

import pytest

from spotkeep_local.daemon.state_directory import ServerRecord, StateDirectory
from spotkeep_local.errors import PersistenceError

RECORD = ServerRecord(pid=7, process_started="1", nonce="n", port=4566, region="us-east-1", account_id="000000000000")


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    RECORD.write(tmp_path / "local.json")
    assert ServerRecord.read(tmp_path / "local.json") == RECORD
    assert '"endpoint": "http://127.0.0.1:4566"' in (tmp_path / "local.json").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["local.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"endpoint": "x", "pid": 1}', "null"])
def test_a_damaged_record_is_no_record(tmp_path: Path, text: str) -> None:
    (tmp_path / "local.json").write_text(text)
    assert ServerRecord.read(tmp_path / "local.json") is None


def test_no_file_is_no_record(tmp_path: Path) -> None:
    assert ServerRecord.read(tmp_path / "local.json") is None


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (errno.ENOSPC, "the disk is full: free some space, or name a directory on another disk"),
        (errno.EDQUOT, "the disk is full: free some space, or name a directory on another disk"),
        (errno.EROFS, "the file system is read-only: name a directory on another one"),
        (errno.EACCES, "this user may not write there: change its rights, or name a directory of your own"),
        (errno.EPERM, "this user may not write there: change its rights, or name a directory of your own"),
        (errno.EIO, "Input/output error: name another directory"),
    ],
)
def test_a_refusal_of_the_system_is_named_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int, said: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(PersistenceError) as error:
        StateDirectory(tmp_path / "local").create()
    assert str(error.value) == f"the local AWS cannot keep its state in {tmp_path / 'local'}: {said}"


@pytest.mark.parametrize("name", ["local", "local/below"])
def test_a_file_in_the_place_of_the_directory_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "local").touch()
    with pytest.raises(PersistenceError, match=f"{tmp_path / name}: a file is in its place: remove it"):
        StateDirectory(tmp_path / name).create()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_rights_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(PersistenceError, match="this user may not write there"):
        StateDirectory(tmp_path / "local").create()
