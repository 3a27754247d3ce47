"""How a command asks, and how it ends: with what is useful now, whole commands, and why."""

import io
import sys
from typing import Any

import pytest
from rich.text import Text

from spotkeep_cli.errors import LocatedProblem, NotConfirmedError
from spotkeep_cli.terminal import NextStep, Terminal, problem_list

STEPS = (
    NextStep(command="spotkeep doctor examples/digits/job.yaml", what="check the job for AWS"),
    NextStep(command="spotkeep launch examples/digits/job.yaml", what="launch it, once the app is deployed"),
)


def test_what_a_command_is_good_for_stands_beside_it_where_there_is_room(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    Terminal().show_next(*STEPS)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "Next: spotkeep doctor examples/digits/job.yaml  check the job for AWS",
        "      spotkeep launch examples/digits/job.yaml  launch it, once the app is deployed",
    ]


def test_and_below_it_where_there_is_not(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    Terminal().show_next(*STEPS)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "Next: spotkeep doctor examples/digits/job.yaml",
        "        check the job for AWS",
        "      spotkeep launch examples/digits/job.yaml",
        "        launch it, once the app is deployed",
    ]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_text_that_may_not_fold_stays_whole(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    if is_terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    path = f"/home/ada/{'folder/' * 8}report.html"

    Terminal(as_json=False).show("", Text(f"Report: {path}\nNext", no_wrap=True, overflow="ignore"))

    assert f"Report: {path}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ({"line": 9}, "✗ distributed  line 9  found mpi"),
        ({"option": "distributed"}, "✗ distributed  --set  found mpi"),
        ({"option": "distributed.launcher"}, "✗ distributed  --set distributed.launcher  found mpi"),
        ({}, "✗ distributed  found mpi"),
    ],
)
def test_a_problem_says_where_its_value_comes_from(
    place: dict[str, Any], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = LocatedProblem(field="distributed", found="mpi", problem="is not torchrun", fix="", **place)
    Terminal().show(problem_list([problem]))
    assert capsys.readouterr().out.splitlines()[0].strip() == shown


def test_a_program_gets_no_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal(as_json=True).show_next(*STEPS)
    assert capsys.readouterr().out == ""


class Keyboard(io.StringIO):
    """Standard input with a user at it."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "agrees"), [("y\n", True), (" YES \n", True), ("\n", False), ("no\n", False), ("", False)]
)
def test_only_yes_is_a_yes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str, agrees: bool
) -> None:
    monkeypatch.setattr(sys, "stdin", Keyboard(typed))
    if agrees:
        Terminal().confirm("Launch it?", assume_yes=False)
    else:
        with pytest.raises(NotConfirmedError, match="nothing was done"):
            Terminal().confirm("Launch it?", assume_yes=False)
    assert capsys.readouterr().err.startswith("Launch it? [y/N] ")
