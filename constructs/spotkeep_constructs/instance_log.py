"""The log group of EC2 instances. It has the output of trainings, one stream an attempt."""

from __future__ import annotations

from aws_cdk import RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from spotkeep_constructs.statements import allow, arn_for

_EVERY_STREAM = "Streams are named after attempts, which come later: those of the deployment's own group alone."


def group_name(deployment: str) -> str:
    """Return the group's name.

    Args:
        deployment: Name of the deployment.
    """
    return f"/spotkeep/{deployment}/instances"


def grant_read_instance_log(grantee: iam.IGrantable, *, deployment: str, whole_streams: bool = False) -> iam.Grant:
    """Let a principal read the logs of trainings on instances. The log group may be of another stack.

    Args:
        grantee: A role, user or managed policy.
        deployment: Name of the deployment.
        whole_streams: True to let it read whole log streams too.
    """
    return allow(
        grantee,
        actions=["logs:DescribeLogStreams", "logs:GetLogEvents" if whole_streams else "logs:FilterLogEvents"],
        resources=_arns(grantee, deployment),
        wildcard=_EVERY_STREAM,
    )


def _arns(grantee: iam.IGrantable, deployment: str) -> list[str]:
    group = arn_for(grantee, "logs", "log-group", group_name(deployment), colon=True)
    return [group, f"{group}:*"]


class InstanceLog(Construct):
    """The log group.

    Attributes:
        group: The group.
    """

    def __init__(self, scope: Construct, id: str, *, deployment: str, retention: logs.RetentionDays) -> None:  # noqa: A002
        """Place the group.

        Args:
            scope: Parent construct.
            id: Construct id.
            deployment: Name of the deployment, which the group is named after.
            retention: The time that lines are kept.
        """
        super().__init__(scope, id)
        self._deployment = deployment
        self.group = logs.LogGroup(
            self,
            "Group",
            log_group_name=group_name(deployment),
            retention=retention,
            removal_policy=RemovalPolicy.DESTROY,
        )

    def grant_write(self, grantee: iam.IGrantable, *, stream: str) -> iam.Grant:
        """Let a principal write streams of this group, and make them.

        CloudWatch Logs asks for both with the stream's ARN, and says so where it refuses.

        Args:
            grantee: The role.
            stream: The streams' name, which may hold policy variables, and ends in a `*` for the node.
        """
        return allow(
            grantee,
            actions=["logs:CreateLogStream", "logs:PutLogEvents"],
            resources=[f"{_arns(grantee, self._deployment)[0]}:log-stream:{stream}"],
            wildcard="Each node of a run has a stream; run and attempt are the session's own.",
        )
