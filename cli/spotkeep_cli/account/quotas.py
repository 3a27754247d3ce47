"""SageMaker's quotas on the start of training jobs, as Service Quotas lists them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


class Usage(StrEnum):
    """The use of a quota, in the words of its name.

    Source: https://docs.aws.amazon.com/general/latest/gr/sagemaker.html (Service quotas)
    """

    SPOT = "spot training job"
    ON_DEMAND = "training job"
    WARM_POOL = "training warm pool"


@dataclass(frozen=True, kw_only=True)
class Quota:
    """The most instances of a type that may be at work, or wait, at the same time.

    Attributes:
        instance_type: The type.
        usage: The use that it limits.
        instances: Number of instances.
        code: The code for a request to raise it.
    """

    instance_type: str
    usage: Usage
    instances: int
    code: str

    def request(self, instances: int) -> str:
        """Return the command that asks AWS for so many instances."""
        return (
            "aws service-quotas request-service-quota-increase --service-code sagemaker "
            f"--quota-code {self.code} --desired-value {instances}"
        )

    def as_document(self) -> dict[str, Any]:
        """Return the quota as JSON."""
        return {
            "instance_type": self.instance_type,
            "usage": self.usage.value,
            "instances": self.instances,
            "quota_code": self.code,
        }


_NAME = re.compile(rf"(?P<type>ml\.\S+) for (?P<usage>{'|'.join(Usage)}) usage")


def quotas_of(entries: Collection[Mapping[str, Any]], *, types: Collection[str]) -> Iterator[Quota]:
    """Yield the quotas of some instance types, among all that Service Quotas lists.

    Args:
        entries: The entries of an answer of ListServiceQuotas.
        types: Those that matter.
    """
    for entry in entries:
        named = _NAME.fullmatch(entry.get("QuotaName", ""))
        if named is not None and named["type"] in types:
            yield Quota(
                instance_type=named["type"],
                usage=Usage(named["usage"]),
                instances=int(entry["Value"]),
                code=entry["QuotaCode"],
            )


def read_quotas(client: Any, *, types: Collection[str]) -> tuple[Quota, ...]:
    """Read the quotas of some instance types. SageMaker has some thousand, a hundred a call.

    Args:
        client: A boto3 client of `service-quotas`.
        types: Those that matter.

    Raises:
        botocore.exceptions.ClientError: Service Quotas refused.
        botocore.exceptions.BotoCoreError: It could not be reached.
    """
    wanted = len(types) * len(Usage)
    found: list[Quota] = []
    for page in client.get_paginator("list_service_quotas").paginate(ServiceCode="sagemaker"):
        found += quotas_of(page["Quotas"], types=types)
        if len(found) >= wanted:
            break
    return tuple(sorted(found, key=lambda quota: (quota.instance_type, list(Usage).index(quota.usage))))
