"""A rehearsal reads secrets of the local AWS by their names, and says what is missing there."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from spotkeep_cli.errors import UsageError
from spotkeep_cli.launching.job_file import read_job_file
from spotkeep_cli.rehearsal import deployment
from spotkeep_cli.rehearsal.deployment import (
    QUICK_SYNC,
    require_local_secrets,
    require_no_file_systems,
    secret_settings,
    secrets_of,
    with_local_secrets,
)
from spotkeep_cli.rehearsal.view import RehearsalView
from tests.models.secrets_manager import SecretsManager

JOB = """
name: digits
command: python train.py
secrets:
  HF_TOKEN: hf
  WANDB: "arn:aws:secretsmanager:eu-west-1:123456789012:secret:team/keys-Ab12Cd:wandb::"
  OTHER: arn:aws:secretsmanager:eu-west-1:123456789012:secret:team/keys-Ab12Cd
source:
  git: https://github.com/team/a.git
  commit: 0f4b7c1d2e3a49586776859403a2b1c0d9e8f7a6
  secret: arn:aws:secretsmanager:eu-west-1:123456789012:secret:github-Zz99Yy
"""


@pytest.fixture
def fields(tmp_path: Path) -> Any:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return with_local_secrets(read_job_file(path)).fields


def test_whole_arns_become_names_and_keys_stay(fields: dict[str, Any]) -> None:
    assert fields["secrets"] == {"HF_TOKEN": "hf", "WANDB": "team/keys:wandb::", "OTHER": "team/keys"}
    assert fields["source"]["secret"] == "github"
    assert secrets_of(fields) == ["github", "hf", "team/keys"]
    assert secret_settings(fields) == {"secrets": "github,hf,team/keys", "secret_key_arns": ""}


class Lifecycle:
    """The local AWS of a state directory."""

    def __init__(self) -> None:
        self.running: Any = None

    def start(self, *_: Any, **__: Any) -> Any:
        self.running = SimpleNamespace(endpoint_url="http://127.0.0.1:4566", pid=7)
        return self.running

    def status(self, _: Path) -> Any:
        return self.running

    def stop(self, _: Path) -> None:
        self.running = None


def test_of_rehearsals_at_a_time_the_last_one_stops_the_local_aws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Lifecycle()
    monkeypatch.setattr(deployment, "lifecycle", server)

    def rehearsal(*, keep_running: bool = False) -> Any:
        view = RehearsalView(Console(file=io.StringIO()))
        return deployment.local_aws(tmp_path / "local", options=QUICK_SYNC, keep_running=keep_running, view=view)

    first, second = rehearsal(), rehearsal()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert server.running is not None
    second.__exit__(None, None, None)
    assert server.running is None
    with rehearsal():
        pass
    assert server.running is None
    server.start()
    with rehearsal():
        pass
    assert server.running is not None, "it ran before the rehearsal"
    server.stop(tmp_path)
    with rehearsal(keep_running=True):
        pass
    assert server.running is not None


@pytest.mark.parametrize("given", [{}, {"secrets": None}, {"secrets": {}}, {"source": "src"}, {"source": {"uri": "a"}}])
def test_a_job_without_secrets_changes_nothing(tmp_path: Path, given: dict[str, Any]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: digits\n")
    document = read_job_file(path).with_fields(given)
    assert with_local_secrets(document) is document
    assert secret_settings(document.fields) == {}
    require_local_secrets(local_aws(SecretsManager()), document.fields)


@pytest.mark.parametrize(
    "channels",
    [
        {
            "train": {"fsx": "fs-0123abcd", "path": "/m"},
            "test": "s3://data/",
            "more": {"efs": "fs-0123abcd", "path": "/"},
        },
        [
            {"name": "train", "fsx": "fs-0123abcd"},
            {"name": "test", "uri": "s3://data/"},
            {"name": "more", "efs": "fs-1"},
        ],
    ],
)
def test_a_job_on_file_systems_is_rehearsed_with_data_in_s3(channels: Any) -> None:
    with pytest.raises(UsageError, match="channel train, more is on one: nothing was rehearsed") as refused:
        require_no_file_systems({"channels": channels})
    assert "--set channels.train=s3://BUCKET/PREFIX --set channels.more=" in str(refused.value.hint)
    with pytest.raises(UsageError) as of_checkpoints:
        require_no_file_systems({"channels": channels, "checkpoint_channel": "more"})
    assert of_checkpoints.value.hint == f"{refused.value.hint} --set checkpoint_channel="
    require_no_file_systems({"channels": {"test": "s3://data/"}})
    require_no_file_systems({})


def local_aws(secrets: SecretsManager) -> Any:
    return SimpleNamespace(session=lambda: SimpleNamespace(client=lambda _service: secrets))


def test_what_the_local_aws_lacks_is_named_with_the_commands_that_make_it(fields: dict[str, Any]) -> None:
    aws = SecretsManager()
    aws.put("hf", "a")
    aws.put("github", "a", deleted=True)
    with pytest.raises(UsageError, match="has no secret github, team/keys, and takes none from an account") as refused:
        require_local_secrets(local_aws(aws), fields)
    assert refused.value.hint is not None
    assert "create-secret --name team/keys " in refused.value.hint
    aws.put("github", "a")
    aws.put("team/keys", "a")
    require_local_secrets(local_aws(aws), fields)
