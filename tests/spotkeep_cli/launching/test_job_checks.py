"""Warnings about a job before it is launched; `test_job_files_doctor.py` has their words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spotkeep_cli.launching.job_checks import check_job
from spotkeep_cli.launching.job_file import JobDocument
from spotkeep_cli.launching.judgement import judge_here
from spotkeep_cli.launching.preparation import prepare
from spotkeep_jobs.errors import Problem

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
    [
        ("import torch\n", "asha", True),
        ("from spotkeep import Checkpointer\n", "asha", False),
        ("import torch\n", "random", False),
    ],
)
def test_asha_needs_a_script_that_counts_its_steps(tmp_path: Path, script: str, search: str, is_warned: bool) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "train.py").write_text(script)
    fields = {"name": "job", "source": "source", "command": "python train.py", "sweep": {"search": search}}
    document = JobDocument(path=tmp_path / "job.yaml", fields=fields)
    warnings = check_job(prepare(document, deployment=None, new_token=lambda: "token"))
    assert ("sweep.search" in [each.field for each in warnings]) == is_warned


def problems_of(
    tmp_path: Path, script: str, *, beside: Mapping[str, str] | None = None, **fields: Any
) -> list[Problem]:
    """The problems of a job with one script, and other files beside it."""
    for name, text in {"train.py": script, **(beside or {})}.items():
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    document = JobDocument(
        path=tmp_path / "job.yaml",
        fields={"name": "job", "source": "source", "command": "python train.py", **fields},
    )
    return list(check_job(prepare(document, deployment=None, new_token=lambda: "token")))


def checked(tmp_path: Path, script: str, *, beside: Mapping[str, str] | None = None, **fields: Any) -> list[str]:
    return [each.problem for each in problems_of(tmp_path, script, beside=beside, **fields)]


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


SAVES = "from spotkeep import Checkpointer\n"
SAVES_NOTHING = "import torch\nfor step in range(9):\n    model.train()\n"


@pytest.mark.parametrize(
    ("script", "beside", "fields"),
    [
        pytest.param(SAVES_NOTHING, {}, {}, id="alone"),
        pytest.param(SAVES_NOTHING, {"job.yaml": "# Written by `spotkeep init train.py`.\n"}, {}, id="init's comment"),
        pytest.param(SAVES_NOTHING, {"app.py": "from spotkeep_constructs import App\n"}, {}, id="a CDK app"),
        pytest.param(SAVES_NOTHING, {"other.py": SAVES}, {}, id="another script saves"),
        pytest.param(f"'See other.py.'\n{SAVES_NOTHING}", {"other.py": SAVES}, {}, id="a docstring"),
        pytest.param(SAVES_NOTHING, {"tests/test_it.py": SAVES}, {}, id="a test saves"),
        pytest.param(f"# Later: {SAVES}{SAVES_NOTHING}", {}, {}, id="a comment"),
        pytest.param("import spotkeep\nspotkeep.report_progress(step=1)\n", {}, {}, id="reports alone"),
        pytest.param("import model\nmodel.run()\n", {"model.py": "def run(): ...\n"}, {}, id="a module saves nothing"),
        pytest.param(
            SAVES_NOTHING, {"run.sh": "exec python train.py\n"}, {"command": "bash run.sh"}, id="a shell script"
        ),
        pytest.param(SAVES_NOTHING, {}, {"command": "accelerate launch train.py"}, id="a launcher"),
        pytest.param(SAVES_NOTHING, {}, {"command": "bash -c 'exec python train.py'"}, id="a shell"),
        pytest.param(
            "",
            {"pkg/train.py": SAVES_NOTHING, "pkg/__init__.py": ""},
            {"command": "python -m pkg.train"},
            id="a module",
        ),
        pytest.param(
            SAVES_NOTHING, {}, {"image": "123456789012.dkr.ecr.eu-central-1.amazonaws.com/x:1"}, id="an image"
        ),
    ],
)
def test_a_script_that_saves_nothing_is_named_with_the_next_step(
    tmp_path: Path, script: str, beside: dict[str, str], fields: dict[str, Any]
) -> None:
    [problem] = checked(tmp_path, script, beside=beside, **fields)
    assert "an interruption would start it from zero" in problem


@pytest.mark.parametrize("script", [SAVES_NOTHING, f"{SAVES_NOTHING}torch.save(model, 'model.pt')\n"])
@pytest.mark.parametrize(
    ("fields", "advised"), [({}, True), ({"nodes": 2, "backend": "ec2", "distributed": "torchrun"}, False)]
)
def test_a_job_without_nodes_may_go_without_checkpoints(
    tmp_path: Path, script: str, fields: dict[str, Any], *, advised: bool
) -> None:
    (problem,) = [each for each in problems_of(tmp_path, script, **fields) if each.field == "checkpoints"]
    assert ("checkpoints: false" in problem.fix) is advised


@pytest.mark.parametrize(
    ("script", "beside", "fields"),
    [
        pytest.param(SAVES, {}, {}, id="alone"),
        pytest.param("from spotkeep.integrations.lightning import fit_resumably\n", {}, {}, id="an adapter"),
        pytest.param("import spotkeep\nspotkeep.report_saved(step=1)\n", {}, {}, id="its own checkpoints"),
        pytest.param("from model import run\n", {"model.py": SAVES}, {}, id="a module of it"),
        pytest.param("from lib.model import run\n", {"src/lib/model.py": SAVES}, {}, id="below src"),
        pytest.param(
            "from .lib import run\n", {"lib/__init__.py": "from . import it", "lib/it.py": SAVES}, {}, id="relative"
        ),
        pytest.param(
            "run('conf/a.yaml')\n",
            {"conf/a.yaml": "loop: {_target_: lib.loop.Loop}", "lib/loop.py": SAVES},
            {},
            id="a config",
        ),
        pytest.param("importlib.import_module(name).run()\n", {"model.py": SAVES}, {}, id="a name that is computed"),
        pytest.param("subprocess.run(['python', 'other.py'])\n", {"other.py": SAVES}, {}, id="a process"),
        pytest.param(SAVES, {"run.sh": "exec python train.py\n"}, {"command": "bash run.sh"}, id="a shell script"),
        pytest.param(SAVES, {}, {"command": "accelerate launch train.py"}, id="a launcher"),
        pytest.param(
            "", {"pkg/train.py": SAVES, "pkg/__init__.py": ""}, {"command": "python -m pkg.train"}, id="a module"
        ),
        pytest.param(
            "", {"pkg/__init__.py": SAVES, "pkg/run.py": ""}, {"command": "python -m pkg.run"}, id="a package"
        ),
        pytest.param(SAVES_NOTHING, {}, {"command": "/opt/program/train"}, id="a program of the image"),
        pytest.param(SAVES_NOTHING, {}, {"command": "python -m vendor.train"}, id="a module of the image"),
        pytest.param(SAVES_NOTHING, {}, {"command": None, "image": "x"}, id="the entry point of an image"),
        pytest.param("this is no Python\n" + SAVES, {}, {}, id="does not compile"),
    ],
)
def test_a_script_that_saves_is_not_said_to_start_from_zero(
    tmp_path: Path, script: str, beside: dict[str, str], fields: dict[str, Any]
) -> None:
    assert not any("from zero" in each for each in checked(tmp_path, script, beside=beside, **fields))


def missing(tmp_path: Path, **fields: Any) -> tuple[list[Problem], list[Problem]]:
    """The problems and the warnings about the script of a job, which has a source of two files."""
    (tmp_path / "source" / "lib").mkdir(parents=True)
    for name in ("train.py", "lib/evaluate.py"):
        (tmp_path / "source" / name).write_text(SAVES)
    document = JobDocument(
        path=tmp_path / "job.yaml", fields={"name": "job", "source": "source", "instance_type": "ml.m5.large", **fields}
    )
    prepared = prepare(document, deployment=None, new_token=lambda: "token")
    judgement = judge_here(prepared, now=datetime.now(UTC))
    return [each for each in judgement.problems if "among" in each.problem], check_job(prepared)


@pytest.mark.parametrize(
    ("fields", "fix"),
    [
        ({"command": "python trian.py"}, "did you mean train.py?"),
        ({"command": "python3 -u evaluate.py"}, "did you mean lib/evaluate.py?"),
        ({"command": "torchrun --nproc-per-node 2 trian.py"}, "did you mean train.py?"),
        ({"command": ["python", "lib/eval.py"]}, "did you mean lib/evaluate.py?"),
        ({"command": "python other.py"}, "the source has lib/evaluate.py, train.py"),
        ({"command": "pip install x\nmkdir -p a\npython trian.py | tee log\n"}, "did you mean train.py?"),
        ({"command": "python trian.py", "image": "123456789012.dkr.ecr.eu-central-1.amazonaws.com/x:1"}, "train.py?"),
    ],
)
def test_a_script_that_cannot_be_there_is_a_problem_with_its_fix(
    tmp_path: Path, fields: dict[str, Any], fix: str
) -> None:
    [problem], warnings = missing(tmp_path, **fields)
    assert (problem.field, fix in problem.fix) == ("command", True)
    assert "is not among the 2 files of the source" in problem.problem
    assert warnings == []


@pytest.mark.parametrize(
    "fields",
    [
        {"command": "trian.py"},  # The image may have such a program.
        {"command": "python ../trian.py"},
        {"command": "python trian.py", "setup": "./generate.sh"},
        {"command": "python train.py\npython trian.py\n"},
    ],
)
def test_a_script_that_may_be_there_is_a_warning(tmp_path: Path, fields: dict[str, Any]) -> None:
    problems, [warning] = missing(tmp_path, **fields)
    assert problems == []
    assert "trian.py is not among the 2 files of the source" in warning.problem
