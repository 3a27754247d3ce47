"""The controller on a pool's schedule: reconcile the pool and the run that took it over, and send notifications."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from controller import handler as entry
from controller import reconciliation
from spotkeep_jobs.notifications.outbox import Delivery
from spotkeep_jobs.pools.pool_reconciler import ReconciledPool
from spotkeep_jobs.record.record import Pool, PoolTraits
from spotkeep_jobs.record.run_metrics import RunMetric, RunMetrics
from spotkeep_jobs.record.states import PoolState
from tests.models.functions import Context

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


class Scripted:
    """The pool, its run and the outbox, as far as the entry point sees them."""

    def __init__(self) -> None:
        self.found: ReconciledPool | None = None
        self.followed: str | None = None
        self.reconciled: list[tuple[str, int]] = []
        self.observed: list[str] = []
        self.delivered: list[str] = []
        self.counted: list[RunMetrics] = []
        self.name = "spotkeep"

    def reconcile(self, *, run: str, attempt: int) -> ReconciledPool | None:
        self.reconciled.append((run, attempt))
        return self.found

    def reconcile_job(self, job_name: str, *, tag: str, deployment: object) -> Any:
        self.observed.append(job_name)
        happened = {RunMetric.RUNS_COMPLETED: 1.0}
        run_item = SimpleNamespace(run=self.followed)
        return None if self.followed is None else SimpleNamespace(run=run_item, happened=happened)

    def write(self, metrics: RunMetrics, *, deployment: object) -> None:
        self.counted.append(metrics)

    def deliver_run(self, run: str) -> Delivery:
        self.delivered.append(run)
        return Delivery(sent=(f"{run}/pool-expired/1",))


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    scripted = Scripted()
    monkeypatch.setattr(entry, "current_deployment", lambda: scripted)
    for name in ("PoolReconciler", "Outbox"):
        monkeypatch.setattr(reconciliation, name, lambda _deployment: scripted)
    monkeypatch.setattr(reconciliation, "write_metrics", scripted.write)
    monkeypatch.setattr(reconciliation, "_reconcile_job", scripted.reconcile_job)
    return scripted


def a_reconciled_pool(**fields: Any) -> ReconciledPool:
    traits = PoolTraits(role_arn="role", instance_type="ml.m5.xlarge", instance_count=1, volume_size_gb=30)
    facts: dict[str, Any] = {
        "run": "first", "attempt": 1, "name": "first", "job_name": "first-1", "traits": traits, "kept_since": NOON,
        "keep_alive_seconds": 600, "kept_until": NOON + timedelta(minutes=10), "chain_since": NOON,
    }  # fmt: skip
    return ReconciledPool(pool=Pool(**facts | fields), changes=1)


def invoke(event: object) -> dict[str, Any]:
    return entry.handler(event, Context())  # type: ignore[arg-type, no-any-return]


def test_it_reads_the_pool_and_sends_its_notifications(parts: Scripted) -> None:
    parts.found = a_reconciled_pool(state=PoolState.ENDED)
    answer = invoke({"run": "first", "attempt": 1, "firing": "expiry"})
    assert parts.reconciled == [("first", 1)]
    assert answer["state"] == "ENDED"
    assert answer["notifications_sent"] == ["first/pool-expired/1"]


def test_a_pool_that_was_taken_is_followed_to_the_run_that_has_it(parts: Scripted) -> None:
    parts.found, parts.followed = a_reconciled_pool(state=PoolState.REUSED, reused_by="second-1"), "second"
    answer = invoke({"run": "first", "attempt": 1})
    assert parts.observed == ["second-1"]
    assert (answer["reused_by"], answer["followed"]) == ("second-1", "second")
    assert parts.delivered == ["second", "first"]


def test_one_taken_by_a_stranger_is_left_to_them(parts: Scripted) -> None:
    parts.found = a_reconciled_pool(state=PoolState.REUSED, reused_by="theirs")
    answer = invoke({"run": "first", "attempt": 1})
    assert (answer["reused_by"], answer["followed"]) == ("theirs", None)
    assert parts.delivered == ["first"]


def test_no_such_pool_is_no_error(parts: Scripted) -> None:
    assert invoke({"run": "no-run", "attempt": 1}) == {"ok": True, "ignored": "no pool of this deployment"}


@pytest.mark.parametrize("event", [{"run": "first"}, {"attempt": 1}, {"run": "a/b", "attempt": 1}])
def test_what_names_no_pool_is_answered(parts: Scripted, event: object) -> None:
    answer = invoke(event)
    assert (answer["ok"], answer["error"]) == (False, "unknown-event")
    assert parts.reconciled == []
