"""Checks before a launch, such as the document's errors, the caller's rights, and names that other runs already use.

All checks are made before anything is refused. So a refusal names every problem at once (I7).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import to_jsonable_python

from spotkeep_jobs.backends.ec2.checks import Checked
from spotkeep_jobs.backends.sagemaker.training_job import run_id_for
from spotkeep_jobs.document.reading import shown
from spotkeep_jobs.document.request import JobRequest, Validation, validate
from spotkeep_jobs.errors import Problem, RequestRefusedError
from spotkeep_jobs.record.fields import Caller, with_changes
from spotkeep_jobs.record.ids import (
    ASKED_BY_A_USER,
    MAX_TRIALS,
    Origin,
    firing_around,
    run_of_trial,
    sweep_around,
)
from spotkeep_jobs.record.record import Run, RunGroup
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.runs.callers import (
    caller_rules,
    is_made_for,
    not_the_callers_prefix,
    run_of_prefix,
    unknown_caller,
    with_owner,
)

if TYPE_CHECKING:
    from spotkeep_jobs.deployment import Deployment
    from spotkeep_jobs.settings import LauncherSettings


FILLED_IN: Final = frozenset({"image", "instance_types", "max_run", "max_wait", "share"})
"""The fields that a deployment may fill in. Their values may have changed when the same token is sent again."""


@dataclass(frozen=True)
class Acceptance:
    """Judges documents against the deployment's rules, EC2 and the runs there are."""

    deployment: Deployment[LauncherSettings]

    def judged(self, document: object, *, caller: Caller | None, default_token: str | None = None) -> Validation:
        """Judge a document by itself. If it names no owner, the caller becomes its owner.

        The document of a repeated launch is judged without the present time, because its deadline has come closer
        since.

        Args:
            document: A job document, of any type.
            caller: The caller, if known.
            default_token: The token of a document that has none, or None if nothing is launched.
        """
        if self.deployment.settings.verify_callers and caller is not None:
            document = with_owner(document, caller=caller)
        validation = validate(document, defaults=self.deployment.defaults, now=self.deployment.now())
        draft = validation.draft
        if default_token is None or validation.request is not None or draft is None or draft.deadline is None:
            return validation
        token = draft.token or default_token
        recorded = self.deployment.table.runs.get(draft.run or run_id_for(name=draft.name, token=token))
        repeated = recorded is not None and recorded.token == token
        return validate(document, defaults=self.deployment.defaults) if repeated else validation

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
            caller: The caller, if known.
            origin: The sweep or schedule that causes the launch, or a user's own request.

        Raises:
            RequestRefusedError: It carries the document's errors and every name that is already taken.
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
        """Return AWS's answers about the secrets and file systems of a request, and EC2's about one for `ec2`."""
        fleets, file_systems = self.deployment.fleet_checks, self.deployment.file_system_checks
        asked = [self.deployment.secret_checks.check(request), file_systems.check(request)]
        if request.backend == "ec2" and fleets is not None:
            asked.insert(0, fleets.check(request, subnet_ids=file_systems.subnet_ids_for(request)))
        return Checked(
            problems=tuple(problem for each in asked for problem in each.problems),
            warnings=tuple(warning for each in asked for warning in each.warnings),
            offers=asked[0].offers,
        )

    def was_launched(self, request: JobRequest) -> bool:
        """Return True if the same token launched this run before. Its volume is then in use, which is no problem."""
        recorded = self.deployment.table.runs.get(request.run or "")
        return recorded is not None and recorded.token == request.token

    def taken(self, request: JobRequest, *, origin: Origin = ASKED_BY_A_USER) -> list[Problem]:
        """Return a problem for each thing that is already taken.

        These are the run id, the checkpoint prefix and the places for runs in flight.

        Args:
            request: The request.
            origin: The sweep or schedule that causes the launch, or a user's own request.
        """
        problems = [] if request.run is None else problems_of_run_id(self.deployment.table, request.run, origin=origin)
        for member in members_of(request) if request.run is not None else ():
            run = member.request.run or ""
            recorded = self.deployment.table.runs.get(run)
            if recorded is not None and recorded.token != member.request.token:
                problems.append(run_exists(run))
        if request.checkpoint_prefix is not None:
            owner = self.deployment.table.claims.checkpoint_lock_owner(request.checkpoint_prefix)
            if owner is not None and owner != request.run:
                problems.append(checkpoint_prefix_taken(request.checkpoint_prefix, owner))
        limit, asked = self.deployment.policy.limits.runs_in_flight_limit, request.runs
        if limit is not None and (taken := self.deployment.table.claims.slots_taken()) + asked > limit:
            problems.append(runs_in_flight(taken, limit=limit, asked=asked))
        return problems

    def _others(self, request: JobRequest, *, caller: Caller | None) -> list[Problem]:
        """Return a problem for each owner, team or checkpoint prefix in a request that the caller may not use."""
        rules = caller_rules(self.deployment)
        if rules is None:
            return []
        if caller is None:
            return [unknown_caller()]
        problems = list(rules.names(request, caller=caller))
        prefix = request.checkpoint_prefix
        made_for = None if prefix is None else run_of_prefix(prefix)
        if prefix is not None and made_for != request.run and not rules.administers(caller):
            # Of a run that the table has forgotten, no owner is known.
            run = None if made_for is None else self.deployment.table.runs.get(made_for)
            if run is None or not (is_made_for(prefix, run) and rules.may_act_on(caller, run)):
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
        run: The run that the token launched.
        request: The present request for the same run.
        left_out: Fields that the deployment fills in.
        runs: The number of runs in the present request.

    Raises:
        RequestRefusedError: The documents differ in a field that the deployment does not fill in.
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
        asked: The present document.
        recorded: The document in the record. It lacks the fields of a later version, which count as their defaults.
        left_out: Fields that do not count.
    """
    fields = (asked.keys() | recorded.keys()) - left_out
    return sorted(field for field in fields if _value(asked, field) != _value(recorded, field))


def _value(document: Mapping[str, Any], name: str) -> object:
    """Return the value of a field in a document of a job, or its default as JSON."""
    field = JobRequest.model_fields.get(name)
    if name in document or field is None or field.is_required():
        return document.get(name)
    return to_jsonable_python(field.get_default(call_default_factory=True))


def token_of_another_document(token: str | None, *, kind: str, launched: str, differ: Sequence[str]) -> Problem:
    """Return the problem that a token was used before with another document.

    Args:
        token: The token.
        kind: The kind of thing it launched, `run` or `sweep`.
        launched: The id of that run or sweep.
        differ: The fields in which the documents differ.
    """
    return Problem(
        field="token",
        found=shown(token),
        problem=f"was used before, for {kind} {launched}, with another document: they differ in {', '.join(differ)}",
        fix=f"Use a new token for a new {kind}, or send the first document again.",
    )


def run_exists(run: str) -> Problem:
    """Return the problem that the run id is taken."""
    return Problem(
        field="run",
        found=shown(run),
        problem="is the id of a run that exists already",
        fix=f"Leave `run` out, choose another id, or go on with that run: spotkeep resume {run}",
    )


def checkpoint_prefix_taken(checkpoint_uri: str, owner: str) -> Problem:
    """Return the problem that a live run writes to the checkpoint prefix."""
    return Problem(
        field="checkpoint_prefix",
        found=shown(checkpoint_uri),
        problem=f"belongs to the live run {owner}",
        fix=f"Wait for that run, stop it (spotkeep stop {owner}), or give another prefix.",
    )


def runs_in_flight(in_flight: int, *, limit: int, asked: int = 1) -> Problem:
    """Return the problem that the deployment's limit of runs in flight is reached."""
    return Problem(
        field="(runs in flight)",
        found=f"{in_flight} under way",
        problem=f"leave no room for {asked} more: this deployment allows {limit} at a time",
        fix="Wait until a run has ended, stop one (spotkeep ps lists them), or have the setting runs_in_flight_limit "
        "raised.",
        temporary=True,
    )


_CHOOSE: Final = "Leave `run` out, or choose another id."
_LOOKED_FOR: Final = 20
"""The number of trials to search for in the run table when a sweep's id is refused.

The refusal names ids already taken.
"""
_MOST_NAMED: Final = 5


def problems_of_run_id(table: RunTable, name: str, *, origin: Origin = ASKED_BY_A_USER) -> list[Problem]:
    """Return the reasons why an id is not free for a run, or for several runs launched as one.

    An existing run with the same id is not among these reasons.

    Args:
        table: The run table.
        name: The id of the run, or of all of them.
        origin: The sweep or schedule that causes the launch, or a user's own request.
    """
    if origin.trial is not None:
        return []
    of_a_sweep = [] if table.sweeps.get(name) is None else [sweep_exists(name)]
    return [*of_a_sweep, *_reserved(table, name, origin=origin)]


def problems_of_sweep_id(table: RunTable, name: str, *, origin: Origin = ASKED_BY_A_USER) -> list[Problem]:
    """Return the reasons why an id is not free for a sweep.

    Args:
        table: The run table.
        name: The sweep's id.
        origin: The schedule that causes the launch, or a user's own request.
    """
    problems = []
    if table.sweeps.get(name) is not None or table.runs.get(name) is not None:
        problems.append(sweep_exists(name))
    elif (newest := table.claims.run_with_id_of_a_trial(name)) is not None:
        first = [run_of_trial(name, number) for number in range(1, _LOOKED_FOR + 1)]
        taken = {run: None for run in first if table.runs.get(run) is not None} | {newest: None}
        reserved = f"{run_of_trial(name, 1)} to {run_of_trial(name, MAX_TRIALS)}"
        problem = f"as a sweep's id reserves {reserved} for its trials, and others have: {_listed(taken)}"
        problems.append(Problem(field="run", found=shown(name), problem=problem, fix=_CHOOSE))
    return [*problems, *_reserved(table, name, origin=origin, is_sweep=True)]


def problems_of_schedule_id(table: RunTable, name: str, *, now: datetime) -> list[Problem]:
    """Return the reasons why an id is not free for a schedule.

    A schedule reserves the ids of its future runs. Its id is refused if one of those ids exists already.

    Args:
        table: The run table.
        name: The schedule's id.
        now: The time, aware.
    """
    taken = table.claims.ids_of_firings(name, now=now)
    if not taken:
        return []
    ids = [each.id for each in taken]
    problem = f"as a schedule's name reserves ids for what it launches, and others have: {_listed(ids)}"
    return [Problem(field="run", found=shown(name), problem=problem, fix="Choose another name.")]


def sweep_exists(sweep: str) -> Problem:
    """Return the problem that the id is taken."""
    return Problem(
        field="run",
        found=shown(sweep),
        problem="is the id of a sweep or a run that exists already",
        fix=f"Leave `run` out, choose another id, or go on with that one: spotkeep resume {sweep}",
    )


def id_is_reserved(name: str) -> Problem:
    """Return the problem that another launch took the id at the same time."""
    return Problem(
        field="run", found=shown(name), problem="is the id of something that was launched just now", fix=_CHOOSE
    )


def _reserved(table: RunTable, name: str, *, origin: Origin, is_sweep: bool = False) -> list[Problem]:
    problems = []
    sweep = sweep_around(name)
    if sweep is not None and table.sweeps.get(sweep) is not None:
        problem = f"is an id that sweep {sweep} has for its trials"
        problems.append(Problem(field="run", found=shown(name), problem=problem, fix=_CHOOSE))
    firing = firing_around(name, is_sweep=is_sweep)
    if firing is not None and firing.schedule != origin.schedule and table.schedules.get(firing.schedule) is not None:
        problem = f"is an id that schedule {firing.schedule} has for what it launches"
        problems.append(Problem(field="run", found=shown(name), problem=problem, fix=_CHOOSE))
    return problems


def _listed(names: Iterable[str]) -> str:
    named = list(names)
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    return ", ".join(named[:_MOST_NAMED]) + more


@dataclass(frozen=True, kw_only=True)
class GroupMember:
    """One of the runs that a document asks for.

    Attributes:
        request: The request of this run.
        group: The run's number among several runs. None for a run on its own.
    """

    request: JobRequest
    group: RunGroup | None = None


def members_of(request: JobRequest) -> tuple[GroupMember, ...]:
    """Return the runs that a request asks for, at least one, in the order of their numbers.

    Args:
        request: With its run id and its token, defaults filled in.
    """
    if request.runs == 1:
        return (GroupMember(request=_alone(request, index=1)),)
    return tuple(_member(request, index) for index in range(1, request.runs + 1))


def _member(request: JobRequest, index: int) -> GroupMember:
    token = request.token
    # The first has the group's: it is then claimed, whatever number of runs it comes with again.
    own = token if token is None or index == 1 else hashlib.sha256(f"{token}\n{index}".encode()).hexdigest()
    return GroupMember(
        request=with_changes(_alone(request, index=index), run=f"{request.run}-{index}", token=own),
        group=RunGroup(id=request.run or "", index=index, size=request.runs),
    )


def _alone(request: JobRequest, *, index: int) -> JobRequest:
    on_demand = index <= request.on_demand_base
    alone = with_changes(request, runs=1, on_demand_base=0)
    return with_changes(alone, capacity="on-demand", max_price=None) if on_demand else alone


# A call that its client repeats is recognized by its document, so that all its tries are one launch. The AWS CLI and
# the SDKs repeat a call by themselves when a connection breaks, and each try has a request id of its own. AWS Lambda
# repeats an asynchronous invocation that failed, and its tries share one. So a document says by its `token`, or by
# its `run`, that two calls are one launch.
# Source: https://docs.aws.amazon.com/lambda/latest/dg/invocation-retries.html

REPEATED_WITHIN: Final = timedelta(hours=1)
"""The time in which a document with a `run` and without a token counts as the same call again.

Afterwards the launcher refuses the document, because its `run` is taken.

It is longer than a client keeps trying. By default the AWS CLI waits one minute for each of its five tries.
"""
MAY_LAUNCH_AGAIN: Final = (
    "has neither `run` nor `token`: a client that repeats this call launches another one, and the AWS CLI and SDKs "
    "repeat by themselves when a connection breaks. Give a `token`, a new one for each launch; `spotkeep ps` shows "
    "what was launched"
)
"""The warning about a launch that a repeated call would make again."""
MAY_EXTEND_AGAIN: Final = (
    "a client that repeats this call extends the pool once more. Give `kept_until`, the time at which you saw it end: "
    "`for` is then added to that"
)
"""The warning about a pool that a repeated call would extend again."""


def launches_again(document: Mapping[str, Any]) -> bool:
    """Return whether a second call with the same document launches a second time."""
    return document.get("token") is None and document.get("run") is None


def named_without_token(document: Mapping[str, Any]) -> bool:
    """Return True if `run` alone identifies two calls as one launch."""
    return document.get("token") is None and document.get("run") is not None


def token_of_call(document: object, *, request_id: str, caller: Caller | None) -> str:
    """Return the token of a document that has none.

    Args:
        document: The document, of any type.
        request_id: AWS Lambda's id of the invocation.
        caller: The caller, if known.

    Returns:
        For a document with `run`, the same token for each call of the same caller with the same document. For any other
        document, the request id. The tries of one asynchronous invocation share it.
    """
    if not isinstance(document, Mapping) or not named_without_token(document):
        return request_id
    call = [None if caller is None else caller.arn, document]
    return hashlib.sha256(json.dumps(call, sort_keys=True, default=str).encode()).hexdigest()


def is_repeated(*, launched_at: datetime, now: datetime) -> bool:
    """Return whether a document with `run` and without a token comes soon enough to be the same call."""
    return now - launched_at <= REPEATED_WITHIN
