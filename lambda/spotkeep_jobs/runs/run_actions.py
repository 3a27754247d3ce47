"""Actions of users on a launched run, such as stop, resume, describe, and sending its notifications again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from spotkeep_jobs.document.queue import MAX_PRIORITY
from spotkeep_jobs.document.reading import shown
from spotkeep_jobs.document.request import JobRequest, Validation, validate
from spotkeep_jobs.document.spending import cost_problems
from spotkeep_jobs.errors import (
    AttemptStillLiveError,
    AwsRefusedError,
    CheckpointPrefixTakenError,
    JobNotFoundError,
    Problem,
    RequestRefusedError,
    RunChangedError,
    RunNotRecordedError,
    RunsInFlightError,
)
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.record import Attempt, Run, RunChange, ScriptMetrics, TimelineEntry
from spotkeep_jobs.record.states import RunState, TimelineKind
from spotkeep_jobs.record.table_client import until_written
from spotkeep_jobs.runs.acceptance import Acceptance, checkpoint_prefix_taken, is_repeated, runs_in_flight
from spotkeep_jobs.runs.callers import known_run, unknown_run
from spotkeep_jobs.runs.launch import NewAttempts, changed_document, fields_that_stay
from spotkeep_jobs.runs.launch_completion import (
    CALL_AGAIN,
    LaunchCompletion,
    Launched,
    is_ours,
    refuse_if_its_backend_did,
    unfinished_without_an_answer,
)

if TYPE_CHECKING:
    from spotkeep_jobs.deployment import Deployment
    from spotkeep_jobs.settings import DeploymentSettings, LauncherSettings


_NO_CHANGES: Final[Mapping[str, Any]] = MappingProxyType({})
_NOT_BEGUN: Final = f"No attempt was begun, and the run is as it was. {CALL_AGAIN}"
_BEGUN: Final = (
    f"The attempt is recorded, and nothing runs twice. {CALL_AGAIN}, or wait for the controller, which creates its job "
    "within minutes"
)
_STOPPING: Final = f"{CALL_AGAIN}. Once the stop is recorded, the controller also ends the job within minutes"


@dataclass(frozen=True)
class RunActions:
    """Acts on runs, on the run table and the backends it is given."""

    deployment: Deployment[LauncherSettings]

    def resume(self, run_id: str, *, changes: Mapping[str, Any] = _NO_CHANGES) -> Launched:
        """Begin the next attempt of a run that ended without completing, on the same checkpoints.

        Args:
            run_id: The run.
            changes: New values of fields of its request. None takes a field away.

        Raises:
            RequestRefusedError: The run is not known, has completed, its last job is not over (I1), or the changed
                request would not be launched.
            LaunchUnfinishedError: AWS did not answer for certain. It says if the attempt is recorded. Call again.
        """
        resuming = f"resuming run {run_id!r}"
        with unfinished_without_an_answer(resuming, then=_NOT_BEGUN):
            run, attempt = until_written(lambda: self._begin_next(run_id, changes=changes), pause=self.deployment.pause)
        read = None if attempt is None else (run, attempt)
        with unfinished_without_an_answer(resuming, then=_BEGUN):
            run = LaunchCompletion(self.deployment).complete(run_id, read=read, wrote_attempt=attempt is not None)
        return Launched(run=refuse_if_its_backend_did(run), replayed=attempt is None)

    def stop(self, run_id: str) -> Run:
        """Ask a run to stop. The request is recorded first, then passed to the run's backend.

        A stop of an ended run changes nothing.

        Raises:
            RequestRefusedError: The run is not known.
            RecordRefusedError: DynamoDB does not take the record. The run's job was asked to stop all the same.
            LaunchUnfinishedError: AWS gave no certain answer. The controller stops the job.
        """
        with unfinished_without_an_answer(f"stopping run {run_id!r}", then=_STOPPING):
            try:
                return LaunchCompletion(self.deployment).stop(run_id)
            except RunNotRecordedError:
                raise RequestRefusedError([unknown_run(run_id)]) from None

    def replay_notifications(self, run_id: str) -> tuple[str, ...]:
        """Put the run's notifications that could not be sent into the outbox again.

        Returns:
            The ids of the notifications that go out again, each once. Empty when none was dead.

        Raises:
            RequestRefusedError: The run is not known, and has no notification.
        """
        notifications = self.deployment.table.notifications.of_run(run_id)
        if not notifications and self.deployment.table.runs.get(run_id) is None:
            raise RequestRefusedError([unknown_run(run_id)])
        return tuple(
            notification.notification_id
            for notification in notifications
            if self.deployment.table.notifications.revive(notification)
        )

    def describe(self, run_id: str) -> tuple[Run, ScriptMetrics | None]:
        """Return the item of a run, and the metrics of its script.

        Raises:
            RequestRefusedError: The run is not known.
        """
        return known_run(self.deployment.table, run_id), self.deployment.table.runs.metrics(run_id)

    def _begin_next(self, run_id: str, *, changes: Mapping[str, Any]) -> tuple[Run, Attempt | None]:
        """Record the next attempt of a run.

        A refusal has one or more reasons, such as the following.

        - The run is not known, or has completed.
        - The run's last job is not over (I1).
        - The run would pause again at once.
        - The changed request would not be launched.

        Args:
            run_id: The run.
            changes: New values of fields of its request. None takes a field away.

        Returns:
            The run item, and the attempt. The attempt is None if an earlier call has recorded it. It then has no job
            yet, or was resumed in the same way within the hour.

        Raises:
            RequestRefusedError: The run cannot be resumed. The error carries every problem.
            RunChangedError: Another process has changed the run meanwhile. Call again.
            AwsCallError: AWS did not say whether the last job is over.
        """
        run = known_run(self.deployment.table, run_id)
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
            *_paused_there(run, validation.draft),
            *_on_other_disks(run, validation),
            *fields_that_stay(changes),
            *validation.problems,
        ]
        if problems:
            raise RequestRefusedError(problems, warnings=validation.warnings)
        return self._record_next(run, validation.accepted(), changed=bool(changes))

    def _begun_before(self, run: Run) -> bool:
        """Return True if an earlier call has begun this same resume. A client repeats a call by itself."""
        if run.state is RunState.LAUNCHING and run.job_id is None:
            return True
        if run.state.ended or run.asked_to_end is not None:
            return False
        attempt = self.deployment.table.runs.attempt(run.run, run.attempt)
        return (
            attempt is not None
            and attempt.resumed
            and is_repeated(launched_at=attempt.created_at, now=self.deployment.now())
        )

    def _judged(self, run: Run, changes: Mapping[str, Any]) -> Validation:
        document = changed_document(run.request, changes, defaults=self.deployment.defaults)
        # What was accepted before stays so; a new deadline is judged as of now.
        now = self.deployment.now() if changes.get("deadline") is not None else None
        return validate(document, defaults=self.deployment.defaults, now=now)

    def _not_over(self, run: Run) -> Iterator[Problem]:
        temporary = False
        if run.state is RunState.COMPLETED:
            problem = "has completed; there is nothing to resume"
            fix = f"Launch a new run, with checkpoint_prefix: {run.checkpoint_uri} to go on from its checkpoints."
        elif not run.state.ended:
            problem = f"is not over: attempt {run.attempt} is {run.state}"
            fix = f"Wait for it, or stop it first: spotkeep stop {run.run}"
        elif isinstance(live := self._has_live_job(run), AwsRefusedError):
            problem = f"has a last job of which AWS does not say if it is over: {live}. Nothing was begun"
            fix = "Have an administrator compare the launcher's role with `spotkeep help roles`, then resume again."
        elif live:
            problem = f"is not over: SageMaker still has its training job {run.job_name} in progress"
            fix = "Wait a minute until the job is over, then resume again."
            temporary = True
        else:
            return
        yield Problem(field="run", found=shown(run.run), problem=problem, fix=fix, temporary=temporary)

    def _has_live_job(self, run: Run) -> bool | AwsRefusedError:
        """Return True if SageMaker says that the run's last job is not over, even if the record differs.

        The error is returned if SageMaker refuses to say it.
        """
        attempt = self.deployment.table.runs.attempt(run.run, run.attempt)
        try:
            job = self.deployment.backend_of(attempt or run).observe(run.job_name)
        except AwsRefusedError as error:
            return error
        ours = job is not None and (attempt is None or is_ours(job, attempt))
        return job is not None and ours and not job.ended

    def _record_next(self, run: Run, request: JobRequest, *, changed: bool) -> tuple[Run, Attempt]:
        spent = None if run.cost is None else run.cost.billed_usd
        if run.cost is None and run.trial is not None:
            spent = 0.0  # Its sweep counts what was never billed, and the trial's max_cost is the rest.
        attempts = NewAttempts(self.deployment)
        checkpoint_uri = attempts.checkpoint_uri(request, run=run.run)
        if checkpoint_uri != run.checkpoint_uri:
            raise RequestRefusedError([_lives_elsewhere(run, checkpoint_uri=checkpoint_uri)])
        limits, prices, now = self.deployment.policy.limits, self.deployment.policy.prices, self.deployment.now()
        above = list(
            cost_problems(request, limits=limits, prices=prices, now=now, spent_usd=spent, attempts=run.attempt)
        )
        if above:
            raise RequestRefusedError(above)
        if spent is None and request.max_cost is not None:
            raise RequestRefusedError([_cost_not_known(request)])
        # Its volume is there, and is not asked for again.
        if changed and (problems := Acceptance(self.deployment).check(with_changes(request, volume=None)).problems):
            raise RequestRefusedError(problems)
        run, attempt, timeline = attempts.of_ended_run(run, request, spent_usd=spent or 0.0, changed=changed)
        attempts.keep_spec(request, run=run.run)
        try:
            begun = self.deployment.table.runs.begin_attempt(
                run=run, attempt=attempt, timeline=timeline, in_flight_limit=limits.runs_in_flight_limit
            )
        except AttemptStillLiveError:
            raise RunChangedError(run.run) from None
        except CheckpointPrefixTakenError as error:
            raise RequestRefusedError([checkpoint_prefix_taken(error.checkpoint_uri, error.owned_by)]) from None
        except RunsInFlightError as error:
            raise RequestRefusedError([runs_in_flight(error.in_flight, limit=error.limit)]) from None
        return begun, attempt


def _paused_there(run: Run, draft: JobRequest | None) -> Iterator[Problem]:
    """Yield that a paused run would pause again at once."""
    pause_at_step = None if draft is None else draft.pause_at_step
    if run.paused_at_step is None or pause_at_step is None or pause_at_step > run.paused_at_step:
        return
    yield Problem(
        field="pause_at_step",
        found=shown(pause_at_step),
        problem=f"is not after step {run.paused_at_step:,}, where the run is paused: it would pause at once",
        fix=f"Go on to a later step: spotkeep resume {run.run} --set pause_at_step={run.next_pause_at_step}. "
        f"Or to the end: spotkeep resume {run.run} --set pause_at_step=",
    )


def _on_other_disks(run: Run, validation: Validation) -> Iterator[Problem]:
    """Yield that a run on one instance, with its volume, would go on as nodes with root disks, or the other way."""
    request = validation.draft
    # A draft has one instance where the number could not be read.
    if request is None or any(problem.field.partition(".")[0] == "nodes" for problem in validation.problems):
        return
    if (run.node_range is None) == (request.several_nodes is None):
        return
    others = (
        "its volume has files that are not in S3" if run.node_range is None else "nodes have no volume to go on with"
    )
    yield Problem(
        field="nodes",
        found="1" if request.nodes is None else str(request.nodes),
        problem=f"is not changed by a resume between one instance and several: {others}",
        fix="Remove it; or launch a new run, with checkpoint_prefix to go on from this one's checkpoints.",
    )


def _of_another_client(run: Run) -> Problem:
    """Return the problem that there is no job file for a next job."""
    return Problem(
        field="run",
        found=shown(run.run),
        problem="was launched by another client: there is no job file to make its next job of",
        fix=f"Make one of its job, and launch that: spotkeep import {run.job_name}",
    )


def _lives_elsewhere(run: Run, *, checkpoint_uri: str) -> Problem:
    """Return the problem that a run's team was isolated, or has ceased to be, since the run's launch."""
    return Problem(
        field="team",
        found=shown(run.request.get("team")),
        problem=f"trains below {checkpoint_uri} now, and the run's checkpoints are below {run.checkpoint_uri}: the "
        "setting isolated_teams was changed since",
        fix="Have an administrator copy them, and launch a new run there; or have the setting changed back.",
    )


def _cost_not_known(request: JobRequest) -> Problem:
    """Return the problem that a run with a max_cost has no bill in dollars, so its remaining money is not known."""
    return Problem(
        field="max_cost",
        found=shown(request.max_cost),
        problem="bounds the run, and what the run has cost is not known",
        fix="Set the price of its instance type (the setting prices), or launch a new run with checkpoint_prefix to go "
        "on from this one's checkpoints.",
    )


def change_priority(deployment: Deployment[DeploymentSettings], run_id: str, *, priority: object) -> Run:
    """Give a run another priority. Its next jobs have it, too.

    Args:
        deployment: The deployment.
        run_id: The run.
        priority: 0 to 9999, of any type.

    Returns:
        The run item afterwards.

    Raises:
        RequestRefusedError: The run is not known, is in no queue, or has ended, or the value is no priority.
        LaunchUnfinishedError: AWS did not answer for certain. Call again.
    """
    wanted = _priority(priority)
    with unfinished_without_an_answer(f"changing the priority of run {run_id!r}", then=CALL_AGAIN):
        return until_written(lambda: _change_priority(deployment, run_id, priority=wanted), pause=deployment.pause)


def _change_priority(deployment: Deployment[DeploymentSettings], run_id: str, *, priority: int) -> Run:
    run = known_run(deployment.table, run_id)
    if run.place.queue is None:
        raise RequestRefusedError(
            [_has_no_priority(run, "is in no queue", "Launch it with a queue, or resume it with one.")]
        )
    if run.state.ended:
        raise RequestRefusedError([_has_no_priority(run, "has ended", f"Resume it with priority: {priority}.")])
    attempt = deployment.table.runs.attempt(run_id, run.attempt)
    if attempt is None:
        raise RunNotRecordedError(run_id, attempt=run.attempt)
    if attempt.job_id is not None:
        try:
            deployment.queues.api.change_priority(attempt.job_id.rpartition("/")[2], priority=priority)
        except JobNotFoundError:
            raise RequestRefusedError([_has_no_priority(run, "is over", "Wait until its end is recorded.")]) from None
    before = run.place.queue
    if before.priority == priority:
        return run
    now, queue = deployment.now(), with_changes(before, priority=priority)
    place = with_changes(run.place, queue=queue)
    entry = TimelineEntry(
        run=run_id,
        attempt=run.attempt,
        at=now,
        kind=TimelineKind.REQUEST_CHANGED,
        text=f"Has priority {priority} in queue {queue.queue}, share {queue.share}, instead of {before.priority}",
    )
    return deployment.table.runs.commit(
        RunChange(
            run=with_changes(run, place=place, request={**run.request, "priority": priority}, updated_at=now),
            attempt=with_changes(attempt, place=place),
            timeline=(entry,),
        )
    )


def _priority(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_PRIORITY:
        problem = f"is no priority: a whole number from 0 to {MAX_PRIORITY}"
        raise RequestRefusedError(
            [Problem(field="priority", found=shown(value), problem=problem, fix="Write a number, for example 7.")]
        )
    return value


def _has_no_priority(run: Run, problem: str, fix: str) -> Problem:
    return Problem(field="run", found=shown(run.run), problem=f"{problem}: it has no priority to change", fix=fix)
