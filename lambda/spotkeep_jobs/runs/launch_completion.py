"""Finishes what a launcher began: the job of a recorded run is created, or stopped if its user asked for that."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from spotkeep_jobs.backends.backend import Backends
from spotkeep_jobs.backends.job_view import JobView
from spotkeep_jobs.backends.sagemaker.request import is_same_launch
from spotkeep_jobs.document.capacity import MAX_FALLBACKS
from spotkeep_jobs.document.deployment_facts import DeploymentPolicy
from spotkeep_jobs.errors import (
    AwsBusyError,
    AwsCallError,
    AwsRefusedError,
    Problem,
    TrainingJobNameTakenError,
    TrainingJobNotFoundError,
)
from spotkeep_jobs.record.record import Attempt, Run, RunChange
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.run_table_errors import RunChangedError, RunNotRecordedError
from spotkeep_jobs.record.states import EndReason
from spotkeep_jobs.record.table_client import RecordRefusedError
from spotkeep_jobs.record.until_written import until_written
from spotkeep_jobs.runs.ending import ended_without_job, request_of
from spotkeep_jobs.runs.facts import RunFacts
from spotkeep_jobs.runs.quota_wait import is_due, request_after_wait, wait_for_quota
from spotkeep_jobs.with_changes import with_changes

LAUNCH_SETTLES: Final = timedelta(minutes=5)
"""A function that began to create a job this long ago is dead: none runs so long, even with a minute for the clocks."""
_QUOTA_CODE: Final = "ResourceLimitExceeded"


class LaunchCompletion:
    """Creates the job of a recorded run, or stops it if its user asked for that.

    Safe to call at any time, by any function, any number of times: by a launch with a token used before, by the
    controller on every run in LAUNCHING or STOPPING.
    """

    def __init__(
        self,
        *,
        table: RunTable,
        backends: Backends,
        deployment: DeploymentPolicy,
        keep_bundle: Callable[[], None],
        now: Callable[[], datetime],
    ) -> None:
        """Bind the parts.

        Args:
            table: Where runs are recorded.
            backends: Where their jobs are or will be.
            deployment: Its name and prices, for the record and the notification of a run that ends here.
            keep_bundle: Makes sure that what jobs and instances start with is where they fetch it; raises AwsCallError.
            now: The time, aware.
        """
        self._table = table
        self._backends = backends
        self._deployment = deployment
        self._keep_bundle = keep_bundle
        self._now = now

    def complete(
        self,
        run: str,
        *,
        read: tuple[Run, Attempt] | None = None,
        wrote_attempt: bool = False,
        room_is_free: bool = False,
    ) -> Run:
        """Finish what a launcher began.

        Args:
            run: The run's id.
            read: The run item and its current attempt, as the caller has just read or written them; None to read them.
            wrote_attempt: Whether the caller has just recorded this attempt: its job is then the caller's to create.
            room_is_free: Whether a job has just ended: then a run that waits for quota is asked for at once.

        Returns:
            The run item afterwards. A job that SageMaker refuses for good has ended the run with LAUNCH_REFUSED; one
            that it refuses for the account's quota lets the run wait (`quota_wait`).

        Raises:
            RunNotRecordedError: No such run.
            RunChangedError: The run kept changing under every try.
            DeploymentIsBeingDeletedError: The job is not created, because of that.
            AwsCallError: SageMaker did not answer for certain, or may not be asked; call again later.
        """
        as_read = [] if read is None else [read]
        wrote = read[1].attempt if read is not None and wrote_attempt else None

        def act() -> tuple[Run, Attempt | None]:
            run_item, attempt = as_read.pop() if as_read else self._read(run)
            return self._act(run_item, attempt, wrote_it=attempt.attempt == wrote, room_is_free=room_is_free)

        for _ in range(MAX_FALLBACKS + 1):
            run_item, following = until_written(act)
            if following is None:
                return run_item
            # Refused for its quota, and another fallback follows: its job is created in the next round.
            as_read.append((run_item, following))
            wrote = following.attempt
        raise RunChangedError(run)

    def stop(self, run: str) -> Run:
        """Record that a run is to end, and end its job; that is ended even where DynamoDB does not take the record.

        Raises:
            RunNotRecordedError: No such run.
            RunChangedError: The run kept changing under every try.
            RecordRefusedError: It is not recorded; its job was asked to end all the same.
            AwsCallError: AWS did not answer for certain, or may not be asked; call again later.
        """
        try:
            read = self._table.request_stop(run=run, now=self._now())
        except RecordRefusedError:
            run_item, attempt = self._read(run)
            if not run_item.state.ended:
                self.end_job(attempt)
            raise
        return self.complete(run, read=read)

    def end_job(self, attempt: Attempt) -> None:
        """End the job of an attempt, if there is one, without a record that says so.

        Args:
            attempt: As it was read.
        """
        if attempt.job_arn is None:
            job = self._backends.of(attempt).observe(attempt.job_name)
            if job is None or not is_ours(job, attempt):
                return
        self._stop_job(attempt)

    def _read(self, run: str) -> tuple[Run, Attempt]:
        run_item = self._table.get(run)
        if run_item is None:
            raise RunNotRecordedError(run)
        attempt = self._table.attempt(run, run_item.attempt)
        if attempt is None:
            raise RunNotRecordedError(run, attempt=run_item.attempt)
        return run_item, attempt

    def _act(self, run: Run, attempt: Attempt, *, wrote_it: bool, room_is_free: bool) -> tuple[Run, Attempt | None]:
        """Do what the run needs next; return its item, and the attempt that follows one that was refused."""
        if run.state.ended:
            return run, None
        if run.job_arn != attempt.job_arn:
            raise RunChangedError(run.run)  # Read before and after the same change.
        if run.asked_to_end is not None or attempt.asked_to_end is not None:
            return self._stop(run, attempt), None
        if attempt.job_arn is not None:
            return run, None
        if attempt.begins_at is not None and self._now() < attempt.begins_at:
            return run, None
        if run.quota_wait is not None and not self._is_settled(run, attempt):
            return run, None  # Another function asks for it right now.
        if not room_is_free and not is_due(run, now=self._now()):
            return run, None
        return self._create(run, attempt, wrote_it=wrote_it)

    def _create(self, run: Run, attempt: Attempt, *, wrote_it: bool) -> tuple[Run, Attempt | None]:
        alone = attempt.create_begun_at is None if wrote_it else self._is_settled(run, attempt)
        if not wrote_it:
            now = self._now()
            parameters = request_after_wait(run, parameters=_recorded_parameters(attempt), now=now)
            attempt = with_changes(attempt, create_begun_at=now, job_request=parameters)
            begun = RunChange(run=with_changes(run, updated_at=now), attempt=attempt)
            run = self._table.commit(begun, begins_job=True)
        jobs = self._backends.of(attempt)
        try:
            self._keep_bundle()
            job_arn = jobs.create(_recorded_parameters(attempt))
        except (TrainingJobNameTakenError, AwsRefusedError) as error:
            # A refusal too may be our own doing: a lost first call has the job, and with it the last of the quota.
            job = jobs.observe(attempt.job_name)
            if job is not None and is_ours(job, attempt):
                return self._created(run, attempt, job_arn=job.arn), None
            if not alone:
                raise AwsBusyError(
                    operation=error.operation,
                    code=error.code,
                    reason=f"refused ({error.reason}), while another call for the run may still be accepted",
                ) from error
            return self._refused(run, attempt, error=error, taken_by=job)
        return self._created(run, attempt, job_arn=job_arn), None

    def _is_settled(self, run: Run, attempt: Attempt) -> bool:
        """Return whether the function that began to create the attempt's job is over: the job exists, or never will.

        The one that let the run wait for quota was over when it wrote that, and before its time nothing begins.
        """
        if run.quota_wait is not None and attempt.create_begun_at is None:
            return True
        if attempt.begins_at is not None and self._now() < attempt.begins_at:
            return True
        return self._now() - (attempt.create_begun_at or attempt.created_at) >= LAUNCH_SETTLES

    def _created(self, run: Run, attempt: Attempt, *, job_arn: str) -> Run:
        recorded = self._table.record_job_created(
            run=run.run, attempt=attempt.attempt, job_arn=job_arn, now=self._now(), read=(run, attempt)
        )
        if recorded.asked_to_end is not None or recorded.state.ended or recorded.attempt != attempt.attempt:
            self._stop_job(attempt)
        if recorded.job_arn is None:
            raise RunChangedError(run.run)  # Another launcher recorded the job while the run item was read.
        return recorded

    def _refused(
        self, run: Run, attempt: Attempt, *, error: AwsCallError, taken_by: JobView | None
    ) -> tuple[Run, Attempt | None]:
        reason = error.reason
        if isinstance(error, TrainingJobNameTakenError):
            if taken_by is None:
                raise AwsBusyError(
                    operation=error.operation, code=error.code, reason="the job of that name cannot be described yet"
                ) from error
            reason = (
                f"a training job named {attempt.job_name} exists already in this account and is not this run's; "
                "choose another run id"
            )
        of_quota = error.code == _QUOTA_CODE
        if of_quota:
            waits = wait_for_quota(run, request=request_of(run), attempt=attempt, reason=reason, now=self._now())
            if waits is not None:
                return self._table.commit(waits), None
        why = EndReason.QUOTA if of_quota else EndReason.LAUNCH_REFUSED
        change = ended_without_job(self._facts(run, attempt), reason=why, failure_reason=reason)
        return self._table.commit(change), change.next_attempt

    def _stop(self, run: Run, attempt: Attempt) -> Run:
        if attempt.job_arn is not None:
            self._stop_job(attempt)
            return run
        job = self._backends.of(attempt).observe(attempt.job_name)
        if job is not None and is_ours(job, attempt):
            return self._created(run, attempt, job_arn=job.arn)
        if not self._is_settled(run, attempt):
            return run  # A launcher may be about to create the job; it will see the stop and stop it.
        return self._table.commit(ended_without_job(self._facts(run, attempt), reason=EndReason.STOPPED_BY_USER))

    def _stop_job(self, attempt: Attempt) -> None:
        with contextlib.suppress(TrainingJobNotFoundError):  # Deleted by a person; the controller records the end.
            self._backends.of(attempt).stop(attempt.job_name)

    def _facts(self, run: Run, attempt: Attempt) -> RunFacts:
        return RunFacts(
            run=run,
            request=request_of(run),
            attempt=attempt,
            earlier=[each for each in self._table.attempts(run.run) if each.attempt < run.attempt],
            deployment=self._deployment,
            now=self._now(),
        )


def _recorded_parameters(attempt: Attempt) -> Mapping[str, Any]:
    if attempt.job_request is None:
        raise RunNotRecordedError(attempt.run, attempt=attempt.attempt)
    return attempt.job_request


def is_ours(job: JobView, attempt: Attempt) -> bool:
    """Return whether a job was created from the attempt's recorded request."""
    return is_same_launch(environment=job.environment, parameters=_recorded_parameters(attempt))


def refused_by_its_backend(run: Run) -> Problem:
    """Say that SageMaker, AWS Batch or EC2 refused the job."""
    field, found = "(SageMaker)", f"training job {run.job_name}"
    fix = "Correct the document or the account (quotas, permissions)"
    if run.place.backend == "ec2":
        field, found = "(EC2)", f"fleet of {run.job_name}"
        fix = "Correct the document or the account (quotas, service-linked roles)"
    elif run.place.queue is not None:
        field, found = "(AWS Batch)", f"service job {run.job_name} in queue {run.place.queue.queue}"
        fix = "Correct the document, or the queue in the deployment's settings"
    return Problem(
        field=field,
        found=found,
        problem=f"was refused: {run.failure_reason}",
        fix=f"{fix}, then go on with this run (spotkeep resume {run.run}), or launch with another run id and token.",
    )
