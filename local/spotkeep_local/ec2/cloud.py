"""The state that the parts of the local EC2 share, such as its resources, its hosts, the market and the clock.

One lock guards all of it. A slow action, such as a host's end, runs in a thread of its own and takes the lock when it
is done.
"""

from __future__ import annotations

import functools
import math
import secrets
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import TypeAdapter

from spotkeep_local.ec2.errors import Ec2Error
from spotkeep_local.ec2.filters import in_one_page, matches
from spotkeep_local.ec2.market import Market
from spotkeep_local.ec2.records import LocalFleet, LocalInstance, LocalSnapshot, LocalVolume
from spotkeep_local.service_base.state_file import StateFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from spotkeep_local.ec2.surroundings import Surroundings
    from spotkeep_local.hosts.host_platform import HostPlatform
    from spotkeep_local.hosts.instance_host import InstanceHost

NOTICE_SECONDS = 120.0


_Resource = TypeVar("_Resource", LocalVolume, LocalSnapshot, LocalInstance, LocalFleet)


@dataclass(frozen=True)
class Latencies:
    """Durations on this machine.

    Args:
        time_scale: The factor by which things are faster than on AWS.
    """

    time_scale: float

    def scaled(self, seconds: float) -> float:
        """Return a duration of AWS's as it is here."""
        return seconds / self.time_scale

    @property
    def notice_seconds(self) -> float:
        """The seconds from an interruption notice to the interruption."""
        return self.scaled(NOTICE_SECONDS)

    @property
    def instance_seconds(self) -> float:
        """The seconds from a launch to `running`."""
        return self.scaled(2.0)

    @property
    def shutdown_seconds(self) -> float:
        """The seconds from SIGTERM to SIGKILL when an instance is terminated."""
        return self.scaled(30.0)

    @property
    def volume_seconds(self) -> float:
        """`creating`, `attaching` and `detaching` take this long each."""
        return self.scaled(1.0)

    @property
    def fleet_seconds(self) -> float:
        """The seconds from the loss of a fleet's instance to the launch of another."""
        return self.scaled(5.0)

    def snapshot_seconds(self, used_bytes: int) -> float:
        """Return the time from CreateSnapshot to `completed`."""
        return self.scaled(5.0 + used_bytes / (100 << 20))


class Table(Generic[_Resource]):
    """Resources of one kind.

    Args:
        kind: Their class.
        id_field: The field with the id.
        since_field: The field with the time since when there is one.
        not_found: EC2's error code and message for an id that is not there, with `{id}`.
    """

    def __init__(self, kind: type[_Resource], *, id_field: str, since_field: str, not_found: tuple[str, str]) -> None:
        self._documents: TypeAdapter[list[_Resource]] = TypeAdapter(list[kind])  # type: ignore[valid-type]
        self._since_field = since_field
        self._id_of: Callable[[_Resource], str] = lambda resource: str(getattr(resource, id_field))
        self._code, self._message = not_found
        self._resources: dict[str, _Resource] = {}

    def __iter__(self) -> Iterator[_Resource]:
        """Iterate over all of them as they are now."""
        return iter(list(self._resources.values()))

    def __contains__(self, resource_id: str) -> bool:
        """Return whether one has this id."""
        return resource_id in self._resources

    def __getitem__(self, resource_id: str) -> _Resource:
        """Return the one with this id.

        Raises:
            Ec2Error: There is none.
        """
        if resource_id not in self._resources:
            raise self._not_found(resource_id)
        return self._resources[resource_id]

    def restore(self, documents: list[Any]) -> None:
        """Replace all resources with those that `documents` returned."""
        self._resources = {self._id_of(resource): resource for resource in self._documents.validate_python(documents)}

    def documents(self) -> list[Any]:
        """Return all of them as JSON values."""
        documents: list[Any] = self._documents.dump_python(list(self), mode="json")
        return documents

    def put(self, resource: _Resource) -> _Resource:
        """Add or replaces one."""
        self._resources[self._id_of(resource)] = resource
        return resource

    def remove(self, resource_id: str) -> None:
        """Remove one, if it is there."""
        self._resources.pop(resource_id, None)

    def described(
        self,
        request: Mapping[str, Any],
        *,
        ids: str,
        values: Callable[[_Resource], Mapping[str, Sequence[str]]],
        made_before: float = math.inf,
    ) -> list[_Resource]:
        """Return those that a Describe request asks for.

        Args:
            request: Its ids and filters.
            ids: The request's name for ids.
            values: Returns a resource's values by filter.
            made_before: As for `shown`.

        Raises:
            Ec2Error: One that is named is not there, or not yet. There is no such filter. Or one page is not enough.
        """
        filters = request.get("Filters", [])
        found = self.shown(request.get(ids), made_before=made_before)
        return in_one_page(
            [resource for resource in found if matches(values(resource), resource.tags, filters)], request
        )

    def shown(self, ids: Sequence[str] | None, *, made_before: float) -> list[_Resource]:
        """Return the resources with these ids, or all, without those that requests do not see yet.

        Args:
            ids: The ids. None for all resources.
            made_before: The time after which made resources are not seen yet, in epoch seconds.

        Raises:
            Ec2Error: A named resource does not exist, or is not seen yet.
        """
        found = [self[resource_id] for resource_id in ids] if ids else list(self)
        late = [resource for resource in found if getattr(resource, self._since_field) > made_before]
        if ids and late:
            raise self._not_found(self._id_of(late[0]))
        return [resource for resource in found if resource not in late]

    def _not_found(self, resource_id: str) -> Ec2Error:
        return Ec2Error(self._code, self._message.format(id=resource_id))


class Cloud:
    """The state of the local EC2.

    Args:
        folder: The folder of its files.
        file_systems: The folder of the account's file systems.
        region: The region of its resources.
        account_id: The account id of its resources.
        find_platform: Finds the kind of hosts on this machine, when the first one is needed.
        endpoint_port: The port of the local AWS, which its hosts reach.
        agent_time_scale: The factor by which agents on its hosts ask for notices more often than on AWS.
        latencies: The times that things take.
        surroundings: The rest of the local AWS.
        send_event: Takes detail, detail type and resources of an event for the default bus. Returns at once.
        clock: Returns the time in epoch seconds.
    """

    def __init__(
        self,
        *,
        folder: Path,
        file_systems: Path,
        region: str,
        account_id: str,
        find_platform: Callable[[], HostPlatform],
        endpoint_port: int,
        agent_time_scale: float,
        latencies: Latencies,
        surroundings: Surroundings,
        send_event: Callable[[dict[str, Any], str, list[str]], None],
        clock: Callable[[], float],
    ) -> None:
        self.region = region
        self.account_id = account_id
        self._find_platform = find_platform
        self.endpoint_port = endpoint_port
        self.agent_time_scale = agent_time_scale
        self.latencies = latencies
        self.surroundings = surroundings
        self.send_event = send_event
        self.now = clock
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.hosts_folder = folder / "hosts"
        self.file_systems = file_systems
        self.hosts: dict[str, InstanceHost] = {}
        self.unseen_seconds = 0.0
        """The seconds for which requests get NotFound for a new fleet, instance or version of a launch template.

        EC2 is eventually consistent. Source: "Eventual consistency in the Amazon EC2 API", EC2 developer guide."""
        self.clock: Path | None = None
        """The library with which instances that boot from now on see a wrong wall clock. None for the machine's."""
        self.first_world_seconds: float | None = None
        """The wait for more nodes, before a first world with fewer, of nodes that boot from now on. None for AWS's."""
        self.volumes = Table(
            LocalVolume,
            id_field="volume_id",
            since_field="created_at",
            not_found=("InvalidVolume.NotFound", "The volume '{id}' does not exist."),
        )
        self.snapshots = Table(
            LocalSnapshot,
            id_field="snapshot_id",
            since_field="started_at",
            not_found=("InvalidSnapshot.NotFound", "The snapshot '{id}' does not exist."),
        )
        self.instances = Table(
            LocalInstance,
            id_field="instance_id",
            since_field="launched_at",
            not_found=("InvalidInstanceID.NotFound", "The instance ID '{id}' does not exist"),
        )
        self.fleets = Table(
            LocalFleet,
            id_field="fleet_id",
            since_field="created_at",
            not_found=("InvalidFleetId.NotFound", "The fleet ID '{id}' does not exist"),
        )
        self._market = Market(self.now(), ())
        self._saved = StateFile(folder / "resources.json")
        self._restore(self._saved.read())

    @functools.cached_property
    def platform(self) -> HostPlatform:
        """The kind of hosts on this machine.

        Raises:
            HostRefusedError: The options demand a kind that the machine refuses.
        """
        return self._find_platform()

    @property
    def shown_before(self) -> float:
        """The time after which made resources are not found by requests yet, in epoch seconds."""
        return self.now() - self.unseen_seconds

    @property
    def market(self) -> Market:
        """The spot market."""
        return self._market

    @market.setter
    def market(self, market: Market) -> None:
        self._market = market
        self.wake()

    def save(self) -> None:
        """Write all of it to its file."""
        tables = {name: table.documents() for name, table in self._tables().items()}
        self._saved.write({**tables, "market": self._market.to_document()})

    def _restore(self, saved: dict[str, Any]) -> None:
        if saved:
            for name, table in self._tables().items():
                table.restore(saved[name])
            self._market = Market.from_document(saved["market"])

    def _tables(self) -> dict[str, Table[Any]]:
        return {
            "volumes": self.volumes,
            "snapshots": self.snapshots,
            "instances": self.instances,
            "fleets": self.fleets,
        }

    def wake(self) -> None:
        """Wake the background thread."""
        with self.changed:
            self.changed.notify_all()

    def zones(self) -> list[str]:
        """Return the zones of the region, and those that only the market's script names."""
        return sorted({*self.surroundings.zones(), *self.market.zones})

    def arn(self, kind: str, resource_id: str) -> str:
        """Return the ARN of one of its resources."""
        return f"arn:aws:ec2:{self.region}:{self.account_id}:{kind}/{resource_id}"


def new_id(prefix: str) -> str:
    """Return a new resource id, with a prefix and 17 hexadecimal digits."""
    return f"{prefix}-{secrets.token_hex(9)[:17]}"


def zone_id(zone: str) -> str:
    """Return a zone's id, for example `use1-az1` of `us-east-1a`."""
    area, direction, number = zone[:-1].rsplit("-", 2) if zone[:-1].count("-") >= 2 else ("", "", "")
    letters = {"northeast": "ne", "northwest": "nw", "southeast": "se", "southwest": "sw"}
    short = letters.get(direction, direction[:1])
    return f"{area.replace('-', '')}{short}{number}-az{ord(zone[-1]) - ord('a') + 1}"


def requested_tags(request: Mapping[str, Any], resource_type: str) -> dict[str, str]:
    """Return the tags that a request's TagSpecifications give to one type of resource."""
    return {
        str(tag["Key"]): str(tag.get("Value", ""))
        for specification in request.get("TagSpecifications") or []
        if specification.get("ResourceType") == resource_type
        for tag in specification.get("Tags") or []
    }


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags as the API lists them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def refuse_other_request(token: str, *, before: Mapping[str, Any], request: Mapping[str, Any]) -> None:
    """Check that a client token that comes again comes with the same request.

    Raises:
        Ec2Error: It comes with another one.
    """
    if dict(before) != dict(request):
        raise Ec2Error(
            "IdempotentParameterMismatch",
            f"The client token {token} was used before, with other parameters",
        )
