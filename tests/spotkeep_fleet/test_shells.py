"""What a session runs on an instance, as a real shell reads it; sudo is a stand-in that changes no user."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from spotkeep_fleet.shells import FRAMEWORKS, TRAINING_USER, shell_on_an_instance, training_job_target


@pytest.fixture
def sudo(tmp_path: Path) -> Path:
    """A `sudo` that notes its options and runs the rest."""
    program = tmp_path / "sudo"
    program.write_text('#!/bin/sh\nprintf "%s %s\\n" "$1" "$2" > "${0%sudo}options"\nshift 2\nexec "$@"\n')
    program.chmod(0o755)
    return program


def run(line: str, *, sudo: Path, typed: str = "") -> str:
    path = f"{sudo.parent}:{os.environ['PATH']}"
    ended = subprocess.run(
        ["sh", "-c", line], env={"PATH": path, "HOME": str(sudo.parent)}, input=typed, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_command_is_read_by_a_shell_of_the_user_who_trains(sudo: Path) -> None:
    printed = run(shell_on_an_instance("""echo 'a "b"' $((1 + 1)) | tr a c; echo "$PATH" """), sudo=sudo)
    assert printed.splitlines()[0] == 'c "b" 2'
    assert (sudo.parent / "options").read_text() == f"--set-home --user={TRAINING_USER}\n"


def test_the_python_of_the_images_framework_comes_first(sudo: Path) -> None:
    path = run(shell_on_an_instance("echo $PATH"), sudo=sudo)
    assert path.split(":")[: len(FRAMEWORKS)] == [f"/{framework}/bin" for framework in FRAMEWORKS]


def test_without_a_command_it_reads_what_is_typed(sudo: Path) -> None:
    assert "typed 3" in run(shell_on_an_instance(), sudo=sudo, typed="echo typed $((1 + 2))\n")


def test_a_container_is_named_after_its_job() -> None:
    assert training_job_target("digits-1", 2) == "sagemaker-training-job:digits-1_algo-2"
