"""The schedules that a function makes for itself, with a group of their own and the role in which they fire.

A template cannot make them, since the function needs each at its own time.
"""

from __future__ import annotations

from aws_cdk import Aws, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from spotkeep_constructs.job_function import JobFunction
from spotkeep_constructs.statements import allow
from spotkeep_jobs.settings import DeploymentSettings


class FunctionSchedules(Construct):
    """A schedule group, and a role with which its schedules invoke the function and keep undelivered events.

    A one-time schedule deletes itself when it has fired, even when no function took its event. Such an event waits in
    the function's dead-letter queue, and the queue's alarm goes off. Destroying the group deletes the schedules in it.

    Attributes:
        group: The schedule group.
        role: The role that schedules invoke the function with.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        name: str,
        function: JobFunction,
        description: str,
        may_delete: bool = False,
    ) -> None:
        """Place the group and the role.

        Args:
            scope: Parent construct.
            id: Construct id.
            name: The name of the group.
            function: The function that makes the schedules and that they invoke, with group and role named in its
                environment.
            description: The description of the role.
            may_delete: True when the function deletes schedules, since recurring schedules do not delete themselves.
        """
        super().__init__(scope, id)
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
            description=description,
        )
        allow(self.role, actions=["lambda:InvokeFunction"], resources=[function.own_arn])
        allow(self.role, actions=["sqs:SendMessage"], resources=[function.failures.queue_arn])
        allow(
            function.role,
            actions=["scheduler:CreateSchedule", *(["scheduler:DeleteSchedule"] if may_delete else [])],
            resources=[self._arn("schedule", f"{name}/*")],
            wildcard="Schedules are named after runs and documents, which come later: those of this group alone.",
        )
        allow(
            function.role,
            actions=["iam:PassRole"],
            resources=[self.role.role_arn],
            conditions={"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}},
        )
        variables = DeploymentSettings.variables(
            schedule_group=name,
            schedule_role_arn=self.role.role_arn,
            schedule_dead_letter_arn=function.failures.queue_arn,
            schedule_function_arn=function.own_arn,
        )
        function.add_variables(variables)

    def _arn(self, resource: str, name: str) -> str:
        return Stack.of(self).format_arn(service="scheduler", resource=resource, resource_name=name)
