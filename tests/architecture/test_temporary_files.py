"""Nothing is written outside the checkout: temporary files of the tests, and of what they start, lie in `.spotkeep`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STATE = ROOT / ".spotkeep"


@pytest.fixture(autouse=True)
def _in_the_checkout() -> None:
    if len(str(STATE / "tmp")) > 64:
        pytest.skip("the checkout's path is too long for the Unix sockets of temporary files")


def test_those_of_the_tests(tmp_path: Path) -> None:
    assert tmp_path.is_relative_to(STATE)
    assert Path(tempfile.gettempdir()).is_relative_to(STATE)


@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "-c", "import tempfile; print(tempfile.gettempdir())"],
        [str(Path(sys.prefix) / "bin" / "node"), "-p", "os.tmpdir()"],
        ["mktemp", "--dry-run"],
    ],
    ids=["Python", "Node", "the shell"],
)
def test_those_of_what_they_start(command: list[str]) -> None:
    said = subprocess.run(command, check=True, capture_output=True, text=True)
    assert Path(said.stdout.strip()).is_relative_to(STATE)


def test_git_takes_none_of_them_for_a_part_of_the_repository(tmp_path: Path) -> None:
    found = subprocess.run(["git", "rev-parse"], cwd=tmp_path, capture_output=True, check=False, env=os.environ)
    assert found.returncode == 128
