"""What the operations of AWS Batch on service jobs and their queues ask for.

Who submits a service job passes the training job's role to SageMaker. The training job itself is created by Batch, in
its service-linked role AWSServiceRoleForAWSBatchWithSagemaker: the caller needs no sagemaker:CreateTrainingJob.

Sources: "Actions, resources, and condition keys for AWS Batch" in the Service Authorization Reference, for
SubmitServiceJob its table of API operations; "Using roles for AWS Batch with SageMaker AI" in the AWS Batch user guide.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from spotkeep_local.iam.authorizations.asking import UndecidableError, always, arn, ask, needed, pass_role

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spotkeep_local.iam.authorization import Authorization
    from spotkeep_local.iam.authorizations.account import AccountView
    from spotkeep_local.iam.authorizations.asking import AuthorizationRule, Parameters

_SERVICE_JOB: Final = "service-job"


def _named(kind: str, named: object, account: AccountView) -> str:
    """Return the ARN of what a request names by ARN or by name; jobs by ARN or by id."""
    name = str(named)
    return name if name.startswith("arn:") else arn("batch", f"{kind}/{name}", account)


def _create(action: str, kind: str, member: str) -> AuthorizationRule:
    def rule(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
        resource = _named(kind, needed(parameters, member), account)
        yield from _created(action, resource, parameters)

    return rule


def _created(action: str, resource: str, parameters: Parameters) -> Iterator[Authorization]:
    tags = parameters.get("tags") or {}
    yield ask(f"batch:{action}", resource, request_tags=tags)
    if tags:
        yield ask("batch:TagResource", resource, request_tags=tags)


def _on(action: str, kind: str, member: str) -> AuthorizationRule:
    def rule(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
        resource = _named(kind, needed(parameters, member), account)
        yield ask(f"batch:{action}", resource, resource_tags=account.tags(resource))

    return rule


def _create_queue(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    queue = _named("job-queue", needed(parameters, "jobQueueName"), account)
    yield from _created("CreateJobQueue", queue, parameters)
    yield from _used_by_queue("CreateJobQueue", parameters, account)


def _update_queue(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    queue = _named("job-queue", needed(parameters, "jobQueue"), account)
    yield ask("batch:UpdateJobQueue", queue, resource_tags=account.tags(queue))
    if policy := parameters.get("schedulingPolicyArn"):
        yield ask("batch:UpdateJobQueue", policy, resource_tags=account.tags(policy))


def _used_by_queue(action: str, parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    used = [
        *(
            _named("service-environment", each["serviceEnvironment"], account)
            for each in parameters.get("serviceEnvironmentOrder") or ()
        ),
        *([parameters["schedulingPolicyArn"]] if parameters.get("schedulingPolicyArn") else ()),
    ]
    for resource in used:
        tags = parameters.get("tags") or {}
        yield ask(f"batch:{action}", resource, request_tags=tags, resource_tags=account.tags(resource))


def _create_share(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    queue = _named("job-queue", needed(parameters, "jobQueue"), account)
    tags = parameters.get("tags") or {}
    yield ask("batch:CreateQuotaShare", queue, request_tags=tags, resource_tags=account.tags(queue))
    yield from _created("CreateQuotaShare", f"{queue}/quota-share/{needed(parameters, 'quotaShareName')}", parameters)


def _submit(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    queue = _named("job-queue", needed(parameters, "jobQueue"), account)
    job = arn("batch", f"{_SERVICE_JOB}/*", account)
    tags = parameters.get("tags") or {}
    priority = {"batch:schedulingpriority": parameters.get("schedulingPriority")}
    shared = {"batch:shareidentifier": parameters.get("shareIdentifier")}
    used = [queue]
    if name := parameters.get("quotaShareName"):
        used.append(f"{queue}/quota-share/{name}")
    for resource in used:
        resource_tags = account.tags(resource)
        yield ask("batch:SubmitServiceJob", resource, keys=priority, request_tags=tags, resource_tags=resource_tags)
    yield ask("batch:SubmitServiceJob", job, keys=priority | shared, request_tags=tags)
    if tags:
        yield ask("batch:TagResource", job, request_tags=tags)
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


def _update_job(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    job = _named(_SERVICE_JOB, needed(parameters, "jobId"), account)
    keys = {"batch:schedulingpriority": parameters.get("schedulingPriority")}
    yield ask("batch:UpdateServiceJob", job, keys=keys, resource_tags=account.tags(job))


def _tagging(action: str) -> AuthorizationRule:
    def rule(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
        resource = str(needed(parameters, "resourceArn"))
        yield ask(
            f"batch:{action}",
            resource,
            sets={"aws:tagkeys": parameters.get("tagKeys") or ()},
            request_tags=parameters.get("tags") or {},
            resource_tags=account.tags(resource),
        )

    return rule


OPERATIONS: Final[Mapping[str, AuthorizationRule]] = {
    "CreateJobQueue": _create_queue,
    "CreateQuotaShare": _create_share,
    "CreateSchedulingPolicy": _create("CreateSchedulingPolicy", "scheduling-policy", "name"),
    "CreateServiceEnvironment": _create("CreateServiceEnvironment", "service-environment", "serviceEnvironmentName"),
    "DeleteJobQueue": _on("DeleteJobQueue", "job-queue", "jobQueue"),
    "DeleteQuotaShare": _on("DeleteQuotaShare", "quota-share", "quotaShareArn"),
    "DeleteSchedulingPolicy": _on("DeleteSchedulingPolicy", "scheduling-policy", "arn"),
    "DeleteServiceEnvironment": _on("DeleteServiceEnvironment", "service-environment", "serviceEnvironment"),
    "DescribeJobQueues": always("batch:DescribeJobQueues"),
    "DescribeQuotaShare": _on("DescribeQuotaShare", "quota-share", "quotaShareArn"),
    "DescribeSchedulingPolicies": always("batch:DescribeSchedulingPolicies"),
    "DescribeServiceEnvironments": always("batch:DescribeServiceEnvironments"),
    "DescribeServiceJob": always("batch:DescribeServiceJob"),
    "ListQuotaShares": _on("ListQuotaShares", "job-queue", "jobQueue"),
    "ListServiceJobs": always("batch:ListServiceJobs"),
    "ListTagsForResource": _tagging("ListTagsForResource"),
    "SubmitServiceJob": _submit,
    "TagResource": _tagging("TagResource"),
    "TerminateServiceJob": _on("TerminateServiceJob", _SERVICE_JOB, "jobId"),
    "UntagResource": _tagging("UntagResource"),
    "UpdateJobQueue": _update_queue,
    "UpdateQuotaShare": _on("UpdateQuotaShare", "quota-share", "quotaShareArn"),
    "UpdateSchedulingPolicy": _on("UpdateSchedulingPolicy", "scheduling-policy", "arn"),
    "UpdateServiceEnvironment": _on("UpdateServiceEnvironment", "service-environment", "serviceEnvironment"),
    "UpdateServiceJob": _update_job,
}
