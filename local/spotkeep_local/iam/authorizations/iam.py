"""The permissions that the operations of IAM and STS need.

For sts:AssumeRole the role's trust policy is the policy of the resource.

Sources: "Actions, resources, and condition keys for AWS Identity and Access Management (IAM)" in the Service
Authorization Reference. "AddRoleToInstanceProfile" in the IAM API reference for iam:PassRole. "GetCallerIdentity" in
the STS API reference ("No permissions are required"). "Pass session tags in AWS STS" in the IAM user guide.
"""

from __future__ import annotations

from typing import Final

from spotkeep_local.iam.authorizations.asking import (
    Asked,
    Asking,
    AuthorizationRule,
    Naming,
    Rules,
    arn_in,
    ask,
    existing,
    made,
)

_PREFIXES: Final = ("aws", "iam")


def _arn(call: Asking, kind: str, name: str, *, path: str = "/") -> str:
    return f"arn:aws:iam::{call.account.account_id}:{kind}{path}{name}"


def _role(call: Asking) -> str:
    """Return the ARN of a role that is given by its name. An existing role's own path stands in it."""
    name = str(call.needed("RoleName"))
    return call.account.role_arn(name) or _arn(call, "role", name)


def _user(call: Asking) -> str:
    return _arn(call, "user", call.needed("UserName"))


def _with_policy(action: str, named: Naming) -> AuthorizationRule:
    """Return the rule of an operation that attaches or detaches a managed policy."""

    def rule(call: Asking) -> Asked:
        identity, keys = named(call), {"iam:policyarn": call.needed("PolicyArn")}
        yield ask(action, identity, keys=keys, resource_tags=call.tags(identity), tag_prefixes=_PREFIXES)

    return rule


def _create_role(call: Asking) -> Asked:
    role = _arn(call, "role", call.needed("RoleName"), path=str(call.get("Path", "/")))
    boundary = {"iam:permissionsboundary": call.get("PermissionsBoundary")}
    yield from made("iam:CreateRole", role, call.new_tags, tagging="iam:TagRole", keys=boundary)


def _on_profile(action: str) -> AuthorizationRule:
    def rule(call: Asking) -> Asked:
        path, tags = str(call.get("Path", "/")), call.new_tags
        profile = _arn(call, "instance-profile", call.needed("InstanceProfileName"), path=path)
        yield ask(f"iam:{action}", profile, request_tags=tags)
        if action == "AddRoleToInstanceProfile":
            yield call.pass_role(_role(call), "ec2.amazonaws.com")

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


def _assume_role(call: Asking) -> Asked:
    role, request_tags = str(call.needed("RoleArn")), call.new_tags
    session = {
        "sts:externalid": call.get("ExternalId"),
        "sts:rolesessionname": call.get("RoleSessionName"),
        "sts:sourceidentity": call.get("SourceIdentity"),
    }
    for action, keys in (("sts:AssumeRole", session), *([("sts:TagSession", {})] if request_tags else ())):
        yield ask(
            action,
            role,
            keys=keys,
            sets={"sts:transitivetagkeys": call.get("TransitiveTagKeys") or ()},
            request_tags=request_tags,
            resource_tags=call.tags(role),
            tag_prefixes=_PREFIXES,
        )
    if "SourceIdentity" in call.parameters:
        yield ask("sts:SetSourceIdentity", role, keys={"sts:sourceidentity": call.parameters["SourceIdentity"]})


OPERATIONS: Final[dict[str, Rules]] = {
    "iam": _IAM,
    "sts": {"AssumeRole": _assume_role, "GetCallerIdentity": lambda _call: ()},
}
