"""What watches over warm pools: one-time schedules in a group of their own, and the role they fire with.

No event says that a pool was reused or has expired, so its end is scheduled when it begins. The functions make the
schedules when they need them; a template cannot.
"""

from __future__ import annotations

from aws_cdk import ArnFormat, Aws, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from spotkeep_constructs.job_function import JobFunction
from spotkeep_constructs.statements import allow


def group_name(deployment: str) -> str:
    """The schedule group of a deployment's looks at warm pools.

    Args:
        deployment: Name of the deployment.
    """
    return f"{deployment}-pools"


class WarmPoolWatch(Construct):
    """A schedule group, and a role with which its schedules invoke one function and keep what they could not deliver.

    A one-time schedule deletes itself when it has fired, even when nobody took what it fired: that waits in the
    function's dead-letter queue, and its alarm tells. Destroying the group deletes the schedules in it.

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
        function: JobFunction,
    ) -> None:
        """Places the group and the role.

        Args:
            scope: Parent construct.
            id: Construct id.
            deployment: Name of the deployment; the group is named `<deployment>-pools`.
            function: What the schedules invoke.
        """
        super().__init__(scope, id)
        self._function = function
        self.group_name = group_name(deployment)
        # By its name, and not by reference: the function itself has it in its environment.
        self._function_arn = Stack.of(self).format_arn(
            service="lambda",
            resource="function",
            resource_name=f"{deployment}-{function.package}",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
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
            description="The looks at warm pools are scheduled with it",
        )
        allow(self.role, actions=["lambda:InvokeFunction"], resources=[self._function_arn])
        allow(self.role, actions=["sqs:SendMessage"], resources=[function.failures.queue_arn])

    def let_schedule(self, function: JobFunction) -> None:
        """Lets a function schedule looks at pools: in this group, with this role, and nothing else.

        Args:
            function: One that follows pools.
        """
        allow(
            function.role,
            actions=["scheduler:CreateSchedule"],
            resources=[self._arn("schedule", f"{self.group_name}/*")],
            wildcard="Schedules are named after pools, which come later: those of this group alone.",
        )
        allow(
            function.role,
            actions=["iam:PassRole"],
            resources=[self.role.role_arn],
            conditions={"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}},
        )
        for name, value in {
            "SPOTKEEP_POOL_SCHEDULE_GROUP": self.group_name,
            "SPOTKEEP_POOL_SCHEDULE_ROLE_ARN": self.role.role_arn,
            "SPOTKEEP_POOL_SCHEDULE_DEAD_LETTER_ARN": self._function.failures.queue_arn,
            "SPOTKEEP_WARM_POOLS_FUNCTION_ARN": self._function_arn,
        }.items():
            function.function.add_environment(name, value)

    def _arn(self, resource: str, name: str) -> str:
        return Stack.of(self).format_arn(service="scheduler", resource=resource, resource_name=name)
