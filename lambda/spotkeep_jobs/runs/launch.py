"""Launching, resuming and stopping runs: whatever is retried, lost or called twice, a run has one live job (I1).

The order is what makes it safe. A run is recorded first, in one conditional transaction with its token and its
checkpoint lock; the record holds the exact CreateTrainingJob request under a deterministic name. Only then is the job
created. So:

- The same token again finds the record, launches nothing and answers the same.
- Two calls at once: one records, both may create, SageMaker takes one of the two equal names.
- A lost answer of CreateTrainingJob: the retry hears that the name is taken, describes the job, knows it by its
  launch's id, and answers with it.
- Several runs of one document are recorded in one transaction: all of them or none. Each is then completed alone.
- A launcher that died between record and create leaves a run in LAUNCHING: the next call with the token, or the
  controller, completes it (`LaunchCompletion`).
- A stop that meets a launch halfway is recorded first; the function that creates the job afterwards sees it and stops
  the job.
- A run without a job ends only when no function can be creating one any more. The function that wrote an attempt may
  create its job; anybody else first records that they set out to. So a refusal, or a stop, sees who else is at it, and
  leaves the end to the controller until they are over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from spotkeep_jobs.backends.backend import Backend, Backends
from spotkeep_jobs.backends.ec2.checks import FleetChecks
from spotkeep_jobs.backends.ec2.jobs import NoFleets
from spotkeep_jobs.backends.ec2.launch import FleetPlatform
from spotkeep_jobs.backends.sagemaker.api import TrainingJobs
from spotkeep_jobs.backends.sagemaker.request import JobPlatform, run_id_for
from spotkeep_jobs.document.deployment_defaults import DeploymentDefaults
from spotkeep_jobs.document.deployment_policy import DeploymentPolicy, PoolRules
from spotkeep_jobs.document.fallbacks import fallbacks_of, price_of
from spotkeep_jobs.document.limits import MAX_KEEP_ALIVE_SECONDS
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.spending_limits import SpendingLimits
from spotkeep_jobs.document.worst_case import worst_case_usd
from spotkeep_jobs.errors import AwsCallError, RequestRefusedError, SpotkeepJobsError
from spotkeep_jobs.pools.pool_actions import PoolActions
from spotkeep_jobs.pools.pool_reconciler import PoolReconciler
from spotkeep_jobs.record.caller import Caller
from spotkeep_jobs.record.record import Attempt, Plan, Run
from spotkeep_jobs.record.run_table import NewRun, Opened, RunTable
from spotkeep_jobs.record.run_table_errors import (
    CheckpointPrefixTakenError,
    RunChangedError,
    RunExistsError,
    RunNotFoundError,
    RunsInFlightError,
)
from spotkeep_jobs.record.states import EndReason
from spotkeep_jobs.record.until_written import until_written
from spotkeep_jobs.runs.acceptance import (
    Acceptance,
    checkpoint_prefix_taken,
    left_out,
    refuse_other_document,
    run_exists,
    runs_in_flight,
)
from spotkeep_jobs.runs.callers import CallerRules, not_the_callers, unknown_caller
from spotkeep_jobs.runs.known_run import known_run, unknown_run
from spotkeep_jobs.runs.launch_completion import LaunchCompletion, refused_by_its_backend
from spotkeep_jobs.runs.new_attempts import NewAttempts
from spotkeep_jobs.runs.resume import Resumption
from spotkeep_jobs.runs.run_group import members_of

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
        acceptance: Judges documents.
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
            keep_bundle: makes sure that what jobs and instances start with is where they fetch it.
            now: the time, aware.
            sleep: waits between tries of a transaction that met another one.
            fleets: attempts on EC2; None for a deployment without.
            callers: what callers may name and act on; None for a deployment that does not verify who calls.
        """
        self._table = table
        self.callers = callers
        fleets = fleets or Fleets()
        self._backends = Backends(sagemaker=jobs, ec2=fleets.jobs)
        self._defaults = defaults
        self._deployment = DeploymentPolicy(name=platform.deployment, prices=prices, limits=defaults.limits)
        self._completion = LaunchCompletion(
            table=table, backends=self._backends, deployment=self._deployment, keep_bundle=keep_bundle, now=now
        )
        self.now = now
        self._sleep = sleep
        self.acceptance = Acceptance(table=table, defaults=defaults, callers=callers, checks=fleets.checks, now=now)
        self._new_attempts = NewAttempts(
            platform=platform, fleets=fleets.platform, deployment=self._deployment, now=now
        )
        self._resumption = Resumption(
            table=table,
            backends=self._backends,
            defaults=defaults,
            deployment=self._deployment,
            new_attempts=self._new_attempts,
            now=now,
        )
        longest = defaults.max_keep_alive_seconds
        # Reminders, limits and later times are the controller's: it reconciles every pool.
        reconciler = PoolReconciler(
            table=table,
            jobs=jobs,
            schedules=None,
            deployment=replace(self._deployment, pool_rules=PoolRules(reminder_lead_seconds=0)),
            clock=now,
        )
        self.pools = PoolActions(
            table=table,
            jobs=jobs,
            reconciler=reconciler,
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
        validation = self.acceptance.judged(document, caller=caller, default_token=default_token)
        request = self.acceptance.accepted(validation, default_token=default_token, caller=caller)
        checked = self.acceptance.check(request)
        warnings = (*validation.warnings, *checked.warnings)
        token = request.token or default_token
        run_id = request.run or run_id_for(name=request.name, token=token)
        request = request.model_copy(update={"run": run_id, "token": token})
        members = members_of(request)
        if checked.problems and not self.acceptance.was_launched(members[0].request):
            raise RequestRefusedError(checked.problems, warnings=warnings)
        new = [self._new_attempts.of_new_run(member, plan=plan, caller=caller) for member in members]
        opened = self._open(request, new, warnings=warnings)
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
        some_refused = [f"{run.run} was refused by EC2, the others were not: {run.failure_reason}" for run in refused]
        return Launched(run=first, others=tuple(others), replayed=replayed, warnings=(*warnings, *some_refused))

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
        validation = self.acceptance.judged(document, caller=caller)
        request = self.acceptance.accepted(validation, caller=caller)
        checked = self.acceptance.check(request)
        warnings = (*validation.warnings, *checked.warnings)
        if problems := [*checked.problems, *self.acceptance.taken(request)]:
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
        run = known_run(self._table, run_id)
        if not self.callers.may_act_on(caller, run):
            raise RequestRefusedError([not_the_callers(run_id, owner=run.owner, caller=caller)])

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
        try:
            run, attempt = until_written(lambda: self._resumption.begin(run_id), pause=self._pause)
        except (RunChangedError, AwsCallError) as error:
            raise LaunchUnfinishedError(run=run_id, doing="resuming", cause=error) from error
        return Launched(run=self._complete(run, doing="resuming", wrote=attempt), replayed=attempt is None)

    def stop(self, run_id: str) -> Run:
        """Ask a run to stop: recorded first, then passed to SageMaker. Stopping an ended run changes nothing.

        Raises:
            RequestRefusedError: the run is not known.
            LaunchUnfinishedError: AWS did not answer for certain; the controller stops the job.
        """
        try:
            read = self._table.request_stop(run=run_id, now=self.now())
        except RunNotFoundError:
            raise RequestRefusedError([unknown_run(run_id)]) from None
        except RunChangedError as error:
            raise LaunchUnfinishedError(run=run_id, doing="stopping", cause=error) from error
        return self._completed(read[0], doing="stopping", read=read)

    def replay_notifications(self, run_id: str) -> tuple[str, ...]:
        """Put what could not be sent of a run into the outbox again.

        Returns:
            The ids of the notifications that go out again, each once; empty when none was dead.

        Raises:
            RequestRefusedError: there is nothing to tell of such a run, sent or not.
        """
        notifications = self._table.notifications(run_id)
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
        return known_run(self._table, run_id)

    def _open(self, request: JobRequest, new: Sequence[NewRun], *, warnings: tuple[str, ...]) -> tuple[Opened, ...]:
        try:
            return until_written(
                lambda: self._table.open_runs(new, in_flight_limit=self.limits.runs_in_flight_limit), pause=self._pause
            )
        except RunsInFlightError as error:
            problem = runs_in_flight(error.in_flight, limit=error.limit, asked=len(new))
            raise RequestRefusedError([problem], warnings=warnings) from None
        except RunExistsError as error:
            problems = self.acceptance.taken(request) or [run_exists(error.run)]
            raise RequestRefusedError(problems, warnings=warnings) from None
        except CheckpointPrefixTakenError as error:
            problem = checkpoint_prefix_taken(error.checkpoint_uri, error.owned_by)
            raise RequestRefusedError([problem], warnings=warnings) from None
        except RunChangedError as error:
            raise LaunchUnfinishedError(run=request.run or "", doing="launching", cause=error) from error

    def _complete(self, run: Run, *, doing: str, wrote: Attempt | None = None) -> Run:
        run = self._completed(run, doing=doing, wrote=wrote)
        if run.end_reason in _REFUSED:
            raise RequestRefusedError([refused_by_its_backend(run)])
        return run

    def _completed(
        self, run: Run, *, doing: str, wrote: Attempt | None = None, read: tuple[Run, Attempt] | None = None
    ) -> Run:
        """The run with its job; `wrote` is its attempt, where this call has just recorded it."""
        try:
            if wrote is not None:
                read = (run, wrote)
            return self._completion.complete(run.run, read=read, wrote_attempt=wrote is not None)
        except (AwsCallError, RunChangedError) as error:
            raise LaunchUnfinishedError(run=run.run, doing=doing, cause=error) from error

    def _pause(self, tries: int) -> None:
        self._sleep(_CONFLICT_PAUSE_SECONDS * 2**tries)
