"""AWS Batch's queues for training jobs, and the permissions on the jobs in them.

A queue is a service environment with a job queue before it, and quota shares of that job queue. The service environment
sets the number of instances of each type that may run at a time. Batch creates the training jobs, with its own
service-linked role. The functions submit, describe and terminate service jobs. Nothing here costs anything by itself.

Sources: https://docs.aws.amazon.com/batch/latest/userguide/create-quota-management-resources.html
    https://docs.aws.amazon.com/batch/latest/userguide/sm_job_stuck_in_runnable_time_limit_actions.html "Actions,
    resources, and condition keys for AWS Batch" (service authorization reference)
"""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import aws_batch as batch
from aws_cdk import aws_iam as iam
from constructs import Construct

from spotkeep_constructs.statements import allow, allow_regional, arn_for, together
from spotkeep_fleet.tags import DEPLOYMENT_TAG
from spotkeep_jobs.document.queue import Queue, Share, job_queue_name

_TRAINING = "SAGEMAKER_TRAINING"
_NAMED_LATER = "AWS Batch names service jobs when they are submitted; the tag binds them to the deployment."
_LENDING = {"reserve": "RESERVE", "lend": "LEND", "lend-and-borrow": "LEND_AND_BORROW"}


class JobQueues(Construct):
    """The queues of a deployment, each with a service environment, a scheduling policy, a job queue and its shares."""

    def __init__(self, scope: Construct, id: str, *, deployment: str, queues: Mapping[str, Queue]) -> None:  # noqa: A002
        """Place them.

        Args:
            scope: Parent construct.
            id: Construct id.
            deployment: Prefix of their names.
            queues: The queues of the settings.
        """
        super().__init__(scope, id)
        self._deployment = deployment
        self._queues = queues
        for name, queue in queues.items():
            self._queue(name, queue)

    def grant_submit(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a function submit jobs to these queues, find them, and terminate those of its deployment.

        Args:
            grantee: A function's role, which may already pass the roles of jobs to SageMaker.
        """
        queues = [
            arn_for(grantee, "batch", "job-queue", job_queue_name(deployment=self._deployment, queue=each))
            for each in self._queues
        ]
        # Not one by one: a thousand ARNs would fit into no policy.
        shares = [f"{queue}/quota-share/*" for queue in queues]
        tagged = {"StringEquals": {f"aws:RequestTag/{DEPLOYMENT_TAG}": self._deployment}}
        return together(
            allow(
                grantee,
                actions=["batch:SubmitServiceJob"],
                resources=[*queues, *shares, _every_service_job(grantee)],
                wildcard=f"{_NAMED_LATER} All shares of these queues are the deployment's.",
                conditions=tagged,
            ),
            allow(
                grantee,
                actions=["batch:TagResource"],
                resources=[_every_service_job(grantee)],
                wildcard=_NAMED_LATER,
                conditions=tagged,
            ),
            self._allow_on_own(grantee, "batch:TerminateServiceJob"),
            allow_regional(grantee, "batch:DescribeServiceJob", "batch:ListServiceJobs"),
        )

    def grant_change_priority(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a function change the priority of the deployment's service jobs.

        Args:
            grantee: A function's role.
        """
        return self._allow_on_own(grantee, "batch:UpdateServiceJob")

    def _allow_on_own(self, grantee: iam.IGrantable, action: str) -> iam.Grant:
        return allow(
            grantee,
            actions=[action],
            resources=[_every_service_job(grantee)],
            wildcard=_NAMED_LATER,
            conditions={"StringEquals": {f"aws:ResourceTag/{DEPLOYMENT_TAG}": self._deployment}},
        )

    def _queue(self, name: str, queue: Queue) -> None:
        full_name = job_queue_name(deployment=self._deployment, queue=name)
        scope = Construct(self, name)
        environment = batch.CfnServiceEnvironment(
            scope,
            "Environment",
            service_environment_name=full_name,
            service_environment_type=_TRAINING,
            state="ENABLED",
            capacity_limits=[
                batch.CfnServiceEnvironment.CapacityLimitProperty(capacity_unit=instance_type, max_capacity=most)
                for instance_type, most in queue.types.items()
            ],
        )
        policy = batch.CfnSchedulingPolicy(
            scope,
            "Policy",
            name=full_name,
            quota_share_policy=batch.CfnSchedulingPolicy.QuotaSharePolicyProperty(
                idle_resource_assignment_strategy="FIFO"
            ),
        )
        job_queue = batch.CfnJobQueue(
            scope,
            "Queue",
            job_queue_name=full_name,
            job_queue_type=_TRAINING,
            priority=1,
            state="ENABLED",
            scheduling_policy_arn=policy.attr_arn,
            job_state_time_limit_actions=_limits_at_the_front(queue) or None,
            service_environment_order=[
                batch.CfnJobQueue.ServiceEnvironmentOrderProperty(
                    order=1, service_environment=environment.attr_service_environment_arn
                )
            ],
        )
        for share_name, share in queue.shares.items():
            self._share(scope, share_name, share, job_queue=job_queue)

    @staticmethod
    def _share(scope: Construct, name: str, share: Share, *, job_queue: batch.CfnJobQueue) -> None:
        batch.CfnQuotaShare(
            scope,
            f"Share-{name}",
            quota_share_name=name,
            job_queue=job_queue.attr_job_queue_arn,
            state="ENABLED",
            capacity_limits=[
                batch.CfnQuotaShare.QuotaShareCapacityLimitProperty(capacity_unit=instance_type, max_capacity=most)
                for instance_type, most in share.types.items()
            ],
            resource_sharing_configuration=batch.CfnQuotaShare.QuotaShareResourceSharingConfigurationProperty(
                strategy=_LENDING[share.lending], borrow_limit=share.borrow_limit_percent
            ),
            preemption_configuration=batch.CfnQuotaShare.QuotaSharePreemptionConfigurationProperty(
                in_share_preemption="ENABLED" if share.preempt_by_priority else "DISABLED"
            ),
        )


def _limits_at_the_front(queue: Queue) -> list[batch.CfnJobQueue.JobStateTimeLimitActionProperty]:
    limits = (
        ("MISCONFIGURATION:SERVICE_ENVIRONMENT_MAX_RESOURCE", queue.never_fits_limit),
        ("MISCONFIGURATION:QUOTA_MANAGEMENT_LIMIT_EXCEEDED", queue.never_fits_limit),
        ("CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY", queue.no_capacity_limit),
    )
    return [
        batch.CfnJobQueue.JobStateTimeLimitActionProperty(
            action="TERMINATE", state="RUNNABLE", reason=reason, max_time_seconds=seconds
        )
        for reason, seconds in limits
        if seconds is not None
    ]


def _every_service_job(grantee: iam.IGrantable) -> str:
    return arn_for(grantee, "batch", "service-job")
