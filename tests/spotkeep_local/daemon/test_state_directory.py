"""The record of a running server: whole, or as good as absent."""

from pathlib import Path

import pytest

from spotkeep_local.daemon.state_directory import ServerRecord

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
