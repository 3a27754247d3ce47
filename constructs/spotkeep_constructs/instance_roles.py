"""The two roles of an EC2 instance, one before its run is known and one for its run.

An instance boots with the instance role, which fetches the agent, asks for the run's credentials and opens a shell.
Code of any run has the permissions of this role, once it has its credentials.

The function `instance_credentials` assumes the run role for an instance, and names run, attempt and instance in session
tags (`RunSession`), which do not change afterwards. The permissions are written once, with the tags as variables. A
session writes no other run's record, checkpoints, volumes, snapshots or log. It attaches volumes to its own instance
alone. docs/aws-resources.md lists the actions that IAM cannot limit in this way.

Sources: "IAM tutorial: Define permissions to access AWS resources based on tags", "IAM policy elements: Variables and
tags" (IAM user guide). "Actions, resources, and condition keys for Amazon EC2" (service authorization reference).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import partial

from aws_cdk import aws_iam as iam
from constructs import Construct

from spotkeep_constructs.checkpoint_bucket import CheckpointBucket
from spotkeep_constructs.instance_log import InstanceLog
from spotkeep_constructs.job_function import JobFunction
from spotkeep_constructs.session_manager import allow_agent
from spotkeep_constructs.statements import allow, allow_regional, arn_for, deny
from spotkeep_constructs.storage import RecordTable, allow_image_pull
from spotkeep_fleet.instance_job import FLEET_JOB_PARTITION_PREFIX
from spotkeep_fleet.record import FLEET_PARTITION_PREFIX
from spotkeep_fleet.run_session import RunSession, of_the_session
from spotkeep_fleet.tags import DEPLOYMENT_TAG, OF_INSTANCES_ALONE, OPERATION_TAG, RUN_TAG

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
    "sagemaker:CreateTrainingJob",
    "sts:AssumeRole",
)
"""Actions denied to an instance's roles, whatever else is attached to them.

It cancels no fleet, launches nothing, assumes no role.
"""

INVOCATIONS = ("lambda:InvokeFunction", "lambda:InvokeFunctionUrl")
"""Denied as well, but for the one function that an instance asks for the credentials of its run."""


class InstanceRole(Construct):
    """The instances' role.

    Attributes:
        role: The role.
    """

    def __init__(self, scope: Construct, id: str, *, checkpoints: CheckpointBucket) -> None:  # noqa: A002
        """Place the role.

        Args:
            scope: Parent construct.
            id: Construct id.
            checkpoints: The bucket with the `bundles/` that instances boot.
        """
        super().__init__(scope, id)
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            description="Spotkeep's EC2 instances boot with it, and ask for the credentials of their run",
        )
        checkpoints.grant_fetch_bundles(self.role)
        self._allow_session_manager()
        deny(self.role, actions=NEVER, resources=["*"])

    def let_ask(self, function: JobFunction) -> None:
        """Let instances ask for the credentials of their run, and invoke nothing else.

        Args:
            function: The function that gives them.
        """
        function.grant_invoke(self.role)
        deny(self.role, actions=INVOCATIONS, all_but=[function.function.function_arn])

    def _allow_session_manager(self) -> None:
        allow_agent(
            self.role,
            "ssm:UpdateInstanceInformation",
            conditions={"ArnLike": {"ec2:SourceInstanceARN": arn_for(self.role, "ec2", "instance")}},
            bound="the condition binds the calls to this account's instances.",
        )


AGENT_EVENT_SOURCE = "spotkeep.agent"
AGENT_DETAIL_TYPE = "Spotkeep Instance Change"

_SESSION_TAGS = [field.name for field in fields(RunSession)]

_RUN = of_the_session("run")
_MADE_LATER = "Instances, volumes and snapshots are made later; the conditions bind them to the session's run."


class RunRole(Construct):
    """The role of an instance's sessions, each limited to one run.

    Attributes:
        role: The role.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        deployment: str,
        assumed_by: iam.IRole,
        checkpoints: CheckpointBucket,
        run_table: RecordTable,
        log: InstanceLog,
    ) -> None:
        """Place the role.

        Args:
            scope: Parent construct.
            id: Construct id.
            deployment: Value of the tag `spotkeep:deployment`.
            assumed_by: The role of the function that alone may assume it, for instances.
            checkpoints: The bucket that holds runs.
            run_table: The table with the fleet records.
            log: The log group for the output of trainings.
        """
        super().__init__(scope, id)
        self._deployment = deployment
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.SessionTagsPrincipal(iam.ArnPrincipal(assumed_by.role_arn)).with_conditions(
                {
                    "Null": {f"aws:RequestTag/{tag}": "false" for tag in _SESSION_TAGS},
                    "ForAllValues:StringEquals": {"aws:TagKeys": _SESSION_TAGS},
                }
            ),
            description="Spotkeep's EC2 instances work on their run with it, and on no other",
        )
        checkpoints.grant_train_one_run(
            self.role, runs=of_the_session("runs"), run=_RUN, checkpoints=of_the_session("checkpoints")
        )
        allow_image_pull(self.role)
        log.grant_write(self.role, stream=f"{_RUN}-{of_the_session('attempt')}/algo-*")
        self._allow_fleet_record(run_table)
        self._allow_events()
        self._allow_volumes()
        deny(self.role, actions=[*NEVER, *INVOCATIONS], resources=["*"])

    def let_assume(self, grantee: iam.IGrantable) -> None:
        """Let a principal assume the role for a run, and ask EC2 which one.

        Args:
            grantee: The role that the trust policy names.
        """
        allow(grantee, actions=["sts:AssumeRole", "sts:TagSession"], resources=[self.role.role_arn])
        allow_regional(grantee, "ec2:DescribeInstances")

    def _allow_fleet_record(self, run_table: RecordTable) -> None:
        """Let an instance read its work and write its state. No instance writes the commands of a run."""
        partitions = {
            "dynamodb:GetItem": [FLEET_JOB_PARTITION_PREFIX, FLEET_PARTITION_PREFIX],
            "dynamodb:PutItem": [FLEET_PARTITION_PREFIX],
        }
        for action, prefixes in partitions.items():
            keys = [f"{prefix}{_RUN}" for prefix in prefixes]
            allow(
                self.role,
                actions=[action],
                resources=[run_table.table.table_arn],
                conditions={"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": keys}},
            )

    def _allow_events(self) -> None:
        allow(
            self.role,
            actions=["events:PutEvents"],
            resources=[arn_for(self.role, "events", "event-bus", "default")],
            conditions={
                "StringEquals": {"events:source": AGENT_EVENT_SOURCE, "events:detail-type": AGENT_DETAIL_TYPE},
            },
        )

    def _allow_volumes(self) -> None:
        arn = partial(arn_for, self.role, "ec2")
        volumes, snapshots, instances = arn("volume"), arn("snapshot", account=""), arn("instance")
        allow_regional(self.role, "ec2:DescribeInstances", "ec2:DescribeSnapshots", "ec2:DescribeVolumes")
        of_the_run = self._of_the_run("aws:ResourceTag")
        made_by_an_agent = self._of_the_run("aws:ResourceTag", OPERATION_TAG)
        tagged_for_the_run = self._of_the_run("aws:RequestTag", OPERATION_TAG)
        self._allow_ec2("CreateVolume", volumes, tagged_for_the_run | {"Bool": {"ec2:Encrypted": "true"}})
        # The snapshot that a volume is made of: the protocol's own, or one that a user gave and tagged.
        self._allow_ec2("CreateVolume", snapshots, of_the_run)
        given = {"StringEquals": {f"aws:ResourceTag/{DEPLOYMENT_TAG}": self._deployment}}
        self._allow_ec2("CreateVolume", snapshots, given | {"Null": {f"aws:ResourceTag/{RUN_TAG}": "true"}})
        self._allow_ec2("CreateSnapshot", volumes, of_the_run)
        self._allow_ec2("CreateSnapshot", snapshots, tagged_for_the_run)
        asked_for = self._of_the_run("aws:RequestTag")["StringEquals"]
        self._allow_ec2(
            "CreateTags",
            (volumes, snapshots),
            {
                "StringEquals": {"ec2:CreateAction": ["CreateVolume", "CreateSnapshot"], **asked_for},
                # The user's own as well, as on the instance: all but those that mean something there.
                "ForAllValues:StringNotEquals": {"aws:TagKeys": sorted(OF_INSTANCES_ALONE - {RUN_TAG})},
            },
        )
        self._allow_ec2("AttachVolume", volumes, of_the_run)
        # To the instance itself: `ec2:SourceInstanceARN` is no key of requests with assumed credentials.
        self._allow_ec2("AttachVolume", arn("instance", of_the_session("instance")), of_the_run)
        # From another instance as well: that of an instance which is gone, and cannot let go of it any more.
        self._allow_ec2("DetachVolume", volumes, of_the_run)
        self._allow_ec2("DetachVolume", instances, of_the_run)
        # Never what a user brought: that has no operation.
        self._allow_ec2("DeleteVolume", volumes, made_by_an_agent)
        self._allow_ec2("DeleteSnapshot", snapshots, made_by_an_agent)

    def _allow_ec2(
        self, action: str, resources: str | tuple[str, ...], conditions: Mapping[str, Mapping[str, object]]
    ) -> None:
        named = [resources] if isinstance(resources, str) else resources
        allow(self.role, actions=[f"ec2:{action}"], resources=named, conditions=conditions, wildcard=_MADE_LATER)

    def _of_the_run(self, key: str, *present: str) -> dict[str, dict[str, object]]:
        """Return the tags of deployment and run with their values, and further tags with any."""
        own = {f"{key}/{DEPLOYMENT_TAG}": self._deployment, f"{key}/{RUN_TAG}": _RUN}
        conditions: dict[str, dict[str, object]] = {"StringEquals": dict(own)}
        if present:
            conditions["Null"] = {f"{key}/{name}": "false" for name in present}
        return conditions
