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
        self.key = kms.Key(
            self,
            "Key",
            description="Encrypts Spotkeep's notifications and alarms",
            enable_key_rotation=True,
            # Messages are in transit only: nothing is left to decrypt when the topics are gone.
            removal_policy=RemovalPolicy.DESTROY,
        )
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
        self.notifications = sns.Topic(
            self,
            "Notifications",
            topic_name=f"{deployment}-notifications",
            display_name="Spotkeep",
            master_key=self.key,
            enforce_ssl=True,
        )
        self.operations = sns.Topic(
            self,
            "Operations",
            topic_name=f"{deployment}-operations",
            display_name="Spotkeep operations",
            master_key=self.key,
            enforce_ssl=True,
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
        for topic, name, addresses in (
            (self.notifications, "Notification", notify_emails),
            (self.operations, "Alarm", operator_emails or notify_emails),
        ):
            for address in addresses:
                sns.Subscription(
                    self,
                    f"{name}-{address}",
                    topic=topic,
                    protocol=sns.SubscriptionProtocol.EMAIL,
                    endpoint=address,
                    dead_letter_queue=undelivered if topic is self.notifications else None,
                )

        for owner, address in (owner_emails or {}).items():
            sns.Subscription(
                self,
                f"Owner-{owner}",
                topic=self.notifications,
                protocol=sns.SubscriptionProtocol.EMAIL,
                endpoint=address,
                dead_letter_queue=undelivered,
                filter_policy={"owner": sns.SubscriptionFilter.string_filter(allowlist=[owner])},
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
