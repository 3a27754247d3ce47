"""The connections of nodes to their leader, on real sockets: strangers, silence, and nodes that come again."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spotkeep_agent.nodes.connections import (
    MOST_UNPROVEN,
    Happened,
    Joined,
    LeaderConnection,
    Lost,
    NodeNames,
    NodeServer,
    Said,
    StrangerError,
    is_refused,
    listening,
    proof,
)
from tests.ports import free_ports

from .conftest import KEY

LEADER = NodeNames(run="run", attempt=1, launch="feed", instance="i-1", address="127.0.0.1")
NODE = replace(LEADER, instance="i-2", address="127.0.0.1")
QUIET_SECONDS = 60.0
"""So long nothing may come before a test calls it silence, unless it is about silence."""


@pytest.fixture(scope="module")
def port() -> int:
    return free_ports()


@pytest.fixture
def leader(port: int) -> Iterator[NodeServer]:
    server = NodeServer(LEADER, key=KEY, listener=listening(LEADER.address, port=port), silent_seconds=QUIET_SECONDS)
    yield server
    server.close()


@contextlib.contextmanager
def node(port: int, names: NodeNames = NODE, **given: Any) -> Iterator[LeaderConnection]:
    connection = LeaderConnection(
        names, address=LEADER.address, port=port, **{"key": KEY, "silent_seconds": QUIET_SECONDS, **given}
    )
    yield connection
    connection.close()


def next_of(end: NodeServer | LeaderConnection) -> Happened:
    return end.happened.get(timeout=30)


def stranger(port: int) -> socket.socket:
    return socket.create_connection((LEADER.address, port), timeout=30)


def is_closed(connection: socket.socket) -> bool:
    """The leader closes it, after whatever it has sent before."""
    with contextlib.suppress(ConnectionError):
        while connection.recv(4096):
            pass
    return True


def test_a_node_that_knows_the_key_is_heard_and_hears_the_leader(leader: NodeServer, port: int) -> None:
    with node(port) as connection:
        assert connection.leader == "i-1"
        assert next_of(leader) == Joined("i-2", "127.0.0.1")
        connection.send({"ready": True})
        assert next_of(leader) == Said("i-2", {"ready": True})
        leader.send({"begin": 1}, to="i-2")
        leader.send({"begin": 2}, to="i-3")
        leader.send({"end": 1})
        assert [next_of(connection), next_of(connection)] == [Said("i-1", {"begin": 1}), Said("i-1", {"end": 1})]
    lost = next_of(leader)
    assert isinstance(lost, Lost)
    assert lost.instance == "i-2"


def test_the_key_is_never_sent(port: int) -> None:
    """A program that took the leader's address gets a digest, with which it can connect nowhere."""
    heard = b""
    with socket.create_server((LEADER.address, port)) as listener:
        connecting = queue.SimpleQueue[object]()

        def connect() -> None:
            try:
                LeaderConnection(NODE, address=LEADER.address, key=KEY, port=port)
            except StrangerError as error:
                connecting.put(error)

        threading.Thread(target=connect, daemon=True).start()
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b'{"text": "a"}\n')
            heard = connection.recv(4096)
            connection.sendall(b'{"proof": "a", "instance": "i-1"}\n')
            assert isinstance(connecting.get(timeout=30), StrangerError)
    assert KEY.encode() not in heard
    assert json.loads(heard)["names"]["instance"] == "i-2"


@pytest.mark.parametrize(
    ("names", "key"),
    [
        (NODE, "fedcba9876543210" * 2),
        (replace(NODE, run="another"), KEY),
        (replace(NODE, attempt=2), KEY),
        (replace(NODE, launch="another"), KEY),
    ],
)
def test_a_node_without_the_key_or_of_another_run_gets_nothing(
    leader: NodeServer, port: int, names: NodeNames, key: str
) -> None:
    with pytest.raises((ConnectionError, StrangerError)):
        LeaderConnection(names, address=LEADER.address, key=key, port=port)
    with node(port):
        assert next_of(leader) == Joined("i-2", "127.0.0.1")


def test_a_hello_that_was_heard_opens_no_second_connection(leader: NodeServer, port: int) -> None:
    with stranger(port) as first:
        text = json.loads(first.recv(4096))["text"]
        document = dict(vars(NODE))
        digest = proof(KEY, "hello", text, "own", json.dumps(document, sort_keys=True))
        hello = json.dumps({"names": document, "text": "own", "proof": digest}).encode() + b"\n"
        first.sendall(hello)
        assert next_of(leader) == Joined("i-2", "127.0.0.1")
        with stranger(port) as second:
            second.sendall(hello)
            assert is_closed(second)
    assert isinstance(next_of(leader), Lost)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["names", "text", "proof"]), inner),
        max_leaves=8,
    ).map(lambda document: json.dumps(document).encode())
)
def test_a_stranger_breaks_nothing(leader: NodeServer, port: int, said: bytes) -> None:
    with stranger(port) as connection:
        connection.sendall(said + b"\n")
    with node(port):
        assert next_of(leader) == Joined("i-2", "127.0.0.1")
    assert isinstance(next_of(leader), Lost)


def test_strangers_that_say_nothing_keep_no_node_out(leader: NodeServer, port: int) -> None:
    with contextlib.ExitStack() as strangers:
        held = [strangers.enter_context(stranger(port)) for _ in range(2 * MOST_UNPROVEN)]
        assert is_closed(held[0])
        with node(port):
            assert next_of(leader) == Joined("i-2", "127.0.0.1")


def test_a_line_without_an_end_is_not_kept(leader: NodeServer, port: int) -> None:
    with stranger(port) as connection:
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                connection.sendall(b"x" * 4096)
        assert is_closed(connection)


def test_a_silent_node_is_lost_and_one_that_sends_signs_of_life_is_not(port: int) -> None:
    server = NodeServer(LEADER, key=KEY, listener=listening(LEADER.address, port=port), silent_seconds=1.5)
    try:
        with node(port, silent_seconds=1.5) as living:
            assert next_of(server) == Joined("i-2", "127.0.0.1")
            silent = stranger(port)
            text = json.loads(silent.recv(4096))["text"]
            document = dict(vars(replace(NODE, instance="i-3")))
            digest = proof(KEY, "hello", text, "own", json.dumps(document, sort_keys=True))
            silent.sendall(json.dumps({"names": document, "text": "own", "proof": digest}).encode() + b"\n")
            assert next_of(server) == Joined("i-3", "127.0.0.1")
            lost = next_of(server)
            assert isinstance(lost, Lost)
            assert lost.instance == "i-3"
            assert "nothing came from it" in lost.why
            silent.close()
            assert living.happened.empty()
    finally:
        server.close()


def test_a_silent_leader_is_lost(port: int) -> None:
    with socket.create_server((LEADER.address, port)) as listener:
        found = queue.SimpleQueue[LeaderConnection]()

        def connect() -> None:
            found.put(LeaderConnection(NODE, address=LEADER.address, key=KEY, port=port, silent_seconds=1.0))

        threading.Thread(target=connect, daemon=True).start()
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b'{"text": "a"}\n')
            text = json.loads(connection.recv(4096))["text"]
            connection.sendall(json.dumps({"proof": proof(KEY, "welcome", text), "instance": "i-1"}).encode() + b"\n")
            leading = found.get(timeout=30)
            lost = next_of(leading)
            assert isinstance(lost, Lost)
            assert "nothing came from it" in lost.why
            assert not lost.is_closed
            leading.close()


def test_a_leader_that_closes_its_connections_is_not_a_silent_one(port: int) -> None:
    server = NodeServer(LEADER, key=KEY, listener=listening(LEADER.address, port=port), silent_seconds=QUIET_SECONDS)
    with node(port) as connection:
        assert not is_refused(LEADER.address, own=NODE.address, port=port)
        server.close()
        assert next_of(connection) == Lost("i-1", "the other end has closed it", is_closed=True)
        assert is_refused(LEADER.address, own=NODE.address, port=port)


def test_a_node_that_connects_before_the_leader_has_the_lease_waits_for_it(port: int) -> None:
    """No node finds a leader of the record that refuses connections."""
    listener = listening(LEADER.address, port=port)
    found = queue.SimpleQueue[LeaderConnection]()

    def connect() -> None:
        found.put(LeaderConnection(NODE, address=LEADER.address, key=KEY, port=port, silent_seconds=QUIET_SECONDS))

    threading.Thread(target=connect, daemon=True).start()
    server = NodeServer(LEADER, key=KEY, listener=listener, silent_seconds=QUIET_SECONDS)
    try:
        assert next_of(server) == Joined("i-2", "127.0.0.1")
        found.get(timeout=30).close()
    finally:
        server.close()


def test_a_node_that_connects_again_takes_the_place_of_its_first_connection(leader: NodeServer, port: int) -> None:
    with node(port), node(port):
        found = [next_of(leader) for _ in range(3)]
        assert found == [
            Joined("i-2", "127.0.0.1"),
            Lost("i-2", "it has connected again"),
            Joined("i-2", "127.0.0.1"),
        ]


def test_an_address_at_which_no_program_listens_is_no_leader(port: int) -> None:
    began = time.monotonic()
    with pytest.raises(OSError, match="refused"):
        LeaderConnection(NODE, address=LEADER.address, key=KEY, port=port)
    assert time.monotonic() - began < 30


def test_a_sign_of_life_says_how_much_a_node_has_brought(port: int, leader: NodeServer) -> None:
    said: dict[str, Any] = {}
    with node(port, silent_seconds=1.0, sign_of_life=lambda: said):
        assert isinstance(leader.happened.get(timeout=QUIET_SECONDS), Joined)
        said["moved"] = 4
        assert leader.happened.get(timeout=QUIET_SECONDS) == Said("i-2", {"moved": 4})


def test_a_node_that_the_leader_gives_up_is_lost_to_both(port: int, leader: NodeServer) -> None:
    with node(port) as connection:
        assert isinstance(leader.happened.get(timeout=QUIET_SECONDS), Joined)
        leader.give_up("i-2", why="it hangs")
        assert leader.happened.get(timeout=QUIET_SECONDS) == Lost("i-2", "it hangs")
        assert isinstance(connection.happened.get(timeout=QUIET_SECONDS), Lost)
