"""Roles and queues on the local AWS with the policies that AWS asks for: calls and deliveries are denied without."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from spotkeep_local.principals import DEVELOPER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spotkeep_local.lifecycle import LocalAws
    from spotkeep_local.service_base.clients import LocalSession


def make_role(local: LocalAws, name: str, *, actions: tuple[str, ...] = ("*",), service: str | None = None) -> str:
    """Make a role that may do these actions on everything, and return its ARN; one that is there stays as it is.

    Args:
        local: The local AWS.
        name: The role's.
        actions: As in policies.
        service: Who may assume it; the account when left out.
    """
    iam = local.session().client("iam")
    who: Mapping[str, str] = {"Service": service} if service else {"AWS": f"arn:aws:iam::{local.account_id}:root"}
    trust = {"Effect": "Allow", "Principal": who, "Action": ["sts:AssumeRole", "sts:TagSession"]}
    try:
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=_document(trust))
    except iam.exceptions.EntityAlreadyExistsException:
        pass
    else:
        granted = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
        iam.put_role_policy(RoleName=name, PolicyName="granted", PolicyDocument=_document(granted))
    return f"arn:aws:iam::{local.account_id}:role/{name}"


@contextmanager
def developer_may(local: LocalAws, *actions: str) -> Iterator[None]:
    """Let the developer, whom the command line calls as, do these actions on everything, as long as it lasts."""
    granted = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
    iam = local.session().client("iam")
    iam.put_user_policy(UserName=DEVELOPER, PolicyName="granted", PolicyDocument=_document(granted))
    try:
        yield
    finally:
        iam.delete_user_policy(UserName=DEVELOPER, PolicyName="granted")


def make_queue(session: LocalSession, name: str, *, service: str) -> tuple[str, str]:
    """Make a queue that a service may deliver to, and return its address and its ARN.

    Args:
        session: Of the local AWS.
        name: The queue's.
        service: `sns.amazonaws.com` or `events.amazonaws.com`.
    """
    sqs = session.client("sqs")
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    delivers = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sqs:SendMessage", "Resource": arn}
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": _document(delivers)})
    return url, arn


def _document(statement: Mapping[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})
