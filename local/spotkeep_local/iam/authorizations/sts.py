"""What the operations of STS ask for. The role's trust policy is the policy of its resource.

Sources: "GetCallerIdentity" in the STS API reference ("No permissions are required"); "Pass session tags in AWS STS" in
the IAM user guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spotkeep_local.iam.authorizations.asking import ask, needed, tags_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spotkeep_local.iam.authorization import Authorization
    from spotkeep_local.iam.authorizations.account import AccountView
    from spotkeep_local.iam.authorizations.asking import AuthorizationRule, Parameters


def _assume_role(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    role, tags = str(needed(parameters, "RoleArn")), tags_of(parameters.get("Tags"))
    transitive = {"sts:transitivetagkeys": parameters.get("TransitiveTagKeys") or ()}
    yield ask(
        "sts:AssumeRole",
        role,
        keys={
            "sts:externalid": parameters.get("ExternalId"),
            "sts:rolesessionname": parameters.get("RoleSessionName"),
            "sts:sourceidentity": parameters.get("SourceIdentity"),
        },
        sets=transitive,
        request_tags=tags,
        resource_tags=account.tags(role),
        tag_prefixes=("aws", "iam"),
    )
    if tags:
        yield ask(
            "sts:TagSession",
            role,
            sets=transitive,
            request_tags=tags,
            resource_tags=account.tags(role),
            tag_prefixes=("aws", "iam"),
        )
    if "SourceIdentity" in parameters:
        yield ask("sts:SetSourceIdentity", role, keys={"sts:sourceidentity": parameters["SourceIdentity"]})


OPERATIONS: Final[Mapping[str, AuthorizationRule]] = {
    "AssumeRole": _assume_role,
    "GetCallerIdentity": lambda _parameters, _account: (),
}
