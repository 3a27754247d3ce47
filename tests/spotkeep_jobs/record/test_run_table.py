"""The run table keeps its promises under concurrency, on the model of DynamoDB and, call by call, on the local AWS."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from spotkeep_jobs.document.fleet import MAX_RUNS
from spotkeep_jobs.errors import (
    AttemptStillLiveError,
    CheckpointPrefixTakenError,
    IdReservedError,
    RunChangedError,
    RunExistsError,
    RunNotRecordedError,
    RunsInFlightError,
)
from spotkeep_jobs.record.record import (
    AskedToEnd,
    Attempt,
    Cost,
    Ending,
    JobUsage,
    Notification,
    Plan,
    Pool,
    PoolChange,
    Run,
    RunChange,
    RunGroup,
    Spread,
    TimelineEntry,
    TrialPlace,
)
from spotkeep_jobs.record.run_store import NewRun
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.schedule import Schedule
from spotkeep_jobs.record.states import (
    EndReason,
    NotificationKind,
    NotificationState,
    PoolState,
    RunState,
    TimelineKind,
)
from spotkeep_jobs.record.sweep import Sweep
from tests.models.clock import NOON
from tests.models.run_table import open_run

on_both = pytest.mark.parametrize("table", ["in-memory", "local-aws"], indirect=True)


@pytest.fixture
def table(request: pytest.FixtureRequest) -> RunTable:
    """On the model, unless a test asks for the local AWS."""
    if getattr(request, "param", "in-memory") == "in-memory":
        return request.getfixturevalue("run_table")  # type: ignore[no-any-return]
    client, name = request.getfixturevalue("local_dynamodb")
    return RunTable.of(client=client, table_name=name, retention_days=30)


@pytest.fixture
def opened(table: RunTable, make: Any) -> Run:
    return open_run(table, run=make.run(), attempt=make.attempt()).run


def ended(run: Run, attempt: Attempt, make: Any, **fields: Any) -> RunChange:
    update = {"ending": Ending(at=make.noon + timedelta(hours=1), reason=EndReason.COMPLETED)}
    return RunChange(
        run=run.model_copy(update=update | {"state": RunState.COMPLETED} | fields),
        attempt=attempt.model_copy(update=update | {"state": RunState.COMPLETED}),
        notifications=(a_notification(make),),
    )


def a_notification(make: Any, **fields: Any) -> Notification:
    facts: dict[str, Any] = {
        "notification_id": "digits-1a2b3c4d/completed/1",
        "subject_id": "digits-1a2b3c4d",
        "kind": NotificationKind.COMPLETED,
        "subject": "done",
        "body": "It is done.",
        "attributes": {"status": "completed"},
        "happened_at": make.noon,
        "created_at": make.noon,
    }
    return Notification(**facts | fields)


def a_group(make: Any, *, size: int) -> list[NewRun]:
    return [
        NewRun(
            run=make.run(f"digits-{index}", group=RunGroup(id="digits", index=index, size=size)),
            attempt=make.attempt(f"digits-{index}"),
        )
        for index in range(1, size + 1)
    ]


def a_sweep(name: str) -> Sweep:
    return Sweep(sweep=name, name=name, created_at=NOON, updated_at=NOON, token=name, document={"sweep": {}})


def a_schedule(name: str, *, now: datetime) -> Schedule:
    return Schedule(
        schedule=name, name=name, expression="cron(0 2 * * ? *)", timezone="UTC", created_at=now, begins_at=now,
        token=name, document={},
    )  # fmt: skip


@on_both
class TestOpening:
    def test_the_plan_of_a_run_lies_beside_it_and_is_read_back_to_the_last_digit(
        self, table: RunTable, make: Any
    ) -> None:
        plan = Plan(
            made_at=make.noon, table={"restart_usd": [[0.001, 1e-9]], "zones": ["any"]}, chance_of_on_demand=0.125,
            cost_usd=Spread(p10=0.1, p50=0.2, p90=0.3), finish_seconds=Spread(p10=1, p50=2, p90=3),
        )  # fmt: skip
        entry = TimelineEntry(
            run="digits-1a2b3c4d", attempt=1, at=make.noon, kind=TimelineKind.STEERED, text="On demand from the start"
        )
        open_run(table, run=make.run(), attempt=make.attempt(), plan=plan, timeline=(entry,))
        assert table.runs.plan("digits-1a2b3c4d") == plan
        assert entry in table.runs.timeline("digits-1a2b3c4d")
        assert table.runs.plan("another") is None
        read = table.runs.without_timeline("digits-1a2b3c4d")
        assert (read.run, read.attempts()) == (table.runs.get("digits-1a2b3c4d"), [make.attempt()])
        assert list(read.items) == ["attempt#0001", "item", "plan"]
        assert table.runs.without_timeline("another").run is None

    def test_a_run_is_read_back_as_it_was_written(self, table: RunTable, make: Any) -> None:
        cost = Cost(
            billed_seconds=12.5, training_seconds=60, waited_seconds=0.25, redone_steps=3, redone_seconds=1.5,
            restart_overhead_seconds=2, clean_on_demand_seconds=56.5, saved_seconds=44, saved_percent=77.9,
            aws_saved_percent=79.2, usd_per_hour=0.23, billed_usd=0.000799,
        )  # fmt: skip
        usage = JobUsage(
            instance_count=2, billable_seconds=12.5, training_seconds=60, waited_seconds=1, redone_steps=None,
            redone_seconds=None, restart_overhead_seconds=0,
        )  # fmt: skip
        document = {"hyperparameters": {"lr": 0.1, "none": None, "big": 10**40}, "empty": "", "list": [1.0, True]}
        run = make.run(
            request=document, notify=(NotificationKind.FAILED, NotificationKind.RESUMED), cost=cost, owner=None
        )
        attempt = make.attempt(usage=usage, job_request={"Environment": {}, "HyperParameters": {"a": ""}})
        open_run(table, run=run, attempt=attempt)
        assert table.runs.get(run.run) == run
        assert table.runs.attempts(run.run) == [attempt]
        assert [entry.kind for entry in table.runs.timeline(run.run)] == [TimelineKind.RUN_OPENED]

    def test_the_same_token_finds_the_first_run_and_writes_nothing(
        self, table: RunTable, opened: Run, make: Any
    ) -> None:
        again = open_run(table, run=make.run("other", token=opened.token), attempt=make.attempt("other"))
        assert again.replayed
        assert (again.run, again.attempt.run) == (opened, opened.run)
        assert table.runs.get("other") is None

    def test_the_runs_of_one_launch_are_recorded_all_at_once_and_found_again_by_its_token(
        self, table: RunTable, make: Any
    ) -> None:
        new = a_group(make, size=MAX_RUNS)
        opened = table.runs.open(new)
        assert [each.replayed for each in opened] == [False] * MAX_RUNS
        again = table.runs.open(new)
        assert [each.replayed for each in again] == [True] * MAX_RUNS
        assert [each.run for each in again] == [each.run for each in opened] == [each.run for each in new]

    def test_i1_of_several_runs_none_is_recorded_when_one_may_not_be(self, table: RunTable, make: Any) -> None:
        new = a_group(make, size=3)
        open_run(table, run=make.run("digits-2", token="earlier"), attempt=make.attempt("digits-2"))
        with pytest.raises(RunExistsError, match="digits-2"):
            table.runs.open(new)
        assert table.runs.get("digits-1") is None
        other = make.run("other", token="other", checkpoint_uri=new[2].run.checkpoint_uri)
        open_run(table, run=other, attempt=make.attempt("other"))
        with pytest.raises(CheckpointPrefixTakenError, match="other"):
            table.runs.open([new[0], new[2]])
        assert table.runs.get("digits-1") is None

    def test_an_id_of_a_sweep_is_given_to_its_trials_alone_and_an_id_that_is_given_to_no_later_sweep(
        self, table: RunTable, make: Any
    ) -> None:
        table.sweeps.open(a_sweep("digits"))
        for name in ("digits", "digits-3"):
            with pytest.raises(IdReservedError, match=name):
                open_run(table, run=make.run(name), attempt=make.attempt(name))
            assert table.runs.get(name) is None
        with pytest.raises(IdReservedError):
            table.runs.open(a_group(make, size=2))
        assert table.runs.get("digits-1") is None
        with pytest.raises(IdReservedError):
            table.sweeps.open(a_sweep("digits-3"))
        place = TrialPlace(sweep="digits", number=3)
        open_run(table, run=make.run("digits-3", trial=place), attempt=make.attempt("digits-3"))
        found = table.runs.trial_run("digits", 3)
        assert found is not None
        assert (found.run, table.runs.trial_run("digits", 2)) == ("digits-3", None)
        assert table.claims.run_with_id_of_a_trial("digits") is None

    def test_a_sweep_gets_no_id_whose_trials_would_have_anothers(self, table: RunTable, make: Any) -> None:
        table.runs.open(a_group(make, size=2))
        open_run(table, run=make.run("exp-7", token="exp-7"), attempt=make.attempt("exp-7"))
        for name, newest in (("digits", "digits-1"), ("exp", "exp-7")):
            assert table.claims.run_with_id_of_a_trial(name) == newest
            with pytest.raises(IdReservedError, match=name):
                table.sweeps.open(a_sweep(name))
            assert table.sweeps.get(name) is None
        with pytest.raises(IdReservedError):
            table.sweeps.open(a_sweep("exp-7"))
        assert table.runs.trial_run("exp", 7) is None

    def test_what_a_schedule_launches_is_given_to_it_alone(self, table: RunTable, make: Any) -> None:
        table.schedules.open(a_schedule("nightly", now=make.noon))
        tonight = f"nightly-{make.noon + timedelta(days=1):%Y%m%d}-0200"
        for name in (tonight, f"{tonight}-2"):
            with pytest.raises(IdReservedError):
                open_run(table, run=make.run(name), attempt=make.attempt(name))
        for name in (tonight, tonight.removesuffix("-0200")):
            with pytest.raises(IdReservedError):
                table.sweeps.open(a_sweep(name))
        assert table.claims.ids_of_firings("nightly", now=make.noon) == []
        open_run(table, run=make.run(tonight, schedule="nightly"), attempt=make.attempt(tonight))
        assert table.claims.ids_of_firings("nightly", now=make.noon) == []

    def test_a_schedule_hears_of_what_is_called_like_a_later_firing(self, table: RunTable, make: Any) -> None:
        days = [f"nightly-{make.noon + timedelta(days=days):%Y%m%d}" for days in (-1, 0, 1)]
        for name in (f"{days[0]}-0200", f"{days[1]}-0200", f"{days[1]}-2300", f"{days[2]}-0200-3"):
            open_run(table, run=make.run(name, token=name), attempt=make.attempt(name))
        table.sweeps.open(a_sweep(days[2]))
        now = make.noon.replace(hour=12, minute=0)
        taken = [found.id for found in table.claims.ids_of_firings("nightly", now=now)]
        assert taken == [f"{days[1]}-2300", days[2], f"{days[2]}-0200-3"]

    def test_the_largest_launch_of_several_runs_fits_into_a_transaction_whatever_it_is_called(
        self, table: RunTable, make: Any
    ) -> None:
        group = RunGroup(id=f"nightly-{make.noon:%Y%m%d}-1200", index=1, size=MAX_RUNS)
        new = [
            NewRun(
                run=make.run(f"{group.id}-{index}", token=str(index), group=group.model_copy(update={"index": index})),
                attempt=make.attempt(f"{group.id}-{index}"),
            )
            for index in range(1, MAX_RUNS + 1)
        ]
        assert len(table.runs.open(new, in_flight_limit=MAX_RUNS)) == MAX_RUNS

    def test_the_token_of_a_trial_or_a_firing_is_no_users(self, table: RunTable, make: Any) -> None:
        origins: list[dict[str, Any]] = [{}, {"trial": TrialPlace(sweep="s", number=1)}, {"schedule": "nightly"}]
        for number, origin in enumerate(origins):
            run = make.run(f"run-{number}-x", token="the same", **origin)
            assert not open_run(table, run=run, attempt=make.attempt(run.run)).replayed
            assert open_run(table, run=run, attempt=make.attempt(run.run)).run.run == run.run

    def test_of_many_launches_at_once_with_one_token_one_opens_the_run(self, table: RunTable, make: Any) -> None:
        results: list[bool] = []

        def launch() -> None:
            results.append(open_run(table, run=make.run(), attempt=make.attempt()).replayed)

        threads = [threading.Thread(target=launch) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(results) == [False, *[True] * 7]


def test_of_several_runs_whose_token_comes_again_none_is_another_that_is_called_so_since(
    run_table: RunTable, make: Any
) -> None:
    new = a_group(make, size=2)
    run_table.runs.open(new)
    dynamodb: Any = run_table.client.dynamodb
    for key in [key for key in dynamodb.items if "digits-2" in str(dynamodb.items[key]) and "#digits-2" in key[0]]:
        dynamodb._remove(key)  # It is forgotten.
    other = make.run("digits-2", token="another", checkpoint_uri="s3://b/another/")
    open_run(run_table, run=other, attempt=make.attempt("digits-2"))
    with pytest.raises(RunNotRecordedError, match="digits-2"):
        run_table.runs.open(new)


class TestChanging:
    @on_both
    def test_a_decision_on_an_old_view_is_refused_whole(self, table: RunTable, opened: Run, make: Any) -> None:
        attempt = make.attempt()
        table.runs.commit(RunChange(run=opened.model_copy(update={"state": RunState.WAITING}), attempt=attempt))
        with pytest.raises(RunChangedError):
            table.runs.commit(ended(opened, attempt, make))
        run_item = table.runs.get(opened.run)
        assert (run_item.state, run_item.version) == (RunState.WAITING, 1)
        assert table.notifications.of_run(opened.run) == []
        assert table.claims.checkpoint_lock_owner(opened.checkpoint_uri) == opened.run

    @on_both
    def test_an_ending_writes_run_attempt_notification_and_gives_the_checkpoint_prefix_back_at_once(
        self, table: RunTable, opened: Run, make: Any
    ) -> None:
        entry = TimelineEntry(run=opened.run, attempt=1, at=make.noon, kind=TimelineKind.ENDED, text="Completed")
        change = ended(opened, make.attempt(), make).model_copy(update={"timeline": (entry,)})
        run_item = table.runs.commit(change)
        assert table.runs.get(opened.run) == run_item
        assert table.runs.attempts(opened.run)[0].state is RunState.COMPLETED
        assert entry in table.runs.timeline(opened.run)
        assert [notification.state for notification in table.notifications.of_run(opened.run)] == [
            NotificationState.PENDING
        ]
        assert table.claims.checkpoint_lock_owner(opened.checkpoint_uri) is None
        assert list(table.runs.in_flight()) == []

    @on_both
    def test_recording_the_job_twice_changes_nothing(self, table: RunTable, opened: Run, make: Any) -> None:
        arn = make.arn(opened.job_name)
        first = table.runs.record_job_created(run=opened.run, attempt=1, job_id=arn, now=make.noon)
        again = table.runs.record_job_created(run=opened.run, attempt=1, job_id="another", now=make.noon)
        assert first == again
        assert (again.job_id, again.version) == (arn, 1)

    def test_the_user_who_stops_while_the_job_is_being_created_is_not_forgotten_and_is_written_once(
        self, table: RunTable, opened: Run, make: Any
    ) -> None:
        first = table.runs.request_stop(run=opened.run, now=make.noon)
        assert table.runs.request_stop(run=opened.run, now=make.noon + timedelta(minutes=1)) == first
        run_item = table.runs.record_job_created(run=opened.run, attempt=1, job_id="arn", now=make.noon)
        assert run_item.asked_to_end == AskedToEnd(
            at=make.noon, reason=EndReason.STOPPED_BY_USER, text="A user asked to stop the run"
        )
        assert run_item.state is RunState.STOPPING

    def test_an_ended_run_cannot_be_stopped(self, table: RunTable, opened: Run, make: Any) -> None:
        run_item = table.runs.commit(ended(opened, make.attempt(), make))
        assert table.runs.request_stop(run=opened.run, now=make.noon)[0] == run_item

    @pytest.mark.parametrize(
        "ask",
        [
            lambda table, now: table.runs.request_stop(run="none", now=now),
            lambda table, now: table.runs.record_job_created(run="none", attempt=1, job_id="arn", now=now),
        ],
    )
    def test_an_unknown_run_is_said(self, table: RunTable, make: Any, ask: Callable[[RunTable, Any], object]) -> None:
        with pytest.raises(RunNotRecordedError, match="none"):
            ask(table, make.noon)


class TestTheNextAttempt:
    def test_i1_it_begins_only_when_the_last_one_is_over(self, table: RunTable, opened: Run, make: Any) -> None:
        with pytest.raises(AttemptStillLiveError, match="is not over"):
            table.runs.begin_attempt(run=opened, attempt=make.attempt(attempt=2))

    @on_both
    def test_it_takes_the_checkpoint_prefix_again(self, table: RunTable, opened: Run, make: Any) -> None:
        over = table.runs.commit(ended(opened, make.attempt(), make))
        run_item = table.runs.begin_attempt(run=over, attempt=make.attempt(attempt=2))
        assert table.runs.get(opened.run) == run_item
        assert (run_item.state, run_item.attempt, run_item.ended_at) == (RunState.LAUNCHING, 2, None)
        assert [attempt.attempt for attempt in table.runs.attempts(opened.run)] == [1, 2]
        assert table.claims.checkpoint_lock_owner(opened.checkpoint_uri) == opened.run
        assert list(table.runs.in_flight()) == [opened.run]

    @on_both
    def test_i1_it_is_refused_while_another_run_has_the_prefix(self, table: RunTable, opened: Run, make: Any) -> None:
        over = table.runs.commit(ended(opened, make.attempt(), make))
        other = make.run("other", checkpoint_uri=opened.checkpoint_uri)
        open_run(table, run=other, attempt=make.attempt("other"))
        with pytest.raises(CheckpointPrefixTakenError, match="other"):
            table.runs.begin_attempt(run=over, attempt=make.attempt(attempt=2))

    def test_of_two_resumes_at_once_one_is_refused(self, table: RunTable, opened: Run, make: Any) -> None:
        over = table.runs.commit(ended(opened, make.attempt(), make))
        table.runs.begin_attempt(run=over, attempt=make.attempt(attempt=2))
        with pytest.raises(RunChangedError):
            table.runs.begin_attempt(run=over, attempt=make.attempt(attempt=2))


class TestTheOutbox:
    @on_both
    def test_one_deliverer_at_a_time_holds_a_notification(self, table: RunTable, opened: Run, make: Any) -> None:
        table.runs.commit(ended(opened, make.attempt(), make))
        [notification] = table.notifications.unsent()
        stale = timedelta(minutes=15)
        claimed = table.notifications.claim(notification, now=make.noon, stale_after=stale)
        assert claimed is not None
        assert table.notifications.claim(notification, now=make.noon, stale_after=stale) is None
        assert table.notifications.claim(claimed, now=make.noon + timedelta(minutes=14), stale_after=stale) is None
        assert table.notifications.mark_sent(claimed, message_id="m", now=make.noon)
        assert table.notifications.unsent() == []
        [sent] = table.notifications.of_run(opened.run)
        assert (sent.state, sent.message_id, sent.deliveries) == (NotificationState.SENT, "m", 1)

    def test_a_dead_deliverers_claim_is_taken_over_and_its_mark_comes_too_late(
        self, table: RunTable, opened: Run, make: Any
    ) -> None:
        table.runs.commit(ended(opened, make.attempt(), make))
        [notification] = table.notifications.unsent()
        stale = timedelta(minutes=15)
        first = table.notifications.claim(notification, now=make.noon, stale_after=stale)
        second = table.notifications.claim(first, now=make.noon + stale, stale_after=stale)
        assert second.notification_id == first.notification_id
        assert not table.notifications.mark_sent(first, message_id="late", now=make.noon)
        assert table.notifications.mark_sent(second, message_id="m", now=make.noon)


class TestListing:
    @on_both
    def test_runs_come_newest_first_by_owner_and_state(self, table: RunTable, make: Any) -> None:
        for hour, owner in enumerate(["ada", "bob", "ada"]):
            at = make.noon + timedelta(hours=hour)
            run = make.run(f"run{hour}", owner=owner, created_at=at, updated_at=at)
            open_run(table, run=run, attempt=make.attempt(run.run))
        last = table.runs.get("run2")
        assert last is not None
        table.runs.commit(ended(last, make.attempt("run2"), make))
        assert [run.run for run in table.runs.list()] == ["run2", "run1", "run0"]
        assert [run.run for run in table.runs.list(owner="ada")] == ["run2", "run0"]
        assert [run.run for run in table.runs.list(states={RunState.LAUNCHING})] == ["run1", "run0"]
        assert [run.run for run in table.runs.list(limit=1)] == ["run2"]
        assert list(table.runs.in_flight()) == ["run0", "run1"]

    def test_the_timeline_is_in_order_of_time_however_it_was_written(
        self, table: RunTable, opened: Run, make: Any
    ) -> None:
        for version, ms in enumerate((1500, 20, 700)):
            at = make.noon + timedelta(milliseconds=ms)
            entry = TimelineEntry(run=opened.run, attempt=1, at=at, kind=TimelineKind.TRAINING, text="")
            run = opened.model_copy(update={"version": version})
            table.runs.commit(RunChange(run=run, attempt=make.attempt(), timeline=(entry,)))
        times = [entry.at for entry in table.runs.timeline(opened.run)]
        assert times == sorted(times)
        assert len(times) == 4

    def test_entries_of_one_millisecond_are_in_the_order_in_which_a_job_goes_through_them(
        self, table: RunTable, opened: Run, make: Any
    ) -> None:
        kinds = ["job-created", "interrupted", "starting", "downloading", "training", "uploading", "ended"]
        at = make.noon + timedelta(seconds=1)
        entries = [TimelineEntry(run=opened.run, attempt=1, at=at, kind=TimelineKind(kind), text="") for kind in kinds]
        table.runs.commit(RunChange(run=opened, attempt=make.attempt(), timeline=tuple(reversed(entries))))
        assert table.runs.timeline(opened.run)[1:] == entries

    def test_an_ended_run_expires_with_everything_it_wrote_and_a_live_one_never(
        self, dynamodb: Any, run_table: RunTable, make: Any
    ) -> None:
        opened = open_run(run_table, run=make.run(), attempt=make.attempt()).run
        run_item = dynamodb.items["run#digits-1a2b3c4d", "item"]
        assert "expires_at" not in run_item
        run_table.runs.commit(ended(opened, make.attempt(), make))
        expiry = {key: int(item["expires_at"]["N"]) for key, item in dynamodb.items.items()}
        item_expires = expiry.pop(("run#digits-1a2b3c4d", "item"))
        assert item_expires == int((make.noon + timedelta(hours=1, days=30)).timestamp())
        assert expiry
        assert all(expires > item_expires for expires in expiry.values())


class TestWarmPools:
    def left(self, table: RunTable, opened: Run, make: Any) -> Pool:
        """The run has ended, and its job left a pool."""
        attempt = table.runs.attempt(opened.run, 1)
        pool: Pool = make.pool(run=opened.run, job_name=attempt.job_name)
        table.runs.commit(ended(opened, attempt, make).model_copy(update={"pool": pool, "notifications": ()}))
        return pool

    def changed(self, table: RunTable, pool: Pool, **fields: Any) -> PoolChange:
        run_item, attempt = table.runs.get(pool.run), table.runs.attempt(pool.run, 1)
        return PoolChange(run=run_item, attempt=attempt, pool=pool.model_copy(update=fields))

    @on_both
    def test_kept_pools_come_first_to_expire_first_until_they_are_over(
        self, table: RunTable, opened: Run, make: Any
    ) -> None:
        pool = self.left(table, opened, make)
        assert (table.pools.get(opened.run, 1), table.pools.get(opened.run, 2)) == (pool, None)
        assert list(table.pools.of_run(opened.run)) == [pool]
        other = open_run(table, run=make.run("other-1a2b3c4d"), attempt=make.attempt("other-1a2b3c4d")).run
        sooner = self.left(table, other, make)
        sooner = sooner.model_copy(update={"kept_until": sooner.kept_until - timedelta(minutes=10)})
        table.runs.commit_pool(self.changed(table, sooner))
        assert [kept.run for kept in table.pools.kept()] == [other.run, opened.run]
        table.runs.commit_pool(self.changed(table, sooner, state=PoolState.ENDED))
        assert [kept.run for kept in table.pools.kept()] == [pool.run]

    def test_a_change_on_an_old_view_is_refused(self, table: RunTable, opened: Run, make: Any) -> None:
        pool = self.left(table, opened, make)
        change = self.changed(table, pool, reminders=1)
        table.runs.commit_pool(change)
        with pytest.raises(RunChangedError):
            table.runs.commit_pool(change)

    def test_it_leaves_the_prefix_to_the_run_that_has_it_now(self, table: RunTable, opened: Run, make: Any) -> None:
        pool = self.left(table, opened, make)
        heir = make.run("heir-1a2b3c4d", checkpoint_uri=opened.checkpoint_uri)
        open_run(table, run=heir, attempt=make.attempt("heir-1a2b3c4d"))
        table.runs.commit_pool(self.changed(table, pool, state=PoolState.ENDED))
        assert table.claims.checkpoint_lock_owner(opened.checkpoint_uri) == heir.run

    @on_both
    def test_a_reused_pool_tells_its_heir_since_when_it_is_handed_on(
        self, table: RunTable, opened: Run, make: Any
    ) -> None:
        pool = self.left(table, opened, make)
        assert table.pools.chain_of("next-1") is None
        table.runs.commit_pool(self.changed(table, pool, state=PoolState.REUSED, reused_by="next-1"))
        assert table.pools.chain_of("next-1") == pool.chain_since


class TestRunsInFlight:
    def opened(self, table: RunTable, make: Any, run: str, *, limit: int) -> Run:
        return table.runs.open([NewRun(run=make.run(run), attempt=make.attempt(run))], in_flight_limit=limit)[0].run

    @on_both
    def test_each_run_holds_a_place_until_it_has_ended(self, table: RunTable, make: Any) -> None:
        first = self.opened(table, make, "a", limit=2)
        second = self.opened(table, make, "b", limit=2)
        assert {first.slot, second.slot} == {0, 1}
        assert table.claims.slots_taken() == 2
        with pytest.raises(RunsInFlightError) as refused:
            self.opened(table, make, "c", limit=2)
        assert (refused.value.in_flight, refused.value.limit) == (2, 2)
        over = table.runs.commit(ended(first, make.attempt("a"), make))
        assert over.slot is None
        assert self.opened(table, make, "c", limit=2).slot == first.slot

    def test_an_end_that_is_recorded_again_takes_no_place_from_another_run(self, table: RunTable, make: Any) -> None:
        first = self.opened(table, make, "a", limit=1)
        over = table.runs.commit(ended(first, make.attempt("a"), make))
        self.opened(table, make, "b", limit=1)
        table.runs.commit(RunChange(run=over, attempt=make.attempt("a")))
        assert table.claims.slots_taken() == 1

    def test_a_next_attempt_takes_a_place_again(self, table: RunTable, make: Any) -> None:
        first = self.opened(table, make, "a", limit=1)
        over = table.runs.commit(ended(first, make.attempt("a"), make))
        self.opened(table, make, "b", limit=1)
        again = make.attempt("a", 2)
        with pytest.raises(RunsInFlightError):
            table.runs.begin_attempt(run=over, attempt=again, in_flight_limit=1)
        assert table.runs.begin_attempt(run=over, attempt=again, in_flight_limit=2).slot == 1

    def test_the_runs_of_one_launch_take_their_places_in_one_transaction(self, table: RunTable, make: Any) -> None:
        new = a_group(make, size=MAX_RUNS)
        with pytest.raises(RunsInFlightError):
            table.runs.open(new, in_flight_limit=MAX_RUNS - 1)
        opened = table.runs.open(new, in_flight_limit=MAX_RUNS)
        assert {each.run.slot for each in opened} == set(range(MAX_RUNS))
