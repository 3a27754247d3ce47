"""Runs in a run table, for tests that need one there and are not about its launch."""

from __future__ import annotations

from typing import Any

from spotkeep_jobs.record.record import Attempt, Run
from spotkeep_jobs.record.run_table import NewRun, Opened, RunTable


def open_run(table: RunTable, *, run: Run, attempt: Attempt, **more: Any) -> Opened:
    """Record a run with its first attempt, as a launcher does."""
    return table.open_runs([NewRun(run=run, attempt=attempt, **more)])[0]
