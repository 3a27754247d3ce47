"""Decides the verdict on a rehearsed sweep, in one pure function over the evidence."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

from spotkeep_cli.rehearsal.evidence import (
    ENDINGS,
    ProcessEnding,
    ReceivedNotification,
    RehearsalCheck,
    RehearsedProcess,
)
from spotkeep_cli.sweeps.sweep_view import states_in_words
from spotkeep_jobs.progress.job_events import JobEvent
from spotkeep_jobs.record.states import SweepState, TrialState
from spotkeep_jobs.record.sweep import Sweep, Trial
from spotkeep_jobs.sweeps.document import Objective
from spotkeep_local.access.call_rates import CallCounts

Curve = Mapping[int, float]
"""The objective by completed steps."""


_ROUNDED_SECONDS = 1e-6
"""The record keeps seconds and dollars to six digits."""
_NAMED = 3
"""The most failures that one check names."""


@dataclass(frozen=True, kw_only=True)
class TrialTrainingJob:
    """A training job of a trial.

    Attributes:
        name: The training job.
        billable_seconds: Instance seconds, as DescribeTrainingJob says.
        lives: The lives of its process, oldest first.
    """

    name: str
    billable_seconds: float
    lives: tuple[RehearsedProcess, ...]


@dataclass(frozen=True, kw_only=True)
class TrialServiceJob:
    """A service job of a trial in a queue.

    Attributes:
        name: Its name.
        preemptions: Number of times that AWS Batch preempted it.
    """

    name: str
    preemptions: int


@dataclass(frozen=True, kw_only=True)
class RehearsedTrial:
    """The outcome of one trial.

    Attributes:
        trial: Its record, at the end.
        attempts: The names of its jobs, by the records of its run's attempts.
        interruptions_in_record: Number of interruptions that these records count.
        jobs: Its training jobs in the local AWS, oldest first.
        service_jobs: Its service jobs in AWS Batch, or None for a trial in no queue.
        curve: The objective at each step that it trained, in all attempts.
        contradictions: Steps that it trained twice, with another objective the second time.
        alone: The objective at each step of the same trial left alone.
    """

    trial: Trial
    attempts: tuple[str, ...]
    interruptions_in_record: int
    jobs: tuple[TrialTrainingJob, ...]
    service_jobs: tuple[TrialServiceJob, ...] | None = None
    curve: Curve
    contradictions: tuple[int, ...]
    alone: Curve

    @property
    def lives(self) -> list[RehearsedProcess]:
        """The lives of its process in all jobs, oldest first."""
        return [life for job in self.jobs for life in job.lives]

    @property
    def interruptions(self) -> int:
        """Number of times that the local AWS took its spot capacity."""
        return sum(life.was_taken for life in self.lives)

    @property
    def preemptions(self) -> int:
        """Number of times that AWS Batch gave its place to another job."""
        return sum(job.preemptions for job in self.service_jobs or ())

    @property
    def is_identical(self) -> bool:
        """True if its curve equals, step for step, that of the same trial left alone."""
        return bool(self.curve) and not self.contradictions and self.curve == self.alone


@dataclass(frozen=True, kw_only=True)
class SweepEvidence:
    """The evidence of a rehearsal of a sweep.

    Attributes:
        sweep: Its record, at the end.
        asked_trials: Number of trials in the job file.
        objective: The objective of its search.
        trials: Its trials, in the order of their numbers.
        planned_interruptions: The numbers of the trials that were to lose their capacity.
        other_jobs: Training jobs of the sweep's name that are no trial's.
        ended_invocations: Number of invocations of the controller that were killed.
        calls: The rate of calls, from the launch to the end.
        notifications: The notifications that the subscriber received, in the order of arrival.
        others: The states of the other share's runs, counted. None without a queue.
    """

    sweep: Sweep
    asked_trials: int
    objective: Objective
    trials: Sequence[RehearsedTrial]
    planned_interruptions: Set[int]
    other_jobs: Sequence[str] = ()
    ended_invocations: int
    calls: CallCounts
    notifications: Sequence[ReceivedNotification] = ()
    others: Mapping[str, int] | None = None


def curve_of(events: Iterable[JobEvent], *, metric: str) -> tuple[dict[int, float], tuple[int, ...]]:
    """Return the objective at each step, and the steps at which it was reported twice and differs.

    Args:
        events: The events that the jobs of a trial logged.
        metric: The objective.
    """
    curve: dict[int, float] = {}
    contradictions = []
    for event in events:
        value = (event.fields.get("metrics") or {}).get(metric)
        if value is None or event.step is None:
            continue
        if curve.setdefault(event.step, value) != value:
            contradictions.append(event.step)
    return curve, tuple(dict.fromkeys(contradictions))


def judge_sweep(evidence: SweepEvidence) -> list[RehearsalCheck]:
    """Judge a rehearsed sweep."""
    return [
        _search_ended(evidence),
        _trouble_happened(evidence),
        _identical(evidence.trials),
        _nothing_twice(evidence),
        _best_is_best(evidence),
        _bill_adds_up(evidence),
        _notified_once(evidence),
        _losses_are_recorded(evidence.trials),
        *([_others_had_their_turn(evidence, evidence.others)] if evidence.others is not None else []),
    ]


def duplicates_of(evidence: SweepEvidence) -> list[str]:
    """Return duplicates in words.

    They are combinations of parameters in several trials, steps that ran twice, and jobs of no trial.
    """
    trials = evidence.trials
    combinations = Counter(_shown(each.trial.parameters) for each in trials)
    found = [f"{times} trials have {parameters}" for parameters, times in combinations.items() if times > 1]
    for each in trials:
        found += _twice(each)
    return [*found, *(f"{job} is no trial's" for job in evidence.other_jobs)]


def interruptions_of(trials: Sequence[RehearsedTrial]) -> int:
    """Return the number of times that capacity was taken from trials."""
    return sum(each.interruptions for each in trials)


def preemptions_of(trials: Sequence[RehearsedTrial]) -> int:
    """Return the number of times that trials gave their place in a queue to another job."""
    return sum(each.preemptions for each in trials)


def _search_ended(evidence: SweepEvidence) -> RehearsalCheck:
    sweep, counts = evidence.sweep, evidence.sweep.counts
    asked = evidence.asked_trials
    states = states_in_words(counts) or "none"
    why = f": {sweep.ended_because}" if sweep.ended_because else ""
    reasons = [
        f"; trial {each.trial.number}: {each.trial.failure_reason}"
        for each in evidence.trials
        if each.trial.state is TrialState.FAILED
    ]
    return RehearsalCheck(
        expected=f"the search ends by itself, with {asked} trials, none of them failed",
        found=f"{sweep.state.value.lower()}{why}; trials: {states}{''.join(reasons[:_NAMED])}",
        passed=sweep.state is SweepState.COMPLETED
        and counts.chosen == len(evidence.trials) == asked
        and counts.failed == counts.stopped == counts.running == 0,
    )


def _trouble_happened(evidence: SweepEvidence) -> RehearsalCheck:
    planned, happened = evidence.planned_interruptions, interruptions_of(evidence.trials)
    lost = {each.trial.number for each in evidence.trials if each.interruptions}
    # Such a trial lost its instance, too: the loss that was planned for its first training job found none.
    gave_way = {each.trial.number for each in evidence.trials if each.preemptions} - lost
    before = planned & gave_way
    because = f", {len(before)} gave way to the other share before" if before else ""
    return RehearsalCheck(
        expected=f"{len(planned)} losses of spot capacity, and the controller killed in the middle",
        found=f"{happened} losses{because}, {evidence.ended_invocations} invocations of the controller killed",
        passed=bool(planned) and planned <= lost | gave_way and evidence.ended_invocations > 0,
    )


def _identical(trials: Sequence[RehearsedTrial]) -> RehearsalCheck:
    same = sum(each.is_identical for each in trials)
    differing = [_difference(each) for each in trials if not each.is_identical]
    steps = sum(len(each.curve) for each in trials)
    return RehearsalCheck(
        expected="every trial's curve is, step for step, that of the same trial left alone",
        found=_with_names(f"{same} of {len(trials)} are, {steps:,} steps", differing),
        passed=bool(trials) and same == len(trials),
    )


def _difference(each: RehearsedTrial) -> str:
    """Return the first step at which a trial's curve differs, in words."""
    name = f"trial {each.trial.number}"
    if not each.curve:
        return f"{name} reported no value of the objective"
    for step in sorted({*each.curve, *each.alone, *each.contradictions}):
        if step in each.contradictions:
            return f"{name} gave another value when it trained step {step} again"
        ours, alone = each.curve.get(step), each.alone.get(step)
        if ours is None or alone is None:
            return f"{name} has no step {step}{' when it is left alone' if alone is None else ''}"
        if ours != alone:
            return f"{name} has {ours!r} at step {step}, and {alone!r} when it is left alone"
    return f"{name} differs"


def _nothing_twice(evidence: SweepEvidence) -> RehearsalCheck:
    duplicates = duplicates_of(evidence)
    jobs = sum(len(each.jobs) for each in evidence.trials)
    return RehearsalCheck(
        expected="nothing runs twice: one job an attempt, one process a trial at a time, no step twice but "
        "what an interruption cost",
        found=_with_names(f"{jobs} training jobs", duplicates),
        passed=not duplicates,
    )


def _twice(each: RehearsedTrial) -> Iterator[str]:
    name = f"trial {each.trial.number}"
    jobs, kind = [job.name for job in each.jobs], "training jobs"
    if each.service_jobs is not None:
        # Of an attempt in a queue AWS Batch makes as many training jobs as it takes.
        jobs, kind = [job.name for job in each.service_jobs], "service jobs"
    if sorted(jobs) != sorted(each.attempts):
        yield f"{name} has the attempts {', '.join(each.attempts)} and the {kind} {', '.join(jobs)}"
    for before, after in pairwise(each.lives):
        if after.started_at < before.ended_at:
            yield f"two processes of {name} worked at the same time"
    kept = 0
    for life in each.lives:
        silent = life.resumed_from_step is None and life.last_step is None
        if silent and life.ending is not ProcessEnding.EXITED:
            continue  # Its capacity was taken before the script had read its checkpoint.
        if (life.resumed_from_step or 0) < kept:
            yield f"{name} had step {kept}, and began again from step {life.resumed_from_step or 0}"
        kept = _kept_step(life)


def _kept_step(life: RehearsedProcess) -> int:
    """Return the step from which the next process goes on at least."""
    last_step = life.last_step or 0
    match life.ending:
        case ProcessEnding.NO_NOTICE:
            return life.durable_step
        case ProcessEnding.NOTICE | ProcessEnding.STOPPED:
            return max(life.durable_step, last_step - 1)
        case ProcessEnding.EXITED:
            return last_step


def _best_is_best(evidence: SweepEvidence) -> RehearsalCheck:
    sign = -1 if evidence.objective.goal == "maximize" else 1
    measured = [
        (sign * value, each.trial.number, step) for each in evidence.trials for step, value in each.curve.items()
    ]
    best = evidence.sweep.best
    if not measured or best is None:
        return RehearsalCheck(
            expected="the best trial is the best", found="no value of the objective was found", passed=False
        )
    value, number, step = min(measured, key=lambda each: (each[0], each[1]))
    return RehearsalCheck(
        expected=f"the best is the best of the {len(measured):,} values in the logs: trial {number}, "
        f"{sign * value:.6g} at step {step}",
        found=f"trial {best.number}, {best.value:.6g} at step {best.step}",
        passed=(best.number, best.value) == (number, sign * value),
    )


def _bill_adds_up(evidence: SweepEvidence) -> RehearsalCheck:
    cost = evidence.sweep.cost
    billed = sum(job.billable_seconds for each in evidence.trials for job in each.jobs)
    if cost is None:
        return RehearsalCheck(expected="the bill adds up", found="the sweep has no bill", passed=False)
    hourly = cost.usd_per_hour
    usd = None if hourly is None else billed * hourly / 3600
    allowed = _ROUNDED_SECONDS * (len(evidence.trials) + 1)
    right_usd = usd is None or (cost.billed_usd is not None and abs(cost.billed_usd - usd) <= allowed)
    wrong = [
        f"trial {each.trial.number} has {recorded:g} s on its bill, and {own:g} s by DescribeTrainingJob"
        for each in evidence.trials
        if abs((recorded := each.trial.cost.billed_seconds if each.trial.cost else 0.0) - (own := _billable(each)))
        > allowed
    ]
    dollars = "" if usd is None else f", ${usd:.4f}"
    found = "" if cost.billed_usd is None else f", ${cost.billed_usd:.4f}"
    return RehearsalCheck(
        expected=f"the bill is the sum of what DescribeTrainingJob bills: {billed:g} s{dollars}",
        found=_with_names(f"{cost.billed_seconds:g} s{found}", wrong),
        passed=not wrong and right_usd and abs(cost.billed_seconds - billed) <= allowed,
    )


def _billable(each: RehearsedTrial) -> float:
    return sum(job.billable_seconds for job in each.jobs)


def _notified_once(evidence: SweepEvidence) -> RehearsalCheck:
    about = evidence.sweep.sweep
    statuses = [each.status for each in evidence.notifications if each.run == about and each.status in ENDINGS]
    return RehearsalCheck(
        expected="the end of the sweep is notified once",
        found=f"{len(statuses)} received{': ' if statuses else ''}{', '.join(statuses)}",
        passed=statuses == ["completed"],
    )


def _others_had_their_turn(evidence: SweepEvidence, states: Mapping[str, int]) -> RehearsalCheck:
    preempted = preemptions_of(evidence.trials)
    ended = ", ".join(f"{count} {state.lower()}" for state, count in states.items()) or "none launched"
    found = f"{preempted} preemption{'' if preempted == 1 else 's'}; the other share's jobs: {ended}"
    short = "; the trials did not have its instances for long enough: rehearse more of them, or longer ones"
    return RehearsalCheck(
        expected="jobs of another share take instances back by preempting trials, and complete",
        found=found if preempted else found + short,
        passed=preempted > 0 and states.keys() == {"COMPLETED"},
    )


def _losses_are_recorded(trials: Sequence[RehearsedTrial]) -> RehearsalCheck:
    """Compare the losses with the record. A training job that is preempted without instances loses nothing."""
    wrong = [
        f"trial {each.trial.number} has {each.interruptions_in_record} in its record, and lost its instances "
        f"{each.interruptions} times to spot and {each.preemptions} times to another share"
        for each in trials
        if not each.interruptions <= each.interruptions_in_record <= each.interruptions + each.preemptions
    ]
    return RehearsalCheck(
        expected="every loss of instances is an interruption in the record",
        found=_with_names(f"{sum(each.interruptions_in_record for each in trials)} in the record", wrong),
        passed=not wrong,
    )


def _with_names(found: str, wrong: Sequence[str]) -> str:
    rest = f", and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
    return "; ".join([found, *wrong[:_NAMED]]) + rest


def _shown(parameters: Mapping[str, object]) -> str:
    return json.dumps(parameters, sort_keys=True)
