"""The bill of a run or a sweep (I8), as its cost against a clean on-demand run of the same work. Pure.

SageMaker's own figure, (1 - billable / training) x 100, counts repeated work as useful. Here the comparison is a run
on demand without interruptions. The steps that were trained again are taken from the training time. So are the
downloading and loading that each restart repeats. The bill of a sweep is the sum of its trials' bills.

Source: https://docs.aws.amazon.com/sagemaker/latest/dg/model-managed-spot-training.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.backends.backend import (
    ON_INSTANCES_PHASES,
    WAITING_PHASES,
    count_interruptions,
    time_in,
    time_loading_again,
)
from spotkeep_jobs.progress.progress import trained_before
from spotkeep_jobs.record.record import Attempt, Cost, JobUsage

if TYPE_CHECKING:
    from spotkeep_jobs.backends.backend import CostSoFar, JobView
    from spotkeep_jobs.progress.job_log import JobLog

_SECONDS_PER_HOUR: Final = 3600


def usage_of(*, job: JobView, log: JobLog, earlier: Sequence[Attempt], ended_at: datetime) -> JobUsage:
    """Return the usage of one attempt's job.

    A job's log is its own statement. The redone and reloaded time in it never counts as more than SageMaker's training
    time.

    Args:
        job: The backend's description of the ended job.
        log: Its log.
        earlier: The run's earlier attempts.
        ended_at: The time of the job's end.
    """
    continues = trained_before(earlier)
    steps = log.steps
    interruptions = count_interruptions(job)
    redone_steps: int | None = steps.redone_steps
    redone_seconds: float | None = 0.0
    restarted = bool(job.training_seconds and (interruptions or continues))
    all_read = log.complete and not any(_is_half_known(attempt.usage) for attempt in earlier)
    if restarted and (steps.last_step is None or not all_read):
        # The job never said where it was, or not all logs are here: what it repeated is not known.
        redone_steps = redone_seconds = None
    elif steps.redone_steps:
        per_step = steps.seconds_per_step
        redone_seconds = None if per_step is None else min(steps.redone_steps * per_step, job.training_seconds or 0.0)
    return JobUsage(
        instance_count=job.instance_count,
        instance_seconds=job.instance_seconds,
        billable_seconds=job.billable_seconds,
        training_seconds=job.training_seconds,
        waited_seconds=_rounded(time_in(job, WAITING_PHASES, until=ended_at).total_seconds()),
        redone_steps=redone_steps,
        redone_seconds=redone_seconds,
        restart_overhead_seconds=min(steps.loading_again_seconds, job.training_seconds or 0.0)
        + _rounded(time_loading_again(job, continues=continues, until=ended_at).total_seconds()),
        last_step=steps.last_step,
        log_complete=log.complete,
        charges=job.charges,
    )


def _is_half_known(usage: JobUsage | None) -> bool:
    """Say whether an attempt may have trained steps that a later one repeats, and that were not read in its log."""
    return usage is not None and bool(usage.training_seconds) and not usage.log_complete


def bill(attempts: Sequence[Attempt], *, prices: Mapping[str, float]) -> Cost | None:
    """Add up the attempts of a run.

    Args:
        attempts: All of the run's attempts, first to last.
        prices: On-demand US dollars per instance and hour, by instance type.

    Returns:
        None when some attempt's usage is not known. An unknown bill is never guessed.
    """
    if [attempt.attempt for attempt in attempts] != list(range(1, len(attempts) + 1)):
        return None  # The record of an attempt expired under a run that was resumed for months.
    usages = []
    for attempt in attempts:
        usage = attempt.usage if attempt.job_id is not None else _without_job(attempt)
        if usage is None:
            return None
        usages.append(usage)
    if not usages:
        return None
    worked = sum(_worked_seconds(usage) for usage in usages)
    # SageMaker bills a pool's idle time as it bills work; its own percentage leaves it out.
    idle = sum(usage.pool_idle_seconds * usage.instances for usage in usages)
    billed = worked + idle
    training = sum((usage.training_seconds or 0.0) * usage.instances for usage in usages)
    clean = sum(_clean_seconds(usage) for usage in usages)
    charges = [usage.charges for usage in usages if usage.charges is not None]
    known_prices = [_on_demand_price(a, u, prices=prices) for a, u in zip(attempts, usages, strict=True)]
    worked_usd = _worked_usd(usages, known_prices)
    idle_usd = _priced([u.pool_idle_seconds * u.instances for u in usages], known_prices)
    if charges and not any(usage.pool_idle_seconds for usage in usages):
        idle_usd = 0.0
    storage_usd = sum(each.storage_usd or 0.0 for each in charges)
    snapshot_usd = sum(each.snapshot_usd or 0.0 for each in charges)
    root_volume_usd = sum(each.root_volume_usd or 0.0 for each in charges)
    stored_usd = storage_usd + snapshot_usd + root_volume_usd
    billed_usd = None if worked_usd is None or idle_usd is None else round(worked_usd + idle_usd + stored_usd, 6)
    # Without an on-demand price a fleet's bill cannot be held against one.
    comparable = all(each.billable_seconds is not None for each in charges)
    clean_usd = _priced([_clean_seconds(usage) for usage in usages], known_prices)
    return Cost(
        billed_seconds=_rounded(billed),
        training_seconds=_rounded(training),
        worked_seconds=_rounded(sum(usage.training_seconds or 0.0 for usage in usages)),
        waited_seconds=_rounded(sum(usage.waited_seconds for usage in usages)),
        redone_steps=_total([usage.redone_steps for usage in usages]),
        redone_seconds=_instance_seconds(usages),
        restart_overhead_seconds=_rounded(sum(usage.restart_overhead_seconds * usage.instances for usage in usages)),
        clean_on_demand_seconds=_rounded(clean),
        saved_seconds=_rounded(clean - billed) if comparable else 0.0,
        saved_percent=(_fleet_saved_percent(clean_usd, billed_usd) if comparable else None)
        if charges
        else percent_of(clean - billed, of=clean),
        # A figure of SageMaker's console; EC2 shows none.
        aws_saved_percent=None if charges else percent_of(training - worked, of=training),
        usd_per_hour=known_prices[-1],
        billed_usd=billed_usd,
        idle_pool_seconds=_rounded(idle),
        idle_pool_usd=idle_usd,
        clean_on_demand_usd=clean_usd,
        saved_usd=None if billed_usd is None or clean_usd is None else round(clean_usd - billed_usd, 6),
        storage_gb_hours=round(sum(each.storage_gb_hours for each in charges), 3),
        storage_usd=round(storage_usd, 6) if any(each.storage_usd is not None for each in charges) else None,
        snapshot_gb_hours=round(sum(each.snapshot_gb_hours for each in charges), 6),
        snapshot_usd=round(snapshot_usd, 6) if any(each.snapshot_usd is not None for each in charges) else None,
        root_volume_gb_hours=round(sum(each.root_volume_gb_hours for each in charges), 3),
        root_volume_usd=(
            round(root_volume_usd, 6) if any(each.root_volume_usd is not None for each in charges) else None
        ),
        unknown_prices=tuple(dict.fromkeys(name for each in charges for name in each.unknown)),
    )


@dataclass(frozen=True, kw_only=True)
class LiveCost:
    """The cost of a run with a live job.

    Attributes:
        usd: US dollars so far.
        usd_per_second: US dollars per second of its instances. 0.0 for a fleet, whose price moves.
        bills: True while it has instances.
        remark: The prices that are missing in it, in a clause. Empty where none is.
    """

    usd: float
    usd_per_second: float
    bills: bool
    remark: str = ""


def live_cost(
    *,
    earlier: Sequence[Attempt],
    recorded: Cost | None,
    attempt: Attempt,
    job: JobView,
    prices: Mapping[str, float],
    spot_usd_per_hour: float | None,
    now: datetime,
) -> LiveCost | None:
    """Add up the cost of a run, its live job included. None where that is not known before the job is over.

    A job on demand is billed by the second. SageMaker reports the bill of a spot job when it is over. Its on-demand
    price is an upper bound. With that bound the run would end long before its money is spent. EC2 gives the prices of
    a fleet at any time, and the backend counts with them.

    Args:
        earlier: The attempts before it, without those whose records have expired.
        recorded: The bill of all attempts before it, as it was recorded. It counts where records have expired.
        attempt: The live attempt.
        job: The backend's description of its job.
        prices: On-demand US dollars per instance and hour, by instance type.
        spot_usd_per_hour: The planned price of spot, or None where it was not planned.
        now: The time.
    """
    is_first = attempt.attempt == 1
    before = None if is_first else bill(earlier, prices=prices) or recorded
    if attempt.place.backend == "ec2":
        return _live_cost_of_fleet(job.cost_so_far, before=before, is_first=is_first, job=job)
    price = spot_usd_per_hour if attempt.place.capacity == "spot" else prices.get(attempt.place.instance_type)
    if price is None or (not is_first and (before is None or before.billed_usd is None)):
        return None
    billed_usd = 0.0 if before is None else before.billed_usd or 0.0
    usd_per_second = attempt.place.instance_count * price / _SECONDS_PER_HOUR
    return LiveCost(
        usd=billed_usd + time_in(job, ON_INSTANCES_PHASES, until=now).total_seconds() * usd_per_second,
        usd_per_second=usd_per_second,
        bills=job.phase in ON_INSTANCES_PHASES,
    )


def _live_cost_of_fleet(
    so_far: CostSoFar | None, *, before: Cost | None, is_first: bool, job: JobView
) -> LiveCost | None:
    billed_usd = 0.0 if is_first else None if before is None else before.billed_usd
    if so_far is None or billed_usd is None:
        return None
    remarks = []
    if so_far.at_on_demand:
        remarks.append(f"with the on-demand price for {', '.join(so_far.at_on_demand)}")
    missing = dict.fromkeys((*(() if before is None else before.unknown_prices), *so_far.not_counted))
    if missing:
        remarks.append(f"without {', '.join(missing)}, as no price is known")
    return LiveCost(
        usd=billed_usd + so_far.usd,
        usd_per_second=0.0,
        bills=job.phase in ON_INSTANCES_PHASES,
        remark="; ".join(remarks),
    )


def _worked_seconds(usage: JobUsage) -> float:
    """Return the billed instance seconds on demand. For a fleet without known prices they are undiscounted."""
    if usage.charges is None:
        return (usage.billable_seconds or 0.0) * usage.instances
    billable = usage.charges.billable_seconds
    return usage.charges.instance_seconds if billable is None else billable


def _on_demand_price(attempt: Attempt, usage: JobUsage, *, prices: Mapping[str, float]) -> float | None:
    """Return the price of one instance. A fleet may have several types, so it is their mean over time."""
    charges = usage.charges
    if charges is None or not charges.instance_seconds:
        return prices.get(attempt.place.instance_type)
    if charges.on_demand_usd is None:
        return None
    return charges.on_demand_usd * _SECONDS_PER_HOUR / charges.instance_seconds


def _worked_usd(usages: Sequence[JobUsage], usd_per_hour: Sequence[float | None]) -> float | None:
    total = 0.0
    for usage, price in zip(usages, usd_per_hour, strict=True):
        charges = usage.charges
        usd = _priced([_worked_seconds(usage)], [price]) if charges is None else charges.instances_usd
        if usd is None:
            return None
        total += usd
    return round(total, 6)


def _fleet_saved_percent(clean_usd: float | None, billed_usd: float | None) -> float | None:
    """Return the saving as a percentage of dollars.

    Instances of several types and prices, and storage, have no common second.
    """
    if not clean_usd or billed_usd is None:
        return None
    return percent_of(clean_usd - billed_usd, of=clean_usd)


def _without_job(attempt: Attempt) -> JobUsage:
    """Return the empty usage of an attempt without a created training job."""
    return JobUsage(
        instance_count=attempt.place.instance_count,
        billable_seconds=None,
        training_seconds=None,
        waited_seconds=0.0,
        redone_steps=0,
        redone_seconds=0.0,
        restart_overhead_seconds=0.0,
    )


def _clean_seconds(usage: JobUsage) -> float:
    worked = (usage.training_seconds or 0.0) - (usage.redone_seconds or 0.0) - usage.restart_overhead_seconds
    return max(0.0, worked) * usage.instances


def _instance_seconds(usages: Sequence[JobUsage]) -> float | None:
    redone = [None if usage.redone_seconds is None else usage.redone_seconds * usage.instances for usage in usages]
    total = 0.0
    for seconds in redone:
        if seconds is None:
            return None
        total += seconds
    return _rounded(total)


def _total(steps: Sequence[int | None]) -> int | None:
    known = [count for count in steps if count is not None]
    return sum(known) if len(known) == len(steps) else None


def _priced(seconds: Sequence[float], usd_per_hour: Sequence[float | None]) -> float | None:
    total = 0.0
    for used, price in zip(seconds, usd_per_hour, strict=True):
        if price is None:
            return None
        total += used * price / _SECONDS_PER_HOUR
    return round(total, 6)


def percent_of(part: float, *, of: float) -> float | None:
    """Return a part in per cent, to one place. None of nothing."""
    return round(100 * part / of, 1) if of > 0 else None


def _rounded(seconds: float) -> float:
    return round(seconds, 3)


def total_cost(costs: Sequence[Cost]) -> Cost | None:
    """Add up the bills of runs.

    Args:
        costs: The bills, each of all attempts of a run that have ended.

    Returns:
        Their sum: a figure that one of them does not know is not known of the sum either. None for no bills.
    """
    if not costs:
        return None

    def total(name: str) -> float:
        return float(round(sum(getattr(cost, name) for cost in costs), 6))

    def known_total(name: str) -> float | None:
        values = [getattr(cost, name) for cost in costs]
        return None if any(value is None for value in values) else round(sum(values), 6)

    def stored_total(name: str) -> float | None:
        """Return a sum in which None stands for unused storage."""
        values = [value for cost in costs if (value := getattr(cost, name)) is not None]
        return round(sum(values), 6) if values else None

    redone_steps = known_total("redone_steps")
    prices = {cost.usd_per_hour for cost in costs}
    saved_seconds, clean_seconds = total("saved_seconds"), total("clean_on_demand_seconds")
    return Cost(
        billed_seconds=total("billed_seconds"),
        training_seconds=total("training_seconds"),
        worked_seconds=known_total("worked_seconds"),
        waited_seconds=total("waited_seconds"),
        redone_steps=None if redone_steps is None else int(redone_steps),
        redone_seconds=known_total("redone_seconds"),
        restart_overhead_seconds=total("restart_overhead_seconds"),
        clean_on_demand_seconds=clean_seconds,
        saved_seconds=saved_seconds,
        saved_percent=percent_of(saved_seconds, of=clean_seconds),
        aws_saved_percent=None,
        usd_per_hour=prices.pop() if len(prices) == 1 else None,
        billed_usd=known_total("billed_usd"),
        idle_pool_seconds=total("idle_pool_seconds"),
        idle_pool_usd=stored_total("idle_pool_usd"),
        clean_on_demand_usd=known_total("clean_on_demand_usd"),
        saved_usd=known_total("saved_usd"),
        storage_gb_hours=total("storage_gb_hours"),
        storage_usd=stored_total("storage_usd"),
        snapshot_gb_hours=total("snapshot_gb_hours"),
        snapshot_usd=stored_total("snapshot_usd"),
        root_volume_gb_hours=total("root_volume_gb_hours"),
        root_volume_usd=stored_total("root_volume_usd"),
        unknown_prices=tuple(dict.fromkeys(name for cost in costs for name in cost.unknown_prices)),
    )
