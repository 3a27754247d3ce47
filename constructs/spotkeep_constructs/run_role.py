"""The role an instance works on its run with: one role, and each session of it is bound to one run by its tags.

The function `instance_credentials` assumes it for an instance, and names run, attempt and instance in session tags
(`RunSession`), which do not change afterwards. The permissions are written once, with the tags as variables: a session
writes no other run's record, checkpoints, volumes, snapshots or log, and attaches volumes to its own instance alone.
docs/aws-resources.md says what IAM cannot bind.

Sources: "IAM tutorial: Define permissions to access AWS resources based on tags", "IAM policy elements: Variables and
tags" (IAM user guide); "Actions, resources, and condition keys for Amazon EC2" (service authorization reference).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import partial

from aws_cdk import aws_iam as iam
from constructs import Construct

from spotkeep_constructs.checkpoint_bucket import CheckpointBucket
from spotkeep_constructs.data_access import allow_image_pull
from spotkeep_constructs.instance_log import InstanceLog
from spotkeep_constructs.instance_role import INVOCATIONS, NEVER
from spotkeep_constructs.run_table import RunTable
from spotkeep_constructs.statements import allow, allow_regional, arn_for, deny
from spotkeep_fleet.instance_job import FLEET_JOB_PARTITION_PREFIX
from spotkeep_fleet.record import FLEET_PARTITION_PREFIX
from spotkeep_fleet.run_session import RunSession, of_the_session
from spotkeep_fleet.tags import DEPLOYMENT_TAG, OF_INSTANCES_ALONE, OPERATION_TAG, RUN_TAG

AGENT_EVENT_SOURCE = "spotkeep.agent"
AGENT_DETAIL_TYPE = "Spotkeep Instance Change"

_SESSION_TAGS = [field.name for field in fields(RunSession)]

_RUN = of_the_session("run")
_MADE_LATER = "Instances, volumes and snapshots are made later; the conditions bind them to the session's run."


class RunRole(Construct):
    """The role whose sessions are bound to a run.

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
        run_table: RunTable,
        log: InstanceLog,
    ) -> None:
        """Place the role.

        Args:
            scope: Parent construct.
            id: Construct id.
            deployment: Value of the tag `spotkeep:deployment`.
            assumed_by: The role of the function that assumes it for instances; no other principal may.
            checkpoints: The bucket that holds runs.
            run_table: Holds the fleet records.
            log: Where instances write what the training prints.
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
        log.grant_write(self.role, stream=f"{_RUN}-{of_the_session('attempt')}/algo-1-ec2")
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

    def _allow_fleet_record(self, run_table: RunTable) -> None:
        """Let an instance read what it is to do and write what became of it: what is executed, no instance writes."""
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
