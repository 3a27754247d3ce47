"""Where notifications are sent: one topic for what became of runs, one for what is wrong with the deployment itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import ArnFormat, Aws, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from spotkeep_constructs.statements import allow, together


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
            owner_emails: The address of each owner, subscribed to the notifications about their own runs.
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
        for address in notify_emails:
            self._subscribe_to_notifications(f"Notification-{address}", address)
        for owner, address in (owner_emails or {}).items():
            self._subscribe_to_notifications(f"Owner-{owner}", address, owner=owner)
        for address in operator_emails or notify_emails:
            sns.Subscription(
                self,
                f"Alarm-{address}",
                topic=self.operations,
                protocol=sns.SubscriptionProtocol.EMAIL,
                endpoint=address,
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

    def _subscribe_to_notifications(self, construct_id: str, address: str, *, owner: str | None = None) -> None:
        """Subscribe an address to all notifications, or to those about an owner's runs."""
        of_owner = None if owner is None else {"owner": sns.SubscriptionFilter.string_filter(allowlist=[owner])}
        sns.Subscription(
            self,
            construct_id,
            topic=self.notifications,
            protocol=sns.SubscriptionProtocol.EMAIL,
            endpoint=address,
            dead_letter_queue=self._undelivered,
            filter_policy=of_owner,
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
