"""Notifications to one https address of the team's, signed with a secret that only the two know."""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from spotkeep_constructs.acknowledgements import acknowledge
from spotkeep_constructs.job_function import FunctionPlatform, JobFunction
from spotkeep_constructs.statements import allow
from spotkeep_jobs.settings import WebhookSettings


class Webhook(Construct):
    """A function on the notification topic that posts each notification.

    SNS hands a notification to the function; what the address does not take is tried twice more, and then waits in the
    function's dead-letter queue, as what SNS cannot hand over does.

    Attributes:
        function: The function, with its dead-letter queue.
        secret: What its signatures are made with: give it to the receiver.
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
            address_secret_arn: The team's secret that holds the address: who knows it may post there.
            notifications: What it takes from.
            platform: What all functions of the stack share.
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
