"""Warm pools for a person: the table of `pool ls`, and what a job would take and why not the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.columns import Column, table_that_fits
from spotkeep_jobs.pools.warm_pool import idle_usd

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from rich.console import RenderableType
    from rich.table import Table

    from spotkeep_jobs.pools.matching import Difference, PoolMatch
    from spotkeep_jobs.record.record import Pool


def pool_list(pools: Sequence[Pool], *, now: datetime, width: int) -> Table:
    """Return one row a pool: who left it, what it runs on, how long it is there, what it has cost."""
    columns = [
        Column(heading="RUN", cells=[pool.run for pool in pools]),
        Column(heading="ON", cells=[machines(pool) for pool in pools]),
        Column(heading="LEFT", cells=[left(pool, now=now) for pool in pools], justify="right"),
        Column(heading="IDLE", cells=[_idle(pool, now=now) for pool in pools], importance=1, justify="right"),
        Column(
            heading="COST SO FAR",
            cells=[quantities.dollars(idle_usd(pool, now=now)) for pool in pools],
            importance=3,
            justify="right",
        ),
        Column(heading="ROLE", cells=[_role(pool) for pool in pools], importance=0),
        Column(heading="OWNER", cells=[pool.owner or quantities.UNKNOWN for pool in pools], importance=2),
    ]
    return table_that_fits(columns, width=width)


def pool_matches(matches: Sequence[PoolMatch], *, now: datetime) -> RenderableType:
    """Return the pools a job would take, then the others, each with every criterion that differs."""
    lines: list[RenderableType] = []
    for match in matches:
        pool = match.pool
        mark, style, word = ("✓", "green", "fits") if match.fits else ("✗", "red", "does not fit")
        about = f"{machines(pool)}, {left(pool, now=now)} left"
        lines.append(Text.assemble((f"{mark} ", style), (pool.run, "bold"), f"  {about}: {word}"))
        lines += [
            Padding(Text.assemble((difference.criterion, "yellow"), _sides(difference)), (0, 0, 0, 4))
            for difference in match.differences
        ]
    return Group(*lines)


def match_in_a_plan(matches: Sequence[PoolMatch], *, now: datetime) -> str:
    """Return what the plan of a launch says of the pools there are; empty when there are none."""
    if not matches:
        return "there is none: it starts on new instances"
    fitting = [match.pool for match in matches if match.fits]
    if fitting:
        pool = fitting[0]
        others = f" (or one of {len(fitting) - 1} others that fit)" if len(fitting) > 1 else ""
        return f"it takes the one that {pool.run} left, {left(pool, now=now)} before its end{others}"
    nearest = matches[0]
    named = ", ".join(difference.criterion.rpartition(".")[2] for difference in nearest.differences)
    return f"none of {quantities.counted(len(matches), 'pool')} fits; that of {nearest.pool.run} differs in {named}"


def machines(pool: Pool) -> str:
    """Return what a pool is made of: `2 x ml.m5.xlarge`."""
    return f"{pool.traits.instance_count} x {pool.traits.instance_type}"


def left(pool: Pool, *, now: datetime) -> str:
    """Return how long a pool is there."""
    return quantities.duration(max(0.0, (pool.kept_until - now).total_seconds()))


def _sides(difference: Difference) -> str:
    return f": the job asks for {difference.wanted}, the pool has {difference.offered}"


def _idle(pool: Pool, *, now: datetime) -> str:
    return quantities.duration(max(0.0, (now - pool.kept_since).total_seconds()))


def _role(pool: Pool) -> str:
    return pool.traits.role_arn.rpartition("/")[2]
