"""The rights of a caller in a deployment that verifies its callers (the setting `verify_callers`).

A caller owns the runs that they launch. The owner, the owner's team and the administrators may act on a run. Every user
may read every run, because the users' policy lets them read the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.document.reading import shown
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.errors import Problem, RequestRefusedError
from spotkeep_jobs.record.fields import Caller
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.run_table import RunTable

if TYPE_CHECKING:
    from spotkeep_jobs.deployment import Deployment
    from spotkeep_jobs.settings import LauncherSettings


_PREFIX_OF_A_RUN: Final = re.compile(r"s3://[^/]+/(?:.+/)?runs/([^/]+)/checkpoints/")


@dataclass(frozen=True, kw_only=True)
class CallerRules:
    """The members of each team, and the administrators. A team that is not listed has no members.

    In a pattern, `*` stands for any characters except `:` and `/`.

    Attributes:
        team_members: Patterns of principals' ARNs by team.
        administrators: Patterns of principals that may act on every run, and launch for every owner and team.
    """

    team_members: Mapping[str, Sequence[str]]
    administrators: Sequence[str] = ()

    def administers(self, caller: Caller) -> bool:
        """Return whether a caller is an administrator."""
        return _matches(caller, self.administrators)

    def belongs_to(self, caller: Caller, team: str) -> bool:
        """Return whether a caller is a member of a team."""
        return _matches(caller, self.team_members.get(team, ()))

    def may_act_on(self, caller: Caller, run: Run) -> bool:
        """Return whether a caller may stop, resume or take over a run, or change its warm pool.

        Args:
            caller: The caller.
            run: The run item, with the verified owner from its launch.
        """
        return self.may_act(caller, owner=run.owner, team=run.request.get("team"))

    def may_act(self, caller: Caller, *, owner: str | None, team: object) -> bool:
        """Return whether a caller may act on a run, sweep or schedule with this owner and this team.

        Args:
            caller: The caller.
            owner: The name of the verified caller that launched it.
            team: The team in its document. None for no team.
        """
        return (
            owner == caller.name
            or (isinstance(team, str) and self.belongs_to(caller, team))
            or self.administers(caller)
        )

    def names(self, request: JobRequest, *, caller: Caller) -> Iterator[Problem]:
        """Yield a problem for another user's name as the owner, and for a team that the caller does not belong to.

        Args:
            request: A request that was read, but may be refused for other reasons already.
            caller: The caller.
        """
        if self.administers(caller):
            return
        if request.owner is not None and request.owner != caller.name:
            yield Problem(
                field="owner",
                found=shown(request.owner),
                problem=f"is not who calls: AWS says {caller.name} ({caller.arn})",
                fix="Remove owner: it is filled in. An administrator of the deployment may launch for others.",
            )
        if request.team is not None and not self.belongs_to(caller, request.team):
            yield Problem(
                field="team",
                found=shown(request.team),
                problem=f"is not a team of the caller {caller.arn}",
                fix="Name a team of your own, or have this principal added to the setting team_members.",
            )


def with_owner(document: object, *, caller: Caller) -> object:
    """Return a job document with its caller as the owner if it names none."""
    if not isinstance(document, Mapping) or document.get("owner") is not None:
        return document
    return {**document, "owner": caller.name}


def run_of_prefix(checkpoint_prefix: str) -> str | None:
    """Return the run that a checkpoint prefix names. None for one of another shape."""
    found = _PREFIX_OF_A_RUN.fullmatch(checkpoint_prefix)
    return None if found is None else found[1]


def is_made_for(checkpoint_prefix: str, run: Run) -> bool:
    """Return True if a checkpoint prefix lies beside a run's output.

    Another team may have a folder of the same name.
    """
    return run.output_prefix == f"{checkpoint_prefix.removesuffix('checkpoints/')}output/"


def not_the_callers(run: str, *, owner: str | None, caller: Caller) -> Problem:
    """Return the problem that a run is another person's."""
    return Problem(
        field="run",
        found=shown(run),
        problem=f"belongs to {owner or 'no owner'}, and {caller.name} is neither that nor of its team ({caller.arn})",
        fix="Ask its owner, a member of its team or an administrator of the deployment.",
    )


def not_the_callers_prefix(checkpoint_prefix: str, *, caller: Caller) -> Problem:
    """Return the problem that checkpoints are another person's."""
    return Problem(
        field="checkpoint_prefix",
        found=shown(checkpoint_prefix),
        problem=f"was not made for a run of {caller.name} or of a team of theirs ({caller.arn})",
        fix="Ask the owner of that run or an administrator of the deployment to launch, or leave it out.",
    )


def unknown_caller() -> Problem:
    """Return the problem of an invocation that does not name its caller, although the deployment verifies callers."""
    return Problem(
        field="(caller)",
        found="an invocation that AWS names no caller of",
        problem="is refused: this deployment verifies who calls",
        fix="Call the launcher's URL, as spotkeep does: spotkeep help launcher calling its url.",
    )


def _matches(caller: Caller, patterns: Sequence[str]) -> bool:
    return any(re.fullmatch("[^:/]*".join(map(re.escape, pattern.split("*"))), caller.arn) for pattern in patterns)


def caller_rules(deployment: Deployment[LauncherSettings]) -> CallerRules | None:
    """Return the rules for callers. None in a deployment that does not verify its callers."""
    settings = deployment.settings
    if not settings.verify_callers:
        return None
    return CallerRules(team_members=settings.team_members, administrators=settings.administrators)


def authorize_for_run(deployment: Deployment[LauncherSettings], run_id: str, *, caller: Caller | None) -> None:
    """Refuse a caller without the right to act on a run.

    A run's owner and team never change, so the answer holds for the caller's next action on it.

    Raises:
        RequestRefusedError: The run is another's, or is not known.
    """
    if not _may_act_on_everything(deployment, caller):
        run = known_run(deployment.table, run_id)
        authorize(deployment, run_id, owner=run.owner, team=run.request.get("team"), caller=caller)


def authorize(
    deployment: Deployment[LauncherSettings],
    subject_id: str,
    *,
    owner: str | None,
    team: str | None,
    caller: Caller | None,
) -> None:
    """Refuse a caller without the right to act on a run, sweep or schedule of an owner and a team.

    Args:
        deployment: The deployment.
        subject_id: The id of the run, sweep or schedule.
        owner: Its owner.
        team: Its team, or None.
        caller: The caller, if known.

    Raises:
        RequestRefusedError: The caller is neither the owner, nor in the team, nor an administrator.
    """
    rules = caller_rules(deployment)
    if _may_act_on_everything(deployment, caller) or rules is None or caller is None:
        return
    if not rules.may_act(caller, owner=owner, team=team):
        raise RequestRefusedError([not_the_callers(subject_id, owner=owner, caller=caller)])


def _may_act_on_everything(deployment: Deployment[LauncherSettings], caller: Caller | None) -> bool:
    """Return whether a caller may act on everything. Refuse an unknown caller if the deployment verifies callers."""
    rules = caller_rules(deployment)
    if rules is None:
        return True
    if caller is None:
        raise RequestRefusedError([unknown_caller()])
    return rules.administers(caller)


def known_run(table: RunTable, run: str) -> Run:
    """Return a run's item.

    Raises:
        RequestRefusedError: The run is not known.
    """
    found = table.runs.get(run)
    if found is None:
        raise RequestRefusedError([unknown_run(run)])
    return found


def unknown_run(run: str) -> Problem:
    """Return the problem that there is no such run."""
    return Problem(
        field="run",
        found=shown(run),
        problem="is not a run of this deployment",
        fix="See the runs there are: spotkeep ps --all",
    )
