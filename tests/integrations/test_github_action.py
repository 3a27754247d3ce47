"""The GitHub Action's steps are run as a runner runs them, with a stand-in for pip's download."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "integrations/github-action/action.yml").read_text(encoding="utf-8"))
FORGETFUL = """
import time
for number in range(9):
    print("epoch", number)
    time.sleep(0.25)  # On a busy machine the loss comes late.
"""


def steps() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ACTION["runs"]["steps"]
    return found


def filled(text: str, inputs: dict[str, str]) -> str:
    return re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: inputs[found[1]], text)


def run_step(step: dict[str, Any], *, inputs: dict[str, str], workspace: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: filled(value, inputs) for name, value in step.get("env", {}).items()}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=workspace / filled(step.get("working-directory", "."), inputs),
        env={
            **os.environ,
            "RUNNER_TEMP": str(workspace / "runner"),
            "GITHUB_WORKSPACE": str(workspace),
            "GITHUB_OUTPUT": str(workspace / "output"),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "cli"), str(ROOT / "training")]),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_input_is_used_and_has_a_description_and_no_input_is_pasted_into_a_script() -> None:
    text = str(ACTION["runs"])
    for name, described in ACTION["inputs"].items():
        assert f"inputs.{name}" in text
        assert described["description"].endswith(".") or described["description"].endswith("`.")
    # What a pull request writes into a title or a branch must not become shell text.
    assert not [step["name"] for step in steps() if "${{" in step.get("run", "")]
    assert [step["shell"] for step in steps() if "run" in step] == ["bash", "bash"]


@pytest.mark.parametrize(
    ("script", "code", "verdict"),
    [
        pytest.param("raise SystemExit('no data')", 2, "NOT JUDGED", id="not-judged"),
        pytest.param(
            "import time\nfor n in range(9):\n    print('epoch', n)\n    time.sleep(0.25)", 1, "FAIL", id="fail"
        ),
    ],
)
def test_the_steps_give_the_verdict_and_the_junit_file_and_the_page(
    tmp_path: Path, script: str, code: int, verdict: str
) -> None:
    inputs = {name: described.get("default", "") for name, described in ACTION["inputs"].items()}
    inputs |= {"command": f"{sys.executable} 'train it.py'", "options": "--interrupt-at 50%", "directory": "project"}
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train it.py").write_text(script)
    # In place of the first step, which downloads.
    programs = tmp_path / "runner" / "spotkeep" / "bin"
    programs.mkdir(parents=True)
    stand_in = programs / "spotkeep"
    stand_in.write_text(f'#!/bin/sh\nshift\nexec {sys.executable} -m spotkeep_rehearsal "$@"\n')
    stand_in.chmod(0o755)
    ended = run_step(steps()[1], inputs=inputs, workspace=tmp_path)
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert (tmp_path / "output").read_text() == f"verdict={verdict}\n"
    assert ET.parse(tmp_path / inputs["junit"]).getroot().tag == "testsuite"  # noqa: S314 - our own file
    assert verdict in (tmp_path / inputs["page"]).read_text(encoding="utf-8")


def test_the_first_step_installs_what_is_asked_for_into_an_environment_of_its_own(tmp_path: Path) -> None:
    stand_in = tmp_path / "python"
    stand_in.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n'
        '[ "$2" = venv ] && mkdir -p "$3/bin" && cp "$0" "$3/bin/python"\nexit 0\n'
    )
    stand_in.chmod(0o755)
    ended = run_step(
        steps()[0], inputs={"install": "spotkeep==1.0 --no-deps", "python": str(stand_in)}, workspace=tmp_path
    )
    assert ended.returncode == 0, ended.stderr
    made, installed = (tmp_path / "asked").read_text().splitlines()
    assert made == f"-m venv {tmp_path}/runner/spotkeep"
    assert installed == "-m pip install --quiet spotkeep==1.0 --no-deps"
