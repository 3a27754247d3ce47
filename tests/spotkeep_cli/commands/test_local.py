"""`spotkeep local`: up, looked at, down, with a directory of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spotkeep_cli.connection import LOCAL_STATE_VARIABLE, local_state_directory, project_directory
from spotkeep_cli.errors import ExitCode
from spotkeep_local import cdk, lifecycle
from spotkeep_local.errors import ToolkitError


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory without an app, and a state directory that is emptied of its server afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(LOCAL_STATE_VARIABLE, str(tmp_path / "state"))
    return tmp_path / "state"


def test_up_status_env_down(spotkeep: Any, state: Path) -> None:
    port = lifecycle.free_port()
    try:
        up = spotkeep("local", "up", "--port", str(port))
        assert up.exit_code == ExitCode.DONE, up.output
        assert f"The local AWS is up at http://127.0.0.1:{port}" in up.stdout
        assert "There is no cdk.json here or above" in up.stderr

        again = json.loads(spotkeep("local", "up", "--json").stdout)
        assert (again["running"], again["port"], again["deployed"]) == (True, port, False)

        other = spotkeep("local", "up", "--port", str(lifecycle.free_port()))
        assert other.exit_code == ExitCode.LOCAL_AWS_FAILED
        assert str(port) in other.stderr

        status = spotkeep("local", "status")
        assert status.exit_code == ExitCode.DONE
        assert "nothing as spotkeep" in status.stdout
        assert f"AWS_ENDPOINT_URL=http://127.0.0.1:{port}" in spotkeep("local", "env").stdout
        assert json.loads(spotkeep("local", "env", "--json").stdout)["AWS_ENDPOINT_URL"].endswith(str(port))
    finally:
        down = spotkeep("local", "down", "--json")
    assert json.loads(down.stdout) == {"stopped": True}
    assert spotkeep("local", "status").exit_code == ExitCode.NO_CONNECTION
    assert "was not running" in spotkeep("local", "down").stdout


def test_a_port_that_somebody_has_is_said(spotkeep: Any, state: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = spotkeep("local", "up", "--port", str(port))
    assert result.exit_code == ExitCode.LOCAL_AWS_FAILED
    assert f"Error: port {port} of 127.0.0.1 is in use" in result.stderr


def test_a_deployment_that_fails_gives_the_toolkits_own_words(
    spotkeep: Any, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (state.parent / "cdk.json").write_text("{}")

    def failing(*_args: Any, **_kwargs: Any) -> bool:
        raise ToolkitError("cdk deploy", exit_code=1, last_words=["Spotkeep-Storage failed: no such thing"])

    monkeypatch.setattr(cdk, "bootstrap", failing)
    monkeypatch.setattr(lifecycle, "start", lambda *_args: None)
    result = spotkeep("local", "up")
    assert result.exit_code == ExitCode.LOCAL_AWS_FAILED
    assert "`cdk deploy` failed with exit code 1" in result.stderr
    assert "Spotkeep-Storage failed: no such thing" in result.stderr


def test_the_project_is_the_nearest_directory_with_an_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LOCAL_STATE_VARIABLE, raising=False)
    (tmp_path / "cdk.json").write_text("{}")
    inner = tmp_path / "examples" / "digits"
    inner.mkdir(parents=True)
    assert project_directory(start=inner) == tmp_path.resolve()
    assert local_state_directory(start=inner) == tmp_path.resolve() / ".spotkeep" / "local"
    state = tmp_path / ".spotkeep" / "tmp" / "scratch"
    state.mkdir(parents=True)
    assert project_directory(start=state) == state.resolve()
    elsewhere = tmp_path.parent
    assert project_directory(start=elsewhere) == elsewhere.resolve()
