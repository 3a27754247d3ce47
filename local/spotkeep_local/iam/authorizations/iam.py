"""What the operations of IAM ask for.

Source: "Actions, resources, and condition keys for AWS Identity and Access Management (IAM)" in the Service
Authorization Reference; "AddRoleToInstanceProfile" in the IAM API reference for iam:PassRole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spotkeep_local.iam.authorizations.asking import ask, needed, pass_role, tags_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spotkeep_local.iam.authorization import Authorization
    from spotkeep_local.iam.authorizations.account import AccountView
    from spotkeep_local.iam.authorizations.asking import AuthorizationRule, Parameters

_PREFIXES: Final = ("aws", "iam")


def _arn(kind: str, name: str, account: AccountView, *, path: str = "/") -> str:
    return f"arn:aws:iam::{account.account_id}:{kind}{path}{name}"


def _role(parameters: Parameters, account: AccountView) -> str:
    """Return the ARN of a role that is given by its name; its path is what the role says, where it is there."""
    name = str(needed(parameters, "RoleName"))
    return account.role_arn(name) or _arn("role", name, account)


def _on_role(action: str, *, policy: bool = False) -> AuthorizationRule:
    """Return the rule of an operation on a role; `policy` for one that attaches or detaches a managed policy."""

    def rule(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
        role = _role(parameters, account)
        keys = {"iam:policyarn": needed(parameters, "PolicyArn")} if policy else {}
        yield ask(f"iam:{action}", role, keys=keys, resource_tags=account.tags(role), tag_prefixes=_PREFIXES)

    return rule


def _on_user(action: str, *, policy: bool = False) -> AuthorizationRule:
    """Return the rule of an operation on a user; `policy` for one that attaches a managed policy."""

    def rule(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
        user = _arn("user", needed(parameters, "UserName"), account)
        keys = {"iam:policyarn": needed(parameters, "PolicyArn")} if policy else {}
        yield ask(f"iam:{action}", user, keys=keys, resource_tags=account.tags(user), tag_prefixes=_PREFIXES)

    return rule


def _create_role(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    role = _arn("role", needed(parameters, "RoleName"), account, path=str(parameters.get("Path", "/")))
    tags = tags_of(parameters.get("Tags"))
    boundary = {"iam:permissionsboundary": parameters.get("PermissionsBoundary")}
    yield ask("iam:CreateRole", role, keys=boundary, request_tags=tags)
    if tags:
        yield ask("iam:TagRole", role, request_tags=tags)


def _on_profile(action: str) -> AuthorizationRule:
    def rule(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
        path, tags = str(parameters.get("Path", "/")), tags_of(parameters.get("Tags"))
        profile = _arn("instance-profile", needed(parameters, "InstanceProfileName"), account, path=path)
        yield ask(f"iam:{action}", profile, request_tags=tags)
        if action == "AddRoleToInstanceProfile":
            yield pass_role(_role(parameters, account), "ec2.amazonaws.com", account)

    return rule


OPERATIONS: Final[Mapping[str, AuthorizationRule]] = {
    "AddRoleToInstanceProfile": _on_profile("AddRoleToInstanceProfile"),
    "AttachRolePolicy": _on_role("AttachRolePolicy", policy=True),
    "AttachUserPolicy": _on_user("AttachUserPolicy", policy=True),
    "CreateInstanceProfile": _on_profile("CreateInstanceProfile"),
    "CreateRole": _create_role,
    "DeleteRole": _on_role("DeleteRole"),
    "DeleteRolePolicy": _on_role("DeleteRolePolicy"),
    "DeleteUserPolicy": _on_user("DeleteUserPolicy"),
    "DetachRolePolicy": _on_role("DetachRolePolicy", policy=True),
    "GetInstanceProfile": _on_profile("GetInstanceProfile"),
    "GetRole": _on_role("GetRole"),
    "GetRolePolicy": _on_role("GetRolePolicy"),
    "ListAttachedRolePolicies": _on_role("ListAttachedRolePolicies"),
    "ListRolePolicies": _on_role("ListRolePolicies"),
    "PutRolePolicy": _on_role("PutRolePolicy"),
    "PutUserPolicy": _on_user("PutUserPolicy"),
    "SimulatePrincipalPolicy": lambda parameters, _account: (
        ask("iam:SimulatePrincipalPolicy", str(needed(parameters, "PolicySourceArn"))),
    ),
    "UpdateAssumeRolePolicy": _on_role("UpdateAssumeRolePolicy"),
}
