"""Launching, resuming and stopping runs: whatever is retried, lost or called twice, a run has one live job (I1).

The order is what makes it safe. A run is recorded first, in one conditional transaction with its token and its
checkpoint lock; the record holds the exact CreateTrainingJob request under a deterministic name. Only then is the job
created. So:

- The same token again finds the record, launches nothing and answers the same.
- Two calls at once: one records, both may create, SageMaker takes one of the two equal names.
- A lost answer of CreateTrainingJob: the retry is told that the name is taken, describes the job, knows it by its
  launch's id, and answers with it.
- Several runs of one document are recorded in one transaction: all of them or none. Each is then completed alone.
- A launcher that died between record and create leaves a run in LAUNCHING: the next call with the token, or the
  controller, calls `complete_launch`.
- A stop that meets a launch halfway is recorded first; whoever creates the job afterwards sees it and stops the job.
- A run without a job ends only when nobody can be creating one any more. Whoever wrote an attempt may create its job;
  anybody else first records that they set out to. So a refusal, or a stop, sees who else is at it, and leaves the end
  to the controller until they are over.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from spotkeep_jobs.backends.backend import Backend, Backends
from spotkeep_jobs.backends.ec2.checks import Checked, FleetChecks
from spotkeep_jobs.backends.ec2.jobs import NoFleets
from spotkeep_jobs.backends.ec2.launch import FleetPlatform, fleet_launch, job_request_of
from spotkeep_jobs.backends.sagemaker.api import TrainingJobs
from spotkeep_jobs.backends.sagemaker.request import (
    LAUNCH_ID_HEX_DIGITS,
    JobPlatform,
    build_training_job_request,
    checkpoint_uri_for,
    job_name_for,
    marks_of,
    output_prefix_for,
    run_id_for,
)
from spotkeep_jobs.document.deployment import Deployment
from spotkeep_jobs.document.deployment_defaults import DeploymentDefaults
from spotkeep_jobs.document.fallbacks import NextJob, fallbacks_of, first_job, price_of, shortest_job_seconds
from spotkeep_jobs.document.limits import MAX_KEEP_ALIVE_SECONDS
from spotkeep_jobs.document.pool_rules import PoolRules
from spotkeep_jobs.document.reading import shown
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.rules.ec2 import no_fleets
from spotkeep_jobs.document.rules.spending import cost_problems
from spotkeep_jobs.document.spending_limits import SpendingLimits
from spotkeep_jobs.document.validation import Validation, validate
from spotkeep_jobs.document.worst_case import worst_case_usd
from spotkeep_jobs.errors import AwsCallError, Problem, RequestRefusedError, SpotkeepJobsError
from spotkeep_jobs.pools.pool_actions import PoolActions
from spotkeep_jobs.pools.pool_watch import PoolWatch
from spotkeep_jobs.record.caller import Caller
from spotkeep_jobs.record.record import Attempt, Plan, Run, RunGroup, Steered, TimelineEntry
from spotkeep_jobs.record.run_table import NewRun, Opened, RunTable
from spotkeep_jobs.record.run_table_errors import (
    AttemptStillLiveError,
    CheckpointPrefixTakenError,
    RunChangedError,
    RunExistsError,
    RunNotFoundError,
    RunsInFlightError,
)
from spotkeep_jobs.record.states import EndReason, RunState
from spotkeep_jobs.record.until_written import until_written
from spotkeep_jobs.runs.callers import (
    CallerRules,
    is_made_for,
    not_the_callers,
    not_the_callers_prefix,
    run_of_prefix,
    unknown_caller,
    with_owner,
)
from spotkeep_jobs.runs.launch_completion import complete_launch, is_ours
from spotkeep_jobs.runs.launch_refusals import (
    checkpoint_prefix_taken,
    left_out,
    lives_elsewhere,
    refuse_other_document,
    refused_by_its_backend,
    run_exists,
    runs_in_flight,
    spent_already,
    unknown_run,
)
from spotkeep_jobs.runs.run_group import Member, members_of
from spotkeep_jobs.runs.steering import no_time_for_spot
from spotkeep_jobs.runs.transition import steered_entry

_REFUSED: Final = frozenset({EndReason.LAUNCH_REFUSED, EndReason.QUOTA})
_CONFLICT_PAUSE_SECONDS: Final = 0.05


class LaunchUnfinishedError(SpotkeepJobsError):
    """AWS did not answer for certain: the run is recorded and will be completed, or nothing happened at all.

    Calling again with the same token is safe, and so is waiting: the controller completes what is recorded.
    """

    def __init__(self, *, run: str, doing: str, cause: Exception) -> None:
        super().__init__(
            f"{doing} run {run!r} is not finished: {cause}. Nothing is lost and nothing runs twice: call again with "
            "the same document and token, or wait for the controller, which completes a recorded run within minutes"
        )
        self.run = run


@dataclass(frozen=True, kw_only=True)
class Launched:
    """A run that has its job, or several that were launched as one.

    Attributes:
        run: the head; of several, the first one's.
        others: the others', in the order of their numbers.
        replayed: whether it was launched by an earlier call; this one launched nothing.
        warnings: what is allowed but probably not meant.
    """

    run: Run
    others: tuple[Run, ...] = ()
    replayed: bool
    warnings: tuple[str, ...] = ()

    @property
    def runs(self) -> tuple[Run, ...]:
        """All of them."""
        return (self.run, *self.others)


@dataclass(frozen=True, kw_only=True)
class Fleets:
    """What a deployment needs to launch on EC2.

    Attributes:
        platform: what it gives every fleet; None for a deployment without.
        jobs: where attempts on fleets are.
        checks: asks EC2 about a request; None for a deployment without.
    """

    platform: FleetPlatform | None = None
    jobs: Backend = field(default_factory=NoFleets)
    checks: FleetChecks | None = None


class Launcher:
    """Acts on runs, on the run table and the training jobs it is given.

    Attributes:
        callers: What callers may name and act on; None where the deployment is one domain of trust.
        pools: Acts on the warm pools that runs leave.
        now: The time.
    """

    def __init__(
        self,
        *,
        table: RunTable,
        jobs: TrainingJobs,
        platform: JobPlatform,
        defaults: DeploymentDefaults,
        prices: Mapping[str, float],
        keep_bundle: Callable[[], None],
        now: Callable[[], datetime],
        sleep: Callable[[float], None] = time.sleep,
        fleets: Fleets | None = None,
        callers: CallerRules | None = None,
    ) -> None:
        """Bind the launcher.

        Args:
            table: where runs are recorded.
            jobs: where jobs are created.
            platform: what the deployment gives every job.
            defaults: what the deployment fills into a document and insists on.
            prices: on-demand US dollars per instance and hour, by instance type.
            keep_bundle: see `complete_launch`.
            now: the time, aware.
            sleep: waits between tries of a transaction that met another one.
            fleets: attempts on EC2; None for a deployment without.
            callers: what callers may name and act on; None for a deployment that does not verify who calls.
        """
        self._table = table
        self.callers = callers
        self._fleets = fleets or Fleets()
        self._backends = Backends(sagemaker=jobs, ec2=self._fleets.jobs)
        self._platform = platform
        self._defaults = defaults
        self._deployment = Deployment(name=platform.deployment, prices=prices, limits=defaults.limits)
        self._keep_bundle = keep_bundle
        self.now = now
        self._sleep = sleep
        longest = defaults.max_keep_alive_seconds
        # It acts for users and watches over nothing: others remind, keep the limits, and find a new time later.
        watch = PoolWatch(
            table=table,
            jobs=jobs,
            schedules=None,
            deployment=replace(self._deployment, pool_rules=PoolRules(reminder_lead_seconds=0)),
            clock=now,
        )
        self.pools = PoolActions(
            table=table,
            jobs=jobs,
            watch=watch,
            platform=platform,
            longest_seconds=MAX_KEEP_ALIVE_SECONDS if longest is None else longest,
            now=now,
        )

    def launch(
        self, document: object, *, default_token: str, plan: Plan | None = None, caller: Caller | None = None
    ) -> Launched:
        """Launch the run a document asks for, or answer with the one its token launched before.

        Args:
            document: a job document, of any type.
            default_token: the token of a document that has none.
            plan: what the run was planned with, and is steered by if it has a deadline.
            caller: who asks, where that is known.

        Raises:
            RequestRefusedError: nothing was launched; it carries every problem.
            LaunchUnfinishedError: AWS did not answer for certain; call again with the same token.
        """
        document = self._with_owner(document, caller=caller)
        validation = self._judged(document, default_token=default_token)
        request = self._accepted(validation, default_token=default_token, caller=caller)
        checked = self.check(request)
        validation = replace(validation, warnings=(*validation.warnings, *checked.warnings))
        token = request.token or default_token
        run_id = request.run or run_id_for(name=request.name, token=token)
        request = request.model_copy(update={"run": run_id, "token": token})
        members = members_of(request)
        if checked.problems and not self._was_launched(members[0].request):
            raise RequestRefusedError(checked.problems, warnings=validation.warnings)
        opened = self._open(request, members, plan=plan, caller=caller, warnings=validation.warnings)
        replayed = opened[0].replayed
        if replayed:
            for each, member in zip(opened, members, strict=False):
                refuse_other_document(each.run, member.request, left_out=left_out(document), runs=len(members))
        first, *others = (
            self._completed(each.run, doing="launching", wrote=None if replayed else each.attempt) for each in opened
        )
        refused = [run for run in (first, *others) if run.end_reason in _REFUSED]
        if len(refused) == len(members):
            raise RequestRefusedError([refused_by_its_backend(run) for run in refused])
        warnings = [f"{run.run} was refused by EC2, the others were not: {run.failure_reason}" for run in refused]
        return Launched(run=first, others=tuple(others), replayed=replayed, warnings=(*validation.warnings, *warnings))

    def validate(self, document: object, *, caller: Caller | None = None) -> tuple[JobRequest, tuple[str, ...]]:
        """Judge a document as `launch` would, without launching.

        Args:
            document: a job document, of any type.
            caller: who asks, where that is known.

        Returns:
            The request with every default filled in, and warnings.

        Raises:
            RequestRefusedError: it would be refused; it carries every problem.
        """
        document = self._with_owner(document, caller=caller)
        validation = validate(document, defaults=self._defaults, now=self.now())
        request = self._accepted(validation, caller=caller)
        checked = self.check(request)
        warnings = (*validation.warnings, *checked.warnings)
        if problems := [*checked.problems, *self._taken(request)]:
            raise RequestRefusedError(problems, warnings=warnings)
        return request, warnings

    def authorize(self, run_id: str, *, caller: Caller | None) -> None:
        """Refuse a caller who may not act on a run, where the deployment verifies who calls.

        A run's owner and team never change, so what is decided here holds for what the caller asks for next.

        Raises:
            RequestRefusedError: the run is another's, or is not known.
        """
        if self.callers is None:
            return
        if caller is None:
            raise RequestRefusedError([unknown_caller()])
        if self.callers.administers(caller):
            return
        run = self._table.get(run_id)
        if run is None:
            raise RequestRefusedError([unknown_run(run_id)])
        if not self.callers.may_act_on(caller, run):
            raise RequestRefusedError([not_the_callers(run_id, owner=run.owner, caller=caller)])

    def check(self, request: JobRequest) -> Checked:
        """What EC2 says of a request with `backend: ec2`; nothing of any other."""
        if request.backend != "ec2" or self._fleets.checks is None:
            return Checked()
        return self._fleets.checks.check(request)

    def _was_launched(self, request: JobRequest) -> bool:
        """Whether the same token launched it before: its volume is in use since, and that is no problem."""
        recorded = self._table.get(request.run or "")
        return recorded is not None and recorded.token == request.token

    def usd_per_hour(self, request: JobRequest) -> float | None:
        """The on-demand price of one instance, for an accepted document; None where the deployment does not know it.

        Of several types that a run may come to, it is the dearest's.
        """
        types = [each for fallback in fallbacks_of(request) for each in fallback.instance_types]
        return price_of(types, prices=self._deployment.prices)

    def worst_case_usd(self, request: JobRequest) -> float:
        """What the run of an accepted document can come to, in US dollars of instance time."""
        return worst_case_usd(request, prices=self._deployment.prices, now=self.now())

    @property
    def limits(self) -> SpendingLimits:
        """What a run may spend here."""
        return self._defaults.limits

    def resume(self, run_id: str) -> Launched:
        """Begin the next attempt of a run that ended without completing, on the same checkpoints.

        Raises:
            RequestRefusedError: the run is not known, has completed, or its last job is not over (I1).
            LaunchUnfinishedError: AWS did not answer for certain; call again.
        """

        def begin() -> tuple[Run, Attempt | None]:
            run = self.describe(run_id)
            if run.state is RunState.LAUNCHING and run.job_arn is None:
                return run, None
            self._refuse_unless_over(run)
            return self._begin_next_attempt(run)

        try:
            run, attempt = until_written(begin, pause=self._pause)
        except RunChangedError as error:
            raise LaunchUnfinishedError(run=run_id, doing="resuming", cause=error) from error
        return Launched(run=self._complete(run, doing="resuming", wrote=attempt), replayed=attempt is None)

    def stop(self, run_id: str) -> Run:
        """Ask a run to stop: recorded first, then told to SageMaker. Stopping an ended run changes nothing.

        Raises:
            RequestRefusedError: the run is not known.
            LaunchUnfinishedError: AWS did not answer for certain; the controller stops the job.
        """
        try:
            run = self._table.request_stop(run=run_id, now=self.now())
        except RunNotFoundError:
            raise RequestRefusedError([unknown_run(run_id)]) from None
        except RunChangedError as error:
            raise LaunchUnfinishedError(run=run_id, doing="stopping", cause=error) from error
        return self._complete(run, doing="stopping")

    def replay_notifications(self, run_id: str) -> tuple[str, ...]:
        """Put what nobody could tell of a run, or of a tuning job, into the outbox again.

        Returns:
            The ids of the notifications that go out again, each once; empty when none was dead.

        Raises:
            RequestRefusedError: there is nothing to tell of such a run, sent or not.
        """
        notifications = self._table.notifications(run_id) or self._table.tuning_notifications(run_id)
        if not notifications and self._table.get(run_id) is None:
            raise RequestRefusedError([unknown_run(run_id)])
        return tuple(
            notification.notification_id
            for notification in notifications
            if self._table.revive_notification(notification)
        )

    def describe(self, run_id: str) -> Run:
        """The head of a run.

        Raises:
            RequestRefusedError: the run is not known.
        """
        run = self._table.get(run_id)
        if run is None:
            raise RequestRefusedError([unknown_run(run_id)])
        return run

    def _judged(self, document: object, *, default_token: str) -> Validation:
        """The judgement of a document; of a launch that is repeated as it was: its deadline has come closer since."""
        validation = validate(document, defaults=self._defaults, now=self.now())
        draft = validation.draft
        if validation.request is not None or draft is None or draft.deadline is None:
            return validation
        token = draft.token or default_token
        recorded = self._table.get(draft.run or run_id_for(name=draft.name, token=token))
        repeated = recorded is not None and recorded.token == token
        return validate(document, defaults=self._defaults) if repeated else validation

    def _with_owner(self, document: object, *, caller: Caller | None) -> object:
        return document if self.callers is None or caller is None else with_owner(document, caller=caller)

    def _accepted(
        self, validation: Validation, *, default_token: str | None = None, caller: Caller | None
    ) -> JobRequest:
        """The request; refused with what the document has wrong and with what others have, all at once (I7)."""
        draft = validation.draft
        others = [] if draft is None else self._others(draft, caller=caller)
        if validation.request is not None and not others:
            return validation.request
        taken = draft and self._taken(draft.model_copy(update={"token": draft.token or default_token}))
        checked = self.check(draft) if draft is not None else Checked()
        problems = [*validation.problems, *others, *checked.problems, *(taken or ())]
        raise RequestRefusedError(problems, warnings=(*validation.warnings, *checked.warnings))

    def _others(self, request: JobRequest, *, caller: Caller | None) -> list[Problem]:
        """What a request names that is not its caller's: an owner, a team, the checkpoints of another's run."""
        if self.callers is None:
            return []
        if caller is None:
            return [unknown_caller()]
        problems = list(self.callers.names(request, caller=caller))
        prefix = request.checkpoint_prefix
        made_for = None if prefix is None else run_of_prefix(prefix)
        if prefix is not None and made_for != request.run and not self.callers.administers(caller):
            # Of a run that the table has forgotten, nobody is known to be the owner.
            run = None if made_for is None else self._table.get(made_for)
            if run is None or not (is_made_for(prefix, run) and self.callers.may_act_on(caller, run)):
                problems.append(not_the_callers_prefix(prefix, caller=caller))
        return problems

    def _taken(self, request: JobRequest) -> list[Problem]:
        """What of a request another run has already: its id, its prefix."""
        problems = []
        for member in members_of(request) if request.run is not None else ():
            run = member.request.run or ""
            recorded = self._table.get(run)
            if recorded is not None and recorded.token != member.request.token:
                problems.append(run_exists(run))
        if request.checkpoint_prefix is not None:
            owner = self._table.checkpoint_lock_owner(request.checkpoint_prefix)
            if owner is not None and owner != request.run:
                problems.append(checkpoint_prefix_taken(request.checkpoint_prefix, owner))
        limit, asked = self.limits.runs_in_flight_limit, request.runs
        if limit is not None and (taken := self._table.runs_in_flight()) + asked > limit:
            problems.append(runs_in_flight(taken, limit=limit, asked=asked))
        return problems

    def _open(
        self,
        request: JobRequest,
        members: Sequence[Member],
        *,
        plan: Plan | None,
        caller: Caller | None,
        warnings: tuple[str, ...],
    ) -> tuple[Opened, ...]:
        new = [self._new_run(member, plan=plan, caller=caller) for member in members]
        try:
            return until_written(
                lambda: self._table.open_runs(new, in_flight_limit=self.limits.runs_in_flight_limit), pause=self._pause
            )
        except RunsInFlightError as error:
            problem = runs_in_flight(error.in_flight, limit=error.limit, asked=len(new))
            raise RequestRefusedError([problem], warnings=warnings) from None
        except RunExistsError as error:
            problems = self._taken(request) or [run_exists(error.run)]
            raise RequestRefusedError(problems, warnings=warnings) from None
        except CheckpointPrefixTakenError as error:
            problem = checkpoint_prefix_taken(error.checkpoint_uri, error.owned_by)
            raise RequestRefusedError([problem], warnings=warnings) from None
        except RunChangedError as error:
            raise LaunchUnfinishedError(run=request.run or "", doing="launching", cause=error) from error

    def _new_run(self, member: Member, *, plan: Plan | None, caller: Caller | None) -> NewRun:
        request = member.request
        run = request.run or ""
        now = self.now()
        deadline_at = request.deadline_at(now)
        no_spot = no_time_for_spot(request, deadline_at=deadline_at, now=now)
        attempt = self._new_attempt(request, run=run, number=1, on_demand_because=no_spot, group=member.group)
        head = Run(
            run=run,
            name=request.name,
            owner=request.owner,
            launched_by=caller,
            group=member.group,
            backend=request.backend,
            capacity=attempt.capacity,
            instance_type=attempt.instance_type,
            instance_count=request.instance_count,
            job_name=attempt.job_name,
            created_at=attempt.created_at,
            updated_at=attempt.created_at,
            checkpoint_uri=checkpoint_uri_for(request=request, run=run, platform=self._platform),
            output_prefix=output_prefix_for(request=request, run=run, platform=self._platform),
            notify=request.notify,
            deadline_at=deadline_at,
            steered=_steered(no_spot, at=now),
            token=request.token or "",
            request=request.as_document(),
        )
        return NewRun(run=head, attempt=attempt, plan=plan, timeline=_steered_from_the_start(head, attempt))

    def _new_attempt(
        self,
        request: JobRequest,
        *,
        run: str,
        number: int,
        spent_usd: float = 0.0,
        on_demand_because: str | None = None,
        group: RunGroup | None = None,
    ) -> Attempt:
        now = self.now()
        job = first_job(
            request, prices=self._deployment.prices, spent_usd=spent_usd, on_demand_because=on_demand_because
        )
        if job.max_run_seconds < shortest_job_seconds(request):
            raise RequestRefusedError([spent_already(request, spent_usd=spent_usd)])
        launch_id = secrets.token_hex(LAUNCH_ID_HEX_DIGITS // 2)
        return Attempt(
            run=run,
            attempt=number,
            fallback=job.position,
            job_name=job_name_for(run=run, attempt=number),
            backend=request.backend,
            capacity=job.fallback.capacity,
            instance_type=job.fallback.instance_types[0],
            instance_count=request.instance_count,
            created_at=now,
            job_request=self._job_request(request, job=job, run=run, attempt=number, launch_id=launch_id, group=group),
        )

    def _job_request(
        self, request: JobRequest, *, job: NextJob, run: str, attempt: int, launch_id: str, group: RunGroup | None
    ) -> dict[str, Any]:
        if request.backend == "sagemaker":
            return build_training_job_request(
                request=request, job=job, platform=self._platform, run=run, attempt=attempt, launch_id=launch_id
            )
        if self._fleets.platform is None:
            raise RequestRefusedError([no_fleets()])
        launch = fleet_launch(
            request=request,
            job=job,
            platform=self._fleets.platform,
            deployment=self._platform.deployment,
            run=run,
            attempt=attempt,
            launch_id=launch_id,
            checkpoint_uri=checkpoint_uri_for(request=request, run=run, platform=self._platform),
            output_prefix=output_prefix_for(request=request, run=run, platform=self._platform),
            group=group,
        )
        return job_request_of(launch, marks=marks_of(run=run, attempt=attempt, launch_id=launch_id))

    def _refuse_unless_over(self, run: Run) -> None:
        if run.state is RunState.COMPLETED:
            problem = "has completed; there is nothing to resume"
            fix = f"Launch a new run, with checkpoint_prefix: {run.checkpoint_uri} to go on from its checkpoints."
        elif not run.state.ended:
            problem = f"is not over: attempt {run.attempt} is {run.state}"
            fix = f"Wait for it, or stop it first: spotkeep stop {run.run}"
        elif self._has_live_job(run):
            problem = f"is not over: SageMaker still has its training job {run.job_name} in progress"
            fix = "Wait a minute until the job is over, then resume again."
        else:
            return
        raise RequestRefusedError([Problem(field="run", found=shown(run.run), problem=problem, fix=fix)])

    def _has_live_job(self, run: Run) -> bool:
        """Whether SageMaker says that the run's last job is not over, whatever the record says."""
        try:
            job = self._backends.of(run).observe(run.job_name)
        except SpotkeepJobsError as error:
            raise LaunchUnfinishedError(run=run.run, doing="resuming", cause=error) from error
        attempt = self._table.attempt(run.run, run.attempt)
        ours = job is not None and (attempt is None or is_ours(job, attempt))
        return job is not None and ours and not job.ended

    def _begin_next_attempt(self, run: Run) -> tuple[Run, Attempt]:
        request = validate(run.request, defaults=self._defaults).accepted()
        spent = run.cost.billed_usd if run.cost is not None else 0.0
        now = self.now()
        checkpoint_uri = checkpoint_uri_for(request=request, run=run.run, platform=self._platform)
        if checkpoint_uri != run.checkpoint_uri:
            raise RequestRefusedError([lives_elsewhere(run, checkpoint_uri=checkpoint_uri)])
        limits, prices = self.limits, self._deployment.prices
        above = list(
            cost_problems(request, limits=limits, prices=prices, now=now, spent_usd=spent, attempts=run.attempt)
        )
        if above:
            raise RequestRefusedError(above)
        deadline_at = request.deadline_at(now)
        no_spot = no_time_for_spot(request, deadline_at=deadline_at, now=now)
        attempt = self._new_attempt(
            request,
            run=run.run,
            number=run.attempt + 1,
            spent_usd=spent or 0.0,
            on_demand_because=no_spot,
            group=run.group,
        )
        run = run.model_copy(update={"deadline_at": deadline_at, "steered": _steered(no_spot, at=now)})
        try:
            begun = self._table.begin_attempt(
                run=run,
                attempt=attempt,
                timeline=_steered_from_the_start(run, attempt),
                in_flight_limit=self.limits.runs_in_flight_limit,
            )
        except AttemptStillLiveError:
            raise RunChangedError(run.run) from None
        except CheckpointPrefixTakenError as error:
            raise RequestRefusedError([checkpoint_prefix_taken(error.checkpoint_uri, error.owned_by)]) from None
        except RunsInFlightError as error:
            raise RequestRefusedError([runs_in_flight(error.in_flight, limit=error.limit)]) from None
        return begun, attempt

    def _complete(self, run: Run, *, doing: str, wrote: Attempt | None = None) -> Run:
        run = self._completed(run, doing=doing, wrote=wrote)
        if run.end_reason in _REFUSED and doing != "stopping":
            raise RequestRefusedError([refused_by_its_backend(run)])
        return run

    def _completed(self, run: Run, *, doing: str, wrote: Attempt | None = None) -> Run:
        """The run with its job; `wrote` is its attempt, where this call has just recorded it."""
        try:
            return complete_launch(
                run.run,
                table=self._table,
                jobs=self._backends.sagemaker,
                fleets=self._backends.ec2,
                deployment=self._deployment,
                keep_bundle=self._keep_bundle,
                now=self.now,
                wrote=None if wrote is None else wrote.attempt,
                read=None if wrote is None else (run, wrote),
            )
        except (AwsCallError, RunChangedError) as error:
            raise LaunchUnfinishedError(run=run.run, doing=doing, cause=error) from error

    def _pause(self, tries: int) -> None:
        self._sleep(_CONFLICT_PAUSE_SECONDS * 2**tries)


def _steered(on_demand_because: str | None, *, at: datetime) -> Steered | None:
    if on_demand_because is None:
        return None
    return Steered(choice="on-demand", reason=on_demand_because, decided_at=at)


def _steered_from_the_start(run: Run, attempt: Attempt) -> tuple[TimelineEntry, ...]:
    if run.steered is None:
        return ()
    text = f"On demand from the start: {run.steered.reason}"
    return (steered_entry(run=run.run, attempt=attempt.attempt, text=text, at=run.steered.decided_at),)
