"""What brings state changes and the clock to the controller, and trouble to the operators."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from controller.events import CLOCK_EVENT
from spotkeep_jobs.schedules.expression import Rate, expression_warnings, read_expression

if TYPE_CHECKING:
    from .conftest import Templates


def queue_named(templates: Templates, name: str) -> str:
    (found,) = [queue for queue in templates.resources("AWS::SQS::Queue") if queue.startswith(name)]
    return found


def patterns_of(templates: Templates) -> list[dict[str, Any]]:
    return [rule["Properties"]["EventPattern"] for rule in templates.resources("AWS::Events::Rule").values()]


def test_rules_match_what_sagemaker_fleets_agents_and_batch_say_of_jobs(templates_with_everything: Templates) -> None:
    found = {pattern["source"][0]: pattern["detail-type"] for pattern in patterns_of(templates_with_everything)}
    assert found == {
        "aws.sagemaker": ["SageMaker Training Job State Change"],
        "aws.ec2fleet": [
            "EC2 Fleet Error",
            "EC2 Fleet Information",
            "EC2 Fleet Instance Change",
            "EC2 Fleet State Change",
        ],
        "spotkeep.agent": ["Spotkeep Instance Change"],
        "aws.batch": [
            "Batch Service Job Preemption Completed",
            "Batch Service Job Preemption Started",
            "Batch Service Job Queue Blocked",
            "Batch Service Job State Change",
        ],
    }


def test_no_rule_listens_to_what_ec2_says_of_every_instance_of_the_account(templates: Templates) -> None:
    """Trap 13: a state change or an interruption notice names neither a fleet nor a tag; a busy account has many."""
    sources = {source for pattern in patterns_of(templates) for source in pattern["source"]}
    assert sources == {"aws.sagemaker", "aws.ec2fleet", "spotkeep.agent"}


def test_no_rule_of_a_deployment_without_fleets_listens_to_ec2(templates_without_fleets: Templates) -> None:
    assert len(patterns_of(templates_without_fleets)) == 1


def test_every_rule_writes_to_one_queue_retries_and_then_keeps_the_event(templates: Templates) -> None:
    failures, events = queue_named(templates, "ControllerFailures"), queue_named(templates, "JobEventsQueue")
    for rule in templates.resources("AWS::Events::Rule").values():
        (target,) = rule["Properties"]["Targets"]
        assert target["Arn"] == {"Fn::GetAtt": [events, "Arn"]}
        assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 4 * 3600, "MaximumRetryAttempts": 10}
        assert target["DeadLetterConfig"] == {"Arn": {"Fn::GetAtt": [failures, "Arn"]}}
        assert rule["Properties"]["State"] == "ENABLED"


def test_events_wait_encrypted_a_day_and_five_failures_long(templates: Templates) -> None:
    queue = templates.only("AWS::SQS::Queue", named="JobEventsQueue")
    failures = queue_named(templates, "ControllerFailures")
    assert queue["SqsManagedSseEnabled"] is True
    assert queue["MessageRetentionPeriod"] == 24 * 3600
    assert queue["RedrivePolicy"] == {"deadLetterTargetArn": {"Fn::GetAtt": [failures, "Arn"]}, "maxReceiveCount": 5}
    # The dead-letter queue counts from the event on: it must keep what the first queue kept almost to the end.
    dead_letters = templates.only("AWS::SQS::Queue", named="ControllerFailures")
    assert queue["MessageRetentionPeriod"] < dead_letters["MessageRetentionPeriod"]
    # A message stays hidden for longer than the controller may take.
    timeout = templates.only("AWS::Lambda::Function", named="Controller")["Timeout"]
    assert queue["VisibilityTimeout"] == 3 * timeout == 720
    assert queue["VisibilityTimeout"] * 5 < queue["MessageRetentionPeriod"]


def test_the_controller_takes_events_in_batches_two_at_a_time_and_gives_back_single_ones(templates: Templates) -> None:
    trigger = templates.only("AWS::Lambda::EventSourceMapping")
    assert trigger["FunctionName"]["Ref"].startswith("ControllerFunction")
    assert trigger["EventSourceArn"] == {"Fn::GetAtt": [queue_named(templates, "JobEventsQueue"), "Arn"]}
    assert trigger["BatchSize"] == 10
    assert trigger["ScalingConfig"] == {"MaximumConcurrency": 2}
    assert trigger["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert "MaximumBatchingWindowInSeconds" not in trigger


def test_who_reads_the_queue_and_who_invokes_may_do_so_before_they_start(templates: Templates) -> None:
    for kind, role in (
        ("AWS::Lambda::EventSourceMapping", "ControllerRole"),
        ("AWS::Scheduler::Schedule", "Reconciliation"),
    ):
        (begins,) = templates.resources(kind).values()
        (policy,) = [name for name in templates.resources("AWS::IAM::Policy") if name.startswith(role)]
        assert policy in begins["DependsOn"]


def test_the_clock_asks_for_everything_every_five_minutes(templates: Templates) -> None:
    schedule = templates.only("AWS::Scheduler::Schedule")
    assert schedule["ScheduleExpression"] == "rate(5 minutes)"
    assert schedule["State"] == "ENABLED"
    assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}
    assert schedule["Target"]["Arn"]["Fn::GetAtt"][0].startswith("ControllerFunction")
    assert json.loads(schedule["Target"]["Input"]) == CLOCK_EVENT
    assert schedule["Target"]["RetryPolicy"] == {"MaximumEventAgeInSeconds": 300, "MaximumRetryAttempts": 2}
    assert schedule["Target"]["DeadLetterConfig"]["Arn"]["Fn::GetAtt"][0].startswith("ControllerFailures")


@pytest.mark.parametrize("which", ["templates", "templates_with_everything", "templates_without_fleets"])
def test_no_schedule_of_a_deployment_fires_more_often_than_every_five_minutes(
    which: str, request: pytest.FixtureRequest
) -> None:
    """The CDK makes every minute of an hour of `cron(hour="3")`, and says nothing of it on a Schedule."""
    deployed: Templates = request.getfixturevalue(which)
    kinds = ("AWS::Scheduler::Schedule", "AWS::Events::Rule")
    resources = [each for kind in kinds for each in deployed.resources(kind).values()]
    expressions = [
        each["Properties"]["ScheduleExpression"] for each in resources if "ScheduleExpression" in each["Properties"]
    ]
    assert expressions
    for expression in expressions:
        read = read_expression(expression)
        seconds = read.seconds if isinstance(read, Rate) else 3_600 // len(read.minutes)
        assert (seconds >= 300, list(expression_warnings(expression))) == (True, [])


def test_topics_are_encrypted_with_a_key_that_rotates(templates: Templates) -> None:
    assert templates.only("AWS::KMS::Key", stack="Events")["EnableKeyRotation"] is True
    topics = templates.resources("AWS::SNS::Topic")
    assert len(topics) == 2
    for topic in topics.values():
        assert topic["Properties"]["KmsMasterKeyId"]["Fn::GetAtt"][0].startswith("NotificationsTopicsKey")


def test_notifications_go_to_the_addresses_of_the_settings_and_alarms_to_the_operators(
    templates: Templates, templates_with_everything: Templates
) -> None:
    assert templates.resources("AWS::SNS::Subscription") == {}
    subscribed = {
        (
            subscription["Properties"]["TopicArn"]["Ref"][:25],
            subscription["Properties"]["Protocol"],
            subscription["Properties"]["Endpoint"],
        )
        for subscription in templates_with_everything.resources("AWS::SNS::Subscription").values()
        if subscription["Properties"]["Protocol"] == "email"
    }
    assert subscribed == {
        ("NotificationsTopicsNotifi", "email", "ada@example.com"),
        ("NotificationsTopicsNotifi", "email", "team@example.com"),
        ("NotificationsTopicsNotifi", "email", "lead@example.com"),
        ("NotificationsTopicsOperat", "email", "ops@example.com"),
    }


def test_every_function_has_an_alarm_for_errors_and_one_for_lost_events(templates: Templates) -> None:
    alarms = templates.resources("AWS::CloudWatch::Alarm")
    watched = {
        (alarm["Properties"]["Namespace"], alarm["Properties"]["MetricName"], name[16:22]): alarm["Properties"]
        for name, alarm in alarms.items()
        if not name.startswith(("MonitoringAlarmsNotifications", "MonitoringOrphanAlarms"))
    }
    waiting = watched.pop(("AWS/SQS", "ApproximateAgeOfOldestMessage", "Events"))
    assert set(watched) == {
        (namespace, metric, function)
        for function in ("Launch", "Contro", "Instan")
        for namespace, metric in (
            ("AWS/Lambda", "Errors"),
            ("AWS/SQS", "ApproximateNumberOfMessagesVisible"),
        )
    }
    assert {alarm["Threshold"] for alarm in watched.values()} == {1}
    hidden = templates.only("AWS::SQS::Queue", named="JobEventsQueue")["VisibilityTimeout"]
    assert hidden < waiting["Threshold"] < 2 * hidden, "one retry raises no alarm, two do"
    [dimension] = waiting["Dimensions"]
    assert dimension["Value"] == {"Fn::GetAtt": [queue_named(templates, "JobEventsQueue"), "QueueName"]}
    for alarm in alarms.values():
        properties = alarm["Properties"]
        assert properties["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"
        assert properties["TreatMissingData"] == "notBreaching"
        for actions in ("AlarmActions", "OKActions"):
            (action,) = properties[actions]
            assert action["Ref"].startswith("NotificationsTopicsOperations")


def test_the_connection_names_everything_a_client_needs(templates: Templates) -> None:
    parameter = templates.only("AWS::SSM::Parameter")
    assert parameter["Name"] == "/spotkeep/connection"
    value = parameter["Value"]
    delimiter, parts = value["Fn::Join"]
    document = json.loads(delimiter.join(part if isinstance(part, str) else "token" for part in parts))
    assert document == {
        "version": 1,
        "deployment": "spotkeep",
        "region": "token",
        "launcher_function": "token",
        "launcher_url": "token",
        "controller_function": "token",
        "run_table": "token",
        "checkpoint_bucket": "token",
        "isolated_teams": "",
        "queue_instances": "",
        "notification_topic_arn": "token",
        "dead_notification_queue_url": "token",
        "undelivered_notification_queue_arn": "token",
        "execution_role_arn": "token",
        "default_image": "token.dkr.ecr.token.amazonaws.com/pytorch-training:2.10.0-{processor}-py313",
        "launch_template_id": "token",
        "fleet_log_group": "/spotkeep/spotkeep/instances",
        "drill_template_id": "",
    }
