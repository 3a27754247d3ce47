"""SageMaker's state changes, brought to the controller through a queue."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from spotkeep_constructs.job_function import JobFunction
from spotkeep_constructs.statements import allow

DETAIL_TYPE = "SageMaker Training Job State Change"
DELIVERY_ATTEMPTS = 10
LONGEST_DELIVERY = Duration.hours(4)

BATCH_SIZE = 10
CONCURRENCY = 2
"""The least that Lambda takes. More would only have two workers look at one job at the same time."""

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
    """An EventBridge rule on the default bus, for training jobs, and the queue it writes to.

    SageMaker sends bursts of events, several for one change. The queue hands them to the controller in batches, each of
    which asks once for each job, and to two workers at most; so a burst starts no crowd of functions that throttle one
    another. Batches wait for nothing: with a batching window Lambda may wait up to 20 s for more messages.

    An event that cannot be delivered or handled for long waits in the controller's dead-letter queue. The five-minute
    schedule will have reconciled the job by then: the queue is for people to learn from, no run depends on it.

    Attributes:
        rule: The rule.
        queue: The queue.
        target: The queue as a rule's target, with its retries and its dead-letter queue.
    """

    def __init__(self, scope: Construct, id: str, *, controller: JobFunction) -> None:  # noqa: A002
        """Place the queue, the rules, and the trigger.

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
        self.target = targets.SqsQueue(
            self.queue,
            dead_letter_queue=controller.failures,
            retry_attempts=DELIVERY_ATTEMPTS,
            max_event_age=LONGEST_DELIVERY,
        )
        self.rule = events.Rule(
            self,
            "TrainingJob",
            description=f"{DETAIL_TYPE} to the controller",
            event_pattern=events.EventPattern(source=["aws.sagemaker"], detail_type=[DETAIL_TYPE]),
            targets=[self.target],
        )
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
