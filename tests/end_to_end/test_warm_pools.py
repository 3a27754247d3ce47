"""Warm pools in the deployed app: reused with the packages in them, extended, ended, expired, refused for no quota."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from spotkeep_jobs.record.states import NotificationKind, NotificationState, PoolEndReason, PoolState

from .conftest import ENVIRONMENTS_ARE_KEPT, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spotkeep_jobs.record.record import Notification, Pool

    from .conftest import DeployedApp

pytestmark = pytest.mark.long


def job(app: DeployedApp, **fields: Any) -> dict[str, Any]:
    kept = {"capacity": "on-demand", "instance_type": "ml.m5.large", "keep_alive": "10m"}
    return app.counting("5", **kept | fields)


def ran(app: DeployedApp, **fields: Any) -> str:
    """Run a job to its end; its run's id."""
    document = job(app, **fields)
    app.launch(**document)
    app.wait_until_ended(document["run"])
    return str(document["run"])


def pool_of(app: DeployedApp, run: str) -> Pool:
    pool = app.table.pools.get(run, 1)
    assert pool is not None, f"{run} left no pool"
    return pool


def expiries_of(app: DeployedApp, run: str) -> list[Notification]:
    kind, sent = NotificationKind.POOL_EXPIRED, NotificationState.SENT
    return [each for each in app.table.notifications.of_run(run) if (each.kind, each.state) == (kind, sent)]


@pytest.fixture
def no_quota(deployed_app: DeployedApp) -> Iterator[None]:
    deployed_app.control.warm_pool_quota(0)
    yield
    deployed_app.control.warm_pool_quota(10)


def test_a_pool_is_matched_reused_extended_and_ended(deployed_app: DeployedApp) -> None:
    app = deployed_app
    first = ran(app, needs_a_package=True)
    assert pool_of(app, first).state is PoolState.AVAILABLE

    following = job(app, needs_a_package=True)
    matches = {
        each["pool"]["run"]: each for each in app.invoke("launcher", {"action": "validate", **following})["pools"]
    }
    assert matches[first]["fits"]
    other = app.invoke("launcher", {"action": "validate", **following, "volume_size_gb": 50})["pools"]
    differing = {each["criterion"] for match in other if match["pool"]["run"] == first for each in match["differences"]}
    assert differing == {"ResourceConfig.VolumeSizeInGB"}

    second = str(app.launch(**following)["run"])
    app.wait_until_ended(second)
    assert (pool_of(app, first).state, pool_of(app, first).reused_by) == (PoolState.REUSED, f"{second}-1")
    assert app.control.job_facts(f"{second}-1").took_over == f"{first}-1"
    reasons = [app.installed(f"{run}-1") for run in (first, second)]
    assert reasons == [["by pip"], ["from the warm pool's cache" if ENVIRONMENTS_ARE_KEPT else "by pip"]]
    assert pool_of(app, second).chain_since == pool_of(app, first).chain_since

    before = pool_of(app, second).kept_until
    app.invoke("launcher", {"action": "extend-pool", "run": second, "for": "10m"})
    assert (pool_of(app, second).kept_until - before).total_seconds() == 600
    refused = app.invoke("launcher", {"action": "extend-pool", "run": second, "for": "1h"})
    assert not refused["ok"]
    assert "AWS documents 1h as the longest" in refused["problems"][0]["problem"]

    app.invoke("launcher", {"action": "stop-pool", "run": second})
    assert pool_of(app, second).end_reason is PoolEndReason.STOPPED_BY_USER
    app.invoke("controller", {})
    assert len(expiries_of(app, second)) == 1
    assert expiries_of(app, first) == []
    cost = app.run(second).cost
    assert cost is not None
    assert cost.idle_pool_seconds > 0


def test_its_schedule_brings_the_expiry_and_it_is_notified_once(deployed_app: DeployedApp) -> None:
    run = ran(deployed_app, keep_alive="3s", instance_type="ml.m5.xlarge")
    until(lambda: expiries_of(deployed_app, run), lambda: "the notification")
    assert pool_of(deployed_app, run).end_reason is PoolEndReason.EXPIRED
    for _ in range(2):
        deployed_app.invoke("controller", {"run": run, "attempt": 1, "firing": "expiry"})
        deployed_app.invoke("controller", {})
    kinds = [each.kind for each in deployed_app.table.notifications.of_run(run)]
    assert kinds.count(NotificationKind.POOL_EXPIRED) == 1


@pytest.mark.usefixtures("no_quota")
def test_without_quota_the_user_is_notified_at_once_what_to_request(deployed_app: DeployedApp) -> None:
    run = ran(deployed_app)
    until(lambda: expiries_of(deployed_app, run), lambda: "the notification")
    assert pool_of(deployed_app, run).state is PoolState.NOT_KEPT
    [notification] = expiries_of(deployed_app, run)
    assert "ml.m5.large for training warm pool usage" in notification.body
