"""A script is rehearsed in the Python that the user names."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from spotkeep_cli.errors import UsageError
from spotkeep_cli.launching.job_file import read_job_file
from spotkeep_cli.rehearsal.command import in_python
from spotkeep_cli.rehearsal.model_comparison import interpreter_of


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An interpreter as a virtual environment has it: a link."""
    programs = tmp_path / "conda" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "python3"):
        (programs / name).symlink_to(sys.executable)
    return programs / "python"


def test_commands_find_it_as_python_and_other_variables_stay(job_file: Path, environment: Path) -> None:
    document = read_job_file(job_file, overrides=["environment.OMP_NUM_THREADS=4"])
    fields = in_python(document, environment).fields
    path = fields["environment"]["PATH"]
    assert shutil.which("python", path=path) == str(environment)
    assert shutil.which("python3", path=path) == str(environment.with_name("python3"))
    assert fields["environment"]["OMP_NUM_THREADS"] == 4
    # The models are compared with it as well: they may need its packages.
    assert interpreter_of(["python", "train.py"], path=path) == str(environment)


def test_a_relative_path_is_that_of_where_one_stands(
    job_file: Path, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(environment.parent.parent)
    fields = in_python(read_job_file(job_file), Path("bin/python")).fields
    assert fields["environment"]["PATH"].startswith(f"{environment.parent}:")


@pytest.mark.parametrize("named", ["conda/bin/missing", "conda/bin", "job.yaml"])
def test_what_is_no_interpreter_of_an_environment_is_refused(
    tmp_path: Path, job_file: Path, environment: Path, named: str
) -> None:
    with pytest.raises(UsageError, match="is no Python of an environment"):
        in_python(read_job_file(job_file), tmp_path / named)
