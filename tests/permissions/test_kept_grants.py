"""What stays although no rehearsal uses it has a reason that can be looked up, and is a grant that is deployed."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.infrastructure.conftest import Templates, templates  # noqa: F401
from tests.permissions.kept_grants import KEPT, USERS, KeptGrant, kept_for
from tests.security.policies import Policies

ROOT = Path(__file__).parents[2]


def shown_by_something(kept: KeptGrant) -> bool:
    """Whether it is a page of AWS, or a test that is there."""
    if kept.shown_by.startswith("https://"):
        return kept.shown_by.startswith("https://docs.aws.amazon.com/")
    path, *names = kept.shown_by.split("::")
    body = ast.parse((ROOT / path).read_text()).body
    for name in names:
        found = [node for node in body if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name]
        if len(found) != 1:
            return False
        body = found[0].body
    return names[-1].startswith("test_")


def test_what_shows_a_grants_use_is_a_test_that_is_there_or_a_page_of_aws() -> None:
    assert [kept for kept in KEPT if not kept.reason.endswith(".")] == []
    assert [kept.shown_by for kept in KEPT if not shown_by_something(kept)] == []


def test_each_action_is_granted_to_one_of_its_roles_and_each_role_has_one(templates: Templates) -> None:  # noqa: F811
    policies = Policies(templates)
    for kept in KEPT:
        granted = {
            role: {
                action.text
                for policy in policies.of("UsersPolicy" if role == USERS else role)
                for statement in policy.statements
                for action in statement.actions
            }
            for role in kept.roles
        }
        assert set(kept.actions) <= set().union(*granted.values())
        assert all(actions & set(kept.actions) for actions in granted.values()), granted


def test_another_role_does_not_inherit_a_reason() -> None:
    assert kept_for("Spotkeep-Compute-RunRole24349138-0745E6B1E8802", "xray:PutTraceSegments") is None
    why = kept_for("Spotkeep-Jobs-LauncherRole50935C55-EB6443E7DD226", "xray:PutTraceSegments")
    assert why is not None
    assert why.reason == "Lambda sends the function's traces in its role."
