"""Whether a document may be launched: what it has wrong, what its caller may not name, what other runs have already.

Everything is judged before anything is refused, so that a refusal names every problem at once (I7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, Final

from spotkeep_jobs.backends.ec2.checks import Checked, FleetChecks
from spotkeep_jobs.backends.sagemaker.request import run_id_for
from spotkeep_jobs.document.reading import shown
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.validation import Validation, validate
from spotkeep_jobs.errors import Problem, RequestRefusedError
from spotkeep_jobs.record.caller import Caller
from spotkeep_jobs.record.ids import ASKED_BY_A_USER, Origin
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.runs.callers import (
    CallerRules,
    is_made_for,
    not_the_callers_prefix,
    run_of_prefix,
    unknown_caller,
    with_owner,
)
from spotkeep_jobs.runs.launch_context import LaunchContext
from spotkeep_jobs.runs.run_group import members_of
from spotkeep_jobs.runs.taken_ids import problems_of_run_id
from spotkeep_jobs.with_changes import with_changes

FILLED_IN: Final = frozenset({"image", "instance_types", "max_run", "max_wait", "share"})
"""What a deployment may fill in. It may fill in something else by the time a token comes again."""


class Acceptance:
    """Judges documents against the deployment's rules, EC2 and the runs there are."""

    def __init__(self, context: LaunchContext, *, callers: CallerRules | None, checks: FleetChecks | None) -> None:
        """Bind the rules.

        Args:
            context: What it acts on.
            callers: What callers may name; None for a deployment that does not verify who calls.
            checks: Asks EC2 about a request; None for a deployment without fleets.
        """
        self._table = context.table
        self._defaults = context.defaults
        self._now = context.now
        self._callers = callers
        self._checks = checks

    def judged(self, document: object, *, caller: Caller | None, default_token: str | None = None) -> Validation:
        """Judge a document by itself; of a launch that is repeated, as it was: its deadline has come closer since.

        Args:
            document: A job document, of any type; its caller becomes its owner where it names none.
            caller: Who asks, where that is known.
            default_token: The token of a document that has none; None where nothing is launched.
        """
        if self._callers is not None and caller is not None:
            document = with_owner(document, caller=caller)
        validation = validate(document, defaults=self._defaults, now=self._now())
        draft = validation.draft
        if default_token is None or validation.request is not None or draft is None or draft.deadline is None:
            return validation
        token = draft.token or default_token
        recorded = self._table.get(draft.run or run_id_for(name=draft.name, token=token))
        repeated = recorded is not None and recorded.token == token
        return validate(document, defaults=self._defaults) if repeated else validation

    def accepted(
        self,
        validation: Validation,
        *,
        default_token: str | None = None,
        caller: Caller | None,
        origin: Origin = ASKED_BY_A_USER,
    ) -> JobRequest:
        """Return the request of a judged document.

        Args:
            validation: The judgement.
            default_token: The token of a document that has none.
            caller: Who asks, where that is known.
            origin: What the launch follows from.

        Raises:
            RequestRefusedError: It carries what the document has wrong and what others have already.
        """
        draft = validation.draft
        others = [] if draft is None else self._others(draft, caller=caller)
        if validation.request is not None and not others:
            return validation.request
        taken = draft and self.taken(with_changes(draft, token=draft.token or default_token), origin=origin)
        checked = self.check(draft) if draft is not None else Checked()
        problems = [*validation.problems, *others, *checked.problems, *(taken or ())]
        raise RequestRefusedError(problems, warnings=(*validation.warnings, *checked.warnings))

    def check(self, request: JobRequest) -> Checked:
        """Return what EC2 says of a request with `backend: ec2`; nothing of any other."""
        if request.backend != "ec2" or self._checks is None:
            return Checked()
        return self._checks.check(request)

    def was_launched(self, request: JobRequest) -> bool:
        """Say whether the same token launched it before: its volume is in use since, and that is no problem."""
        recorded = self._table.get(request.run or "")
        return recorded is not None and recorded.token == request.token

    def taken(self, request: JobRequest, *, origin: Origin = ASKED_BY_A_USER) -> list[Problem]:
        """Return what of a request others have already: its id, its prefix, the places for runs in flight.

        Args:
            request: What is asked for.
            origin: What the launch follows from.
        """
        problems = [] if request.run is None else problems_of_run_id(self._table, request.run, origin=origin)
        for member in members_of(request) if request.run is not None else ():
            run = member.request.run or ""
            recorded = self._table.get(run)
            if recorded is not None and recorded.token != member.request.token:
                problems.append(run_exists(run))
        if request.checkpoint_prefix is not None:
            owner = self._table.checkpoint_lock_owner(request.checkpoint_prefix)
            if owner is not None and owner != request.run:
                problems.append(checkpoint_prefix_taken(request.checkpoint_prefix, owner))
        limit, asked = self._defaults.limits.runs_in_flight_limit, request.runs
        if limit is not None and (taken := self._table.slots_taken()) + asked > limit:
            problems.append(runs_in_flight(taken, limit=limit, asked=asked))
        return problems

    def _others(self, request: JobRequest, *, caller: Caller | None) -> list[Problem]:
        """Return what a request names that is not its caller's: an owner, a team, the checkpoints of another's run."""
        if self._callers is None:
            return []
        if caller is None:
            return [unknown_caller()]
        problems = list(self._callers.names(request, caller=caller))
        prefix = request.checkpoint_prefix
        made_for = None if prefix is None else run_of_prefix(prefix)
        if prefix is not None and made_for != request.run and not self._callers.administers(caller):
            # Of a run that the table has forgotten, no owner is known.
            run = None if made_for is None else self._table.get(made_for)
            if run is None or not (is_made_for(prefix, run) and self._callers.may_act_on(caller, run)):
                problems.append(not_the_callers_prefix(prefix, caller=caller))
        return problems


def left_out(document: object) -> frozenset[str]:
    """Return the fields that the deployment filled in, because an accepted document left them out."""
    given = {name for name, value in document.items() if value is not None} if isinstance(document, Mapping) else set()
    if "instance_type" in given:
        given.add("instance_types")
    if "framework" in given:
        given.add("image")
    return FILLED_IN - given


def refuse_other_document(run: Run, request: JobRequest, *, left_out: frozenset[str], runs: int = 1) -> None:
    """Refuse a token that comes again with another document.

    Args:
        run: What was launched.
        request: What is asked for now, of the same one of several runs.
        left_out: Fields that the deployment fills in.
        runs: How many runs are asked for.

    Raises:
        RequestRefusedError: They differ in more than what the deployment fills in.
    """
    asked, recorded = request.as_document(), run.request
    differ = differing_fields(asked, recorded, left_out=left_out)
    if runs != (run.group.size if run.group is not None else 1):
        differ = ["runs"]  # Ids and tokens follow from it.
    if differ:
        raise RequestRefusedError(
            [token_of_another_document(request.token, kind="run", launched=run.run, differ=differ)]
        )


def differing_fields(asked: Mapping[str, Any], recorded: Mapping[str, Any], *, left_out: Set[str]) -> list[str]:
    """Return the fields in which two documents differ, in alphabetical order.

    Args:
        asked: What is asked for now.
        recorded: What was asked for.
        left_out: Fields that do not count.
    """
    fields = (asked.keys() | recorded.keys()) - left_out
    return sorted(field for field in fields if asked.get(field) != recorded.get(field))


def token_of_another_document(token: str | None, *, kind: str, launched: str, differ: Sequence[str]) -> Problem:
    """Say that a token has launched something else.

    Args:
        token: The token.
        kind: What it launched: `run` or `sweep`.
        launched: Its id.
        differ: The fields in which the documents differ.
    """
    return Problem(
        field="token",
        found=shown(token),
        problem=f"was used before, for {kind} {launched}, with another document: they differ in {', '.join(differ)}",
        fix=f"Use a new token for a new {kind}, or send the first document again.",
    )


def run_exists(run: str) -> Problem:
    """Say that the run id is taken."""
    return Problem(
        field="run",
        found=shown(run),
        problem="is the id of a run that exists already",
        fix=f"Leave `run` out, choose another id, or go on with that run: spotkeep resume {run}",
    )


def checkpoint_prefix_taken(checkpoint_uri: str, owner: str) -> Problem:
    """Say that a live run writes to the checkpoint prefix."""
    return Problem(
        field="checkpoint_prefix",
        found=shown(checkpoint_uri),
        problem=f"belongs to the live run {owner}",
        fix=f"Wait for that run, stop it (spotkeep stop {owner}), or give another prefix.",
    )


def runs_in_flight(in_flight: int, *, limit: int, asked: int = 1) -> Problem:
    """Say that the deployment has as many runs under way as it may."""
    return Problem(
        field="(runs in flight)",
        found=f"{in_flight} under way",
        problem=f"leave no room for {asked} more: this deployment allows {limit} at a time",
        fix="Wait until a run has ended, stop one (spotkeep ps lists them), or have the setting runs_in_flight_limit "
        "raised.",
        temporary=True,
    )
