"""Finds the run a person means: its id, or the beginning of it."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from spotkeep_cli.errors import RunNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spotkeep_jobs.record.record import Run
    from spotkeep_jobs.record.run_table import RunTable

MOST_RUNS = 500
"""Abbreviations are looked up among so many of the newest runs."""


def find_run(runs: RunTable, text: str, *, command: str) -> Run:
    """Return the run with that id, or the only one whose id begins with it.

    Args:
        runs: The run table.
        text: What the user typed.
        command: How to call `spotkeep`, for the hint.

    Raises:
        RunNotFoundError: None, or several; names the nearest.
    """
    exact = runs.get(text)
    if exact is not None:
        return exact
    known = {run.run: run for run in runs.list(limit=MOST_RUNS)}
    matching = [name for name in known if name.startswith(text)]
    if len(matching) == 1:
        return known[matching[0]]
    if matching:
        raise RunNotFoundError(
            f"{text!r} is the beginning of {len(matching)} runs: {_few(matching)}",
            hint="type enough of the id to tell them apart",
        )
    near = nearest(text, known)
    meant = f"did you mean {_few(near)}? " if near else ""
    raise RunNotFoundError(f"there is no run {text!r}", hint=f"{meant}`{command} ps --all` lists the runs".strip())


def nearest(text: str, known: Iterable[str]) -> list[str]:
    """Return up to three known ids that look like what was typed, the likeliest first."""
    names = list(known)
    close = difflib.get_close_matches(text, names, n=3, cutoff=0.6)
    # A run's id is a name and eight random characters: a name that is typed alone, nearly right, means it too.
    by_stem = {name.rpartition("-")[0] or name: name for name in reversed(names)}
    stems = difflib.get_close_matches(text, list(by_stem), n=3, cutoff=0.7)
    return list(dict.fromkeys([*close, *(by_stem[stem] for stem in stems)]))[:3]


def _few(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown}, ..." if len(names) > 3 else shown
