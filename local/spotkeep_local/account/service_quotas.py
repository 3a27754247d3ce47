"""SageMaker's quotas as the local AWS answers them, in the shape and with the names of Service Quotas.

How many instances wait in warm pools is limited here as the list says; jobs are not, and the list says so much of them
as a new account may have. There are some of the types that there are, with more usages than `spotkeep doctor` reads: a
list of several pages, like AWS's.
Source: https://docs.aws.amazon.com/servicequotas/2019-06-24/apireference/API_ListServiceQuotas.html
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from spotkeep_local.service_base.aws_service import AwsService, JsonProtocol, ServiceError

TARGET: Final = "ServiceQuotasV20190624"
SERVICE: Final = "sagemaker"
WARM_POOLS: Final = "training warm pool"
JOB_INSTANCES: Final = 20
_TYPES: Final = {
    "m5": ("large", "xlarge", "2xlarge", "4xlarge", "12xlarge", "24xlarge"),
    "c5": ("large", "xlarge", "2xlarge", "4xlarge", "9xlarge", "18xlarge"),
    "g4dn": ("xlarge", "2xlarge", "4xlarge", "8xlarge", "12xlarge", "16xlarge"),
    "g5": ("xlarge", "2xlarge", "4xlarge", "8xlarge", "12xlarge", "24xlarge", "48xlarge"),
    "p3": ("2xlarge", "8xlarge", "16xlarge"),
    "p4d": ("24xlarge",),
}
_USAGES: Final = ("endpoint", "processing job", "spot training job", "training job", WARM_POOLS, "transform job")
_LONGEST_PAGE: Final = 100


def service_quotas(warm_pool_quota: Callable[[], int]) -> AwsService:
    """Make the service: ListServiceQuotas alone.

    Args:
        warm_pool_quota: How many instances may wait in warm pools, now.
    """
    return AwsService(
        JsonProtocol("service-quotas", target=TARGET),
        {"ListServiceQuotas": lambda request: list_service_quotas(request, warm_pool_quota=warm_pool_quota())},
    )


def list_service_quotas(request: Mapping[str, Any], *, warm_pool_quota: int) -> dict[str, Any]:
    """Return the answer of ListServiceQuotas.

    Args:
        request: As the API takes it.
        warm_pool_quota: How many instances may wait in warm pools.

    Raises:
        ServiceError: It asks for another service's quotas.
    """
    if (service := request["ServiceCode"]) != SERVICE:
        said = f"the local AWS knows the quotas of {SERVICE} alone, not of {service}"
        raise ServiceError(said, code="NoSuchResourceException")
    quotas = list(_quotas(warm_pool_quota))
    first = int(request.get("NextToken", 0))
    size = min(int(request.get("MaxResults", _LONGEST_PAGE)), _LONGEST_PAGE)
    answer: dict[str, Any] = {"Quotas": quotas[first : first + size]}
    if first + size < len(quotas):
        answer["NextToken"] = str(first + size)
    return answer


def _quotas(warm_pool_quota: int) -> Iterator[dict[str, Any]]:
    for family, sizes in _TYPES.items():
        for size in sizes:
            for usage in _USAGES:
                name = f"ml.{family}.{size} for {usage} usage"
                yield {
                    "ServiceCode": SERVICE,
                    "ServiceName": "Amazon SageMaker",
                    "QuotaName": name,
                    "QuotaCode": f"L-{hashlib.sha256(name.encode()).hexdigest()[:8].upper()}",
                    "Value": float(warm_pool_quota if usage == WARM_POOLS else JOB_INSTANCES),
                    "Unit": "None",
                    "Adjustable": True,
                    "GlobalQuota": False,
                }
