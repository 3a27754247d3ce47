"""Whole passes for orphans, on the run table and scripted services: found, left alone, removed, only reported, once an
hour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from spotkeep_jobs.backends.job_view import JobPhase, JobSummary, JobView, WarmPool
from spotkeep_jobs.backends.pool_traits import traits_of
from spotkeep_jobs.orphans.object_store import Stored, StoredRun
from spotkeep_jobs.orphans.sources import (
    CheckpointOrphans,
    OrphanSource,
    ScheduleOrphans,
    Surroundings,
    TrainingJobOrphans,
    WarmPoolOrphans,
)
from spotkeep_jobs.orphans.watch import OrphanWatch
from spotkeep_jobs.pools.scheduler_api import ListedSchedule
from spotkeep_jobs.record.orphan_findings import Finding, Kind, LookReport, Outcome
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.states import RunState

LIFE = (("Starting", 0.0), ("Training", 2.0), ("Completed", 12.0))
OURS = {"spotkeep:deployment": "spotkeep"}


@dataclass
class Account:
    """The account, as far as a test tells what is in it."""

    jobs: dict[str, JobView] = field(default_factory=dict)
    tagged: dict[str, Mapping[str, str]] = field(default_factory=dict)
    schedules: dict[str, tuple[datetime, Mapping[str, Any]]] = field(default_factory=dict)
    stored_of: dict[str, Stored] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    def add(self, job: JobView, *, tags: Mapping[str, str] = OURS) -> None:
        self.jobs[job.name] = job
        self.tagged[job.arn] = tags

    def search_in_progress(self, deployment: str, /) -> Iterator[JobView]:
        for job in self.jobs.values():
            if (
                job.phase not in (JobPhase.STOPPING, JobPhase.ENDED)
                and self.tagged[job.arn].get("spotkeep:deployment") == deployment
            ):
                yield job

    def with_waiting_pool(self, *, since: datetime) -> Iterator[JobSummary]:
        for job in self.jobs.values():
            if (
                job.warm_pool == WarmPool(status="Available")
                and job.training_ended_at
                and job.training_ended_at > since
            ):
                yield JobSummary(name=job.name, arn=job.arn, ended_at=job.training_ended_at)

    def tags(self, arn: str, /) -> Mapping[str, str]:
        self.calls.append("ListTags")
        return self.tagged[arn]

    def observe(self, job_name: str, /) -> JobView | None:
        self.calls.append("DescribeTrainingJob")
        return self.jobs.get(job_name)

    def stop(self, job_name: str, /) -> bool:
        self.done.append(f"stop {job_name}")
        return True

    def keep_alive(self, job_name: str, seconds: int, /) -> None:
        self.done.append(f"keep {job_name} {seconds}")

    def listed(self) -> Iterator[ListedSchedule]:
        return (ListedSchedule(name=name, made_at=made_at) for name, (made_at, _) in self.schedules.items())

    def payload(self, name: str, /) -> Mapping[str, Any] | None:
        return self.schedules[name][1]

    def delete(self, name: str, /) -> None:
        self.done.append(f"delete {name}")

    def runs(self) -> Iterator[StoredRun]:
        return (StoredRun(run=run) for run in self.stored_of)

    def stored(self, run: StoredRun, /) -> Stored | None:
        return self.stored_of[run.run]

    def uri(self, run: StoredRun, /) -> str:
        return f"s3://bucket/runs/{run.run}/"


class Looking:
    """A world with an account around it, ten hours after noon."""

    def __init__(self, world: Any, make: Any) -> None:
        self.world, self.make, self.account = world, make, Account()
        self.table: RunTable = world.table
        self.removes = True

    def look(self) -> LookReport | None:
        around = Surroundings(
            table=self.table,
            deployment="spotkeep",
            prices={"ml.m5.xlarge": 0.23},
            s3_usd_per_gigabyte_month=lambda: 0.023,
            schedule_group="spotkeep-pools",
            clock=self.world.clock,
        )
        sources: tuple[OrphanSource, ...] = (
            TrainingJobOrphans(self.account, around),
            WarmPoolOrphans(self.account, around),
            ScheduleOrphans(self.account, around),
            CheckpointOrphans(self.account, around),
        )
        watch = OrphanWatch(table=self.table, sources=sources, removes=self.removes, clock=self.world.clock)
        return watch.look_if_due()

    def found(self) -> dict[tuple[Kind, str], Outcome]:
        report = self.look()
        assert report is not None
        assert report.unreadable == {}
        return {(each.finding.kind, each.finding.subject): each.outcome for each in report.handled}

    def launch(self, name: str, *story: tuple[str, float], **fields: Any) -> None:
        """A run in flight whose job is in progress."""
        run = self.world.launch(self.make.run(name), self.make.attempt(name))
        self.account.add(self.make.job(*(story or LIFE[:2]), name=run.job_name, **fields))

    def leaves_pool(self, name: str, *, keep_alive_seconds: int = 40_000) -> None:
        """A run that ended and left a pool, which is recorded and scheduled as the controller does."""
        self.world.launch(self.make.run(name, capacity="on-demand"), self.make.attempt(name, capacity="on-demand"))
        job = self.make.job(
            *LIFE, name=f"{name}-1", status="Completed", training_seconds=600, billable_seconds=600,
            training_ended_at=self.make.noon + timedelta(minutes=12), keep_alive_seconds=keep_alive_seconds,
            warm_pool=WarmPool(status="Available"), pool_traits=traits_of(self.make.pool_request()),
        )  # fmt: skip
        self.account.add(job)
        self.world.jobs.known[job.name] = job
        self.world.clock.time = max(self.world.clock.time, self.make.noon + timedelta(minutes=12))
        self.world.runs.reconcile(name)
        for planned in self.world.schedules.made.values():
            self.account.schedules[planned.name] = (self.world.clock(), planned.payload)

    def later(self, **delta: float) -> None:
        self.world.clock.pass_by(**delta)


@pytest.fixture
def looking(world: Any, make: Any) -> Looking:
    return Looking(world, make)


def test_an_account_in_order_has_no_findings_and_no_job_is_described(looking: Looking) -> None:
    for number in range(30):
        looking.launch(f"r{number}")
    looking.account.stored_of = {f"r{number}": Stored(stored_bytes=1, objects=1, newest_at=looking.make.noon)
                                 for number in range(30)}  # fmt: skip
    looking.later(hours=10)
    assert looking.found() == {}
    assert looking.account.calls == []


def test_a_job_that_no_run_knows_is_stopped_and_a_strangers_is_not(looking: Looking) -> None:
    make, account = looking.make, looking.account
    account.add(make.job(("Training", 0.0), name="lost-1"))
    account.add(make.job(("Training", 0.0), name="theirs-1"), tags={"spotkeep:deployment": "lab"})
    account.add(make.job(("Training", 0.0), name="no-runs"), tags={})
    account.add(make.job(("Training", 0.0), name="by-hand", environment={}))
    account.add(make.job(("Training", 0.0), name="tuning-001-2f1e", environment={}, tuning_job_arn="arn:tuning"))
    looking.later(hours=2)
    assert looking.found() == {
        (Kind.UNRECORDED_JOB, "lost-1"): Outcome.REMOVED,
        (Kind.UNRECORDED_JOB, "by-hand"): Outcome.REPORTED,
    }
    assert account.done == ["stop lost-1"]


def test_a_job_that_outlives_its_run_is_stopped(looking: Looking) -> None:
    looking.launch("digits")
    run_item = looking.table.get("digits")
    attempt = looking.table.attempt("digits", 1)
    assert run_item is not None
    assert attempt is not None
    from spotkeep_jobs.record.record import RunChange

    ended = {"state": RunState.FAILED, "ended_at": looking.make.noon}
    looking.table.commit(RunChange(run=run_item.model_copy(update=ended), attempt=attempt))
    looking.later(hours=1)
    assert looking.found() == {(Kind.OUTLIVING_JOB, "digits-1"): Outcome.REMOVED}
    assert looking.account.done == ["stop digits-1"]


def test_a_run_whose_job_is_over_without_anybody_having_seen_it_is_reported(looking: Looking) -> None:
    looking.launch("missed", *LIFE, status="Completed", training_ended_at=looking.make.noon + timedelta(minutes=12))
    looking.launch("deleted")
    del looking.account.jobs["deleted-1"]
    looking.launch("stopping", status="Stopping")
    looking.later(hours=1)
    assert looking.found() == {
        (Kind.STALE_RECORD, "missed"): Outcome.REPORTED,
        (Kind.STALE_RECORD, "deleted"): Outcome.REPORTED,
    }


def test_a_run_on_a_fleet_has_no_training_job_to_be_missed(looking: Looking) -> None:
    looking.world.launch(looking.make.run("fleet", backend="ec2"), looking.make.attempt("fleet", backend="ec2"))
    looking.later(hours=1)
    assert looking.found() == {}


def test_a_recorded_pool_costs_money_and_an_unrecorded_one_is_ended(looking: Looking) -> None:
    looking.leaves_pool("digits")
    stray = replace(looking.account.jobs["digits-1"], name="stray-1", arn="arn:stray")
    looking.account.add(stray)
    looking.account.add(replace(stray, name="theirs-1", arn="arn:theirs"), tags={})
    looking.later(minutes=30)
    assert looking.found() == {
        (Kind.IDLE_POOL, "digits"): Outcome.REPORTED,
        (Kind.UNRECORDED_POOL, "stray-1"): Outcome.REMOVED,
    }
    assert looking.account.done == ["keep stray-1 0"]


def test_schedules_of_pools_that_are_over_are_deleted_and_lost_ones_reported(looking: Looking) -> None:
    looking.leaves_pool("digits")
    looking.account.schedules |= {
        "spotkeep-again-1": (looking.make.noon, {"run": "digits", "attempt": 1, "firing": "again"}),
        "spotkeep-expiry-1": (looking.make.noon, {"run": "gone", "attempt": 1, "firing": "expiry"}),
        "by-hand": (looking.make.noon, {}),
    }
    looking.later(minutes=30)
    assert looking.found() == {
        (Kind.IDLE_POOL, "digits"): Outcome.REPORTED,
        (Kind.SPENT_SCHEDULE, "spotkeep-expiry-1"): Outcome.REMOVED,
    }
    assert looking.account.done == ["delete spotkeep-expiry-1"]
    looking.account.schedules.clear()
    looking.later(hours=1)
    assert looking.found() == {
        (Kind.IDLE_POOL, "digits"): Outcome.REPORTED,
        (Kind.LOST_SCHEDULE, "digits"): Outcome.REPORTED,
    }


def test_checkpoints_of_no_run_are_reported_and_those_that_a_run_uses_are_not(looking: Looking) -> None:
    old = Stored(stored_bytes=2**30, objects=3, newest_at=looking.make.noon)
    looking.account.stored_of = {"gone": old, "base": old, "digits": old}
    uri = "s3://bucket/runs/base/checkpoints/"
    looking.world.launch(looking.make.run("digits", checkpoint_uri=uri), looking.make.attempt("digits"))
    looking.account.add(looking.make.job(("Training", 1.0), name="digits-1"))
    looking.later(days=40)
    assert looking.found() == {(Kind.ORPHANED_CHECKPOINTS, "s3://bucket/runs/gone/"): Outcome.REPORTED}
    assert looking.account.done == []


def test_a_run_that_the_index_does_not_show_yet_keeps_its_checkpoints_and_its_job(looking: Looking) -> None:
    looking.world.dynamodb.let_indexes_lag()
    looking.launch("digits")
    looking.account.stored_of = {"digits": Stored(stored_bytes=1, objects=1, newest_at=looking.make.noon)}
    looking.later(days=40)
    assert looking.found() == {}
    assert looking.account.done == []


def test_a_dry_run_says_what_it_would_do_and_does_nothing(looking: Looking) -> None:
    looking.removes = False
    looking.account.add(looking.make.job(("Training", 0.0), name="lost-1"))
    looking.later(hours=2)
    assert looking.found() == {(Kind.UNRECORDED_JOB, "lost-1"): Outcome.WOULD_REMOVE}
    assert looking.account.done == []


def test_the_account_is_read_once_an_hour_by_the_first_pass(looking: Looking) -> None:
    looks = []
    for _ in range(25):
        looks.append(looking.look() is not None)
        looking.later(minutes=5)
    assert looks == [True, *[False] * 11, True, *[False] * 11, True]


def test_the_last_report_is_kept_for_readers(looking: Looking) -> None:
    looking.account.add(looking.make.job(("Training", 0.0), name="lost-1"))
    looking.later(hours=2)
    report = looking.look()
    assert looking.table.last_look() == report


class Broken:
    """A source that cannot be read, or whose findings cannot be removed."""

    name = "broken"

    def __init__(self, *findings: Finding) -> None:
        self._findings = findings

    def findings(self) -> tuple[Finding, ...]:
        if not self._findings:
            raise ConnectionError("no way there")
        return self._findings

    def remove(self, finding: Finding, /) -> None:
        raise PermissionError(f"may not remove {finding.subject}")


def test_what_fails_is_reported_and_keeps_nothing_else_from_being_read(looking: Looking) -> None:
    looking.account.add(looking.make.job(("Training", 0.0), name="lost-1"))
    looking.later(hours=2)
    kept = looking.look()
    assert kept is not None
    finding = kept.handled[0].finding
    looking.later(hours=2)
    watch = OrphanWatch(
        table=looking.table, sources=(Broken(), Broken(finding)), removes=True, clock=looking.world.clock
    )
    report = watch.look_if_due()
    assert report is not None
    assert report.unreadable == {"broken": "ConnectionError: no way there"}
    [failed] = report.handled
    assert (failed.outcome, failed.problem) == (Outcome.FAILED, "PermissionError: may not remove lost-1")


def test_without_time_nothing_is_read_and_that_is_said(looking: Looking) -> None:
    watch = OrphanWatch(table=looking.table, sources=(Broken(),), removes=True, clock=looking.world.clock)
    report = watch.look_if_due(has_time=lambda: False)
    assert report is not None
    assert report.unreadable == {"broken": "there was no time left for it"}
