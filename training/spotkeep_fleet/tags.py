"""The tags that name the owner of an instance, a volume or a snapshot. IAM binds an instance's permissions to them."""

from __future__ import annotations

from collections.abc import Mapping

DEPLOYMENT_TAG = "spotkeep:deployment"
RUN_TAG = "spotkeep:run"
ATTEMPT_TAG = "spotkeep:attempt"
CHECKPOINTS_TAG = "spotkeep:checkpoints"
"""The tag of an instance with the prefix of its run's checkpoints in the deployment's bucket, without a slash at its
end.
"""
OPERATION_TAG = "spotkeep:operation"
"""The tag of a volume or a snapshot with the operation that made it. See `FleetRecord.operations`."""

OWNER_TAG = "spotkeep:owner"
SUBNET_TAG = "spotkeep:subnet"
"""The tag of a placement group with the subnet whose nodes it is for."""
DRILL_TAG = "spotkeep:drill"
"""The tag that `spotkeep drill` puts on its target instance, and takes away. The experiment template selects by it."""
DRILL_VALUE = "now"


OF_INSTANCES_ALONE = frozenset({RUN_TAG, ATTEMPT_TAG, CHECKPOINTS_TAG, DRILL_TAG})
"""Tags with a meaning on an instance and on a volume. Only the volume protocol gives them to a volume."""


def volume_tags(*, deployment: str, run: str, operation: int, users: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the tags of volumes and snapshots that an instance of a run makes.

    Args:
        deployment: The deployment's name.
        run: The run's id.
        operation: The number of the operation of the run's volume protocol that makes it.
        users: The user's own tags, and the owner's. A bill is divided by them. A Name of theirs takes the place of
            Spotkeep's.
    """
    return {
        "Name": f"{run}-{operation}",
        **(users or {}),
        DEPLOYMENT_TAG: deployment,
        RUN_TAG: run,
        OPERATION_TAG: str(operation),
    }


def operation_of(tags: dict[str, str]) -> int | None:
    """Read the number of the operation that made a resource. None for one that Spotkeep did not make."""
    text = tags.get(OPERATION_TAG, "")
    return int(text) if text.isascii() and text.isdigit() else None
