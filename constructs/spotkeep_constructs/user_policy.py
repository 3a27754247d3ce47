"""The permissions of a user for launching and following runs, and no others."""

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
    """A managed policy for users, which lets them invoke the launcher and read.

    It has no permission of SageMaker's to create or stop jobs. The launcher does both, after it validated and recorded
    the request.

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
                `<deployment>-users-<region>.<team>`. The region is in it since names of policies are unique in an
                account.
            launcher: The function that users invoke.
            run_table: The table of the runs that they read.
            checkpoints: The bucket with the objects of their runs, to which they upload sources.
            jobs: The jobs that they describe.
            dead_notifications: The queue of notifications that SNS has refused.
            fleets: The fleets with logs that they read, or None in a deployment without fleets.
            drills: True when they may interrupt an instance of a fleet.
            verify_callers: True when they reach the launcher by its URL alone, where AWS names the caller. Otherwise
                they may also invoke it directly, and name any caller.
            team: The isolated team of the users, who reach its objects instead of those of all others.
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
