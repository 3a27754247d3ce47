"""`make prove-permissions` begins with job files that would be launched, and with nothing in its local AWS."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotkeep_cli.errors import ExitCode
from tests.permissions.__main__ import main

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = [
    str(EXAMPLES / name) for name in ("digits/job.yaml", "digits/fleet.yaml", "nodes/job.yaml", "digits/sweep.yaml")
]


def test_a_local_aws_that_was_used_before_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPOTKEEP_LOCAL_STATE", str(tmp_path))
    (tmp_path / "services").mkdir()
    monkeypatch.setenv("COLUMNS", "400")
    assert main(FILES) == ExitCode.USAGE
    stderr = capsys.readouterr().err
    assert f"{tmp_path} holds a local AWS" in stderr
    assert "SPOTKEEP_LOCAL_STATE=DIRECTORY" in stderr


@pytest.mark.parametrize("place", range(len(FILES)), ids=["job", "fleet", "nodes", "sweep"])
def test_each_job_file_is_judged_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    monkeypatch.setenv("SPOTKEEP_LOCAL_STATE", str(tmp_path / "state"))
    broken = tmp_path / "job.yaml"
    broken.write_text("name: digits\nmax_run: 4hours\n")
    files = [str(broken) if number == place else file for number, file in enumerate(FILES)]
    assert main(files) == ExitCode.REFUSED
    assert not (tmp_path / "state").exists()
