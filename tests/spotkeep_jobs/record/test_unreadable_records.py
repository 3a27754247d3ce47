"""A record that this version cannot read is named, with what to do; and it keeps no other from being read.

A function may be older than the record: after a rollback, an enum has a value that it does not know.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.events import Hint, Subject
from controller.full_pass import FullPass
from controller.reconciliation import reconcile_hint
from launcher import handler
from spotkeep_jobs.errors import UnreadableRecordError
from spotkeep_jobs.notifications.outbox import STALE_AFTER
from spotkeep_jobs.record.deployment_records import OrphanReport, PriceBook
from spotkeep_jobs.record.record import Record, Run, TimelineEntry
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.states import NotificationKind, RunState, TimelineKind
from spotkeep_jobs.record.table_client import fields_of, record_of
from spotkeep_jobs.runs.launch import Launcher
from spotkeep_jobs.sweeps.actions import SweepActions
from spotkeep_jobs.sweeps.advance import Sweeps
from spotkeep_jobs.sweeps.launch import SweepLaunch
from tests.models.control_plane import ControlPlane

NEWER = {"form": {"N": "2"}}
BEWITCHED = {"state": {"S": "BEWITCHED"}}
DAMAGES = (NEWER, BEWITCHED)


def damage(world: Any, key: tuple[str, str], change: dict[str, Any]) -> None:
    items = world.dynamodb.items
    items[key] = items[key] | change
    world.dynamodb._put(items[key])


def with_three_trials() -> ControlPlane:
    """A deployment with a sweep, all of whose trials have their jobs."""
    plane = ControlPlane()
    plane.dynamodb = plane.service.dynamodb  # type: ignore[attr-defined]
    sweep = {"trials": [{"lr": value} for value in (1, 2, 3)], "parallel": 3}
    document = {"name": "swp", "run": "swp", "command": "x", "sweep": sweep}
    SweepLaunch(plane.launcher).launch(document, default_token="swp")
    Sweeps(plane.launcher).advance("swp")
    return plane


class TestOneRecord:
    def test_one_of_a_newer_version_is_named_as_such_and_says_what_to_do(self, world: Any, make: Any) -> None:
        world.launch(make.run("a"), make.attempt("a"))
        damage(world, ("run#a", "item"), NEWER)
        with pytest.raises(UnreadableRecordError) as caught:
            world.table.runs.get("a")
        assert str(caught.value) == (
            "(record of run a): was written by a newer version of Spotkeep (found form 2; this version reads 1). "
            "Use that version: deploy it again, or update this command line."
        )

    def test_one_with_a_value_that_is_not_known_names_it(self, world: Any, make: Any) -> None:
        world.launch(make.run("a"), make.attempt("a"))
        damage(world, ("run#a", "attempt#0001"), BEWITCHED)
        with pytest.raises(UnreadableRecordError, match=r"\(record of attempt 1 of run a\): cannot be read: state: .*"):
            world.table.runs.attempts("a")

    def test_each_record_carries_the_number_of_its_form_and_a_newer_number_is_refused_by_an_older_reader(self) -> None:
        class Newer(TimelineEntry):
            FORM: ClassVar[int] = TimelineEntry.FORM + 1

        def all_of(record: type[Record]) -> set[type[Record]]:
            return {record, *(each for sub in record.__subclasses__() for each in all_of(sub))}

        assert all(isinstance(record.FORM, int) and record.FORM >= 1 for record in all_of(Record))
        entry = {"run": "a", "attempt": 1, "at": "2026-11-28T12:00:00Z", "kind": "ended", "text": "It ended"}
        written = fields_of(Newer.model_validate(entry)) | {"pk": "run#a", "sk": "event#1"}
        assert written["form"] == TimelineEntry.FORM + 1
        assert record_of(Newer, written).text == "It ended"
        with pytest.raises(UnreadableRecordError, match="timeline entry 1 of run a"):
            record_of(TimelineEntry, written)

    @given(
        name=st.sampled_from(sorted(Run.model_fields)),
        value=st.none() | st.text() | st.integers() | st.lists(st.text(), max_size=2) | st.just({"x": "{"}),
    )
    def test_whatever_a_field_holds_it_is_read_or_refused_as_unreadable(self, make: Any, name: str, value: Any) -> None:
        item = {**fields_of(make.run("a")), "pk": "run#a", "sk": "item", name: value}
        refused: UnreadableRecordError | None = None
        try:
            record_of(Run, item)
        except UnreadableRecordError as error:
            refused = error
        assert refused is None or (refused.what == "run a" and len(str(refused)) < 1000)


LISTS: dict[str, tuple[tuple[str, str], Callable[[RunTable, dict[str, str]], Any]]] = {
    "list": (("run#b", "item"), lambda table, unreadable: table.runs.list(unreadable=unreadable)),
    "run_items_in_flight": (
        ("run#b", "item"),
        lambda table, unreadable: list(table.runs.items_in_flight(unreadable=unreadable)),
    ),
    "timeline": (
        ("run#b", "event#2026-11-21T12:00:00.000Z#0001#run-opened"),
        lambda table, unreadable: table.runs.timeline("b", unreadable=unreadable),
    ),
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_leaves_it_out_says_which_and_why_and_is_refused_where_nothing_takes_that(
    world: Any, make: Any, name: str
) -> None:
    for run in ("a", "b", "c"):
        world.launch(make.run(run), make.attempt(run))
    key, read = LISTS[name]
    unreadable: dict[str, str] = {}
    whole = len(read(world.table, unreadable))
    assert unreadable == {}
    damage(world, key, NEWER)
    assert len(read(world.table, unreadable)) == whole - 1
    [why] = unreadable.values()
    assert "newer version" in why
    with pytest.raises(UnreadableRecordError):
        read(world.table, None)  # type: ignore[arg-type]


class TestOneDoesNotStopAPass:
    @pytest.mark.parametrize("change", DAMAGES)
    def test_of_a_run_an_attempt_a_pool_a_notification_or_a_wait_for_quota(
        self, make: Any, change: dict[str, Any]
    ) -> None:
        plane = ControlPlane()
        plane.dynamodb = plane.service.dynamodb  # type: ignore[attr-defined]
        for name in ("r1", "r2", "done", "p1", "p2"):
            pool = {"capacity": "on-demand", "keep_alive": "1h"} if name.startswith("p") else {"capacity": "spot"}
            Launcher(plane.launcher).launch({"name": name, "run": name, "command": "x", **pool}, default_token=name)
        for name in ("done", "p1", "p2"):
            job = plane.service.jobs[f"{name}-1"]
            plane.service.gets_capacity(job)
            plane.service.ends(job, "Completed")
        plane.service.before_publish = refuse
        FullPass(plane.controller).run()
        plane.service.used_by_others = 1_000_000
        for name in ("q1", "q2"):
            Launcher(plane.launcher).launch({"name": name, "run": name, "command": "x"}, default_token=name)
        for key in (
            ("run#r1", "item"), ("run#q1", "item"), ("run#p1", "pool#0001"), ("run#p1", "notification#completed#0001"),
        ):  # fmt: skip
            damage(plane, key, change)
        plane.service.before_publish = lambda _notification_id: None
        plane.service.used_by_others = 0
        plane.service.seconds += STALE_AFTER.total_seconds()
        report = FullPass(plane.controller).run()
        assert set(report.failures) == {"run r1", "run q1", "warm pool 1 of run p1", "notification 1"}
        assert all("UnreadableRecordError" in why for why in report.failures.values())
        assert {plane.service.published[f"{name}/completed/1"] for name in ("done", "p2")} == {1}
        assert plane.service.published["p1/completed/1"] == 0
        assert plane.service.jobs["q2-1"].live, "the run behind it in its quota has got its job"
        assert [pool.run for pool in report.kept] == ["p2"]

    def test_of_a_trials_run_and_the_others_of_its_sweep_go_on(self, make: Any) -> None:
        plane = ControlPlane()
        plane.dynamodb = plane.service.dynamodb  # type: ignore[attr-defined]
        sweep = {"trials": [{"lr": value} for value in (1, 2, 3)], "parallel": 2}
        document = {"name": "swp", "run": "swp", "command": "x", "sweep": sweep}
        SweepLaunch(plane.launcher).launch(document, default_token="swp")
        Sweeps(plane.launcher).advance("swp")
        damage(plane, ("run#swp-1", "item"), NEWER)
        second = plane.service.jobs["swp-2-1"]
        plane.service.gets_capacity(second)
        plane.service.ends(second, "Completed")
        assert set(FullPass(plane.controller).run().failures) == {"run swp-1"}
        plane.advance_sweeps()
        assert plane.service.jobs["swp-3-1"].live
        advanced = Sweeps(plane.launcher).advance("swp")
        assert advanced is not None
        assert (advanced.sweep.counts.running, advanced.sweep.counts.failed) == (2, 0)

    @pytest.mark.parametrize("part", ["item", "attempt#0001"])
    def test_of_a_run_that_left_a_pool_and_another_that_may_take_it_is_judged_and_ends(
        self, monkeypatch: pytest.MonkeyPatch, part: str
    ) -> None:
        plane = ControlPlane()
        plane.dynamodb = plane.service.dynamodb  # type: ignore[attr-defined]
        pooled = {"command": "x", "capacity": "on-demand", "keep_alive": "1h"}
        Launcher(plane.launcher).launch({"name": "p1", "run": "p1", **pooled}, default_token="p1")
        for name in ("p1", "p2"):
            job = plane.service.jobs[f"{name}-1"]
            plane.service.gets_capacity(job)
            plane.service.seconds += 60
            plane.service.ends(job, "Completed")
            failures = FullPass(plane.controller).run().failures
            if name == "p1":
                assert not failures
                damage(plane, ("run#p1", part), NEWER)
                monkeypatch.setattr(handler, "current_deployment", lambda: plane.launcher)
                asked: Any = {"request_id": "r", "seconds_left": lambda: 60.0}
                judged = {"action": "validate", "name": "p2", "run": "p2", **pooled}
                assert handler.answer_event(judged, **asked)["ok"]
                assert len(handler.answer_event({"action": "pools"}, **asked)["unreadable"]) == 1
                Launcher(plane.launcher).launch({"name": "p2", "run": "p2", **pooled}, default_token="p2")
        assert set(failures) == {"warm pool of p1-1"}
        ended = plane.record.runs.get("p2")
        assert ended is not None
        assert ended.state is RunState.COMPLETED
        handler.metrics.clear_metrics()

    def test_of_a_trials_attempt_and_the_others_of_its_sweep_stop(self) -> None:
        plane = with_three_trials()
        damage(plane, ("run#swp-1", "attempt#0001"), NEWER)
        advanced = SweepActions(plane.launcher).stop("swp", seconds_left=lambda: 60.0)
        assert sorted(plane.service.stopped) == ["swp-2-1", "swp-3-1"]
        assert "newer version" in advanced.refused["swp-1"]
        assert advanced.sweep.counts.failed == 0

    def test_of_a_trial_and_the_others_of_its_sweep_stop(self) -> None:
        plane = with_three_trials()
        damage(plane, ("sweep#swp", "trial#000001"), NEWER)
        with pytest.raises(UnreadableRecordError, match="trial 1 of sweep swp"):
            Sweeps(plane.launcher).advance("swp")
        assert plane.service.stopped == [], "it only waits"
        with pytest.raises(UnreadableRecordError, match="trial 1 of sweep swp"):
            SweepActions(plane.launcher).stop("swp", seconds_left=lambda: 60.0)
        assert sorted(plane.service.stopped) == ["swp-2-1", "swp-3-1"]

    def test_of_a_run_that_waits_for_quota_and_those_behind_it_get_their_jobs(self) -> None:
        plane = ControlPlane()
        plane.dynamodb = plane.service.dynamodb  # type: ignore[attr-defined]
        plane.service.used_by_others = 1_000_000
        for name in ("q1", "q2", "q3"):
            Launcher(plane.launcher).launch({"name": name, "run": name, "command": "x"}, default_token=name)
            plane.service.seconds += 1
        damage(plane, ("run#q1", "attempt#0001"), NEWER)
        plane.service.used_by_others = 0
        plane.service.seconds += STALE_AFTER.total_seconds()
        assert "attempt 1 of run q1" in FullPass(plane.controller).run().failures
        assert [plane.service.jobs[f"{name}-1"].live for name in ("q2", "q3")] == [True, True]

    def test_of_a_run_that_waits_for_quota_and_the_event_of_another_job_is_taken(self) -> None:
        plane = ControlPlane()
        plane.dynamodb = plane.service.dynamodb  # type: ignore[attr-defined]
        plane.service.quota = 1
        for name in ("a", "q1", "q2"):
            Launcher(plane.launcher).launch({"name": name, "run": name, "command": "x"}, default_token=name)
            plane.service.seconds += 1
        damage(plane, ("run#q1", "attempt#0001"), NEWER)
        job = plane.service.jobs["a-1"]
        plane.service.gets_capacity(job)
        plane.service.ends(job, "Completed")
        answer = reconcile_hint(Hint(subject=Subject.TRAINING_JOB, name=job.name), deployment=plane.controller)
        assert answer["state"] == "COMPLETED"
        assert plane.service.jobs["q2-1"].live

    def test_of_the_report_on_orphans_which_the_next_pass_over_them_replaces(self, world: Any, make: Any) -> None:
        assert world.table.deployment.keep_orphan_report(OrphanReport(begun_at=make.noon, removes=True), replaces=None)
        damage(world, ("orphans", "report"), NEWER)
        last = world.table.deployment.last_orphan_report()
        assert (last.begun_at, list(last.unreadable)) == (make.noon, ["the last report"])
        later = OrphanReport(begun_at=make.noon + timedelta(hours=1), removes=True)
        assert world.table.deployment.keep_orphan_report(later, replaces=last)
        assert world.table.deployment.last_orphan_report() == later

    def test_of_the_prices_which_are_read_anew(self, world: Any, make: Any) -> None:
        world.table.deployment.keep_price_book(PriceBook(region="us-east-1", fetched_at=make.noon))
        damage(world, ("prices#us-east-1", "book"), NEWER)
        world.controller.prices.refresh(world.table, now=make.noon)
        new = PriceBook(region="us-east-1", fetched_at=make.noon, instance_usd_per_hour={"ml.m5.xlarge": 0.2})

        class Prices:
            def read(self, region: str, /, *, now: Any) -> PriceBook:
                return new

        assert world.controller.prices.fetch(Prices(), world.table, now=make.noon)
        assert world.table.deployment.price_book("us-east-1") == new


def test_a_user_who_asks_for_it_is_refused_and_reads_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that failed would be invoked again, and say nothing."""
    plane = ControlPlane()
    plane.dynamodb = plane.service.dynamodb  # type: ignore[attr-defined]
    Launcher(plane.launcher).launch({"name": "a", "run": "a", "command": "x"}, default_token="a")
    damage(plane, ("run#a", "item"), NEWER)
    monkeypatch.setattr(handler, "current_deployment", lambda: plane.launcher)
    for action in ("describe", "stop", "resume"):
        answer = handler.answer_event({"action": action, "run": "a"}, request_id="r", seconds_left=lambda: 60.0)
        [problem] = answer["problems"]
        assert (answer["ok"], problem["field"]) == (False, "(record of run a)")
        assert "deploy it again" in problem["fix"]
    handler.metrics.clear_metrics()


@pytest.mark.parametrize("key", [("sweep#swp", "item"), ("sweep#swp", "trial#000001"), ("schedule#nightly", "item")])
def test_a_function_that_no_user_asked_fails_for_nobody_reads_its_answer(
    monkeypatch: pytest.MonkeyPatch, key: tuple[str, str]
) -> None:
    """Its alarm hears of it: a pass only asks for each sweep to be advanced, and reads no schedule."""
    plane = ControlPlane()
    plane.dynamodb = plane.service.dynamodb  # type: ignore[attr-defined]
    monkeypatch.setattr(handler, "current_deployment", lambda: plane.launcher)
    sweep = {"trials": [{"lr": 1}, {"lr": 2}], "parallel": 1}
    SweepLaunch(plane.launcher).launch(
        {"name": "swp", "run": "swp", "command": "x", "sweep": sweep}, default_token="swp"
    )
    document = {"name": "n", "run": "nightly", "command": "x", "schedule": "cron(0 2 * * ? *)"}
    asked: Any = {"request_id": "r", "seconds_left": lambda: 60.0}
    assert handler.answer_event(document, **asked)["ok"]
    plane.service.seconds += timedelta(days=1).total_seconds()
    firing = plane.service.schedules.fire("nightly", f"{plane.service.now():%Y-%m-%dT%H:%M:%SZ}")
    damage(plane, key, NEWER)
    event = firing if key[0].startswith("schedule") else {"action": "advance-sweep", "sweep": "swp"}
    with pytest.raises(UnreadableRecordError, match="newer version"):
        handler.answer_event(event, **asked)
    handler.metrics.clear_metrics()


def test_an_unreadable_notification_of_a_run_keeps_it_from_no_reconciliation(world: Any, make: Any) -> None:
    run = world.launch(
        make.run("a", notify=(NotificationKind.INTERRUPTED, NotificationKind.COMPLETED)), make.attempt("a")
    )
    world.sagemaker.has_job(run.job_name, ("Training", 1.0), ("Interrupted", 2.0))
    world.runs.reconcile("a")
    [first] = [sk for pk, sk in world.dynamodb.items if sk.startswith("notification#")]
    damage(world, ("run#a", first), {"kind": {"S": "bewitched"}})
    world.sagemaker.has_job(
        run.job_name, ("Training", 1.0), ("Interrupted", 2.0), ("Training", 3.0), ("Completed", 4.0)
    )
    world.runs.reconcile("a")
    assert world.table.runs.get("a").state is RunState.COMPLETED
    delivery = world.outbox.deliver_all()
    assert delivery.sent == ("a/completed/1",)
    [why] = delivery.failures
    assert "notification interrupted#0001" in why
    assert TimelineKind.ENDED in {entry.kind for entry in world.table.runs.timeline("a")}


def refuse(_notification_id: str) -> None:
    raise ConnectionError("no topic")
