"""The probe prints facts as JSON lines, saves, resumes, and sees the markers of an upload."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from spotkeep_cli.first_account import probe

SOURCES = Path(probe.__file__).parents[3]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    config = tmp_path / "ml" / "input" / "config"
    config.mkdir(parents=True)
    hosts = {"current_host": "algo-1", "hosts": ["algo-1", "localhost"], "network_interface_name": "eth0"}
    (config / "resourceconfig.json").write_text(json.dumps(hosts))
    return tmp_path / "ml"


def started(base: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "SAGEMAKER_BASE_DIR": str(base), "PYTHONPATH": str(SOURCES / "training")}
    environment["SPOTKEEP_CHECKPOINT_DIR"] = str(base / "checkpoints")
    command = [sys.executable, probe.__file__, *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def facts(output: str) -> list[dict[str, Any]]:
    lines = [line for line in output.splitlines() if line.startswith(probe.PREFIX)]
    return [json.loads(line.removeprefix(probe.PREFIX)) for line in lines]


def test_a_fact_is_written_in_one_call_which_no_signal_divides(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[int, bytes]] = []
    monkeypatch.setattr(os, "write", lambda file, line: written.append((file, line)))
    probe.say("end", files=[])
    [(file, line)] = written
    assert file == 1
    assert line.endswith(b"\n")
    assert facts(line.decode())[0].items() >= {"fact": "end", "files": []}.items()


def test_a_probe_without_steps_prints_the_names_of_its_hosts(base: Path) -> None:
    output, _ = started(base, "0").communicate()
    host, end = facts(output)
    assert (host["fact"], end["fact"]) == ("host", "end")
    assert (host["current"], host["hosts"]["localhost"]) == ("algo-1", "127.0.0.1")
    assert set(host["hosts"]) == {"algo-1", "localhost"}


def test_a_stopped_probe_says_so_and_a_second_one_goes_on_and_finds_the_files(base: Path) -> None:
    marked = base / "checkpoints" / "first-account" / "2-small.bin.sagemaker-uploaded"
    process = started(base, "100000", "--seconds", "0.05")
    while not (marked.parent / "4-small.bin").exists():
        time.sleep(0.02)
    marked.touch()
    lines = []
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if '"uploaded"' in line:
                process.send_signal(signal.SIGTERM)
    first = facts("".join(lines))
    assert [fact["file"] for fact in first if fact["fact"] == "uploaded"] == ["2-small.bin"]
    assert "sigterm" in {fact["fact"] for fact in first}
    assert next(fact["files"] for fact in first if fact["fact"] == "restored") == []

    done = next(fact["step"] for fact in reversed(first) if fact["fact"] == "step")
    output, _ = started(base, str(done + 60), "--seconds", "0.05").communicate(timeout=300)
    second = facts(output)
    assert next(fact["step"] for fact in second if fact["fact"] == "step") > 0
    assert "1-large.bin" in next(fact["files"] for fact in second if fact["fact"] == "restored")
    assert second[-1]["fact"] == "end"
