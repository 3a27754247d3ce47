"""Each grant is live, replayed, kept, needless or unused; each bound holds, or is open for a grant that is kept."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

from rich.console import Console

from tests.permissions.kept_grants import KEPT
from tests.permissions.proof import BoundProof, Granted, GrantProof, Proofs
from tests.permissions.verdict import (
    RESOURCES,
    PermissionVerdict,
    ProofKind,
    judge_permissions,
    verdict_document,
    verdict_view,
)
from tests.permissions.withheld import MissedGrant, WithheldGrant

RUN_ROLE = "Spotkeep-Compute-RunRole24349138-0745E6B1E8802"
OWN = f"{RUN_ROLE}/own#0"
USED: dict[str, Any] = {"operations": ("s3.GetObject",)}


def grant(action: str, *, identity: str = RUN_ROLE, statement: str = OWN, **found: Any) -> GrantProof:
    return GrantProof(identity=identity, statement=statement, action=action, **{"operations": (), **found})


def bound(*granted: Granted, tried: tuple[str, ...] = ("no tag",)) -> BoundProof:
    denial = None if granted else "is not authorized"
    return BoundProof(identity=RUN_ROLE, statement=OWN, bound="a tag", tried=tried, denial=denial, granted=granted)


def judged(*proofs: GrantProof | BoundProof, missed: tuple[MissedGrant, ...] = ()) -> PermissionVerdict:
    grants = tuple(each for each in proofs if isinstance(each, GrantProof))
    bounds = tuple(each for each in proofs if isinstance(each, BoundProof))
    return judge_permissions(Proofs(grants=grants, bounds=bounds), missed)


def printed(verdict: PermissionVerdict) -> str:
    console = Console(file=io.StringIO(), width=100_000)
    with console.capture() as captured:
        for part in verdict_view(verdict):
            console.print(part)
    return captured.get()


def test_a_call_that_was_denied_without_the_grant_proves_it() -> None:
    verdict = judged(grant("s3:GetObject", **USED, denial="is not authorized"))
    (found,) = verdict.grants
    assert (found.how, found.denial, verdict.passed) == (ProofKind.REPLAYED, "is not authorized", True)
    assert found.identity == "Spotkeep-Compute-RunRole"


def test_a_flow_that_missed_it_proves_it_live_with_the_message_that_it_got() -> None:
    missed = MissedGrant(
        grant=WithheldGrant(identity=RUN_ROLE, statement=OWN, action="s3:GetObject"),
        operation="s3.GetObject",
        denial="the message of the flow",
    )
    (found,) = judged(grant("s3:GetObject", **USED, denial="of the replay"), missed=(missed,)).grants
    assert (found.how, found.denial) == (ProofKind.LIVE, "the message of the flow")


def test_what_nothing_used_is_kept_for_its_reason_or_fails() -> None:
    verdict = judged(grant("s3:AbortMultipartUpload"), grant("s3:DeleteBucket"))
    kept, unused = verdict.grants
    assert (kept.how, kept.passed) == (ProofKind.KEPT, True)
    assert kept.reason is not None
    assert (unused.how, unused.passed) == (ProofKind.UNUSED, False)
    assert verdict.failed_grants == [unused]
    assert f"Spotkeep-Compute-RunRole: s3:DeleteBucket in {OWN} is used by nothing" in printed(verdict)


def test_what_is_allowed_without_it_is_needless_and_fails() -> None:
    verdict = judged(grant("s3:GetObject", **USED, allowed_by=("other#1",)))
    assert [each.how for each in verdict.failed_grants] == [ProofKind.NEEDLESS]
    assert "is allowed by other#1 too" in printed(verdict)


def test_a_bound_beyond_which_something_is_granted_fails() -> None:
    open_bound = bound(Granted(action="s3:GetObject", tried="no tag", allowed_by=("other#1",)))
    verdict = judged(bound(), open_bound)
    assert [each.passed for each in verdict.bounds] == [True, False]
    assert not verdict.passed
    assert "does not hold: s3:GetObject with no tag is allowed by other#1" in printed(verdict)


def test_a_bound_that_keeps_nothing_out_fails() -> None:
    verdict = judged(bound(tried=()))
    assert not verdict.passed
    assert "keeps nothing out" in printed(verdict)


def test_a_bound_is_open_for_a_grant_that_is_kept_and_for_no_other() -> None:
    beyond = Granted(action="ec2:CreateVolume", tried="no tag", allowed_by=(f"{RUN_ROLE}/own#1",))
    kept = grant("ec2:CreateVolume", statement=f"{RUN_ROLE}/own#1")
    assert judged(kept, bound(beyond)).passed
    used = grant("ec2:CreateVolume", statement=f"{RUN_ROLE}/own#1", **USED, denial="is not authorized")
    assert not judged(used, bound(beyond)).passed


def test_a_kept_grant_that_is_proven_is_noted() -> None:
    action = "s3:AbortMultipartUpload"
    assert not [each for each in judged(grant(action)).kept_and_proven if each == ("RunRole, ExecutionRole", action)]
    verdict = judged(grant(action, **USED, denial="is not authorized"))
    assert ("RunRole, ExecutionRole", action) in verdict.kept_and_proven
    assert f"{action} of RunRole, ExecutionRole" in printed(verdict)
    assert len(judged().kept_and_proven) == sum(len(kept.actions) for kept in KEPT)


def test_what_resources_deny_stands_together() -> None:
    denying = replace(bound(), identity="arn:aws:s3:::bucket")
    assert [each.identity for each in judged(denying, bound()).bounds] == [RESOURCES, "Spotkeep-Compute-RunRole"]


def test_who_deploys_is_not_judged() -> None:
    assert judged(grant("*", identity="administrator"), grant("*", identity="cdk-hnb659fds-deploy-role")).grants == []


def test_the_document_counts_what_the_table_shows() -> None:
    verdict = judged(grant("s3:GetObject", **USED, denial="is not authorized"), grant("s3:DeleteBucket"), bound())
    document = verdict_document(verdict, seconds=61.25)
    assert document["verdict"] == "fail"
    assert document["seconds"] == 61.2
    assert document["counts"] == {
        "live": 0,
        "replayed": 1,
        "kept": 0,
        "needless": 0,
        "unused": 1,
        "bounds_held": 1,
        "bounds_open": 0,
    }
    assert document["grants"][0]["how"] == "replayed"
    assert document["bounds"][0]["passed"] is True
    assert [line.split() for line in printed(verdict).splitlines() if line.startswith("all")] == [
        ["all", "1", "1", "1"]
    ]
