"""Notifications in Slack and Microsoft Teams, through Amazon Q Developer in chat applications.

A workspace, or a tenant, is authorised once, by hand, in the console: no template can do that.
Source: https://docs.aws.amazon.com/chatbot/latest/adminguide/getting-started.html
"""

from __future__ import annotations

from aws_cdk import Aws, Stack
from aws_cdk import aws_chatbot as chatbot
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from constructs import Construct


class ChatChannels(Construct):
    """Channels that show notifications, and may do nothing else: no command runs from them."""

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
            notifications: What they show.
            slack_channel: `<workspace id>/<channel id>`; none when left out.
            teams_channel: `<tenant id>/<team id>/<channel id>`; none when left out.
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
