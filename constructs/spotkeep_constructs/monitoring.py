"""An operator's view of a deployment, with alarms, the dashboard, and the drill that the alarms stop.

Alarms are about failing functions, about events and notifications that wait, and about orphans that stay. Each alarm
rises from a threshold on, takes missing data for no trouble, and reports its own end.

With the drill a team proves that its real runs survive. AWS takes one spot instance away in it. AWS Fault Injection
Service bills an experiment by the minute of its action. The template itself costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Aws, Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_fis as fis
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from spotkeep_constructs.controller import Controller
from spotkeep_constructs.dashboard import Dashboard
from spotkeep_constructs.job_function import JobFunction
from spotkeep_constructs.launching import Launching
from spotkeep_constructs.notifications import Notifications
from spotkeep_constructs.settings import Settings
from spotkeep_constructs.spot_compute import SpotCompute
from spotkeep_constructs.statements import allow, allow_regional, arn_for
from spotkeep_fleet.tags import DEPLOYMENT_TAG, DRILL_TAG, DRILL_VALUE, RUN_TAG

PERIOD = Duration.minutes(5)
LONGEST_WAIT = Duration.minutes(15)
"""Longer than a message is hidden after one failure, so that one retry raises no alarm."""

SEARCH_PERIOD = Duration.hours(1)
"""Period of these alarms. The controller searches a little less than once an hour, so an hour may have no value."""
MOST_FOUND = 20
"""More findings than that mean that something does not clean up. Warm pools that wait as they should are none."""
MOST_USD_PER_HOUR = 1.0
"""Known cost of orphans in USD an hour that raises the alarm. One forgotten instance costs more, two volumes less."""


class FailureAlarms(Construct):
    """Alarms for functions, events and notifications.

    Each function has two alarms, on its errors and on the depth of its dead-letter queue. One alarm is for events that
    wait too long. One is for notifications that SNS refused, and one for notifications that it could not deliver.

    Attributes:
        alarms: All alarms in the order of the functions, with the alarms of events and notifications last.
        errors: The alarm on each function's errors, by the function's package.
        events_waiting: The alarm on events that wait for the controller.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        notifications: Notifications,
        functions: list[JobFunction],
        events: sqs.IQueue,
    ) -> None:
        """Place the alarms.

        Args:
            scope: Parent construct.
            id: Construct id.
            notifications: The topic for the alarms' beginning and end, with queues that the alarms watch.
            functions: The functions that the alarms watch.
            events: The queue in which events wait for the controller.
        """
        super().__init__(scope, id)
        topic = notifications.topics.operations
        self.alarms: list[cloudwatch.Alarm] = []
        self.errors: dict[str, cloudwatch.Alarm] = {}
        for function in functions:
            name, alarm_id = function.package, _id_of(function)
            self.errors[name] = _alarm(
                self,
                f"{alarm_id}Errors",
                metric=function.function.metric_errors(period=PERIOD, statistic="Sum"),
                threshold=1,
                description=f"The {name} raised an error: read its log.",
                topic=topic,
            )
            self.alarms += [
                self.errors[name],
                _alarm(
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
        self.events_waiting = _alarm(
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
            _alarm(
                self,
                "NotificationsDead",
                metric=_visible(notifications.dead),
                threshold=1,
                description=(
                    "A notification could not be sent for hours and is put aside: "
                    "spotkeep notifications ls, then replay."
                ),
                topic=topic,
            ),
            _alarm(
                self,
                "NotificationsUndelivered",
                metric=_visible(notifications.undelivered),
                threshold=1,
                description=(
                    "SNS could not deliver a notification to a subscriber: receive a message of the queue and read why."
                ),
                topic=topic,
            ),
        ]


class OrphanAlarms(Construct):
    """Two alarms on orphans that stay, and one on orphans that could not be removed.

    The first two count three of the last four passes, the third two of the last three.

    Attributes:
        alarms: All of them.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        topic: sns.ITopic,
        controller: JobFunction,
    ) -> None:
        """Place the alarms.

        Args:
            scope: Parent construct.
            id: Construct id.
            topic: The topic that they report to.
            controller: The function that searches.
        """
        super().__init__(scope, id)

        def metric(name: str) -> cloudwatch.Metric:
            return cloudwatch.Metric(
                namespace="Spotkeep",
                metric_name=name,
                dimensions_map={"service": controller.function.function_name},
                statistic="Maximum",
                period=SEARCH_PERIOD,
            )

        command = "spotkeep doctor --account names each, and the command that mends it."
        self.alarms = [
            _alarm(
                self,
                "Found",
                metric=metric("OrphansFound"),
                threshold=MOST_FOUND + 1,
                description=f"More than {MOST_FOUND} things belong to no live run, for hours: {command}",
                topic=topic,
                periods=3,
                of_last=4,
            ),
            _alarm(
                self,
                "Cost",
                metric=metric("OrphansUsdPerHour"),
                threshold=MOST_USD_PER_HOUR,
                description=f"What belongs to no live run costs {MOST_USD_PER_HOUR:g} USD an hour or more: {command}",
                topic=topic,
                periods=3,
                of_last=4,
            ),
            _alarm(
                self,
                "NotRemoved",
                metric=metric("OrphansNotRemoved"),
                threshold=1,
                description=f"What belongs to no live run could not be removed, or not be searched for: {command}",
                topic=topic,
                periods=2,
                of_last=3,
            ),
        ]


def _alarm(
    scope: Construct,
    id: str,  # noqa: A002
    *,
    metric: cloudwatch.IMetric,
    threshold: float,
    description: str,
    topic: sns.ITopic,
    periods: int = 1,
    of_last: int | None = None,
) -> cloudwatch.Alarm:
    """Place an alarm.

    Args:
        scope: Parent construct.
        id: Construct id.
        metric: The metric that the alarm watches, with its period.
        threshold: The least value that raises the alarm.
        description: The alarm's meaning, and the step that helps.
        topic: The topic for its beginning and its end.
        periods: The number of periods at the threshold that raise the alarm.
        of_last: The number of last periods that count, by default the same number.
    """
    alarm = cloudwatch.Alarm(
        scope,
        id,
        alarm_description=description,
        metric=metric,
        threshold=threshold,
        evaluation_periods=of_last or periods,
        datapoints_to_alarm=periods if of_last is not None else None,
        comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
    )
    action = actions.SnsAction(topic)
    alarm.add_alarm_action(action)
    alarm.add_ok_action(action)
    return alarm


def _visible(queue: sqs.IQueue) -> cloudwatch.Metric:
    return queue.metric_approximate_number_of_messages_visible(period=PERIOD, statistic="Maximum")


def _id_of(function: JobFunction) -> str:
    """Return `InstanceCredentials` of `instance_credentials`, which is unique since functions share no package."""
    return "".join(word.capitalize() for word in function.package.split("_"))


NOTICE = "PT2M"
"""Time from the start to the interruption. Two minutes is AWS's notice, and the least that FIS takes."""


class InterruptionDrill(Construct):
    """An FIS experiment template that interrupts the one spot instance which carries the drill's tag.

    The template fixes an experiment's target, so `spotkeep drill` tags the chosen instance and starts this experiment.
    Without an instance with the tag the experiment fails, and nothing is interrupted. An alarm of the functions stops
    the experiment. So no drill takes capacity away from runs that no function reconciles.

    Source: "Use Spot Instance interruptions" and "aws:ec2:send-spot-instance-interruptions", AWS FIS user guide.

    Attributes:
        template: The experiment template.
        role: The role that FIS acts with.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        deployment: str,
        stop_alarms: Sequence[cloudwatch.IAlarm],
    ) -> None:
        """Place the template.

        Args:
            scope: Parent construct.
            id: Construct id.
            deployment: Value of the tag `spotkeep:deployment`.
            stop_alarms: Alarms that stop an experiment and prevent another. Five at most.
        """
        super().__init__(scope, id)
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal(
                "fis.amazonaws.com",
                conditions={
                    "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
                    "ArnLike": {
                        "aws:SourceArn": Stack.of(self).format_arn(
                            service="fis", resource="experiment", resource_name="*"
                        )
                    },
                },
            ),
            description="A drill takes an instance away with it",
        )
        allow(
            self.role,
            actions=["ec2:SendSpotInstanceInterruptions"],
            resources=[arn_for(self.role, "ec2", "instance")],
            conditions={
                "StringEquals": {
                    f"aws:ResourceTag/{DEPLOYMENT_TAG}": deployment,
                    f"aws:ResourceTag/{DRILL_TAG}": DRILL_VALUE,
                },
                "Null": {f"aws:ResourceTag/{RUN_TAG}": "false"},
            },
            wildcard="The instance that is meant carries the drill's tag; which one that is, is known later.",
        )
        allow_regional(self.role, "ec2:DescribeInstances")
        self.template = fis.CfnExperimentTemplate(
            self,
            "Template",
            description="Spotkeep drill: interrupts the spot instance that carries the drill's tag",
            role_arn=self.role.role_arn,
            targets={
                "Instance": fis.CfnExperimentTemplate.ExperimentTemplateTargetProperty(
                    resource_type="aws:ec2:spot-instance",
                    selection_mode="COUNT(1)",
                    resource_tags={DEPLOYMENT_TAG: deployment, DRILL_TAG: DRILL_VALUE},
                    filters=[
                        fis.CfnExperimentTemplate.ExperimentTemplateTargetFilterProperty(
                            path="State.Name", values=["running"]
                        )
                    ],
                )
            },
            actions={
                "Interrupt": fis.CfnExperimentTemplate.ExperimentTemplateActionProperty(
                    action_id="aws:ec2:send-spot-instance-interruptions",
                    parameters={"durationBeforeInterruption": NOTICE},
                    targets={"SpotInstances": "Instance"},
                )
            },
            stop_conditions=[
                fis.CfnExperimentTemplate.ExperimentTemplateStopConditionProperty(
                    source="aws:cloudwatch:alarm", value=alarm.alarm_arn
                )
                for alarm in stop_alarms
            ],
            tags={"Name": f"{deployment}-drill", DEPLOYMENT_TAG: deployment},
        )
        # FIS refuses a template whose role may not do what it says yet.
        self.template.node.add_dependency(self.role)


class Monitoring(Construct):
    """Alarms on every function and queue, and the dashboard and drill that the settings ask for.

    Attributes:
        drill: The experiment of drills, or None without drills.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        settings: Settings,
        compute: SpotCompute | None,
        launching: Launching,
        notifications: Notifications,
        controller: Controller,
    ) -> None:
        """Place the alarms.

        Args:
            scope: Parent construct.
            id: Construct id.
            settings: The deployment's settings.
            compute: The network, roles and launch template of EC2 instances, or None in a deployment without fleets.
            launching: The launcher.
            notifications: The topic of alarms, and the queues that the alarms watch.
            controller: The controller and its queue of events.
        """
        super().__init__(scope, id)
        functions = [launching.launcher, controller.function]
        if compute is not None:
            functions.append(compute.credentials.function)
        if launching.search is not None:
            functions.append(launching.search)
        if notifications.webhook is not None:
            functions.append(notifications.webhook.function)
        alarms = FailureAlarms(
            self,
            "Alarms",
            notifications=notifications,
            functions=functions,
            events=controller.events.queue,
        )
        orphan_alarms = OrphanAlarms(
            self, "OrphanAlarms", topic=notifications.topics.operations, controller=controller.function
        )
        self.drill = (
            InterruptionDrill(
                self,
                "Drill",
                deployment=settings.deployment,
                # No experiment takes capacity away from runs that the controller does not reconcile.
                stop_alarms=[alarms.errors["controller"], alarms.events_waiting],
            )
            if settings.drills
            else None
        )
        if settings.dashboard:
            Dashboard(
                self,
                "Board",
                deployment=settings.deployment,
                launcher=launching.launcher,
                controller=controller.function,
                functions=functions,
                notifications=notifications,
                alarms=[*alarms.alarms, *orphan_alarms.alarms],
            )
