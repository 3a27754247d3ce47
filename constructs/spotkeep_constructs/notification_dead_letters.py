"""Where notifications wait that did not get to people: the functions gave them up, or SNS could not deliver them."""

from __future__ import annotations

from aws_cdk import Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from spotkeep_constructs.acknowledgements import acknowledge
from spotkeep_constructs.statements import allow

RETENTION = Duration.days(14)
"""As long as SQS keeps a message."""


def dead_notification_queue_arn(scope: Construct, *, deployment: str) -> str:
    """The queue of dead notifications by its name, for a stack that is deployed before it.

    Args:
        scope: A construct of the same account and region.
        deployment: Name of the deployment.
    """
    return Stack.of(scope).format_arn(service="sqs", resource=_name_of_dead(deployment))


def grant_replay(scope: Construct, grantee: iam.IGrantable, *, deployment: str) -> None:
    """Lets a principal take dead notifications out of the queue, to have the launcher send them again.

    Args:
        scope: A construct of the same account and region.
        grantee: A role or managed policy, which may invoke the launcher.
        deployment: Name of the deployment.
    """
    allow(
        grantee,
        actions=["sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:ReceiveMessage"],
        resources=[dead_notification_queue_arn(scope, deployment=deployment)],
    )


class NotificationDeadLetters(Construct):
    """Two encrypted queues that keep a message for 14 days.

    They are apart because what is to be done differs: what SNS never took is sent again to everyone
    (`spotkeep notifications replay`); what one subscriber did not get, the others have got.

    Attributes:
        dead: Notifications that SNS has refused for hours; the run table has them, too.
        undelivered: Notifications that SNS took and could not deliver to a subscriber.
    """

    def __init__(self, scope: Construct, id: str, *, deployment: str) -> None:  # noqa: A002
        """Places the queues.

        Args:
            scope: Parent construct.
            id: Construct id.
            deployment: Prefix of the queues' names.
        """
        super().__init__(scope, id)
        self.dead = self._queue("Dead", name=_name_of_dead(deployment))
        self.undelivered = self._queue("Undelivered", name=f"{deployment}-undelivered-notifications")

    def grant_put(self, grantee: iam.IGrantable) -> None:
        """Lets a principal put a notification aside that it could not send.

        Args:
            grantee: A function's role.
        """
        allow(grantee, actions=["sqs:SendMessage"], resources=[self.dead.queue_arn])

    def _queue(self, id: str, *, name: str) -> sqs.Queue:  # noqa: A002
        queue = sqs.Queue(
            self,
            id,
            queue_name=name,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=RETENTION,
        )
        acknowledge(queue, {"SQS3": "It is a dead-letter queue."})
        return queue


def _name_of_dead(deployment: str) -> str:
    return f"{deployment}-dead-notifications"
