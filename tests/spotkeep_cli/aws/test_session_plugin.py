"""AWS's plugin of Session Manager, a stand-in here: how it is found, what it gets, whose the signals are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spotkeep_cli.aws.session_plugin import PROGRAM, find_plugin, run_session
from spotkeep_cli.errors import NoConnectionError

SESSION = {"SessionId": "s-1", "TokenValue": "let-me-in", "StreamUrl": "wss://somewhere"}
PARAMETERS = {"Target": "i-1"}
ROOT = Path(__file__).parent.parent.parent.parent
Install = Callable[[str], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a program of this text in the plugin's place, alone on the PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def put(text: str) -> Path:
        program = tmp_path / PROGRAM
        program.write_text(text)
        program.chmod(0o755)
        return program

    return put


def run(plugin: Path) -> int:
    return run_session(
        str(plugin),
        session=SESSION,
        parameters=PARAMETERS,
        region="eu-central-1",
        profile="team",
        endpoint_url="https://ssm.eu-central-1.amazonaws.com",
    )


@pytest.mark.parametrize("version", ["1.2.498.0", "1.2.764.0", "2.0.0.0", "a development build"])
def test_a_plugin_that_keeps_the_token_to_itself_is_taken(install: Install, version: str) -> None:
    plugin = install(f"#!/bin/sh\necho {version}\n")
    assert find_plugin() == str(plugin)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "is not on the PATH"),
        ("#!/bin/sh\nexit 1\n", "does not start"),
        ("no program", "does not start"),
        ("#!/bin/sh\necho 1.2.497.0\n", "1.2.497.0 would show the session's token"),
    ],
)
def test_without_one_it_says_where_to_get_one(install: Install, text: str | None, problem: str) -> None:
    if text is not None:
        install(text)
    with pytest.raises(NoConnectionError, match=problem) as refused:
        find_plugin()
    assert "https://docs.aws.amazon.com/systems-manager/" in refused.value.hint


def test_the_session_goes_through_the_environment_and_everything_else_by_arguments(
    install: Install, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    lines = 'printf "%s\\n" "$@" "$AWS_SSM_START_SESSION_RESPONSE"'
    plugin = install(f"#!/bin/sh\n{lines} > {said}\nexit 3\n")
    before = signal.getsignal(signal.SIGINT)
    assert run(plugin) == 3
    assert signal.getsignal(signal.SIGINT) is before
    variable, region, operation, profile, parameters, endpoint, session = said.read_text().splitlines()
    assert (variable, region, operation) == ("AWS_SSM_START_SESSION_RESPONSE", "eu-central-1", "StartSession")
    assert (profile, endpoint) == ("team", "https://ssm.eu-central-1.amazonaws.com")
    assert (json.loads(parameters), json.loads(session)) == (PARAMETERS, SESSION)
    assert "AWS_SSM_START_SESSION_RESPONSE" not in os.environ


def test_ctrl_c_is_the_sessions(install: Install, tmp_path: Path) -> None:
    """A process group gets SIGINT, as of a terminal: the plugin handles it, and the command waits for the plugin."""
    said = tmp_path / "said"
    plugin = install(
        f"#!{sys.executable}\nimport os, signal, time\n"
        f"signal.signal(signal.SIGINT, lambda *_: open({str(said)!r}, 'w').write('handled'))\n"
        "os.killpg(0, signal.SIGINT)\ntime.sleep(0.1)\nraise SystemExit(5)\n"
    )
    code = f"from tests.spotkeep_cli.aws.test_session_plugin import run; raise SystemExit(run({str(plugin)!r}))"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, start_new_session=True, check=False)
    assert (ended.returncode, said.read_text()) == (5, "handled")
