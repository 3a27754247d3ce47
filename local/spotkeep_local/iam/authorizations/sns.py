"""What the operations of SNS ask for.

Sources: "Using identity-based policies with Amazon SNS" and "Managing Amazon SNS encryption keys and costs" in the SNS
developer guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spotkeep_local.iam.authorizations.asking import UndecidableError, always, arn, ask, needed, tags_of, use_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spotkeep_local.iam.authorization import Authorization
    from spotkeep_local.iam.authorizations.account import AccountView
    from spotkeep_local.iam.authorizations.asking import AuthorizationRule, Parameters


def _on_topic(action: str) -> AuthorizationRule:
    def rule(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
        topic = str(needed(parameters, "TopicArn"))
        yield ask(f"sns:{action}", topic, resource_tags=account.tags(topic))

    return rule


def _publish(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    topic = parameters.get("TopicArn", parameters.get("TargetArn"))
    if topic is None:
        raise UndecidableError("The request names no topic.")
    yield ask("sns:Publish", topic, resource_tags=account.tags(topic))
    context = {"aws:sns:topicArn": topic}
    yield from use_key(
        account.key_of(topic), ("GenerateDataKey", "Decrypt"), via="sns", account=account, encryption_context=context
    )


def _subscribe(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    topic = str(needed(parameters, "TopicArn"))
    keys = {"sns:endpoint": parameters.get("Endpoint"), "sns:protocol": parameters.get("Protocol")}
    yield ask("sns:Subscribe", topic, keys=keys, resource_tags=account.tags(topic))


def _unsubscribe(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    # A subscription is its topic's ARN and an id.
    topic = str(needed(parameters, "SubscriptionArn")).rpartition(":")[0]
    yield ask("sns:Unsubscribe", topic, resource_tags=account.tags(topic))


def _create(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    topic, tags = arn("sns", needed(parameters, "Name"), account), tags_of(parameters.get("Tags"))
    yield ask("sns:CreateTopic", topic, request_tags=tags)
    if tags:
        yield ask("sns:TagResource", topic, request_tags=tags)


OPERATIONS: Final[Mapping[str, AuthorizationRule]] = {
    "CreateTopic": _create,
    "DeleteTopic": _on_topic("DeleteTopic"),
    "GetTopicAttributes": _on_topic("GetTopicAttributes"),
    "ListSubscriptionsByTopic": _on_topic("ListSubscriptionsByTopic"),
    "ListTopics": always("sns:ListTopics"),
    "Publish": _publish,
    "SetTopicAttributes": _on_topic("SetTopicAttributes"),
    "Subscribe": _subscribe,
    "Unsubscribe": _unsubscribe,
}
