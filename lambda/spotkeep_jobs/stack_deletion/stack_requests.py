"""CloudFormation's requests for a custom resource, the answers to them, and the check if a stack is being deleted.

Sources: "Custom resource request types", "Custom resource response types", CloudFormation user guide.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from spotkeep_jobs.record.deployment_records import StackRequest

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient

_ANSWER_SECONDS: Final = 10.0
_LONGEST_REASON: Final = 1_024


def stack_request(event: object, *, now: datetime) -> StackRequest | None:
    """Read CloudFormation's request. None for an event that is none.

    Args:
        event: The event of the invocation.
        now: The time, aware.
    """
    if not isinstance(event, dict) or "ResponseURL" not in event:
        return None
    fields: dict[str, Any] = event
    return StackRequest(
        kind=fields["RequestType"],
        request_id=fields["RequestId"],
        stack_id=fields["StackId"],
        logical_resource_id=fields["LogicalResourceId"],
        physical_resource_id=fields.get("PhysicalResourceId") or fields["LogicalResourceId"],
        response_url=fields["ResponseURL"],
        asked_at=now,
    )


class Stacks:
    """The calls to CloudFormation that the end of a deployment needs."""

    def __init__(self, make_client: Callable[[], CloudFormationClient]) -> None:
        """Bind the client.

        Args:
            make_client: Makes a client of CloudFormation, when it is first needed, which is in nearly no invocation.
        """
        self._make_client = make_client

    def is_being_deleted(self, stack_id: str, /, *, still: bool = False) -> bool:
        """Return True if the whole stack is being deleted, and not only a resource of it.

        Args:
            stack_id: The stack.
            still: True to count only a deletion in progress, and not one that has failed.
        """
        (stack,) = self._make_client().describe_stacks(StackName=stack_id)["Stacks"]
        status = stack["StackStatus"]
        return status == "DELETE_IN_PROGRESS" if still else status.startswith("DELETE_")

    def answer(self, request: StackRequest, /, *, failed: str | None = None) -> None:
        """Answer a request with a failure, or with success.

        Raises:
            OSError: The answer could not be put at CloudFormation's address.
        """
        body = {
            "Status": "SUCCESS" if failed is None else "FAILED",
            "Reason": (failed or "Nothing of the deployment's runs bills any more")[:_LONGEST_REASON],
            "PhysicalResourceId": request.physical_resource_id,
            "StackId": request.stack_id,
            "RequestId": request.request_id,
            "LogicalResourceId": request.logical_resource_id,
        }
        put = urllib.request.Request(  # noqa: S310 - CloudFormation's own address
            request.response_url,
            data=json.dumps(body).encode(),
            # The address is signed for a request without a type; urllib would name one.
            headers={"Content-Type": ""},
            method="PUT",
        )
        with urllib.request.urlopen(put, timeout=_ANSWER_SECONDS):  # noqa: S310
            pass
