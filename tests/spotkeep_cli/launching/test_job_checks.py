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


def checked(tmp_path: Path, script: str, **fields: Any) -> list[str]:
    """The problems that are named of a job with one script."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "train.py").write_text(script)
    document = JobDocument(
        path=tmp_path / "job.yaml",
        fields={"name": "job", "source": "source", "command": "python train.py", **fields},
    )
    return [each.problem for each in check_job(prepare(document, deployment=None, new_token=lambda: "token"))]


@pytest.mark.parametrize(
    "call",
    [
        "joblib.dump(model, 'checkpoints/m')",
        "pickle.dump(state, open('checkpoints/m', 'wb'))",
        "np.savez('checkpoints/m.npz', w=w)",
        "model.save('checkpoints/m.keras')",
        "booster.save_model('checkpoints/m.ubj')",
        "torch.save(state, 'checkpoints/m.pt')",
    ],
)
def test_a_script_that_saves_elsewhere_is_told_the_folder_that_comes_back(tmp_path: Path, call: str) -> None:
    [problem] = checked(tmp_path, f"{call}\n")
    assert "the source saves, and neither it nor the job file names the folder" in problem


@pytest.mark.parametrize(
    "fields",
    [
        {"hyperparameters": {"dir": "/opt/ml/checkpoints"}},
        {"command": "python train.py --dir /opt/ml/checkpoints"},
        {"environment": {"OUT": "/opt/ml/checkpoints"}},
    ],
)
def test_a_job_file_that_names_the_checkpoint_folder_is_not_warned(tmp_path: Path, fields: dict[str, Any]) -> None:
    assert checked(tmp_path, "model.save(args.dir)\n", **fields) == []


@pytest.mark.parametrize(
    ("script", "fields", "is_warned"),
    [
        ("import torch, spotkeep\n", {"instance_type": "ml.g5.12xlarge"}, True),
        ("import torch, spotkeep\n", {"instance_types": ["ml.p4d.24xlarge"]}, True),
        ("import torch, spotkeep\n", {"instance_type": "ml.g5.xlarge"}, False),
        ("import torch, spotkeep\n", {"instance_type": "ml.g5.12xlarge", "command": "torchrun train.py"}, False),
        ("import torch, spotkeep\n", {"instance_type": "ml.g5.12xlarge", "distributed": "torchrun"}, False),
        ("import torch, spotkeep\n", {"instance_type": "ml.g5.12xlarge", "distributed": {"launcher": "mpi"}}, False),
        ("import torch, spotkeep\n", {"instance_type": "ml.g5.12xlarge", "distributed": "none"}, True),
        ("import torch, spotkeep\nimport lightning\n", {"instance_type": "ml.g5.12xlarge"}, False),
        ("import spotkeep, jax\n", {"instance_type": "ml.g5.12xlarge"}, False),
    ],
)
def test_plain_python_on_several_gpus_is_warned_of(
    tmp_path: Path, script: str, fields: dict[str, Any], is_warned: bool
) -> None:
    problems = checked(tmp_path, script, **fields)
    assert any("plain python starts one process" in each for each in problems) == is_warned
