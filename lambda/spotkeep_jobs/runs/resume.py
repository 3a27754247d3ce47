"""Begins the next attempt of a run that has ended without completing, on the same checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spotkeep_jobs.backends.ec2.checks import FleetChecks
from spotkeep_jobs.document.reading import shown
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.spending import cost_problems
from spotkeep_jobs.document.validation import Validation, validate
from spotkeep_jobs.errors import Problem, RequestRefusedError
from spotkeep_jobs.record.record import Attempt, Run
from spotkeep_jobs.record.run_table_errors import (
    AttemptStillLiveError,
    CheckpointPrefixTakenError,
    RunChangedError,
    RunsInFlightError,
)
from spotkeep_jobs.record.states import RunState
from spotkeep_jobs.runs.acceptance import checkpoint_prefix_taken, runs_in_flight
from spotkeep_jobs.runs.launch_completion import is_ours
from spotkeep_jobs.runs.launch_context import LaunchContext
from spotkeep_jobs.runs.new_attempts import NewAttempts
from spotkeep_jobs.runs.repeated_calls import is_repeated
from spotkeep_jobs.runs.request_changes import changed_document, fields_that_stay
from spotkeep_jobs.runs.run_access import known_run


class Resumption:
    """Records next attempts."""

    def __init__(self, context: LaunchContext, *, new_attempts: NewAttempts, checks: FleetChecks | None) -> None:
        """Bind the parts.

        Args:
            context: What it acts on.
            new_attempts: Makes the records of next attempts.
            checks: Asks EC2 about a request; None for a deployment without fleets.
        """
        self._context = context
        self._table = context.table
        self._now = context.now
        self._new_attempts = new_attempts
        self._checks = checks

    def begin(self, run_id: str, *, changes: Mapping[str, Any]) -> tuple[Run, Attempt | None]:
        """Record the next attempt of a run.

        Args:
            run_id: The run.
            changes: New values of fields of its request; None takes a field away.

        Returns:
            The run item, and the attempt; None for the attempt when an earlier call has recorded it: it has no job
            yet, or was resumed so within the hour.

        Raises:
            RequestRefusedError: The run is not known, has completed, its last job is not over (I1), it would pause
                again at once, or the changed request would not be launched; it carries every problem.
            RunChangedError: Another process has changed the run meanwhile: call again.
            AwsCallError: AWS did not say whether the last job is over.
        """
        run = known_run(self._table, run_id)
        if run.adopted:
            raise RequestRefusedError([_of_another_client(run)])
        begun_before = self._begun_before(run)
        if begun_before and not changes:
            return run, None
        validation = self._judged(run, changes)
        request = validation.request
        if begun_before and request is not None and request.as_document() == run.request:
            return run, None
        problems = [
            *self._not_over(run),
            *_paused_there(run, request),
            *fields_that_stay(changes),
            *validation.problems,
        ]
        if problems:
            raise RequestRefusedError(problems, warnings=validation.warnings)
        return self._begin(run, validation.accepted(), changed=bool(changes))

    def _begun_before(self, run: Run) -> bool:
        """Return whether an earlier call has begun this same resume: a client repeats a call by itself."""
        if run.state is RunState.LAUNCHING and run.job_arn is None:
            return True
        if run.state.ended or run.stop_requested_at is not None:
            return False
        attempt = self._table.attempt(run.run, run.attempt)
        return attempt is not None and attempt.resumed and is_repeated(launched_at=attempt.created_at, now=self._now())

    def _judged(self, run: Run, changes: Mapping[str, Any]) -> Validation:
        document = changed_document(run.request, changes, defaults=self._context.defaults)
        # What was accepted before stays so; a new deadline is judged as of now.
        now = self._now() if changes.get("deadline") is not None else None
        return validate(document, defaults=self._context.defaults, now=now)

    def _not_over(self, run: Run) -> Iterator[Problem]:
        temporary = False
        if run.state is RunState.COMPLETED:
            problem = "has completed; there is nothing to resume"
            fix = f"Launch a new run, with checkpoint_prefix: {run.checkpoint_uri} to go on from its checkpoints."
        elif not run.state.ended:
            problem = f"is not over: attempt {run.attempt} is {run.state}"
            fix = f"Wait for it, or stop it first: spotkeep stop {run.run}"
        elif self._has_live_job(run):
            problem = f"is not over: SageMaker still has its training job {run.job_name} in progress"
            fix = "Wait a minute until the job is over, then resume again."
            temporary = True
        else:
            return
        yield Problem(field="run", found=shown(run.run), problem=problem, fix=fix, temporary=temporary)

    def _has_live_job(self, run: Run) -> bool:
        """Return whether SageMaker says that the run's last job is not over, whatever the record says."""
        attempt = self._table.attempt(run.run, run.attempt)
        job = self._context.backends.of(attempt or run).observe(run.job_name)
        ours = job is not None and (attempt is None or is_ours(job, attempt))
        return job is not None and ours and not job.ended

    def _begin(self, run: Run, request: JobRequest, *, changed: bool) -> tuple[Run, Attempt]:
        spent = run.cost.billed_usd if run.cost is not None else 0.0
        checkpoint_uri = self._new_attempts.checkpoint_uri(request, run=run.run)
        if checkpoint_uri != run.checkpoint_uri:
            raise RequestRefusedError([_lives_elsewhere(run, checkpoint_uri=checkpoint_uri)])
        limits, prices, now = self._context.defaults.limits, self._context.deployment.prices, self._now()
        above = list(
            cost_problems(request, limits=limits, prices=prices, now=now, spent_usd=spent, attempts=run.attempt)
        )
        if above:
            raise RequestRefusedError(above)
        if spent is None and request.max_cost is not None:
            raise RequestRefusedError([_cost_not_known(request)])
        if changed and request.backend == "ec2" and self._checks is not None:
            # Its volume is there, and is not asked for again.
            types = self._checks.check(request.model_copy(update={"volume": None}))
            if types.problems:
                raise RequestRefusedError(types.problems)
        run, attempt, timeline = self._new_attempts.of_ended_run(run, request, spent_usd=spent or 0.0, changed=changed)
        try:
            begun = self._table.begin_attempt(
                run=run, attempt=attempt, timeline=timeline, in_flight_limit=limits.runs_in_flight_limit
            )
        except AttemptStillLiveError:
            raise RunChangedError(run.run) from None
        except CheckpointPrefixTakenError as error:
            raise RequestRefusedError([checkpoint_prefix_taken(error.checkpoint_uri, error.owned_by)]) from None
        except RunsInFlightError as error:
            raise RequestRefusedError([runs_in_flight(error.in_flight, limit=error.limit)]) from None
        return begun, attempt


def _paused_there(run: Run, request: JobRequest | None) -> Iterator[Problem]:
    """Yield that a paused run would pause again at once."""
    pause_at_step = None if request is None else request.pause_at_step
    if run.paused_at_step is None or pause_at_step is None or pause_at_step > run.paused_at_step:
        return
    yield Problem(
        field="pause_at_step",
        found=shown(pause_at_step),
        problem=f"is not after step {run.paused_at_step:,}, where the run is paused: it would pause at once",
        fix=f"Go on to a later step: spotkeep resume {run.run} --set pause_at_step={run.next_pause_at_step}. "
        f"Or to the end: spotkeep resume {run.run} --set pause_at_step=",
    )


def _of_another_client(run: Run) -> Problem:
    """Say that there is nothing to make a next job of."""
    return Problem(
        field="run",
        found=shown(run.run),
        problem="was launched by another client: there is no job file to make its next job of",
        fix=f"Make one of its job, and launch that: spotkeep import {run.job_name}",
    )


def _lives_elsewhere(run: Run, *, checkpoint_uri: str) -> Problem:
    """Say that a run's team was isolated, or is no more, since the run was launched."""
    return Problem(
        field="team",
        found=shown(run.request.get("team")),
        problem=f"trains below {checkpoint_uri} now, and the run's checkpoints are below {run.checkpoint_uri}: the "
        "setting isolated_teams was changed since",
        fix="Have an administrator copy them, and launch a new run there; or have the setting changed back.",
    )


def _cost_not_known(request: JobRequest) -> Problem:
    """Say that the bill of a run with a max_cost has no dollars, so that the rest of the money is not known."""
    return Problem(
        field="max_cost",
        found=shown(request.max_cost),
        problem="bounds the run, and what the run has cost is not known",
        fix="Set the price of its instance type (the setting prices), or launch a new run with checkpoint_prefix to go "
        "on from this one's checkpoints.",
    )
