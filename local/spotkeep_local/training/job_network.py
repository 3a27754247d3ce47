"""The hosts of a job, by name, and the network between them.

SageMaker names the hosts `algo-1` to `algo-n`, and lists the names sorted as text: `algo-10` comes before `algo-2`. The
containers find each other by these names alone, because the name that a container has for itself does not resolve to
its address in the job.

Several hosts have networks of their own where the machine allows it. Elsewhere they share the machine's network, each
with an address 127.0.0.x. Without a mount namespace no table of names can be shown to them. Their names are then these
addresses.

Source: https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-training-algo-running-container.html
(Distributed Training Configuration)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spotkeep_local.hosts.host import HostRefusedError
from spotkeep_local.hosts.isolation import Isolation
from spotkeep_local.hosts.network import (
    INTERFACE,
    MEETING_PORT_VARIABLE,
    HostsNetwork,
    free_meeting_port,
    join_hosts,
    network_refusal,
)
from spotkeep_local.training.errors import JobFailedError

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTAINER_HOST_NAME = "aws"
"""The name that a container of several has for itself. An issue of AWS's training toolkit found this one in 2019."""
_LOOPBACK = "lo"
_ADDRESSES = "198.18.0.0/24"


def host_name(number: int) -> str:
    """Return SageMaker's name of a host, counted from 1."""
    return f"algo-{number}"


@dataclass(frozen=True, kw_only=True)
class HostPlace:
    """The place of a host among the hosts of its job.

    Attributes:
        number: Its number, from 1.
        name: Its name among the hosts.
        names: The names of all hosts, in SageMaker's order.
        interface: The network interface by which they reach each other.
        table: The text of its `/etc/hosts`. None for the machine's.
        network: The file of its network namespace. None for the machine's network.
        variables: The variables that its place needs.
    """

    number: int
    name: str = host_name(1)
    names: tuple[str, ...] = (host_name(1),)
    interface: str = _LOOPBACK
    table: str | None = None
    network: str | None = None
    variables: tuple[tuple[str, str], ...] = ()


class JobNetwork:
    """The network of a job's hosts, for as long as they are there.

    The one host of a job has the network of this machine.

    Args:
        count: The number of hosts.
        isolation: `namespace` or `relocated`.
        endpoint_port: The port of the local AWS.

    Attributes:
        places: The place of each host.

    Raises:
        JobFailedError: The machine allowed networks before, and refuses this one.
    """

    def __init__(self, count: int, *, isolation: Isolation, endpoint_port: int) -> None:
        self._hosts: HostsNetwork | None = None
        if count == 1:
            self.places = [HostPlace(number=1)]
            return
        named, refused = isolation is Isolation.NAMESPACE, shared_network_reason(isolation)
        addresses = [f"127.0.0.{number + 1}" if refused else f"198.18.0.{number}" for number in range(1, count + 1)]
        names = tuple(map(host_name, range(1, count + 1))) if named else tuple(addresses)
        table = "".join(f"{address} {name}\n" for address, name in zip(addresses, names, strict=True))
        networks: Sequence[str | None] = [None] * count
        if refused is None:
            try:
                self._hosts, networks = join_hosts(_ADDRESSES, hosts=addresses, endpoint_port=endpoint_port)
            except HostRefusedError as error:
                raise JobFailedError(f"InternalServerError: {error}") from error
        in_order = tuple(names[number - 1] for number in sorted(range(1, count + 1), key=host_name))
        variables = _own_meeting_port() if refused else ()
        self.places = [
            HostPlace(
                number=number,
                name=names[number - 1],
                names=in_order,
                interface=_LOOPBACK if refused else INTERFACE,
                table=f"127.0.0.1 localhost\n{table}" if named else None,
                network=network,
                variables=variables,
            )
            for number, network in enumerate(networks, start=1)
        ]

    def close(self) -> None:
        """Let go of the network, once its hosts are gone."""
        if self._hosts is not None:
            self._hosts.close()


def shared_network_reason(isolation: Isolation | None) -> str | None:
    """Return the reason why several hosts of a job share this machine's network. None where each has its own.

    Args:
        isolation: `namespace` or `relocated`. None where the machine refuses what is demanded.
    """
    return network_refusal() if isolation is Isolation.NAMESPACE else "hosts here have no namespaces"


def _own_meeting_port() -> tuple[tuple[str, str], ...]:
    """Return the variable with a port of this job alone. Jobs that share a network cannot all meet at one port."""
    try:
        return ((MEETING_PORT_VARIABLE, str(free_meeting_port())),)
    except HostRefusedError as error:
        raise JobFailedError(f"InternalServerError: {error}") from error
