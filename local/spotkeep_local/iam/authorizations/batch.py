"""What the operations of AWS Batch on service jobs and their queues ask for.

Who submits a service job passes the training job's role to SageMaker. The training job itself is created by Batch, in
its service-linked role AWSServiceRoleForAWSBatchWithSagemaker: the caller needs no sagemaker:CreateTrainingJob.

Sources: "Actions, resources, and condition keys for AWS Batch" in the Service Authorization Reference, for
SubmitServiceJob its table of API operations; "Using roles for AWS Batch with SageMaker AI" in the AWS Batch user guide.
"""

from __future__ import annotations

import json
from typing import Final

from spotkeep_local.iam.authorizations.asking import (
    AccountView,
    Asked,
    AuthorizationRule,
    Naming,
    Parameters,
    Rules,
    UndecidableError,
    always,
    arn,
    arn_in,
    arn_of,
    ask,
    existing,
    made,
    making,
    needed,
    pass_role,
    tags_of,
)

_SERVICE_JOB: Final = "service-job/"
_TAGGING: Final = "batch:TagResource"


def _named(kind: str, member: str) -> Naming:
    """Return what reads the ARN of what a parameter names by ARN or by name; jobs by ARN or by id."""
    return lambda parameters, account: arn_of(needed(parameters, member), "batch", kind, account)


_queue = _named("job-queue/", "jobQueue")
_job = _named(_SERVICE_JOB, "jobId")


def _create_queue(parameters: Parameters, account: AccountView) -> Asked:
    queue = arn_of(needed(parameters, "jobQueueName"), "batch", "job-queue/", account)
    tags = tags_of(parameters.get("tags"))
    yield from made("batch:CreateJobQueue", queue, tags, tagging=_TAGGING)
    used = [
        *(
            arn_of(each["serviceEnvironment"], "batch", "service-environment/", account)
            for each in parameters.get("serviceEnvironmentOrder") or ()
        ),
        *([parameters["schedulingPolicyArn"]] if parameters.get("schedulingPolicyArn") else ()),
    ]
    for resource in used:
        yield ask("batch:CreateJobQueue", resource, request_tags=tags, resource_tags=account.tags(resource))


def _update_queue(parameters: Parameters, account: AccountView) -> Asked:
    for resource in (_queue(parameters, account), parameters.get("schedulingPolicyArn")):
        if resource:
            yield ask("batch:UpdateJobQueue", resource, resource_tags=account.tags(resource))


def _create_share(parameters: Parameters, account: AccountView) -> Asked:
    queue, tags = _queue(parameters, account), tags_of(parameters.get("tags"))
    yield ask("batch:CreateQuotaShare", queue, request_tags=tags, resource_tags=account.tags(queue))
    share = f"{queue}/quota-share/{needed(parameters, 'quotaShareName')}"
    yield from made("batch:CreateQuotaShare", share, tags, tagging=_TAGGING)


def _submit(parameters: Parameters, account: AccountView) -> Asked:
    queue, tags = _queue(parameters, account), tags_of(parameters.get("tags"))
    priority = {"batch:schedulingpriority": parameters.get("schedulingPriority")}
    shared = {"batch:shareidentifier": parameters.get("shareIdentifier")}
    used = [queue]
    if name := parameters.get("quotaShareName"):
        used.append(f"{queue}/quota-share/{name}")
    for resource in used:
        resource_tags = account.tags(resource)
        yield ask("batch:SubmitServiceJob", resource, keys=priority, request_tags=tags, resource_tags=resource_tags)
    job = arn("batch", f"{_SERVICE_JOB}*", account)
    yield from made("batch:SubmitServiceJob", job, tags, tagging=_TAGGING, keys=priority | shared)
    role = _role_in(str(needed(parameters, "serviceRequestPayload")))
    if role is not None:
        yield pass_role(role, "sagemaker.amazonaws.com", account)


def _role_in(payload: str) -> str | None:
    """Return the role that a payload names; None where SageMaker will refuse it for the want of one."""
    try:
        role = json.loads(payload).get("RoleArn")
    except (ValueError, AttributeError):
        return None
    if role is not None and not isinstance(role, str):
        raise UndecidableError("RoleArn in serviceRequestPayload is no text.")
    return role


def _update_job(parameters: Parameters, account: AccountView) -> Asked:
    job, keys = _job(parameters, account), {"batch:schedulingpriority": parameters.get("schedulingPriority")}
    yield ask("batch:UpdateServiceJob", job, keys=keys, resource_tags=account.tags(job))


def _tagging(action: str) -> AuthorizationRule:
    def rule(parameters: Parameters, account: AccountView) -> Asked:
        resource = str(needed(parameters, "resourceArn"))
        yield ask(
            f"batch:{action}",
            resource,
            sets={"aws:tagkeys": parameters.get("tagKeys") or ()},
            request_tags=tags_of(parameters.get("tags")),
            resource_tags=account.tags(resource),
        )

    return rule


_ON: Final = {
    "DeleteJobQueue": _queue,
    "DeleteQuotaShare": arn_in("quotaShareArn"),
    "DeleteSchedulingPolicy": arn_in("arn"),
    "DeleteServiceEnvironment": _named("service-environment/", "serviceEnvironment"),
    "DescribeQuotaShare": arn_in("quotaShareArn"),
    "ListQuotaShares": _queue,
    "TerminateServiceJob": _job,
    "UpdateQuotaShare": arn_in("quotaShareArn"),
    "UpdateSchedulingPolicy": arn_in("arn"),
    "UpdateServiceEnvironment": _named("service-environment/", "serviceEnvironment"),
}
"""Operations on one thing that is there, and what names it."""

_RULES: Final[Rules] = {
    "CreateJobQueue": _create_queue,
    "CreateQuotaShare": _create_share,
    "CreateSchedulingPolicy": making(
        "batch:CreateSchedulingPolicy", _named("scheduling-policy/", "name"), tagging=_TAGGING
    ),
    "CreateServiceEnvironment": making(
        "batch:CreateServiceEnvironment", _named("service-environment/", "serviceEnvironmentName"), tagging=_TAGGING
    ),
    "SubmitServiceJob": _submit,
    "UpdateJobQueue": _update_queue,
    "UpdateServiceJob": _update_job,
    **{name: _tagging(name) for name in ("ListTagsForResource", "TagResource", "UntagResource")},
    **{name: existing(f"batch:{name}", named) for name, named in _ON.items()},
    **{
        name: always(f"batch:{name}")
        for name in (
            "DescribeJobQueues",
            "DescribeSchedulingPolicies",
            "DescribeServiceEnvironments",
            "DescribeServiceJob",
            "ListServiceJobs",
        )
    },
}
OPERATIONS: Final = {"batch": _RULES}
