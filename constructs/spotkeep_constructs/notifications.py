"""The delivery of notifications by topics, dead-letter queues, chat channels and the webhook.

One topic is for changes of runs, the other for faults of the deployment. Slack and Microsoft Teams get notifications
through Amazon Q Developer in chat applications. A person authorises a workspace or a tenant once, by hand, in the
console, since no template can do that.

Source: https://docs.aws.amazon.com/chatbot/latest/adminguide/getting-started.html
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import ArnFormat, Aws, Duration, RemovalPolicy, Stack
from aws_cdk import aws_chatbot as chatbot
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from spotkeep_constructs.acknowledgements import acknowledge
from spotkeep_constructs.job_function import FunctionPlatform, JobFunction
from spotkeep_constructs.settings import Settings
from spotkeep_constructs.statements import allow, together
from spotkeep_jobs.settings import WebhookSettings


@dataclass(frozen=True, kw_only=True)
class MailSubscription:
    """An address and its share of a topic.

    Attributes:
        address: As it was first written.
        owners: The users with runs that the address gets notifications about, or None for the runs of all.
    """

    address: str
    owners: tuple[str, ...] | None = None

    @property
    def construct_id(self) -> str:
        """The end of its construct's id, the address alone. So another setting changes its subscription in place."""
        return _mailbox(self.address).replace("/", ",")


def mail_subscriptions(
    notify_emails: Iterable[str], owner_emails: Mapping[str, str] | None = None
) -> tuple[MailSubscription, ...]:
    """Return one subscription for each mailbox, whichever settings name it and however often.

    SNS takes one subscription of an address to a topic, and refuses a second one with another filter. An address
    of every run gets its owner's runs too. An address of several owners gets the runs of all of them.

    Source: https://docs.aws.amazon.com/sns/latest/api/API_Subscribe.html

    Args:
        notify_emails: Addresses that hear of every run.
        owner_emails: The address of each owner.
    """
    found: dict[str, MailSubscription] = {}
    for address in notify_emails:
        found.setdefault(_mailbox(address), MailSubscription(address=address))
    for owner, address in (owner_emails or {}).items():
        known = found.get(_mailbox(address), MailSubscription(address=address, owners=()))
        if known.owners is not None:
            found[_mailbox(address)] = MailSubscription(address=known.address, owners=(*known.owners, owner))
    return tuple(found.values())


def _mailbox(address: str) -> str:
    """Return an address in the case for comparison, since today's mail services ignore the case of letters."""
    return address.strip().casefold()


class NotificationTopics(Construct):
    """Two encrypted SNS topics with e-mail subscriptions.

    There are two because their readers differ. The owner of a run need not know that a queue of the deployment holds a
    failed event. An operator need not get a notification for each ending.

    Attributes:
        notifications: Receives one message for each ending of a run (and each interruption, for subscribers that asked
            for these).
        operations: Receives the deployment's alarms.
        key: The KMS key that encrypts both.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        deployment: str,
        notify_emails: Sequence[str] = (),
        owner_emails: Mapping[str, str] | None = None,
        operator_emails: Sequence[str] = (),
        undelivered: sqs.IQueue | None = None,
    ) -> None:
        """Place the topics.

        Args:
            scope: Parent construct.
            id: Construct id.
            deployment: Prefix of the topics' names.
            notify_emails: Addresses subscribed to notifications, each confirmed by a link that AWS sends.
            owner_emails: The address of each owner, subscribed to the notifications about their own runs, with one
                subscription for each address.
            operator_emails: Addresses subscribed to alarms, by default those of the notifications.
            undelivered: The queue for notifications that SNS could not deliver to a subscriber, by mail or any other
                way. Without it SNS drops them.
        """
        super().__init__(scope, id)
        self._undelivered = undelivered
        self.key = kms.Key(
            self,
            "Key",
            description="Encrypts Spotkeep's notifications and alarms",
            enable_key_rotation=True,
            # Messages are in transit only: nothing is left to decrypt when the topics are gone.
            removal_policy=RemovalPolicy.DESTROY,
        )
        self.notifications = self._topic("Notifications", f"{deployment}-notifications", "Spotkeep")
        self.operations = self._topic("Operations", f"{deployment}-operations", "Spotkeep operations")
        self._let_alarms_publish()
        for mail in mail_subscriptions(notify_emails, owner_emails):
            self._subscribe_to_notifications(mail)
        for mail in mail_subscriptions(operator_emails or notify_emails):
            sns.Subscription(
                self,
                f"Alarm-{mail.construct_id}",
                topic=self.operations,
                protocol=sns.SubscriptionProtocol.EMAIL,
                endpoint=mail.address,
            )
        if undelivered is not None:
            undelivered.add_to_resource_policy(
                iam.PolicyStatement(
                    sid="SubscribersMayKeepNotifications",
                    principals=[iam.ServicePrincipal("sns.amazonaws.com")],
                    actions=["sqs:SendMessage"],
                    resources=[undelivered.queue_arn],
                    conditions={"ArnEquals": {"aws:SourceArn": self.notifications.topic_arn}},
                )
            )

    def _topic(self, construct_id: str, name: str, sender: str) -> sns.Topic:
        return sns.Topic(
            self, construct_id, topic_name=name, display_name=sender, master_key=self.key, enforce_ssl=True
        )

    def _let_alarms_publish(self) -> None:
        """Let the alarms of this account and region publish to operators, and encrypt their messages."""
        alarms = Stack.of(self).format_arn(
            service="cloudwatch",
            resource="alarm",
            resource_name="*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        from_our_alarms = {
            "ArnLike": {"aws:SourceArn": alarms},
            "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
        }
        cloudwatch = iam.ServicePrincipal("cloudwatch.amazonaws.com")
        self.key.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AlarmsMayEncrypt",
                principals=[cloudwatch],
                actions=["kms:Decrypt", "kms:GenerateDataKey*"],
                resources=["*"],
                conditions=from_our_alarms,
            )
        )
        self.operations.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AlarmsMayPublish",
                principals=[cloudwatch],
                actions=["sns:Publish"],
                resources=[self.operations.topic_arn],
                conditions=from_our_alarms,
            )
        )

    def _subscribe_to_notifications(self, mail: MailSubscription) -> None:
        of_owners = None
        if mail.owners is not None:
            of_owners = {"owner": sns.SubscriptionFilter.string_filter(allowlist=[*mail.owners])}
        sns.Subscription(
            self,
            f"Notification-{mail.construct_id}",
            topic=self.notifications,
            protocol=sns.SubscriptionProtocol.EMAIL,
            endpoint=mail.address,
            dead_letter_queue=self._undelivered,
            filter_policy=of_owners,
        )

    def grant_publish_notifications(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal publish notifications.

        Args:
            grantee: A function's role.
        """
        return together(
            allow(grantee, actions=["sns:Publish"], resources=[self.notifications.topic_arn]),
            allow(
                grantee,
                actions=["kms:Decrypt", "kms:GenerateDataKey"],
                resources=[self.key.key_arn],
                conditions={
                    "StringEquals": {"kms:ViaService": f"sns.{Aws.REGION}.{Aws.URL_SUFFIX}"},
                },
            ),
        )


class ChatChannels(Construct):
    """Channels that show notifications and may do nothing else, so no command runs from them."""

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        deployment: str,
        notifications: sns.ITopic,
        slack_channel: str | None = None,
        teams_channel: str | None = None,
    ) -> None:
        """Place the channels.

        Args:
            scope: Parent construct.
            id: Construct id.
            deployment: Prefix of the configurations' names.
            notifications: The topic of the notifications that they show.
            slack_channel: `<workspace id>/<channel id>`, or None without Slack.
            teams_channel: `<tenant id>/<team id>/<channel id>`, or None without Teams.
        """
        super().__init__(scope, id)
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("chatbot.amazonaws.com"),
            description="Shows Spotkeep's notifications in a chat channel; may do nothing",
        )
        # Configurations are one account's, whatever the region.
        region = Stack.of(self).region
        nothing = [f"arn:{Aws.PARTITION}:iam::aws:policy/AWSDenyAll"]
        if slack_channel is not None:
            workspace, _, channel = slack_channel.partition("/")
            chatbot.CfnSlackChannelConfiguration(
                self,
                "Slack",
                configuration_name=f"{deployment}-slack-{region}",
                iam_role_arn=role.role_arn,
                guardrail_policies=nothing,
                logging_level="ERROR",
                slack_workspace_id=workspace,
                slack_channel_id=channel,
                sns_topic_arns=[notifications.topic_arn],
            )
        if teams_channel is not None:
            tenant, team, channel = teams_channel.split("/", 2)
            chatbot.CfnMicrosoftTeamsChannelConfiguration(
                self,
                "Teams",
                configuration_name=f"{deployment}-teams-{region}",
                iam_role_arn=role.role_arn,
                guardrail_policies=nothing,
                logging_level="ERROR",
                teams_tenant_id=tenant,
                team_id=team,
                teams_channel_id=channel,
                sns_topic_arns=[notifications.topic_arn],
            )


class Webhook(Construct):
    """A function on the notification topic that posts each notification.

    SNS hands a notification to the function. Lambda retries twice when the address does not take a notification. Then
    the notification waits in the function's dead-letter queue, as one does that SNS cannot hand over.

    Attributes:
        function: The function, with its dead-letter queue.
        secret: The secret that signs requests, which the receiver needs as well.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        deployment: str,
        address_secret_arn: str,
        notifications: sns.ITopic,
        platform: FunctionPlatform,
    ) -> None:
        """Place the function and its secret.

        Args:
            scope: Parent construct.
            id: Construct id.
            deployment: Prefix of the function's name.
            address_secret_arn: The ARN of the team's secret with the address, which is secret since knowing it is
                enough to post there.
            notifications: The topic that it subscribes to.
            platform: The code, layer and log settings that all functions of the stack share.
        """
        super().__init__(scope, id)
        self.secret = secretsmanager.Secret(
            self,
            "Secret",
            description="Signs the notifications that Spotkeep posts to the team's webhook",
            generate_secret_string=secretsmanager.SecretStringGenerator(password_length=64, exclude_punctuation=True),
            removal_policy=RemovalPolicy.DESTROY,
        )
        acknowledge(
            self.secret,
            {"SMG4": "Its receiver must learn a new value in the same moment: rotation is the team's choice."},
        )
        self.function = JobFunction(
            self,
            "Webhook",
            package="webhook",
            deployment=deployment,
            platform=platform,
            environment=WebhookSettings.variables(
                webhook_address_secret_arn=address_secret_arn, webhook_secret_arn=self.secret.secret_arn
            ),
            timeout=Duration.seconds(30),
            description="Posts notifications to the team's address, signed",
        )
        allow(
            self.function.role,
            actions=["secretsmanager:GetSecretValue"],
            resources=[address_secret_arn, self.secret.secret_arn],
        )
        notifications.add_subscription(
            subscriptions.LambdaSubscription(self.function.function, dead_letter_queue=self.function.failures)
        )


RETENTION = Duration.days(14)
"""As long as SQS keeps a message."""


def notification_queue(scope: Construct, id: str) -> sqs.Queue:  # noqa: A002
    """Place an encrypted queue that keeps a message for 14 days.

    CloudFormation names the queue. SQS takes no name again within a minute of its queue's deletion, so a stack
    destroyed and deployed at once would fail. Source: the error QueueDeletedRecently of CreateQueue.

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
    """The two topics, the subscriptions of the settings, and two queues of undelivered notifications.

    There are two queues because the remedy differs. A notification that SNS never took is sent again to everyone
    (`spotkeep notifications replay`). A notification that one subscriber did not get has reached the others.

    Attributes:
        topics: The notification and the operations topic.
        dead: Notifications that SNS has refused for hours, which the run table has, too.
        undelivered: Notifications that SNS took and could not deliver to a subscriber.
        webhook: The function that posts notifications to the team's address, or None without an address.
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
            platform: The code, layer and log settings that all functions of the stack share.
            dead: The queue of refused notifications, from an earlier stack that lets users read it.
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
