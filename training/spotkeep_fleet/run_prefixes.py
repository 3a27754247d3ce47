"""Where the objects of a run are in the checkpoint bucket: what roles are bound by, and what everybody else goes by.

runs/<run>/                  checkpoints/, output/, source/ of a run
teams/<team>/runs/<run>/     the same of a run of an isolated team, whose role alone reaches it
"""

from __future__ import annotations

RUNS_PREFIX = "runs/"
TEAMS_PREFIX = "teams/"


def runs_prefix(team: str | None = None) -> str:
    """Return what the keys of all runs begin with that share a role.

    Args:
        team: An isolated team; None for the runs of everybody else.
    """
    return RUNS_PREFIX if team is None else f"{TEAMS_PREFIX}{team}/{RUNS_PREFIX}"


def run_prefix(run: str, *, team: str | None = None) -> str:
    """Return what the keys of a run's objects begin with.

    Args:
        run: Its id.
        team: The isolated team that it is of; None for any other run.
    """
    return f"{runs_prefix(team)}{run}/"
