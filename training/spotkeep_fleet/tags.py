"""How an instance, a volume or a snapshot says whose it is. IAM binds an instance's permissions to these tags."""

from __future__ import annotations

DEPLOYMENT_TAG = "spotkeep:deployment"
RUN_TAG = "spotkeep:run"
OPERATION_TAG = "spotkeep:operation"
"""On a volume or a snapshot: which operation of the run's volume protocol made it; see `FleetRecord.operations`."""


def volume_tags(*, deployment: str, run: str, operation: int) -> dict[str, str]:
    """Give the tags of what an instance of a run makes."""
    return {
        DEPLOYMENT_TAG: deployment,
        RUN_TAG: run,
        OPERATION_TAG: str(operation),
        "Name": f"{run}-{operation}",
    }


def operation_of(tags: dict[str, str]) -> int | None:
    """Read which operation made something; None for what nobody of ours made."""
    text = tags.get(OPERATION_TAG, "")
    return int(text) if text.isascii() and text.isdigit() else None
