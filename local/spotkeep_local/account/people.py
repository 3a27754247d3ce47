"""The IAM users of a new local AWS: who deploys, and who trains."""

from __future__ import annotations

from typing import Any

from spotkeep_local.access.issued_credentials import ADMINISTRATOR, PEOPLE

_ADMINISTRATOR_ACCESS = "arn:aws:iam::aws:policy/AdministratorAccess"


def make_people(iam: Any) -> None:
    """Make the users that are not there yet. The administrator may do everything; a developer waits for a policy.

    Args:
        iam: A boto3 client of the local AWS.
    """
    for name in PEOPLE:
        try:
            iam.create_user(UserName=name)
        except iam.exceptions.EntityAlreadyExistsException:
            continue
        if name == ADMINISTRATOR:
            iam.attach_user_policy(UserName=name, PolicyArn=_ADMINISTRATOR_ACCESS)
