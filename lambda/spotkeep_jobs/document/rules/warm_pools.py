"""Rules about warm pools, and the teams that share them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spotkeep_jobs.document.deployment_defaults import DeploymentDefaults
from spotkeep_jobs.document.durations import format_duration
from spotkeep_jobs.document.reading import nearest, shown
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.rules.rule import Rule, rule
from spotkeep_jobs.errors import Problem


@rule("capacity", "keep_alive")
def _no_warm_pool_on_spot(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.capacity != "on-demand" and request.keep_alive:
        yield Problem(
            field="keep_alive",
            found=format_duration(request.keep_alive),
            problem=f"is given with capacity: {request.capacity}; AWS keeps no warm pool for spot instances",
            fix="Either keep spot and remove keep_alive (cheaper), or keep keep_alive and choose capacity: on-demand "
            "(the next job starts faster).",
        )


@rule("keep_alive")
def _pool_within_the_limit(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    longest = defaults.max_keep_alive_seconds
    if longest is not None and request.keep_alive > longest:
        yield Problem(
            field="keep_alive",
            found=format_duration(request.keep_alive),
            problem=f"is longer than this deployment keeps a warm pool ({format_duration(longest)})",
            fix=f"Give {format_duration(longest)} at most, or ask for a higher max_keep_alive_seconds."
            if longest
            else "Remove keep_alive, or ask for a higher max_keep_alive_seconds.",
        )


@rule("team")
def _team_is_known(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.team is None or defaults.teams is None or request.team in defaults.teams:
        return
    yield Problem(
        field="team",
        found=shown(request.team),
        problem="has no role of its own in this deployment",
        fix=nearest(request.team, defaults.teams)
        if defaults.teams
        else "Remove team, or ask for it in the setting isolated_teams.",
    )


RULES: Final[tuple[Rule, ...]] = (
    _no_warm_pool_on_spot,
    _pool_within_the_limit,
    _team_is_known,
)
