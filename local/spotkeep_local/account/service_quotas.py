"""SageMaker's quotas as the local AWS answers them, in the shape and with the names of Service Quotas.

The listed quotas limit the instances of training jobs and those in warm pools here. The list has some instance types,
with more usages than `spotkeep doctor` reads. It has several pages, like AWS's.
Source: https://docs.aws.amazon.com/servicequotas/2019-06-24/apireference/API_ListServiceQuotas.html
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from spotkeep_local.service_base.aws_service import AwsService, JsonProtocol, ServiceError, page_of

TARGET: Final = "ServiceQuotasV20190624"
SERVICE: Final = "sagemaker"
WARM_POOLS: Final = "training warm pool"
TRAINING: Final = ("spot training job", "training job")
_OTHERS: Final = 20
_TYPES: Final = {
    "m5": ("large", "xlarge", "2xlarge", "4xlarge", "12xlarge", "24xlarge"),
    "c5": ("large", "xlarge", "2xlarge", "4xlarge", "9xlarge", "18xlarge"),
    "g4dn": ("xlarge", "2xlarge", "4xlarge", "8xlarge", "12xlarge", "16xlarge"),
    "g5": ("xlarge", "2xlarge", "4xlarge", "8xlarge", "12xlarge", "24xlarge", "48xlarge"),
    "p3": ("2xlarge", "8xlarge", "16xlarge"),
    "p4d": ("24xlarge",),
}
_USAGES: Final = ("endpoint", "processing job", *TRAINING, WARM_POOLS, "transform job")
_LONGEST_PAGE: Final = 100


def service_quotas(*, training: Callable[[], int], warm_pools: Callable[[], int]) -> AwsService:
    """Make the service, with ListServiceQuotas alone.

    Args:
        training: The number of instances of one type for training jobs, now.
        warm_pools: The number of instances that may wait in warm pools, now.
    """
    return AwsService(
        JsonProtocol("service-quotas", target=TARGET),
        {
            "ListServiceQuotas": lambda request: list_service_quotas(
                request, training=training(), warm_pools=warm_pools()
            )
        },
    )


def list_service_quotas(request: Mapping[str, Any], *, training: int, warm_pools: int) -> dict[str, Any]:
    """Return the answer of ListServiceQuotas.

    Args:
        request: The request as the API takes it.
        training: The number of instances of one type that training jobs may use.
        warm_pools: The number of instances that may wait in warm pools.

    Raises:
        ServiceError: It asks for another service's quotas.
    """
    if (service := request["ServiceCode"]) == "ec2":
        return page_of([], request, member="Quotas", longest=_LONGEST_PAGE)  # Its EC2 counts no vCPUs.
    if service != SERVICE:
        said = f"the local AWS knows the quotas of {SERVICE} alone, not of {service}"
        raise ServiceError(said, code="NoSuchResourceException")
    limits = dict.fromkeys(TRAINING, training) | {WARM_POOLS: warm_pools}
    return page_of(list(_quotas(limits)), request, member="Quotas", longest=_LONGEST_PAGE)


def _quotas(limits: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    for family, sizes in _TYPES.items():
        for size in sizes:
            for usage in _USAGES:
                name = f"ml.{family}.{size} for {usage} usage"
                yield {
                    "ServiceCode": SERVICE,
                    "ServiceName": "Amazon SageMaker",
                    "QuotaName": name,
                    "QuotaCode": f"L-{hashlib.sha256(name.encode()).hexdigest()[:8].upper()}",
                    "Value": float(limits.get(usage, _OTHERS)),
                    "Unit": "None",
                    "Adjustable": True,
                    "GlobalQuota": False,
                }
