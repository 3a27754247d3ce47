"""The quotas of EC2 for runs with several nodes. They count the vCPUs of all instances of some families.

Without room for all nodes the fewest may wait for the rest in vain, and are billed. A run of one instance that lacks
quota costs nothing, and `spotkeep describe` has EC2's words about it.

Sources:
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/using-spot-limits.html

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-on-demand-instances.html (On-Demand Instance quotas)
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from spotkeep_jobs.record.record import Run

_NAMES: Final = {
    "spot": re.compile(r"All (?P<families>.+) Spot Instance Requests"),
    "on-demand": re.compile(r"Running On-Demand (?P<families>.+) instances"),
}
"""The names of the quotas, such as `All P4, P3 and P2 Spot Instance Requests`, by capacity."""
_FAMILY: Final = re.compile(r"\b(?!Standard\b|All\b)[A-Z][A-Za-z]*\d*")
_TYPE: Final = re.compile(r"(?P<letters>[a-z]+)(?P<generation>\d+)?[^.]*\.(?P<number>\d*)(?P<size>x?large)")
_VCPUS_OF_XLARGE: Final = 4


@dataclass(frozen=True, kw_only=True)
class NodesQuota:
    """A quota that the nodes of a run use together.

    Attributes:
        name: Its name in Service Quotas.
        vcpus: The most vCPUs.
        needed: The vCPUs of all nodes of the run that needs most.
        nodes: These nodes in words, such as `4 x g5.12xlarge`.
        quota_code: The code for a request to raise it.
    """

    name: str
    vcpus: int
    needed: int
    nodes: str
    quota_code: str

    @property
    def is_missing(self) -> bool:
        """True where it has no room for all nodes."""
        return self.vcpus < self.needed

    @property
    def request(self) -> str:
        """The command that asks AWS for room for all nodes."""
        return (
            "aws service-quotas request-service-quota-increase --service-code ec2 "
            f"--quota-code {self.quota_code} --desired-value {self.needed}"
        )

    def as_document(self) -> dict[str, Any]:
        """Return the quota as JSON."""
        return asdict(self)


def vcpus_of(instance_type: str) -> int | None:
    """Return the vCPUs of an instance type by its size, four for each `xlarge`. None of sizes that do not say it."""
    named = _TYPE.fullmatch(instance_type)
    if named is None:
        return None
    if named["size"] == "large":
        return None if named["number"] else _VCPUS_OF_XLARGE // 2
    return _VCPUS_OF_XLARGE * int(named["number"] or 1)


def nodes_quotas(entries: Iterable[Mapping[str, Any]], *, runs: Collection[Run]) -> tuple[NodesQuota, ...]:
    """Return the quotas that runs with several nodes use.

    Args:
        entries: The entries of the answers of ListServiceQuotas for EC2.
        runs: The runs. Those of one instance do not count.
    """
    needs = list(_needs(runs))
    found = []
    for entry in entries:
        name = entry.get("QuotaName", "")
        mine = [(vcpus, nodes) for capacity, kind, vcpus, nodes in needs if _counts(name, capacity, kind)]
        if mine:
            needed, nodes = max(mine)
            quota = NodesQuota(
                name=name, vcpus=int(entry["Value"]), needed=needed, nodes=nodes, quota_code=entry["QuotaCode"]
            )
            found.append(quota)
    return tuple(sorted(found, key=lambda quota: quota.name))


def _needs(runs: Collection[Run]) -> Iterator[tuple[str, str, int, str]]:
    """Yield the capacity, the instance type, the vCPUs and the nodes in words, of each type of each run."""
    for run in runs:
        if run.node_range is None:
            continue
        most = run.node_range[1]
        for each in run.request.get("instance_types") or (run.place.instance_type,):
            vcpus = vcpus_of(each)
            if vcpus is not None:
                yield run.place.capacity, each, most * vcpus, f"{most} x {each}"


def _counts(name: str, capacity: str, instance_type: str) -> bool:
    """Return True if a quota counts an instance type. A family has the letters of its name, with its number or not."""
    quota, kind = _NAMES[capacity].fullmatch(name), _TYPE.fullmatch(instance_type)
    if quota is None or kind is None:
        return False
    families = {family.lower() for family in _FAMILY.findall(quota["families"])}
    return not families.isdisjoint({kind["letters"], f"{kind['letters']}{kind['generation'] or ''}"})


def read_nodes_quotas(client: Any, *, runs: Collection[Run]) -> tuple[NodesQuota, ...]:
    """Ask Service Quotas for those of EC2. It is not asked where no run has several nodes.

    Args:
        client: A boto3 client of `service-quotas`.
        runs: The runs.

    Raises:
        botocore.exceptions.ClientError: Service Quotas refused.
        botocore.exceptions.BotoCoreError: It could not be reached.
    """
    if all(run.node_range is None for run in runs):
        return ()
    pages = client.get_paginator("list_service_quotas").paginate(ServiceCode="ec2")
    return nodes_quotas((entry for page in pages for entry in page["Quotas"]), runs=runs)
