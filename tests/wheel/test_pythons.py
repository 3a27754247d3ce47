"""The wheel on each Python that is installed here: the library and four commands from 3.9 on, the rest from 3.11."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import ROOT, Install, interpreter

pytestmark = pytest.mark.wheel

SCRIPT = """
import argparse
import json
import os
import pathlib
import time

from spotkeep import Checkpointer

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
steps = parser.parse_args().steps
state = {"total": 0, "weights": bytes(4096)}


class Total:
    def state_dict(self):
        return dict(state)

    def load_state_dict(self, saved):
        state.update(saved)


with Checkpointer({"total": Total()}, every_steps=5) as checkpointer:
    for step in checkpointer.steps(steps):
        state["total"] += step * step
        time.sleep(0.02)
        checkpointer.log(loss=1 / (step + 1))
        print(f"epoch {step + 1}: loss {1 / (step + 1):.6f}", flush=True)
pathlib.Path(os.environ.get("SM_MODEL_DIR", ""), "model.json").write_text(json.dumps({"total": state["total"]}))
"""


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14"])
def test_without_an_extra(install: Install, folder: Path, version: str) -> None:
    installed = install(python=interpreter(version))
    (folder / "train.py").write_text(SCRIPT)
    for words in (("--help",), ("--version",), ("init", "train.py"), ("init", "my-team")):
        done = installed.run(*words, cwd=folder)
        assert (done.returncode, done.stderr) == (0, ""), words
    assert (folder / "my-team" / "app.py").is_file()
    done = installed.program("python", "train.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "model.json").read_text()) == {"total": sum(step * step for step in range(60))}
    judged = installed.run("rehearse", "--", "python", "train.py", cwd=folder, VIRTUAL_ENV=str(installed.prefix))
    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert "PASS" in judged.stdout
    refused = installed.run("launch", "job.yaml", cwd=folder)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (69, 2)
    if version in ("3.9", "3.10"):
        assert f"needs Python 3.11 or later and the extra 'cli'; this is Python {version}" in refused.stderr


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_the_command_line(install: Install, folder: Path, version: str) -> None:
    installed = install("cli", python=interpreter(version))
    (folder / "train.py").write_text(SCRIPT)
    assert installed.run("init", "train.py", cwd=folder).returncode == 0
    for words in (("--help",), ("launch", "--help"), ("schema",)):
        done = installed.run(*words, cwd=folder)
        assert (done.returncode, done.stderr) == (0, ""), words
    assert json.loads(installed.run("schema", cwd=folder).stdout) == json.loads(
        (ROOT / "docs" / "job.schema.json").read_text()
    )
    # A job file is judged as far as possible without a deployment.
    done = installed.run("doctor", "job.yaml", cwd=folder)
    assert "Traceback" not in done.stderr
    assert "job.yaml" in done.stdout + done.stderr
