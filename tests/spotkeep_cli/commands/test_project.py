"""`spotkeep cdk` and `spotkeep init`, as commands among the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spotkeep_cli.aws import connection
from spotkeep_cli.errors import ExitCode
from spotkeep_local import cdk


@pytest.fixture
def toolkit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], list[str]]:
    """A command line that writes down its words and its environment, in a folder without a project."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(connection, "INSTALLED_FROM", None)
    program = tmp_path / "cdk"
    said = """printf '%s\\n' "$PWD" "$AWS_PROFILE" "$CDK_DEFAULT_REGION" "$AWS_ENDPOINT_URL" "$@" >"$OLDPWD/said" """
    program.write_text(f"#!/bin/sh\n{said}\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("OLDPWD", str(tmp_path))
    monkeypatch.setattr(cdk, "_command_line", lambda _project: program)
    return lambda: (tmp_path / "said").read_text().splitlines()


def a_project(folder: Path) -> None:
    (folder / "cdk.json").write_text('{"app": "python app.py", "context": {"spotkeep": {}}}')


def test_the_words_reach_the_cdk_as_they_are(
    spotkeep: Any, toolkit: Callable[[], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_project(tmp_path)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    words = ("deploy", "--all", "-c", "notify_emails=ada@example.com", "--require-approval", "never")
    done = spotkeep("cdk", *words, "--profile", "team", "--region", "eu-west-1")
    assert done.exit_code == 3
    assert toolkit() == [str(tmp_path.resolve()), "team", "eu-west-1", "", *words]
    spotkeep("cdk", "--help")
    assert toolkit()[4:] == ["--help"]


def test_an_account_gets_no_app_but_a_projects(spotkeep: Any, toolkit: Callable[[], list[str]], tmp_path: Path) -> None:
    refused = spotkeep("cdk", "deploy", "--all")
    assert refused.exit_code == ExitCode.USAGE
    assert "there is no project here or above" in refused.stderr
    assert "spotkeep init my-team" in refused.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"cdk"}


def test_local_reaches_the_local_aws_alone(
    spotkeep: Any, toolkit: Callable[[], list[str]], local_aws: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(connection.LOCAL_STATE_VARIABLE, str(local_aws.state_dir))
    monkeypatch.setenv("AWS_PROFILE", "production")
    assert spotkeep("--local", "cdk", "diff").exit_code == 3
    folder, profile, _region, endpoint, *words = toolkit()
    assert folder.endswith("/.spotkeep/app")
    assert (profile, endpoint, words) == ("", local_aws.endpoint_url, ["diff"])


def test_init_is_listed_and_does_the_same(spotkeep: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert spotkeep("init", "my-team").exit_code == 0
    assert (tmp_path / "my-team" / "app.py").is_file()
    assert spotkeep("init", "my-team").exit_code == ExitCode.USAGE
