"""Writes docs/roles.md from the templates, for who reviews a deployment: who may do what, bound by what, proven how.

`python -m tests.infrastructure.roles_page` publishes it again after the permissions changed.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.infrastructure.conftest import ROOT, SETTINGS, Templates, synthesize
from tests.permissions.kept_grants import USERS, KeptGrant, kept_for
from tests.security.policies import Policies

PAGE: Final = ROOT / "docs" / "roles.md"
_USERS_POLICY: Final = "UsersPolicy"
_HASH: Final = re.compile(r"(?<=[A-Za-z])[0-9A-F]{8}(?![0-9A-F])")
_CONTENT: Final = re.compile(r"\b[0-9a-f]{64}\b")
_ARN: Final = re.compile(r"^arn:aws:([\w-]+):[^:]*:[^:]*:")
_HEAD: Final = """\
# Roles

Review the permissions of a deployment with the settings of `cdk.json`. Each has its bounds and its proof. This page is
written from the synthesized templates (`python -m tests.infrastructure.roles_page`), and a test compares them.
[AWS resources](aws-resources.md) has the reasons, and the additions of each setting. [Security](security.md) has the
parts that are kept apart, and [Permissions](permissions.md) the way in which the local AWS judges.

A row is one statement. Resources are named by their constructs, without region and account, which are the
deployment's (here `us-west-1`). All conditions of a row must hold, and `a, b` are alternatives.

The last column is about grants that a rehearsal need not use. It has the reason why each stays, and the test or the
page of AWS that shows it. A rehearsal on the local AWS uses everything else. `make prove-permissions`
[takes it away](permissions.md#proven-by-taking-away) and sees it missed. It does the same with the grants that the
settings `queues` and `secrets` [add](aws-resources.md#who-may-do-what). Denials are proven by
[attacks](permissions.md#attacks-on-what-is-deployed) and by `tests/security`.

The trust policy of a function's role has no condition. AWS documents no key that Lambda fills in when it takes the role
(Lambda, "Defining Lambda function permissions with an execution role"). A function of another account cannot have it
all the same. The maker of a function must be allowed to pass its role, and roles are passed within their account only
(IAM, "Grant a user permissions to pass a role to an AWS service"). The same holds for EC2 and an instance's role.
"""


def page(templates: Templates) -> str:
    """Return the page.

    Args:
        templates: Of the deployment that it is about.
    """
    return "\n".join(_lines(templates))


def _lines(templates: Templates) -> Iterator[str]:
    policies = Policies(templates)
    yield _HEAD
    for role, resource in templates.resources("AWS::IAM::Role").items():
        name = _HASH.sub("", role)
        yield f"## {name}\n"
        yield f"{resource['Properties'].get('Description', '')}.\n"
        for statement in _several(policies.trust(role)["Statement"]):
            yield f"Taken by {_principal(statement['Principal'])}{_only_if(statement)}.\n"
        yield from _table(policies, role, name)
    yield "## Users\n"
    policy = "`<deployment>-users-<region>`"
    yield f"The managed policy {policy} is for people, and on the local AWS for the developer.\n"
    yield from _table(policies, _USERS_POLICY, USERS)


def _table(policies: Policies, principal: str, role: str) -> Iterator[str]:
    yield "| may | on | if | proven otherwise |\n|---|---|---|---|"
    for _name, document in policies.documents(principal):
        for statement in _several(document["Statement"]):
            denied = "**not** " if statement["Effect"] == "Deny" else ""
            resources = _several(statement.get("Resource", statement.get("NotResource", [])))
            on = "<br>".join(f"`{_readable(each)}`" for each in resources)
            actions = _several(statement.get("Action", statement.get("NotAction")))
            yield " | ".join(
                (
                    f"| {denied}{', '.join(f'`{action}`' for action in actions)}",
                    f"all but {on}" if "NotResource" in statement else on,
                    "<br>".join(_conditions(statement)),
                    _reasons(role, actions) + " |",
                )
            )
    yield ""


def _reasons(role: str, actions: list[str]) -> str:
    """Return why actions stay that no rehearsal uses; empty where all are used."""
    by_reason: dict[KeptGrant, list[str]] = {}
    for action in actions:
        if (kept := kept_for(role, action)) is not None:
            by_reason.setdefault(kept, []).append(action)
    return "<br>".join(
        (f"{', '.join(f'`{action}`' for action in kept)}: " if len(kept) < len(actions) else "")
        + f"{why.reason} {_link(why.shown_by)}"
        for why, kept in by_reason.items()
    )


def _link(shown_by: str) -> str:
    if shown_by.startswith("https://"):
        return f"[AWS]({shown_by})"
    path, _, test = shown_by.partition("::")
    return f"[{test.rpartition('::')[2]}](../{path})"


def _only_if(statement: Mapping[str, Any]) -> str:
    conditions = list(_conditions(statement))
    return f", if {' and '.join(conditions)}" if conditions else ""


def _conditions(statement: Mapping[str, Any]) -> Iterator[str]:
    for operator, keys in statement.get("Condition", {}).items():
        for key, values in keys.items():
            texts = [_readable(str(value)) for value in _several(values)]
            if operator == "Null":
                yield f"`{key}` {'is not there' if texts == ['true'] else 'is there'}"
            else:
                yield f"`{key}` {operator} `{', '.join(texts)}`"


def _principal(principal: Mapping[str, Any] | str) -> str:
    if isinstance(principal, str):
        return f"`{principal}`"
    return ", ".join(f"`{_readable(each)}`" for values in principal.values() for each in _several(values))


def _readable(text: str) -> str:
    # The content's first: eight digits in the middle of it may look like the hash of a construct's path.
    named = _HASH.sub("", _CONTENT.sub("<sha256 of the content>", text))
    return _ARN.sub(r"\1: ", named).replace("|", "\\|").replace("-111122223333-", "-<account>-")


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def main() -> int:
    """Publish the page."""
    with tempfile.TemporaryDirectory() as folder:
        templates = Templates.read(synthesize(Path(folder), SETTINGS["default"]))
        PAGE.write_text(page(templates))
    return 0


if __name__ == "__main__":
    sys.exit(main())
