"""How an instance, a volume or a snapshot says whose it is. IAM binds what instances may do to these tags."""

from __future__ import annotations

from collections.abc import Mapping

DEPLOYMENT_TAG = "spotkeep:deployment"
RUN_TAG = "spotkeep:run"
ATTEMPT_TAG = "spotkeep:attempt"
CHECKPOINTS_TAG = "spotkeep:checkpoints"
"""On an instance: the prefix of its run's checkpoints in the deployment's bucket, without a slash at its end."""
OPERATION_TAG = "spotkeep:operation"
"""On a volume or a snapshot: which operation of the run's volume protocol made it. See `FleetRecord.operations`."""

OWNER_TAG = "spotkeep:owner"
DRILL_TAG = "spotkeep:drill"
"""`spotkeep drill` puts it on the instance that it means, and takes it away. The experiment template selects by it."""
DRILL_VALUE = "now"


OF_INSTANCES_ALONE = frozenset({RUN_TAG, ATTEMPT_TAG, CHECKPOINTS_TAG, DRILL_TAG})
"""Tags with a meaning on an instance, and on a volume: only the volume protocol gives them to a volume."""


def volume_tags(*, deployment: str, run: str, operation: int, users: Mapping[str, str] | None = None) -> dict[str, str]:
    """Give the tags of volumes and snapshots that an instance of a run makes.

    Args:
        deployment: The deployment's name.
        run: The run's id.
        operation: Which operation of the run's volume protocol makes it.
        users: The user's own, and the owner: a bill is divided by them. A Name of theirs takes the place of ours.
    """
    return {
        "Name": f"{run}-{operation}",
        **(users or {}),
        DEPLOYMENT_TAG: deployment,
        RUN_TAG: run,
        OPERATION_TAG: str(operation),
    }


def operation_of(tags: dict[str, str]) -> int | None:
    """Read which operation made something. None for what Spotkeep did not make."""
    text = tags.get(OPERATION_TAG, "")
    return int(text) if text.isascii() and text.isdigit() else None
