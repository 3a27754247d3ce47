"""The verdict on each permission of the deployment: how it is proven, and what people and programs read of that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table
from rich.text import Text

from spotkeep_cli.rehearsal.permissions import is_of_deployment, readable_names
from tests.permissions.kept_grants import KEPT, kept_for
from tests.permissions.proof import BoundProof, GrantProof, Proofs
from tests.permissions.withheld import MissedGrant, WithheldGrant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

RESOURCES: Final = "policies of resources"
"""In place of the names of those whose statements deny: buckets, queues, topics."""


class ProofKind(StrEnum):
    """How a grant is proven, by the words of the report."""

    LIVE = "live"
    """It was withheld from the deployed app, whose call was denied."""
    REPLAYED = "replayed"
    """A call that it had allowed was decided about again without it, and denied."""
    KEPT = "kept"
    """No rehearsal needs it. It stands in the list of kept grants."""
    NEEDLESS = "needless"
    """What it allowed is allowed without it."""
    UNUSED = "unused"
    """No rehearsal uses it, and no list has it."""


@dataclass(frozen=True, kw_only=True)
class JudgedGrant(GrantProof):
    """What became of one grant. The identity has no random end; the denial is that of the live flow where there is one.

    Attributes:
        how: Kind of the proof.
        reason: Of what is kept: why.
        shown_by: Of what is kept: the test or the page that shows it.
    """

    how: ProofKind
    reason: str | None = None
    shown_by: str | None = None

    @property
    def passed(self) -> bool:
        """Whether it is proven or kept."""
        return self.how in (ProofKind.LIVE, ProofKind.REPLAYED, ProofKind.KEPT)


@dataclass(frozen=True, kw_only=True)
class JudgedBound:
    """One bound of one statement.

    Attributes:
        identity: As in `JudgedGrant`.
        proof: What was tried, and what became of it.
        passed: Whether all that was tried is denied, but for what kept grants are there to allow.
    """

    identity: str
    proof: BoundProof
    passed: bool


@dataclass(frozen=True, kw_only=True)
class PermissionVerdict:
    """What is proven of the deployment's permissions.

    Attributes:
        grants: Each action of each statement that allows.
        bounds: Each condition, variable and resource; each action that is denied.
        kept_and_proven: What the list of kept grants names and is proven all the same: roles and action.
    """

    grants: Sequence[JudgedGrant]
    bounds: Sequence[JudgedBound]
    kept_and_proven: Sequence[tuple[str, str]]

    @property
    def passed(self) -> bool:
        """Whether every grant is proven or kept, and every bound holds."""
        return not self.failed_grants and not self.failed_bounds

    @property
    def failed_grants(self) -> Sequence[JudgedGrant]:
        """The grants without proof and reason."""
        return [grant for grant in self.grants if not grant.passed]

    @property
    def failed_bounds(self) -> Sequence[JudgedBound]:
        """The bounds that do not hold."""
        return [bound for bound in self.bounds if not bound.passed]


def judge_permissions(proofs: Proofs, missed: Iterable[MissedGrant]) -> PermissionVerdict:
    """Judge what was proven of the deployment's roles, its user, and the policies of its resources.

    Args:
        proofs: Of every role and user, deployed or not.
        missed: What calls of the deployed app were denied for want of.
    """
    live = {each.grant: each for each in missed}
    of_deployment = [each for each in proofs.grants if is_of_deployment(each.identity)]
    bounds = [each for each in proofs.bounds if is_of_deployment(each.identity)]
    identities = {each.identity for each in of_deployment} | {each.identity for each in bounds}
    names = {
        identity: RESOURCES if identity.startswith("arn:") else readable
        for identity, readable in readable_names(identities).items()
    }
    grants = {each: _judged(each, name=names[each.identity], live=live) for each in of_deployment}
    kept = {(grant.statement, grant.action) for grant in grants.values() if grant.how is ProofKind.KEPT}
    return PermissionVerdict(
        grants=list(grants.values()),
        bounds=[
            JudgedBound(identity=names[each.identity], proof=each, passed=_holds(each, kept=kept)) for each in bounds
        ],
        kept_and_proven=_kept_and_proven(grants),
    )


def _judged(proof: GrantProof, *, name: str, live: dict[WithheldGrant, MissedGrant]) -> JudgedGrant:
    grant = WithheldGrant(identity=proof.identity, statement=proof.statement, action=proof.action)
    kept = kept_for(proof.identity, proof.action)
    how = ProofKind.UNUSED
    if proof.denial is not None:
        how = ProofKind.LIVE if grant in live else ProofKind.REPLAYED
    elif kept is not None:
        how = ProofKind.KEPT
    elif proof.operations:
        how = ProofKind.NEEDLESS
    judged = {
        **vars(proof),
        "identity": name,
        "denial": live[grant].denial if how is ProofKind.LIVE else proof.denial,
    }
    if kept is None or how is not ProofKind.KEPT:
        return JudgedGrant(**judged, how=how)
    return JudgedGrant(**judged, how=how, reason=kept.reason, shown_by=kept.shown_by)


def _holds(proof: BoundProof, *, kept: set[tuple[str, str]]) -> bool:
    """Return whether a bound holds, or is open by kept grants alone: what is beyond it is what these are there for."""
    return bool(proof.tried) and all(
        bool(granted.allowed_by) and all((statement, granted.action) in kept for statement in granted.allowed_by)
        for granted in proof.granted
    )


def _kept_and_proven(grants: dict[GrantProof, JudgedGrant]) -> Sequence[tuple[str, str]]:
    """Return what the list names and no grant is kept for."""
    needed = {
        (kept, proof.action)
        for proof, grant in grants.items()
        if grant.how is ProofKind.KEPT and (kept := kept_for(proof.identity, proof.action)) is not None
    }
    return [(", ".join(kept.roles), action) for kept in KEPT for action in kept.actions if (kept, action) not in needed]


def verdict_view(verdict: PermissionVerdict) -> Iterator[RenderableType]:
    """Draw a line for each role, user and service, then what is without proof, and what the list need not hold."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("role, user or service", overflow="fold")
    for column in (*ProofKind, "bounds", "open"):
        table.add_column(str(column), justify="right")
    for name in sorted({each.identity for each in verdict.grants} | {each.identity for each in verdict.bounds}):
        _add_row(
            table,
            name,
            [grant for grant in verdict.grants if grant.identity == name],
            [bound for bound in verdict.bounds if bound.identity == name],
        )
    _add_row(table, "all", verdict.grants, verdict.bounds)
    yield table
    for grant in verdict.failed_grants:
        why = (
            f"is allowed by {', '.join(grant.allowed_by)} too"
            if grant.how is ProofKind.NEEDLESS
            else "is used by nothing"
        )
        yield Text(f"{grant.identity}: {grant.action} in {grant.statement} {why}", style="red")
    for bound in verdict.failed_bounds:
        yield Text(_open_bound(bound), style="red")
    if verdict.kept_and_proven:
        named = ", ".join(f"{action} of {role}" for role, action in verdict.kept_and_proven)
        yield Text(f"Kept for what single rehearsals leave out, and proven here: {named}", style="dim")


def _add_row(table: Table, name: str, grants: Sequence[JudgedGrant], bounds: Sequence[JudgedBound]) -> None:
    counts = Counter(grant.how for grant in grants)
    held = sum(bound.passed for bound in bounds)
    figures = (*(counts[how] for how in ProofKind), held, len(bounds) - held)
    table.add_row(name, *(f"{figure:,}" if figure else "" for figure in figures))


def _open_bound(bound: JudgedBound) -> str:
    proof = bound.proof
    where = f"{bound.identity}: {proof.bound} in {proof.statement}"
    if not proof.tried:
        return f"{where} keeps nothing out: nothing that was tried is beyond it"
    first = proof.granted[0]
    return f"{where} does not hold: {first.action} with {first.tried} is allowed by {', '.join(first.allowed_by)}"


def verdict_document(verdict: PermissionVerdict, *, seconds: float) -> dict[str, Any]:
    """Return the verdict as the JSON document that programs read.

    Args:
        verdict: What is proven.
        seconds: Seconds that it took.
    """
    return {
        "verdict": "pass" if verdict.passed else "fail",
        "seconds": round(seconds, 1),
        "counts": {
            **{how.value: sum(grant.how is how for grant in verdict.grants) for how in ProofKind},
            "bounds_held": sum(bound.passed for bound in verdict.bounds),
            "bounds_open": len(verdict.failed_bounds),
        },
        "grants": [asdict(grant) for grant in verdict.grants],
        "bounds": [
            {**asdict(bound.proof), "identity": bound.identity, "passed": bound.passed} for bound in verdict.bounds
        ],
        "kept_and_proven": [{"roles": roles, "action": action} for roles, action in verdict.kept_and_proven],
    }
