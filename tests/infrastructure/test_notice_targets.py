"""Where notices go by setting: owners, chat channels, a signed webhook; and what could not be told alarms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import Templates


def test_an_owner_hears_of_their_own_runs_and_no_others(templates_with_everything: Templates) -> None:
    subscription = templates_with_everything.only("AWS::SNS::Subscription", named="TopicsOwner")
    assert subscription["Endpoint"] == "ada@example.com"
    assert subscription["FilterPolicy"] == {"owner": ["ada"]}


def test_chat_channels_show_notices_and_may_do_nothing(templates_with_everything: Templates) -> None:
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
    (queue,) = [name for name in templates_with_everything.resources("AWS::SQS::Queue") if "HookWebhook" in name]
    (subscription,) = [
        resource["Properties"]
        for resource in templates_with_everything.resources("AWS::SNS::Subscription").values()
        if resource["Properties"]["Protocol"] == "lambda"
    ]
    assert subscription["RedrivePolicy"] == {"deadLetterTargetArn": {"Fn::GetAtt": [queue, "Arn"]}}
    config = templates_with_everything.only("AWS::Lambda::EventInvokeConfig", named="HookWebhook")
    assert config["DestinationConfig"] == {"OnFailure": {"Destination": {"Fn::GetAtt": [queue, "Arn"]}}}
    alarms = templates_with_everything.resources("AWS::CloudWatch::Alarm")
    assert any(name.startswith("AlarmsWebhookErrors") for name in alarms)
    assert any(name.startswith("AlarmsWebhookFailures") for name in alarms)


def test_the_webhooks_secret_is_made_here_and_in_no_template(templates_with_everything: Templates) -> None:
    secret = templates_with_everything.only("AWS::SecretsManager::Secret")
    assert "SecretString" not in secret
    assert secret["GenerateSecretString"]["PasswordLength"] == 64
    variables = templates_with_everything.only("AWS::Lambda::Function", named="HookWebhook")["Environment"]["Variables"]
    assert variables["SPOTKEEP_WEBHOOK_SECRET_ARN"] == {"Ref": next(iter(
        templates_with_everything.resources("AWS::SecretsManager::Secret")))}  # fmt: skip


def test_without_settings_there_is_none_of_it(templates: Templates) -> None:
    for kind in ("AWS::SecretsManager::Secret", "AWS::Chatbot::SlackChannelConfiguration"):
        assert templates.resources(kind) == {}
    assert not [name for name in templates.resources("AWS::Lambda::Function") if "Webhook" in name]


@pytest.mark.parametrize("deliverer", ["Tracker", "WarmPools", "Reconciler"])
def test_a_notice_that_was_put_aside_alarms_the_operators(templates: Templates, deliverer: str) -> None:
    alarm = templates.only("AWS::CloudWatch::Alarm", named=f"Alarms{deliverer}NoticesDead")
    assert (alarm["Namespace"], alarm["MetricName"], alarm["Statistic"]) == ("Spotkeep", "NoticeDead", "Sum")
    [dimension] = alarm["Dimensions"]
    assert (dimension["Name"], dimension["Value"]["Ref"][: len(deliverer)]) == ("service", deliverer)
    assert (alarm["Threshold"], alarm["TreatMissingData"]) == (1, "notBreaching")
    assert alarm["AlarmActions"]
