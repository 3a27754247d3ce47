"""Whatever answers at the metadata service's address: it is an instance's metadata, or none, and no reason to crash."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.notices.instance_metadata import (
    InstanceMetadataService,
    MetadataUnavailableError,
    SpotAction,
    parse_spot_action,
)
from spotkeep_agent.errors import InstanceSettingsError
from spotkeep_agent.identity import InstanceIdentity, read_identity
from spotkeep_fleet.signed_fetch import Credentials, FetchError, find_credentials

from .bounds import bounded, fed_by_strangers
from .mutations import NUMBERS, as_json, mutated

ACTION = {"action": "terminate", "time": "2026-11-23T10:00:00Z"}
DOCUMENT = {
    "instanceId": "i-0123456789abcdef0",
    "availabilityZone": "us-east-1a",
    "region": "us-east-1",
    "instanceType": "g5.xlarge",
    "pendingTime": "2026-11-23T10:00:00Z",
}
ROLE = {
    "AccessKeyId": "ASIAEXAMPLE",
    "SecretAccessKey": "secret",
    "Token": "token",
    "Expiration": "2026-11-23T16:00:00Z",
}
DEEP = st.sampled_from(["[" * 4000, '{"a":' * 800, "[" * 1500 + "]" * 1500])
JUNK = st.text(max_size=60) | DEEP


def written(document: dict[str, Any]) -> st.SearchStrategy[str]:
    """JSON of a document with anything in it, or text that is none."""
    pages = st.builds(lambda page, number: as_json(page, number=number), mutated(document), NUMBERS)
    return st.one_of(pages, pages, pages, JUNK)


class Answers:
    """The metadata service, as the agent reads it: the document, then the tags."""

    def __init__(self, document: str | None, tag: str | None) -> None:
        self._document, self._tag = document, tag

    def text(self, path: str) -> str | None:
        return self._document if path.endswith("/document") else self._tag


@fed_by_strangers(share=0.25)
@given(written(ACTION), st.floats(0, 4e9))
def test_an_action_is_read_or_none(page: str, server_time: float) -> None:
    with bounded(), contextlib.suppress(MetadataUnavailableError):
        found = parse_spot_action(page.encode("utf-8", "surrogatepass"), server_time=server_time)
        assert isinstance(found, SpotAction)
        assert found.seconds_left is None or 0 <= found.seconds_left <= 900


@fed_by_strangers(share=0.3)
@given(st.none() | written(DOCUMENT), st.none() | st.text(max_size=40))
def test_an_identity_is_whole_or_refused(page: str | None, tag: str | None) -> None:
    metadata = cast("InstanceMetadataService", Answers(page, tag))
    with bounded(), contextlib.suppress(InstanceSettingsError):
        found = read_identity(metadata, sleep=lambda _: None)
        assert isinstance(found, InstanceIdentity)
        assert found.run == tag


class Service:
    """Answers one connection after another with the bytes that it is given, and closes it."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.answers: list[bytes] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                with connection, contextlib.suppress(OSError):
                    connection.recv(4096)
                    connection.sendall(self.answers.pop(0) if self.answers else b"")

    def close(self) -> None:
        # A blocked accept() ends with shutdown(), not with close().
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    running = Service()
    yield running
    running.close()


def http(body: str) -> bytes:
    content = body.encode("utf-8", "surrogatepass")
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(content) + content


TOKEN = http("token")
RAW = st.one_of(
    st.binary(max_size=200),
    st.builds(lambda status, header, body: b"HTTP/1.1 " + status + b"\r\n" + header + b"\r\n\r\n" + body,
        st.sampled_from([b"200 OK", b"404 No", b"401 No", b"999 x", b"-1 x", b"100 Continue"]),
        st.sampled_from([b"", b"Content-Length: -1", b"Content-Length: 9e9", b"Transfer-Encoding: chunked",
            b"Date: Mon, 99 Nov 99999 99:99:99 GMT", b"Content-Length: 99999999999", b"A: " + b"x" * 70_000]),
        st.binary(max_size=60)),
)  # fmt: skip


@fed_by_strangers(share=0.2)
@given(st.lists(RAW, max_size=2), st.booleans())
def test_any_bytes_on_the_wire_are_an_answer_or_none(service: Service, raw: list[bytes], token: bool) -> None:
    service.answers = [TOKEN, *raw] if token else raw
    with bounded(), contextlib.suppress(MetadataUnavailableError):
        assert isinstance(InstanceMetadataService(service.endpoint).spot_action(), (SpotAction, type(None)))


@fed_by_strangers(share=0.25)
@given(st.just("token") | st.text(max_size=9), st.just("role") | st.text(max_size=20), written(ROLE))
def test_credentials_are_whole_or_refused(service: Service, token: str, role: str, page: str) -> None:
    service.answers = [http(token), http(role), http(page)]
    environment = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": service.endpoint}
    with bounded(), contextlib.suppress(FetchError):
        found = find_credentials(environment)
        assert isinstance(found, Credentials)
        assert all(isinstance(part, str) for part in found[:3])
