"""The torture stands between a process and its disk: it must see every call, and break the one it was told to."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from benchmarks.torture.interposition import Fault, applies, parse_fault

SCRIPT = """
import os, sys
from pathlib import Path
from benchmarks.torture import interposition

directory, fault, record = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
interposition.install(
    directory,
    fault=interposition.parse_fault(fault) if fault else None,
    record=Path(record) if record else None,
)
(directory.parent / "elsewhere").mkdir()
made = directory / "made"
made.mkdir()
descriptor = os.open(made / "draft", os.O_WRONLY | os.O_CREAT, 0o644)
try:
    print("wrote", os.write(descriptor, b"abcdefgh"), flush=True)
    os.fsync(descriptor)
except OSError as error:
    print("refused", error.errno, flush=True)
os.close(descriptor)
os.replace(made / "draft", made / "whole")
print("end", flush=True)
"""
MKDIR, OPEN, WRITE, FSYNC, RENAME = range(5)


def run(tmp_path: Path, *, fault: str = "", record: str = "") -> subprocess.CompletedProcess[str]:
    (tmp_path / "disk").mkdir()
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path / "disk"), fault, record],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_record_has_every_call_in_the_directory_and_none_elsewhere(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    assert run(tmp_path, record=str(record)).returncode == 0
    calls = [json.loads(line) for line in record.read_text().splitlines()]
    assert [call["call"] for call in calls] == ["mkdir", "open", "write", "fsync", "close", "replace"]
    assert (calls[0]["path"], calls[-1]["path"], calls[-1]["target"]) == ("made", "made/draft", "made/whole")


@pytest.mark.parametrize("call", [MKDIR, OPEN, WRITE, FSYNC, RENAME])
def test_a_kill_comes_before_the_call(tmp_path: Path, call: int) -> None:
    assert run(tmp_path, fault=f"kill:{call}").returncode == -signal.SIGKILL
    made = tmp_path / "disk" / "made"
    assert made.exists() == (call > MKDIR)
    assert (made / "draft").exists() == (call > OPEN)
    assert not (made / "whole").exists()
    if call > OPEN:
        assert (made / "draft").read_bytes() == (b"abcdefgh" if call > WRITE else b"")


def test_a_kill_midway_leaves_half_of_the_write(tmp_path: Path) -> None:
    assert run(tmp_path, fault=f"kill-midway:{WRITE}").returncode == -signal.SIGKILL
    assert (tmp_path / "disk" / "made" / "draft").read_bytes() == b"abcd"


def test_a_short_write_says_how_short_it_was(tmp_path: Path) -> None:
    done = run(tmp_path, fault=f"short:{WRITE}")
    assert done.stdout.split() == ["wrote", "4", "end"]
    assert (tmp_path / "disk" / "made" / "whole").read_bytes() == b"abcd"


def test_an_error_comes_once(tmp_path: Path) -> None:
    done = run(tmp_path, fault=f"eio:{FSYNC}")
    assert done.stdout.split() == ["wrote", "8", "refused", "5", "end"]


def test_a_full_disk_stays_full(tmp_path: Path) -> None:
    done = run(tmp_path, fault=f"enospc:{OPEN}")
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert list((tmp_path / "disk" / "made").iterdir()) == []


def test_a_rename_that_never_happens_is_reported_as_done(tmp_path: Path) -> None:
    done = run(tmp_path, fault=f"no-rename:{RENAME}")
    assert done.stdout.split()[-1] == "end"
    assert [path.name for path in (tmp_path / "disk" / "made").iterdir()] == ["draft"]


def test_faults_are_read_and_written_as_text() -> None:
    assert parse_fault("kill:17") == Fault(kind="kill", call=17)
    assert str(parse_fault("no-rename:3")) == "no-rename:3"
    with pytest.raises(ValueError, match="no fault; choose one of kill, "):
        parse_fault("explode:1")


def test_a_fault_comes_only_where_it_can() -> None:
    assert applies("kill", "fsync")
    assert applies("short", "pwrite")
    assert not applies("short", "fsync")
    assert not applies("no-rename", "write")
    assert not applies("enospc", "unlink")
