"""The permissions of a person who launches and follows runs, and no others."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from spotkeep_constructs.checkpoint_bucket import CheckpointBucket
from spotkeep_constructs.connection import grant_read_connection
from spotkeep_constructs.fleets import Fleets
from spotkeep_constructs.instance_log import grant_read_instance_log
from spotkeep_constructs.job_function import JobFunction
from spotkeep_constructs.statements import allow, allow_regional
from spotkeep_constructs.storage import RunTable
from spotkeep_constructs.training_jobs import TrainingJobs


class UserPolicy(Construct):
    """A managed policy for users: they invoke the launcher, and read.

    No permission of SageMaker's to create or stop is in it: the launcher does both, after it validated and recorded.

    Attributes:
        policy: The managed policy, to be attached to users' roles or permission sets.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        deployment: str,
        launcher: JobFunction,
        run_table: RunTable,
        checkpoints: CheckpointBucket,
        jobs: TrainingJobs,
        dead_notifications: sqs.IQueue,
        fleets: Fleets | None = None,
        drills: bool = False,
        verify_callers: bool = False,
        team: str | None = None,
    ) -> None:
        """Place the policy.

        Args:
            scope: Parent construct.
            id: Construct id.
            deployment: Name of the deployment. The policy is named `<deployment>-users-<region>`, that of a team
                `<deployment>-users-<region>.<team>`: names of policies are one account's, whatever the region.
            launcher: The function users invoke.
            run_table: The runs they read.
            checkpoints: Where their runs' objects are, and where they upload sources.
            jobs: The jobs they describe.
            dead_notifications: The queue of notifications that SNS has refused.
            fleets: The fleets whose logs they read. None where the deployment has none.
            drills: Whether they may take an instance of a fleet away.
            verify_callers: Whether they reach the launcher by its URL alone, where AWS says who calls. Otherwise they
                may invoke it directly as well, and name any caller.
            team: The isolated team whose members it is for: they reach its objects instead of all others'.
        """
        super().__init__(scope, id)
        # No name of a deployment or of a team holds a dot, so no two policies of them have one name.
        of_team = "" if team is None else f".{team}"
        self.policy = iam.ManagedPolicy(
            self,
            "Policy",
            managed_policy_name=f"{deployment}-users-{Stack.of(self).region}{of_team}",
            description="May launch and follow Spotkeep runs",
        )
        launcher.grant_invoke_url(self.policy)
        if not verify_callers:
            launcher.grant_invoke(self.policy)
        grant_read_connection(self, self.policy, deployment=deployment)
        run_table.grant_read(self.policy)
        checkpoints.grant_read_runs(self.policy, team=team)
        checkpoints.grant_list_versions(self.policy, team=team)
        checkpoints.grant_put_sources(self.policy, team=team)
        jobs.grant_describe_own(self.policy)
        jobs.grant_read_logs(self.policy)
        # What `spotkeep doctor --account` reads beside the run table.
        jobs.grant_list(self.policy)
        allow_regional(self.policy, "servicequotas:ListServiceQuotas")
        # To have the launcher send again what is there: `spotkeep notifications replay`.
        allow(
            self.policy,
            actions=["sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:ReceiveMessage"],
            resources=[dead_notifications.queue_arn],
        )
        jobs.deny_longer_keep_alive(self.policy)
        if fleets is not None:
            grant_read_instance_log(self.policy, deployment=deployment, whole_streams=True)
            # What `spotkeep doctor --account` reads to find orphans on EC2.
            allow_regional(self.policy, "ec2:DescribeFleets", "ec2:DescribeSnapshots", "ec2:DescribeVolumes")
            fleets.grant_check_service_roles(self.policy, drills=drills)
            if drills:
                fleets.grant_drill(self.policy)
        # What `spotkeep plan` reads of the market.
        allow_regional(
            self.policy, "ec2:DescribeAvailabilityZones", "ec2:DescribeSpotPriceHistory", "ec2:GetSpotPlacementScores"
        )
