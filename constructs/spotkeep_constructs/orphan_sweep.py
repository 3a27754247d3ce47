"""Who may look for what belongs to no live run, and who may remove it; and who may read what AWS charges."""

from __future__ import annotations

import json
from collections.abc import Sequence

from aws_cdk import Aws, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from spotkeep_constructs.checkpoint_bucket import CheckpointBucket
from spotkeep_constructs.job_function import JobFunction
from spotkeep_constructs.statements import allow
from spotkeep_constructs.training_jobs import TrainingJobs

PRICE_LIST_REGIONS = ["us-east-1", "eu-central-1", "ap-south-1"]
"""Where the Pricing API answers, for every region.
Source: https://docs.aws.amazon.com/general/latest/gr/billing.html (AWS Price List Service)"""


def grant_look(scope: Construct, grantee: iam.IGrantable, *, jobs: TrainingJobs, schedule_group: str) -> None:
    """Lets a principal list the names of every training job, and see the schedules of a group.

    Args:
        scope: A construct of the same account and region.
        grantee: A role or managed policy, which may describe jobs, read their tags and list runs' objects already.
        jobs: The deployment's training jobs.
        schedule_group: Name of the group of looks at warm pools.
    """
    jobs.grant_list(grantee)
    allow(
        grantee,
        actions=["scheduler:ListSchedules"],
        resources=["*"],
        wildcard="A list of schedules has no resource of its own; the region is the narrowest bound it takes.",
        conditions={"StringEquals": {"aws:RequestedRegion": Aws.REGION}},
    )
    allow(
        grantee,
        actions=["scheduler:GetSchedule"],
        resources=[_schedules(scope, schedule_group)],
        wildcard=_EVERY_SCHEDULE,
    )


class OrphanSweep(Construct):
    """Lets the controller look for orphans, remove them, and read AWS's price list. It creates nothing."""

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        controller: JobFunction,
        jobs: TrainingJobs,
        checkpoints: CheckpointBucket,
        schedule_group: str,
        removes: bool,
        isolated_teams: Sequence[str] = (),
    ) -> None:
        """Grants what the settings ask for, and tells the function of them.

        Args:
            scope: Parent construct.
            id: Construct id.
            controller: The function that looks; it may stop jobs and end pools already.
            jobs: The deployment's training jobs.
            checkpoints: Where runs' objects are.
            schedule_group: Name of the group of looks at warm pools.
            removes: Whether it removes what it finds, by rule, or only reports it.
            isolated_teams: Whose runs are stored apart.
        """
        super().__init__(scope, id)
        grant_look(self, controller.role, jobs=jobs, schedule_group=schedule_group)
        jobs.grant_search(controller.role)
        jobs.grant_read_tags(controller.role)
        checkpoints.grant_list_runs(controller.role, teams=(None, *isolated_teams))
        environment = {
            "SPOTKEEP_CHECKPOINT_BUCKET": checkpoints.bucket.bucket_name,
            "SPOTKEEP_ORPHANS": "remove" if removes else "report",
        }
        if isolated_teams:
            environment["SPOTKEEP_ISOLATED_TEAMS"] = json.dumps(isolated_teams)
        if removes:
            allow(
                controller.role,
                actions=["scheduler:DeleteSchedule"],
                resources=[_schedules(self, schedule_group)],
                wildcard=_EVERY_SCHEDULE,
            )
        allow(
            controller.role,
            actions=["pricing:GetProducts"],
            resources=["*"],
            wildcard="The price list is public and no resource; its regions are the narrowest bound it takes.",
            conditions={"StringEquals": {"aws:RequestedRegion": PRICE_LIST_REGIONS}},
        )
        for name, value in environment.items():
            controller.function.add_environment(name, value)


_EVERY_SCHEDULE = "Schedules are named after pools, which come later: those of this group alone."


def _schedules(scope: Construct, group: str) -> str:
    return Stack.of(scope).format_arn(service="scheduler", resource="schedule", resource_name=f"{group}/*")
