"""The permissions that the operations of SNS, SQS, EventBridge and EventBridge Scheduler need.

A schedule has its group's tags.

Sources: "Using identity-based policies with Amazon SNS", "Managing Amazon SNS encryption keys and costs" in the SNS
developer guide. "Amazon SQS API permissions: Actions and resource reference", "Amazon SQS key management" in the SQS
developer guide. "Using IAM policy conditions in Amazon EventBridge", "Permissions for PutTargets" in the EventBridge
user guide. "Using identity-based policies in EventBridge Scheduler" in its user guide.
"""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import urlsplit

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
    making,
    needed,
)

_USE_TO_SEND: Final = ("GenerateDataKey", "Decrypt")


def _publish(call: Asking) -> Asked:
    topic = call.get("TopicArn", call.get("TargetArn"))
    if topic is None:
        raise UndecidableError("The request names no topic.")
    yield ask("sns:Publish", topic, resource_tags=call.tags(topic))
    context = {"aws:sns:topicArn": topic}
    yield from call.use_key(call.account.key_of(topic), _USE_TO_SEND, via="sns", encryption_context=context)


def _subscribe(call: Asking) -> Asked:
    topic = str(call.needed("TopicArn"))
    keys = {"sns:endpoint": call.get("Endpoint"), "sns:protocol": call.get("Protocol")}
    yield ask("sns:Subscribe", topic, keys=keys, resource_tags=call.tags(topic))


def _named_topic(call: Asking) -> str:
    return call.arn("sns", call.needed("Name"))


def _topic_of_subscription(call: Asking) -> str:
    # A subscription is its topic's ARN and an id.
    return str(call.needed("SubscriptionArn")).rpartition(":")[0]


_SNS: Final[Rules] = {
    "CreateTopic": making("sns:CreateTopic", _named_topic, tagging="sns:TagResource"),
    "ListTopics": always("sns:ListTopics"),
    "Publish": _publish,
    "Subscribe": _subscribe,
    "Unsubscribe": existing("sns:Unsubscribe", _topic_of_subscription),
    **{
        name: existing(f"sns:{name}", arn_in("TopicArn"))
        for name in ("DeleteTopic", "GetTopicAttributes", "ListSubscriptionsByTopic", "SetTopicAttributes")
    },
}


def _queue(call: Asking) -> str:
    """Return the ARN of the queue at an address, which ends in account and name."""
    path = urlsplit(str(call.needed("QueueUrl"))).path.strip("/").split("/")
    if len(path) < 2:
        raise UndecidableError(f"{call.parameters['QueueUrl']} is no queue's address.")
    return f"arn:aws:sqs:{call.account.region}:{path[-2]}:{path[-1]}"


def _named_queue(call: Asking) -> str:
    return call.arn("sqs", call.needed("QueueName"))


def _on_messages(action: str, *, key_use: tuple[str, ...]) -> AuthorizationRule:
    """Return the rule of an operation on a queue that uses the queue's key."""

    def rule(call: Asking) -> Asked:
        queue = _queue(call)
        yield ask(f"sqs:{action}", queue, resource_tags=call.tags(queue))
        context = {"aws:sqs:arn": queue}
        yield from call.use_key(call.account.key_of(queue), key_use, via="sqs", encryption_context=context)

    return rule


_SQS: Final[Rules] = {
    "CreateQueue": making("sqs:CreateQueue", _named_queue, tagging="sqs:TagQueue"),
    "DeleteMessageBatch": existing("sqs:DeleteMessage", _queue),
    "GetQueueUrl": existing("sqs:GetQueueUrl", _named_queue),
    "ListQueues": always("sqs:ListQueues"),
    "ReceiveMessage": _on_messages("ReceiveMessage", key_use=("Decrypt",)),
    "SendMessage": _on_messages("SendMessage", key_use=_USE_TO_SEND),
    "SendMessageBatch": _on_messages("SendMessage", key_use=_USE_TO_SEND),
    **{
        name: existing(f"sqs:{name}", _queue)
        for name in (
            "ChangeMessageVisibility",
            "DeleteMessage",
            "DeleteQueue",
            "GetQueueAttributes",
            "PurgeQueue",
            "SetQueueAttributes",
        )
    },
}


def _put_events(call: Asking) -> Asked:
    asked = []
    for entry in call.needed("Entries"):
        bus = call.arn_of(entry.get("EventBusName", "default"), "events", "event-bus/")
        keys = {"events:source": entry.get("Source"), "events:detail-type": entry.get("DetailType")}
        each = ask("events:PutEvents", bus, keys=keys, resource_tags=call.tags(bus))
        if each not in asked:
            asked.append(each)
    yield from asked


def _rule_in(parameter: str) -> Naming:
    """Return a reader of the ARN of an EventBridge rule, where a parameter has the rule's name."""

    def named(call: Asking) -> str:
        bus = str(call.get("EventBusName", "default"))
        of_the_bus = "" if bus == "default" else f"{bus.rpartition('/')[2]}/"
        return call.arn("events", f"rule/{of_the_bus}{call.needed(parameter)}")

    return named


def _put_rule(call: Asking) -> Asked:
    rule, tags = _rule_in("Name")(call), call.new_tags
    pattern = json.loads(call.get("EventPattern") or "{}")
    plain = {
        f"events:{field}": [value for value in pattern.get(field, ()) if isinstance(value, str)]
        for field in ("source", "detail-type")
    }
    yield ask("events:PutRule", rule, sets=plain, request_tags=tags, resource_tags=call.tags(rule))
    if tags:
        yield ask("events:TagResource", rule, request_tags=tags)
    if (role := call.get("RoleArn")) is not None:
        yield call.pass_role(role, "events.amazonaws.com")


def _put_targets(call: Asking) -> Asked:
    rule, targets = _rule_in("Rule")(call), call.needed("Targets")
    named = {"events:targetarn": [target["Arn"] for target in targets]}
    yield ask("events:PutTargets", rule, sets=named, resource_tags=call.tags(rule))
    for role in dict.fromkeys(target["RoleArn"] for target in targets if "RoleArn" in target):
        yield call.pass_role(role, "events.amazonaws.com")


_EVENTS: Final[Rules] = {
    "DeleteRule": existing("events:DeleteRule", _rule_in("Name")),
    "DescribeRule": existing("events:DescribeRule", _rule_in("Name")),
    "ListRules": always("events:ListRules"),
    "ListTargetsByRule": existing("events:ListTargetsByRule", _rule_in("Rule")),
    "PutEvents": _put_events,
    "PutRule": _put_rule,
    "PutTargets": _put_targets,
    "RemoveTargets": existing("events:RemoveTargets", _rule_in("Rule")),
}


def _group(call: Asking) -> str:
    return call.arn("scheduler", f"schedule-group/{call.needed('Name')}")


def _on_schedule(action: str) -> AuthorizationRule:
    def rule(call: Asking) -> Asked:
        group = str(call.get("GroupName", "default"))
        schedule = call.arn("scheduler", f"schedule/{group}/{call.needed('Name')}")
        tags = call.tags(call.arn("scheduler", f"schedule-group/{group}"))
        yield ask(f"scheduler:{action}", schedule, resource_tags=tags)
        if (target := call.get("Target")) is not None:
            yield call.pass_role(needed(target, "RoleArn"), "scheduler.amazonaws.com")

    return rule


_SCHEDULER: Final[Rules] = {
    "CreateScheduleGroup": making("scheduler:CreateScheduleGroup", _group, tagging="scheduler:TagResource"),
    "DeleteScheduleGroup": existing("scheduler:DeleteScheduleGroup", _group),
    "GetScheduleGroup": existing("scheduler:GetScheduleGroup", _group),
    "ListSchedules": always("scheduler:ListSchedules"),
    **{name: _on_schedule(name) for name in ("CreateSchedule", "DeleteSchedule", "GetSchedule", "UpdateSchedule")},
}

OPERATIONS: Final = {"events": _EVENTS, "scheduler": _SCHEDULER, "sns": _SNS, "sqs": _SQS}
