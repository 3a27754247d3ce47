"""Where a script was started from, wherever it is by now."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest

import spotkeep.start
from spotkeep.start import directory_at_start
from tests.forking import environment_of_script


def test_hydra_knows_where_the_script_was_started_though_the_library_was_imported_later(tmp_path, monkeypatch):
    configured = types.SimpleNamespace(runtime=types.SimpleNamespace(cwd=str(tmp_path / "project")))
    configuration = types.SimpleNamespace(initialized=lambda: True, get=lambda: configured)
    monkeypatch.setitem(sys.modules, "hydra.core.hydra_config", types.SimpleNamespace(HydraConfig=configuration))
    monkeypatch.setattr(spotkeep.start, "_AT_THE_IMPORT", tmp_path / "outputs" / "22-01-03")
    assert directory_at_start() == tmp_path / "project"


@pytest.mark.parametrize("argument", ["train.py", "./train.py", "src/train.py", "../project/train.py"])
def test_a_script_that_changed_its_directory_before_it_imported_the_library_is_found(tmp_path, monkeypatch, argument):
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (tmp_path / "outputs").mkdir()
    (project / argument).write_text(
        "import os, sys; os.chdir(sys.argv[1]); import spotkeep; print(spotkeep.Checkpointer({}, 'run').directory)"
    )
    done = subprocess.run(
        [sys.executable, argument, str(tmp_path / "outputs")],
        cwd=project, env=environment_of_script(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(done.stdout.strip()) == project / "run"
