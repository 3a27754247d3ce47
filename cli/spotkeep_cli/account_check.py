"""What `spotkeep doctor --account` finds: the reconciler's findings from the user's seat, and quotas that matter."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from spotkeep_cli.quotas import Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spotkeep_cli.quotas import Quota
    from spotkeep_cli.service_roles import ServiceRole
    from spotkeep_jobs.record.orphan_findings import Finding, LookReport
    from spotkeep_jobs.record.record import Run

RUNS_LOOKED_AT: Final = 50
"""Of so many of the newest runs the instance types matter."""


@dataclass(frozen=True, kw_only=True)
class AccountCheck:
    """What there is in the account.

    Attributes:
        findings: What was found, the dearest first.
        unreadable: What could not be looked at, and why.
        quotas: Of the instance types that matter.
        quotas_unreadable: Why quotas could not be read.
        service_roles: Those that the deployment's fleets and drills need.
        wanted: Which quotas runs have needed: type and usage.
        last_look: The reconciler's last look; None when there has been none.
    """

    findings: tuple[Finding, ...]
    unreadable: dict[str, str]
    quotas: tuple[Quota, ...] = ()
    quotas_unreadable: str | None = None
    service_roles: tuple[ServiceRole, ...] = ()
    wanted: frozenset[tuple[str, Usage]] = frozenset()
    last_look: LookReport | None = None

    @property
    def wrong(self) -> int:
        """How many findings should not be."""
        return sum(finding.wrong for finding in self.findings)

    @property
    def missing_quotas(self) -> tuple[Quota, ...]:
        """Quotas of nothing, for what runs have asked for."""
        return tuple(
            quota for quota in self.quotas if not quota.instances and (quota.instance_type, quota.usage) in self.wanted
        )

    @property
    def usd_per_hour(self) -> float | None:
        """What all findings cost together; None when no price of them is known."""
        known = [finding.usd_per_hour for finding in self.findings if finding.usd_per_hour is not None]
        return sum(known) if known else None

    def as_document(self) -> dict[str, Any]:
        """The check as JSON."""
        last = self.last_look
        return {
            "ok": not self.wrong,
            "findings": [finding.model_dump(mode="json") | {"wrong": finding.wrong} for finding in self.findings],
            "usd_per_hour": self.usd_per_hour,
            "unreadable": self.unreadable,
            "quotas": [quota.as_document() for quota in self.quotas],
            "missing_quotas": [quota.as_document() for quota in self.missing_quotas],
            "quotas_unreadable": self.quotas_unreadable,
            "service_roles": [role.as_document() for role in self.service_roles],
            "reconciler": None if last is None else last.model_dump(mode="json", include={"begun_at", "removes"}),
        }


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """What should not be first, and of that the dearest."""
    return tuple(sorted(findings, key=lambda each: (not each.wrong, -(each.usd_per_hour or 0.0), each.since)))


def wanted_quotas(runs: Collection[Run]) -> frozenset[tuple[str, Usage]]:
    """The quotas that runs have needed.

    Args:
        runs: The newest.
    """
    wanted: set[tuple[str, Usage]] = set()
    for run in runs:
        if " " in run.instance_type:
            continue  # Several types, of which SageMaker chose one.
        wanted.add((run.instance_type, Usage.SPOT if run.capacity == "spot" else Usage.ON_DEMAND))
        if run.request.get("keep_alive"):
            wanted.add((run.instance_type, Usage.WARM_POOL))
    return frozenset(wanted)
