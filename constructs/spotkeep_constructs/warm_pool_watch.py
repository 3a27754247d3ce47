"""The one-time schedules of warm pools: a group of their own, and the role they fire with.

No event says that a pool was reused or has expired, so its end is scheduled when it begins. The controller makes the
schedules when it needs them; a template cannot.
"""

from __future__ import annotations

from aws_cdk import Aws, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from spotkeep_constructs.job_function import JobFunction
from spotkeep_constructs.statements import allow
from spotkeep_jobs.functions.environment import ControllerEnvironment


class WarmPoolWatch(Construct):
    """A schedule group, and a role with which its schedules invoke the controller and keep what they could not deliver.

    A one-time schedule deletes itself when it has fired, even when no function took what it fired: that waits in the
    function's dead-letter queue, and its alarm goes off. Destroying the group deletes the schedules in it.

    Attributes:
        group: The schedule group.
        group_name: Its name.
        role: The role schedules invoke with.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        deployment: str,
        controller: JobFunction,
    ) -> None:
        """Place the group and the role.

        Args:
            scope: Parent construct.
            id: Construct id.
            deployment: Name of the deployment; the group is named `<deployment>-pools`.
            controller: The function that makes the schedules and that they invoke.
        """
        super().__init__(scope, id)
        self.group_name = f"{deployment}-pools"
        self.group = scheduler.CfnScheduleGroup(self, "Group", name=self.group_name)
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal(
                "scheduler.amazonaws.com",
                conditions={
                    "StringEquals": {
                        "aws:SourceAccount": Aws.ACCOUNT_ID,
                        "aws:SourceArn": self._arn("schedule-group", self.group_name),
                    }
                },
            ),
            description="The schedules of warm pools run with it",
        )
        allow(self.role, actions=["lambda:InvokeFunction"], resources=[controller.own_arn])
        allow(self.role, actions=["sqs:SendMessage"], resources=[controller.failures.queue_arn])
        allow(
            controller.role,
            actions=["scheduler:CreateSchedule"],
            resources=[self._arn("schedule", f"{self.group_name}/*")],
            wildcard="Schedules are named after pools, which come later: those of this group alone.",
        )
        allow(
            controller.role,
            actions=["iam:PassRole"],
            resources=[self.role.role_arn],
            conditions={"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}},
        )
        variables = ControllerEnvironment.variables(
            pool_schedule_group=self.group_name,
            pool_schedule_role_arn=self.role.role_arn,
            pool_schedule_dead_letter_arn=controller.failures.queue_arn,
            pool_schedule_function_arn=controller.own_arn,
        )
        for name, value in variables.items():
            controller.function.add_environment(name, value)

    def _arn(self, resource: str, name: str) -> str:
        return Stack.of(self).format_arn(service="scheduler", resource=resource, resource_name=name)
