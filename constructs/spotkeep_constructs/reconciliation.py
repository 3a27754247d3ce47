"""The clock behind the events: every few minutes the controller reconciles each run that has not ended."""

from __future__ import annotations

from aws_cdk import Aws, Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_scheduler_targets as targets
from constructs import Construct

from spotkeep_constructs.job_function import JobFunction
from spotkeep_constructs.statements import allow

INTERVAL = Duration.minutes(5)
EVENT = {"reconcile": "everything"}
"""What it invokes the controller with, which knows the clock by it."""


class Reconciliation(Construct):
    """An EventBridge Scheduler schedule that invokes the controller.

    Events can be lost; this is what makes a lost one cost minutes instead of a run.

    Attributes:
        schedule: The schedule.
        role: The role the schedule invokes with.
    """

    def __init__(self, scope: Construct, id: str, *, controller: JobFunction) -> None:  # noqa: A002
        """Place the schedule.

        Args:
            scope: Parent construct.
            id: Construct id.
            controller: The function it invokes.
        """
        super().__init__(scope, id)
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal(
                "scheduler.amazonaws.com",
                conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
            ),
            description="The five-minute schedule runs with it",
        )
        controller.grant_invoke(self.role)
        allow(self.role, actions=["sqs:SendMessage"], resources=[controller.failures.queue_arn])
        self.schedule = scheduler.Schedule(
            self,
            "Schedule",
            description="Reconciles every run in flight",
            schedule=scheduler.ScheduleExpression.rate(INTERVAL),
            target=targets.LambdaInvoke(
                controller.function,
                # Without updates by the CDK: it would add every version of the function.
                role=self.role.without_policy_updates(),
                input=scheduler.ScheduleTargetInput.from_object(EVENT),
                dead_letter_queue=controller.failures,
                # The next tick does the same work: a late one is worth nothing.
                retry_attempts=2,
                max_event_age=INTERVAL,
            ),
        )
        self.schedule.node.add_dependency(self.role)
