"""ministack's EventBridge, SNS and SQS, with AWS's own events, addresses of queues and permitted deliveries."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ministack.services import eventbridge as _eventbridge  # type: ignore[import-untyped]
from ministack.services import sns as _sns
from ministack.services import sqs as _sqs

from spotkeep_local.errors import IncompatibleMinistackError
from spotkeep_local.ministack.functions import judge_calls_of_functions
from spotkeep_local.principals import ServiceCall

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_QUEUE_PORT = "4566"


def publish_event(*, source: str, detail_type: str, detail: Mapping[str, Any], resources: Sequence[str]) -> None:
    """Put an event on the default bus as AWS itself would, because the public call refuses `aws.*` sources.

    Matching targets are called before this returns. Lambda functions run in the background.

    Raises:
        IncompatibleMinistackError: The bus refused the event.
    """
    entry = {
        "Source": source,
        "DetailType": detail_type,
        "Detail": json.dumps(detail),
        "Resources": list(resources),
    }
    _status, _headers, body = _eventbridge._put_events({"Entries": [entry]}, allow_aws_source=True)
    answer = json.loads(body)
    if answer["FailedEntryCount"]:
        raise IncompatibleMinistackError(f"the event bus refused an event of {source}: {answer['Entries']}")


def name_queues_alike_on_every_port() -> None:
    """Keep the address of queues on every port, and name it in answers with the port of the request.

    ministack keys a queue by its address, and searches a function's queue under the address of today. A state may come
    up on another port, when the old one is taken or the directory is a copy. Without this, a function would not find
    its queue there.
    """
    _sqs.DEFAULT_PORT = _QUEUE_PORT
    _sqs._CANONICAL_NETLOC = f"{_sqs.DEFAULT_HOST}:{_QUEUE_PORT}"
    _sqs._HOST_EXPLICIT = False


def judge_service_calls(is_allowed: Callable[[ServiceCall], bool]) -> None:
    """Make ministack ask before a service acts by itself, and drop calls that are not allowed.

    Args:
        is_allowed: Decides about each call.
    """
    delivery = {"lambda": "lambda:InvokeFunction", "sqs": "sqs:SendMessage", "sns": "sns:Publish"}
    invoke_target = _eventbridge._invoke_target

    def invoke_allowed_target(target: Mapping[str, Any], event: Mapping[str, Any], rule: Any, view: Any = None) -> None:
        arn = str(target.get("Arn", ""))
        service = arn.split(":")[2] if arn.count(":") > 1 else ""
        scheduled = event.get("Source") == "aws.scheduler"
        call = ServiceCall(
            service="scheduler.amazonaws.com" if scheduled else "events.amazonaws.com",
            # A target of another kind asks for what AWS does not have, and so gets nothing.
            actions=(delivery.get(service, f"{service}:Unknown"),),
            resource=arn,
            source_arn=str(rule.get("Arn") or (event.get("resources") or event.get("Resources") or [""])[0]),
            role_arn=target.get("RoleArn") if scheduled else None,
        )
        if is_allowed(call):
            invoke_target(_with_scheduled_time(target, event) if scheduled else target, event, rule, view)

    _eventbridge._invoke_target = invoke_allowed_target
    deliver_to_queue, deliver_to_function = _sns._deliver_to_sqs, _sns._deliver_to_lambda

    def deliver_to_allowed_queue(endpoint: str, *message: Any, topic_arn: str = "", **more: Any) -> None:
        call = ServiceCall(
            service="sns.amazonaws.com", actions=("sqs:SendMessage",), resource=endpoint, source_arn=topic_arn
        )
        if is_allowed(call):
            deliver_to_queue(endpoint, *message, topic_arn=topic_arn, **more)

    def deliver_to_allowed_function(endpoint: str, envelope: str, topic_arn: str, *message: Any) -> None:
        call = ServiceCall(
            service="sns.amazonaws.com", actions=("lambda:InvokeFunction",), resource=endpoint, source_arn=topic_arn
        )
        if is_allowed(call):
            deliver_to_function(endpoint, envelope, topic_arn, *message)

    _sns._deliver_to_sqs, _sns._deliver_to_lambda = deliver_to_allowed_queue, deliver_to_allowed_function
    judge_calls_of_functions(is_allowed)


def _with_scheduled_time(target: Mapping[str, Any], event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schedule's target with the time of its firing, where its input asks for it.

    ministack leaves the placeholder as it is.

    Source: https://docs.aws.amazon.com/scheduler/latest/UserGuide/managing-schedule-context-attributes.html
    """
    at = datetime.fromtimestamp(float(event["Time"]), tz=UTC)
    written = str(target.get("Input") or "").replace("<aws.scheduler.scheduled-time>", f"{at:%Y-%m-%dT%H:%M:%SZ}")
    return {**target, "Input": written} if written else target


def queue_attributes(arn: str) -> Mapping[str, str]:
    """Return the attributes of a queue. None where there is no such queue."""
    queue = _sqs._queue_by_arn(arn)
    return {} if queue is None else queue["attributes"]


def topic(arn: str) -> Mapping[str, Any] | None:
    """Return a topic's `attributes`, and `subscriptions` with arn, protocol and endpoint. None where there is none."""
    found: Mapping[str, Any] | None = _sns._topics.get(arn)
    return found
