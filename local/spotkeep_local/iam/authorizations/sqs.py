"""What the operations of SQS ask for.

Source: "Amazon SQS API permissions: Actions and resource reference" and "Amazon SQS key management" in the SQS
developer guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from spotkeep_local.iam.authorizations.asking import UndecidableError, always, arn, ask, needed, use_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spotkeep_local.iam.authorization import Authorization
    from spotkeep_local.iam.authorizations.account import AccountView
    from spotkeep_local.iam.authorizations.asking import AuthorizationRule, Parameters


def _queue(parameters: Parameters, account: AccountView) -> str:
    """Return the ARN of the queue at an address, which ends in account and name."""
    path = urlsplit(str(needed(parameters, "QueueUrl"))).path.strip("/").split("/")
    if len(path) < 2:
        raise UndecidableError(f"{parameters['QueueUrl']} is no queue's address.")
    return f"arn:aws:sqs:{account.region}:{path[-2]}:{path[-1]}"


def _on_queue(action: str, *, key_for: tuple[str, ...] = ()) -> AuthorizationRule:
    """Return the rule of an operation on a queue, and what it needs of the queue's key."""

    def rule(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
        queue = _queue(parameters, account)
        yield ask(f"sqs:{action}", queue, resource_tags=account.tags(queue))
        context = {"aws:sqs:arn": queue}
        yield from use_key(
            account.key_of(queue) if key_for else None, key_for, via="sqs", account=account, encryption_context=context
        )

    return rule


def _create(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    queue, tags = arn("sqs", needed(parameters, "QueueName"), account), parameters.get("tags") or {}
    yield ask("sqs:CreateQueue", queue, request_tags=tags)
    if tags:
        yield ask("sqs:TagQueue", queue, request_tags=tags)


def _find(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    queue = arn("sqs", needed(parameters, "QueueName"), account)
    yield ask("sqs:GetQueueUrl", queue, resource_tags=account.tags(queue))


_SENDING: Final = ("GenerateDataKey", "Decrypt")

OPERATIONS: Final[Mapping[str, AuthorizationRule]] = {
    "ChangeMessageVisibility": _on_queue("ChangeMessageVisibility"),
    "CreateQueue": _create,
    "DeleteMessage": _on_queue("DeleteMessage"),
    "DeleteMessageBatch": _on_queue("DeleteMessage"),
    "DeleteQueue": _on_queue("DeleteQueue"),
    "GetQueueAttributes": _on_queue("GetQueueAttributes"),
    "GetQueueUrl": _find,
    "ListQueues": always("sqs:ListQueues"),
    "PurgeQueue": _on_queue("PurgeQueue"),
    "ReceiveMessage": _on_queue("ReceiveMessage", key_for=("Decrypt",)),
    "SendMessage": _on_queue("SendMessage", key_for=_SENDING),
    "SendMessageBatch": _on_queue("SendMessage", key_for=_SENDING),
    "SetQueueAttributes": _on_queue("SetQueueAttributes"),
}
