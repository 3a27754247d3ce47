"""The sources of orphans on real clients: one list for the controller and for `spotkeep doctor --account`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spotkeep_jobs.orphans.object_store import RunObjects
from spotkeep_jobs.orphans.sources import (
    OrphanSearch,
    OrphanSource,
    orphaned_checkpoints,
    orphaned_fleets,
    orphaned_jobs,
    orphaned_pools,
    orphaned_service_jobs,
)

if TYPE_CHECKING:
    from spotkeep_jobs.backends.batch.jobs import ServiceJobs
    from spotkeep_jobs.backends.ec2.fleet_orphans import FleetOrphans
    from spotkeep_jobs.backends.sagemaker.api import SageMakerTrainingJobs


def sources_of(
    *,
    around: OrphanSearch,
    jobs: SageMakerTrainingJobs,
    s3: Any,
    checkpoint_bucket: str,
    isolated_teams: Sequence[str] = (),
    fleets: FleetOrphans | None,
    queues: ServiceJobs | None = None,
    queue_names: Sequence[str] = (),
) -> dict[str, OrphanSource]:
    """Return every source, by what it lists.

    Args:
        around: What every source has.
        jobs: SageMaker's training jobs, as the caller may see them.
        s3: A client of it.
        checkpoint_bucket: Where runs' objects are.
        isolated_teams: Those whose objects are listed besides all others.
        fleets: What lists EC2; None in a deployment without fleets.
        queues: The service jobs of AWS Batch; None where the caller may not see them.
        queue_names: The deployment's queues.
    """
    objects = RunObjects(s3, bucket=checkpoint_bucket, isolated_teams=isolated_teams)
    sources: dict[str, OrphanSource] = {
        "training jobs": lambda: orphaned_jobs(jobs, around),
        "warm pools": lambda: orphaned_pools(jobs, around),
        "checkpoints": lambda: orphaned_checkpoints(objects, around),
    }
    if queues is not None and queue_names:
        sources["service jobs"] = lambda: orphaned_service_jobs(queues, around, names=queue_names)
    if fleets is not None:
        sources["fleets, volumes and snapshots"] = lambda: orphaned_fleets(fleets, around)
    return sources
