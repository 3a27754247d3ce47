"""Where notifications are sent: one topic for what became of runs, one for what is wrong with the deployment itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import ArnFormat, Aws, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from spotkeep_constructs.statements import allow, together


@dataclass(frozen=True, kw_only=True)
class MailSubscription:
    """An address and what it gets of a topic.

    Attributes:
        address: As it was first written.
        owners: Whose runs it hears of; None for everybody's.
    """

    address: str
    owners: tuple[str, ...] | None = None

    @property
    def construct_id(self) -> str:
        """The end of its construct's id: the address alone, so another setting changes its subscription in place."""
        return _mailbox(self.address).replace("/", ",")


def mail_subscriptions(
    notify_emails: Iterable[str], owner_emails: Mapping[str, str] | None = None
) -> tuple[MailSubscription, ...]:
    """Return one subscription for each mailbox, whichever settings name it and however often.

    SNS takes one subscription of an address to a topic, and refuses a second one with another filter. Who hears of
    every run hears of their own, and an address of several owners hears of all of theirs.

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
    """Return an address as it is compared: no mail service of today tells upper case from lower case."""
    return address.strip().casefold()


class NotificationTopics(Construct):
    """Two encrypted SNS topics with e-mail subscriptions.

    They are apart because their readers are: the owner of a run need not know that a queue of the deployment
    holds a failed event, and a subscriber of notifications gets one for each ending.

    Attributes:
        notifications: Receives one message for each ending of a run (and each interruption, for those who asked).
        operations: Receives the deployment's alarms.
        key: Encrypts both.
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
            notify_emails: Addresses subscribed to notifications; each confirms by a link that AWS sends.
            owner_emails: The address of each owner, subscribed to the notifications about their own runs. An address
                that is named more than once has one subscription.
            operator_emails: Addresses subscribed to alarms. Default: those of the notifications.
            undelivered: Where the notifications wait that SNS could not hand to a subscriber's server, by mail or,
                for a subscriber who names it, any other way. Default: SNS forgets them.
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
        """Let the alarms of this account and region publish to operators, and encrypt what they publish."""
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
