"""Batch's rules for requests beyond its model, and features that the local AWS lacks, as pure functions.

Sources: the operations' pages in the AWS Batch API reference. "AWS Batch service quotas", "Create quota management
resources" in its user guide.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from spotkeep_local.batch.records import NUM_INSTANCES, SERVICE_JOBS, SchedulingPolicy
from spotkeep_local.service_base.aws_service import ServiceError

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_ENVIRONMENTS: Final = 50
MOST_QUEUES: Final = 50
MOST_SHARES: Final = 20
_MOST_SHARE_LIMITS: Final = 5
_MOST_ATTEMPTS: Final = 10
_MOST_CONDITIONS: Final = 5
_MOST_PATTERN_CHARACTERS: Final = 512
_MOST_PRIORITY: Final = 9999
_MOST_QUEUE_PRIORITY: Final = 1000
_MOST_TAGS: Final = 50
_PAYLOAD_BYTES: Final = 10 * 1024
_REQUEST_BYTES: Final = 30 * 1024
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")


class ClientError(ServiceError):
    """The request is not valid, or names something that does not exist."""

    code = "ClientException"


def refuse(problems: Iterable[str]) -> None:
    """Raise a `ClientError` that names every problem, if there is any."""
    if found := list(problems):
        raise ClientError("; ".join(found))


def name_problems(member: str, name: str) -> Iterator[str]:
    """Yield why a name is not one of Batch's."""
    if _NAME.fullmatch(name) is None:
        yield f"{member} must have up to 128 letters, digits, hyphens and underscores, found {name!r}"


def limit_problems(limits: Sequence[Mapping[str, Any]], *, of_share: bool) -> Iterator[str]:
    """Yield the problems of capacity limits."""
    if not limits:
        yield "capacityLimits must hold a limit"
    if of_share and len(limits) > _MOST_SHARE_LIMITS:
        yield f"capacityLimits of a quota share must hold {_MOST_SHARE_LIMITS} limits at most, found {len(limits)}"
    units = [limit.get("capacityUnit") for limit in limits]
    for unit in dict.fromkeys(units):
        if units.count(unit) > 1:
            yield f"capacityLimits names {unit} {units.count(unit)} times"
        is_type = isinstance(unit, str) and unit.startswith("ml.")
        if not is_type and (of_share or unit != NUM_INSTANCES):
            known = "an instance type" if of_share else f"{NUM_INSTANCES} or an instance type"
            yield f"capacityUnit must be {known}, found {unit!r}"
    if NUM_INSTANCES in units and len(set(units)) > 1:
        yield f"capacityLimits must be of {NUM_INSTANCES} or of instance types, not of both"
    for limit in limits:
        if limit.get("maxCapacity", -1) < 0:
            yield f"maxCapacity must be a number from 0, found {limit.get('maxCapacity')!r}"


def queue_problems(request: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of a CreateJobQueue or UpdateJobQueue request by itself."""
    if request.get("computeEnvironmentOrder"):
        yield "the local AWS has no compute environments: give serviceEnvironmentOrder"
    order = request.get("serviceEnvironmentOrder")
    if order is not None and len(order) != 1:
        yield f"serviceEnvironmentOrder must name one service environment, found {len(order)}"
    if not 0 <= request.get("priority", 0) <= _MOST_QUEUE_PRIORITY:
        yield f"priority must be from 0 to {_MOST_QUEUE_PRIORITY}, found {request['priority']}"
    for action in request.get("jobStateTimeLimitActions") or ():
        if action["action"] != "TERMINATE":
            yield f"jobStateTimeLimitActions of a queue of service jobs must be TERMINATE, found {action['action']}"
        if not 600 <= action["maxTimeSeconds"] <= 86_400:
            yield f"maxTimeSeconds must be from 600 to 86400, found {action['maxTimeSeconds']}"


def new_queue_problems(request: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of a CreateJobQueue request."""
    yield from name_problems("jobQueueName", request["jobQueueName"])
    yield from queue_problems(request)
    if request.get("jobQueueType") != SERVICE_JOBS:
        yield f"the local AWS has queues of jobQueueType {SERVICE_JOBS} alone, found {request.get('jobQueueType')!r}"
    if not request.get("serviceEnvironmentOrder") and not request.get("computeEnvironmentOrder"):
        yield "serviceEnvironmentOrder is missing"


def new_policy_problems(request: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of a CreateSchedulingPolicy request."""
    yield from policy_problems(request)
    if request.get("quotaSharePolicy") is None:
        yield "quotaSharePolicy is missing"


def policy_problems(request: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of a CreateSchedulingPolicy or UpdateSchedulingPolicy request."""
    if "fairsharePolicy" in request:
        yield "fairsharePolicy must not be given: the local AWS has policies with a quotaSharePolicy alone"


def share_problems(request: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of the members of a CreateQuotaShare or UpdateQuotaShare request."""
    if "capacityLimits" in request:
        yield from limit_problems(request["capacityLimits"], of_share=True)
    sharing = request.get("resourceSharingConfiguration") or {}
    borrow_limit = sharing.get("borrowLimit")
    if borrow_limit is not None and sharing["strategy"] != "LEND_AND_BORROW":
        yield f"borrowLimit goes with strategy LEND_AND_BORROW alone, found {sharing['strategy']}"
    if borrow_limit is not None and borrow_limit < -1:
        yield f"borrowLimit must be -1 or a percentage, found {borrow_limit}"


def tag_problems(tags: Mapping[str, str]) -> Iterator[str]:
    """Yield the problems of all tags of a resource together."""
    if len(tags) > _MOST_TAGS:
        yield f"a resource has at most {_MOST_TAGS} tags, found {len(tags)}"
    for key in tags:
        if key.lower().startswith("aws:"):
            yield f"a tag's key must not begin with aws:, found {key!r}"


def submission_problems(request: Mapping[str, Any], policy: SchedulingPolicy | None) -> Iterator[str]:
    """Yield the problems of a SubmitServiceJob request. Batch does not check its payload.

    Args:
        request: The request.
        policy: The scheduling policy of its queue. None for first in, first out.
    """
    yield from name_problems("jobName", request["jobName"])
    payload = request["serviceRequestPayload"]
    if (size := len(payload.encode())) > _PAYLOAD_BYTES:
        yield f"serviceRequestPayload must have at most {_PAYLOAD_BYTES} bytes, found {size}"
    if (size := len(json.dumps(request).encode())) > _REQUEST_BYTES:
        yield f"the request must have at most {_REQUEST_BYTES} bytes, found {size}"
    yield from priority_problems(request)
    yield from _share_of_job_problems(request, policy)
    yield from _retry_problems(request.get("retryStrategy"))
    yield from tag_problems(request.get("tags") or {})
    retries = (request.get("preemptionConfiguration") or {}).get("preemptionRetriesBeforeTermination")
    if retries is not None and retries < 0:
        yield f"preemptionRetriesBeforeTermination must be a number from 0, found {retries}"
    seconds = (request.get("timeoutConfig") or {}).get("attemptDurationSeconds")
    if seconds is not None and seconds < 1:
        yield f"attemptDurationSeconds must be a number from 1, found {seconds}"


def priority_problems(request: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of a scheduling priority, if there is one."""
    if not 0 <= request.get("schedulingPriority", 0) <= _MOST_PRIORITY:
        yield f"schedulingPriority must be from 0 to {_MOST_PRIORITY}, found {request['schedulingPriority']}"


def _share_of_job_problems(request: Mapping[str, Any], policy: SchedulingPolicy | None) -> Iterator[str]:
    if policy is not None and "quotaShareName" not in request:
        yield "quotaShareName is missing: the job queue's scheduling policy needs it"
    if policy is None:
        for member in ("quotaShareName", "preemptionConfiguration"):
            if member in request:
                yield f"{member} must not be given: the job queue has no quota shares"
    if "shareIdentifier" in request:
        yield "shareIdentifier must not be given: the local AWS has no fair-share policies"


def _retry_problems(strategy: Mapping[str, Any] | None) -> Iterator[str]:
    if strategy is None:
        return
    if not 1 <= strategy["attempts"] <= _MOST_ATTEMPTS:
        yield f"retryStrategy.attempts must be from 1 to {_MOST_ATTEMPTS}, found {strategy['attempts']}"
    conditions = strategy.get("evaluateOnExit") or ()
    if len(conditions) > _MOST_CONDITIONS:
        yield f"evaluateOnExit must hold {_MOST_CONDITIONS} conditions at most, found {len(conditions)}"
    for condition in conditions:
        if len(condition.get("onStatusReason", "")) > _MOST_PATTERN_CHARACTERS:
            yield f"onStatusReason must have at most {_MOST_PATTERN_CHARACTERS} characters"
