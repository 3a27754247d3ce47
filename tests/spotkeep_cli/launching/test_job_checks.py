"""Warnings about a job before it is launched; `test_job_files_doctor.py` has their words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spotkeep_cli.launching.job_checks import check_job
from spotkeep_cli.launching.job_file import JobDocument
from spotkeep_cli.launching.preparation import prepare

WORDS = (
    *("python", "train.py", "cd", "''", '""', "'", '"', "&&", "|", "tee", ";", "&", "$X", "$(", "`", "#", "\n", "\\\n"),
    *("if", "then", "fi", "case", "esac", "(", ")", "{", "}", "<<E", "E", ">", "..", "-", "~", "-m", "A=1", "bash", ""),
)
texts = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)
commands = texts | st.lists(texts, max_size=3) | st.none() | st.integers() | st.text(max_size=8)


@given(command=commands, setup=commands)
@example(command="python prepare.py && python train.py", setup=None)
@example(command=None, setup=None)
@example(command="cd ''\npython train.py\n", setup=None)
def test_whatever_a_command_is_it_is_looked_at(tmp_path_factory: Any, command: object, setup: object) -> None:
    """What is refused has warnings beside it, never a traceback in the place of both."""
    source: Path = tmp_path_factory.getbasetemp() / "source"
    source.mkdir(exist_ok=True)
    (source / "train.py").write_text("print('no checkpoint')\n")
    fields = {"name": "job", "source": "source", "command": command, "setup": setup, "checkpoints": False}
    document = JobDocument(path=source.parent / "job.yaml", fields=fields)
    warnings = check_job(prepare(document, deployment=None, new_token=lambda: "token"))
    assert "checkpoints" in [each.field for each in warnings]


@pytest.mark.parametrize(
    ("script", "search", "is_warned"),
    [("import torch\n", "asha", True), ("import spotkeep\n", "asha", False), ("import torch\n", "random", False)],
)
def test_asha_needs_a_script_that_counts_its_steps(tmp_path: Path, script: str, search: str, is_warned: bool) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "train.py").write_text(script)
    fields = {"name": "job", "source": "source", "command": "python train.py", "sweep": {"search": search}}
    document = JobDocument(path=tmp_path / "job.yaml", fields=fields)
    warnings = check_job(prepare(document, deployment=None, new_token=lambda: "token"))
    assert ("sweep.search" in [each.field for each in warnings]) == is_warned
