"""The sessions of the command line: how often they ask is ours to say, unless the user's configuration says it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spotkeep_cli.aws.connection import aws_session
from spotkeep_cli.aws.connection_options import ConnectionOptions
from spotkeep_cli.errors import NoConnectionError
from spotkeep_local.principals import AccessKey, Principal
from spotkeep_local.service_base.clients import LocalSession


@pytest.fixture(autouse=True)
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("AWS_RETRY_MODE", "AWS_MAX_ATTEMPTS", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    (tmp_path / "config").write_text("[profile patient]\nretry_mode = adaptive\nmax_attempts = 9\n")
    return tmp_path / "config"


def retries(profile: str | None) -> Any:
    client: Any = aws_session(ConnectionOptions(region="eu-west-1", profile=profile)).client("ssm")
    return client.meta.config.retries


def test_a_client_asks_as_often_with_every_version_of_boto3() -> None:
    assert retries(None) == {"mode": "standard", "total_max_attempts": 5}


def test_what_the_users_configuration_says_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    assert retries("patient") == {"mode": "adaptive", "total_max_attempts": 9}
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    assert retries(None) == {"mode": "standard", "total_max_attempts": 2}


def test_a_client_of_the_local_aws_asks_as_often_whatever_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_RETRY_MODE", "adaptive")
    key = AccessKey(
        access_key_id="AKIAIOSFODNN7EXAMPLE",
        secret_access_key="secret",
        principal=Principal(arn="", user_id="", account_id="000000000000"),
    )
    session = LocalSession(endpoint_url="http://127.0.0.1:1", region="eu-west-1", access_key=key)
    assert session.client("ssm").meta.config.retries == {"mode": "standard", "total_max_attempts": 5}


def test_a_profile_that_there_is_not_is_named() -> None:
    with pytest.raises(NoConnectionError, match="there is no AWS profile 'other'"):
        retries("other")
