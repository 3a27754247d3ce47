"""The controller, with its events, its clock, its permissions and the end of its stack.

The controller keeps runs as their records say. One queue brings it the events of AWS and of the agents about jobs. No
rule listens to EC2's events of instances (state changes, interruption notices, rebalance recommendations). They carry
neither tags nor a fleet, so those of a busy account would all reach the queue. A fleet's own events name each instance
that it launched, gave notice to and lost. An agent reports that it trains and that it leaves. The controller also asks
every five minutes.

When the deployment is destroyed, CloudFormation waits until the controller has ended everything that still runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import Aws, CustomResource, Duration, RemovalPolicy
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_scheduler_targets as scheduler_targets
from aws_cdk import aws_sqs as sqs
from constructs import Construct, IConstruct

from spotkeep_constructs.function_schedules import FunctionSchedules
from spotkeep_constructs.instance_log import grant_read_instance_log
from spotkeep_constructs.instance_roles import AGENT_DETAIL_TYPE, AGENT_EVENT_SOURCE
from spotkeep_constructs.job_function import FunctionPlatform, JobFunction
from spotkeep_constructs.launching import Launching
from spotkeep_constructs.notifications import Notifications
from spotkeep_constructs.settings import Settings
from spotkeep_constructs.spot_compute import SpotCompute
from spotkeep_constructs.statements import allow
from spotkeep_constructs.storage import Storage
from spotkeep_jobs.settings import ControllerSettings

DetailTypes = Mapping[str, tuple[str, tuple[str, ...]]]
"""Source and detail types of events, by the construct id of their rule."""

OF_TRAINING_JOBS: DetailTypes = {"TrainingJob": ("aws.sagemaker", ("SageMaker Training Job State Change",))}
OF_FLEETS: DetailTypes = {
    "FleetChange": (
        "aws.ec2fleet",
        ("EC2 Fleet Error", "EC2 Fleet Information", "EC2 Fleet Instance Change", "EC2 Fleet State Change"),
    ),
    "Agent": (AGENT_EVENT_SOURCE, (AGENT_DETAIL_TYPE,)),
}
"""Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-fleet-event-types.html"""
OF_SERVICE_JOBS: DetailTypes = {
    "ServiceJob": (
        "aws.batch",
        (
            "Batch Service Job Preemption Completed",
            "Batch Service Job Preemption Started",
            "Batch Service Job Queue Blocked",
            "Batch Service Job State Change",
        ),
    )
}
"""Sources: https://docs.aws.amazon.com/batch/latest/userguide/service-job-events.html
    https://docs.aws.amazon.com/batch/latest/userguide/batch-service-job-preemption-events.html
    https://docs.aws.amazon.com/batch/latest/userguide/batch-service-job-queue-blocked-events.html
"""

DELIVERY_ATTEMPTS = 10
LONGEST_DELIVERY = Duration.hours(4)

BATCH_SIZE = 10
CONCURRENCY = 2
"""The least that Lambda takes. More would only have two workers reconcile one job at the same time."""

RECEIVES = 5
"""Number of times that a message may fail.

AWS advises at least five, since a throttled Lambda function also returns messages.

Source: https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html
"""

VISIBILITY_TIMEOUTS = 3
"""Time for which SQS hides a message while the controller works on it, in timeouts of the controller.

AWS advises six, for a function that is throttled for long. A batch takes seconds. The timeout is that of the pass over
everything in flight. A message that comes back too early is harmless, because the record shows the work already done. A
message that comes back late makes users wait.
"""

RETENTION = Duration.days(1)
"""Retention of a message in the queue.

It is longer than all receives take, and shorter than the retention of the dead-letter queue, because SQS counts both
from the event.
"""


class JobEvents(Construct):
    """EventBridge rules on the default bus, and their queue. One rule is for training jobs, and callers add others.

    SageMaker sends bursts of events, several for one change. The queue hands them to the controller in batches, to at
    most two workers. A batch asks once for each job. So a burst starts no crowd of functions that throttle one another.
    There is no batching window, since Lambda could then wait up to 20 s for more messages.

    An event that cannot be delivered or handled for long waits in the controller's dead-letter queue. The five-minute
    schedule will have reconciled the job by then. So people learn from that queue, and no run depends on it.

    Attributes:
        queue: The queue.
    """

    def __init__(self, scope: Construct, id: str, *, controller: JobFunction) -> None:  # noqa: A002
        """Place the queue, the rule for training jobs, and the trigger.

        Args:
            scope: Parent construct.
            id: Construct id.
            controller: The function that takes the events.
        """
        super().__init__(scope, id)
        self.queue = sqs.Queue(
            self,
            "Queue",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            visibility_timeout=Duration.seconds(VISIBILITY_TIMEOUTS * controller.timeout.to_seconds()),
            retention_period=RETENTION,
            dead_letter_queue=sqs.DeadLetterQueue(queue=controller.failures, max_receive_count=RECEIVES),
        )
        self._target = targets.SqsQueue(
            self.queue,
            dead_letter_queue=controller.failures,
            retry_attempts=DELIVERY_ATTEMPTS,
            max_event_age=LONGEST_DELIVERY,
        )
        self.bring(OF_TRAINING_JOBS)
        allow(
            controller.role,
            actions=["sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"],
            resources=[self.queue.queue_arn],
        )
        trigger = lambda_.EventSourceMapping(
            self,
            "Trigger",
            target=controller.function,
            event_source_arn=self.queue.queue_arn,
            batch_size=BATCH_SIZE,
            max_concurrency=CONCURRENCY,
            report_batch_item_failures=True,
        )
        # Lambda refuses the trigger of a function whose role may not read the queue yet.
        trigger.node.add_dependency(controller.role)

    def bring(self, events_by_rule: DetailTypes) -> None:
        """Place rules that write to the queue.

        Args:
            events_by_rule: The event pattern of each rule, by the rule's name.
        """
        for name, (source, detail_types) in events_by_rule.items():
            events.Rule(
                self,
                name,
                description=f"{' and '.join(detail_types)} to the controller",
                event_pattern=events.EventPattern(source=[source], detail_type=list(detail_types)),
                targets=[self._target],
            )


INTERVAL = Duration.minutes(5)
EVENT = {"reconcile": "everything"}
"""The schedule's payload, by which the controller recognizes it."""


class Reconciliation(Construct):
    """An EventBridge Scheduler schedule that invokes the controller.

    Events can be lost. With this schedule a lost event costs minutes instead of a run.

    Attributes:
        schedule: The schedule.
        role: The role the schedule invokes with.
    """

    def __init__(self, scope: Construct, id: str, *, controller: JobFunction) -> None:  # noqa: A002
        """Place the schedule.

        Args:
            scope: Parent construct.
            id: Construct id.
            controller: The function it invokes.
        """
        super().__init__(scope, id)
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal(
                "scheduler.amazonaws.com",
                conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
            ),
            description="The five-minute schedule runs with it",
        )
        controller.grant_invoke(self.role)
        allow(self.role, actions=["sqs:SendMessage"], resources=[controller.failures.queue_arn])
        self.schedule = scheduler.Schedule(
            self,
            "Schedule",
            description="Reconciles every run in flight",
            schedule=scheduler.ScheduleExpression.rate(INTERVAL),
            target=scheduler_targets.LambdaInvoke(
                controller.function,
                # Without updates by the CDK: it would add every version of the function.
                role=self.role.without_policy_updates(),
                input=scheduler.ScheduleTargetInput.from_object(EVENT),
                dead_letter_queue=controller.failures,
                # The next tick does the same work: a late one is worth nothing.
                retry_attempts=2,
                max_event_age=INTERVAL,
            ),
        )
        self.schedule.node.add_dependency(self.role)


LONGEST_WAIT = Duration.hours(1)
"""The most CloudFormation waits for a custom resource.

A stop takes two minutes to save, and the time until the next pass.
"""


class RunShutdown(Construct):
    """A custom resource that stops the deployment's runs and ends its warm pools when it is deleted.

    Fleets and warm pools come with runs and are in no template. The functions that would end them go with the stack, so
    CloudFormation has to wait for them. The controller answers CloudFormation, so no function is added.

    Attributes:
        resource: The custom resource.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        controller: JobFunction,
        needs: Sequence[IConstruct],
    ) -> None:
        """Place the resource.

        Args:
            scope: Parent construct.
            id: Construct id.
            controller: The function that stops runs and warm pools.
            needs: The constructs that stop, reconcile and notify runs, which CloudFormation keeps until nothing runs
                any more.
        """
        super().__init__(scope, id)
        # Whether the whole stack goes, or only this resource of it.
        allow(controller.role, actions=["cloudformation:DescribeStacks"], resources=[Aws.STACK_ID])
        self.resource = CustomResource(
            self,
            "Resource",
            resource_type="Custom::SpotkeepRunShutdown",
            service_token=controller.function.function_arn,
            service_timeout=LONGEST_WAIT,
            removal_policy=RemovalPolicy.DESTROY,
        )
        self.resource.node.add_dependency(controller, *needs)


PRICE_LIST_REGIONS = ["us-east-1", "eu-central-1", "ap-south-1"]
"""Regions in which the Pricing API answers, for every region.
Source: https://docs.aws.amazon.com/general/latest/gr/billing.html (AWS Price List Service)"""


class Controller(Construct):
    """The function, woken by events, by the clock, by the schedules of warm pools and by the deletion of its stack.

    Attributes:
        function: The function.
        pools: The schedules of warm pools.
        events: The queue of events and the rules that fill it.
        shutdown: The custom resource that stops runs and warm pools when it is deleted.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        settings: Settings,
        platform: FunctionPlatform,
        storage: Storage,
        compute: SpotCompute | None,
        launching: Launching,
        notifications: Notifications,
    ) -> None:
        """Place the function and its triggers.

        Args:
            scope: Parent construct.
            id: Construct id.
            settings: The deployment's settings.
            platform: The code, layer and log settings that all functions of the stack share.
            storage: The bucket and the table.
            compute: The network, roles and launch template of EC2 instances, or None in a deployment without fleets.
            launching: The launcher and the resources of jobs, since the controller launches next attempts.
            notifications: The topics that it publishes to.
        """
        super().__init__(scope, id)
        jobs = launching.jobs
        variables = ControllerSettings.variables(
            run_table=storage.run_table.table.table_name,
            checkpoint_bucket=storage.checkpoints.bucket.bucket_name,
            training_bundle_uri=launching.bundle.uri,
            training_bundle_asset_uri=launching.bundle.asset_uri,
            launcher_function=launching.launcher.function.function_name,
            notification_topic_arn=notifications.topics.notifications.topic_arn,
            dead_notification_queue_url=notifications.dead.queue_url,
            deployment_metrics=settings.dashboard,
            pool_reminder_seconds=settings.pool_reminder_seconds,
            pool_idle_limit_seconds=settings.pool_idle_limit_seconds,
            isolated_teams=settings.isolated_teams or None,
            orphans=settings.orphans,
            **({} if compute is None else compute.fleet_variables(self)),
        )
        self.function = JobFunction(
            self,
            "Controller",
            package="controller",
            deployment=settings.deployment,
            platform=platform,
            environment=variables,
            # Shorter than the clock's interval: two passes over everything in flight never overlap.
            timeout=Duration.seconds(240),
            description="Keeps runs, their capacity and their warm pools as their records say, and notifies users",
        )
        role = self.function.role
        storage.run_table.grant_read_write(role)
        # The last look before the deployment is deleted.
        storage.run_table.grant_scan(role)
        jobs.grant_observe(role)
        notifications.topics.grant_publish_notifications(role)
        allow(role, actions=["sqs:SendMessage"], resources=[notifications.dead.queue_arn])
        # The next fallback of a run; launches and stops that the launcher could not finish.
        jobs.grant_launch(role, execution_roles=launching.execution_roles)
        launching.bundle.grant_keep(role)
        jobs.grant_keep_alive(role)
        # Sweeps are advanced by the launcher, which opens the runs of their trials.
        launching.launcher.grant_invoke(role)
        if settings.encrypt_training_volumes:
            storage.checkpoints.grant_encrypt_volumes(role)
        # The pass over orphans lists what there is, and reads which jobs are the deployment's.
        jobs.grant_find(role)
        storage.checkpoints.grant_list_runs(role, teams=(None, *settings.isolated_teams))
        allow(
            role,
            actions=["pricing:GetProducts"],
            resources=["*"],
            wildcard="The price list is public and no resource; its regions are the narrowest bound it takes.",
            conditions={"StringEquals": {"aws:RequestedRegion": PRICE_LIST_REGIONS}},
        )
        # No event says that a pool was reused or has expired, so its end is scheduled when it begins.
        self.pools = FunctionSchedules(
            self,
            "PoolSchedules",
            name=f"{settings.deployment}-pools",
            function=self.function,
            description="The schedules of warm pools run with it",
        )
        self.events = JobEvents(self, "JobEvents", controller=self.function)
        clock = Reconciliation(self, "Reconciliation", controller=self.function)
        # The controller acts on fleets and on service jobs as it does on training jobs.
        if compute is not None:
            self.events.bring(OF_FLEETS)
            compute.let_launch(self.function)
            grant_read_instance_log(role, deployment=settings.deployment)
            compute.fleets.grant_delete_orphans(role)
        needs: list[Construct] = [notifications.topics, self.events, clock, self.pools]
        if launching.queues is not None:
            self.events.bring(OF_SERVICE_JOBS)
            launching.queues.grant_submit(role)
            needs.append(launching.queues)
        self.shutdown = RunShutdown(self, "Shutdown", controller=self.function, needs=needs)
