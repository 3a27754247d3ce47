"""The functions' archive: what is in it, and that one archive serves all functions."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spotkeep_constructs.errors import PropertyError
from spotkeep_constructs.job_function import FunctionCode, code_files

from .conftest import ROOT

if TYPE_CHECKING:
    from .conftest import Templates


def packed(archives: Path) -> FunctionCode:
    files = code_files(ROOT / "lambda", jobs=ROOT / "lambda", planner=ROOT / "planner", training=ROOT / "training")
    return FunctionCode.pack(files, variables={"SPOTKEEP_PRICES": "{}"}, archives=archives)


def test_all_functions_of_all_stacks_share_one_archive(templates_with_everything: Templates) -> None:
    functions = templates_with_everything.resources("AWS::Lambda::Function").values()
    assert {function["Properties"]["Handler"].partition(".")[0] for function in functions} >= {
        "launcher",
        "webhook",
        "instance_credentials",
    }
    assert len({function["Properties"]["Code"]["S3Key"] for function in functions}) == 1


def test_it_holds_what_functions_run_and_the_same_sources_give_the_same_bytes(tmp_path: Path) -> None:
    code = packed(tmp_path / "one")
    with zipfile.ZipFile(code.archive) as archive:
        names = archive.namelist()
    shared = {"spotkeep_fleet", "spotkeep_jobs", "spotkeep_planner", "variables.json"}
    assert {name.partition("/")[0] for name in names} == code.packages | shared
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]
    assert packed(tmp_path / "other").archive.read_bytes() == code.archive.read_bytes()


def test_a_directory_without_the_functions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PropertyError, match="holds no package with a handler"):
        code_files(tmp_path, jobs=ROOT / "lambda", planner=ROOT / "planner", training=ROOT / "training")


def test_of_the_planner_it_carries_what_steers_a_run_and_that_loads_without_a_package(tmp_path: Path) -> None:
    archive = packed(tmp_path).archive
    with zipfile.ZipFile(archive) as content:
        carried = {name for name in content.namelist() if name.startswith("spotkeep_planner/")}
    assert carried == {
        f"spotkeep_planner/{name}"
        for name in ("__init__.py", "errors.py", "steering.py")
    }  # fmt: skip
    program = f"import sys; sys.path.insert(0, {str(archive)!r}); import spotkeep_planner.steering"
    subprocess.run([sys.executable, "-S", "-c", program], check=True)
