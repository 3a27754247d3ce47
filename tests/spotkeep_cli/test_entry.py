"""The console script: who answers a command line, and its answers where an extra is missing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from spotkeep_cli import entry, extras
from spotkeep_cli.main import app
from spotkeep_constructs import carried


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let modules be not installed, and the package be from a wheel in an environment without pip on PATH."""

    def remove(*modules: str) -> None:
        is_there = extras._is_installed
        monkeypatch.setattr(extras, "_is_installed", lambda module: module not in modules and is_there(module))
        monkeypatch.setattr(carried, "checkout", lambda: None)
        monkeypatch.setattr("shutil.which", lambda name: None)

    return remove


@pytest.mark.parametrize(
    ("arguments", "command", "extra", "module"),
    [
        (["launch", "job.yaml"], "launch", "cli", "typer"),
        (["--local", "--deployment", "lab", "ps"], "ps", "cli", "typer"),
        (["local", "up"], "local", "local", "hypercorn"),
        (["rehearse", "job.yaml"], "rehearse", "local", "hypercorn"),
        (["plan", "job.yaml"], "plan", "planner", "matplotlib"),
        (["cdk", "deploy"], "cdk", "cdk", "aws_cdk"),
    ],
)
def test_a_command_without_its_extra_is_answered(
    without: Any, capsys: pytest.CaptureFixture[str], arguments: list[str], command: str, extra: str, module: str
) -> None:
    without(module)
    assert entry.main(arguments) == extras.EXIT_CODE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        f"Error: `spotkeep {command}` needs the extra '{extra}', which is not installed ({module} is missing)\n"
        f"Hint: {sys.executable} -m pip install 'spotkeep[{extra}]'\n"
    )


def test_a_module_that_is_missed_in_the_middle_is_answered_too(
    without: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_arguments: object) -> int:
        raise RuntimeError from ModuleNotFoundError("No module named 'pandas.core'", name="pandas.core")

    def fail_at_once(_arguments: object) -> int:
        raise ModuleNotFoundError("No module named 'pandas.core'", name="pandas.core")

    without("pandas")
    monkeypatch.setattr("spotkeep_cli.main.main", fail_at_once)
    assert entry.main(["ps"]) == extras.EXIT_CODE
    assert "needs the extra 'client'" in capsys.readouterr().err
    monkeypatch.setattr("spotkeep_cli.main.main", fail)
    with pytest.raises(RuntimeError):
        entry.main(["ps"])


def test_an_error_of_another_module_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_arguments: object) -> int:
        raise ModuleNotFoundError("No module named 'sklearn_of_mine'", name="sklearn_of_mine")

    monkeypatch.setattr("spotkeep_cli.main.main", fail)
    with pytest.raises(ModuleNotFoundError):
        entry.main(["ps"])


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        (["rehearse", "--", "python", "train.py"], ["--", "python", "train.py"]),
        (["--local", "rehearse", "--for", "2m", "--", "python"], ["--for", "2m", "--", "python"]),
    ],
)
def test_a_command_behind_two_dashes_goes_to_the_judge(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], given: list[str]
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr("spotkeep_rehearsal.command.main", lambda words: asked.append(words) or 2)
    assert entry.main(arguments) == 2
    assert asked == [given]


def test_every_command_is_listed_with_its_extra() -> None:
    registered = {
        each.name or each.callback.__name__.replace("_", "-")
        for each in app.registered_commands
        if not each.hidden and each.callback is not None
    } | {str(group.name) for group in app.registered_groups}
    assert sorted(name for name, _, _ in entry.COMMANDS) == sorted(registered)
    assert {extra for _, extra, _ in entry.COMMANDS} - {""} <= set(extras.EXTRAS)


def test_help_and_version_need_nothing(without: Any, capsys: pytest.CaptureFixture[str]) -> None:
    without("typer")
    assert entry.main(["--help"]) == 0
    listed = capsys.readouterr().out
    assert all(f"  {name} " in listed for name, _, _ in entry.COMMANDS)
    assert entry.main([]) == 0
    assert entry.main(["--version"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("spotkeep ")


def test_an_older_python_is_named(
    without: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without()
    monkeypatch.setattr(extras, "OLDEST_PYTHON", (4, 0))
    assert entry.main(["launch"]) == extras.EXIT_CODE
    here = ".".join(map(str, sys.version_info[:2]))
    assert capsys.readouterr().err == (
        f"Error: `spotkeep launch` needs Python 4.0 or later and the extra 'cli'; this is Python {here}\n"
        "Hint: python4.0 -m pip install 'spotkeep[cli]'\n"
    )


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("uv-receipt.toml", "uv tool install 'spotkeep[local,planner]'"),
        ("pipx_metadata.json", "pipx install --force 'spotkeep[local,planner]'"),
    ],
)
def test_a_tools_environment_is_made_anew_with_what_it_had(
    without: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, command: str
) -> None:
    without("hypercorn", "pandas", "sagemaker")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (tmp_path / file).touch()
    assert extras.install_command("local") == command


def test_uvx_installs_and_runs_in_one(without: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without()
    prefix = tmp_path / "uv" / "archive-v0" / "0a1b2c"
    prefix.mkdir(parents=True)
    (prefix / "pyvenv.cfg").touch()
    monkeypatch.setattr(sys, "prefix", str(prefix))
    command = extras.install_command("cli", arguments=["launch", "my job.yaml"])
    assert command == "uvx --from 'spotkeep[cli]' spotkeep launch 'my job.yaml'"


def test_in_a_checkout_the_extra_is_added_to_it() -> None:
    assert extras.install_command("client").endswith(f"-m pip install -e {carried.checkout()}'[client]'") or (
        extras.install_command("client").endswith(f"-m pip install -e '{carried.checkout()}[client]'")
    )
