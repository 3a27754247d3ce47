"""The services that instances need, and a judgement of the deployment's subnets as ways to them. Pure.

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

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from spotkeep_fleet.ecr_images import ecr_registry
from spotkeep_jobs.backends.ec2.facts import Subnet
from spotkeep_jobs.errors import Problem

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
