"""No record outgrows its item: each is built at all of its bounds at once, written, and measured."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spotkeep_jobs.backends.batch import attempt_view
from spotkeep_jobs.backends.ec2.attempt_view import KEPT_PHASES, MOST_INSTANCES
from spotkeep_jobs.backends.ec2.fleet_table import FleetTable
from spotkeep_jobs.backends.ec2.history import FleetHistory
from spotkeep_jobs.document.fleet import MAX_RUNS
from spotkeep_jobs.orphans.collector import MOST_KEPT, MOST_UNREADABLE
from spotkeep_jobs.progress.job_log import MOST_KEPT as MOST_KEPT_POINTS
from spotkeep_jobs.progress.job_log import MOST_METRICS, MOST_POINTS
from spotkeep_jobs.record.deployment_records import OrphanReport, PriceBook, StackRequest
from spotkeep_jobs.record.fields import MAX_DOCUMENTS_BYTES, MAX_JOB_REQUEST_BYTES, AtMost, shortened
from spotkeep_jobs.record.record import (
    Attempt,
    EarlierTrainingJobs,
    Ending,
    Metric,
    Notification,
    Plan,
    Pool,
    QueuedTrainingJob,
    Record,
    Run,
    RunChange,
    ScriptMetrics,
    TimelineEntry,
    TrainingJobs,
)
from spotkeep_jobs.record.run_store import NewRun
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.schedule import Schedule
from spotkeep_jobs.record.states import EndReason, NotificationState, PoolState, RunState, SweepState
from spotkeep_jobs.record.sweep import Sweep, SweepChange, Trial
from spotkeep_jobs.record.sweep_store import MOST_TRIALS_A_CHANGE
from tests.models.dynamodb import LARGEST_ITEM_BYTES, InMemoryDynamoDb
from tests.spotkeep_jobs.record.worst_records import NOON, all_records, fields_of_kind, worst

NOT_STORED = {"FleetLaunch", "RunChange", "PoolChange", "SweepChange"}
"""What is written in parts, or is a part of a document."""
DOCS = Path(__file__).parents[3] / "docs" / "control-plane.md"


def written() -> InMemoryDynamoDb:
    """A table that holds each kind of record at its bounds."""
    dynamodb = InMemoryDynamoDb()
    dynamodb.checks_conditions = False
    client: Any = dynamodb
    table = RunTable.of(client=client, table_name="runs")
    run, attempt = worst(Run, state=RunState.INTERRUPTED), fitting_attempt()
    table.runs.open([NewRun(run=run, attempt=attempt, plan=worst(Plan))])
    table.runs.commit(
        RunChange(
            run=run,
            attempt=attempt,
            timeline=(worst(TimelineEntry),),
            notifications=(worst(Notification, state=NotificationState.DEAD),),
            pool=worst(Pool, state=PoolState.REUSED),
            metrics=worst(ScriptMetrics),
        )
    )
    sweep = worst(Sweep, state=SweepState.STOPPING)
    table.sweeps.open(sweep)
    table.sweeps.commit(SweepChange(sweep=sweep, trials=(worst(Trial),)))
    table.schedules.open(worst(Schedule))
    table.deployment.keep_price_book(worst(PriceBook))
    table.deployment.keep_orphan_report(worst(OrphanReport), replaces=None)
    table.deployment.keep_deletion(worst(StackRequest))
    FleetTable(client, table_name="runs", retention_days=90).write_history(worst(FleetHistory), new=True)
    return dynamodb


def fitting_attempt(**given: Any) -> Attempt:
    """An attempt in a queue at its bounds: of its training jobs' phases there are so many in all."""
    each = attempt_view.KEPT_PHASES // attempt_view.MOST_TRAINING_JOBS
    job = worst(QueuedTrainingJob)
    job = job.model_copy(update={"phases": job.phases[:each]})
    jobs = worst(TrainingJobs, listed=(job,) * attempt_view.MOST_TRAINING_JOBS)
    return worst(Attempt, training_jobs=jobs, **given)


@pytest.mark.parametrize("kind", [each for each in all_records() if each.__name__ not in NOT_STORED])
def test_every_field_of_every_record_has_a_bound(kind: type[Record]) -> None:
    """A new text, list or mapping without an `AtMost` fails here, with its name."""
    worst(kind)


def test_a_field_without_a_bound_is_found() -> None:
    class Grows(Record):
        lines: tuple[str, ...] = ()

    with pytest.raises(Exception, match=r"Grows\.lines: tuple\[str, \.\.\.\] has no AtMost"):
        worst(Grows)


def test_every_record_fits_its_item_at_all_of_its_bounds_at_once() -> None:
    largest = written().largest
    assert max(largest.values()) <= LARGEST_ITEM_BYTES
    assert {kind for kind in largest if largest[kind] > 1_000} == set(documented()), "docs/control-plane.md lists them"


def documented() -> dict[str, int]:
    """What the documentation says of each kind of item: the largest size, in KB."""
    rows = re.findall(r"^\| `([a-z-]+) ([a-z-]+)` \|.*\| ([\d,]+) KB \|$", DOCS.read_text(), re.MULTILINE)
    return {f"{partition} {sort}": int(size.replace(",", "")) for partition, sort, size in rows}


@pytest.mark.parametrize(("kind", "kilobytes"), documented().items())
def test_the_documentation_says_how_large_each_record_can_be(kind: str, kilobytes: int) -> None:
    assert -(-written().largest[kind] // 1_024) == kilobytes


def test_the_largest_launch_of_several_runs_is_one_transaction() -> None:
    """A transaction takes 4 MB and 100 items: all documents, and what each becomes. Only one run has a plan."""
    each = MAX_DOCUMENTS_BYTES // MAX_RUNS
    dynamodb = InMemoryDynamoDb()
    table = RunTable.of(client=dynamodb, table_name="runs")  # type: ignore[arg-type]
    first = worst(
        Attempt,
        training_jobs=TrainingJobs(),
        job_request={"d": "a" * (each + 50_000)},
    )
    new = [
        NewRun(
            run=worst(
                Run, run=f"r-{n}", checkpoint_uri=f"s3://b/{n}/", token=f"t-{n}", slot=n, request={"d": "a" * each}
            ),
            attempt=first.model_copy(update={"run": f"r-{n}"}),
        )
        for n in range(MAX_RUNS)
    ]
    assert len(table.runs.open(new)) == MAX_RUNS


def test_the_largest_change_of_a_sweep_is_one_transaction() -> None:
    dynamodb = InMemoryDynamoDb()
    dynamodb.checks_conditions = False
    table = RunTable.of(client=dynamodb, table_name="runs")  # type: ignore[arg-type]
    trials = tuple(worst(Trial, number=n) for n in range(MOST_TRIALS_A_CHANGE))
    table.sweeps.commit(SweepChange(sweep=worst(Sweep), trials=trials))


@pytest.mark.parametrize(
    ("kind", "field", "most"),
    [
        (FleetHistory, "lives", MOST_INSTANCES + 1),
        (FleetHistory, "transitions", KEPT_PHASES + 3),
        (TrainingJobs, "listed", attempt_view.MOST_TRAINING_JOBS),
        (QueuedTrainingJob, "phases", attempt_view.KEPT_PHASES),
        (EarlierTrainingJobs, "names", attempt_view.KEPT_NAMES),
        (OrphanReport, "handled", MOST_KEPT),
        (OrphanReport, "unreadable", MOST_UNREADABLE),
        (ScriptMetrics, "metrics", MOST_METRICS),
        (Metric, "points", MOST_KEPT_POINTS),
        (Metric, "bests", MOST_POINTS),
    ],
)
def test_a_bound_is_the_one_that_is_kept(kind: type[Record], field: str, most: int) -> None:
    [bound] = [each for each in fields_of_kind(kind)[field].__metadata__ if isinstance(each, AtMost)]
    assert bound.count == most


@pytest.mark.parametrize(
    ("text", "count", "short"),
    [
        ("fine", 10, "fine"),
        ("1234567890", 4, "1234"),
        ("ääää", 5, "ää"),
        ("\x1b[2J", 100, r"\x1b[2J"),
        ("\ud800", 100, r"\ud800"),
        ("a\nb", 100, "a\nb"),
    ],
)
def test_words_of_others_are_cut_when_they_are_written(text: str, count: int, short: str) -> None:
    assert shortened(text, count) == short


@pytest.mark.parametrize("field", ["waits_because", "log_warning"])
def test_a_record_cuts_what_aws_or_a_script_says(make: Callable[..., Any], field: str) -> None:
    run = make.run().model_copy(update={field: "x" * 100_000})  # type: ignore[attr-defined]
    assert len(run.model_dump(mode="json")[field]) == 1_024
    assert len(Run.model_validate_json(run.model_dump_json()).model_dump()[field]) == 1_024


@pytest.mark.parametrize("field", ["failure_reason", "no_more_jobs_because"])
def test_an_ending_cuts_what_aws_or_a_script_says(field: str) -> None:
    ending = Ending(at=NOON, reason=EndReason.SCRIPT_FAILED, **{field: "x" * 100_000})
    assert len(ending.model_dump(mode="json")[field]) == 1_024
    assert len(Ending.model_validate_json(ending.model_dump_json()).model_dump()[field]) == 1_024


assert MAX_JOB_REQUEST_BYTES < LARGEST_ITEM_BYTES
