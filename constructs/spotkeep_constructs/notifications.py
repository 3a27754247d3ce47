"""Everything that notifications go through: topics, dead-letter queues, chat channels, the webhook."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from spotkeep_constructs.acknowledgements import acknowledge
from spotkeep_constructs.chat_channels import ChatChannels
from spotkeep_constructs.job_function import FunctionPlatform
from spotkeep_constructs.notification_topics import NotificationTopics
from spotkeep_constructs.settings import Settings
from spotkeep_constructs.webhook import Webhook

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


class Notifications(Construct):
    """The two topics, what the settings subscribe to them, and two queues of notifications that did not get to people.

    The queues are apart because what is to be done differs: what SNS never took is sent again to everyone
    (`spotkeep notifications replay`); what one subscriber did not get, the others have got.

    Attributes:
        topics: The notification and the operations topic.
        dead: Notifications that SNS has refused for hours; the run table has them, too.
        undelivered: Notifications that SNS took and could not deliver to a subscriber.
        webhook: What posts notifications to the team's address; None without one.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        settings: Settings,
        platform: FunctionPlatform,
        dead: sqs.Queue,
    ) -> None:
        """Place topics and subscriptions.

        Args:
            scope: Parent construct.
            id: Construct id.
            settings: The deployment's settings.
            platform: What the functions of the stack share.
            dead: The first queue: it is of an earlier stack, where users are let read it.
        """
        super().__init__(scope, id)
        self.dead = dead
        self.undelivered = notification_queue(self, "Undelivered")
        self.topics = NotificationTopics(
            self,
            "Topics",
            deployment=settings.deployment,
            notify_emails=settings.notify_emails,
            owner_emails=settings.owner_emails,
            operator_emails=settings.operator_emails,
            undelivered=self.undelivered,
        )
        if settings.slack_channel or settings.teams_channel:
            ChatChannels(
                self,
                "Chat",
                deployment=settings.deployment,
                notifications=self.topics.notifications,
                slack_channel=settings.slack_channel,
                teams_channel=settings.teams_channel,
            )
        self.webhook = (
            Webhook(
                self,
                "Hook",
                deployment=settings.deployment,
                address_secret_arn=settings.webhook_secret_arn,
                notifications=self.topics.notifications,
                platform=platform,
            )
            if settings.webhook_secret_arn is not None
            else None
        )
