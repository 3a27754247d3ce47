"""What the operations of the Fault Injection Service ask for. An experiment acts with its template's role.

Source: "Identity-based policy examples for AWS Fault Injection Service" in the FIS user guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spotkeep_local.iam.authorizations.asking import arn, ask, needed, pass_role

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spotkeep_local.iam.authorization import Authorization
    from spotkeep_local.iam.authorizations.account import AccountView
    from spotkeep_local.iam.authorizations.asking import AuthorizationRule, Parameters


def _on(kind: str, action: str) -> AuthorizationRule:
    def rule(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
        resource = arn("fis", f"{kind}/{needed(parameters, 'id')}", account)
        yield ask(f"fis:{action}", resource, resource_tags=account.tags(resource))

    return rule


def _start(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    template = arn("fis", f"experiment-template/{needed(parameters, 'experimentTemplateId')}", account)
    experiment, tags = arn("fis", "experiment/*", account), parameters.get("tags") or {}
    yield ask("fis:StartExperiment", template, request_tags=tags, resource_tags=account.tags(template))
    yield ask("fis:StartExperiment", experiment, request_tags=tags)
    if tags:
        yield ask("fis:TagResource", experiment, request_tags=tags)


def _create_template(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    template, tags = arn("fis", "experiment-template/*", account), parameters.get("tags") or {}
    yield ask("fis:CreateExperimentTemplate", template, request_tags=tags)
    for action in dict.fromkeys(each["actionId"] for each in needed(parameters, "actions").values()):
        yield ask("fis:CreateExperimentTemplate", arn("fis", f"action/{action}", account), request_tags=tags)
    if tags:
        yield ask("fis:TagResource", template, request_tags=tags)
    yield pass_role(needed(parameters, "roleArn"), "fis.amazonaws.com", account)


OPERATIONS: Final[Mapping[str, AuthorizationRule]] = {
    "CreateExperimentTemplate": _create_template,
    "GetExperiment": _on("experiment", "GetExperiment"),
    "GetExperimentTemplate": _on("experiment-template", "GetExperimentTemplate"),
    "StartExperiment": _start,
    "StopExperiment": _on("experiment", "StopExperiment"),
}
