"""A network of hosts that come and go. Each host has a network namespace, and a router in a further one joins them.

The router lets through the flows that it is given. It drops every other packet without an answer, as a security group
does. Its table of rules alone decides (ip-rule(8)), so no firewall is needed. A packet that answers is known by its
ports, not by its connection.

The server makes the namespaces in threads of its own, because a namespace belongs to a thread. Descriptors keep them
until the network is closed, or until the server is gone. Hosts reach each other and the local AWS, and nothing else.

Source: network_namespaces(7), veth(4), ip-link(8), ip-rule(8)
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from spotkeep_local.hosts import boot
from spotkeep_local.hosts.forwarding import Forwarding
from spotkeep_local.hosts.host import HostRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

INTERFACE = "eth0"
MEETING_PORT_VARIABLE = "SM_MASTER_PORT"
"""The variable with the port at which the ranks of several hosts meet."""
_SYSTEM_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
_ROUTER = "169.254.0.1"
"""The address of the router at each of its ports. No VPC has it."""
_FIRST_PORT = 1000
"""The index of the router's first port. Linux brings a pair with two equal indices up as late as a second after."""
_ALLOWED, _DROPPED = "pref 1000", "pref 2000"
_HIGHEST_PORT = 65534
"""The highest port that a rule of Linux names. The one above it passes where every port does."""
_GONE = "Cannot find device"
_TRIES = 100
_CARRIER_TRIES, _CARRIER_POLL_SECONDS = 1000, 0.005
_SETTINGS = {"ip_forward": "1", "conf/all/rp_filter": "0", "conf/default/rp_filter": "0"}
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Flow:
    """The connections that some hosts may open to others, with the answers.

    Attributes:
        source: The address of the host that opens them, or a network of addresses.
        target: The address of the host that answers, or a network of addresses.
        protocol: The IP protocol by its name or number. None for every protocol.
        ports: The first and the last port of the target. None for every port.
    """

    source: str
    target: str
    protocol: str | None = None
    ports: tuple[int, int] | None = None

    def rules(self) -> Iterator[str]:
        """Yield the rules of a router that let it through, there and back."""
        protocol = "" if self.protocol is None else f" ipproto {self.protocol}"
        there, back = f"from {self.source} to {self.target}", f"from {self.target} to {self.source}"
        if self.ports is None:
            yield from (f"{there}{protocol}", f"{back}{protocol}")
            return
        first, last = max(1, self.ports[0]), min(_HIGHEST_PORT, self.ports[1])
        if first <= last:
            yield from (f"{there}{protocol} dport {first}-{last}", f"{back}{protocol} sport {first}-{last}")


class HostsNetwork:
    """The network of some hosts, each with the interface `eth0`. It has no way out.

    Args:
        addresses: The network with the IPv4 addresses of all hosts, for example `172.31.0.0/16`.

    Raises:
        HostRefusedError: The machine refuses a namespace, or a router.
    """

    def __init__(self, addresses: str) -> None:
        self._addresses = addresses
        self._open = contextlib.ExitStack()
        self._numbers = itertools.count(_FIRST_PORT)
        self._ports: dict[str, str] = {}
        self._rules: frozenset[str] = frozenset()
        with self._refusals(), contextlib.ExitStack() as undone:
            undone.callback(self.close)
            self._router = self._namespace(_prepare_router)
            undone.pop_all()

    def close(self) -> None:
        """Let go of the network. The kernel removes it once no process is in it."""
        self._open.close()

    def namespace(self, *, endpoint_port: int) -> str:
        """Make the network namespace of a host. It goes with the network.

        Args:
            endpoint_port: The port of the local AWS on 127.0.0.1, outside and inside alike.

        Returns:
            The file of the namespace.

        Raises:
            HostRefusedError: The machine refuses it.
        """
        with self._refusals():
            return self._namespace(functools.partial(_bring_up_loopback, endpoint_port))

    def join(self, namespace: str, address: str) -> None:
        """Give a host its interface. It reaches the others by the flows that are allowed.

        Args:
            namespace: The file of its network namespace.
            address: Its IPv4 address.

        Raises:
            HostRefusedError: The machine refuses the interface.
        """
        number = next(self._numbers)
        port = f"port{number}"
        with self._refusals():
            _ip_in(
                self._router,
                f"link add {port} index {number} type veth peer name {INTERFACE} netns {namespace}",
                f"addr add {_ROUTER}/32 dev {port}",
                f"link set {port} up",
                f"route add {address}/32 dev {port}",
            )
            self._ports[address] = port
            _ip_in(
                namespace,
                f"addr add {address}/32 dev {INTERFACE}",
                f"link set {INTERFACE} up",
                f"route add {_ROUTER}/32 dev {INTERFACE}",
                f"route add {self._addresses} via {_ROUTER}",
            )
            self._wait_for_carrier(port)

    def leave(self, address: str) -> None:
        """Pull the plug of a host. The others hear nothing from it any more, not even that it is gone."""
        if (port := self._ports.pop(address, None)) is not None:
            try:
                _ip_in(self._router, f"link del {port}")
            except OSError as error:
                if _GONE not in str(error):  # It goes with the host's namespace, too.
                    raise

    def allow(self, flows: Iterable[Flow]) -> None:
        """Let through exactly these flows from now on. Packets of open connections that no flow covers are dropped.

        Raises:
            HostRefusedError: The machine refuses a rule.
        """
        rules = frozenset(rule for flow in flows for rule in flow.rules())
        removed = (f"rule del {_ALLOWED} {rule} lookup main" for rule in self._rules - rules)
        added = (f"rule add {_ALLOWED} {rule} lookup main" for rule in rules - self._rules)
        if changes := [*removed, *added]:
            with self._refusals():
                _ip_in(self._router, *changes)
            self._rules = rules

    def _wait_for_carrier(self, port: str) -> None:
        """Wait until a port sends. Before that the kernel drops packets, and a connection takes a second longer."""
        for _ in range(_CARRIER_TRIES):
            if "state UP" in _ip_in(self._router, f"link show dev {port}"):
                return
            time.sleep(_CARRIER_POLL_SECONDS)
        raise OSError(f"{port} has no carrier")

    @staticmethod
    @contextlib.contextmanager
    def _refusals() -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise HostRefusedError(f"this machine does not let hosts have a network of their own: {error}") from error

    def _namespace(self, prepare: Callable[[], socket.socket | None]) -> str:
        """Make a namespace, act in it, and return its file."""

        def make() -> tuple[int, socket.socket | None]:
            boot.unshare(boot.CLONE_NEWNET)
            descriptor = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            self._open.callback(os.close, descriptor)
            return descriptor, prepare()

        descriptor, listening = _in_a_thread(make)
        if listening is not None:
            self._open.callback(Forwarding(listening, port=listening.getsockname()[1]).close)
        return f"/proc/{os.getpid()}/fd/{descriptor}"


def join_hosts(addresses: str, *, hosts: Sequence[str], endpoint_port: int) -> tuple[HostsNetwork, list[str]]:
    """Make the network of some hosts that all reach each other.

    Args:
        addresses: The network with all addresses.
        hosts: The address of each host.
        endpoint_port: The port of the local AWS on 127.0.0.1, outside and inside alike.

    Returns:
        The network, and the file of each host's network namespace, which goes with it.

    Raises:
        HostRefusedError: The machine refuses a namespace, an interface, a router or its rules.
    """
    network = HostsNetwork(addresses)
    with contextlib.ExitStack() as undone:
        undone.callback(network.close)
        files = [network.namespace(endpoint_port=endpoint_port) for _ in hosts]
        for file, address in zip(files, hosts, strict=True):
            network.join(file, address)
        network.allow([Flow(source=addresses, target=addresses)])
        undone.pop_all()
    return network, files


@functools.cache
def network_refusal() -> str | None:
    """Return the reason why hosts cannot have networks of their own on this machine. None where they can.

    One trial decides. It makes a network of two hosts and closes it.
    """
    if sys.platform != "linux":
        return f"network namespaces exist on Linux only, and this is {sys.platform}"
    if os.geteuid() != 0:
        return "a network of its own for each host needs root"
    if shutil.which("ip", path=_SYSTEM_PATH) is None:
        return "ip is not installed (package iproute2)"
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    hosts = ("198.18.0.1", "198.18.0.2")
    try:
        network, _ = join_hosts("198.18.0.0/24", hosts=hosts, endpoint_port=port)
        with contextlib.closing(network):
            network.allow([Flow(source=hosts[0], target=hosts[1], protocol="tcp", ports=(7777, 7779))])
    except HostRefusedError as error:
        return str(error)
    return None


def _prepare_router() -> None:
    """Forward what a rule allows. Take packets of any source, because each port has hosts of one address alone."""
    for name, value in _SETTINGS.items():
        Path("/proc/sys/net/ipv4", name).write_text(value)
    _ip(f"rule add {_DROPPED} blackhole")


def _bring_up_loopback(port: int) -> socket.socket:
    """Listen where the local AWS is outside."""
    _ip("link set lo up")
    return socket.create_server(("127.0.0.1", port), backlog=64)


def _ip_in(namespace: str, *commands: str) -> str:
    """Run commands in a network namespace. Return their output."""

    def act() -> str:
        boot.enter_network(namespace)
        return _ip(*commands)

    return _in_a_thread(act)


def _ip(*commands: str) -> str:
    done = subprocess.run(
        ["ip", "-batch", "-"],
        input="".join(f"{command}\n" for command in commands),
        env={"PATH": _SYSTEM_PATH},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise OSError(f"ip {'; '.join(commands)}: {done.stderr.strip()}")
    return done.stdout


def _in_a_thread(act: Callable[[], _T]) -> _T:
    """Act in a thread that ends afterwards.

    The thread alone is in another namespace. The server's other threads stay in the machine's.
    """
    found: list[_T] = []
    problems: list[BaseException] = []

    def run() -> None:
        try:
            found.append(act())
        except BaseException as error:  # noqa: BLE001 - raised again below
            problems.append(error)

    thread = threading.Thread(target=run, name="network-of-hosts")
    thread.start()
    thread.join()
    if problems:
        raise problems[0]
    return found[0]


def free_meeting_port() -> int:
    """Return a free port that has a free one after it. The ranks of hosts meet at the first, their runners at the next.

    Raises:
        HostRefusedError: None was found.
    """
    for _ in range(_TRIES):
        with socket.create_server(("127.0.0.1", 0)) as first, contextlib.suppress(OSError, OverflowError):
            port: int = first.getsockname()[1]
            with socket.create_server(("127.0.0.1", port + 1)):
                return port
    raise HostRefusedError(f"this machine had no two free ports beside each other in {_TRIES} tries")
