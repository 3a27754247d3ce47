"""What the operations of IAM and STS ask for. Of sts:AssumeRole the role's trust policy is the policy of the resource.

Sources: "Actions, resources, and condition keys for AWS Identity and Access Management (IAM)" in the Service
Authorization Reference; "AddRoleToInstanceProfile" in the IAM API reference for iam:PassRole; "GetCallerIdentity" in
the STS API reference ("No permissions are required"); "Pass session tags in AWS STS" in the IAM user guide.
"""

from __future__ import annotations

from typing import Final

from spotkeep_local.iam.authorizations.asking import (
    AccountView,
    Asked,
    AuthorizationRule,
    Naming,
    Parameters,
    Rules,
    arn_in,
    ask,
    existing,
    made,
    needed,
    pass_role,
    tags_of,
)

_PREFIXES: Final = ("aws", "iam")


def _arn(kind: str, name: str, account: AccountView, *, path: str = "/") -> str:
    return f"arn:aws:iam::{account.account_id}:{kind}{path}{name}"


def _role(parameters: Parameters, account: AccountView) -> str:
    """Return the ARN of a role that is given by its name; its path is what the role says, where it is there."""
    name = str(needed(parameters, "RoleName"))
    return account.role_arn(name) or _arn("role", name, account)


def _user(parameters: Parameters, account: AccountView) -> str:
    return _arn("user", needed(parameters, "UserName"), account)


def _with_policy(action: str, named: Naming) -> AuthorizationRule:
    """Return the rule of an operation that attaches or detaches a managed policy."""

    def rule(parameters: Parameters, account: AccountView) -> Asked:
        identity, keys = named(parameters, account), {"iam:policyarn": needed(parameters, "PolicyArn")}
        yield ask(action, identity, keys=keys, resource_tags=account.tags(identity), tag_prefixes=_PREFIXES)

    return rule


def _create_role(parameters: Parameters, account: AccountView) -> Asked:
    role = _arn("role", needed(parameters, "RoleName"), account, path=str(parameters.get("Path", "/")))
    boundary = {"iam:permissionsboundary": parameters.get("PermissionsBoundary")}
    yield from made("iam:CreateRole", role, tags_of(parameters.get("Tags")), tagging="iam:TagRole", keys=boundary)


def _on_profile(action: str) -> AuthorizationRule:
    def rule(parameters: Parameters, account: AccountView) -> Asked:
        path, tags = str(parameters.get("Path", "/")), tags_of(parameters.get("Tags"))
        profile = _arn("instance-profile", needed(parameters, "InstanceProfileName"), account, path=path)
        yield ask(f"iam:{action}", profile, request_tags=tags)
        if action == "AddRoleToInstanceProfile":
            yield pass_role(_role(parameters, account), "ec2.amazonaws.com", account)

    return rule


_IAM: Final[Rules] = {
    "AttachRolePolicy": _with_policy("iam:AttachRolePolicy", _role),
    "AttachUserPolicy": _with_policy("iam:AttachUserPolicy", _user),
    "CreateRole": _create_role,
    "DeleteUserPolicy": existing("iam:DeleteUserPolicy", _user, tag_prefixes=_PREFIXES),
    "DetachRolePolicy": _with_policy("iam:DetachRolePolicy", _role),
    "PutUserPolicy": existing("iam:PutUserPolicy", _user, tag_prefixes=_PREFIXES),
    "SimulatePrincipalPolicy": existing("iam:SimulatePrincipalPolicy", arn_in("PolicySourceArn")),
    **{
        name: existing(f"iam:{name}", _role, tag_prefixes=_PREFIXES)
        for name in (
            "DeleteRole",
            "DeleteRolePolicy",
            "GetRole",
            "GetRolePolicy",
            "ListAttachedRolePolicies",
            "ListRolePolicies",
            "PutRolePolicy",
            "UpdateAssumeRolePolicy",
        )
    },
    **{name: _on_profile(name) for name in ("AddRoleToInstanceProfile", "CreateInstanceProfile", "GetInstanceProfile")},
}


def _assume_role(parameters: Parameters, account: AccountView) -> Asked:
    role, request_tags = str(needed(parameters, "RoleArn")), tags_of(parameters.get("Tags"))
    session = {
        "sts:externalid": parameters.get("ExternalId"),
        "sts:rolesessionname": parameters.get("RoleSessionName"),
        "sts:sourceidentity": parameters.get("SourceIdentity"),
    }
    for action, keys in (("sts:AssumeRole", session), *([("sts:TagSession", {})] if request_tags else ())):
        yield ask(
            action,
            role,
            keys=keys,
            sets={"sts:transitivetagkeys": parameters.get("TransitiveTagKeys") or ()},
            request_tags=request_tags,
            resource_tags=account.tags(role),
            tag_prefixes=_PREFIXES,
        )
    if "SourceIdentity" in parameters:
        yield ask("sts:SetSourceIdentity", role, keys={"sts:sourceidentity": parameters["SourceIdentity"]})


OPERATIONS: Final[dict[str, Rules]] = {
    "iam": _IAM,
    "sts": {"AssumeRole": _assume_role, "GetCallerIdentity": lambda _parameters, _account: ()},
}
