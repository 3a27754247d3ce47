"""The permissions that AWS Batch's operations on service jobs and their queues need.

The submitter of a service job passes the training job's role to SageMaker. Batch itself creates the training job, in
its service-linked role AWSServiceRoleForAWSBatchWithSagemaker. So the caller needs no sagemaker:CreateTrainingJob.

Sources: "Actions, resources, and condition keys for AWS Batch" in the Service Authorization Reference, for
SubmitServiceJob its table of API operations. "Using roles for AWS Batch with SageMaker AI" in the AWS Batch user guide.
"""

from __future__ import annotations

import json
from typing import Final

from spotkeep_local.iam.authorizations.asking import (
    Asked,
    Asking,
    AuthorizationRule,
    Naming,
    Rules,
    UndecidableError,
    always,
    arn_in,
    ask,
    existing,
    made,
    making,
)

_SERVICE_JOB: Final = "service-job/"
_TAGGING: Final = "batch:TagResource"


def _named(kind: str, member: str) -> Naming:
    """Return a reader of a resource's ARN, where a parameter has its ARN or its name. Jobs have an ARN or an id."""
    return lambda call: call.arn_of(call.needed(member), "batch", kind)


_queue = _named("job-queue/", "jobQueue")
_job = _named(_SERVICE_JOB, "jobId")


def _create_queue(call: Asking) -> Asked:
    queue = call.arn_of(call.needed("jobQueueName"), "batch", "job-queue/")
    tags = call.new_tags
    yield from made("batch:CreateJobQueue", queue, tags, tagging=_TAGGING)
    used = [
        *(
            call.arn_of(each["serviceEnvironment"], "batch", "service-environment/")
            for each in call.get("serviceEnvironmentOrder") or ()
        ),
        *([call.parameters["schedulingPolicyArn"]] if call.get("schedulingPolicyArn") else ()),
    ]
    for resource in used:
        yield ask("batch:CreateJobQueue", resource, request_tags=tags, resource_tags=call.tags(resource))


def _update_queue(call: Asking) -> Asked:
    for resource in (_queue(call), call.get("schedulingPolicyArn")):
        if resource:
            yield ask("batch:UpdateJobQueue", resource, resource_tags=call.tags(resource))


def _create_share(call: Asking) -> Asked:
    queue, tags = _queue(call), call.new_tags
    yield ask("batch:CreateQuotaShare", queue, request_tags=tags, resource_tags=call.tags(queue))
    share = f"{queue}/quota-share/{call.needed('quotaShareName')}"
    yield from made("batch:CreateQuotaShare", share, tags, tagging=_TAGGING)


def _submit(call: Asking) -> Asked:
    queue, tags = _queue(call), call.new_tags
    priority = {"batch:schedulingpriority": call.get("schedulingPriority")}
    shared = {"batch:shareidentifier": call.get("shareIdentifier")}
    used = [queue]
    if name := call.get("quotaShareName"):
        used.append(f"{queue}/quota-share/{name}")
    for resource in used:
        resource_tags = call.tags(resource)
        yield ask("batch:SubmitServiceJob", resource, keys=priority, request_tags=tags, resource_tags=resource_tags)
    job = call.arn("batch", f"{_SERVICE_JOB}*")
    yield from made("batch:SubmitServiceJob", job, tags, tagging=_TAGGING, keys=priority | shared)
    role = _role_in(str(call.needed("serviceRequestPayload")))
    if role is not None:
        yield call.pass_role(role, "sagemaker.amazonaws.com")


def _role_in(payload: str) -> str | None:
    """Return the role that a payload names. None where SageMaker will refuse it for the want of one."""
    try:
        role = json.loads(payload).get("RoleArn")
    except (ValueError, AttributeError):
        return None
    if role is not None and not isinstance(role, str):
        raise UndecidableError("RoleArn in serviceRequestPayload is no text.")
    return role


def _update_job(call: Asking) -> Asked:
    job, keys = _job(call), {"batch:schedulingpriority": call.get("schedulingPriority")}
    yield ask("batch:UpdateServiceJob", job, keys=keys, resource_tags=call.tags(job))


def _tagging(action: str) -> AuthorizationRule:
    def rule(call: Asking) -> Asked:
        resource = str(call.needed("resourceArn"))
        yield ask(
            f"batch:{action}",
            resource,
            sets={"aws:tagkeys": call.get("tagKeys") or ()},
            request_tags=call.new_tags,
            resource_tags=call.tags(resource),
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
"""Operations on one existing resource, and the reader of its ARN."""

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
