"""The schedules of job documents: a group of their own, and the role they fire with.

The launcher makes the schedules that users ask for; a template cannot.
"""

from __future__ import annotations

from aws_cdk import Aws, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from spotkeep_constructs.job_function import JobFunction
from spotkeep_constructs.statements import allow
from spotkeep_jobs.functions.environment import LauncherEnvironment


class ScheduledLaunches(Construct):
    """A schedule group, and a role with which its schedules invoke the launcher and keep what they could not deliver.

    Destroying the group deletes the schedules in it.

    Attributes:
        group: The schedule group.
        role: The role schedules invoke with.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        deployment: str,
        launcher: JobFunction,
    ) -> None:
        """Place the group and the role.

        Args:
            scope: Parent construct.
            id: Construct id.
            deployment: Name of the deployment; the group is named `<deployment>-launches`.
            launcher: The function that makes and deletes the schedules and that they invoke.
        """
        super().__init__(scope, id)
        name = f"{deployment}-launches"
        self.group = scheduler.CfnScheduleGroup(self, "Group", name=name)
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal(
                "scheduler.amazonaws.com",
                conditions={
                    "StringEquals": {
                        "aws:SourceAccount": Aws.ACCOUNT_ID,
                        "aws:SourceArn": self._arn("schedule-group", name),
                    }
                },
            ),
            description="The schedules of job documents run with it",
        )
        allow(self.role, actions=["lambda:InvokeFunction"], resources=[launcher.own_arn])
        allow(self.role, actions=["sqs:SendMessage"], resources=[launcher.failures.queue_arn])
        allow(
            launcher.role,
            actions=["scheduler:CreateSchedule", "scheduler:DeleteSchedule"],
            resources=[self._arn("schedule", f"{name}/*")],
            wildcard="Schedules are named after documents, which come later: those of this group alone.",
        )
        allow(
            launcher.role,
            actions=["iam:PassRole"],
            resources=[self.role.role_arn],
            conditions={"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}},
        )
        variables = LauncherEnvironment.variables(
            schedule_group=name,
            schedule_role_arn=self.role.role_arn,
            schedule_dead_letter_arn=launcher.failures.queue_arn,
            schedule_function_arn=launcher.own_arn,
        )
        for variable, value in variables.items():
            launcher.function.add_environment(variable, value)

    def _arn(self, resource: str, name: str) -> str:
        return Stack.of(self).format_arn(service="scheduler", resource=resource, resource_name=name)
