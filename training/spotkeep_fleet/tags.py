"""How an instance, a volume or a snapshot says whose it is. IAM binds what instances may do to these tags."""

from __future__ import annotations

DEPLOYMENT_TAG = "spotkeep:deployment"
RUN_TAG = "spotkeep:run"
ATTEMPT_TAG = "spotkeep:attempt"
CHECKPOINTS_TAG = "spotkeep:checkpoints"
"""On an instance: the prefix of its run's checkpoints in the deployment's bucket, without a slash at its end."""
OPERATION_TAG = "spotkeep:operation"
"""On a volume or a snapshot: which operation of the run's volume protocol made it; see `FleetRecord.operations`."""

DRILL_TAG = "spotkeep:drill"
"""`spotkeep drill` puts it on the instance that it means, and takes it away; the experiment template selects by it."""
DRILL_VALUE = "now"


def volume_tags(*, deployment: str, run: str, operation: int) -> dict[str, str]:
    """Give the tags of what an instance of a run makes."""
    return {
        DEPLOYMENT_TAG: deployment,
        RUN_TAG: run,
        OPERATION_TAG: str(operation),
        "Name": f"{run}-{operation}",
    }


def operation_of(tags: dict[str, str]) -> int | None:
    """Read which operation made something; None for what Spotkeep did not make."""
    text = tags.get(OPERATION_TAG, "")
    return int(text) if text.isascii() and text.isdigit() else None
