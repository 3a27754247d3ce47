"""`python` and `python3` of a command are those of the image's framework, and `python` is there in any case."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spotkeep_agent.training.process import search_path


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """The commands of an image that has python3 alone, as Amazon Linux 2023."""
    commands = tmp_path / "usr/bin"
    commands.mkdir(parents=True)
    (commands / "python3").symlink_to(sys.executable)
    return commands


@pytest.mark.parametrize("framework", ["opt/pytorch", "opt/tensorflow"])
def test_a_deep_learning_ami_trains_with_its_framework(tmp_path: Path, system: Path, framework: str) -> None:
    commands = tmp_path / framework / "bin"
    commands.mkdir(parents=True)
    (commands / "python").symlink_to(sys.executable)
    path = search_path(str(system), root=tmp_path, own=tmp_path / "own")
    assert path == f"{commands}:{system}"


def test_an_image_without_a_command_python_gets_one(tmp_path: Path, system: Path) -> None:
    for _ in range(2):  # a training that is started again
        path = search_path(str(system), root=tmp_path, own=tmp_path / "own")
    assert path == f"{system}:{tmp_path / 'own'}", "what the image has goes before"
    found = subprocess.run(["/usr/bin/env", "python", "-c", "print(1)"], env={"PATH": path}, capture_output=True)
    assert found.stdout == b"1\n"


def test_a_python_of_the_image_stays_what_it_is(tmp_path: Path, system: Path) -> None:
    (system / "python").symlink_to(sys.executable)
    assert search_path(str(system), root=tmp_path, own=tmp_path / "own") == str(system)
