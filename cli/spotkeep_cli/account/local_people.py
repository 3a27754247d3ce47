"""Lets the developer of a local AWS train on its deployment, by a policy as an administrator of AWS does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotkeep_local.principals import DEVELOPER

if TYPE_CHECKING:
    from spotkeep_local.lifecycle import LocalAws


def let_developer_train(local: LocalAws, *, deployment: str) -> None:
    """Attach the deployment's policy for users to the developer.

    Args:
        local: The local AWS.
        deployment: The deployment's name.
    """
    policy = f"arn:aws:iam::{local.account_id}:policy/{deployment}-users-{local.region}"
    local.session().client("iam").attach_user_policy(UserName=DEVELOPER, PolicyArn=policy)
