"""Decides the future of a sweep, from its record and the present state of its trials' runs. Pure.

The launcher advances a sweep in five steps, as often as it likes. First `settled` takes over the outcomes of the
trials' runs. After a resume, trials go on (`with_resumed`). Then the search says which trials begin or are promoted
(`with_moves`). The launcher writes the result in one transaction. At last it does the tasks of the trials (`task_of`).
The next advance finds a step that was lost, so nothing is tried twice or forgotten.

A sweep asks AWS for the jobs of its trials a little slower than AWS takes them. A hundred trials may begin or end at
the same moment, and as many functions may advance their sweep then. AWS throttles requests that come too fast, and they
stay undone once a client has spent its retries. So each job has a moment. The next free moment is in the sweep's item,
and every function writes the item on the version that it has read. Together the functions keep the pace, without a
further call.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

from spotkeep_jobs.cost.run_cost import total_cost
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.ids import run_of_trial
from spotkeep_jobs.record.record import Metric, Run, ScriptMetrics, in_utc_milliseconds
from spotkeep_jobs.record.states import EndReason, RunState, SweepState, TrialState
from spotkeep_jobs.record.sweep import MOST_POOLS, BestTrial, Sweep, Trial, TrialCounts
from spotkeep_jobs.runs.rules import LAUNCH_SETTLES, stays_near
from spotkeep_jobs.sweeps.budget import (
    live_spending,
    max_cost_of,
    money_is_spent,
    money_left_usd,
    spent_usd,
    unbilled_usd,
)
from spotkeep_jobs.sweeps.document import Objective, SweepRequest
from spotkeep_jobs.sweeps.resumed_trials import let_go_on, training_again
from spotkeep_jobs.sweeps.search.search import Begin, Move, Promote, TrialResult

FAILURES_THAT_END_IT: Final = 3
"""The number of failed trials, before any has made progress, that ends a sweep. The next ones would fail, too."""
_NOT_OF_THE_WORK: Final = frozenset({"max_cost", "notify"})
"""Fields of a document that a trial does not fail or come further by."""
_OPENED_BY_THEN: Final[timedelta] = LAUNCH_SETTLES


@dataclass(frozen=True, kw_only=True)
class SeenRun:
    """The run of a trial, as it was read.

    Attributes:
        run: Its item.
        metrics: The measurements of its script. None where it has reported nothing.
        pools_over: The attempts whose warm pools are on its bill.
    """

    run: Run
    metrics: ScriptMetrics | None = None
    pools_over: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The runs of trials as they were read, and the time of the reading.

    Attributes:
        runs: The runs that were read, by id, None for one that is not there. Those of other trials are taken to be as
            they were.
        prices: On-demand US dollars per instance and hour, by instance type.
        now: The time.
    """

    runs: Mapping[str, SeenRun | None]
    prices: Mapping[str, float]
    now: datetime


class Task(Enum):
    """A task of the launcher that a trial asks for."""

    OPEN = "open"
    RESUME = "resume"
    STOP = "stop"


def settled(
    sweep: Sweep, *, request: SweepRequest, trials: Sequence[Trial], seen: Seen
) -> tuple[Sweep, tuple[Trial, ...]]:
    """Take over the outcomes of the trials' runs, and decide if the sweep goes on.

    Args:
        sweep: The sweep's item.
        request: Its request.
        trials: All its trials, in the order of their numbers.
        seen: Their runs, as they were read.

    Returns:
        The sweep and all its trials, changed where something has changed.
    """
    now = seen.now
    trials = tuple(_followed(trial, sweep=sweep, request=request, seen=seen) for trial in trials)
    if sweep.warning is None and (warning := _never_pauses(trials, request)) is not None:
        sweep = with_changes(sweep, warning=warning)
    if sweep.state is SweepState.RUNNING:
        if (because := _too_many_failed(sweep, trials)) is not None:
            sweep = stopping(sweep, as_=SweepState.FAILED, because=because, now=now)
        elif (because := money_is_spent(sweep, trials, now=now)) is not None:
            sweep = stopping(sweep, as_=SweepState.STOPPED, because=because, now=now)
    if sweep.state is SweepState.STOPPING:
        trials = tuple(_never_opened(trial, sweep, seen.runs, now=now) for trial in trials)
    return sweep, trials


def free_places(sweep: Sweep, request: SweepRequest, trials: Sequence[Trial]) -> int:
    """Return how many more trials may run now."""
    if sweep.state is not SweepState.RUNNING:
        return 0
    return max(0, request.parallel - sum(trial.state is TrialState.RUNNING for trial in trials))


def with_resumed(
    sweep: Sweep, *, trials: Sequence[Trial], numbers: Collection[int], now: datetime
) -> tuple[Trial, ...]:
    """Let trials go on with their sweep, after a resume.

    Args:
        sweep: The sweep's item.
        trials: All its trials, as they are settled.
        numbers: Of those that go on.
        now: The time.
    """
    left = money_left_usd(sweep, trials, now=now)
    return tuple(
        let_go_on(trial, sweep=sweep, pause_at_step=trial.pause_at_step, left_usd=left)
        if trial.number in numbers
        else trial
        for trial in trials
    )


def results_of(trials: Iterable[Trial], request: SweepRequest) -> tuple[TrialResult, ...]:
    """Return the trials as a search sees them.

    For asha a trial has the objective at each pause. For other searches it has the best value.
    """
    at_its_best = request.search != "asha"
    return tuple(
        TrialResult(
            number=trial.number,
            parameters=trial.parameters,
            state=trial.state,
            values=_best_value(trial) if at_its_best else trial.values,
        )
        for trial in trials
    )


def _best_value(trial: Trial) -> Mapping[int, float]:
    return {} if trial.best is None else {trial.best_step or 0: trial.best}


def with_moves(sweep: Sweep, *, trials: Sequence[Trial], moves: Sequence[Move], now: datetime) -> tuple[Trial, ...]:
    """Record the trials that a search begins, or lets go on.

    Args:
        sweep: The sweep's item.
        trials: All its trials.
        moves: The moves of the search.
        now: The time.
    """
    left = money_left_usd(sweep, trials, now=now)
    by_number = {trial.number: trial for trial in trials}
    for move in moves:
        match move:
            case Begin(number=number, parameters=parameters, pause_at_step=step):
                by_number[number] = Trial(
                    sweep=sweep.sweep,
                    number=number,
                    run=run_of_trial(sweep.sweep, number),
                    parameters=dict(parameters),
                    pause_at_step=step,
                    part=sweep.part,
                    max_cost_usd=left,
                )
            case Promote(number=number, pause_at_step=step):
                by_number[number] = let_go_on(by_number[number], sweep=sweep, pause_at_step=step, left_usd=left)
    return tuple(by_number[number] for number in sorted(by_number))


def summed_up(
    sweep: Sweep, *, request: SweepRequest, trials: Sequence[Trial], search_is_over: bool, now: datetime
) -> Sweep:
    """Return the sweep's item with the sums of its trials, and with its end when it has one.

    Args:
        sweep: The sweep's item.
        request: Its request.
        trials: All its trials.
        search_is_over: True if no trial can follow.
        now: The time.
    """
    counts = _counted(trials)
    sweep = with_changes(
        sweep,
        counts=counts,
        best=_best(trials, request.objective),
        cost=total_cost([trial.cost for trial in trials if trial.cost is not None]),
        awaits_pools=any(trial.pools for trial in trials),
    )
    if counts.running:
        return sweep
    if sweep.state is SweepState.STOPPING:
        return _ended(sweep, sweep.stops_as or SweepState.STOPPED, now=now)
    if sweep.state is SweepState.RUNNING and search_is_over:
        failed = counts.failed == counts.chosen
        because = f"all {counts.failed} trials failed" if failed and counts.failed else None
        sweep = with_changes(sweep, ended_because=because)
        return _ended(sweep, SweepState.FAILED if failed else SweepState.COMPLETED, now=now)
    return sweep


def stopping(sweep: Sweep, *, as_: SweepState, because: str, now: datetime) -> Sweep:
    """Let a sweep stop, so that no trial begins any more and those that run are asked to end.

    Args:
        sweep: The sweep's item.
        as_: The sweep's state when no trial runs any more.
        because: The reason.
        now: The time.
    """
    return with_changes(sweep, state=SweepState.STOPPING, stops_as=as_, ended_because=because, stop_requested_at=now)


def going_on(
    sweep: Sweep, *, document: Mapping[str, object], changed: Collection[str], trials: Iterable[Trial], now: datetime
) -> Sweep:
    """Let a sweep that has ended go on.

    First trials go on (`with_resumed`), then the search.

    Args:
        sweep: The sweep's item, ended.
        document: Its document, as it is from now on, in which everything fits together.
        changed: The fields of its trials' documents that are others than before.
        trials: All its trials.
        now: The time.
    """
    part = sweep.part + 1
    after = with_changes(
        sweep,
        state=SweepState.RUNNING,
        part=part,
        changed={**sweep.changed, **dict.fromkeys(changed, part)},
        stops_as=None,
        stop_requested_at=None,
        ended_because=None,
        warning=None,
        ended_at=None,
        document=dict(document),
    )
    near = stays_near(max_cost_of(after), before=max_cost_of(sweep), spent_usd=spent_usd(trials, now=now))
    return with_changes(after, max_cost_is_near=sweep.max_cost_is_near and near)


def task_of(trial: Trial, seen: SeenRun | None, *, sweep: Sweep) -> Task | None:
    """Return the task that a trial asks for. None where its run is as it is to be.

    Args:
        trial: The trial, as it is recorded.
        seen: Its run. None where there is none.
        sweep: The sweep's item.
    """
    if trial.state is not TrialState.RUNNING:
        return None
    if trial.stop_because is not None or sweep.state is not SweepState.RUNNING:
        at_work = seen is not None and not seen.run.state.ended
        return Task.STOP if at_work and seen is not None and seen.run.asked_to_end is None else None
    if seen is None:
        return Task.OPEN
    return Task.RESUME if seen.run.attempt < trial.attempt and seen.run.state.ended else None


def failed(trial: Trial, *, reason: str) -> Trial:
    """Return a trial as failed, because its run could not be opened or resumed."""
    return with_changes(trial, state=TrialState.FAILED, failure_reason=reason)


def _followed(trial: Trial, *, sweep: Sweep, request: SweepRequest, seen: Seen) -> Trial:
    """Return a trial with the outcome of its run.

    For a trial that had ended, this is the outcome since a user resumed it.
    """
    found = seen.runs.get(trial.run)
    if found is None:
        return trial
    run = found.run
    if run.attempt < trial.attempt or (sweep.state.ended and not run.state.ended):
        # Its last end is known. Where a user resumed it after its sweep had ended, it is the user's until it ends.
        return _with_pools_bill(trial, found)
    metric = _objective_metric(found.metrics, request.objective)
    trial = _measured(trial, metric)
    if trial.state is not TrialState.RUNNING:
        trial = training_again(trial, pause_at_step=run.request.get("pause_at_step"))
    if not run.state.ended:
        if max_cost_of(sweep) is not None:
            spending = live_spending(run, prices=seen.prices, before=trial.spending)
            trial = with_changes(trial, cost=run.cost or trial.cost, spending=spending)
        trial = _with_pools_bill(trial, found)
        if trial.stop_because is None and request.stop is not None and _waits_in_vain(metric, request.stop.patience):
            name = "" if request.objective is None else request.objective.metric
            because = f"{request.stop.patience} values of {name} in a row were no better than its best"
            trial = with_changes(trial, stop_because=because)
        return trial
    trial = _with_pools_bill(trial, found)
    state = _state_after(run)
    values = dict(trial.values)
    if metric is not None and trial.pause_at_step is not None and state in {TrialState.PAUSED, TrialState.COMPLETED}:
        # A script that cannot save at its pause trains on until it can. It is compared at each later pause that it
        # passed so, and goes on to the next after them: a run that is to pause at a step behind it is refused.
        passed = _pauses_passed(trial.pause_at_step, run.paused_at_step, request=request)
        values |= dict.fromkeys((trial.pause_at_step, *passed), metric.last)
    return with_changes(
        trial,
        state=state,
        attempt=run.attempt + 1,
        values=values,
        cost=run.cost,
        spending=None,
        unbilled_usd=unbilled_usd(trial, run, prices=seen.prices, now=seen.now),
        pools=(*trial.pools, *_pools_left(trial, run))[-MOST_POOLS:],
        ended_at=run.ended_at,
        goes_on_with_sweep=state is TrialState.STOPPED and _stops_with_its_sweep(trial, sweep),
        end_reason=run.end_reason,
        failure_reason=_reason_of(run) if state is TrialState.FAILED else None,
    )


def _with_pools_bill(trial: Trial, found: SeenRun) -> Trial:
    """Return a trial without the warm pools that are over. The bill of its run has them, where that is known."""
    if not found.pools_over:
        return trial
    cost = found.run.cost
    unbilled = trial.unbilled_usd
    if cost is None or cost.billed_usd is None:
        unbilled += len(found.pools_over) * trial.pool_usd
    pools = tuple(attempt for attempt in trial.pools if attempt not in found.pools_over)
    return with_changes(trial, cost=cost or trial.cost, unbilled_usd=unbilled, pools=pools)


def _pools_left(trial: Trial, run: Run) -> range:
    """Return the attempts that may have left a warm pool since the trial was last settled."""
    if not run.request.get("keep_alive"):
        return range(0)
    # While it retains a warm pool, SageMaker lets no person delete a job.
    is_gone = run.end_reason is EndReason.JOB_VANISHED
    return range(trial.attempt, run.attempt + (not is_gone))


def _pauses_passed(pause_at_step: int, paused_at_step: int | None, *, request: SweepRequest) -> list[int]:
    """Return at which later steps of its search a trial would have paused, up to the step at which it did."""
    if request.plan is None or paused_at_step is None:
        return []
    return [step for step in request.plan.rungs if pause_at_step < step <= paused_at_step]


def _stops_with_its_sweep(trial: Trial, sweep: Sweep) -> bool:
    return sweep.state is SweepState.STOPPING and trial.stop_because is None


def _state_after(run: Run) -> TrialState:
    if run.state is RunState.COMPLETED:
        return TrialState.COMPLETED
    if run.state is RunState.FAILED:
        return TrialState.FAILED
    return TrialState.PAUSED if run.end_reason is EndReason.PAUSED else TrialState.STOPPED


def _reason_of(run: Run) -> str:
    reason = "" if run.end_reason is None else run.end_reason.value
    return f"{reason}: {run.failure_reason}" if run.failure_reason else reason


def _objective_metric(metrics: ScriptMetrics | None, objective: Objective | None) -> Metric | None:
    return None if metrics is None or objective is None else metrics.metrics.get(objective.metric)


def _measured(trial: Trial, metric: Metric | None) -> Trial:
    if metric is None:
        return trial
    best = metric.last if metric.best is None else metric.best
    step = metric.last_step if metric.best is None else metric.best_step
    return with_changes(trial, best=best, best_step=step, step=metric.last_step)


def _waits_in_vain(metric: Metric | None, patience: int) -> bool:
    """Return True if the last values were no better than the best one.

    A point of a long curve stands for several values. The trial then waits longer, never shorter.
    """
    if metric is None or metric.best_step is None:
        return False
    return sum(step > metric.best_step for step, _ in metric.points) >= patience


def _never_opened(trial: Trial, sweep: Sweep, seen: Mapping[str, SeenRun | None], *, now: datetime) -> Trial:
    """Return a trial of a stopping sweep as not begun, if no function can be opening or resuming it any more.

    It returns to the state of its earlier run. A trial that has no run, or was to go on anyway, goes on with its sweep.
    """
    if trial.state is not TrialState.RUNNING or sweep.stop_requested_at is None or trial.run not in seen:
        return trial
    found = seen[trial.run]
    begins = found is None or found.run.attempt < trial.attempt
    if not begins or now - sweep.stop_requested_at < _OPENED_BY_THEN:
        return trial
    if found is None:
        return with_changes(trial, state=TrialState.STOPPED, goes_on_with_sweep=True)
    state = _state_after(found.run)
    return with_changes(
        trial,
        state=state,
        goes_on_with_sweep=state is TrialState.STOPPED,
        end_reason=found.run.end_reason,
        failure_reason=_reason_of(found.run) if state is TrialState.FAILED else None,
    )


def _never_pauses(trials: Iterable[Trial], request: SweepRequest) -> str | None:
    """Return why asha compares no trials, once one of them has trained to its end past the step of its pause."""
    if request.search != "asha":
        return None
    for trial in trials:
        pause = trial.pause_at_step
        if trial.state is TrialState.COMPLETED and pause is not None and (trial.step is None or trial.step > pause):
            said = "reports no step" if trial.step is None else f"went on to step {trial.step:,}"
            return (
                f"trial {trial.number} did not pause after step {pause:,}, trained to its end and {said}. asha pauses "
                "and compares trials whose script counts steps with Spotkeep's library or an adapter; all others train "
                "to their ends"
            )
    return None


def _too_many_failed(sweep: Sweep, trials: Sequence[Trial]) -> str | None:
    """Return why a sweep ends if its trials fail one after the other before any of them makes progress.

    A resume may have changed the trials' documents. Then only the outcomes since it show if the trials make progress.
    """
    of_part = [trial for trial in trials if trial.part == sweep.part]
    failures = [trial for trial in of_part if trial.state is TrialState.FAILED]
    if len(failures) < FAILURES_THAT_END_IT:
        return None
    anew = any(part == sweep.part for field, part in sweep.changed.items() if field not in _NOT_OF_THE_WORK)
    if any(_came_further(trial, anew=anew) for trial in (of_part if anew else trials)):
        return None
    return f"{len(failures)} trials failed and no other came further, the last one with: {failures[-1].failure_reason}"


def _came_further(trial: Trial, *, anew: bool) -> bool:
    """Return True if a trial has made progress. After a resume, only progress since the resume counts."""
    if trial.state in {TrialState.COMPLETED, TrialState.PAUSED}:
        return True
    before = trial.went_on_at_step if anew else None
    return trial.best is not None and (before is None or (trial.step or 0) > before)


def _counted(trials: Iterable[Trial]) -> TrialCounts:
    counts = dict.fromkeys(TrialCounts.model_fields, 0)
    for trial in trials:
        counts[trial.state.value.lower()] += 1
    return TrialCounts(**counts)


def _best(trials: Iterable[Trial], objective: Objective | None) -> BestTrial | None:
    measured = [(trial, trial.best) for trial in trials if trial.best is not None]
    if objective is None or not measured:
        return None
    sign = -1 if objective.goal == "maximize" else 1
    trial, value = min(measured, key=lambda each: (sign * each[1], each[0].number))
    return BestTrial(number=trial.number, run=trial.run, value=value, step=trial.best_step, parameters=trial.parameters)


def _ended(sweep: Sweep, state: SweepState, *, now: datetime) -> Sweep:
    return with_changes(sweep, state=state, stops_as=None, ended_at=now)


CREATIONS_A_SECOND: Final = 1
"""CreateTrainingJob, of an account in a region.

Source: https://docs.aws.amazon.com/general/latest/gr/sagemaker.html (Service quotas)
"""
SUBMISSIONS_A_SECOND: Final = 5
"""SubmitServiceJob, of an account in a region.

Source: https://docs.aws.amazon.com/batch/latest/userguide/service_limits.html
"""
SHARE: Final = 0.8
"""The share of AWS's rate that a sweep uses. All other launches of the account have the rest."""


def between_jobs(document: Mapping[str, Any]) -> timedelta:
    """Return the time that a sweep lets pass from one job to the next. 0 on EC2, where one call is one fleet.

    Args:
        document: The sweep's document.
    """
    if document.get("backend") == "ec2":
        return timedelta(0)
    a_second = CREATIONS_A_SECOND if document.get("queue") is None else SUBMISSIONS_A_SECOND
    return timedelta(seconds=1 / (SHARE * a_second))


def paced(
    sweep: Sweep, *, asking: Sequence[Trial], now: datetime, within_seconds: float = math.inf
) -> tuple[Sweep, dict[int, datetime]]:
    """Give each trial that asks for a job the moment from which on it may, where that comes in time.

    Moments that come too late for this function are left to the next one.

    Args:
        sweep: The sweep's item.
        asking: Those trials.
        now: The time.
        within_seconds: The seconds that the function still has.

    Returns:
        The sweep's item, with the next moment that is free, and the trials' moments, by their numbers.
    """
    apart = between_jobs(sweep.document)
    if not asking or not apart:
        return sweep, {}
    first = now if sweep.next_job_at is None else max(now, sweep.next_job_at)
    moments = {}
    for position, trial in enumerate(asking):
        moment = first + position * apart
        if (moment - now).total_seconds() >= within_seconds:
            break
        moments[trial.number] = moment
    if not moments:
        return sweep, {}
    return with_changes(sweep, next_job_at=in_utc_milliseconds(first + len(moments) * apart)), moments
