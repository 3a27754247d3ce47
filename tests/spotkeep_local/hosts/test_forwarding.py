"""Connections from an instance's network to the local AWS: both directions are carried, each piece at once."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from spotkeep_local.hosts.forwarding import Forwarding

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.enable_socket


class Listening(socket.socket):
    """Remembers the connections that it accepted."""

    forwarding: Forwarding

    def __init__(self) -> None:
        super().__init__()
        self.accepted: list[socket.socket] = []
        self.bind(("127.0.0.1", 0))
        self.listen()

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        connection, address = super().accept()
        self.accepted.append(connection)
        return connection, address


@pytest.fixture
def aws() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture
def instance(aws: socket.socket) -> Iterator[Listening]:
    listening = Listening()
    listening.forwarding = Forwarding(listening, port=aws.getsockname()[1])
    yield listening
    listening.forwarding.close()


def test_bytes_are_carried_both_ways_until_either_side_ends(instance: Listening, aws: socket.socket) -> None:
    with socket.create_connection(instance.getsockname()) as client:
        server, _ = aws.accept()
        with server:
            client.sendall(b"headers")
            assert server.recv(100) == b"headers"
            server.sendall(b"answer")
            assert client.recv(100) == b"answer"
            client.shutdown(socket.SHUT_WR)
            assert server.recv(100) == b""
            server.sendall(b"late")
        assert client.recv(100) == b"late"
        assert client.recv(100) == b""


def test_bytes_that_are_held_back_arrive_later(instance: Listening, aws: socket.socket) -> None:
    with socket.create_connection(instance.getsockname()) as client:
        server, _ = aws.accept()
        with server:
            instance.forwarding.let_flow(flows=False)
            client.sendall(b"held")
            client.shutdown(socket.SHUT_WR)
            server.settimeout(0.2)
            with pytest.raises(TimeoutError):
                server.recv(100)
            instance.forwarding.let_flow(flows=True)
            server.settimeout(None)
            assert [server.recv(100), server.recv(100)] == [b"held", b""]


def test_what_is_held_back_ends_with_the_host(instance: Listening, aws: socket.socket) -> None:
    instance.forwarding.let_flow(flows=False)
    with socket.create_connection(instance.getsockname()) as client:
        instance.forwarding.close()
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(100) == b""
    assert aws.fileno() > 0


def test_no_piece_waits_for_the_acknowledgement_of_the_one_before(
    instance: Listening, aws: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call over a connection that is kept open took up to 88 ms instead of 5: headers and body are two pieces."""
    opened: list[socket.socket] = []
    connect = socket.create_connection

    def connect_to_aws(address: tuple[str, int]) -> socket.socket:
        opened.append(connect(address))
        return opened[-1]

    monkeypatch.setattr(socket, "create_connection", connect_to_aws)
    with connect(instance.getsockname()) as client:
        server, _ = aws.accept()
        with server:
            client.sendall(b"headers")
            assert server.recv(100) == b"headers", "the forwarding has prepared both connections"
            for connection in (*instance.accepted, *opened):
                assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert len(instance.accepted) == len(opened) == 1
