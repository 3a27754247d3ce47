"""docs/roles.md says what is deployed: each role with each statement, and why what no rehearsal uses is there."""

from __future__ import annotations

from tests.infrastructure.conftest import Templates
from tests.infrastructure.roles_page import PAGE, page


def test_the_published_page_is_that_of_the_templates(templates: Templates) -> None:
    assert page(templates) == PAGE.read_text(), (
        "the permissions of the deployment, or the reasons of kept grants, changed; publish them: "
        "python -m tests.infrastructure.roles_page"
    )


def test_every_role_and_each_of_its_actions_is_on_the_page(templates: Templates) -> None:
    text = page(templates)
    for description in (role["Properties"]["Description"] for role in templates.resources("AWS::IAM::Role").values()):
        assert f"\n{description}.\n" in text
    for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
        for policy in templates.resources(kind).values():
            for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
                actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
                assert ", ".join(f"`{action}`" for action in actions) in text
