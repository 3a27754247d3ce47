"""Checks of a request that need EC2's answers.

They cover the agent's support for its types, prices, volumes, and the services that its subnets reach. `judge` is pure.
`FleetChecks` calls EC2. A failed call stops no launch, because EC2 itself refuses an impossible request. An instance on
which the agent cannot work reports that and leaves.

Source: https://docs.aws.amazon.com/ebs/latest/userguide/nvme-ebs-volumes.html

The deployment's subnets are judged as ways to the services that instances need. This judgement is pure, too.

The target of a route beyond the VPC is not known. NAT, a transit gateway and a firewall all count as a way to AWS. Two
cases are certain to be none. In the first there is neither such a route nor an endpoint. In the second there is an
internet gateway for instances without public addresses. An egress-only gateway is for IPv6, which the services' names
do not have.

Instances use an endpoint without configuration in two cases. It is a route of the subnet's table (a gateway), or the
VPC gives it the service's own name (an interface with private DNS). AWS itself calls KMS on the instance's behalf. The
instance's own credentials come from the metadata service. A run does not need a shell through Session Manager (ssm,
ssmmessages).

Sources: "Gateway endpoints" and "Access an AWS service using an interface VPC endpoint" (AWS PrivateLink guide).
"Connect to the internet using an internet gateway" (Amazon VPC user guide).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from spotkeep_fleet.ecr_images import ecr_registry
from spotkeep_fleet.tags import DEPLOYMENT_TAG, RUN_TAG
from spotkeep_jobs.backends.ec2.ec2_api import Ec2Api
from spotkeep_jobs.backends.ec2.facts import (
    Ami,
    InstanceTypeFacts,
    Snapshot,
    SpotPrice,
    Subnet,
    Volume,
    fewest_adapters,
)
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.secrets import references_of
from spotkeep_jobs.errors import AwsCallError, Problem

REQUIRED_SERVICES: Final = {
    "s3": "the agent itself, source, data and checkpoints",
    "dynamodb": "the run's fleet record",
    "ec2": "the run's volume",
    "lambda": "the credentials of the run",
}
"""The services without which nothing trains, each with the use that instances make of it."""

WANTED_SERVICES: Final = {
    "events": "what happens on instances is known five minutes later",
    "logs": "spotkeep logs shows nothing",
}
"""The services without which a run goes on, each with the part that is missing then."""

_FOR_SECRETS: Final = {"secretsmanager": "the values of secrets"}
_FOR_IMAGES_IN_ECR: Final = {"ecr.api": "the login to Amazon ECR", "ecr.dkr": "the image"}


def network_problems(subnets: Sequence[Subnet], *, image: str | None, secrets: bool = False) -> Iterator[Problem]:
    """Yield subnets where nothing could train.

    Args:
        subnets: The subnets for instances.
        image: The container image that they pull. None for none.
        secrets: True where they read secrets.
    """
    in_ecr = image is not None and ecr_registry(image) is not None
    required = {
        **REQUIRED_SERVICES,
        **(_FOR_IMAGES_IN_ECR if in_ecr else {}),
        **(_FOR_SECRETS if secrets else {}),
    }
    for subnet in subnets:
        missing = _missing(subnet, required)
        if image is not None and not in_ecr and not missing and not _leaves(subnet):
            yield Problem(
                field="image",
                found=image,
                problem=f"cannot be pulled in {subnet.id}, where fleets may launch: nothing leads from it to the "
                "image's registry",
                fix="Put a copy of it into Amazon ECR, for which the VPC then needs endpoints of ecr.api and ecr.dkr; "
                "or route the subnet to a NAT gateway.",
            )
        if not missing:
            continue
        purposes = " or ".join(f"{service} ({required[service]})" for service in missing)
        without_address = any(target.startswith("igw-") for target in subnet.targets)
        why = ", since instances get no public address for its internet gateway" if without_address else ""
        ways = [
            *(["let the subnet give public addresses"] if without_address else []),
            "route it to a NAT gateway",
            f"give its VPC endpoints of {', '.join(missing)} (gateways for s3 and dynamodb, interfaces with private "
            "DNS names for others)",
            "leave it out of the setting vpc_subnet_ids",
        ]
        yield Problem(
            field="backend",
            found="ec2",
            problem=f"cannot train in {subnet.id}, where fleets may launch: nothing leads from it to {purposes}{why}",
            fix=f"One of these: {'; '.join(ways)}.",
        )


def adapter_problems(subnets: Sequence[Subnet], *, instance_types: Sequence[str], adapters: int) -> Iterator[Problem]:
    """Yield subnets that nodes with several adapters cannot leave, as EC2 gives such an instance no public address.

    Args:
        subnets: The subnets for instances.
        instance_types: The instance types of the nodes.
        adapters: The number of Elastic Fabric Adapters of each node.

    Source: "Public IPv4 addresses", EC2 user guide.
    """
    for subnet in subnets:
        missing = _missing(replace(subnet, public_addresses=False), REQUIRED_SERVICES)
        if adapters < 2 or not missing or _missing(subnet, REQUIRED_SERVICES):
            continue
        yield Problem(
            field="network.efa",
            found=", ".join(instance_types),
            problem=f"gives each node {adapters} adapters, and EC2 gives an instance with several no public address: "
            f"in {subnet.id} it would reach AWS by its internet gateway alone, so not {' or '.join(missing)}",
            fix=f"One of these: route {subnet.id} to a NAT gateway in a network of your own (the setting "
            "vpc_subnet_ids); add a type with one adapter to instance_types, so that each node has one; remove efa.",
        )


def training_network_problems(subnets: Sequence[Subnet]) -> Iterator[Problem]:
    """Yield subnets of SageMaker's jobs where nothing leads to AWS Secrets Manager.

    Args:
        subnets: The subnets, in which a job's interfaces have no public addresses.
    """
    for subnet in subnets:
        if _missing(subnet, _FOR_SECRETS):
            yield Problem(
                field="secrets",
                found=f"training_subnet_ids with {subnet.id}",
                problem=f"cannot be read in {subnet.id}, where training jobs run: nothing leads from it to AWS Secrets "
                "Manager",
                fix="One of these: give its VPC an interface endpoint of secretsmanager with private DNS names; route "
                "it to a NAT gateway; leave it out of the setting training_subnet_ids.",
            )


def network_warnings(subnets: Sequence[Subnet]) -> Iterator[str]:
    """Name the services that a run would do without.

    Args:
        subnets: The subnets for instances.
    """
    for service, without in WANTED_SERVICES.items():
        cut_off = [subnet.id for subnet in subnets if _missing(subnet, (service,))]
        if cut_off:
            yield f"Nothing leads from {' and '.join(cut_off)} to {service}: {without}."


def _leaves(subnet: Subnet) -> bool:
    return any(
        not target.startswith("eigw-") and (subnet.public_addresses or not target.startswith("igw-"))
        for target in subnet.targets
    )


def _missing(subnet: Subnet, services: Iterable[str]) -> list[str]:
    return [] if _leaves(subnet) else [service for service in services if service not in subnet.endpoints]


_WITHOUT_DOCKER: Final = re.compile(r"al2023-ami-(minimal-)?2023\.|amzn2-ami-(kernel|hvm|minimal)-")
"""The beginnings of the names of Amazon Linux's own AMIs, without those for ECS."""
_DRIVES_NVIDIA_ALONE: Final = "Deep Learning OSS Nvidia Driver AMI GPU PyTorch 2.11 (Amazon Linux 2023)"
"""The beginning of the default AMI's name (`instance_ami`)."""
_DRIVEN_FAMILIES: Final = (
    "g4dn", "g5", "g6", "g6e", "g6f", "gr6", "gr6f", "p4d", "p4de", "p5", "p5e", "p5en", "p6-b200",
)  # fmt: skip
"""The instance families with accelerators for which that AMI has a driver.

Its open driver is for GPUs from Turing on, which leaves out P3. G4ad has GPUs of AMD's.
Source: "AWS Deep Learning AMI GPU PyTorch 2.11 (Amazon Linux 2023)", release notes of 2026-10-05, "Supported EC2
Instances".
"""


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A place where the run may find capacity.

    Attributes:
        instance_type: The instance type.
        zone: The Availability Zone.
        spot_usd_per_hour: The present spot price there, in US dollars per hour.
    """

    instance_type: str
    zone: str
    spot_usd_per_hour: float


@dataclass(frozen=True, kw_only=True)
class MarketFacts:
    """EC2's answers about a request.

    Attributes:
        prices: The spot prices of its types in the deployment's zones.
        types: The types of the request that the region has.
        ami: The deployment's AMI, as far as it is known.
        snapshot: The snapshot from which the volume begins. None where the request names none, or EC2 knows none.
        volume: The volume that the request brings. None as above.
    """

    prices: tuple[SpotPrice, ...]
    types: tuple[InstanceTypeFacts, ...] = ()
    ami: Ami = field(default_factory=Ami)
    snapshot: Snapshot | None = None
    volume: Volume | None = None

    @property
    def offers(self) -> tuple[Offer, ...]:
        """Returns the newest price of each type and zone, the cheapest first."""
        newest: dict[tuple[str, str], SpotPrice] = {}
        for price in self.prices:
            place = (price.instance_type, price.zone)
            if place not in newest or newest[place].since < price.since:
                newest[place] = price
        return tuple(
            sorted(
                (Offer(instance_type=p.instance_type, zone=p.zone, spot_usd_per_hour=p.usd_per_hour)
                 for p in newest.values()),
                key=lambda offer: (offer.spot_usd_per_hour, offer.instance_type, offer.zone),
            )
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The result of the checks.

    Attributes:
        problems: The reasons to refuse the request.
        warnings: Choices that are allowed and probably not intended.
        offers: The places where it may find capacity.
    """

    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    offers: tuple[Offer, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FleetChecks:
    """Asks EC2 about a request, and judges it.

    Attributes:
        ec2: EC2, to ask.
        template_id: The deployed launch template, which names the AMI.
        subnets: The subnets for instances, as zones by subnet id.
        deployment: Its name.
        now: The time, aware.
    """

    ec2: Ec2Api
    template_id: str
    subnets: Mapping[str, str]
    deployment: str
    now: Callable[[], datetime]

    def check(self, request: JobRequest, *, subnet_ids: Sequence[str]) -> Checked:
        """Judge a request with the backend `ec2`.

        Args:
            request: The parsed request. Other checks may have refused it already.
            subnet_ids: Those of the subnets in which its instances launch.
        """
        market, network = self._market(request, subnet_ids), self._network(request, subnet_ids)
        return Checked(
            problems=(*market.problems, *network.problems),
            warnings=(*market.warnings, *network.warnings),
            offers=market.offers,
        )

    def _network(self, request: JobRequest, subnet_ids: Sequence[str]) -> Checked:
        try:
            subnets = self.ec2.subnets(subnet_ids)
            has_efa = request.network is not None and request.network.efa and request.types
            adapters = fewest_adapters(self.ec2.instance_types(request.types)) if has_efa else 1
        except AwsCallError as error:
            return Checked(
                warnings=(f"EC2 could not be asked what leads out of the deployment's subnets ({error.code}).",)
            )
        problems = (
            *network_problems(subnets, image=request.image, secrets=bool(references_of(request))),
            *adapter_problems(subnets, instance_types=request.types, adapters=adapters),
        )
        return Checked(problems=problems, warnings=tuple(network_warnings(subnets)))

    def _market(self, request: JobRequest, subnet_ids: Sequence[str]) -> Checked:
        zones = tuple(dict.fromkeys(self.subnets[each] for each in subnet_ids))
        volume = request.volume
        now = self.now()
        try:
            facts = MarketFacts(
                prices=self.ec2.spot_prices(instance_types=request.types, zones=zones, start=now, end=now)
                if request.types
                else (),
                types=self.ec2.instance_types(request.types) if request.types else (),
                ami=self.ec2.deployed_ami(self.template_id) if request.types else Ami(),
                snapshot=self.ec2.snapshot(volume.snapshot) if volume and volume.snapshot else None,
                volume=self.ec2.volume(volume.volume) if volume and volume.volume else None,
            )
        except AwsCallError as error:
            return Checked(warnings=(f"EC2 could not be asked about types, prices and volumes ({error.code}).",))
        return judge(request, facts, zones=zones, deployment=self.deployment)


def judge(request: JobRequest, facts: MarketFacts, *, zones: Sequence[str], deployment: str) -> Checked:
    """Judge a request by EC2's answers.

    Args:
        request: A request with the backend `ec2`.
        facts: EC2's answers about it.
        zones: The zones in which its instances launch.
        deployment: Its name.
    """
    problems = [
        *_types(request, facts, zones=zones),
        *_docker(request, facts.ami),
        *_snapshot(request, facts, deployment=deployment),
        *_brought_volume(request, facts, deployment=deployment),
    ]
    return Checked(problems=tuple(problems), warnings=tuple(_warnings(request, facts)), offers=facts.offers)


def _types(request: JobRequest, facts: MarketFacts, *, zones: Sequence[str]) -> Iterator[Problem]:
    priced = {offer.instance_type for offer in facts.offers}
    described = {each.name: each for each in facts.types}
    for instance_type in request.types:
        found = described.get(instance_type)
        # A price is a place where spot is sold; on demand, there are types that never have one.
        if instance_type not in priced and (found is None or (found.spot and request.capacity != "on-demand")):
            yield Problem(
                field="instance_types",
                found=instance_type,
                problem=f"is not offered in {' or '.join(sorted(set(zones))) or 'any zone of the deployment'}",
                fix="Correct the name, choose another type, or deploy to a region that has it.",
            )
        elif found is not None:
            yield from _can_work(found, request, facts)


def _can_work(found: InstanceTypeFacts, request: JobRequest, facts: MarketFacts) -> Iterator[Problem]:
    if not found.nvme_volumes:
        yield Problem(
            field="instance_types",
            found=found.name,
            problem="is not built on the Nitro system: its devices do not carry their volume's id, so the run's volume "
            "could not be distinguished from another",
            fix="Choose a type whose volumes are NVMe devices: those of the current generations.",
        )
    if request.capacity != "on-demand" and not found.spot:
        yield Problem(
            field="instance_types",
            found=found.name,
            problem="is not sold on spot",
            fix="Choose another type, or capacity: on-demand.",
        )
    yield from _driven(found, facts.ami)
    yield from _connected(found, request)
    made_for = facts.ami.architecture
    if made_for is not None and found.architectures and made_for not in found.architectures:
        yield Problem(
            field="instance_types",
            found=found.name,
            problem=f"has {' or '.join(found.architectures)} processors, and the deployment's AMI is for {made_for}",
            fix=f"Choose a type for {made_for}, or deploy with an AMI for this one (the setting instance_ami).",
        )


def _connected(found: InstanceTypeFacts, request: JobRequest) -> Iterator[Problem]:
    network = request.network
    if network is not None and network.efa and found.efa is False:
        yield Problem(
            field="network.efa",
            found=found.name,
            problem="has no Elastic Fabric Adapter, so EC2 would launch no node of it",
            fix="Choose types that have one, which are the larger sizes of some families (`aws ec2 "
            "describe-instance-types --filters Name=network-info.efa-supported,Values=true`), or remove efa.",
        )
    if network is not None and network.placement is not None and found.in_clusters is False:
        yield Problem(
            field="network.placement",
            found=found.name,
            problem="is a type that no cluster placement group takes",
            fix="Choose another type, or remove placement.",
        )


def _driven(found: InstanceTypeFacts, ami: Ami) -> Iterator[Problem]:
    """Yield a problem where the default AMI has no driver for a type's accelerators. The agent checks any other AMI."""
    if not found.accelerators or ami.name is None or not ami.name.startswith(_DRIVES_NVIDIA_ALONE):
        return
    if found.name.partition(".")[0] not in _DRIVEN_FAMILIES:
        yield Problem(
            field="instance_types",
            found=found.name,
            problem=f"has {' and '.join(found.accelerators)}, for which the deployment's AMI has no driver "
            f"({ami.name}): they would be paid for, and not used",
            fix=f"Choose a type of {', '.join(_DRIVEN_FAMILIES)}, or deploy with an AMI that drives them (the setting "
            "instance_ami).",
        )


def _docker(request: JobRequest, ami: Ami) -> Iterator[Problem]:
    """Yield a problem where an AMI's name says that it has no docker. The agent checks any other AMI."""
    if request.image is not None and ami.name is not None and _WITHOUT_DOCKER.match(ami.name):
        yield Problem(
            field="image",
            found=request.image,
            problem=f"needs docker, and the deployment's AMI is Amazon Linux without it ({ami.name})",
            fix="Deploy with an AMI that has docker (the setting instance_ami), as AWS's Deep Learning AMIs have, or "
            "remove it.",
        )


def _snapshot(request: JobRequest, facts: MarketFacts, *, deployment: str) -> Iterator[Problem]:
    wanted = request.volume.snapshot if request.volume is not None else None
    if wanted is None or request.volume is None:
        return
    found = facts.snapshot
    if found is None:
        yield Problem(
            field="volume.snapshot",
            found=wanted,
            problem="is no snapshot of this account and region",
            fix="See them: aws ec2 describe-snapshots --owner-ids self",
        )
        return
    if found.tags.get(DEPLOYMENT_TAG) != deployment:
        yield Problem(
            field="volume.snapshot",
            found=wanted,
            problem="does not carry the tag that lets instances of this deployment make a volume of it",
            fix=f"Tag it: aws ec2 create-tags --resources {wanted} --tags Key={DEPLOYMENT_TAG},Value={deployment}",
        )
    owner = found.tags.get(RUN_TAG)
    if owner is not None and owner != request.run:
        yield Problem(
            field="volume.snapshot",
            found=wanted,
            problem=f"carries the tag of the run {owner}, so that no other run's instances make a volume of it",
            fix=f"Take the tag away: aws ec2 delete-tags --resources {wanted} --tags Key={RUN_TAG}",
        )
    if found.state == "error":
        yield Problem(
            field="volume.snapshot",
            found=wanted,
            problem="ended in an error when it was made",
            fix="Make another one of the volume.",
        )
    elif found.size_gb > request.volume.size_gb:
        yield Problem(
            field="volume.size_gb",
            found=str(request.volume.size_gb),
            problem=f"is smaller than {wanted}, which holds a volume of {found.size_gb:,} GiB",
            fix=f"Give {found.size_gb:,} or more: EBS makes no volume smaller than its snapshot.",
        )


def _brought_volume(request: JobRequest, facts: MarketFacts, *, deployment: str) -> Iterator[Problem]:
    wanted = request.volume.volume if request.volume is not None else None
    if wanted is None:
        return
    found = facts.volume
    if found is None:
        yield Problem(
            field="volume.volume",
            found=wanted,
            problem="is no volume of this account and region",
            fix="See them: aws ec2 describe-volumes",
        )
        return
    if request.run is None:
        yield Problem(
            field="run",
            found="nothing",
            problem="is required with a volume of your own, which must carry the run's tag",
            fix="Choose an id for the run, and tag the volume with it.",
        )
    elif found.tags.get(RUN_TAG) != request.run or found.tags.get(DEPLOYMENT_TAG) != deployment:
        yield Problem(
            field="volume.volume",
            found=wanted,
            problem="does not carry the tags that let the run's instances use it",
            fix=f"Keep the run's id in the job file (run: {request.run}), and tag the volume with it: "
            f"aws ec2 create-tags --resources {wanted} --tags "
            f"Key={DEPLOYMENT_TAG},Value={deployment} Key={RUN_TAG},Value={request.run}",
        )
    if found.state != "available":
        yield Problem(
            field="volume.volume",
            found=f"{wanted}, {found.state}",
            problem="is not free: a volume is attached to one instance at a time",
            fix="Detach it, and launch again when it is available.",
        )


def _warnings(request: JobRequest, facts: MarketFacts) -> Iterator[str]:
    if request.capacity == "on-demand" or request.max_price is None or not facts.offers:
        return
    cheapest = facts.offers[0]
    if request.max_price < cheapest.spot_usd_per_hour:
        yield (
            f"max_price {request.max_price:g} USD is below every spot price there is now; the lowest is "
            f"{cheapest.spot_usd_per_hour:g} USD, {cheapest.instance_type} in {cheapest.zone}. The run waits until a "
            f"price falls, or {'max_wait ends it' if request.capacity == 'spot' else 'it goes on demand'}."
        )


def as_documents(offers: Sequence[Offer]) -> list[Mapping[str, object]]:
    """Return offers as they stand in an answer."""
    return [
        {"instance_type": each.instance_type, "zone": each.zone, "spot_usd_per_hour": each.spot_usd_per_hour}
        for each in offers
    ]
