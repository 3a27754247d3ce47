"""Where notifications wait that did not get to people: the functions gave them up, or SNS could not deliver them."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from spotkeep_constructs.acknowledgements import acknowledge
from spotkeep_constructs.statements import allow

RETENTION = Duration.days(14)
"""As long as SQS keeps a message."""


def notification_queue(scope: Construct, id: str) -> sqs.Queue:  # noqa: A002
    """Place an encrypted queue that keeps a message for 14 days.

    CloudFormation names it: SQS takes no name again within a minute of its queue's deletion, and who destroys a stack
    and deploys it at once would be refused. Source: the error QueueDeletedRecently of CreateQueue.

    Args:
        scope: Parent construct.
        id: Construct id.
    """
    queue = sqs.Queue(
        scope,
        id,
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        retention_period=RETENTION,
    )
    acknowledge(queue, {"SQS3": "It is a dead-letter queue."})
    return queue


class NotificationDeadLetters(Construct):
    """Two encrypted queues that keep a message for 14 days.

    They are apart because what is to be done differs: what SNS never took is sent again to everyone
    (`spotkeep notifications replay`); what one subscriber did not get, the others have got.

    Attributes:
        dead: Notifications that SNS has refused for hours; the run table has them, too.
        undelivered: Notifications that SNS took and could not deliver to a subscriber.
    """

    def __init__(self, scope: Construct, id: str, *, dead: sqs.Queue) -> None:  # noqa: A002
        """Place the second queue.

        Args:
            scope: Parent construct.
            id: Construct id.
            dead: The first: it is of an earlier stack, where users are let read it.
        """
        super().__init__(scope, id)
        self.dead = dead
        self.undelivered = notification_queue(self, "Undelivered")

    def grant_put(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal put a notification aside that it could not send.

        Args:
            grantee: A function's role.
        """
        return allow(grantee, actions=["sqs:SendMessage"], resources=[self.dead.queue_arn])
