"""SageMaker's quotas as the local AWS answers them, in the shape and with the names of Service Quotas.

How many instances wait in warm pools is limited here as the list says; jobs are not, and the list says so much of them
as a new account may have. There are some of the types that there are, with more usages than anybody asks for: a list of
several pages, like AWS's.
Source: https://docs.aws.amazon.com/servicequotas/2019-06-24/apireference/API_ListServiceQuotas.html
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

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


class LocalServiceQuotas:
    """Answers ListServiceQuotas.

    Args:
        warm_pool_quota: How many instances may wait in warm pools, now.
    """

    def __init__(self, *, warm_pool_quota: Callable[[], int]) -> None:
        self._warm_pool_quota = warm_pool_quota

    async def handle_request(
        self,
        method: str,  # noqa: ARG002 - the signature is the router's
        path: str,  # noqa: ARG002
        headers: Mapping[str, str],
        body: bytes,
        query_params: Mapping[str, list[str]],  # noqa: ARG002
    ) -> tuple[int, dict[str, str], bytes]:
        """Answers one request of JSON protocol 1.1."""
        target = headers.get("x-amz-target", "")
        if target != f"{TARGET}.ListServiceQuotas":
            return _answer(400, {"__type": "UnknownOperationException", "message": f"the local AWS has no {target}"})
        try:
            request = json.loads(body)
            service = request["ServiceCode"]
            if service != SERVICE:
                said = f"the local AWS knows the quotas of {SERVICE} alone, not of {service}"
                return _answer(400, {"__type": "NoSuchResourceException", "message": said})
            return _answer(200, self.list_service_quotas(request))
        except (KeyError, TypeError, ValueError) as error:
            return _answer(400, {"__type": "IllegalArgumentException", "message": f"cannot be read: {error}"})

    def list_service_quotas(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of ListServiceQuotas.

        Args:
            request: As the API takes it.

        Raises:
            ValueError: The token or the length of a page is not a number.
        """
        quotas = list(self._quotas())
        first, size = (
            int(request.get("NextToken", 0)),
            min(int(request.get("MaxResults", _LONGEST_PAGE)), _LONGEST_PAGE),
        )
        answer: dict[str, Any] = {"Quotas": quotas[first : first + size]}
        if first + size < len(quotas):
            answer["NextToken"] = str(first + size)
        return answer

    def _quotas(self) -> Iterator[dict[str, Any]]:
        waiting = self._warm_pool_quota()
        for family, sizes in _TYPES.items():
            for size in sizes:
                for usage in _USAGES:
                    name = f"ml.{family}.{size} for {usage} usage"
                    yield {
                        "ServiceCode": SERVICE,
                        "ServiceName": "Amazon SageMaker",
                        "QuotaName": name,
                        "QuotaCode": f"L-{hashlib.sha256(name.encode()).hexdigest()[:8].upper()}",
                        "Value": float(waiting if usage == WARM_POOLS else JOB_INSTANCES),
                        "Unit": "None",
                        "Adjustable": True,
                        "GlobalQuota": False,
                    }


def _answer(status: int, document: Mapping[str, Any]) -> tuple[int, dict[str, str], bytes]:
    return status, {"Content-Type": "application/x-amz-json-1.1"}, json.dumps(document).encode()
