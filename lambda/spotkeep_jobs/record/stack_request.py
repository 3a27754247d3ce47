"""What CloudFormation asks of a custom resource."""

from __future__ import annotations

from typing import Literal

from spotkeep_jobs.record.record import Record, UtcTime


class StackRequest(Record):
    """One request, as far as it is used; the names are CloudFormation's, in our spelling.

    Source: "Custom resource request types", CloudFormation user guide.
    """

    kind: Literal["Create", "Update", "Delete"]
    request_id: str
    stack_id: str
    logical_resource_id: str
    physical_resource_id: str
    """The same for the resource's whole life: another one would make CloudFormation delete the one before."""
    response_url: str
    """Where the answer goes, once."""
    asked_at: UtcTime
