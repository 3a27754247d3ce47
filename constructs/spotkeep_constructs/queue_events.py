"""What AWS Batch says of service jobs, brought to the controller through the queue of job events."""

from __future__ import annotations

from aws_cdk import aws_events as events
from constructs import Construct

from spotkeep_constructs.job_events import JobEvents

DETAIL_TYPES = (
    "Batch Service Job Preemption Completed",
    "Batch Service Job Preemption Started",
    "Batch Service Job State Change",
)
"""Sources: https://docs.aws.amazon.com/batch/latest/userguide/service-job-events.html
    https://docs.aws.amazon.com/batch/latest/userguide/batch-service-job-preemption-events.html
"""


class QueueEvents(Construct):
    """An EventBridge rule on the default bus, and nothing else: queue, trigger and dead letters are those of jobs.

    Attributes:
        rule: The rule.
    """

    def __init__(self, scope: Construct, id: str, *, job_events: JobEvents) -> None:  # noqa: A002
        """Place the rule.

        Args:
            scope: Parent construct.
            id: Construct id.
            job_events: Holds the controller's queue.
        """
        super().__init__(scope, id)
        self.rule = events.Rule(
            self,
            "ServiceJob",
            description="What AWS Batch says of service jobs, to the controller",
            event_pattern=events.EventPattern(source=["aws.batch"], detail_type=list(DETAIL_TYPES)),
            targets=[job_events.target],
        )
