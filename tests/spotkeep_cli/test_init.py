"""`spotkeep init`: the files of a project, and the job file of a script that is read and never run."""

from __future__ import annotations

import ast
import json
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from spotkeep_cli import init
from spotkeep_cli.launching.job_file import read_job_file
from spotkeep_cli.script_job import read_script
from tests.infrastructure.conftest import context_of_checkout

ROOT = Path(__file__).parents[2]

SCRIPT = """
import argparse
import os
import torch
import sklearn.datasets
import timm
from helpers import load

raise SystemExit("it was run")

parser = argparse.ArgumentParser()
parser.add_argument("-e", "--epochs", type=int, default=3)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--name", default="yes")
parser.add_argument("--amp", action="store_true")
parser.add_argument("--data-dir", required=True)
parser.add_argument("--model-dir", default="model")
parser.add_argument("--output", default=os.environ["SM_OUTPUT_DATA_DIR"])
parser.add_argument("--ckpt-dir", default="ckpt")
parser.add_argument("--layers", nargs="+", type=int, default=[64, 32])
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "digits"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_a_project_has_a_few_lines_and_the_settings_of_the_checkout(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init.main(["my-team"]) == 0
    team = here / "my-team"
    settings = json.loads((team / "cdk.json").read_text())
    assert settings["context"] == context_of_checkout()
    assert settings["app"] == "python app.py"
    # It is the checkout's own app.
    assert ast.dump(ast.parse((team / "app.py").read_text()).body[-1]) == ast.dump(
        ast.parse((ROOT / "app.py").read_text()).body[-1]
    )
    assert (team / "requirements.txt").read_text().splitlines()[0] == f"spotkeep[cdk]=={version('spotkeep')}"
    ast.parse((team / "tests" / "test_synth.py").read_text())
    assert "cdk.out/" in (team / ".gitignore").read_text().splitlines()
    assert "spotkeep local up" in capsys.readouterr().out


def test_nothing_is_written_where_a_file_is_in_the_way(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "my-team" / "tests").mkdir(parents=True)
    (here / "my-team" / "app.py").write_text("mine")
    (here / "my-team" / "tests" / "test_synth.py").symlink_to(here / "nowhere")
    assert init.main(["my-team"]) == 2
    assert capsys.readouterr().err == (
        "Error: these are there already, and nothing was written:\n  my-team/app.py\n  my-team/tests/test_synth.py\n"
        "Hint: move them away, or name another folder\n"
    )
    assert sorted(path.name for path in (here / "my-team").rglob("*")) == ["app.py", "test_synth.py", "tests"]


def test_a_job_file_of_a_script(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "train.py").write_text(SCRIPT)
    (here / "helpers.py").touch()
    assert init.main(["train.py"]) == 0
    job = yaml.safe_load((here / "job.yaml").read_text())
    assert (job["name"], job["source"], job["command"]) == ("digits", ".", "python train.py")
    assert (job["framework"], job["install"]) == ("pytorch", ["timm"])
    assert job["hyperparameters"] == {
        "epochs": 3,
        "lr": 0.001,
        "name": "yes",
        "data-dir": "CHANGE_ME",
        "model-dir": "/opt/ml/model",
        "ckpt-dir": "/opt/ml/checkpoints",
    }
    said = capsys.readouterr().out
    lines = SCRIPT.splitlines()
    for name in ("--data-dir", "--ckpt-dir"):
        number = next(at for at, line in enumerate(lines, start=1) if name in line)
        assert f"train.py:{number}: {name}" in said
    # The command line reads it as a job file.
    assert read_job_file(here / "job.yaml").fields["name"] == "digits"
    (here / "job.yaml").write_text("mine")
    assert init.main(["train.py"]) == 2
    assert (here / "job.yaml").read_text() == "mine"


def test_the_next_steps_stand_in_two_columns_of_a_narrow_terminal(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("train.py").write_text("print(1)\n")
    assert init.main(["train.py"]) == 0
    assert capsys.readouterr().out.partition("Next: ")[2].splitlines() == [
        "spotkeep rehearse -- python train.py  takes its machine away, here",
        "      spotkeep rehearse job.yaml            does so with a whole deployment",
        "      spotkeep launch job.yaml              launches it",
    ]


def test_a_script_of_ranks_is_started_by_torchrun(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A rank alone ends, because it finds no variable of the others."""
    Path("train.py").write_text("import torch.distributed as dist\ndist.init_process_group('nccl')\n")
    assert init.main(["train.py"]) == 0
    assert yaml.safe_load((here / "job.yaml").read_text())["distributed"] == "torchrun"
    assert capsys.readouterr().out.partition("Next: ")[2].splitlines()[:2] == [
        "spotkeep rehearse -- torchrun --nproc-per-node 2 train.py",
        "        takes its machine away, here",
    ]


@pytest.mark.parametrize(
    ("source", "line", "place"),
    [
        ("import torch\ntorch.save({}, 'out/last.pt')", 2, "out/last.pt"),
        ("CHECKPOINT_DIR = 'ckpts'\n", 1, "ckpts"),
        ("model.save_pretrained(f'out-{epoch}')", 1, "out-"),
        ("args = TrainingArguments(\n  output_dir='results')", 1, "results"),
        ("np.savez(os.path.join('states', name), a=1)", 1, "states"),
    ],
)
def test_a_place_that_an_interruption_deletes_is_named_with_its_line(
    here: Path, capsys: pytest.CaptureFixture[str], source: str, line: int, place: str
) -> None:
    (here / "train.py").write_text(source)
    assert init.main(["train.py"]) == 0
    assert f"train.py:{line}: saves to {place!r}, which an interruption deletes" in capsys.readouterr().out


def test_a_script_that_saves_nothing_and_one_that_uses_the_library(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "plain.py").write_text("print(1)")
    assert init.main(["plain.py"]) == 0
    assert "found no line that saves a checkpoint" in capsys.readouterr().out
    (here / "job.yaml").unlink()
    (here / "kept.py").write_text("from spotkeep import Checkpointer")
    assert init.main(["kept.py"]) == 0
    assert "checkpoint" not in capsys.readouterr().out
    assert "install" not in yaml.safe_load((here / "job.yaml").read_text())


def test_a_script_that_names_the_folder_is_not_told_of_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "train.py").write_text(
        "import os, joblib\njoblib.dump({}, os.environ.get('SPOTKEEP_CHECKPOINT_DIR', 'ckpt') + '/m')\n"
    )
    assert init.main(["train.py"]) == 0
    assert "train.py:" not in capsys.readouterr().out


def test_requirements_of_the_source_are_taken_and_those_of_a_cdk_app_are_not(here: Path) -> None:
    (here / "train.py").write_text("import timm")
    (here / "requirements.txt").write_text("timm\n")
    assert init.main(["train.py"]) == 0
    assert "install" not in yaml.safe_load((here / "job.yaml").read_text())
    (here / "job.yaml").unlink()
    (here / "requirements.txt").write_text("spotkeep[cdk]==0.1.0\n")
    assert init.main(["train.py"]) == 0
    assert yaml.safe_load((here / "job.yaml").read_text())["install"] == ["timm"]


@pytest.mark.parametrize("content", [b"def broken(:", b"\xff\xfe\x00"])
def test_a_file_that_is_no_script_is_refused(here: Path, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    (here / "train.py").write_bytes(content)
    assert init.main(["train.py"]) == 2
    assert "is no script that this Python reads" in capsys.readouterr().err
    assert init.main(["missing.py"]) == 2
    assert not (here / "job.yaml").exists()


def test_a_script_below_the_folder_keeps_its_path(here: Path) -> None:
    (here / "src").mkdir()
    (here / "src" / "fit.py").write_text("")
    assert init.main(["src/fit.py"]) == 0
    job = yaml.safe_load((here / "job.yaml").read_text())
    assert (job["name"], job["command"]) == ("fit", "python src/fit.py")


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*/train.py")), ids=lambda path: path.parent.name)
def test_every_example_is_read(example: Path) -> None:
    script = read_script(example.read_text())
    assert "argparse" not in script.modules or script.arguments
    assert all(module in sys.stdlib_module_names or module for module in script.modules)
