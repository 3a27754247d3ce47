"""What speaks against a rehearsed sweep: each check fails for its own reason and no other."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from spotkeep_cli.rehearsal.evidence import ProcessEnding, ReceivedNotification, RehearsedProcess
from spotkeep_cli.rehearsal.report import SweepReport
from spotkeep_cli.rehearsal.sweep_verdict import (
    RehearsedTrial,
    SweepEvidence,
    TrialServiceJob,
    TrialTrainingJob,
    curve_of,
    duplicates_of,
    judge_sweep,
)
from spotkeep_cli.rehearsal.view import drawn
from spotkeep_jobs.progress.job_events import JobEvent, JobEventKind
from spotkeep_jobs.record.record import Cost
from spotkeep_jobs.record.states import SweepState, TrialState
from spotkeep_jobs.record.sweep import BestTrial, Sweep, Trial, TrialCounts
from spotkeep_jobs.sweeps.document import Objective
from spotkeep_local.access.call_rates import CallCounts
from tests.spotkeep_cli.conftest import make_cost

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
HOURLY = 0.36


def a_cost(seconds: float) -> Cost:
    return make_cost(billed_seconds=seconds, usd_per_hour=HOURLY, billed_usd=round(seconds * HOURLY / 3600, 6))


def a_life(begin: float, end: float, **fields: Any) -> RehearsedProcess:
    facts: dict[str, Any] = {
        "started_at": begin, "ended_at": end, "ending": ProcessEnding.EXITED, "resumed_from_step": 0, "last_step": 3,
        "saved_steps": (2,), "durable_step": 3,
    }  # fmt: skip
    return RehearsedProcess(**facts | fields)


def a_trial(number: int, *jobs: TrialTrainingJob, curve: dict[int, float], **fields: Any) -> RehearsedTrial:
    run = f"s-{number}"
    trial = Trial(
        sweep="s",
        number=number,
        run=run,
        parameters={"lr": 0.1 * number},
        state=TrialState.PAUSED,
        cost=a_cost(sum(job.billable_seconds for job in jobs)),
    )
    facts: dict[str, Any] = {
        "trial": trial, "attempts": tuple(job.name for job in jobs), "jobs": jobs, "curve": curve,
        "contradictions": (), "alone": curve, "interruptions_in_record": 0,
    }  # fmt: skip
    return RehearsedTrial(**facts | fields)


TAKEN = a_life(0, 1, ending=ProcessEnding.NO_NOTICE, last_step=2, durable_step=1)
INTERRUPTED = a_trial(
    1,
    TrialTrainingJob(name="s-1-1", billable_seconds=4, lives=(TAKEN, a_life(2, 3, resumed_from_step=1))),
    TrialTrainingJob(name="s-1-2", billable_seconds=6, lives=(a_life(5, 6, resumed_from_step=3, last_step=5),)),
    curve={1: 0.9, 2: 0.8, 3: 0.7, 4: 0.2, 5: 0.3},
    interruptions_in_record=1,
)
ALONE = a_trial(
    2, TrialTrainingJob(name="s-2-1", billable_seconds=5, lives=(a_life(0, 2),)), curve={1: 0.9, 2: 0.8, 3: 0.7}
)
SWEEP = Sweep(
    sweep="s",
    name="s",
    state=SweepState.COMPLETED,
    created_at=NOON,
    updated_at=NOON,
    counts=TrialCounts(paused=2),
    best=BestTrial(number=1, run="s-1", value=0.2, step=4, parameters={"lr": 0.1}),
    cost=a_cost(15),
    token="t",
    document={},
)
COMPLETED = ReceivedNotification(run="s", status="completed", subject="", body="", received_at="")
GOOD = SweepEvidence(
    sweep=SWEEP,
    asked_trials=2,
    objective=Objective(metric="loss", goal="minimize"),
    trials=[INTERRUPTED, ALONE],
    planned_interruptions={1},
    ended_invocations=1,
    calls=CallCounts(most_in_a_second={"SubmitServiceJob": 6, "Search": 2}, throttled={"SubmitServiceJob": 1}),
    notifications=[COMPLETED],
)


QUEUED = replace(
    GOOD,
    trials=[
        replace(
            INTERRUPTED,
            service_jobs=(TrialServiceJob(name="s-1-1", preemptions=1), TrialServiceJob(name="s-1-2", preemptions=0)),
            interruptions_in_record=2,
        ),
        replace(ALONE, service_jobs=(TrialServiceJob(name="s-2-1", preemptions=0),)),
    ],
    others={"COMPLETED": 2},
)
"""In a queue."""


def with_lives(trial: RehearsedTrial, *lives: RehearsedProcess) -> RehearsedTrial:
    return replace(trial, jobs=(replace(trial.jobs[0], lives=lives), *trial.jobs[1:]))


def a_sweep(**changes: Any) -> Sweep:
    return SWEEP.model_copy(update=changes)


@pytest.mark.parametrize(
    ("changes", "failing", "found"),
    [
        ({"sweep": a_sweep(state=SweepState.STOPPED, ended_because="its user")}, 0, "stopped: its user"),
        ({"sweep": a_sweep(counts=TrialCounts(paused=1, failed=1))}, 0, "1 failed"),
        ({"asked_trials": 3}, 0, "2 paused"),
        ({"planned_interruptions": {1, 2}}, 1, "1 losses"),
        ({"ended_invocations": 0}, 1, "0 invocations"),
        ({"trials": [INTERRUPTED, replace(ALONE, alone={1: 0.9, 2: 0.81, 3: 0.7})]}, 2, "trial 2 has 0.8 at step 2"),
        ({"trials": [INTERRUPTED, replace(ALONE, alone={1: 0.9})]}, 2, "trial 2 has no step 2 when it is left alone"),
        ({"trials": [replace(INTERRUPTED, contradictions=(2,)), ALONE]}, 2, "trained step 2 again"),
        (
            {"trials": [with_lives(INTERRUPTED, TAKEN, a_life(0.5, 3, resumed_from_step=1)), ALONE]},
            3,
            "two processes of trial 1",
        ),
        ({"trials": [with_lives(INTERRUPTED, TAKEN, a_life(2, 3)), ALONE]}, 3, "trial 1 had step 1, and began again"),
        ({"trials": [INTERRUPTED, replace(ALONE, attempts=("s-2-1", "s-2-2"))]}, 3, "s-2-2"),
        ({"other_jobs": ["s-9-1"]}, 3, "s-9-1 is no trial's"),
        ({"sweep": a_sweep(best=SWEEP.best.model_copy(update={"value": 0.3}))}, 4, "0.3"),  # type: ignore[union-attr]
        ({"sweep": a_sweep(best=None)}, 4, "no value"),
        ({"sweep": a_sweep(cost=a_cost(14))}, 5, "14 s"),
        ({"sweep": a_sweep(cost=None)}, 5, "no bill"),
        ({"notifications": []}, 6, "0 received"),
        ({"notifications": [COMPLETED, COMPLETED]}, 6, "2 received"),
        ({"trials": [replace(INTERRUPTED, interruptions_in_record=0), ALONE]}, 7, "trial 1 has 0 in its record"),
        ({"trials": [INTERRUPTED, replace(ALONE, interruptions_in_record=1)]}, 7, "trial 2 has 1 in its record"),
    ],
)
def test_what_did_not_hold_is_named(changes: dict[str, Any], failing: int, found: str) -> None:
    checks = judge_sweep(replace(GOOD, **changes))
    assert [number for number, check in enumerate(checks) if not check.passed] == [failing]
    assert found in checks[failing].found


# Its place was taken before the script had read its checkpoint: it began no training, from step 0 or elsewhere.
SILENT = a_life(1, 1.5, ending=ProcessEnding.STOPPED, resumed_from_step=None, last_step=None, durable_step=1)


def test_a_process_that_was_stopped_before_it_said_where_it_goes_on_began_nothing_again() -> None:
    lives = (TAKEN, SILENT, a_life(2, 3, resumed_from_step=1))
    checks = judge_sweep(replace(GOOD, trials=[with_lives(INTERRUPTED, *lives), ALONE]))
    assert [check.found for check in checks if not check.passed] == []


def test_a_process_that_ended_by_itself_and_never_said_where_it_goes_on_began_again() -> None:
    silent = replace(SILENT, ending=ProcessEnding.EXITED)
    trial = with_lives(INTERRUPTED, TAKEN, silent, a_life(2, 3, resumed_from_step=1))
    assert duplicates_of(replace(GOOD, trials=[trial, ALONE])) == ["trial 1 had step 1, and began again from step 0"]


def test_what_was_had_before_such_a_process_is_still_to_be_gone_on_from() -> None:
    trial = with_lives(INTERRUPTED, TAKEN, SILENT, a_life(2, 3, resumed_from_step=0))
    assert duplicates_of(replace(GOOD, trials=[trial, ALONE])) == ["trial 1 had step 1, and began again from step 0"]


@pytest.mark.parametrize(
    ("changes", "failing", "found"),
    [
        ({"others": {}}, 8, "none launched"),
        ({"others": {"COMPLETED": 1, "FAILED": 1}}, 8, "1 completed, 1 failed"),
        (
            {"trials": [INTERRUPTED, ALONE]},
            8,
            "0 preemptions; the other share's jobs: 2 completed; the trials did not have its instances for long "
            "enough: rehearse more of them, or longer ones",
        ),
        (
            {"trials": [QUEUED.trials[0], replace(ALONE, service_jobs=(*QUEUED.trials[1].service_jobs,) * 2)]},  # type: ignore[misc]
            3,
            "trial 2 has the attempts s-2-1 and the service jobs s-2-1, s-2-1",
        ),
    ],
    ids=["no others", "a failed one", "no preemption", "submitted twice"],
)
def test_what_did_not_hold_in_a_queue_is_named(changes: dict[str, Any], failing: int, found: str) -> None:
    checks = judge_sweep(replace(QUEUED, **changes))
    assert [number for number, check in enumerate(checks) if not check.passed] == [failing]
    assert found in checks[failing].found


def test_a_trial_that_gave_way_before_its_loss_has_lost_its_instance_all_the_same() -> None:
    gave_way = replace(ALONE, service_jobs=(TrialServiceJob(name="s-2-1", preemptions=1),))
    for trials, passes in (([QUEUED.trials[0], gave_way], True), (QUEUED.trials, False)):
        checks = judge_sweep(replace(QUEUED, trials=trials, planned_interruptions={1, 2}))
        assert checks[1].passed is passes
    assert (
        "1 losses, 1 gave way to the other share before, "
        in judge_sweep(replace(QUEUED, trials=[QUEUED.trials[0], gave_way], planned_interruptions={1, 2}))[1].found
    )


@pytest.mark.parametrize("ending", [ProcessEnding.STOPPED, ProcessEnding.NOTICE], ids=["preempted", "noticed"])
def test_of_a_process_that_could_save_one_step_is_lost_at_most(ending: ProcessEnding) -> None:
    taken = replace(TAKEN, ending=ending, last_step=3)
    for resumed, twice in ((3, False), (2, False), (1, True)):
        trial = with_lives(INTERRUPTED, taken, a_life(2, 3, resumed_from_step=resumed))
        assert bool(duplicates_of(replace(GOOD, trials=[trial, ALONE]))) is twice


def test_the_report_counts_what_spot_took_and_what_another_share_took_apart() -> None:
    document = SweepReport(checks=judge_sweep(QUEUED), evidence=QUEUED, seed=1).to_document()
    assert (document["interruptions"], document["preemptions"]) == (1, 1)
    assert [(each["interruptions"], each["preemptions"]) for each in document["curves"]] == [(1, 1), (0, 0)]
    assert document["calls"] == {
        "most_in_a_second": {"SubmitServiceJob": 6, "Search": 2},
        "throttled": {"SubmitServiceJob": 1},
    }


def test_a_person_reads_how_fast_calls_came_beside_what_aws_takes() -> None:
    report = SweepReport(checks=judge_sweep(GOOD), evidence=GOOD, seed=1)
    console = Console(file=io.StringIO(), width=120)
    for part in drawn(report):
        console.print(part)
    shown = [line.split() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert ["CreateTrainingJob", "0", "1", "0"] in shown
    assert ["SubmitServiceJob", "6", "5", "1"] in shown
    assert ["DescribeTrainingJob", "0", "not", "published", "0"] in shown


def test_a_trial_with_another_bill_than_its_jobs_is_named() -> None:
    trial = ALONE.trial.model_copy(update={"cost": a_cost(6)})
    checks = judge_sweep(replace(GOOD, trials=[INTERRUPTED, replace(ALONE, trial=trial)]))
    assert "trial 2 has 6 s on its bill, and 5 s by DescribeTrainingJob" in checks[5].found
    assert not checks[5].passed


def test_trials_with_the_same_parameters_are_duplicates() -> None:
    trial = ALONE.trial.model_copy(update={"parameters": INTERRUPTED.trial.parameters})
    assert duplicates_of(replace(GOOD, trials=[INTERRUPTED, replace(ALONE, trial=trial)])) == [
        '2 trials have {"lr": 0.1}'
    ]


def test_steps_that_are_trained_twice_count_once_and_have_to_agree() -> None:
    logged = [(1, 0.9), (2, 0.8), (2, 0.8), (3, 0.7), (3, 0.6), (None, 0.1)]
    events = [
        JobEvent(kind=JobEventKind.PROGRESS, at=0.0, step=step, fields={"metrics": {"loss": loss, "epoch": 1}})
        for step, loss in logged
    ]
    events.append(JobEvent(kind=JobEventKind.SAVED, at=0.0, step=4))
    assert curve_of(events, metric="loss") == ({1: 0.9, 2: 0.8, 3: 0.7}, (3,))
