"""Whole passes for orphans, on the models of AWS: found, left alone, removed, only reported, once an hour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from spotkeep_jobs.orphans.collector import OrphanCollector
from spotkeep_jobs.orphans.sources import Found, OrphanSearch, OrphanSource, PossibleOrphan, sources_of
from spotkeep_jobs.record.deployment_records import OrphanKind, OrphanOutcome, OrphanReport
from spotkeep_jobs.record.record import Ending, RunChange
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.states import EndReason, RunState
from tests.models.faults import Fault
from tests.models.s3 import Objects

LIFE = (("Starting", 0.0), ("Training", 2.0), ("Completed", 12.0))


class Pass:
    """A world with an account around it, ten hours after noon."""

    queue_names: tuple[str, ...] = ()

    def __init__(self, world: Any, make: Any) -> None:
        self.world, self.make, self.sagemaker = world, make, world.sagemaker
        self.table: RunTable = world.table
        self.objects = Objects()
        self.removes = True

    def around(self) -> OrphanSearch:
        return OrphanSearch(
            table=self.table,
            deployment="spotkeep",
            prices={"ml.m5.xlarge": 0.23},
            s3_usd_per_gigabyte_month=lambda: 0.023,
            clock=self.world.clock,
        )

    def make_one(self) -> OrphanReport | None:
        sources = sources_of(
            around=self.around(),
            jobs=self.world.jobs,
            s3=self.objects,
            checkpoint_bucket="bucket",
            isolated_teams=("vision",),
            fleets=None,
            queues=self.world.queues,
            queue_names=self.queue_names,
        )
        return self.collector(sources).collect_if_due()

    def collector(self, sources: Mapping[str, OrphanSource]) -> OrphanCollector:
        return OrphanCollector(table=self.table, sources=sources, removes=self.removes, clock=self.world.clock)

    def store(self, *runs: str) -> None:
        """Something that lies below the prefix of each run, written at noon."""
        for run in runs:
            self.objects.written[f"runs/{run}/checkpoints/step-1/manifest.json"] = self.make.noon

    def found(self) -> dict[tuple[OrphanKind, str], OrphanOutcome]:
        report = self.make_one()
        assert report is not None
        assert report.unreadable == {}
        assert self.table.deployment.last_orphan_report() == report, "it is kept for readers"
        return {(each.finding.kind, each.finding.subject): each.outcome for each in report.handled}

    def launch(self, name: str) -> None:
        """A run in flight whose job is in progress."""
        run = self.world.launch(self.make.run(name), self.make.attempt(name))
        self.sagemaker.has_job(run.job_name, *LIFE[:2])

    def leaves_pool(self, job_name: str, **asked: Any) -> None:
        """A job ended and left a pool, twelve minutes after noon."""
        request = self.make.pool_request() | asked
        request["ResourceConfig"]["KeepAlivePeriodInSeconds"] = 40_000
        self.sagemaker.has_job(job_name, *LIFE, request=request, TrainingTimeInSeconds=600, BillableTimeInSeconds=600)

    def later(self, **delta: float) -> None:
        self.world.clock.pass_by(**delta)


@pytest.fixture
def passing(world: Any, make: Any) -> Pass:
    return Pass(world, make)


def test_an_account_in_order_has_no_findings_and_no_job_is_described(passing: Pass) -> None:
    for number in range(30):
        passing.launch(f"r{number}")
    passing.store(*(f"r{number}" for number in range(30)))
    # A run on a fleet has no training job to be missed.
    passing.world.launch(passing.make.run("fleet", backend="ec2"), passing.make.attempt("fleet", backend="ec2"))
    passing.later(hours=10)
    assert passing.found() == {}
    assert {"ListTags", "DescribeTrainingJob"}.isdisjoint(passing.world.faults.calls)


def test_a_job_that_no_run_knows_is_stopped_and_a_strangers_is_not(passing: Pass) -> None:
    trains, sagemaker = ("Training", 0.0), passing.sagemaker
    sagemaker.has_job("lost-1", trains)
    sagemaker.has_job("theirs-1", trains, request={"Tags": [{"Key": "spotkeep:deployment", "Value": "lab"}]})
    sagemaker.has_job("no-runs", trains, request={"Tags": []})
    sagemaker.has_job("by-hand", trains, request={"Environment": {}})
    sagemaker.has_job("tuning-001-2f1e", trains, request={"Environment": {}}, TuningJobArn="arn:tuning")
    passing.later(hours=2)
    assert passing.found() == {(OrphanKind.UNRECORDED_JOB, "lost-1"): OrphanOutcome.REMOVED}
    assert sagemaker.stopped == ["lost-1"]


def test_a_job_that_outlives_its_run_is_stopped(passing: Pass) -> None:
    passing.launch("digits")
    run_item = passing.table.runs.get("digits")
    attempt = passing.table.runs.attempt("digits", 1)
    assert run_item is not None
    assert attempt is not None
    ended = {"state": RunState.FAILED, "ending": Ending(at=passing.make.noon, reason=EndReason.JOB_VANISHED)}
    passing.table.runs.commit(RunChange(run=run_item.model_copy(update=ended), attempt=attempt))
    passing.later(hours=1)
    assert passing.found() == {(OrphanKind.OUTLIVING_JOB, "digits-1"): OrphanOutcome.REMOVED}
    assert passing.sagemaker.stopped == ["digits-1"]


def test_a_recorded_pool_costs_money_and_an_unrecorded_one_is_ended(passing: Pass) -> None:
    world, make = passing.world, passing.make
    world.launch(make.run("digits", capacity="on-demand"), make.attempt("digits", capacity="on-demand"))
    passing.leaves_pool("digits-1")
    passing.leaves_pool("stray-1")
    passing.leaves_pool("theirs-1", Tags=[])
    passing.later(minutes=12)
    world.runs.reconcile("digits")
    passing.later(minutes=30)
    assert passing.found() == {
        (OrphanKind.IDLE_POOL, "digits"): OrphanOutcome.REPORTED,
        (OrphanKind.UNRECORDED_POOL, "stray-1"): OrphanOutcome.REMOVED,
    }
    pools = {name: job.pool for name, job in passing.sagemaker.jobs.items()}
    assert pools == {"digits-1": "Available", "stray-1": "Terminated", "theirs-1": "Available"}


def test_checkpoints_of_no_run_are_reported_and_those_that_a_run_uses_are_not(passing: Pass) -> None:
    passing.store("gone", "base", "digits")
    uri = "s3://bucket/runs/base/checkpoints/"
    passing.world.launch(passing.make.run("digits", checkpoint_uri=uri), passing.make.attempt("digits"))
    passing.sagemaker.has_job("digits-1", ("Training", 1.0))
    passing.later(days=40)
    assert passing.found() == {(OrphanKind.ORPHANED_CHECKPOINTS, "s3://bucket/runs/gone/"): OrphanOutcome.REPORTED}
    assert passing.sagemaker.stopped == []


def test_a_run_that_the_index_does_not_show_yet_keeps_its_checkpoints_and_its_job(passing: Pass) -> None:
    passing.world.dynamodb.let_indexes_lag()
    passing.launch("digits")
    passing.store("digits")
    passing.later(days=40)
    assert passing.found() == {}
    assert passing.sagemaker.stopped == []


def test_a_dry_run_says_what_it_would_do_and_does_nothing(passing: Pass) -> None:
    passing.removes = False
    passing.sagemaker.has_job("lost-1", ("Training", 0.0))
    passing.later(hours=2)
    assert passing.found() == {(OrphanKind.UNRECORDED_JOB, "lost-1"): OrphanOutcome.WOULD_REMOVE}
    assert passing.sagemaker.stopped == []


def test_the_account_is_read_once_an_hour_by_the_first_pass(passing: Pass) -> None:
    made = []
    for _ in range(13):
        made.append(passing.make_one() is not None)
        passing.later(minutes=5)
    assert made == [True, *[False] * 11, True]


def unreadable(_after: str | None) -> Found:
    """A source that cannot be read."""
    raise ConnectionError("no way there")


def test_what_fails_is_reported_and_keeps_nothing_else_from_being_read(passing: Pass) -> None:
    passing.sagemaker.has_job("lost-1", ("Training", 0.0))
    passing.later(hours=2)
    kept = passing.make_one()
    assert kept is not None
    finding = kept.handled[0].finding
    passing.later(hours=2)

    def refused() -> None:
        raise PermissionError(f"may not remove {finding.subject}")

    orphan = PossibleOrphan(finding=finding, remove=refused)
    report = passing.collector({"broken": unreadable, "jobs": lambda _after: Found(orphans=[orphan])}).collect_if_due()
    assert report is not None
    assert report.unreadable == {"broken": "ConnectionError: no way there"}
    [failed] = report.handled
    assert (failed.outcome, failed.problem) == (OrphanOutcome.FAILED, "PermissionError: may not remove lost-1")


@pytest.mark.parametrize(("operation", "call"), [("DescribeTrainingJob", 0), ("ListObjectsV2", 6)])
def test_one_thing_that_cannot_be_read_is_reported_and_all_else_is_found(
    passing: Pass, operation: str, call: int
) -> None:
    """Six calls list the prefixes of two teams; the next ones list what is below each."""
    passing.objects = Objects(passing.world.faults)
    for number in range(3):
        passing.sagemaker.has_job(f"lost-{number}-1", ("Training", 0.0))
    passing.store("gone-0", "gone-1", "gone-2")
    passing.later(days=2)
    passing.world.faults.strike(Fault.REFUSED, call=call, operation=operation)
    report = passing.make_one()
    assert report is not None
    [why] = report.unreadable.values()
    assert "ThrottlingException" in why
    assert len(report.handled) == 5


def test_a_record_that_cannot_be_read_hides_no_orphan_and_what_is_its_own_is_none(passing: Pass) -> None:
    """As after a rollback: an item that a newer version has written."""
    passing.world.launch(passing.make.run("newer"), passing.make.attempt("newer"))
    passing.sagemaker.has_job("newer-1", ("Training", 0.0))
    passing.sagemaker.has_job("lost-1", ("Training", 0.0))
    items = passing.world.dynamodb.items
    items["run#newer", "item"] |= {"form": {"N": "2"}}
    passing.later(hours=2)
    report = passing.make_one()
    assert report is not None
    assert [each.finding.subject for each in report.handled] == ["lost-1"]
    assert any("a newer version of Spotkeep" in why for why in report.unreadable.values())


def test_without_time_nothing_is_read_and_that_is_said(passing: Pass) -> None:
    report = passing.collector({"broken": unreadable}).collect_if_due(has_time=lambda: False)
    assert report is not None
    assert report.unreadable == {"broken": "there was no time left for it"}
