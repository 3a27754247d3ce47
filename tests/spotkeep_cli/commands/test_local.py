"""`spotkeep local`: up, status, down, with a directory of its own."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from spotkeep_cli.aws import connection
from spotkeep_cli.aws.connection import (
    LOCAL_STATE_VARIABLE,
    app_directory,
    app_to_deploy,
    local_state_directory,
    project_directory,
)
from spotkeep_cli.aws.connection_options import ConnectionOptions
from spotkeep_cli.errors import ExitCode, NoConnectionError
from spotkeep_cli.rehearsal.deployment import QUICK_SYNC, local_aws
from spotkeep_cli.rehearsal.view import RehearsalView
from spotkeep_local import cdk, lifecycle
from spotkeep_local.errors import ToolkitError

APP = '{"app": ".venv/bin/python app.py", "context": {"spotkeep": {}}}'


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory without an app, and a state directory that is emptied of its server afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(LOCAL_STATE_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setattr(connection, "INSTALLED_FROM", None)
    return tmp_path / "state"


@pytest.mark.long
def test_up_status_env_down(spotkeep: Any, state: Path) -> None:
    port = lifecycle.free_port()
    try:
        up = spotkeep("local", "up", "--no-deploy", "--port", str(port))
        assert up.exit_code == ExitCode.DONE, up.output
        assert f"The local AWS is up at http://127.0.0.1:{port}" in up.stdout
        assert "deployed" not in up.stdout

        again = json.loads(spotkeep("local", "up", "--no-deploy", "--json").stdout)
        assert (again["running"], again["port"], again["deployed"]) == (True, port, False)

        other = spotkeep("local", "up", "--port", str(lifecycle.free_port()))
        assert other.exit_code == ExitCode.LOCAL_AWS_FAILED
        assert str(port) in other.stderr

        status = spotkeep("local", "status")
        assert status.exit_code == ExitCode.DONE
        assert "nothing as spotkeep" in status.stdout
        exports = spotkeep("local", "env").stdout
        shell = ["sh", "-c", f'{exports}\nprintf %s "$AWS_ENDPOINT_URL"']
        assert subprocess.run(shell, capture_output=True, text=True, check=True).stdout == f"http://127.0.0.1:{port}"
        environment = json.loads(spotkeep("local", "env", "--json").stdout)
        assert environment["AWS_ENDPOINT_URL"].endswith(str(port))
        # A shell that evaluated it finds this local AWS from every folder.
        assert environment[LOCAL_STATE_VARIABLE] == str(state)
    finally:
        down = spotkeep("local", "down", "--json")
    assert json.loads(down.stdout) == {"stopped": True}
    assert spotkeep("local", "status").exit_code == ExitCode.NO_CONNECTION
    assert "was not running" in spotkeep("local", "down").stdout


@pytest.mark.parametrize("deploys", ["--deploy", "--no-deploy"])
def test_a_local_aws_that_a_rehearsal_uses_is_left_to_it(
    spotkeep: Any, state: Path, monkeypatch: pytest.MonkeyPatch, deploys: str
) -> None:
    """A deployment would change what is rehearsed, and the rehearsal may stop the server at its end."""
    running = SimpleNamespace(endpoint_url="http://127.0.0.1:4566", pid=7)
    monkeypatch.setattr(lifecycle, "start", lambda *_, **__: running)
    monkeypatch.setattr(lifecycle, "status", lambda _: running)
    view = RehearsalView(Console(file=io.StringIO()))
    with local_aws(state, options=QUICK_SYNC, keep_running=True, view=view):
        refused = spotkeep("local", "up", deploys)
    assert refused.exit_code == ExitCode.LOCAL_AWS_FAILED
    assert "a rehearsal uses the local AWS" in refused.stderr
    assert f"{LOCAL_STATE_VARIABLE}=" in refused.stderr
    found = spotkeep("local", "up", "--no-deploy")
    assert found.exit_code == ExitCode.DONE
    assert "It ran already, with the settings of its start." in found.stdout


def test_the_status_of_none_is_json_too(spotkeep: Any, state: Path) -> None:
    status = spotkeep("local", "status", "--json")
    assert (status.exit_code, json.loads(status.stdout)) == (ExitCode.NO_CONNECTION, {"running": False})


def test_a_local_aws_that_is_not_up_says_how_to_start_it(state: Path) -> None:
    with pytest.raises(NoConnectionError) as failure:
        connection.connect(ConnectionOptions(local=True))
    assert failure.value.message == f"the local AWS is not running (looked in {state.name})"
    assert failure.value.hint == "start it: spotkeep local up"


def test_a_port_that_another_process_has_is_said(spotkeep: Any, state: Path) -> None:
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
    (state.parent / "cdk.json").write_text(APP)

    def failing(*_args: Any, **_kwargs: Any) -> bool:
        raise ToolkitError("cdk deploy", exit_code=1, last_words=["Spotkeep-Storage failed: no such thing"])

    monkeypatch.setattr(cdk, "bootstrap", failing)
    monkeypatch.setattr(lifecycle, "start", lambda *_args, **_options: None)
    result = spotkeep("local", "up")
    assert result.exit_code == ExitCode.LOCAL_AWS_FAILED
    assert "`cdk deploy` failed with exit code 1" in result.stderr
    assert "Spotkeep-Storage failed: no such thing" in result.stderr


def test_the_project_is_the_nearest_one_upwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LOCAL_STATE_VARIABLE, raising=False)
    (tmp_path / "cdk.json").write_text(APP)
    inner = tmp_path / "examples" / "digits"
    inner.mkdir(parents=True)
    assert project_directory(start=inner) == tmp_path.resolve()
    assert local_state_directory(start=inner) == tmp_path.resolve() / ".spotkeep" / "local"


def test_from_any_other_folder_it_is_the_checkout_that_the_command_is_installed_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(LOCAL_STATE_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    assert connection.INSTALLED_FROM is not None
    assert (connection.INSTALLED_FROM / "app.py").is_file()
    assert app_directory() == connection.INSTALLED_FROM
    assert local_state_directory() == connection.INSTALLED_FROM / ".spotkeep" / "local"
    # So it is beside a CDK app of the user's own.
    (tmp_path / "cdk.json").write_text('{"app": "python3 app.py"}')
    assert app_directory() == connection.INSTALLED_FROM


def test_a_command_without_a_checkout_keeps_its_state_where_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(LOCAL_STATE_VARIABLE, raising=False)
    monkeypatch.setattr(connection, "INSTALLED_FROM", None)
    assert app_directory(start=tmp_path) is None
    assert local_state_directory(start=tmp_path) == tmp_path / ".spotkeep" / "local"
    app = app_to_deploy(start=tmp_path)
    assert app == tmp_path.resolve() / ".spotkeep" / "app"
    assert json.loads((app / "cdk.json").read_text())["app"] == "python app.py"
    (app / "app.py").write_text("of an earlier version")
    app_to_deploy(start=tmp_path)
    assert "spotkeep_stacks" in (app / "app.py").read_text()


def test_a_folder_of_a_projects_state_is_no_part_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "INSTALLED_FROM", None)
    (tmp_path / "cdk.json").write_text(APP)
    state = tmp_path / ".spotkeep" / "tmp" / "scratch"
    state.mkdir(parents=True)
    assert app_directory(start=state) is None


def test_a_program_stands_for_an_image(spotkeep: Any, local_aws: lifecycle.LocalAws, monkeypatch: Any) -> None:
    monkeypatch.setenv(LOCAL_STATE_VARIABLE, str(local_aws.state_dir))
    named = spotkeep("local", "image", "trees:1", "python3", "/home/ada/my trees.py")
    assert named.exit_code == 0
    assert named.stdout.strip() == "trees:1 runs python3 '/home/ada/my trees.py' train."
