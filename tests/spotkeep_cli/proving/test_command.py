"""`spotkeep prove-permissions` begins with job files that would be launched, and with nothing in its local AWS."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spotkeep_cli.errors import ExitCode

if TYPE_CHECKING:
    from tests.spotkeep_cli.conftest import Spotkeep

EXAMPLES = Path(__file__).parents[3] / "examples" / "digits"
FILES = [str(EXAMPLES / name) for name in ("job.yaml", "fleet.yaml", "sweep.yaml")]


def test_a_local_aws_that_was_used_before_is_refused(
    spotkeep: Spotkeep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOTKEEP_LOCAL_STATE", str(tmp_path))
    (tmp_path / "services").mkdir()
    done = spotkeep("prove-permissions", *FILES, columns=400)
    assert done.exit_code == ExitCode.USAGE
    assert f"{tmp_path} holds a local AWS" in done.stderr
    assert "SPOTKEEP_LOCAL_STATE=DIRECTORY" in done.stderr


@pytest.mark.parametrize("place", range(len(FILES)), ids=["job", "fleet", "sweep"])
def test_each_job_file_is_judged_before_anything_starts(
    spotkeep: Spotkeep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    monkeypatch.setenv("SPOTKEEP_LOCAL_STATE", str(tmp_path / "state"))
    broken = tmp_path / "job.yaml"
    broken.write_text("name: digits\nmax_run: 4hours\n")
    files = [str(broken) if number == place else file for number, file in enumerate(FILES)]
    done = spotkeep("prove-permissions", *files)
    assert done.exit_code == ExitCode.REFUSED
    assert not (tmp_path / "state").exists()
