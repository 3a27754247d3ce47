"""Checks of a request's file systems that need AWS's answers.

They find a file system that is missing, of another type or not ready, and one that jobs cannot reach from their subnets
with their security groups. A mount that gets no answer would hang until the job is given up, at the price of its
instances. `judge` is pure, and `FileSystemChecks` asks AWS. A failed check stops no launch, but a launch on EC2 needs
the DNS names.

A file system of FSx for Lustre lies in one Availability Zone, and one of Amazon EFS has a mount target a zone. A job
gets those of its backend's subnets alone that lie in the zones of all its file systems. So no data crosses zones. The
rules of a security group may name prefix lists and peered networks, which are not read here. Such a rule counts as a
way.

Sources: "File system access control with Amazon VPC" (FSx for Lustre user guide), for ports 988 and 1018 to 1023.
"Creating security groups" (Amazon EFS user guide), for port 2049. DescribeFileSystems (FSx API reference) and
DescribeMountTargets (EFS API reference).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from spotkeep_jobs.backends.ec2.checks import Checked
from spotkeep_jobs.backends.ec2.ec2_api import Ec2Api
from spotkeep_jobs.backends.ec2.facts import PlacedSubnet, SecurityGroup, TrafficRule
from spotkeep_jobs.document.reading import shown
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.errors import AwsCallError, AwsRefusedError, Problem, RequestRefusedError
from spotkeep_jobs.temporary_errors import typed_errors

if TYPE_CHECKING:
    from spotkeep_jobs.document.source import FileSystemChannel

LUSTRE_PORTS: Final = ((988, 988), (1018, 1023))
"""The ports at which a file system of FSx for Lustre and its clients reach each other, by TCP."""
NFS_PORTS: Final = ((2049, 2049),)
"""The port of a mount target of Amazon EFS, by TCP."""
_NOT_FOUND: Final = "FileSystemNotFound"
_READY: Final = frozenset({"AVAILABLE", "UPDATING", "available", "updating"})
"""The states of FSx and of EFS in which a file system can be mounted."""


@dataclass(frozen=True, kw_only=True)
class MountPlace:
    """A place where a file system is reached, a network interface in one subnet.

    Attributes:
        subnet: Its subnet.
        group_ids: The security groups of the interface.
    """

    subnet: PlacedSubnet
    group_ids: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class JobNetwork:
    """The network of the jobs of one backend, and the words for it in refusals.

    Attributes:
        jobs: The name of what mounts there. Example: `training jobs`.
        subnet_ids: Its subnets. Empty where jobs are in none of the deployment's.
        group_ids: Returns the security groups of jobs.
        subnets_setting: The setting that names the subnets.
        groups_setting: The setting that names the security groups.
    """

    jobs: str
    subnet_ids: Sequence[str]
    group_ids: Callable[[], Sequence[str]]
    subnets_setting: str
    groups_setting: str


@dataclass(frozen=True, kw_only=True)
class Reached:
    """The subnets from which a job reaches its file systems, and the names of these.

    Attributes:
        subnet_ids: Those of the backend's subnets, in their order.
        names: The DNS names of the file systems, by their ids.
    """

    subnet_ids: tuple[str, ...]
    names: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class FileSystem:
    """A file system, as AWS describes it.

    Attributes:
        type: FSx's type, such as `LUSTRE` or `ONTAP`, or `EFS`.
        state: The state of FSx, such as `AVAILABLE`. None for one of EFS, whose mount targets have states.
        mount_name: The mount name of FSx for Lustre.
        dns_name: The DNS name. Of EFS it is the address of the mount target in the zone of each that asks.
        places: The places where it is reached, one a zone. Of EFS the mount targets that are ready.
    """

    type: str
    state: str | None = None
    mount_name: str | None = None
    dns_name: str = ""
    places: tuple[MountPlace, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NetworkFacts:
    """AWS's answers about the file systems of a request and the network of its jobs.

    Attributes:
        file_systems: File systems by service, `fsx` or `efs`, and id. None for one that the service does not know.
        subnets: The subnets of jobs.
        groups: The security groups of jobs.
        others: The security groups of the file systems, by id.
    """

    file_systems: Mapping[tuple[str, str], FileSystem | None]
    subnets: tuple[PlacedSubnet, ...]
    groups: tuple[SecurityGroup, ...] = ()
    others: Mapping[str, SecurityGroup] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FileSystemChecks:
    """Asks AWS about the file systems of a request.

    Attributes:
        fsx: Returns the client of FSx.
        efs: Returns the client of EFS.
        ec2: EC2, to ask for subnets and security groups.
        file_systems: The deployment's setting `file_systems`.
        networks: The networks of jobs, by backend.
        region: The region of the deployment.
    """

    fsx: Callable[[], Any]
    efs: Callable[[], Any]
    ec2: Ec2Api
    file_systems: Sequence[str]
    networks: Mapping[str, JobNetwork]
    region: str

    def check(self, request: JobRequest) -> Checked:
        """Judge the file systems of a request.

        Args:
            request: The parsed request. Other checks may have refused it already.
        """
        channels = self._askable(request)
        if not channels:
            return Checked()
        network = self.networks[request.backend]
        try:
            facts = self._facts(channels, network, with_groups=True)
        except AwsCallError as error:
            asked = f"{error.operation} ({error.code})"
            return Checked(warnings=(f"AWS could not be asked about file systems and their network: {asked}.",))
        return judge(channels, facts, network=network, region=self.region)

    def subnet_ids_for(self, request: JobRequest) -> tuple[str, ...]:
        """Return the subnets of a request's jobs, which are all of them for a request without file systems.

        Args:
            request: The validated request.
        """
        everywhere = tuple(self.networks[request.backend].subnet_ids)
        if not self._askable(request) or len(everywhere) < 2:
            return everywhere
        try:
            return self.reached(request).subnet_ids or everywhere
        except (AwsCallError, RequestRefusedError):
            return everywhere

    def reached(self, request: JobRequest) -> Reached:
        """Return the subnets from which a request's jobs reach its file systems, and the names of these.

        Args:
            request: The validated request.

        Raises:
            RequestRefusedError: A file system cannot be mounted, or not from a subnet of jobs, or AWS refuses to
                describe it.
            AwsBusyError: AWS could not answer. Call again.
        """
        channels, network = self._askable(request), self.networks[request.backend]
        try:
            facts = self._facts(channels, network, with_groups=False)
        except AwsRefusedError as error:
            raise RequestRefusedError([_not_described(channels, error)]) from error
        if problems := judge(channels, facts, network=network, region=self.region).problems:
            raise RequestRefusedError(problems)
        found = {name: each for (_, name), each in facts.file_systems.items() if each is not None}
        return Reached(
            subnet_ids=tuple(each.id for each in subnets_with([*found.values()], facts.subnets)),
            names={name: each.dns_name for name, each in found.items()},
        )

    def _askable(self, request: JobRequest) -> tuple[FileSystemChannel, ...]:
        """Return the channels whose file systems the launcher may describe. The document's rules refuse all others."""
        network = self.networks.get(request.backend)
        if network is None or not network.subnet_ids:
            return ()
        return tuple(
            each
            for each in request.file_system_channels
            if (each.fsx is None) != (each.efs is None) and each.file_system in self.file_systems
        )

    def _facts(self, channels: Sequence[FileSystemChannel], network: JobNetwork, *, with_groups: bool) -> NetworkFacts:
        asking = {"fsx": self._lustre, "efs": self._mount_targets}
        named = sorted({(_service(each), each.file_system) for each in channels})
        described = {(service, name): asking[service](name) for service, name in named}
        theirs = {place for each in described.values() for place in (each or {}).get("subnets", ())}
        subnets = {each.id: each for each in self.ec2.placed_subnets({*network.subnet_ids, *theirs})}
        file_systems = {
            key: None if each is None else self._file_system(each, subnets=subnets, with_groups=with_groups)
            for key, each in described.items()
        }
        group_ids = {
            group for each in file_systems.values() if each for place in each.places for group in place.group_ids
        }
        ours = network.group_ids() if with_groups else ()
        groups = {each.id: each for each in self.ec2.security_groups({*ours, *group_ids})}
        return NetworkFacts(
            file_systems=file_systems,
            subnets=tuple(subnets[name] for name in network.subnet_ids if name in subnets),
            groups=tuple(groups[name] for name in ours if name in groups),
            others={name: groups[name] for name in group_ids if name in groups},
        )

    def _lustre(self, name: str) -> dict[str, Any] | None:
        try:
            with typed_errors("describe_file_systems"):
                (found,) = self.fsx().describe_file_systems(FileSystemIds=[name])["FileSystems"]
        except AwsRefusedError as error:
            if error.code == _NOT_FOUND:
                return None
            raise
        return {
            "type": found["FileSystemType"],
            "state": found["Lifecycle"],
            "mount_name": found.get("LustreConfiguration", {}).get("MountName"),
            "dns_name": found.get("DNSName", ""),
            "subnets": found["SubnetIds"][:1],
            "interfaces": found.get("NetworkInterfaceIds", ()),
        }

    def _mount_targets(self, name: str) -> dict[str, Any] | None:
        targets: list[Mapping[str, Any]] = []
        query: dict[str, str] = {"FileSystemId": name}
        try:
            while True:
                with typed_errors("describe_mount_targets"):
                    page = self.efs().describe_mount_targets(**query)
                targets += page["MountTargets"]
                if not page.get("NextMarker"):
                    break
                query["Marker"] = page["NextMarker"]
        except AwsRefusedError as error:
            if error.code == _NOT_FOUND:
                return None
            raise
        ready = {each["SubnetId"]: each["MountTargetId"] for each in targets if each["LifeCycleState"] in _READY}
        domain = "amazonaws.com.cn" if self.region.startswith("cn-") else "amazonaws.com"
        dns_name = f"{name}.efs.{self.region}.{domain}"
        return {"type": "EFS", "dns_name": dns_name, "subnets": [*ready], "targets": ready}

    def _file_system(
        self, described: Mapping[str, Any], *, subnets: Mapping[str, PlacedSubnet], with_groups: bool
    ) -> FileSystem:
        targets: Mapping[str, str] = described.get("targets", {})
        places = []
        for name in described["subnets"]:
            groups: frozenset[str] = frozenset()
            if with_groups and name in targets:
                with typed_errors("describe_mount_target_security_groups"):
                    answer = self.efs().describe_mount_target_security_groups(MountTargetId=targets[name])
                groups = frozenset(answer["SecurityGroups"])
            elif with_groups and described.get("interfaces"):
                # All interfaces of a file system have its groups, and a large one has many interfaces.
                groups = self.ec2.groups_of_interface(described["interfaces"][0])
            if name in subnets:
                places.append(MountPlace(subnet=subnets[name], group_ids=groups))
        return FileSystem(
            type=described["type"],
            state=described.get("state"),
            mount_name=described.get("mount_name"),
            dns_name=described["dns_name"],
            places=tuple(places),
        )


def subnets_with(file_systems: Sequence[FileSystem], subnets: Sequence[PlacedSubnet]) -> tuple[PlacedSubnet, ...]:
    """Return the subnets of jobs that lie in a zone and the VPC of each file system, in their order.

    Args:
        file_systems: The file systems of a request.
        subnets: The subnets of the deployment's jobs.
    """
    return tuple(
        subnet
        for subnet in subnets
        if all(
            any((place.subnet.zone, place.subnet.vpc_id) == (subnet.zone, subnet.vpc_id) for place in each.places)
            for each in file_systems
        )
    )


def judge(channels: Sequence[FileSystemChannel], facts: NetworkFacts, *, network: JobNetwork, region: str) -> Checked:
    """Judge the file systems of a request by AWS's answers.

    Args:
        channels: The channels on file systems that the deployment's setting names.
        facts: AWS's answers about them.
        network: The network of the request's jobs.
        region: The region of the deployment.
    """
    problems: list[Problem] = []
    warnings: list[str] = []
    ready: dict[str, FileSystem] = {}
    mounted: dict[str, FileSystemChannel] = {}
    for channel in channels:
        found = facts.file_systems[_service(channel), channel.file_system]
        mistakes = list(_mistakes(channel, found, network=network, region=region))
        problems += mistakes
        if found is None or mistakes:
            continue
        away = list(_away(channel, found, facts.subnets, network=network))
        problems += away
        if not away and channel.file_system not in ready:
            ready[channel.file_system] = found
            mounted[channel.file_system] = channel
    together = subnets_with([*ready.values()], facts.subnets)
    for name, found in ready.items():
        near = together or subnets_with([found], facts.subnets)
        closed, doubtful = _closed(mounted[name], found, facts, near, network=network)
        problems += closed
        warnings += doubtful
    if len(ready) > 1 and not together:
        zones = "; ".join(f"{name} in {_zones(each)}" for name, each in ready.items())
        problems.append(
            Problem(
                field="channels",
                found=", ".join(ready),
                problem=f"are file systems that no subnet of {network.jobs} has all in its zone: {zones}",
                fix="Use file systems of one Availability Zone, or name a subnet of another zone in the setting "
                f"{network.subnets_setting}.",
            )
        )
    return Checked(problems=tuple(problems), warnings=tuple(warnings))


def _not_described(channels: Sequence[FileSystemChannel], error: AwsRefusedError) -> Problem:
    """Return the problem that AWS refuses to describe the file systems of a request, or the subnets of its jobs."""
    return Problem(
        field="channels",
        found=", ".join(dict.fromkeys(channel.file_system for channel in channels)),
        problem=f"cannot be mounted without AWS's description, and AWS refused it: {error.operation} ({error.code}: "
        f"{error.reason})",
        fix="Have an administrator compare the launcher's role with `spotkeep help roles`, then launch again.",
    )


def _service(channel: FileSystemChannel) -> str:
    return "efs" if channel.fsx is None else "fsx"


def _field(channel: FileSystemChannel) -> str:
    return f"channels.{channel.name}.{_service(channel)}"


def _mistakes(
    channel: FileSystemChannel, found: FileSystem | None, *, network: JobNetwork, region: str
) -> Iterator[Problem]:
    """Yield the reasons why a file system is none that jobs mount at this path."""
    name = channel.file_system
    if found is None:
        kinds = ("Amazon EFS", "fsx") if channel.fsx is None else ("FSx", "efs")
        yield Problem(
            field=_field(channel),
            found=shown(name),
            problem=f"is no file system of {kinds[0]} in {region}",
            fix=f"Correct the id, or write {kinds[1]}: {name} if it is of the other service.",
        )
    elif channel.fsx is not None and found.type != "LUSTRE":
        yield Problem(
            field=_field(channel),
            found=f"{name}, {found.type}",
            problem="is not a file system of FSx for Lustre, and jobs mount no other of FSx",
            fix="Name one for Lustre, or the data in S3 as uri.",
        )
    elif channel.fsx is not None and found.state not in _READY:
        yield Problem(
            field=_field(channel),
            found=f"{name}, {found.state}",
            problem="is not available, so that a job could not mount it",
            fix=f"Launch again when it is: aws fsx describe-file-systems --file-system-ids {name} --query "
            "'FileSystems[].Lifecycle'",
        )
    elif channel.fsx is None and not found.places:
        yield Problem(
            field=_field(channel),
            found=shown(name),
            problem="has no mount target that is available",
            fix=f"Make one in each zone of {network.subnets_setting}: aws efs create-mount-target --file-system-id "
            f"{name} --subnet-id <subnet> --security-groups <group>",
        )
    elif channel.fsx is not None and channel.mount_name != found.mount_name:
        yield Problem(
            field=f"channels.{channel.name}.path",
            found=shown(channel.path),
            problem=f"does not begin with /{found.mount_name}, the mount name of {name}",
            fix=f"Write /{found.mount_name}{channel.path if channel.path != '/' else ''}, or correct the first folder.",
        )


def _away(
    channel: FileSystemChannel, found: FileSystem, subnets: Sequence[PlacedSubnet], *, network: JobNetwork
) -> Iterator[Problem]:
    """Yield that no subnet of jobs lies where the file system is."""
    if subnets_with([found], subnets):
        return
    vpcs = sorted({place.subnet.vpc_id for place in found.places})
    ours = sorted({each.vpc_id for each in subnets})
    if not {*vpcs} & {*ours}:
        yield Problem(
            field=_field(channel),
            found=f"{channel.file_system} in {' and '.join(vpcs)}",
            problem=f"is in another VPC than {network.jobs}, which are in {' and '.join(ours)}",
            fix=f"Deploy with {network.subnets_setting} of the file system's VPC, or use a file system of theirs.",
        )
        return
    theirs = ", ".join(f"{each.id} ({each.zone})" for each in subnets)
    kind = "lies" if channel.fsx is not None else "has its mount targets"
    way = "" if channel.fsx is not None else "; or make a mount target in a zone of theirs: aws efs create-mount-target"
    yield Problem(
        field=_field(channel),
        found=f"{channel.file_system} in {_zones(found)}",
        problem=f"{kind} in another Availability Zone than each subnet of {network.jobs}: {theirs}",
        fix=f"Deploy with a subnet of {_zones(found)} in {network.subnets_setting}{way}.",
    )


def _zones(found: FileSystem) -> str:
    return " and ".join(sorted({place.subnet.zone for place in found.places}))


def _closed(
    channel: FileSystemChannel,
    found: FileSystem,
    facts: NetworkFacts,
    subnets: Sequence[PlacedSubnet],
    *,
    network: JobNetwork,
) -> tuple[list[Problem], list[str]]:
    """Return the ports that security groups keep closed between jobs in subnets and a file system, and doubtful ones.

    A subnet of IPv6 alone is not judged.
    """
    problems, warnings = [], []
    zones = {each.zone for each in subnets}
    ports = NFS_PORTS if channel.fsx is None else LUSTRE_PORTS
    ours = frozenset(each.id for each in facts.groups)
    our_networks = [each.network for each in subnets]
    for place in found.places if facts.groups else ():
        theirs = [facts.others[name] for name in sorted(place.group_ids) if name in facts.others]
        their_networks = [place.subnet.network]
        if place.subnet.zone not in zones or not theirs or not all([*our_networks, *their_networks]):
            continue
        at = f"{channel.file_system} ({', '.join(each.id for each in theirs)})"
        from_us = _missing((rule for each in theirs for rule in each.inbound), ports, ours, our_networks)
        if from_us:
            problems.append(
                Problem(
                    field=_field(channel),
                    found=at,
                    problem=f"lets no TCP in from {network.jobs} ({', '.join(sorted(ours))}) at port "
                    f"{_named(from_us)}, so that a mount would hang",
                    fix=_way("ingress", theirs[0].id, from_us, sorted(ours)[0]),
                )
            )
        to_them = _missing(
            (rule for each in facts.groups for rule in each.outbound), ports, place.group_ids, their_networks
        )
        if to_them:
            problems.append(
                Problem(
                    field=_field(channel),
                    found=f"{network.groups_setting} with {', '.join(sorted(ours))}",
                    problem=f"lets no TCP out to {at} at port {_named(to_them)}, so that a mount would hang",
                    fix=_way("egress", sorted(ours)[0], to_them, theirs[0].id),
                )
            )
        back = _missing(
            (rule for each in facts.groups for rule in each.inbound), ports, place.group_ids, their_networks
        )
        if channel.fsx is not None and back:
            warnings.append(
                f"AWS wants the security groups of clients of FSx for Lustre to let TCP in at port {_named(back)} from "
                f"{at}, and {', '.join(sorted(ours))} does not: {_way('ingress', sorted(ours)[0], back, theirs[0].id)}"
            )
    return list(dict.fromkeys(problems)), list(dict.fromkeys(warnings))


def _missing(
    rules: Iterable[TrafficRule],
    ports: Sequence[tuple[int, int]],
    groups: frozenset[str],
    networks: Sequence[str],
) -> list[tuple[int, int]]:
    """Return the port ranges that no rule lets through for some of the groups or networks."""
    fitting = [rule for rule in rules if _is_about(rule, groups, networks)]
    return [
        (first, last)
        for first, last in ports
        if not all(_let_through(port, fitting) for port in range(first, last + 1))
    ]


def _is_about(rule: TrafficRule, groups: frozenset[str], networks: Sequence[str]) -> bool:
    return bool(
        rule.unread or rule.groups & groups or any(_overlap(each, ours) for each in rule.networks for ours in networks)
    )


def _let_through(port: int, rules: Sequence[TrafficRule]) -> bool:
    return any(rule.first_port <= port <= rule.last_port for rule in rules)


def _overlap(one: str, other: str) -> bool:
    return ipaddress.ip_network(one, strict=False).overlaps(ipaddress.ip_network(other, strict=False))


def _named(ports: Sequence[tuple[int, int]]) -> str:
    return " and ".join(_range(each) for each in ports)


def _range(ports: tuple[int, int]) -> str:
    first, last = ports
    return str(first) if first == last else f"{first}-{last}"


def _way(direction: str, group: str, ports: Sequence[tuple[int, int]], other: str) -> str:
    """Return the command that opens ports, and that goes for each range."""
    commands = [
        f"aws ec2 authorize-security-group-{direction} --group-id {group} --ip-permissions "
        f"IpProtocol=tcp,FromPort={first},ToPort={last},UserIdGroupPairs=[{{GroupId={other}}}]"
        for first, last in ports
    ]
    return "; ".join(commands)
