"""A job's own log as a weapon: against the functions that follow all runs, against another run, against the bill.

Who: a user who writes a training script, and every job whose role may write into the log group that all jobs share.
With what: lines of `spotkeep-event:`, as many, as long, as deep and as large as CloudWatch Logs takes.
What for: a function that runs out of memory or time follows no run, and comes back to the same one first; a number that
no table takes keeps a run from ever ending; a line in another run's stream says how far that run is, and what it
trained twice.
"""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from controller.full_pass import FullPass
from launcher.answers import described
from spotkeep_jobs.backends.sagemaker.training_job import without_launch_id
from spotkeep_jobs.document.deployment_facts import PoolRules
from spotkeep_jobs.progress.job_log import MOST_RESUMES, LogAccount
from spotkeep_jobs.progress.training_logs import JobLogs
from spotkeep_jobs.record.record import JobUsage, Run
from spotkeep_jobs.record.states import RunState, TimelineKind
from spotkeep_jobs.record.table_client import to_dynamodb
from spotkeep_jobs.runs.rules import LAUNCH_SETTLES
from spotkeep_jobs.runs.run_reconciler import MOST_UNFINISHED_READINGS
from tests.models.logs import Logs
from tests.models.sagemaker import launch_marks
from tests.spotkeep_jobs.conftest import NOON, Make, World

from .policies import ACCOUNT, REGION, Policies

MEBIBYTE = 2**20
MOST_MEMORY = 32 * MEBIBYTE
"""Beside what a function has before: of its 512 MB."""
PAGES = 60
RUN = "digits-1a2b3c4d"
LAUNCH = f"launch of {RUN}-1"
STREAMS = f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:/aws/sagemaker/TrainingJobs"
make = Make()


def line(**fields: Any) -> str:
    return "spotkeep-event: " + json.dumps({"time": NOON.timestamp() + 60, "launch": LAUNCH, **fields})


def page_of(said: str) -> list[str]:
    """A megabyte of one line, or the ten thousand that AWS puts into a page at most."""
    return [f"{number} {said}" for number in range(min(10_000, MEBIBYTE // len(said) + 1))]


class Flood(Logs):
    """CloudWatch Logs with one stream of pages that are made when they are read: more than memory holds."""

    def __init__(self, made: Callable[[int], list[str]], *, pages: int = PAGES) -> None:
        super().__init__()
        self.streams = {f"{RUN}-1/algo-1-1": []}
        self.pages = pages
        self._made = made

    def filter_log_events(self, **query: Any) -> dict[str, Any]:
        number = int(query.get("nextToken", 0))
        self.queries.append(query)
        wanted = query["filterPattern"].strip('"')
        events = [{"message": message} for message in self._made(number) if wanted in message]
        return {"events": events} | ({"nextToken": str(number + 1)} if number + 1 < self.pages else {})


@dataclass
class Functions:
    """The functions' parts, on fakes."""

    world: World = field(default_factory=World)
    calls: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.world.dynamodb.before_call = lambda operation: self.calls.update([operation])

    def launch(self, run: str = RUN, **fields: Any) -> None:
        run_item = self.world.launch(make.run(run, **fields), make.attempt(run))
        self.world.sagemaker.has_job(
            run_item.job_name,
            ("Starting", 0.0), ("Training", 1.0), ("Completed", 31.0),
            TrainingTimeInSeconds=1_800, BillableTimeInSeconds=600,
        )  # fmt: skip

    def says(self, *lines: str, run: str = RUN) -> None:
        self.world.logs.lines[f"{run}-1"] = list(lines)

    def flood(self, page: Callable[[int], list[str]], *, elapsed: Callable[[], float] = lambda: 0.0) -> Flood:
        flood = Flood(page)
        self.world.job_logs = JobLogs(flood, elapsed=elapsed)  # type: ignore[arg-type]
        self.world.watch_pools(PoolRules())
        return flood

    def reconciled(self) -> Run:
        """Reconcile the run, and return its record."""
        observed = self.world.runs.reconcile(RUN)
        assert observed is not None
        return observed.run

    def usage(self) -> JobUsage:
        """Return what is recorded of the job of its first attempt."""
        attempt = self.world.table.runs.attempt(RUN, 1)
        assert attempt is not None
        assert attempt.usage is not None
        return attempt.usage

    def sweep(self) -> None:
        FullPass(self.world.controller).run()


def test_the_id_of_a_launch_is_not_among_what_is_shown_of_a_run() -> None:
    """Who has it can print lines that count as the job's."""
    attempt = make.attempt(
        RUN, job_request={"Environment": launch_marks(f"{RUN}-1"), "Fleet": {"job": {"launch": LAUNCH}}}
    )
    assert LAUNCH not in json.dumps(without_launch_id(attempt))
    assert LAUNCH not in json.dumps(described(make.run(RUN), None))


@pytest.mark.parametrize("role", ["ExecutionRole", "InstanceRole"])
def test_no_job_can_learn_the_id_of_another_launch(policies: Policies, role: str) -> None:
    """Not from a log, not from a job, and not from the run's partition of the run table."""
    for action, resource in {
        "logs:FilterLogEvents": STREAMS,
        "logs:GetLogEvents": f"{STREAMS}:log-stream:digits-1/algo-1-1",
        "sagemaker:DescribeTrainingJob": f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-job/digits-1",
        "ec2:DescribeFleets": "*",
        "ec2:DescribeLaunchTemplateVersions": "*",
    }.items():
        assert not policies.allows(role, action, resource), action
    table = policies.arn("AWS::DynamoDB::Table")
    for action in ("dynamodb:GetItem", "dynamodb:Query"):
        assert not policies.allows(role, action, table, {"dynamodb:LeadingKeys": ["run#digits-1"]}), action


def test_training_jobs_may_write_into_each_others_streams_which_is_why_lines_carry_the_id(policies: Policies) -> None:
    """They share a role, and SageMaker gives its sessions no name or tag of the job that a policy could use."""
    assert policies.allows("ExecutionRole", "logs:PutLogEvents", f"{STREAMS}:log-stream:another-1/algo-1-1")


@pytest.fixture
def functions() -> Functions:
    return Functions()


def nested(depth: int) -> str:
    return f'spotkeep-event: {{"launch": "{LAUNCH}", "event": "progress", "time": 1, "x": ' + "[" * depth


HOSTILE: dict[str, tuple[str, int]] = {
    "longer lines than are taken": (line(event="progress", step=1, reason="x" * 200_000), PAGES),
    "lines without an end": (line(event="saved", step=1, reason="x" * 10_000)[:-2], 2),
    "the longest lines that are taken": (line(event="progress", step=1, metrics={str(n): n for n in range(1_200)}), 2),
    "as many lines as a page holds": (LAUNCH, 2),
    "lines that are nested deep": (nested(8_000), 2),
    "fields that nothing knows": (line(event="saved", step=1, **{f"x{n}": [n] for n in range(1_000)}), 2),
}
"""Lines, and of how many pages: what is slow to read while memory is measured is of fewer, and each is forgotten."""


@pytest.mark.long
@pytest.mark.parametrize(("said", "pages"), HOSTILE.values(), ids=HOSTILE)
def test_sixty_pages_of_hostile_lines_take_bounded_memory(functions: Functions, said: str, pages: int) -> None:
    functions.launch()
    functions.flood(lambda number: page_of(said) if number < pages else [line(event="saved", step=1)])
    with memory_at_most(MOST_MEMORY):
        assert functions.reconciled().state is RunState.COMPLETED


@pytest.mark.long
def test_memory_does_not_grow_with_the_number_of_lines() -> None:
    """Each page is added up and forgotten: two of the small ones are a third of a megabyte, all lines are two."""
    client = Flood(lambda number: [line(event="resume", step=n, checkpoint="c" * 40) for n in range(200)], pages=25)
    account = LogAccount(launch=LAUNCH)
    with memory_at_most(MEBIBYTE // 2):
        JobLogs(client, elapsed=lambda: 0.0).read([f"{RUN}-1"], account.take, launch=LAUNCH)  # type: ignore[arg-type]
    with memory_at_most(MEBIBYTE // 2):
        log = account.log()
    assert log.resumes_left_out == 5_000 - MOST_RESUMES


def test_thousands_of_resumes_are_a_bounded_number_of_transactions(functions: Functions) -> None:
    functions.launch()
    functions.says(*(line(event="resume", time=NOON.timestamp() + 60 + n / 10, step=n) for n in range(8_000)))
    functions.calls.clear()
    assert functions.reconciled().state is RunState.COMPLETED
    assert functions.calls["TransactWriteItems"] <= 1 + MOST_RESUMES // 20
    resumes = [entry for entry in functions.world.table.runs.timeline(RUN) if entry.kind is TimelineKind.STEP_RESUMED]
    assert len(resumes) == MOST_RESUMES + 1
    assert resumes[0].text == "The script had taken up its work 7,800 times before, which is not listed"


def test_a_number_too_small_for_dynamodb_is_stored_as_none_at_all() -> None:
    """A job that printed it as a time, in a run with a deadline, had each reconciliation of its run raise."""
    assert to_dynamodb({"at": 2.2250738585e-313, "more": [-1e-200, 0.5]}) == {
        "at": {"N": "0"},
        "more": {"L": [{"N": "0"}, {"N": "0.5"}]},
    }


@pytest.mark.parametrize(
    "fields",
    [
        '"step": 1' + "0" * 4_500,
        '"step": 9007199254740992',
        '"step": 1, "total_steps": 1e308',
        '"step": 1, "seconds": 1e999',
        '"step": 1, "time": NaN',
        '"step": 1, "time": -1e300',
    ],
)
def test_no_number_keeps_a_run_from_ending(functions: Functions, fields: str) -> None:
    functions.launch()
    broken = f'spotkeep-event: {{"launch": "{LAUNCH}", "time": 1, "event": "progress", {fields}}}'
    functions.says(line(event="resume", step=0), broken, line(event="finish", step=10, time=NOON.timestamp() + 100))
    functions.reconciled()
    run = functions.reconciled()
    assert run.state is RunState.COMPLETED
    assert run.log_warning == f"event lines in the log of {RUN}-1 were refused: 1 with a number out of bounds"
    assert functions.usage().last_step == 10, "the lines around it count"


def test_who_subscribes_hears_of_refused_lines_once_for_each_run(functions: Functions) -> None:
    functions.launch(notify=("log-refused", "completed"))
    functions.says(line(event="progress", step=10**50), line(event="progress", step=1, reason="x" * 20_000))
    functions.world.runs.reconcile(RUN)
    functions.sweep()
    sent = [notification.notification_id for notification in functions.world.topic.published]
    assert sorted(sent) == [f"{RUN}/completed/1", f"{RUN}/log-refused/1"]
    warned = next(each for each in functions.world.topic.published if each.kind.value == "log-refused")
    assert "1 with a number out of bounds, 1 longer than 16,384 characters" in " ".join(warned.body.split())
    kinds = [entry.kind for entry in functions.world.table.runs.timeline(RUN)]
    assert kinds.count(TimelineKind.LOG_REFUSED) == 1


def test_lines_of_another_job_in_a_runs_stream_change_nothing_of_it(functions: Functions) -> None:
    """Jobs share a role: one may write into the stream of another, but not with the id of its launch."""
    own = [
        line(event="start"),
        line(event="resume", step=0),
        line(event="progress", step=100, time=NOON.timestamp() + 90),
    ]
    foreign = [
        line(event="progress", step=10**6, launch="launch of another-1"),
        line(event="resume", step=5, launch=None),
        line(event="progress", step=10**6, launch=[LAUNCH]),
        line(event="progress", step=10**6, launch="x", reason=LAUNCH),
    ]
    usages = []
    for lines in (own, [*foreign, *own, *foreign]):
        functions = Functions()
        functions.launch()
        functions.flood(lambda number, lines=lines: lines if number == 0 else [])  # type: ignore[misc]
        functions.reconciled()
        usages.append(functions.usage())
    assert usages[0] == usages[1]
    assert usages[0].last_step == 100


@pytest.mark.long
def test_a_flood_of_another_jobs_lines_is_left_out_before_it_is_sent(functions: Functions) -> None:
    functions.launch()
    page = page_of(line(event="progress", step=7, launch="another"))
    flood = functions.flood(lambda number: page)
    with memory_at_most(8 * MEBIBYTE):
        run = functions.reconciled()
    assert len(flood.queries) == PAGES
    assert (run.state, run.log_warning) == (RunState.COMPLETED, None)


def test_a_falsified_log_hurts_its_own_bill_alone_and_within_what_aws_measured(functions: Functions) -> None:
    functions.launch()
    loops = [
        each
        for n in range(200)
        for each in (
            line(event="start", time=NOON.timestamp() + n),
            line(event="resume", step=0, time=NOON.timestamp() + n + 10**8),
            line(event="progress", step=2**53 - 1, time=NOON.timestamp() + n + 2 * 10**9),
        )
    ]
    functions.says(*loops)
    run, usage = functions.reconciled(), functions.usage()
    assert usage.redone_seconds is not None
    assert usage.redone_seconds <= 1_800
    assert usage.restart_overhead_seconds <= 1_800
    assert run.cost is not None
    assert run.cost.clean_on_demand_seconds >= 0
    assert run.cost.billed_seconds == 600, "what AWS billed is AWS's word"


class KilledError(BaseException):
    """Lambda ends the function: no handler runs any more."""


def test_after_a_function_that_was_killed_the_next_begins_with_other_runs(functions: Functions) -> None:
    for number in range(4):
        functions.launch(f"r{number}")
        functions.world.clock.pass_by(seconds=1)
    world, reads, read_of = functions.world, functions.world.job_logs.read, []

    def read(job_names: Sequence[str], take: Any, /, **asked: Any) -> Any:
        read_of.extend(job_names)
        if "r0-1" in job_names:
            raise KilledError
        return reads(job_names, take, **asked)

    world.job_logs.read = read  # type: ignore[method-assign]
    with pytest.raises(KilledError):
        functions.sweep()
    assert read_of == ["r0-1"]
    read_of.clear()
    world.clock.pass_by(minutes=5)
    with pytest.raises(KilledError):
        functions.sweep()
    assert read_of == ["r1-1", "r2-1", "r3-1", "r0-1"]
    assert {run for run in ("r1", "r2", "r3") if world.table.runs.get(run).state is RunState.COMPLETED} == {
        "r1",
        "r2",
        "r3",
    }  # type: ignore[union-attr]


def test_a_log_that_function_after_function_ends_of_is_passed_over_and_the_run_ends(functions: Functions) -> None:
    functions.launch(notify=("log-refused",))
    world = functions.world
    killed = 0

    def read(job_names: Sequence[str], take: Any, /, **asked: Any) -> Any:
        nonlocal killed
        killed += 1
        raise KilledError

    world.job_logs.read = read  # type: ignore[method-assign]
    for _ in range(MOST_UNFINISHED_READINGS):
        with pytest.raises(KilledError):
            world.runs.reconcile(RUN)
    with pytest.raises(KilledError):
        world.runs.reconcile(RUN)  # The one before may still be reading.
    world.clock.pass_by(seconds=LAUNCH_SETTLES.total_seconds())
    run = functions.reconciled()
    assert (run.state, killed) == (RunState.COMPLETED, MOST_UNFINISHED_READINGS + 1)
    assert run.log_warning == (
        f"the log of {RUN}-1 is not read any more: function after function ended while it read it"
    )
    assert not functions.usage().log_complete, "the bill says that it does not know"


def test_a_log_that_takes_its_time_is_left_in_the_middle_and_the_run_says_so(functions: Functions) -> None:
    functions.launch()
    seconds = iter(range(0, 10_000, 6))
    flood = functions.flood(lambda number: [line(event="progress", step=number)], elapsed=lambda: float(next(seconds)))
    run = functions.reconciled()
    assert (run.state, len(flood.queries)) == (RunState.COMPLETED, 3)
    assert "longer than what is read of one" in (run.log_warning or "")


def test_control_characters_in_a_line_reach_no_record(functions: Functions) -> None:
    functions.launch()
    functions.says(line(event="resume", step=3, checkpoint="\x1b]52;c;cm0gLXJm\x07", reason="\u202e\x00"))
    functions.world.runs.reconcile(RUN)
    written = [functions.world.table.runs.get(RUN), *functions.world.table.runs.timeline(RUN)]
    assert all("\\u001b" not in json.dumps(each.model_dump(mode="json")) for each in written if each is not None)


def test_a_live_runs_flood_leaves_the_sweep_time_for_others(functions: Functions) -> None:
    """A run with a deadline is read at each reconciliation: it comes last, whatever it costs."""
    deadline = NOON + timedelta(hours=20)
    functions.launch("flooded", deadline_at=deadline)
    functions.world.sagemaker.has_job("flooded-1", ("Starting", 0.0), ("Training", 1.0))
    functions.world.clock.pass_by(seconds=1)
    functions.launch("quiet", deadline_at=deadline)
    functions.world.sagemaker.has_job("quiet-1", ("Starting", 0.0), ("Training", 1.0))
    functions.world.clock.pass_by(minutes=1)
    functions.world.runs.reconcile("flooded")
    assert list(functions.world.table.runs.in_flight()) == ["quiet", "flooded"]


@dataclass
class memory_at_most:  # noqa: N801 - reads as what it promises
    """Holds what happens inside to so much memory at once."""

    most: int

    def __enter__(self) -> None:
        tracemalloc.start()

    def __exit__(self, *raised: object) -> None:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        if raised[0] is None:
            assert peak < self.most, f"{peak / MEBIBYTE:.1f} MiB at once"
