"""A pass over everything finds what no event said, and one broken run does not stop it."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller import full_pass
from controller.full_pass import FullPass, PassFailedError
from controller.reconciliation import PassReport
from spotkeep_jobs.cost.prices import KnownPrices, PricesNotReadError
from spotkeep_jobs.document.deployment_facts import DEFAULT_LONG_WAIT, PoolRules
from spotkeep_jobs.notifications.outbox import Delivery
from spotkeep_jobs.record.deployment_records import OrphanReport, PassPlaces, PriceBook
from spotkeep_jobs.record.states import RunState
from spotkeep_jobs.runs.rules import LAUNCH_SETTLES
from tests.models.faults import Fault
from tests.models.run_table import open_run

MANY = 8
"""From so many runs on, jobs are searched before any is described."""


@dataclass
class Passing:
    world: Any
    completed: list[str] = field(default_factory=list)

    def complete(self, run: str, /) -> Any:
        self.completed.append(run)
        return self.world.table.runs.get(run)

    @property
    def full_pass(self) -> FullPass:
        return FullPass(self.world.controller, search_from=MANY)


@pytest.fixture
def passing(world: Any, monkeypatch: pytest.MonkeyPatch) -> Passing:
    passing = Passing(world)
    monkeypatch.setattr(full_pass, "LaunchCompletion", lambda _deployment: passing)
    return passing


def wait_for_capacity(world: Any, make: Any) -> None:
    """Launch many runs, whose users want to know of a long wait, and whose jobs have no capacity yet."""
    for number in range(MANY):
        run = world.launch(make.run(f"w{number}", notify=("waiting-too-long",)), make.attempt(f"w{number}"))
        world.sagemaker.has_job(run.job_name, ("Starting", 0.0))


def launch(world: Any, make: Any, name: str, *story: tuple[str, float], **fields: Any) -> None:
    run = world.launch(make.run(name), make.attempt(name))
    world.sagemaker.has_job(run.job_name, *story, **fields)


def test_with_many_runs_only_those_are_described_to_which_something_may_have_happened(
    passing: Passing, make: Any
) -> None:
    world = passing.world
    for number in range(MANY):
        launch(world, make, f"r{number}", ("Training", 1.0))
    described = world.sagemaker.described
    # One search says all there is to record of runs that were never seen.
    report = passing.full_pass.run()
    assert (report.unchanged, report.changes, described) == (0, MANY, [])
    assert (passing.full_pass.run().unchanged, described) == (MANY, [])
    world.sagemaker.has_job("r3-1", ("Training", 1.0), ("Interrupted", 5.0))
    world.sagemaker.has_job("r5-1", ("Training", 1.0), ("Completed", 5.0))
    world.table.runs.request_stop(run="r7", now=make.noon)
    report = passing.full_pass.run()
    assert sorted(described) == ["r5-1", "r7-1"]
    assert (report.runs, report.notifications_sent, world.sagemaker.stopped) == (MANY, 1, ["r7-1"])
    assert world.table.runs.get("r3").state is RunState.INTERRUPTED


def test_before_a_user_is_notified_or_a_job_asked_to_end_because_of_a_search_the_job_is_described(
    passing: Passing, make: Any
) -> None:
    world = passing.world
    wait_for_capacity(world, make)
    world.clock.pass_by(seconds=DEFAULT_LONG_WAIT.total_seconds())
    for number in range(MANY):
        world.sagemaker.has_job(f"w{number}-1", ("Starting", 0.0), ("Training", 9.0))
    world.sagemaker.index_lags = True
    report = passing.full_pass.run()
    assert (report.changes, report.notifications_sent) == (MANY, 0)
    assert world.table.runs.get("w0").state is RunState.TRAINING


def test_a_wait_that_gets_too_long_is_seen_although_nothing_happens(passing: Passing, make: Any) -> None:
    world = passing.world
    wait_for_capacity(world, make)
    passing.full_pass.run()
    assert passing.full_pass.run().unchanged == MANY
    world.clock.pass_by(seconds=DEFAULT_LONG_WAIT.total_seconds())
    assert passing.full_pass.run().notifications_sent == MANY
    assert passing.full_pass.run().unchanged == MANY


def test_without_the_search_every_run_is_described(passing: Passing, make: Any) -> None:
    for number in range(MANY):
        launch(passing.world, make, f"r{number}", ("Training", 1.0))

    passing.world.faults.strike(Fault.REFUSED, operation="Search")
    report = passing.full_pass.run()
    assert (report.changes, list(report.failures)) == (MANY, ["search of jobs"])


def test_i4_an_ending_whose_events_never_came_is_notified(passing: Passing, make: Any) -> None:
    launch(passing.world, make, "lost", ("Training", 1.0), ("Completed", 2.0), status="Completed")
    report = passing.full_pass.run()
    assert (report.runs, report.changes, report.notifications_sent, report.failures) == (1, 1, 1, {})
    assert [notification.notification_id for notification in passing.world.topic.published] == ["lost/completed/1"]
    assert passing.full_pass.run().runs == 0


def test_broken_runs_and_records_do_not_stop_the_others_and_are_reported_at_the_end(
    passing: Passing, make: Any
) -> None:
    for name in ("a", "broken", "c"):
        launch(passing.world, make, name, ("Training", 1.0))
    passing.world.dynamodb.items["run#a", "item"]["state"] = {"S": "BEWITCHED"}
    passing.world.sagemaker.withheld["broken-1"] = "ThrottlingException"
    report = passing.full_pass.run()
    assert (report.runs, report.changes) == (3, 1)
    assert list(report.failures) == ["run a", "run broken"]
    assert "ThrottlingException" in str(PassFailedError(report.failures))
    assert passing.world.table.runs.get("c").state is RunState.TRAINING


def test_a_launch_that_was_cut_short_is_completed_but_not_while_its_launcher_may_live(
    passing: Passing, make: Any
) -> None:
    open_run(passing.world.table, run=make.run("half"), attempt=make.attempt("half"))
    passing.full_pass.run()
    assert passing.completed == []
    passing.world.clock.pass_by(seconds=LAUNCH_SETTLES.total_seconds())
    report = passing.full_pass.run()
    assert (passing.completed, report.completed) == (["half"], 1)


def test_a_stop_that_never_reached_sagemaker_is_asked_again_whatever_else_has_changed(
    passing: Passing, make: Any
) -> None:
    launch(passing.world, make, "a", ("Training", 1.0))
    passing.world.table.runs.request_stop(run="a", now=make.noon)
    passing.world.sagemaker.has_job("a-1", ("Training", 1.0), ("Interrupted", 2.0))
    assert passing.full_pass.run().changes == 1
    assert passing.world.sagemaker.stopped == ["a-1"]
    passing.world.sagemaker.has_job("a-1", ("Training", 1.0), status="Stopping")
    passing.world.clock.pass_by(hours=1)
    passing.full_pass.run()
    assert passing.world.sagemaker.stopped == ["a-1"]


def test_without_time_it_stops_reconciling_and_still_sends(passing: Passing, make: Any) -> None:
    launch(passing.world, make, "done", ("Completed", 2.0), status="Completed")
    passing.world.runs.reconcile("done")
    for name in ("a", "b", "c"):
        launch(passing.world, make, name, ("Training", 1.0))
    answers = itertools.chain([1.0, 1.0], itertools.repeat(0.0))
    report = passing.full_pass.run(seconds_left=lambda: next(answers))
    assert (report.runs, report.left, report.notifications_sent) == (1, 2, 1)


class TestATurnForEach:
    """A pass that has no time for all begins the next time where it stopped."""

    def test_of_ten_runs_and_time_for_four_each_is_reached_within_three_passes(
        self, passing: Passing, make: Any
    ) -> None:
        world = passing.world
        for number in range(10):
            launch(world, make, f"r{number}", ("Training", 1.0))
        reached: list[list[str]] = []
        for _ in range(3):
            world.sagemaker.described.clear()
            limited = FullPass(world.controller, search_from=100)
            report = limited.run(seconds_left=lambda: 3.5 - len(world.sagemaker.described))
            assert report.left == 10 - len(world.sagemaker.described)
            reached.append(list(world.sagemaker.described))
        assert [len(each) for each in reached] == [4, 4, 4]
        assert {name for each in reached for name in each} == {f"r{number}-1" for number in range(10)}

    @given(
        counts=st.fixed_dictionaries({kind: st.integers(0, 12) for kind in ("runs", "sweeps", "pools", "quotas")}),
        whole=st.integers(10, 60),
        seconds_each=st.floats(0.1, 1.0),
        in_index_order=st.randoms(use_true_random=False),
    )
    def test_each_run_quota_sweep_and_pool_is_reached_within_a_bounded_number_of_passes(
        self, counts: dict[str, int], whole: int, seconds_each: float, in_index_order: Random
    ) -> None:
        """Whatever the time is that a pass has, and in whatever order the index gives them."""
        everything = Everything(counts, seconds_each=seconds_each, chance=in_index_order)
        own_seconds = whole / 10  # What each kind has at least, of which each item takes a part.
        bound = 2 + math.ceil(12 / max(1, math.floor(own_seconds / seconds_each)))
        for _ in range(bound):
            everything.seconds_left = float(whole)
            everything.pass_over()
        assert everything.reached == everything.names

    def test_a_run_that_ends_function_after_function_keeps_no_other_from_its_turn(
        self, passing: Passing, make: Any
    ) -> None:
        """The function dies while it reads the log of the run: nothing after that is written by it."""
        world = passing.world
        for number in range(6):
            launch(world, make, f"r{number}", ("Training", 1.0))
        described = world.sagemaker.described

        def one_pass(*, time_for: int) -> None:
            def seconds_left() -> float:
                if described and described[-1] == "r3-1":
                    world.table.runs.begin_log_reading(world.table.runs.get("r3"), now=world.clock())
                    raise KeyboardInterrupt
                return time_for - 0.5 - len(described)

            world.clock.pass_by(minutes=5)

            described.clear()
            with contextlib.suppress(KeyboardInterrupt):
                FullPass(world.controller, search_from=100).run(seconds_left=seconds_left)

        reached: set[str] = set()
        for time_for in (2, 9, 9, 9):
            one_pass(time_for=time_for)
            reached |= set(described)
        assert reached == {f"r{number}-1" for number in range(6)}

    def test_a_run_that_keeps_changing_is_left_to_the_next_pass(self, passing: Passing, make: Any) -> None:
        world = passing.world
        launch(world, make, "restless", ("Training", 1.0))
        tried = 0

        def meet(operation: str) -> None:
            nonlocal tried
            if operation == "TransactWriteItems":
                tried += 1
                world.clock.pass_by(seconds=20)
                raise make.error(operation, "TransactionCanceledException")

        world.dynamodb.before_call = meet
        report = passing.full_pass.run()
        assert "RunChangedError" in report.failures["run restless"]
        assert tried == 2

    def test_what_the_other_kinds_do_not_need_is_the_runs(self, passing: Passing, make: Any) -> None:
        world = passing.world
        for number in range(10):
            launch(world, make, f"r{number}", ("Training", 1.0))
        limited = FullPass(world.controller, search_from=100)
        report = limited.run(seconds_left=lambda: 10.5 - len(world.sagemaker.described))
        assert (report.left, len(set(world.sagemaker.described)), len(world.sagemaker.described)) == (0, 10, 10)


class Everything:
    """Runs, quotas, sweeps and pools in any number; each takes so many seconds of a pass."""

    def __init__(self, counts: dict[str, int], *, seconds_each: float, chance: Random) -> None:
        self.names = {kind: {f"{kind}-{number}" for number in range(count)} for kind, count in counts.items()}
        self.reached: dict[str, set[str]] = {kind: set() for kind in counts}
        self.seconds_left = 0.0
        self._seconds_each = seconds_each
        self._chance = chance
        self._places = PassPlaces()

    def pass_over(self) -> None:
        table = Mock(
            runs=Mock(in_flight=lambda: self._shuffled("runs"), log_readings_begun=frozenset),
            sweeps=Mock(in_flight=lambda: self._shuffled("sweeps")),
            pools=Mock(
                kept=lambda **_: [
                    SimpleNamespace(job_name=name, run=name, attempt=1) for name in self._shuffled("pools")
                ]
            ),
            deployment=Mock(pass_places=lambda: self._places, keep_pass_places=self._keep),
        )

        def quotas(_deployment: object, **_: Any) -> list[list[SimpleNamespace]]:
            return [
                [SimpleNamespace(place=SimpleNamespace(capacity="spot", instance_type=name))]
                for name in self._shuffled("quotas")
            ]

        deployment: Any = Mock(
            table=table,
            training_jobs=Mock(search_in_progress=lambda _deployment: []),
            fleet_orphans=None,
        )
        stand_ins = {
            "Adoption": Mock(adopt_found=lambda _found, **_: []),
            "RunReconciler": Mock(reconcile=lambda run, **_: self._take("runs", run)),
            "PoolReconciler": Mock(
                as_recorded=lambda *_, **__: None, reconcile=lambda run, **_: self._take("pools", run)
            ),
            "launcher_of": Mock(advance=lambda sweep: self._take("sweeps", sweep)),
            "Outbox": Mock(deliver_all=lambda **_: Delivery()),
        }
        with pytest.MonkeyPatch.context() as patched:
            for name, stand_in in stand_ins.items():
                patched.setattr(full_pass, name, lambda _deployment, stand_in=stand_in: stand_in)
            patched.setattr(full_pass, "runs_by_quota", quotas)
            patched.setattr(
                full_pass,
                "advance_quota",
                lambda _deployment, runs, **_: self._take("quotas", runs[0].place.instance_type) or [],
            )
            patched.setattr(full_pass, "write_metrics", lambda _metrics, **_: None)
            FullPass(deployment, search_from=100).run(seconds_left=lambda: self.seconds_left)

    def _shuffled(self, kind: str) -> list[str]:
        names = sorted(self.names[kind])
        self._chance.shuffle(names)
        return names

    def _keep(self, places: PassPlaces) -> None:
        self._places = places

    def _take(self, kind: str, name: str) -> None:
        self.reached[kind].add(name)
        self.seconds_left -= self._seconds_each


def test_a_notification_that_does_not_go_out_is_a_failure_of_the_pass(passing: Passing, make: Any) -> None:
    launch(passing.world, make, "a", ("Completed", 2.0), status="Completed")

    def refuse(operation: str) -> None:
        raise make.error(operation, "AuthorizationError")

    passing.world.topic.before_call = refuse
    assert "AuthorizationError" in passing.full_pass.run().failures["notification 1"]


def leave_pools(world: Any, make: Any, pools: int) -> None:
    for number in range(pools):
        name = f"p{number}"
        world.launch(make.run(name, capacity="on-demand"), make.attempt(name, capacity="on-demand"))
        world.sagemaker.has_job(
            f"{name}-1", ("Training", 1.0), ("Completed", 12.0), request=make.pool_request(),
            TrainingTimeInSeconds=600, BillableTimeInSeconds=600,
            CreationTime=make.noon + timedelta(minutes=number / 100),
        )  # fmt: skip
    world.clock.time = make.noon + timedelta(minutes=12)
    for number in range(pools):
        world.runs.reconcile(f"p{number}")


def test_of_many_pools_only_those_are_described_to_which_something_may_have_happened(
    passing: Passing, make: Any
) -> None:
    world = passing.world
    leave_pools(world, make, MANY)
    world.clock.pass_by(minutes=5)
    world.sagemaker.described.clear()
    world.faults.calls.clear()
    report = passing.full_pass.run()
    assert (report.pools, len(report.kept), report.failures) == (MANY, MANY, {})
    assert (world.faults.calls, world.sagemaker.described) == (["Search", "ListTrainingJobs"], [])

    world.sagemaker.create_training_job(TrainingJobName="next-1", **make.pool_request(), **make.attempt().job_request)
    for job_name, seconds in {"p1-1": 0, "p2-1": 3600}.items():
        change = {"KeepAlivePeriodInSeconds": seconds}
        world.sagemaker.update_training_job(TrainingJobName=job_name, ResourceConfig=change)
    world.faults.calls.clear()
    report = passing.full_pass.run()
    assert world.faults.calls.count("ListTrainingJobs") == 1
    assert sorted(world.sagemaker.described) == ["p0-1", "p1-1", "p2-1"]
    assert [world.table.pools.get(f"p{number}", 1).state for number in range(3)] == ["REUSED", "ENDED", "AVAILABLE"]
    assert world.table.pools.get("p2", 1).keep_alive_seconds == 3600
    assert len(report.kept) == MANY - 2


def test_a_pool_of_which_something_is_to_be_notified_is_described_before(passing: Passing, make: Any) -> None:
    """At minute 25 a reminder is due, at minute 29.5 its time is nearly over."""
    world = passing.world
    leave_pools(world, make, MANY)
    world.watch_pools(PoolRules(reminder_lead_seconds=600))
    for minutes, described in ((10, 0), (15, MANY), (0, 0), (4.5, MANY)):
        world.clock.pass_by(minutes=minutes)
        world.sagemaker.described.clear()
        passing.full_pass.run()
        assert len(world.sagemaker.described) == described


def test_pools_that_cannot_be_listed_are_described_and_the_failure_is_reported(passing: Passing, make: Any) -> None:
    world = passing.world
    leave_pools(world, make, MANY)
    world.sagemaker.described.clear()
    world.faults.strike(Fault.REFUSED, operation="ListTrainingJobs")
    report = passing.full_pass.run()
    assert list(report.failures) == ["list of warm pools"]
    assert len(world.sagemaker.described) == MANY


class Account:
    """Prices and orphans, as a pass reads them; each fails as a test says."""

    def __init__(self, *, prices: Exception | None = None, orphans: Exception | None = None) -> None:
        self.prices, self.orphans = prices, orphans
        self.read_at: list[str] = []

    def read(self, region: str, /, *, now: Any) -> PriceBook:
        self.read_at.append("prices")
        if self.prices is not None:
            raise self.prices
        return PriceBook(region=region, fetched_at=now, instance_usd_per_hour={"ml.m5.xlarge": 0.2})

    def collect_if_due(self, *, has_time: Callable[[], bool]) -> OrphanReport | None:
        assert has_time()
        self.read_at.append("orphans")
        if self.orphans is not None:
            raise self.orphans
        return None


def pass_over(passing: Passing, account: Account, **bounds: Any) -> PassReport:
    prices = KnownPrices({}, region="us-east-1")
    passing.world.controller.__dict__["prices"] = prices
    return FullPass(passing.world.controller, price_list=account, orphans=account).run(**bounds)  # type: ignore[arg-type]


def test_prices_and_orphans_come_after_the_runs_and_neither_keeps_the_other_back(passing: Passing) -> None:
    broken = Account(prices=ConnectionError("no table"), orphans=ConnectionError("no table"))
    report = pass_over(passing, broken)
    assert broken.read_at == ["prices", "orphans"]
    assert report.failures == dict.fromkeys(("prices", "orphans"), "ConnectionError: no table")
    without_time = Account()
    pass_over(passing, without_time, seconds_left=lambda: 0.0)
    assert without_time.read_at == []


def test_prices_that_aws_does_not_give_fail_no_pass(passing: Passing) -> None:
    report = pass_over(passing, Account(prices=PricesNotReadError(region="us-east-1", reason="no permission")))
    assert report.failures == {}
    assert "no permission" in str(report.prices_unread)
