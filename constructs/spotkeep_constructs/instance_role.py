"""The role an EC2 instance of a run works with: volumes, fleet records, objects, a log; no way to launch anything.

One role serves all runs of a deployment, and IAM sees which *instance* calls, not which run it works on. So each
permission is bound as far as IAM can: to the deployment's tag, to what carries a run's tag, to the calling instance
itself, to one kind of partition of the run table. docs/aws-resources.md says what that leaves open.
"""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import ArnFormat, Aws, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from spotkeep_constructs.checkpoint_bucket import CheckpointBucket
from spotkeep_constructs.data_access import DataAccess
from spotkeep_constructs.instance_log import InstanceLog
from spotkeep_constructs.run_table import RunTable
from spotkeep_constructs.statements import allow, deny
from spotkeep_fleet.instance_job import FLEET_JOB_PARTITION_PREFIX
from spotkeep_fleet.record import FLEET_PARTITION_PREFIX
from spotkeep_fleet.tags import DEPLOYMENT_TAG, OPERATION_TAG, RUN_TAG

AGENT_EVENT_SOURCE = "spotkeep.agent"
AGENT_DETAIL_TYPE = "Spotkeep Instance Change"

NEVER = (
    "ec2:CreateFleet",
    "ec2:CreateLaunchTemplate",
    "ec2:CreateLaunchTemplateVersion",
    "ec2:DeleteFleets",
    "ec2:ModifyFleet",
    "ec2:RequestSpotFleet",
    "ec2:RequestSpotInstances",
    "ec2:RunInstances",
    "ec2:StartInstances",
    "ec2:TerminateInstances",
    "iam:*",
    "lambda:InvokeFunction",
    "sagemaker:CreateTrainingJob",
    "sts:AssumeRole",
)
"""Denied whatever is ever attached to the role: an instance cancels no fleet, launches nothing, becomes nobody else."""

_MADE_LATER = "Instances, volumes and snapshots are made later; the conditions bind them to this deployment's runs."


class InstanceRole(Construct):
    """The instances' role.

    Attributes:
        role: The role.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        deployment: str,
        checkpoints: CheckpointBucket,
        run_table: RunTable,
        log: InstanceLog,
        data: DataAccess,
    ) -> None:
        """Places the role.

        Args:
            scope: Parent construct.
            id: Construct id.
            deployment: Value of the tag `spotkeep:deployment`.
            checkpoints: The bucket whose `bundles/` they boot, and whose `runs/` they read, and write checkpoints and
                models of.
            run_table: Holds the fleet records.
            log: Where they write what the training prints.
            data: What trainings may read besides.
        """
        super().__init__(scope, id)
        self._deployment = deployment
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            description="Spotkeep's EC2 instances run with it",
        )
        checkpoints.grant_fetch_bundles(self.role)
        checkpoints.grant_train_on_instance(self.role)
        data.grant_read(self.role)
        log.grant_write(self.role)
        self._allow_fleet_records(run_table)
        self._allow_events()
        self._allow_volumes()
        self._allow_session_manager()
        deny(self.role, actions=NEVER, resources=["*"])

    def _allow_fleet_records(self, run_table: RunTable) -> None:
        """Instances read what they are to do and write what became of it: what is executed, no instance writes."""
        partitions = {
            "dynamodb:GetItem": [FLEET_JOB_PARTITION_PREFIX, FLEET_PARTITION_PREFIX],
            "dynamodb:PutItem": [FLEET_PARTITION_PREFIX],
        }
        for action, prefixes in partitions.items():
            keys = [f"{prefix}*" for prefix in prefixes]
            allow(
                self.role,
                actions=[action],
                resources=[run_table.table.table_arn],
                conditions={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": keys}},
            )

    def _allow_events(self) -> None:
        allow(
            self.role,
            actions=["events:PutEvents"],
            resources=[Stack.of(self).format_arn(service="events", resource="event-bus", resource_name="default")],
            conditions={
                "StringEquals": {"events:source": AGENT_EVENT_SOURCE, "events:detail-type": AGENT_DETAIL_TYPE},
            },
        )

    def _allow_volumes(self) -> None:
        volumes, snapshots, instances = self._arn("volume"), self._arn("snapshot", account=""), self._arn("instance")
        allow(
            self.role,
            actions=["ec2:DescribeInstances", "ec2:DescribeSnapshots", "ec2:DescribeVolumes"],
            resources=["*"],
            conditions={"StringEquals": {"aws:RequestedRegion": Aws.REGION}},
            wildcard="EC2's look-ups know no resources; the region is the narrowest bound they take.",
        )
        of_a_run = self._tagged("aws:ResourceTag", RUN_TAG)
        made_by_an_agent = self._tagged("aws:ResourceTag", RUN_TAG, OPERATION_TAG)
        tagged_for_a_run = self._tagged("aws:RequestTag", RUN_TAG, OPERATION_TAG)
        self._allow_ec2("CreateVolume", volumes, tagged_for_a_run | {"Bool": {"ec2:Encrypted": "true"}})
        # The snapshot that a volume is made of: the protocol's own, or one that a user gave and tagged.
        self._allow_ec2("CreateVolume", snapshots, self._tagged("aws:ResourceTag"))
        self._allow_ec2("CreateSnapshot", volumes, of_a_run)
        self._allow_ec2("CreateSnapshot", snapshots, tagged_for_a_run)
        allow(
            self.role,
            actions=["ec2:CreateTags"],
            resources=[volumes, snapshots],
            wildcard=_MADE_LATER,
            conditions={
                "StringEquals": {
                    "ec2:CreateAction": ["CreateVolume", "CreateSnapshot"],
                    f"aws:RequestTag/{DEPLOYMENT_TAG}": self._deployment,
                },
                "ForAllValues:StringEquals": {"aws:TagKeys": [DEPLOYMENT_TAG, RUN_TAG, OPERATION_TAG, "Name"]},
            },
        )
        self._allow_ec2("AttachVolume", volumes, of_a_run)
        # Source: AWS's own policy AWSEC2VssSnapshotPolicy binds an instance to itself in these words.
        itself = {"ArnEquals": {"ec2:SourceInstanceARN": self._arn("instance", name="${ec2:InstanceID}")}}
        self._allow_ec2("AttachVolume", instances, itself)
        # From another instance as well: that of an instance which is gone, and cannot let go of it any more.
        self._allow_ec2("DetachVolume", volumes, of_a_run)
        self._allow_ec2("DetachVolume", instances, of_a_run)
        # Never what a user brought: that has no operation.
        self._allow_ec2("DeleteVolume", volumes, made_by_an_agent)
        self._allow_ec2("DeleteSnapshot", snapshots, made_by_an_agent)

    def _allow_session_manager(self) -> None:
        """What the Systems Manager's agent needs for a shell, and not the rest of AWS's managed policy for it.

        Source: "Create a custom IAM role for Session Manager".
        """
        allow(
            self.role,
            actions=[
                "ssm:UpdateInstanceInformation",
                "ssmmessages:CreateControlChannel",
                "ssmmessages:CreateDataChannel",
                "ssmmessages:OpenControlChannel",
                "ssmmessages:OpenDataChannel",
            ],
            resources=["*"],
            conditions={"ArnLike": {"ec2:SourceInstanceARN": self._arn("instance")}},
            wildcard="Session Manager's channels are no IAM resources; the condition binds the calls to this "
            "account's instances.",
        )

    def _allow_ec2(self, action: str, resource: str, conditions: Mapping[str, Mapping[str, object]]) -> None:
        allow(self.role, actions=[f"ec2:{action}"], resources=[resource], conditions=conditions, wildcard=_MADE_LATER)

    def _tagged(self, key: str, *present: str) -> dict[str, dict[str, object]]:
        """The deployment's tag with its value, and further tags with any."""
        conditions: dict[str, dict[str, object]] = {"StringEquals": {f"{key}/{DEPLOYMENT_TAG}": self._deployment}}
        if present:
            conditions["Null"] = {f"{key}/{name}": "false" for name in present}
        return conditions

    def _arn(self, resource: str, *, name: str = "*", account: str | None = None) -> str:
        return Stack.of(self).format_arn(
            service="ec2",
            account=account,
            resource=resource,
            resource_name=name,
            arn_format=ArnFormat.SLASH_RESOURCE_NAME,
        )
