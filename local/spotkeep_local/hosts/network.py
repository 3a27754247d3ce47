"""A network of hosts. Each host has a network namespace, and a bridge in a further one joins them.

The server makes the namespaces in threads of its own, because a namespace belongs to a thread. Descriptors keep them
until the network is closed, or until the server is gone. Hosts reach each other and the local AWS, and nothing else.

Source: network_namespaces(7), veth(4), ip-link(8)
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, TypeVar

from spotkeep_local.hosts import boot
from spotkeep_local.hosts.host import HostRefusedError
from spotkeep_local.hosts.namespaces import Forwarding

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

INTERFACE = "eth0"
_SYSTEM_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
_BRIDGE = "bridge0"
_T = TypeVar("_T")


class HostsNetwork:
    """The network of some hosts, each with the interface `eth0`.

    It has no way out. A host reaches the local AWS at the same address as from outside.

    Args:
        addresses: The IPv4 address of each host, all in one network of 24 bits.
        endpoint_port: The port of the local AWS on 127.0.0.1, outside and inside alike.

    Attributes:
        namespaces: The file of each host's network namespace.

    Raises:
        HostRefusedError: The machine refuses a namespace, a bridge or an interface.
    """

    def __init__(self, addresses: Sequence[str], *, endpoint_port: int) -> None:
        self._open = contextlib.ExitStack()
        self.namespaces: list[str] = []
        try:
            with contextlib.ExitStack() as undone:
                undone.callback(self.close)
                self._wire(addresses, endpoint_port=endpoint_port)
                undone.pop_all()
        except OSError as error:
            raise HostRefusedError(f"this machine does not let hosts have a network of their own: {error}") from error

    def close(self) -> None:
        """Let go of the network. The kernel removes it once no process is in it."""
        self._open.close()

    def _wire(self, addresses: Sequence[str], *, endpoint_port: int) -> None:
        files = [self._namespace(functools.partial(_bring_up_loopback, endpoint_port)) for _ in addresses]
        ports = [
            command
            for number, file in enumerate(files)
            for command in (
                f"link add port{number} type veth peer name {INTERFACE} netns {file}",
                f"link set port{number} master {_BRIDGE} up",
            )
        ]
        self._namespace(lambda: _ip(f"link add {_BRIDGE} type bridge", f"link set {_BRIDGE} up", *ports))
        for file, address in zip(files, addresses, strict=True):
            _in_a_thread(functools.partial(_bring_up_interface, file, address))
        self.namespaces = files

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
    try:
        HostsNetwork(("198.18.0.1", "198.18.0.2"), endpoint_port=port).close()
    except HostRefusedError as error:
        return str(error)
    return None


def _bring_up_loopback(port: int) -> socket.socket:
    """Listen where the local AWS is outside."""
    _ip("link set lo up")
    return socket.create_server(("127.0.0.1", port), backlog=64)


def _bring_up_interface(namespace: str, address: str) -> None:
    boot.enter_network(namespace)
    _ip(f"addr add {address}/24 dev {INTERFACE}", f"link set {INTERFACE} up")


def _ip(*commands: str) -> None:
    for command in commands:
        done = subprocess.run(
            ["ip", *command.split()], env={"PATH": _SYSTEM_PATH}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise OSError(f"ip {command}: {done.stderr.strip()}")


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
