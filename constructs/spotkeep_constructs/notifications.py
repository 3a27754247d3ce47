"""Everything that notifications go through: topics, dead-letter queues, chat channels, the webhook."""

from __future__ import annotations

from aws_cdk import aws_sqs as sqs
from constructs import Construct

from spotkeep_constructs.chat_channels import ChatChannels
from spotkeep_constructs.job_function import FunctionPlatform
from spotkeep_constructs.notification_dead_letters import NotificationDeadLetters
from spotkeep_constructs.notification_topics import NotificationTopics
from spotkeep_constructs.settings import Settings
from spotkeep_constructs.webhook import Webhook


class Notifications(Construct):
    """The two topics, and what the settings subscribe to them.

    Attributes:
        topics: The notification and the operations topic.
        dead_letters: The queues of notifications that did not get to people.
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
            dead: The queue of notifications that SNS has refused.
        """
        super().__init__(scope, id)
        self.dead_letters = NotificationDeadLetters(self, "DeadLetters", dead=dead)
        self.topics = NotificationTopics(
            self,
            "Topics",
            deployment=settings.deployment,
            notify_emails=settings.notify_emails,
            owner_emails=settings.owner_emails,
            operator_emails=settings.operator_emails,
            undelivered=self.dead_letters.undelivered,
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
