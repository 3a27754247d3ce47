"""`doctor` finds what the launcher would refuse, and what no user means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from spotkeep_cli.errors import ExitCode


@pytest.fixture
def accepted(deployment: Any) -> Any:
    deployment.answers["validate"] = {"ok": True, "request": {}, "warnings": []}
    return deployment


def warnings_of(result: Any) -> list[str]:
    return [warning["problem"] for warning in json.loads(result.stdout)["warnings"]]


def test_a_good_job_has_nothing_wrong(
    accepted: Any, spotkeep: Any, job_file: Path, snapshot: SnapshotAssertion
) -> None:
    result = spotkeep("doctor", "job.yaml")
    assert result.exit_code == ExitCode.DONE
    assert result.output == snapshot


def test_without_a_deployment_the_same_rules_apply_here(
    spotkeep: Any, job_file: Path, snapshot: SnapshotAssertion
) -> None:
    result = spotkeep("doctor", "job.yaml", "--set", "max_wait=1h", "--set", "max_runn=2h", reachable=False)
    assert result.exit_code == ExitCode.REFUSED
    assert result.output == snapshot


def test_validate_is_another_name_of_it(accepted: Any, spotkeep: Any, job_file: Path) -> None:
    judged = spotkeep("doctor", str(job_file))
    assert (spotkeep("validate", str(job_file)).output, judged.exit_code) == (judged.output, ExitCode.DONE)


def test_json_says_who_judged(accepted: Any, spotkeep: Any, job_file: Path) -> None:
    assert json.loads(spotkeep("doctor", str(job_file), "--json").stdout) == {
        "ok": True,
        "checked_by": "the launcher",
        "problems": [],
        "warnings": [],
        "spot_or_pool": None,
    }
    assert [call["action"] for call in accepted.invocations] == ["validate"]
    assert accepted.uploads == {}
    refused = spotkeep("doctor", str(job_file), "--json", "--set", "max_run=40d", reachable=False)
    assert refused.exit_code == ExitCode.REFUSED
    document = json.loads(refused.stdout)
    assert (document["ok"], document["checked_by"]) == (False, "here")
    assert document["problems"][0]["field"] == "max_run"


def test_a_deployment_that_breaks_is_not_a_missing_one(deployment: Any, spotkeep: Any, job_file: Path) -> None:
    deployment.answers["validate"] = {"status": "fine"}
    assert spotkeep("doctor", str(job_file)).exit_code == ExitCode.LAUNCHER_FAILED


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"command": "python3 -u trian.py"}, "trian.py is not among the 2 files of the source"),
        ({"command": "python -m missing.module"}, None),
        ({"command": ["bash", "run.sh"]}, "a shell does not pass SIGTERM on"),
        ({"command": 'bash -c "python train.py"'}, "a shell does not pass SIGTERM on"),
        ({"command": ["sh", "-c", 'exec "./$0" "$@"', "train.py"]}, "a shell does not pass SIGTERM on"),
        ({"command": 'bash -c "exec python train.py"'}, None),
        ({"command": "cd src\nbash run.sh\n"}, None),
        ({"command": "pip install x\nmkdir -p a\npython trian.py | tee log\n"}, "trian.py is not among the 2 files"),
        ({"command": "cd src && cd .. && python train.py\n"}, None),
        ({"command": "git clone https://host/x && cd x && python main.py\n"}, None),
        ({"command": "cd $DIR\npython main.py\n"}, None),
        ({"command": "cd ''\npython main.py\n"}, None),
        # The launcher says that these are refused, or that the image's own entry point runs.
        ({"command": "python prepare.py && python trian.py"}, None),
        ({"command": []}, None),
        ({"command": ""}, None),
        ({"command": None, "source": None}, None),
        ({"command": "(cd src && python train.py)\nmkdir -p a && cd a && python ../train.py\n"}, None),
        ({"command": "mkdir -p a && cd a && python ../train.py\n"}, None),
        ({"command": "echo 'import train' > main.py\npython main.py\n"}, None),
        ({"command": "echo starts >&2\npython trian.py\n"}, "trian.py is not among the 2 files"),
        (
            {"command": "if true\npython train.py\n"},
            "bash cannot read it: line 3: syntax error: unexpected end of file",
        ),
        ({"setup": "apt-get update\nif true\n"}, "bash cannot read it: line 3: syntax error: unexpected end of file"),
        ({"checkpoints": False, "max_run": "30m"}, "on spot without checkpoints every interruption starts from zero"),
        ({"checkpoints": False, "capacity": "on-demand"}, None),
        ({"source": None}, "no source is given, so the image itself must hold train.py"),
        ({"source": None, "command": "/opt/program/train"}, None),
    ],
)
def test_what_is_allowed_and_rarely_meant(
    accepted: Any, spotkeep: Any, job_file: Path, changes: dict[str, object], warning: str | None
) -> None:
    overrides = [part for name, value in changes.items() for part in ("--set", f"{name}={json.dumps(value)}")]
    found = warnings_of(spotkeep("doctor", str(job_file), "--json", *overrides))
    assert [text for text in found if warning is None or warning in text] == ([] if warning is None else found)
    assert len(found) == (0 if warning is None else 1)


def test_what_is_a_block_of_lines_is_said(accepted: Any, spotkeep: Any, job_file: Path) -> None:
    blocks = ["--set", "setup=|\n  apt-get update\n\n  apt-get install -y x\n"]
    said = spotkeep("doctor", str(job_file), *blocks).output
    assert "setup: 2 lines for bash -euo pipefail, which ends at the first that fails" in said
    assert "command: " not in said


def test_a_script_that_never_saves(accepted: Any, spotkeep: Any, job_file: Path) -> None:
    (job_file.parent / "train.py").write_text("print('training')\n")
    [warning] = warnings_of(spotkeep("doctor", str(job_file), "--json"))
    assert "would start it from zero" in warning


def test_a_requirements_file_that_is_not_in_the_source(accepted: Any, spotkeep: Any, job_file: Path) -> None:
    [warning] = warnings_of(spotkeep("doctor", str(job_file), "--json", "--set", "install=requirements/train.txt"))
    assert warning.startswith("requirements/train.txt is not among the ")


@pytest.mark.parametrize(
    ("text", "warns"),
    [
        ("a==1\nb==2\n", False),
        ("--no-index\n# all\na==1 \\\n  --hash=sha256:00\nb==2 --hash=sha256:11\n", False),
        ("a==1 \\\n  --hash=sha256:00\nb==2\n", True),
    ],
)
def test_a_requirements_file_with_some_hashes(
    accepted: Any, spotkeep: Any, job_file: Path, text: str, warns: bool
) -> None:
    (job_file.parent / "requirements.txt").write_text(text)
    found = warnings_of(spotkeep("doctor", str(job_file), "--json"))
    assert found == (["1 of 2 requirements have no hash, b==2 first: pip then installs none"] if warns else [])
    assert warnings_of(spotkeep("doctor", str(job_file), "--json", "--set", "install=none")) == []


def test_a_module_is_found_as_its_file(accepted: Any, spotkeep: Any, job_file: Path) -> None:
    (job_file.parent / "pkg").mkdir()
    (job_file.parent / "pkg" / "train.py").write_text("import spotkeep\nthis is no Python\n")
    result = spotkeep("doctor", str(job_file), "--json", "--set", "command=python -m pkg.train")
    assert warnings_of(result)[0].startswith("pkg/train.py:2 does not compile")


def test_a_shell_script_that_hands_over_with_exec(accepted: Any, spotkeep: Any, job_file: Path) -> None:
    (job_file.parent / "run.sh").write_text("#!/bin/sh\nexec python train.py\n")
    assert warnings_of(spotkeep("doctor", str(job_file), "--json", "--set", "command=sh run.sh")) == []


def test_a_script_that_git_ignores(accepted: Any, spotkeep: Any, job_file: Path) -> None:
    import subprocess

    subprocess.run(["git", "-C", str(job_file.parent), "init", "-q"], check=True)
    (job_file.parent / ".gitignore").write_text("train.py\n")
    result = spotkeep("doctor", str(job_file), "--json")
    assert "git ignores it" in json.loads(result.stdout)["warnings"][0]["fix"]


def test_warnings_stand_in_the_order_of_the_file(accepted: Any, spotkeep: Any, job_file: Path) -> None:
    accepted.answers["validate"]["warnings"] = ["the image is not in Amazon ECR"]
    result = spotkeep("doctor", str(job_file), "--set", "capacity=spot", "--set", "checkpoints=false")
    assert result.exit_code == ExitCode.DONE
    assert result.stdout.index("checkpoints") < result.stdout.index("Next:")
    assert "! the image is not in Amazon ECR" in result.stdout


@pytest.mark.parametrize("command", ["doctor", "launch"])
def test_a_source_that_is_not_there_is_reported_with_the_other_problems(
    deployment: Any, spotkeep: Any, job_file: Path, command: str
) -> None:
    problem = {"field": "max_run", "found": "'40d'", "problem": "is out of range", "fix": "Choose less."}
    deployment.answers["validate"] = {"ok": False, "problems": [problem], "warnings": []}
    result = spotkeep(command, str(job_file), "--set", "max_run=40d", "--set", "source=nowhere")
    assert result.exit_code == ExitCode.REFUSED
    assert "max_run" in result.output
    assert "there is no directory nowhere" in result.output


def test_a_source_that_is_not_there_is_a_problem_even_if_the_launcher_finds_none(
    accepted: Any, spotkeep: Any, job_file: Path
) -> None:
    result = spotkeep("launch", str(job_file), "-y", "--set", "source=nowhere")
    assert result.exit_code == ExitCode.REFUSED
    assert [call["action"] for call in accepted.invocations] == ["validate"]
