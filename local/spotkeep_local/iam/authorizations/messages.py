"""What the operations of SNS, SQS, EventBridge and EventBridge Scheduler ask for. A schedule has its group's tags.

Sources: "Using identity-based policies with Amazon SNS", "Managing Amazon SNS encryption keys and costs" in the SNS
developer guide; "Amazon SQS API permissions: Actions and resource reference", "Amazon SQS key management" in the SQS
developer guide; "Using IAM policy conditions in Amazon EventBridge", "Permissions for PutTargets" in the EventBridge
user guide; "Using identity-based policies in EventBridge Scheduler" in its user guide.
"""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import urlsplit

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
    making,
    needed,
    pass_role,
    tags_of,
    use_key,
)

_USE_TO_SEND: Final = ("GenerateDataKey", "Decrypt")


def _publish(parameters: Parameters, account: AccountView) -> Asked:
    topic = parameters.get("TopicArn", parameters.get("TargetArn"))
    if topic is None:
        raise UndecidableError("The request names no topic.")
    yield ask("sns:Publish", topic, resource_tags=account.tags(topic))
    context = {"aws:sns:topicArn": topic}
    yield from use_key(account.key_of(topic), _USE_TO_SEND, via="sns", account=account, encryption_context=context)


def _subscribe(parameters: Parameters, account: AccountView) -> Asked:
    topic = str(needed(parameters, "TopicArn"))
    keys = {"sns:endpoint": parameters.get("Endpoint"), "sns:protocol": parameters.get("Protocol")}
    yield ask("sns:Subscribe", topic, keys=keys, resource_tags=account.tags(topic))


def _topic_of_subscription(parameters: Parameters, _account: AccountView) -> str:
    # A subscription is its topic's ARN and an id.
    return str(needed(parameters, "SubscriptionArn")).rpartition(":")[0]


_SNS: Final[Rules] = {
    "CreateTopic": making(
        "sns:CreateTopic",
        lambda parameters, account: arn("sns", needed(parameters, "Name"), account),
        tagging="sns:TagResource",
    ),
    "ListTopics": always("sns:ListTopics"),
    "Publish": _publish,
    "Subscribe": _subscribe,
    "Unsubscribe": existing("sns:Unsubscribe", _topic_of_subscription),
    **{
        name: existing(f"sns:{name}", arn_in("TopicArn"))
        for name in ("DeleteTopic", "GetTopicAttributes", "ListSubscriptionsByTopic", "SetTopicAttributes")
    },
}


def _queue(parameters: Parameters, account: AccountView) -> str:
    """Return the ARN of the queue at an address, which ends in account and name."""
    path = urlsplit(str(needed(parameters, "QueueUrl"))).path.strip("/").split("/")
    if len(path) < 2:
        raise UndecidableError(f"{parameters['QueueUrl']} is no queue's address.")
    return f"arn:aws:sqs:{account.region}:{path[-2]}:{path[-1]}"


def _named_queue(parameters: Parameters, account: AccountView) -> str:
    return arn("sqs", needed(parameters, "QueueName"), account)


def _on_messages(action: str, *, key_use: tuple[str, ...]) -> AuthorizationRule:
    """Return the rule of an operation on a queue that uses the queue's key."""

    def rule(parameters: Parameters, account: AccountView) -> Asked:
        queue = _queue(parameters, account)
        yield ask(f"sqs:{action}", queue, resource_tags=account.tags(queue))
        context = {"aws:sqs:arn": queue}
        yield from use_key(account.key_of(queue), key_use, via="sqs", account=account, encryption_context=context)

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


def _put_events(parameters: Parameters, account: AccountView) -> Asked:
    asked = []
    for entry in needed(parameters, "Entries"):
        bus = arn_of(entry.get("EventBusName", "default"), "events", "event-bus/", account)
        keys = {"events:source": entry.get("Source"), "events:detail-type": entry.get("DetailType")}
        each = ask("events:PutEvents", bus, keys=keys, resource_tags=account.tags(bus))
        if each not in asked:
            asked.append(each)
    yield from asked


def _rule_in(parameter: str) -> Naming:
    """Return what reads the ARN of a rule, whose name is in a parameter."""

    def named(parameters: Parameters, account: AccountView) -> str:
        bus = str(parameters.get("EventBusName", "default"))
        of_the_bus = "" if bus == "default" else f"{bus.rpartition('/')[2]}/"
        return arn("events", f"rule/{of_the_bus}{needed(parameters, parameter)}", account)

    return named


def _put_rule(parameters: Parameters, account: AccountView) -> Asked:
    rule, tags = _rule_in("Name")(parameters, account), tags_of(parameters.get("Tags"))
    pattern = json.loads(parameters.get("EventPattern") or "{}")
    plain = {
        f"events:{field}": [value for value in pattern.get(field, ()) if isinstance(value, str)]
        for field in ("source", "detail-type")
    }
    yield ask("events:PutRule", rule, sets=plain, request_tags=tags, resource_tags=account.tags(rule))
    if tags:
        yield ask("events:TagResource", rule, request_tags=tags)
    if (role := parameters.get("RoleArn")) is not None:
        yield pass_role(role, "events.amazonaws.com", account)


def _put_targets(parameters: Parameters, account: AccountView) -> Asked:
    rule, targets = _rule_in("Rule")(parameters, account), needed(parameters, "Targets")
    named = {"events:targetarn": [target["Arn"] for target in targets]}
    yield ask("events:PutTargets", rule, sets=named, resource_tags=account.tags(rule))
    for role in dict.fromkeys(target["RoleArn"] for target in targets if "RoleArn" in target):
        yield pass_role(role, "events.amazonaws.com", account)


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


def _group(parameters: Parameters, account: AccountView) -> str:
    return arn("scheduler", f"schedule-group/{needed(parameters, 'Name')}", account)


def _on_schedule(action: str) -> AuthorizationRule:
    def rule(parameters: Parameters, account: AccountView) -> Asked:
        group = str(parameters.get("GroupName", "default"))
        schedule = arn("scheduler", f"schedule/{group}/{needed(parameters, 'Name')}", account)
        tags = account.tags(arn("scheduler", f"schedule-group/{group}", account))
        yield ask(f"scheduler:{action}", schedule, resource_tags=tags)
        if (target := parameters.get("Target")) is not None:
            yield pass_role(needed(target, "RoleArn"), "scheduler.amazonaws.com", account)

    return rule


_SCHEDULER: Final[Rules] = {
    "CreateScheduleGroup": making("scheduler:CreateScheduleGroup", _group, tagging="scheduler:TagResource"),
    "DeleteScheduleGroup": existing("scheduler:DeleteScheduleGroup", _group),
    "GetScheduleGroup": existing("scheduler:GetScheduleGroup", _group),
    "ListSchedules": always("scheduler:ListSchedules"),
    **{name: _on_schedule(name) for name in ("CreateSchedule", "DeleteSchedule", "GetSchedule", "UpdateSchedule")},
}

OPERATIONS: Final = {"events": _EVENTS, "scheduler": _SCHEDULER, "sns": _SNS, "sqs": _SQS}
