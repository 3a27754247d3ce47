"""The sources on real clients: one list for the controller and for `spotkeep doctor --account`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spotkeep_jobs.orphans.object_store import S3RunObjects
from spotkeep_jobs.orphans.sources import (
    AccountJobs,
    CheckpointOrphans,
    FleetOrphans,
    OrphanSource,
    ScheduleOrphans,
    Surroundings,
    TrainingJobOrphans,
    WarmPoolOrphans,
)
from spotkeep_jobs.pools.scheduler_api import EventBridgeScheduleGroup

if TYPE_CHECKING:
    from spotkeep_jobs.backends.ec2.sweep import FleetSweep


def sources_of(
    *,
    around: Surroundings,
    jobs: AccountJobs,
    scheduler: Any,
    s3: Any,
    checkpoint_bucket: str,
    isolated_teams: Sequence[str] = (),
    fleets: FleetSweep | None,
) -> tuple[OrphanSource, ...]:
    """Everything that is looked at.

    Args:
        around: What every source has.
        jobs: SageMaker's training jobs, as the caller may see them.
        scheduler: A client of EventBridge Scheduler.
        s3: A client of it.
        checkpoint_bucket: Where runs' objects are.
        isolated_teams: Those whose objects are looked at besides everybody's.
        fleets: What looks at EC2; None in a deployment without fleets.
    """
    return (
        TrainingJobOrphans(jobs, around),
        WarmPoolOrphans(jobs, around),
        ScheduleOrphans(EventBridgeScheduleGroup(scheduler, group=around.schedule_group), around),
        CheckpointOrphans(S3RunObjects(s3, bucket=checkpoint_bucket, isolated_teams=isolated_teams), around),
        *(() if fleets is None else (FleetOrphans(fleets, around),)),
    )
