"""`spotkeep shell`: asks the launcher, and hands its session to the plugin."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spotkeep_cli.errors import ExitCode

RUN = "digits-1a2b3c4d"
ANSWER = {
    "ok": True,
    "run": RUN,
    "session": {"SessionId": "s-1", "TokenValue": "let-me-in", "StreamUrl": "wss://somewhere"},
    "parameters": {"Target": "i-1"},
}


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """A plugin that ends with exit code 0; returns what it was called with."""
    said, program = tmp_path / "said", tmp_path / "session-manager-plugin"
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo 1.2.764.0 && exit\nprintf "%s\\n" "$@" > {said}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return lambda: said.read_text().splitlines() if said.exists() else []


@pytest.fixture
def run(deployment: Any, make: Any) -> str:
    deployment.dynamodb.add(make.run(RUN))
    deployment.answers["shell"] = ANSWER
    return RUN


def test_it_opens_a_shell_and_says_what_comes_next(
    spotkeep: Any, deployment: Any, run: str, plugin: Callable[[], list[str]]
) -> None:
    result = spotkeep("--profile", "team", "shell", run[:8])
    assert result.exit_code == ExitCode.DONE, result.output
    assert deployment.invocations == [{"action": "shell", "run": RUN, "host": 1}]
    assert plugin()[1:] == [
        "eu-central-1", "StartSession", "team", '{"Target": "i-1"}', "https://ssm.eu-central-1.amazonaws.com",
    ]  # fmt: skip
    assert f"i-1, of {RUN}" in result.stderr
    assert f"spotkeep --profile team logs {RUN} -f" in result.stdout
    assert "let-me-in" not in result.output


@pytest.mark.parametrize(
    ("typed", "command"),
    [(["nvidia-smi"], "nvidia-smi"), (["ls | wc -l"], "ls | wc -l"), (["ls", "-l", "a b"], "ls -l 'a b'")],
)
def test_a_commands_output_is_all_there_is(
    spotkeep: Any, deployment: Any, run: str, plugin: Callable[[], list[str]], typed: list[str], command: str
) -> None:
    result = spotkeep("shell", run, "--host", "2", "--", *typed)
    assert result.exit_code == ExitCode.DONE, result.output
    assert deployment.invocations == [{"action": "shell", "run": RUN, "host": 2, "command": command}]
    assert (bool(plugin()), result.stdout) == (True, "")


def test_without_the_plugin_no_session_is_started(
    spotkeep: Any, deployment: Any, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = spotkeep("shell", run)
    assert (result.exit_code, deployment.invocations) == (ExitCode.NO_CONNECTION, [])
    assert "session-manager-plugin is not on the PATH" in result.stderr


@pytest.mark.parametrize(("until", "exit_code"), [(3, ExitCode.DONE), (1000, ExitCode.REFUSED)])
def test_an_agent_that_is_not_connected_yet_is_waited_for(
    spotkeep: Any, deployment: Any, run: str, plugin: Callable[[], list[str]], until: int, exit_code: ExitCode
) -> None:
    problem = {"field": "run", "found": "no agent", "problem": "has no connection", "fix": "Try again in a minute."}

    class Answers(dict[str, Any]):
        def __getitem__(self, action: str) -> Any:
            connected = len(deployment.invocations) >= until
            return ANSWER if connected else {"ok": False, "problems": [problem], "temporary": True}

    deployment.answers = Answers()
    result = spotkeep("shell", run)
    assert result.exit_code == exit_code, result.output
    assert len(deployment.invocations) == min(until, 25), "two minutes, and no longer"
    assert bool(plugin()) == (exit_code is ExitCode.DONE)


def test_a_refusal_says_what_to_do(spotkeep: Any, deployment: Any, run: str, plugin: Callable[[], list[str]]) -> None:
    problem = {"field": "debug", "found": "false", "problem": "was not asked for", "fix": "Set it."}
    deployment.answers["shell"] = {"ok": False, "problems": [problem]}
    result = spotkeep("shell", run)
    assert (result.exit_code, plugin()) == (ExitCode.REFUSED, [])
    assert "no shell was opened in digits-1a2b3c4d: 1 problem" in result.stderr
    assert "Set it." in result.stderr
