"""`uvx` and `pipx` run the judge in an environment of their own, and the command in the caller's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spotkeep_rehearsal.scripts import write_training

from .conftest import UV, WITHOUT_CHECKOUT, Built

pytestmark = [pytest.mark.wheel, pytest.mark.long]


def tool(name: str, *, wheel: Path) -> list[str]:
    """Return the words that run `spotkeep` from the wheel with a tool, or skip the test."""
    if name == "uvx":
        return [UV, "tool", "run", "--quiet", "--python", sys.executable, "--from", str(wheel), "spotkeep"]
    found = shutil.which("pipx")
    # uv runs pipx where it is not installed.
    pipx = [found] if found else [UV, "tool", "run", "--quiet", "--python", sys.executable, "pipx"]
    if subprocess.run([*pipx, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("pipx is not installed here, and no package index has it")
    return [*pipx, "run", "--quiet", "--spec", str(wheel), "spotkeep"]


@pytest.mark.parametrize("name", ["uvx", "pipx"])
@pytest.mark.parametrize("way", ["active", "in the folder", "on PATH"])
def test_a_command_runs_with_the_python_of_the_caller(built: Built, folder: Path, name: str, way: str) -> None:
    words = tool(name, wheel=built.wheel)
    project = write_training(folder / "project")
    mine = project / ".venv" if way == "in the folder" else folder / "mine"
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, str(mine)], check=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV", "TMPDIR"))}
    environment = {**kept, "PATH": WITHOUT_CHECKOUT, "PIPX_HOME": str(folder / "pipx"), "PYTHONPATH": str(folder)}
    if way != "in the folder":
        environment["PATH"] = f"{mine / 'bin'}:{WITHOUT_CHECKOUT}"
    if way == "active":
        environment["VIRTUAL_ENV"] = str(mine)
    with (project / "train.py").open("a", encoding="utf-8") as script:
        script.write("print('prefix', sys.prefix), print('path', os.environ.get('PYTHONPATH'))\n")
    done = subprocess.run(
        [*words, "rehearse", "--json", "--", "python", "train.py"],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert (document["verdict"], document["python"]) == ("PASS", str(mine / "bin" / "python"))
    assert f"| prefix {mine}\n" in done.stderr
    if name == "uvx":  # pipx itself takes PYTHONPATH away.
        assert f"| path {folder}\n" in done.stderr
