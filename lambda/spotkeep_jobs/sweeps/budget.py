"""The money of a sweep with max_cost, as spent by its trials and reserved until a stop takes effect. Pure.

A trial that has ended costs its bill. A live trial counts at the on-demand price of its instances, from the moment it
has them until it is billed. For spot instances that is an upper bound. Waiting for capacity, for quota or in a queue
costs nothing.

Each pass of the controller has a sweep checked. The limit holds only if the spending until the next pass is counted
too. So money is reserved for each trial that trains or is about to. It pays for the time until the next pass has the
trial stopped, and for the warm pool that its job may leave. A trial begins if all that is spent and reserved, its own
share included, stays below max_cost. When the sum reaches max_cost, all trials are stopped.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from spotkeep_jobs.backends.backend import STOPS_WITHIN_SECONDS
from spotkeep_jobs.document.capacity import BETWEEN_PASSES_SECONDS, price_of, types_of
from spotkeep_jobs.document.reading import shown
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.times import format_duration
from spotkeep_jobs.errors import Problem
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.states import EndReason, TrialState
from spotkeep_jobs.record.sweep import Spending, Sweep, Trial
from spotkeep_jobs.runs.rules import NEAR_SHARE

BEHIND_SECONDS: Final = 60
"""AWS's answers may be a little old, and the clocks of functions differ."""
BETWEEN_STOPS_SECONDS: Final = 0.5
"""The launcher asks one trial after the other to stop. Each trial takes a few calls to AWS."""
_UNSEEN_SECONDS: Final = BETWEEN_PASSES_SECONDS + BEHIND_SECONDS
"""For so long may a job be at work, and end, and be deleted by a person, before a pass looks again."""
_SECONDS_PER_HOUR: Final = 3_600
_LEAST_USD: Final = 0.01


def seconds_until_stopped(parallel: int) -> int:
    """Return how long trials may train on when they are to stop.

    A pass of the controller has to see it first, and then each trial has to be stopped.

    Args:
        parallel: The number of trials that train at a time.
    """
    stops = int(parallel * BETWEEN_STOPS_SECONDS)
    return BETWEEN_PASSES_SECONDS + BEHIND_SECONDS + stops + STOPS_WITHIN_SECONDS


def max_cost_of(sweep: Sweep) -> float | None:
    """Return the max_cost of a sweep, in US dollars. None where it has no bound."""
    limit = sweep.document.get("max_cost")
    return None if limit is None else float(limit)


def spent_usd(trials: Iterable[Trial], *, now: datetime) -> float:
    """Return the cost of trials, as the sum of their bills and of unbilled time at the on-demand price.

    Args:
        trials: All of a sweep.
        now: The time.
    """
    return sum(_spent_on(trial, now=now) for trial in trials)


def reserved_usd(trials: Iterable[Trial]) -> float:
    """Return the money that the training trials may still cost until a stop takes effect."""
    return sum(trial.reserved_usd + trial.pool_usd for trial in trials if trial.state is TrialState.RUNNING)


def money_left_usd(sweep: Sweep, trials: Iterable[Trial], *, now: datetime) -> float | None:
    """Return the most that a trial may cost that begins or goes on now, in US dollars. None where there is no bound.

    Args:
        sweep: The sweep's item.
        trials: All its trials.
        now: The time.
    """
    limit = max_cost_of(sweep)
    return None if limit is None else max(_LEAST_USD, round(limit - spent_usd(trials, now=now), 2))


def most_is_spent(sweep: Sweep, trials: Iterable[Trial], *, now: datetime) -> bool:
    """Return True if most of a sweep's max_cost is spent, and that was not noted before."""
    limit = max_cost_of(sweep)
    return limit is not None and not sweep.max_cost_is_near and spent_usd(trials, now=now) >= NEAR_SHARE * limit


def money_is_spent(sweep: Sweep, trials: Sequence[Trial], *, now: datetime) -> str | None:
    """Return why the trials of a sweep have to stop now, so that max_cost is kept. None where they may go on.

    Args:
        sweep: The sweep's item.
        trials: All its trials.
        now: The time.
    """
    limit = max_cost_of(sweep)
    if limit is None:
        return None
    spent, reserved = spent_usd(trials, now=now), reserved_usd(trials)
    return None if spent + reserved < limit else spent_in_words(limit, spent=spent, reserved=reserved)


def spent_in_words(limit: float, *, spent: float, reserved: float) -> str:
    """Say that a max_cost is spent, with the sum that was spent and the sum that must stay for the stop.

    Args:
        limit: The max_cost, in US dollars.
        spent: The money that is spent.
        reserved: The money that trials may cost until a stop takes effect.
    """
    kept = f", and {reserved:.2f} USD are kept for the time until a stop takes effect" if reserved else ""
    return f"its max_cost ({limit:.2f} USD) is spent: its trials have cost {spent:.2f} USD{kept}"


def within_budget(
    sweep: Sweep, *, before: Sequence[Trial], after: Sequence[Trial], now: datetime
) -> tuple[tuple[Trial, ...], float]:
    """Let as many trials begin, or go on, as max_cost pays for beside those that train.

    Args:
        sweep: The sweep's item.
        before: Its trials, in the order of their numbers.
        after: The same, with those that are to begin or go on, each with the money that is reserved for it.
        now: The time.

    Returns:
        The trials. And the money that the first trial needed that may not begin, in US dollars, 0 where all may.
    """
    limit = max_cost_of(sweep)
    if limit is None:
        return tuple(after), 0.0
    known = {trial.number: trial for trial in before}
    committed = spent_usd(before, now=now) + reserved_usd(before)
    trials: list[Trial] = []
    lacking = 0.0
    for trial in after:
        was = known.get(trial.number)
        if trial.state is TrialState.RUNNING and (was is None or was.state is not TrialState.RUNNING):
            needed = trial.reserved_usd + trial.pool_usd
            if lacking or committed + needed >= limit:
                lacking = lacking or needed
                trials += [] if was is None else [was]
                continue
            committed += needed
        trials.append(trial)
    return tuple(trials), lacking


def with_reserve(trial: Trial, request: JobRequest | None, *, prices: Mapping[str, float], parallel: int) -> Trial:
    """Return a trial with the money that is reserved for it while it trains.

    Args:
        trial: One that begins or goes on.
        request: The request of its document, or None if the document is refused, so that the trial costs nothing.
        prices: On-demand US dollars per instance and hour, by instance type.
        parallel: The number of trials that train at a time.
    """
    a_second_usd = 0.0 if request is None else usd_per_second(request, prices=prices)
    pool_seconds = 0 if request is None else request.keep_alive
    return with_changes(
        trial,
        reserved_usd=round(seconds_until_stopped(parallel) * a_second_usd, 6),
        pool_usd=round(pool_seconds * a_second_usd, 6),
    )


def live_spending(run: Run, *, prices: Mapping[str, float], before: Spending | None) -> Spending | None:
    """Return the cost of a live run beside its bill.

    Args:
        run: Its item.
        prices: On-demand US dollars per instance and hour, by instance type.
        before: The cost as it was known before. It stays where the price cannot be read.
    """
    price = prices.get(run.place.instance_type)
    if price is None:
        return before
    if run.instance_time is None:
        return None
    usd_per_second = run.place.instance_count * price / _SECONDS_PER_HOUR
    time = run.instance_time
    if not time.seconds and time.since is None:
        return None
    return Spending(
        usd=round(time.seconds * usd_per_second, 6), usd_per_second=round(usd_per_second, 9), since=time.since
    )


def unbilled_usd(trial: Trial, run: Run, *, prices: Mapping[str, float], now: datetime) -> float:
    """Return the cost of an ended run beside its bill, in US dollars. It is 0, unless the bill is not known.

    A job that is gone may have had its first instance after a pass last looked at it.

    Args:
        trial: The known trial.
        run: Its run.
        prices: On-demand US dollars per instance and hour, by instance type.
        now: The time.
    """
    if run.cost is not None and run.cost.billed_usd is not None:
        return 0.0
    last = live_spending(run, prices=prices, before=trial.spending)
    usd = _billed_usd(trial) + trial.unbilled_usd + _usd_of(last, at=run.ended_at or now)
    if run.end_reason is EndReason.JOB_VANISHED and (last is None or last.since is None):
        usd += _UNSEEN_SECONDS * run.place.instance_count * prices.get(run.place.instance_type, 0.0) / _SECONDS_PER_HOUR
    return round(usd, 6)


def parallel_problems(
    *, limit: float, spent: float, parallel: int, requests: Collection[JobRequest], prices: Mapping[str, float]
) -> list[Problem]:
    """Return the problem that a max_cost does not pay for the trials that are to train at a time, if it does not.

    Args:
        limit: The max_cost, in US dollars.
        spent: The part of it that is spent.
        parallel: The number of trials that are to train at a time.
        requests: The requests of trials. The dearest stands for all.
        prices: On-demand US dollars per instance and hour, by instance type.
    """

    def needed(trials: int) -> float:
        return trials * max(
            (usd_per_second(each, prices=prices) * (seconds_until_stopped(trials) + each.keep_alive))
            for each in requests
        )

    if not requests or spent + needed(parallel) < limit:
        return []
    fits = next((trials for trials in range(parallel - 1, 0, -1) if spent + needed(trials) < limit), 0)
    seconds = seconds_until_stopped(parallel)
    at_once = "a trial" if parallel == 1 else f"{parallel} trials at a time"
    left = f"{limit - spent:.2f} USD are left, and " if spent else ""
    enough = math.floor((spent + needed(parallel)) * 100 + 1) / 100
    raised = f"give a max_cost of {enough:.2f} or more"
    return [
        Problem(
            field="max_cost",
            found=shown(limit),
            problem=f"does not pay for {at_once}: {left}until a stop takes effect ({format_duration(seconds)}) "
            f"{needed(parallel):.2f} USD may be spent",
            fix=f"Set sweep.parallel to {fits} or less, or {raised}." if fits else f"{raised[0].upper()}{raised[1:]}.",
        )
    ]


def _spent_on(trial: Trial, *, now: datetime) -> float:
    pools_usd = len(trial.pools) * trial.pool_usd
    return _billed_usd(trial) + trial.unbilled_usd + _usd_of(trial.spending, at=now) + pools_usd


def _billed_usd(trial: Trial) -> float:
    return 0.0 if trial.cost is None else trial.cost.billed_usd or 0.0


def _usd_of(spending: Spending | None, *, at: datetime) -> float:
    if spending is None:
        return 0.0
    now_usd = 0.0
    if spending.since is not None:
        now_usd = max(0.0, (at - spending.since).total_seconds()) * spending.usd_per_second
    return spending.usd + now_usd


def usd_per_second(request: JobRequest, *, prices: Mapping[str, float]) -> float:
    """Return the cost of a trial while it has instances, on the dearest types that it may use."""
    price = price_of(types_of(request), prices=prices) or 0.0
    return request.hosts * price / _SECONDS_PER_HOUR
