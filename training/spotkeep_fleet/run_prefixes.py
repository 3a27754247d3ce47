"""The key prefixes of a run's objects in the checkpoint bucket. Roles are bound by them, and all code goes by them.

runs/<run>/          checkpoints/ and output/, to which its jobs write
sources/<run>/       the archives that its user uploads, and its jobs execute
specs/<run>/         the training specs that the launcher writes, and its jobs read (`training_spec`)
teams/<team>/        the same three of an isolated team, which its role alone reaches

The objects of different writers have no prefix in common. A `*` in a policy stands for slashes, too. So
`runs/*/source/*` would also stand for `runs/<run>/checkpoints/source/<file>`.

Source: "IAM JSON policy elements: Resource" in the IAM user guide.
"""

from __future__ import annotations

RUNS_PREFIX = "runs/"
SOURCES_PREFIX = "sources/"
SPECS_PREFIX = "specs/"
PREFIXES = (RUNS_PREFIX, SOURCES_PREFIX, SPECS_PREFIX)
"""The beginnings of all keys of runs, apart from isolated teams'."""
TEAMS_PREFIX = "teams/"


def runs_prefix(team: str | None = None) -> str:
    """Return the key prefix to which the jobs of all runs that share a role write.

    Args:
        team: An isolated team. None for all other runs.
    """
    return of_team(RUNS_PREFIX, team)


def run_prefix(run: str, *, team: str | None = None) -> str:
    """Return the key prefix to which a run's jobs write.

    Args:
        run: Its id.
        team: The isolated team of the run. None for any other run.
    """
    return f"{runs_prefix(team)}{run}/"


def source_prefix(run: str, *, team: str | None = None) -> str:
    """Return the key prefix of a run's source archives.

    Args:
        run: Its id, or that of its sweep or schedule.
        team: The isolated team of the run. None for any other run.
    """
    return f"{of_team(SOURCES_PREFIX, team)}{run}/"


def specs_prefix(run: str, *, team: str | None = None) -> str:
    """Return the beginning of the keys of a run's training specs.

    Args:
        run: Its id.
        team: The isolated team of the run. None for any other run.
    """
    return f"{of_team(SPECS_PREFIX, team)}{run}/"


def of_team(prefix: str, team: str | None) -> str:
    """Return one of `PREFIXES` as it is for a team.

    Args:
        prefix: One of `PREFIXES`.
        team: An isolated team. None for all others.
    """
    return prefix if team is None else f"{TEAMS_PREFIX}{team}/{prefix}"
