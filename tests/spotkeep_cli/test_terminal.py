"""How a command ends: with what is useful now, whole commands, and why."""

import pytest

from spotkeep_cli.terminal import NextStep, Terminal

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


def test_a_program_gets_no_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal(as_json=True).show_next(*STEPS)
    assert capsys.readouterr().out == ""
