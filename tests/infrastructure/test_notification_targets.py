"""Where notifications go by setting: owners, chat channels, a signed webhook; and alarms for unsent ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from aws_cdk import App, Stack
from aws_cdk.assertions import Template

from spotkeep_constructs.notifications import NotificationTopics, mail_subscriptions

from .conftest import EVERYTHING_SET

if TYPE_CHECKING:
    from .conftest import Templates


TEAM, LEAD = "team@example.com", "lead@example.com"


@pytest.mark.parametrize(
    ("notify", "owners", "expected"),
    [
        ([TEAM, TEAM], {}, {TEAM: None}),
        ([TEAM, "Team@Example.com", f" {TEAM}"], {}, {TEAM: None}),
        ([TEAM], {"ada": TEAM, "bob": LEAD}, {TEAM: None, LEAD: ("bob",)}),
        ([], {"ada": TEAM, "bob": LEAD, "ada@sso": "TEAM@example.com"}, {TEAM: ("ada", "ada@sso"), LEAD: ("bob",)}),
    ],
)
def test_settings_that_name_one_mailbox_make_one_subscription_that_gets_all_that_they_ask_for(
    notify: list[str], owners: dict[str, str], expected: dict[str, tuple[str, ...] | None]
) -> None:
    assert {mail.address: mail.owners for mail in mail_subscriptions(notify, owners)} == expected


def test_a_mailbox_that_moves_to_another_setting_keeps_its_subscription() -> None:
    """A second one, made before the first is deleted, would be refused by SNS with the first still there."""
    [before], [after] = mail_subscriptions([], {"ada": TEAM}), mail_subscriptions([TEAM])
    assert before.construct_id == after.construct_id


@pytest.mark.long
def test_no_topic_has_two_subscriptions_of_an_address_whatever_the_settings_repeat() -> None:
    twice = ["Team@example.com", TEAM, "a/b@example.com", "a--b@example.com"]
    owners = {"ada": TEAM, "a/b": LEAD, "a--b": LEAD}
    stack = Stack(App(), "Test")
    NotificationTopics(
        stack, "Topics", deployment="lab", notify_emails=twice, owner_emails=owners, operator_emails=[LEAD, LEAD]
    )
    subscriptions = Template.from_stack(stack).find_resources("AWS::SNS::Subscription").values()
    found = [(str(each["Properties"]["TopicArn"]), each["Properties"]["Endpoint"]) for each in subscriptions]
    assert len(found) == len(set(found)) == 5


def test_an_owner_is_notified_of_their_own_runs_and_no_others(templates_with_everything: Templates) -> None:
    subscription = templates_with_everything.only("AWS::SNS::Subscription", named="NotificationsTopicsNotificationada")
    assert subscription["Endpoint"] == "ada@example.com"
    assert subscription["FilterPolicy"] == {"owner": ["ada"]}


def test_chat_channels_show_notifications_and_may_do_nothing(templates_with_everything: Templates) -> None:
    slack = templates_with_everything.only("AWS::Chatbot::SlackChannelConfiguration")
    teams = templates_with_everything.only("AWS::Chatbot::MicrosoftTeamsChannelConfiguration")
    assert (slack["SlackWorkspaceId"], slack["SlackChannelId"]) == ("T0123ABCD", "C0123ABCD")
    assert (teams["TeamsTenantId"], teams["TeamsChannelId"]) == (
        "1a2b3c4d-0000-4000-8000-000000000001",
        "19%3aabc%40thread.tacv2",
    )
    for channel in (slack, teams):
        assert len(channel["SnsTopicArns"]) == 1
        assert channel["GuardrailPolicies"] == [
            {"Fn::Join": ["", ["arn:", {"Ref": "AWS::Partition"}, ":iam::aws:policy/AWSDenyAll"]]}
        ]


def test_the_webhook_keeps_what_could_not_be_delivered_and_says_so(templates_with_everything: Templates) -> None:
    (queue,) = [
        name for name in templates_with_everything.resources("AWS::SQS::Queue") if "NotificationsHookWebhook" in name
    ]
    (subscription,) = [
        resource["Properties"]
        for resource in templates_with_everything.resources("AWS::SNS::Subscription").values()
        if resource["Properties"]["Protocol"] == "lambda"
    ]
    assert subscription["RedrivePolicy"] == {"deadLetterTargetArn": {"Fn::GetAtt": [queue, "Arn"]}}
    config = templates_with_everything.only("AWS::Lambda::EventInvokeConfig", named="NotificationsHookWebhook")
    assert config["DestinationConfig"] == {"OnFailure": {"Destination": {"Fn::GetAtt": [queue, "Arn"]}}}
    alarms = templates_with_everything.resources("AWS::CloudWatch::Alarm")
    assert any(name.startswith("MonitoringAlarmsWebhookErrors") for name in alarms)
    assert any(name.startswith("MonitoringAlarmsWebhookFailures") for name in alarms)


def test_the_webhooks_secret_is_made_here_and_in_no_template(templates_with_everything: Templates) -> None:
    secret = templates_with_everything.only("AWS::SecretsManager::Secret")
    assert "SecretString" not in secret
    assert secret["GenerateSecretString"]["PasswordLength"] == 64
    variables = templates_with_everything.only("AWS::Lambda::Function", named="NotificationsHookWebhook")[
        "Environment"
    ]["Variables"]
    assert variables["SPOTKEEP_WEBHOOK_ADDRESS_SECRET_ARN"] == EVERYTHING_SET["webhook_secret_arn"]
    assert variables["SPOTKEEP_WEBHOOK_SECRET_ARN"] == {"Ref": next(iter(
        templates_with_everything.resources("AWS::SecretsManager::Secret")))}  # fmt: skip


def test_without_settings_there_is_none_of_it(templates: Templates) -> None:
    for kind in ("AWS::SecretsManager::Secret", "AWS::Chatbot::SlackChannelConfiguration"):
        assert templates.resources(kind) == {}
    assert not [name for name in templates.resources("AWS::Lambda::Function") if "Webhook" in name]


@pytest.mark.parametrize(
    ("queue", "alarmed"), [("DeadNotifications", "Dead"), ("NotificationsUndelivered", "Undelivered")]
)
def test_notifications_that_did_not_get_to_people_wait_encrypted_for_two_weeks_and_alarm_the_operators(
    templates: Templates, queue: str, alarmed: str
) -> None:
    kept = templates.only("AWS::SQS::Queue", named=queue)
    assert kept["SqsManagedSseEnabled"] is True
    assert kept["MessageRetentionPeriod"] == 14 * 24 * 3600
    alarm = templates.only("AWS::CloudWatch::Alarm", named=f"MonitoringAlarmsNotifications{alarmed}")
    assert (alarm["Namespace"], alarm["MetricName"]) == ("AWS/SQS", "ApproximateNumberOfMessagesVisible")
    [dimension] = alarm["Dimensions"]
    assert queue in json.dumps(dimension["Value"])
    assert (alarm["Threshold"], alarm["TreatMissingData"]) == (1, "notBreaching")
    assert alarm["AlarmActions"]


def test_the_controller_knows_where_to_put_notifications_that_cannot_be_sent(templates: Templates) -> None:
    variables = templates.only("AWS::Lambda::Function", named="ControllerFunction")["Environment"]["Variables"]
    output = variables["SPOTKEEP_DEAD_NOTIFICATION_QUEUE_URL"]["Fn::GetStackOutput"]["OutputName"]
    assert output.startswith("PublishOutputRefDeadNotifications")


def test_no_queue_has_a_name_that_sqs_refuses_for_a_minute_after_its_deletion(
    templates_with_everything: Templates,
) -> None:
    for queue in templates_with_everything.resources("AWS::SQS::Queue").values():
        assert "QueueName" not in queue["Properties"]


def test_every_subscriber_to_notifications_that_is_set_keeps_what_it_could_not_be_handed(
    templates_with_everything: Templates,
) -> None:
    for name, resource in templates_with_everything.resources("AWS::SNS::Subscription").items():
        subscription = resource["Properties"]
        if subscription["TopicArn"]["Ref"].startswith("NotificationsTopicsNotifications"):
            [queue] = [subscription["RedrivePolicy"]["deadLetterTargetArn"]["Fn::GetAtt"][0]]
            expected = (
                "NotificationsHookWebhook" if subscription["Protocol"] == "lambda" else "NotificationsUndelivered"
            )
            assert queue.startswith(expected), name
        else:
            assert "RedrivePolicy" not in subscription, "an alarm about the mails of alarms helps no user"
