"""The connections to the server: one that its client closes is not kept open, and one that is idle is."""

from __future__ import annotations

import http.client
import socket
from typing import TYPE_CHECKING

import pytest

from spotkeep_local.access.admission import HEALTH_PATH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spotkeep_local.lifecycle import LocalAws

HANGS_SECONDS = 50
"""Less than the 75 s for which the server keeps an idle connection."""


@pytest.fixture
def client(local_aws: LocalAws) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", local_aws.port, timeout=HANGS_SECONDS)
    connection.connect()
    yield connection
    connection.close()


def ask(client: http.client.HTTPConnection) -> int:
    client.request("GET", HEALTH_PATH)
    with client.getresponse() as response:
        response.read()
        return response.status


def close(client: http.client.HTTPConnection) -> None:
    """Close the client's direction. The other one shows the server's end."""
    assert client.sock is not None
    client.sock.shutdown(socket.SHUT_WR)


def test_a_connection_is_used_again(client: http.client.HTTPConnection) -> None:
    first = client.sock
    assert [ask(client) for _ in range(3)] == [200, 200, 200]
    assert client.sock is first


@pytest.mark.parametrize("requests", [0, 1, 2])
def test_one_that_its_client_closes_is_closed_at_once(client: http.client.HTTPConnection, requests: int) -> None:
    """Else a thousand short commands in a minute take all files that a process may open."""
    for _ in range(requests):
        ask(client)
    close(client)
    assert client.sock.recv(1) == b""


def test_one_that_is_closed_during_a_request_is_closed_too(client: http.client.HTTPConnection) -> None:
    client.request("GET", HEALTH_PATH)
    close(client)
    while client.sock.recv(65_536):
        pass
