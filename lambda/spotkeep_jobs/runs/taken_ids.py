"""Which ids a launch may not have, because others have them: runs, sweeps, and what sweeps and schedules reserve.

What is said here is what was read. The transaction that opens a run or a sweep holds it (`record.id_table`).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from spotkeep_jobs.document.reading import shown
from spotkeep_jobs.errors import Problem
from spotkeep_jobs.record.ids import (
    ASKED_BY_A_USER,
    MAX_TRIALS,
    Origin,
    firing_around,
    run_of_trial,
    sweep_around,
)
from spotkeep_jobs.record.run_table import RunTable

_CHOOSE: Final = "Leave `run` out, or choose another id."
_LOOKED_FOR: Final = 20
"""So many trials of a sweep that is refused are looked for, to name those whose ids others have."""
_MOST_NAMED: Final = 5


def problems_of_run_id(table: RunTable, name: str, *, origin: Origin = ASKED_BY_A_USER) -> list[Problem]:
    """Return why a run, or several that are launched as one, may not be called so; not that there is such a run.

    Args:
        table: The run table.
        name: The id of the run, or of all of them.
        origin: What the launch follows from.
    """
    if origin.trial is not None:
        return []
    of_a_sweep = [] if table.sweep(name) is None else [sweep_exists(name)]
    return [*of_a_sweep, *_reserved(table, name, origin=origin)]


def problems_of_sweep_id(table: RunTable, name: str, *, origin: Origin = ASKED_BY_A_USER) -> list[Problem]:
    """Return why a sweep may not be called so.

    Args:
        table: The run table.
        name: Its id.
        origin: What the launch follows from.
    """
    problems = []
    if table.sweep(name) is not None or table.get(name) is not None:
        problems.append(sweep_exists(name))
    elif (newest := table.run_with_id_of_a_trial(name)) is not None:
        first = [run_of_trial(name, number) for number in range(1, _LOOKED_FOR + 1)]
        taken = {run: None for run in first if table.get(run) is not None} | {newest: None}
        reserved = f"{run_of_trial(name, 1)} to {run_of_trial(name, MAX_TRIALS)}"
        problem = f"as a sweep's id reserves {reserved} for its trials, and others have: {_listed(taken)}"
        problems.append(Problem(field="run", found=shown(name), problem=problem, fix=_CHOOSE))
    return [*problems, *_reserved(table, name, origin=origin, is_sweep=True)]


def problems_of_schedule_id(table: RunTable, name: str, *, now: datetime) -> list[Problem]:
    """Return why a schedule may not be called so: what it would launch is called like something that is there.

    Args:
        table: The run table.
        name: Its id.
        now: The time, aware.
    """
    taken = table.ids_of_firings(name, now=now)
    if not taken:
        return []
    ids = [each.id for each in taken]
    problem = f"as a schedule's name reserves ids for what it launches, and others have: {_listed(ids)}"
    return [Problem(field="run", found=shown(name), problem=problem, fix="Choose another name.")]


def sweep_exists(sweep: str) -> Problem:
    """Say that the id is taken."""
    return Problem(
        field="run",
        found=shown(sweep),
        problem="is the id of a sweep or a run that exists already",
        fix=f"Leave `run` out, choose another id, or go on with that one: spotkeep resume {sweep}",
    )


def id_is_reserved(name: str) -> Problem:
    """Say that the id became another's while it was asked for."""
    return Problem(
        field="run", found=shown(name), problem="is the id of something that was launched just now", fix=_CHOOSE
    )


def _reserved(table: RunTable, name: str, *, origin: Origin, is_sweep: bool = False) -> list[Problem]:
    problems = []
    sweep = sweep_around(name)
    if sweep is not None and table.sweep(sweep) is not None:
        problem = f"is an id that sweep {sweep} has for its trials"
        problems.append(Problem(field="run", found=shown(name), problem=problem, fix=_CHOOSE))
    firing = firing_around(name, is_sweep=is_sweep)
    if firing is not None and firing.schedule != origin.schedule and table.schedule(firing.schedule) is not None:
        problem = f"is an id that schedule {firing.schedule} has for what it launches"
        problems.append(Problem(field="run", found=shown(name), problem=problem, fix=_CHOOSE))
    return problems


def _listed(names: Iterable[str]) -> str:
    named = list(names)
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    return ", ".join(named[:_MOST_NAMED]) + more
