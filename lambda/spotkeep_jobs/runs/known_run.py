"""A run that a user names: its run item, or a refusal."""

from __future__ import annotations

from spotkeep_jobs.document.reading import shown
from spotkeep_jobs.errors import Problem, RequestRefusedError
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.run_table import RunTable


def known_run(table: RunTable, run: str) -> Run:
    """Returns a run's item.

    Raises:
        RequestRefusedError: The run is not known.
    """
    found = table.get(run)
    if found is None:
        raise RequestRefusedError([unknown_run(run)])
    return found


def unknown_run(run: str) -> Problem:
    """Says that there is no such run."""
    return Problem(
        field="run",
        found=shown(run),
        problem="is not a run of this deployment",
        fix="See the runs there are: spotkeep ps --all",
    )
