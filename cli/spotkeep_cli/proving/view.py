"""What a person and a program read of the proofs: a line for each role, and what is without proof."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from spotkeep_cli.proving.verdict import How, JudgedBound, JudgedGrant, PermissionVerdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType


def verdict_view(verdict: PermissionVerdict) -> Iterator[RenderableType]:
    """Draw a line for each role, user and service, then what is without proof, and what the list need not hold."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("role, user or service", overflow="fold")
    for column in (*How, "bounds", "open"):
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
        why = f"is allowed by {', '.join(grant.allowed_by)} too" if grant.how is How.NEEDLESS else "is used by nothing"
        yield Text(f"{grant.identity}: {grant.action} in {grant.statement} {why}", style="red")
    for bound in verdict.failed_bounds:
        yield Text(_open_bound(bound), style="red")
    if verdict.kept_and_proven:
        named = ", ".join(f"{action} of {role}" for role, action in verdict.kept_and_proven)
        yield Text(f"Kept for what single rehearsals leave out, and proven here: {named}", style="dim")


def _add_row(table: Table, name: str, grants: Sequence[JudgedGrant], bounds: Sequence[JudgedBound]) -> None:
    counts = Counter(grant.how for grant in grants)
    held = sum(bound.passed for bound in bounds)
    figures = (*(counts[how] for how in How), held, len(bounds) - held)
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
        seconds: How long it took.
    """
    return {
        "verdict": "pass" if verdict.passed else "fail",
        "seconds": round(seconds, 1),
        "counts": {
            **{how.value: sum(grant.how is how for grant in verdict.grants) for how in How},
            "bounds_held": sum(bound.passed for bound in verdict.bounds),
            "bounds_open": len(verdict.failed_bounds),
        },
        "grants": [asdict(grant) for grant in verdict.grants],
        "bounds": [
            {**asdict(bound.proof), "identity": bound.identity, "passed": bound.passed} for bound in verdict.bounds
        ],
        "kept_and_proven": [{"roles": roles, "action": action} for roles, action in verdict.kept_and_proven],
    }
