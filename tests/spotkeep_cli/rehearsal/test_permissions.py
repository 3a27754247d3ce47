"""What a rehearsal found of permissions: its file, its summary, and the table that `doctor --permissions` shows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from spotkeep_cli.errors import UsageError
from spotkeep_cli.rehearsal.permissions import (
    denials,
    permission_document,
    permission_summary,
    permission_tables,
    read_permissions,
    readable_names,
    since,
    write_permissions,
)
from spotkeep_local.iam.report import Called, Denied, Grant, IdentityReport
from spotkeep_local.iam.uses import JudgingTime

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rich.console import RenderableType

GRANTED = Called(
    operation="dynamodb.PutItem",
    action="dynamodb:PutItem",
    times=1200,
    example="arn:aws:dynamodb:us-east-1:0:table/runs",
    statements=("launcher/Policy#2",),
)
NOT_ALLOWED: dict[str, Any] = {"statements": (), "reason": "no identity policy allows it"}
DENIED = Denied(
    operation="sqs.SendMessage", action="sqs:SendMessage", times=2, example="arn:aws:sqs:us-east-1:0:queue",
    **NOT_ALLOWED,
)  # fmt: skip
LISTING = Denied(
    operation="s3.HeadObject", action="s3:ListBucket", times=1, example="arn:aws:s3:::bucket", **NOT_ALLOWED
)
LAUNCHER = IdentityReport(
    name="Spotkeep-Jobs-LauncherRole",
    granted=(GRANTED,),
    denied=(DENIED, LISTING),
    unused=(
        Grant(statement="launcher/Policy#3", action="sagemaker:StopTrainingJob"),
        Grant(statement="launcher/Policy#4", action="sagemaker:StopProcessingJob"),
    ),
)
LAUNCHER_ROLE = "Spotkeep-Jobs-LauncherRole50935C55-EB6443E7DD226"
JUDGING = JudgingTime(calls=2000, seconds=0.5, slowest_seconds=0.025)
OTHERS = tuple(
    IdentityReport(name=name, granted=(), denied=(DENIED,), unused=())
    for name in ("administrator", "cdk-hnb659fds-deploy-role-0-us-east-1", "AWSServiceRoleForEC2Fleet")
)


def drawn(parts: Iterable[RenderableType]) -> str:
    """The parts as a wide terminal shows them."""
    console = Console(width=200, record=True)
    for part in parts:
        console.print(part)
    return console.export_text()


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "rehearsal" / "permissions.json"
    for judging in (JUDGING, None):
        write_permissions([LAUNCHER, *OTHERS], path, judging=judging)
        assert read_permissions(path) == ([LAUNCHER, *OTHERS], judging)


def test_without_a_rehearsal_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no rehearsal has written") as refused:
        read_permissions(tmp_path / "permissions.json")
    assert refused.value.hint == "rehearse first: spotkeep rehearse job.yaml"
    (tmp_path / "permissions.json").write_text('{"identities": [{"name": 1}]}')
    with pytest.raises(UsageError, match="is not what a rehearsal writes"):
        read_permissions(tmp_path / "permissions.json")


def test_names_lose_what_is_random_unless_two_would_be_the_same() -> None:
    assert readable_names([LAUNCHER_ROLE, "developer", "Spotkeep-Compute-RunRole24349138-0745E6B1E8802"]) == {
        LAUNCHER_ROLE: "Spotkeep-Jobs-LauncherRole",
        "developer": "developer",
        "Spotkeep-Compute-RunRole24349138-0745E6B1E8802": "Spotkeep-Compute-RunRole",
    }
    twins = ["A-Role50935C55-EB6443E7DD226", "A-Role24349138-0745E6B1E8802"]
    assert readable_names(twins) == {name: name for name in twins}


def test_the_document_lists_what_the_deployment_did_not_use() -> None:
    document = permission_document([LAUNCHER, *OTHERS])
    assert [(each["identity"], each["action"]) for each in document["not_used"]] == [
        (LAUNCHER.name, "sagemaker:StopTrainingJob"),
        (LAUNCHER.name, "sagemaker:StopProcessingJob"),
    ]


def test_a_denial_of_the_deployment_counts_and_those_of_who_deploys_do_not() -> None:
    assert denials([LAUNCHER, *OTHERS]) == [
        "Spotkeep-Jobs-LauncherRole was denied sqs:SendMessage on arn:aws:sqs:us-east-1:0:queue (sqs.SendMessage): "
        "no identity policy allows it"
    ]


def test_what_was_denied_before_a_rehearsal_is_no_denial_of_it() -> None:
    again = replace(LAUNCHER, denied=(replace(DENIED, times=DENIED.times + 2), LISTING))
    assert since((LAUNCHER,), earlier=(LAUNCHER,))[0].denied == ()
    assert since((again,), earlier=(LAUNCHER,))[0].denied == (replace(DENIED, times=2),)
    assert since((LAUNCHER,), earlier=OTHERS) == [LAUNCHER]


def test_the_summary_counts_calls_denials_that_fail_a_rehearsal_and_grants_that_nothing_used() -> None:
    shown = drawn(permission_summary([LAUNCHER, *OTHERS]))
    assert ["Spotkeep-Jobs-LauncherRole", "1,200", "2", "2"] in [line.split() for line in shown.splitlines()]
    assert "administrator" not in shown


def test_the_summary_says_what_judging_took() -> None:
    shown = drawn(permission_summary([LAUNCHER], judging=JUDGING))
    assert "2,000 calls judged in 0.50 s of processor time: 0.25 ms each, 25 ms the slowest" in shown
    assert "judged" not in drawn(permission_summary([LAUNCHER]))


def test_the_tables_name_each_call_with_its_statement_and_each_grant_that_nothing_used() -> None:
    shown = drawn(permission_tables([LAUNCHER]))
    assert [line.split() for line in shown.splitlines() if line.startswith("dynamodb.PutItem")] == [
        ["dynamodb.PutItem", "dynamodb:PutItem", "1,200", "launcher/Policy#2"]
    ]
    assert shown.count("no identity policy allows it") == 1
    assert "no object of that name: so S3 says it to who may not list the bucket" in shown
    assert "2 grants that this rehearsal did not use (`spotkeep help roles` says why each stays):\n" in shown
    assert "\n  sagemaker:StopTrainingJob  launcher/Policy#3\n  sagemaker:StopProcessingJob  launcher/Policy#4" in shown
