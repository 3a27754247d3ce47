"""Alarms for what must not go unseen: a function that fails, an event that no function could handle, or none takes."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from spotkeep_constructs.alarms import alarm_at
from spotkeep_constructs.job_function import JobFunction
from spotkeep_constructs.notification_dead_letters import NotificationDeadLetters

PERIOD = Duration.minutes(5)
LONGEST_WAIT = Duration.minutes(15)
"""Longer than a message is hidden after one failure, so that one retry raises no alarm."""


class FailureAlarms(Construct):
    """Alarms for functions, events and notifications.

    Two a function, its errors and its dead-letter queue's depth; one for events that wait too long; one for
    notifications that SNS refused, and one for those that it could not deliver.

    Attributes:
        alarms: All alarms, in the order of the functions; the events' and the notifications' come last.
        errors: The alarm on each function's errors, by the function's package.
        events_waiting: The alarm on events that wait for the controller.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        topic: sns.ITopic,
        functions: list[JobFunction],
        events: sqs.IQueue,
        dead_letters: NotificationDeadLetters,
    ) -> None:
        """Place the alarms.

        Args:
            scope: Parent construct.
            id: Construct id.
            topic: Where they report, and report the return to normal.
            functions: The functions watched.
            events: The queue in which events wait for the controller.
            dead_letters: The queues of notifications that did not get to people.
        """
        super().__init__(scope, id)
        self.alarms: list[cloudwatch.Alarm] = []
        self.errors: dict[str, cloudwatch.Alarm] = {}
        for function in functions:
            name, alarm_id = function.package, _id_of(function)
            self.errors[name] = alarm_at(
                self,
                f"{alarm_id}Errors",
                metric=function.function.metric_errors(period=PERIOD, statistic="Sum"),
                threshold=1,
                description=f"The {name} raised an error: read its log.",
                topic=topic,
            )
            self.alarms += [
                self.errors[name],
                alarm_at(
                    self,
                    f"{alarm_id}Failures",
                    metric=_visible(function.failures),
                    threshold=1,
                    description=(
                        f"An event for the {name} failed after all retries and waits in its dead-letter queue."
                    ),
                    topic=topic,
                ),
            ]
        self.events_waiting = alarm_at(
            self,
            "EventsWaiting",
            metric=events.metric_approximate_age_of_oldest_message(period=PERIOD, statistic="Maximum"),
            threshold=LONGEST_WAIT.to_seconds(),
            description=(
                "Events wait for the controller: it fails or is throttled. Read its log. "
                "Its five-minute schedule follows runs meanwhile."
            ),
            topic=topic,
        )
        self.alarms += [
            self.events_waiting,
            alarm_at(
                self,
                "NotificationsDead",
                metric=_visible(dead_letters.dead),
                threshold=1,
                description=(
                    "A notification could not be sent for hours and is put aside: "
                    "spotkeep notifications ls, then replay."
                ),
                topic=topic,
            ),
            alarm_at(
                self,
                "NotificationsUndelivered",
                metric=_visible(dead_letters.undelivered),
                threshold=1,
                description=(
                    "SNS could not deliver a notification to a subscriber: receive a message of the queue and read why."
                ),
                topic=topic,
            ),
        ]


def _visible(queue: sqs.IQueue) -> cloudwatch.Metric:
    return queue.metric_approximate_number_of_messages_visible(period=PERIOD, statistic="Maximum")


def _id_of(function: JobFunction) -> str:
    """Return `InstanceCredentials` of `instance_credentials`: no two functions have one package."""
    return "".join(word.capitalize() for word in function.package.split("_"))
