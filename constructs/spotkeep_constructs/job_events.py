"""What AWS and the agents say of jobs, brought to the controller through one queue.

No rule listens to EC2's events of instances (state changes, interruption notices, rebalance recommendations): they
carry neither tags nor a fleet, so that a busy account's would all reach the queue. They are not needed either: a fleet
says which instance it launched, gave notice to and lost, an agent says that it trains and leaves, and the controller
asks every five minutes.
"""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from spotkeep_constructs.job_function import JobFunction
from spotkeep_constructs.run_role import AGENT_DETAIL_TYPE, AGENT_EVENT_SOURCE
from spotkeep_constructs.statements import allow

DetailTypes = Mapping[str, tuple[str, tuple[str, ...]]]
"""Source and detail types of events, by the construct id of their rule."""

OF_TRAINING_JOBS: DetailTypes = {"TrainingJob": ("aws.sagemaker", ("SageMaker Training Job State Change",))}
OF_FLEETS: DetailTypes = {
    "FleetChange": (
        "aws.ec2fleet",
        ("EC2 Fleet Error", "EC2 Fleet Information", "EC2 Fleet Instance Change", "EC2 Fleet State Change"),
    ),
    "Agent": (AGENT_EVENT_SOURCE, (AGENT_DETAIL_TYPE,)),
}
"""Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-fleet-event-types.html"""
OF_SERVICE_JOBS: DetailTypes = {
    "ServiceJob": (
        "aws.batch",
        (
            "Batch Service Job Preemption Completed",
            "Batch Service Job Preemption Started",
            "Batch Service Job Queue Blocked",
            "Batch Service Job State Change",
        ),
    )
}
"""Sources: https://docs.aws.amazon.com/batch/latest/userguide/service-job-events.html
    https://docs.aws.amazon.com/batch/latest/userguide/batch-service-job-preemption-events.html
    https://docs.aws.amazon.com/batch/latest/userguide/batch-service-job-queue-blocked-events.html
"""

DELIVERY_ATTEMPTS = 10
LONGEST_DELIVERY = Duration.hours(4)

BATCH_SIZE = 10
CONCURRENCY = 2
"""The least that Lambda takes. More would only have two workers reconcile one job at the same time."""

RECEIVES = 5
"""How often a message may fail. AWS advises five at least: Lambda, too, gives messages back when it is throttled.

Source: https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html
"""

VISIBILITY_TIMEOUTS = 3
"""How long a message stays hidden while it is worked on, in timeouts of the controller.

AWS advises six, for a function that is throttled for long. A batch takes seconds; the timeout is that of the pass over
everything in flight. A message that comes back too early is harmless, because the record says what was done already;
one that comes back late makes users wait.
"""

RETENTION = Duration.days(1)
"""Longer than all receives take, and shorter than the dead-letter queue's, whose clock starts with the event."""


class JobEvents(Construct):
    """EventBridge rules on the default bus, one for training jobs and those that are asked for, and their queue.

    SageMaker sends bursts of events, several for one change. The queue hands them to the controller in batches, each of
    which asks once for each job, and to two workers at most; so a burst starts no crowd of functions that throttle one
    another. Batches wait for nothing: with a batching window Lambda may wait up to 20 s for more messages.

    An event that cannot be delivered or handled for long waits in the controller's dead-letter queue. The five-minute
    schedule will have reconciled the job by then: the queue is for people to learn from, no run depends on it.

    Attributes:
        queue: The queue.
    """

    def __init__(self, scope: Construct, id: str, *, controller: JobFunction) -> None:  # noqa: A002
        """Place the queue, the rule for training jobs, and the trigger.

        Args:
            scope: Parent construct.
            id: Construct id.
            controller: The function that takes the events.
        """
        super().__init__(scope, id)
        self.queue = sqs.Queue(
            self,
            "Queue",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            visibility_timeout=Duration.seconds(VISIBILITY_TIMEOUTS * controller.timeout.to_seconds()),
            retention_period=RETENTION,
            dead_letter_queue=sqs.DeadLetterQueue(queue=controller.failures, max_receive_count=RECEIVES),
        )
        self._target = targets.SqsQueue(
            self.queue,
            dead_letter_queue=controller.failures,
            retry_attempts=DELIVERY_ATTEMPTS,
            max_event_age=LONGEST_DELIVERY,
        )
        self.bring(OF_TRAINING_JOBS)
        allow(
            controller.role,
            actions=["sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"],
            resources=[self.queue.queue_arn],
        )
        trigger = lambda_.EventSourceMapping(
            self,
            "Trigger",
            target=controller.function,
            event_source_arn=self.queue.queue_arn,
            batch_size=BATCH_SIZE,
            max_concurrency=CONCURRENCY,
            report_batch_item_failures=True,
        )
        # Lambda refuses the trigger of a function whose role may not read the queue yet.
        trigger.node.add_dependency(controller.role)

    def bring(self, events_by_rule: DetailTypes) -> None:
        """Place rules that write to the queue.

        Args:
            events_by_rule: What they match.
        """
        for name, (source, detail_types) in events_by_rule.items():
            events.Rule(
                self,
                name,
                description=f"{' and '.join(detail_types)} to the controller",
                event_pattern=events.EventPattern(source=[source], detail_type=list(detail_types)),
                targets=[self._target],
            )
