"""The network of hosts: what is allowed passes, everything else is lost without an answer, and hosts come and go."""

from __future__ import annotations

import contextlib
import errno
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_local.hosts import boot
from spotkeep_local.hosts.network import Flow, HostsNetwork, network_refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [
    pytest.mark.enable_socket,
    pytest.mark.skipif(network_refusal() is not None, reason=f"no networks of hosts here: {network_refusal()}"),
]
ONE, TWO = "10.9.0.1", "10.9.128.2"
ALL = Flow(source=ONE, target=TWO)
LOST_AFTER_SECONDS = 0.3
_T = TypeVar("_T")


def inside(namespace: str, act: Callable[[], _T]) -> _T:
    """Act in a network namespace. Sockets that are made there stay in it."""

    def run() -> _T:
        boot.enter_network(namespace)
        return act()

    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(run).result()


class Wired:
    """Two hosts of a network."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        self.network = HostsNetwork("10.9.0.0/16")
        self.of = {address: self.network.namespace(endpoint_port=port) for address in (ONE, TWO)}
        for address, namespace in self.of.items():
            self.network.join(namespace, address)

    def listen(self, address: str, port: int) -> socket.socket:
        return inside(self.of[address], lambda: socket.create_server((address, port)))

    def connect(self, source: str, target: str, port: int) -> socket.socket:
        return inside(self.of[source], lambda: socket.create_connection((target, port), timeout=LOST_AFTER_SECONDS))

    def is_lost(self, source: str, target: str, port: int) -> bool:
        """Return whether a first packet gets no answer. One that is refused gets an answer at once."""
        sender = inside(self.of[source], lambda: socket.socket())
        with sender:
            sender.settimeout(LOST_AFTER_SECONDS)
            return sender.connect_ex((target, port)) == errno.EAGAIN


@pytest.fixture
def wired() -> Iterator[Wired]:
    made = Wired()
    yield made
    made.network.close()


def test_the_allowed_ports_pass_and_the_others_are_lost(wired: Wired) -> None:
    wired.network.allow([Flow(source=ONE, target=TWO, protocol="tcp", ports=(7777, 7779))])
    with wired.listen(TWO, 7779) as allowed, wired.listen(TWO, 8080), wired.listen(ONE, 7779):
        with wired.connect(ONE, TWO, 7779) as client:
            server, peer = allowed.accept()
            server.sendall(b"answer")
            assert client.recv(10) == b"answer"
            assert peer[0] == ONE
            server.close()
        assert wired.is_lost(ONE, TWO, 8080)
        assert wired.is_lost(TWO, ONE, 7779)


def test_nothing_leaves_the_network(wired: Wired) -> None:
    wired.network.allow([Flow(source="0.0.0.0/0", target="0.0.0.0/0")])
    with pytest.raises(OSError, match="unreachable"):
        inside(wired.of[ONE], lambda: _connected("192.0.2.1"))


def _connected(address: str) -> None:
    with socket.socket() as sender:
        sender.settimeout(LOST_AFTER_SECONDS)
        sender.connect((address, 80))


@pytest.mark.parametrize("way", ["the flow ends", "the host leaves"])
def test_an_open_connection_falls_silent_and_says_no_goodbye(wired: Wired, way: str) -> None:
    wired.network.allow([ALL])
    with wired.listen(TWO, 7779) as listening:
        client = wired.connect(ONE, TWO, 7779)
        server, _ = listening.accept()
        if way == "the host leaves":
            wired.network.leave(TWO)
            wired.network.leave(TWO)
        else:
            wired.network.allow([])
        server.sendall(b"late")
        server.close()
        with pytest.raises(TimeoutError):
            client.recv(10)
        if way == "the flow ends":
            wired.network.allow([ALL])
            client.settimeout(30)
            assert client.recv(10) == b"late"
        client.close()


def test_another_host_takes_the_address_of_one_that_left(wired: Wired) -> None:
    wired.network.allow([ALL])
    wired.network.leave(TWO)
    wired.of[TWO] = wired.network.namespace(endpoint_port=_free_port())
    wired.network.join(wired.of[TWO], TWO)
    with wired.listen(TWO, 7779), wired.connect(ONE, TWO, 7779):
        pass


def test_a_host_reaches_the_local_aws_at_its_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as aws, contextlib.closing(HostsNetwork("10.9.0.0/16")) as network:
        namespace = network.namespace(endpoint_port=aws.getsockname()[1])
        with inside(namespace, lambda: socket.create_connection(aws.getsockname())) as client:
            server, _ = aws.accept()
            with server:
                client.sendall(b"request")
                assert server.recv(10) == b"request"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port: int = unused.getsockname()[1]
        return port


@given(st.tuples(st.integers(0, 65535), st.integers(0, 65535)).map(sorted))
def test_a_rule_names_ports_that_linux_takes(ports: list[int]) -> None:
    first, last = ports
    rules = list(Flow(source=ONE, target=TWO, protocol="tcp", ports=(first, last)).rules())
    low, high = max(1, first), min(65534, last)
    ends = [f"dport {low}-{high}", f"sport {low}-{high}"] if low <= high else []
    assert [" ".join(rule.split()[-2:]) for rule in rules] == ends
