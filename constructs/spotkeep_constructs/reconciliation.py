"""The clock behind the events: every few minutes the reconciler looks at each run that has not ended."""

from __future__ import annotations

from aws_cdk import Aws, Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_scheduler_targets as targets
from constructs import Construct

from spotkeep_constructs.job_function import JobFunction
from spotkeep_constructs.statements import allow

INTERVAL = Duration.minutes(5)


class Reconciliation(Construct):
    """An EventBridge Scheduler schedule that invokes the reconciler.

    Events can be lost; this is what makes a lost one cost minutes instead of a run.

    Attributes:
        schedule: The schedule.
        role: The role the schedule invokes with.
    """

    def __init__(self, scope: Construct, id: str, *, reconciler: JobFunction) -> None:  # noqa: A002
        """Places the schedule.

        Args:
            scope: Parent construct.
            id: Construct id.
            reconciler: The function it invokes.
        """
        super().__init__(scope, id)
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal(
                "scheduler.amazonaws.com",
                conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
            ),
            description="The reconciler's schedule runs with it",
        )
        reconciler.grant_invoke(self.role)
        allow(self.role, actions=["sqs:SendMessage"], resources=[reconciler.failures.queue_arn])
        self.schedule = scheduler.Schedule(
            self,
            "Schedule",
            description="Looks at every run in flight",
            schedule=scheduler.ScheduleExpression.rate(INTERVAL),
            target=targets.LambdaInvoke(
                reconciler.function,
                # Without updates by the CDK: it would add every version of the function.
                role=self.role.without_policy_updates(),
                dead_letter_queue=reconciler.failures,
                # The next tick does the same work: a late one is worth nothing.
                retry_attempts=2,
                max_event_age=INTERVAL,
            ),
        )
        self.schedule.node.add_dependency(self.role)
