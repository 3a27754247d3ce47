"""What any live run, trial, sweep, schedule or waiting launch names is never an orphan, and every real orphan is found.

Tables and accounts are drawn at random. Whatever lives names things: its source, its checkpoints, those that it goes on
from, data, parameters, output. Beside it lie things that no record names. Passes are made, one an hour, each of which
looks at few things.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from math import ceil
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spotkeep_fleet.run_prefixes import PREFIXES
from spotkeep_jobs.backends.sagemaker.training_job import DEPLOYMENT_TAG
from spotkeep_jobs.orphans import sources
from spotkeep_jobs.orphans.decisions import is_named, named_prefixes
from spotkeep_jobs.orphans.sources import RunObjects, in_turn, orphaned_checkpoints
from spotkeep_jobs.record.deployment_records import OrphanKind
from spotkeep_jobs.record.record import Ending, QueuePlace, QuotaWait, Run, RunChange, TrialPlace
from spotkeep_jobs.record.run_store import NewRun
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.schedule import Schedule
from spotkeep_jobs.record.states import EndReason, RunState, SweepState
from spotkeep_jobs.record.sweep import Sweep
from tests.models.clock import NOON
from tests.models.dynamodb import InMemoryDynamoDb
from tests.models.faults import Faults
from tests.spotkeep_jobs.conftest import World, a_pool_request, a_run, an_attempt

from .test_collector import LIFE, Pass

A_PASS: Final = 3
"""So few things a pass looks at here."""
BUCKET: Final = "s3://bucket/"


@pytest.fixture(autouse=True, scope="module")
def few_a_pass() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "MOST_DESCRIBED", A_PASS)
        yield


@dataclass
class Site:
    """An account and a table, what lives in them, and what does not.

    Attributes:
        live: Keys' prefixes, jobs, service jobs that something live names or is.
        lost: Those of nothing that is recorded.
    """

    world: World = field(default_factory=World)
    live: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    passing: Pass = field(init=False)

    def __post_init__(self) -> None:
        self.passing = Pass(self.world, None)
        self.passing.queue_names = ("gpu",)

    @property
    def table(self) -> RunTable:
        return self.world.table

    def stores(self, prefix: str) -> None:
        self.passing.objects.written[f"{prefix}checkpoints/x"] = NOON - timedelta(days=3)

    def names(self, prefix: str) -> str:
        """Something is stored that what lives names; return its address."""
        self.stores(prefix)
        self.live.add(BUCKET + prefix)
        return f"{BUCKET}{prefix}"

    def has(self, run: str) -> None:
        for prefix in PREFIXES:
            self.names(f"{prefix}{run}/")

    def has_pool(self, job_name: str) -> None:
        request = a_pool_request()
        request["ResourceConfig"]["KeepAlivePeriodInSeconds"] = 1_000_000
        self.world.sagemaker.has_job(
            job_name, *LIFE, request=request, TrainingTimeInSeconds=600, BillableTimeInSeconds=600
        )

    def submits(self, run: str, launch: str) -> str:
        """A service job waits in the queue with the marks of a launch."""
        marks = {"SPOTKEEP_RUN": run, "SPOTKEEP_ATTEMPT": "1", "SPOTKEEP_LAUNCH": launch}
        submitted = self.world.batch.submit_service_job(
            jobName=f"{run}-1",
            jobQueue="spotkeep_gpu",
            quotaShareName="vision",
            schedulingPriority=0,
            serviceRequestPayload=json.dumps({"Environment": marks}),
            clientToken=run,
            tags={DEPLOYMENT_TAG: "spotkeep"},
        )
        return str(submitted["jobId"])


def document(site: Site, kind: str, number: int) -> dict[str, Any]:
    """A document that names things of its own: what was uploaded for it, or what another run left, long forgotten."""
    base = f"{kind}-{number}-base"
    beginning = site.names(f"runs/{base}-beginning/").removesuffix("ning/")
    return {
        "name": kind,
        "source": {"uri": site.names(f"sources/{base}/") + "0.tar.gz", "sha256": "0" * 64},
        "checkpoint_prefix": site.names(f"runs/{base}-checkpoints/") + "checkpoints/",
        "channels": {"train": {"uri": site.names(f"teams/vision/runs/{base}/")}, "all": {"uri": beginning}},
        "environment": {"NAME": "Zoë", "WARM_START": site.names(f"runs/{base}-model/") + "output/model.tar.gz"},
        "command": f"python train.py --from={site.names(f'runs/{base}-command/')}output/",
    }


def new(run: Run) -> NewRun:
    return NewRun(run=run, attempt=an_attempt(run.run, queue=run.place.queue))


def a_live_run(site: Site, number: int, **fields: Any) -> Run:
    run = f"live-{number}"
    site.has(run)
    place = site.names(f"runs/place-{number}/")
    where = {"checkpoint_uri": f"{place}checkpoints/", "output_prefix": f"{place}output/"}
    return a_run(run, request=document(site, "run", number), **where | fields)


def works(site: Site, number: int) -> None:
    run = a_live_run(site, number)
    site.world.launch(run, an_attempt(run.run))
    site.world.sagemaker.has_job(run.job_name, ("Training", 1.0))
    site.live.add(run.job_name)


def is_half_done(site: Site, number: int) -> None:
    """Its job was created, and the launcher died before it could record that."""
    run = a_live_run(site, number)
    site.table.runs.open([new(run)])
    site.world.sagemaker.has_job(run.job_name, ("Training", 1.0))
    site.live.add(run.job_name)


def waits_for_quota(site: Site, number: int) -> None:
    wait = QuotaWait(since=NOON, refused_at=NOON, reason="no room")
    site.table.runs.open([new(a_live_run(site, number, quota_wait=wait))])


def waits_in_a_queue(site: Site, number: int) -> None:
    run = a_live_run(site, number, queue=QueuePlace(queue="gpu", share="vision"))
    site.table.runs.open([new(run)])
    site.live.add(site.submits(run.run, f"launch of {run.job_name}"))


def leaves_a_pool(site: Site, number: int) -> None:
    run = a_live_run(site, number, capacity="on-demand")
    site.world.launch(run, an_attempt(run.run, capacity="on-demand"))
    site.has_pool(run.job_name)
    site.world.runs.reconcile(run.run)
    site.live.add(run.job_name)


def has_ended(site: Site, number: int) -> None:
    """It may be resumed, for a year."""
    run = a_live_run(site, number)
    site.table.runs.open([new(run)])
    attempt = an_attempt(run.run)
    ended = {"state": RunState.FAILED, "ending": Ending(at=NOON, reason=EndReason.JOB_VANISHED)}
    site.table.runs.commit(RunChange(run=run.model_copy(update=ended), attempt=attempt))


def is_a_sweep(site: Site, number: int) -> None:
    """One trial works, and another of its runs is to be opened."""
    sweep = f"sweep-{number}"
    site.has(sweep)
    asked = document(site, "sweep", number)
    site.table.sweeps.open(
        Sweep(sweep=sweep, name=sweep, created_at=NOON, updated_at=NOON, token=sweep, document=asked)
    )
    trial = a_live_run(site, 10_000 + number, trial=TrialPlace(sweep=sweep, number=1))
    site.world.launch(trial, an_attempt(trial.run))
    site.world.sagemaker.has_job(trial.job_name, ("Training", 1.0))
    site.live.add(trial.job_name)


def is_an_ended_sweep(site: Site, number: int) -> None:
    sweep = f"over-{number}"
    site.has(sweep)
    asked = document(site, "over", number)
    site.table.sweeps.open(
        Sweep(
            sweep=sweep,
            name=sweep,
            state=SweepState.STOPPED,
            created_at=NOON,
            updated_at=NOON,
            ended_at=NOON,
            token=sweep,
            document=asked,
        )
    )


def is_a_schedule(site: Site, number: int) -> None:
    schedule = f"nightly-{number}"
    site.names(f"sources/{schedule}/")
    site.table.schedules.open(
        Schedule(
            schedule=schedule,
            name=schedule,
            expression="rate(1 day)",
            timezone="UTC",
            created_at=NOON,
            begins_at=NOON,
            token=schedule,
            document=document(site, "schedule", number),
        )
    )


LIVES: Final[tuple[Callable[[Site, int], None], ...]] = (
    works, is_half_done, waits_for_quota, waits_in_a_queue, leaves_a_pool, has_ended,
    is_a_sweep, is_an_ended_sweep, is_a_schedule,
)  # fmt: skip


def loses_objects(site: Site, number: int) -> None:
    for begin in ("", "teams/vision/"):
        for prefix in PREFIXES:
            site.stores(f"{begin}{prefix}gone-{number}/")
            site.lost.add(f"{BUCKET}{begin}{prefix}gone-{number}/")


def loses_a_job(site: Site, number: int) -> None:
    site.world.sagemaker.has_job(f"gone-{number}-1", ("Training", 1.0))
    site.lost.add(f"gone-{number}-1")


def loses_a_service_job(site: Site, number: int) -> None:
    site.lost.add(site.submits(f"gone-{number}", "launch"))


def loses_a_pool(site: Site, number: int) -> None:
    site.has_pool(f"gone-{number}-1")
    site.lost.add(f"gone-{number}-1")


LOSES: Final[tuple[Callable[[Site, int], None], ...]] = (loses_objects, loses_a_job, loses_a_service_job, loses_a_pool)


@settings(max_examples=50)
@given(lives=st.lists(st.sampled_from(LIVES), max_size=8), loses=st.lists(st.sampled_from(LOSES), max_size=4))
@example(lives=[is_a_sweep] * 8, loses=[loses_objects])
@example(lives=[waits_in_a_queue] * 8, loses=[loses_a_service_job])
def test_what_lives_is_never_found_and_what_is_lost_always_is(
    lives: list[Callable[[Site, int], None]], loses: list[Callable[[Site, int], None]]
) -> None:
    site = Site()
    site.world.clock.pass_by(minutes=15)
    for number, begins in enumerate([*lives, *loses]):
        begins(site, number)
    site.passing.removes = False
    site.world.clock.pass_by(hours=1)
    found: set[str] = set()
    for _ in range(ceil((len(site.lost) + len(lives)) / A_PASS) + 1):
        site.world.clock.pass_by(hours=1)
        found |= {subject for kind, subject in site.passing.found() if kind is not OrphanKind.IDLE_POOL}
    assert not found & site.live
    assert found == site.lost


@given(
    there=st.sets(st.text("abc", min_size=1, max_size=3), max_size=20),
    comes=st.lists(st.text("abc", min_size=1, max_size=3), max_size=5),
)
def test_each_thing_has_its_turn_whatever_comes_meanwhile(there: set[str], comes: list[str]) -> None:
    looked_at, after, now = set[str](), None, set(there)
    for _ in range(ceil((len(there) + len(comes)) / A_PASS) + 1):
        chosen, after = in_turn(now, after=after)
        assert len(chosen) <= A_PASS
        looked_at |= set(chosen)
        now |= set(comes[:1])
        comes = comes[1:]
    assert there <= looked_at


def test_a_pass_reads_the_records_by_pages_and_none_of_them_alone() -> None:
    """Runs of trials are the most of what is recorded: a year's stay in the table."""
    site = Site()
    for number in range(30):
        trial = a_live_run(site, number, trial=TrialPlace(sweep="sweep", number=number))
        site.table.runs.open([new(trial)])
    faults = Faults()
    counted = InMemoryDynamoDb(faults)
    counted.items, counted._partitions = site.world.dynamodb.items, site.world.dynamodb._partitions
    table = RunTable.of(client=counted, table_name="runs")  # type: ignore[arg-type]
    around = replace(site.passing.around(), table=table)
    assert orphaned_checkpoints(RunObjects(site.passing.objects, bucket="bucket"), around).orphans == []
    assert faults.calls == ["Query"] * 4, "a page of each kind of record"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("s3://bucket/runs/a/checkpoints/", {"runs/a/"}),
        ("s3://bucket/teams/vision/sources/a/0.tar.gz", {"teams/vision/sources/a/"}),
        ('["s3://bucket/runs/a", "s3://bucket/specs/b/0.json"]', {"runs/a", "specs/b/"}),
        ("s3://bucket/runs/", set()),
        ("s3://bucket", set()),
        ("s3://bucket-2/runs/a/", set()),
        ("s3://bucket/bundles/a/", set()),
    ],
)
def test_what_a_text_names(text: str, named: set[str]) -> None:
    assert set(named_prefixes(text, bucket="bucket")) == named


def test_a_name_without_its_slash_names_all_that_begin_alike_as_s3_does() -> None:
    assert [is_named(prefix, {"runs/a"}) for prefix in ("runs/a/", "runs/ab/", "runs/b/")] == [True, True, False]
    assert not is_named("runs/ab/", {"runs/a/"})
