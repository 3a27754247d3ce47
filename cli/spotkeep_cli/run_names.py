"""Finds a run or a sweep by its id, or by the beginning of it. `SWEEP/17` is a trial."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, TypeVar

from spotkeep_cli.errors import RunNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spotkeep_jobs.record.record import Run
    from spotkeep_jobs.record.run_table import RunTable
    from spotkeep_jobs.record.sweep import Sweep

FoundT = TypeVar("FoundT")

MOST_RUNS = 500
"""Abbreviations are looked up among so many of the newest runs. One that cannot be read has none (`ps` names it)."""


def find_run(table: RunTable, text: str | None, *, command: str) -> Run:
    """Return the run with that id, or the only one whose id begins with it. Without a text, return the newest run.

    Args:
        table: The run table.
        text: The user's text.
        command: The words to call `spotkeep` with, for the hint.

    Raises:
        RunNotFoundError: No run or several have it. The error names the nearest ids.
    """
    if text is None:
        return _newest(_runs_by_id(table).values(), at_work=False, command=command)
    if "/" in text:
        return _trial(table, text, command=command)
    run = table.runs.get(text)
    if run is None and table.sweeps.get(text) is not None:
        raise RunNotFoundError(
            f"{text} is a sweep, and this is of one run",
            hint=f"name a trial, such as {text}/1. `{command} describe {text}` lists them",
        )
    return run or _only(_runs_by_id(table), text, what="run", command=command)


def find_sweep(table: RunTable, text: str, *, command: str, hint_of_run: str | None = None) -> Sweep:
    """Return the sweep with that id, or the only one whose id begins with it. It works like `find_run`.

    Args:
        table: The run table.
        text: The user's text.
        command: The words to call `spotkeep` with, for the hint.
        hint_of_run: The remedy where the id is a run's. By default it names the list of sweeps.

    Raises:
        RunNotFoundError: No sweep or several have it. The error names the nearest ids.
    """
    sweep = table.sweeps.get(text)
    if sweep is None and table.runs.get(text) is not None:
        raise RunNotFoundError(
            f"{text} is a run, and this is of a sweep", hint=hint_of_run or f"`{command} ps --all` lists the sweeps"
        )
    return sweep or _only(_sweeps_by_id(table), text, what="sweep", command=command)


def find_run_or_sweep(table: RunTable, text: str | None, *, command: str, at_work: bool = False) -> Run | Sweep:
    """Return the run or the sweep with that id, or the only one whose id begins with it. It works like `find_run`.

    Args:
        table: The run table.
        text: The user's text. None for the newest.
        command: The words to call `spotkeep` with, for the hint.
        at_work: True if the newest is sought among those that have not ended.

    Raises:
        RunNotFoundError: None or several have it. The error names the nearest ids.
    """
    if text is None:
        found: list[Run | Sweep] = [*_runs_by_id(table).values(), *_sweeps_by_id(table).values()]
        return _newest(found, at_work=at_work, command=command)
    if "/" in text:
        return _trial(table, text, command=command)
    exact = table.runs.get(text) or table.sweeps.get(text)
    if exact is not None:
        return exact
    known: dict[str, Run | Sweep] = {**_runs_by_id(table), **_sweeps_by_id(table)}
    return _only(known, text, what="run", command=command)


def known_ids(table: RunTable) -> list[str]:
    """Return the ids of the newest runs and sweeps, the newest first, without those of rehearsals."""
    from spotkeep_cli.rendering.lists import is_rehearsal  # it loads what `--help` does without

    created = {name: run.created_at for name, run in _runs_by_id(table).items() if not is_rehearsal(run)}
    created |= {name: sweep.created_at for name, sweep in _sweeps_by_id(table).items() if not is_rehearsal(sweep)}
    return sorted(created, key=lambda name: created[name], reverse=True)


def _newest(known: Iterable[FoundT], *, at_work: bool, command: str) -> FoundT:
    """Return the newest run or sweep. Rehearsals count where there is nothing else."""
    from spotkeep_cli.rendering.lists import is_rehearsal  # it loads what `--help` does without

    found: list[Any] = [each for each in known if not (at_work and each.state.ended)]  # type: ignore[attr-defined]
    found = [each for each in found if not is_rehearsal(each)] or found
    if not found:
        what = "no run is at work" if at_work else "there is no run yet"
        raise RunNotFoundError(
            what, hint=f"`{command} ps --all` lists the runs, `{command} launch job.yaml` launches one"
        )
    newest: FoundT = max(found, key=lambda each: each.created_at)
    return newest


def _runs_by_id(table: RunTable) -> dict[str, Run]:
    return {run.run: run for run in table.runs.list(limit=MOST_RUNS, unreadable={})}


def _sweeps_by_id(table: RunTable) -> dict[str, Sweep]:
    return {sweep.sweep: sweep for sweep in table.sweeps.list(limit=MOST_RUNS, unreadable={})}


def _trial(table: RunTable, text: str, *, command: str) -> Run:
    """Return the run of a trial that is named by its sweep and its number."""
    name, _, number = text.rpartition("/")
    sweep = find_sweep(table, name, command=command)
    run = table.runs.trial_run(sweep.sweep, int(number)) if number.isdecimal() else None
    if run is None:
        raise RunNotFoundError(
            f"{sweep.sweep} has no trial {number}: {sweep.counts.chosen} were begun",
            hint=f"`{command} describe {sweep.sweep}` lists them",
        )
    return run


def _only(known: Mapping[str, FoundT], text: str, *, what: str, command: str) -> FoundT:
    """Return the only one whose id begins with a text."""
    matching = [name for name in known if name.startswith(text)]
    if len(matching) == 1:
        return known[matching[0]]
    if matching:
        raise RunNotFoundError(
            f"{text!r} is the beginning of {len(matching)} {what}s: {_few(matching)}",
            hint="type enough of the id to tell them apart",
        )
    near = nearest(text, known)
    meant = f"did you mean {_few(near)}? " if near else ""
    raise RunNotFoundError(
        f"there is no {what} {text!r}", hint=f"{meant}`{command} ps --all` lists the {what}s".strip()
    )


def nearest(text: str, known: Iterable[str]) -> list[str]:
    """Return up to three known ids that resemble the typed one, the likeliest first."""
    names = list(known)
    close = difflib.get_close_matches(text, names, n=3, cutoff=0.6)
    # A run's id is a name and eight random characters: a name that is typed alone, nearly right, means it too.
    by_stem = {name.rpartition("-")[0] or name: name for name in reversed(names)}
    stems = difflib.get_close_matches(text, list(by_stem), n=3, cutoff=0.7)
    return list(dict.fromkeys([*close, *(by_stem[stem] for stem in stems)]))[:3]


def _few(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown}, ..." if len(names) > 3 else shown
