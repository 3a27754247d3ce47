"""The metadata service over real HTTP: tokens, their lifetime, and what is answered without one."""

from __future__ import annotations

import http.client
import json
import socket
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from spotkeep.notices.instance_metadata import InstanceMetadataService
from spotkeep_local.hosts.metadata import InstanceMetadata, MetadataService, MetadataSettings, RoleCredentials, answer

if TYPE_CHECKING:
    from collections.abc import Iterator

CREDENTIALS = RoleCredentials(access_key_id="ASIA1", secret_access_key="s", token="t", expires_at=1_795_003_600.0)
INSTANCE = InstanceMetadata(
    instance_id="i-0123456789abcdef0",
    instance_type="g5.xlarge",
    image_id="ami-1",
    account_id="123456789012",
    region="eu-west-1",
    zone="eu-west-1b",
    zone_id="euw1-az2",
    private_ip="10.0.0.7",
    hostname="ip-10-0-0-7.ec2.internal",
    spot=True,
    reservation_id="r-1",
    launched_at=1_795_000_000.0,
    user_data="#!/bin/sh\n",
    profile_arn="arn:aws:iam::123456789012:instance-profile/trainer",
    profile_id="AIPA1",
    role="trainer",
    credentials=CREDENTIALS,
    tags={"spotkeep:run": "digits-7"},
    settings=MetadataSettings(tags=True),
)
META = "/latest/meta-data/"
TTL = "X-aws-ec2-metadata-token-ttl-seconds"


class Caller:
    def __init__(self) -> None:
        self.instance = INSTANCE
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        self.service = MetadataService(listening, read=lambda: self.instance)

    def ask(self, method: str, path: str, **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def get(self, path: str, seconds: int = 60) -> tuple[int, str]:
        _, token = self.ask("PUT", "/latest/api/token", **{TTL: str(seconds)})
        return self.ask("GET", path, **{"X-aws-ec2-metadata-token": token})


@pytest.fixture
def caller() -> Iterator[Caller]:
    made = Caller()
    yield made
    made.service.close()


def test_without_a_token_nothing_is_said(caller: Caller) -> None:
    assert caller.ask("GET", META) == (401, "")
    assert caller.ask("GET", META, **{"X-aws-ec2-metadata-token": "mine"}) == (401, "")
    assert caller.get(f"{META}instance-id") == (200, INSTANCE.instance_id)


def test_version_1_answers_where_the_template_allows_it(caller: Caller) -> None:
    caller.instance = replace(INSTANCE, settings=MetadataSettings(token_required=False))
    assert caller.ask("GET", f"{META}placement/availability-zone") == (200, "eu-west-1b")
    caller.instance = replace(INSTANCE, settings=MetadataSettings(enabled=False))
    assert caller.get(f"{META}instance-id")[0] == 403


@pytest.mark.parametrize("seconds", ["0", "21601", "-1", "x", ""])
def test_a_token_lives_from_a_second_to_six_hours(caller: Caller, seconds: str) -> None:
    assert caller.ask("PUT", "/latest/api/token", **{TTL: seconds})[0] == 400
    assert caller.ask("PUT", "/latest/api/token")[0] == 400


def test_a_token_that_ran_out_is_worth_nothing(caller: Caller) -> None:
    _, token = caller.ask("PUT", "/latest/api/token", **{TTL: "1"})
    assert caller.ask("GET", META, **{"X-aws-ec2-metadata-token": token})[0] == 200
    while caller.service.token_ttl_seconds(token) > 0:
        time.sleep(0.05)
    assert caller.ask("GET", META, **{"X-aws-ec2-metadata-token": token})[0] == 401


def test_a_proxy_gets_no_token(caller: Caller) -> None:
    assert caller.ask("PUT", "/latest/api/token", **{TTL: "60", "X-Forwarded-For": "10.0.0.1"})[0] == 403


def test_the_library_s_own_client_reads_a_notice(caller: Caller) -> None:
    client = InstanceMetadataService(f"http://127.0.0.1:{caller.port}")
    assert client.spot_action() is None
    assert not client.rebalance_recommended()
    caller.instance = replace(INSTANCE, interruption_at=time.time() + 100, rebalance_at=time.time())
    action = client.spot_action()
    assert action is not None
    assert action.action == "terminate"
    assert action.seconds_left is not None
    assert 90 < action.seconds_left <= 101
    assert client.rebalance_recommended()


def said(path: str, instance: InstanceMetadata = INSTANCE) -> str | None:
    return answer(instance, path, now=1_795_000_000.0)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("instance-life-cycle", "spot"),
        ("placement/region", "eu-west-1"),
        ("tags/instance/spotkeep:run", "digits-7"),
        ("tags/instance/", "spotkeep:run"),
        ("iam/security-credentials/", "trainer"),
        ("spot/instance-action", None),
        ("events/recommendations/rebalance", None),
        ("no/such/thing", None),
    ],
)
def test_what_is_said(path: str, text: str | None) -> None:
    assert said(META + path) == text


def test_a_directory_lists_its_entries() -> None:
    assert said("/latest") == "dynamic/\nmeta-data/\nuser-data"
    assert said(f"{META}placement") == "availability-zone\navailability-zone-id\nregion"
    assert said("/latest/user-data") == "#!/bin/sh\n"


def test_tags_are_not_said_unless_the_template_asks_for_it() -> None:
    assert said(f"{META}tags/instance/spotkeep:run", replace(INSTANCE, settings=MetadataSettings())) is None


def test_documents_hold_what_sdks_read() -> None:
    credentials = json.loads(said(f"{META}iam/security-credentials/trainer") or "")
    assert {"Code", "AccessKeyId", "SecretAccessKey", "Token", "Expiration"} <= set(credentials)
    assert credentials["Expiration"] == "2026-11-18T12:06:40Z"
    identity = json.loads(said("/latest/dynamic/instance-identity/document") or "")
    assert (identity["instanceId"], identity["region"], identity["accountId"]) == (
        INSTANCE.instance_id,
        "eu-west-1",
        "123456789012",
    )


def test_a_fault_of_the_service_is_logged_and_the_end_of_a_client_is_not(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = Caller()

    def read() -> InstanceMetadata:
        raise RuntimeError("the instance has no facts")

    monkeypatch.setattr(caller.service, "metadata", read)
    with pytest.raises(http.client.RemoteDisconnected):
        caller.ask("GET", META)
    caller.service.close()
    assert "the instance has no facts" in caplog.text

    caplog.clear()
    caller = Caller()

    def gone() -> InstanceMetadata:
        raise BrokenPipeError

    monkeypatch.setattr(caller.service, "metadata", gone)
    with pytest.raises(http.client.RemoteDisconnected):
        caller.ask("GET", META)
    caller.service.close()
    assert not caplog.records
