"""The bill of a sweep: the sum of its trials' bills. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from spotkeep_jobs.cost.run_cost import percent_of
from spotkeep_jobs.record.record import Cost


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
        """Return a sum in which None stands for what was not used."""
        values = [value for cost in costs if (value := getattr(cost, name)) is not None]
        return round(sum(values), 6) if values else None

    redone_steps = known_total("redone_steps")
    prices = {cost.usd_per_hour for cost in costs}
    saved_seconds, clean_seconds = total("saved_seconds"), total("clean_on_demand_seconds")
    return Cost(
        billed_seconds=total("billed_seconds"),
        training_seconds=total("training_seconds"),
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
