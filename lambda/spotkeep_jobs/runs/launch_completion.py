"""Finishes what a launcher began: the job of a recorded run is created, or stopped if its user asked for that.

Safe to call at any time, by anybody, any number of times.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from spotkeep_jobs.backends.backend import Backend, Backends
from spotkeep_jobs.backends.ec2.jobs import NoFleets
from spotkeep_jobs.backends.job_view import JobView
from spotkeep_jobs.backends.sagemaker.request import is_same_launch
from spotkeep_jobs.document.deployment import Deployment
from spotkeep_jobs.document.limits import MAX_FALLBACKS
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
from spotkeep_jobs.record.run_table_errors import RunChangedError, RunNotFoundError
from spotkeep_jobs.record.states import EndReason
from spotkeep_jobs.record.until_written import until_written
from spotkeep_jobs.runs.ending import ended_without_job, request_of

LAUNCH_SETTLES: Final = timedelta(minutes=5)
"""Who set out to create a job this long ago is dead: longer than any function may run, by a minute for their clocks."""
_QUOTA_CODE: Final = "ResourceLimitExceeded"


def complete_launch(
    run: str,
    *,
    table: RunTable,
    jobs: Backend,
    deployment: Deployment,
    keep_bundle: Callable[[], None],
    now: Callable[[], datetime],
    wrote: int | None = None,
    read: tuple[Run, Attempt] | None = None,
    fleets: Backend | None = None,
) -> Run:
    """Finish what a launcher began: create a recorded run's job, or stop it if its user asked for that.

    Safe to call at any time, by anybody, any number of times: by a launch with a token used before, by the controller
    on every run in LAUNCHING or STOPPING.

    Args:
        run: the run's id.
        table: where it is recorded.
        jobs: where its job is or will be.
        deployment: its name and prices, for the record and the notification of a run that ends here.
        keep_bundle: makes sure that what jobs and instances start with is where they fetch it; raises AwsCallError.
        now: the time, aware.
        wrote: the attempt that the caller has just recorded, if it has: its job is the caller's to create.
        read: the run item and its current attempt, as the caller has just read or written them; None to read them.
        fleets: where attempts on EC2 are or will be; None for a deployment without.

    Returns:
        The head afterwards. A job that SageMaker refuses for good has ended the run with LAUNCH_REFUSED.

    Raises:
        RunNotFoundError: no such run.
        RunChangedError: the run kept changing under every try.
        AwsCallError: SageMaker did not answer for certain, or may not be asked; call again later.
    """
    backends = Backends(sagemaker=jobs, ec2=fleets or NoFleets())
    completion = _Completion(table=table, backends=backends, deployment=deployment, keep_bundle=keep_bundle, now=now)
    return completion.complete(run, wrote=wrote, read=read)


@dataclass(frozen=True, kw_only=True)
class _Completion:
    table: RunTable
    backends: Backends
    deployment: Deployment
    keep_bundle: Callable[[], None]
    now: Callable[[], datetime]

    def complete(self, run: str, *, wrote: int | None, read: tuple[Run, Attempt] | None) -> Run:
        as_read = [read] if read is not None else []

        def act() -> tuple[Run, Attempt]:
            head, attempt = as_read.pop() if as_read else self._read(run)
            return self._act(head, attempt, wrote_it=attempt.attempt == wrote), attempt

        for _ in range(MAX_FALLBACKS + 1):
            head, attempt = until_written(act)
            if head.attempt == attempt.attempt or head.job_arn is not None:
                return head
            # Refused for its quota, and the ladder goes on: the next attempt's job is created in the next round.
            wrote = head.attempt
        raise RunChangedError(run)

    def _read(self, run: str) -> tuple[Run, Attempt]:
        head = self.table.get(run)
        if head is None:
            raise RunNotFoundError(run)
        attempt = self.table.attempt(run, head.attempt)
        if attempt is None:
            raise RunNotFoundError(run, attempt=head.attempt)
        return head, attempt

    def _act(self, head: Run, attempt: Attempt, *, wrote_it: bool) -> Run:
        if head.state.ended:
            return head
        if head.job_arn != attempt.job_arn:
            raise RunChangedError(head.run)  # Read before and after the same change.
        if head.stop_requested_at is not None or attempt.fallback_left_at is not None:
            return self._stop(head, attempt)
        return head if attempt.job_arn is not None else self._create(head, attempt, wrote_it=wrote_it)

    def _create(self, head: Run, attempt: Attempt, *, wrote_it: bool) -> Run:
        alone = attempt.create_begun_at is None if wrote_it else self._is_settled(attempt)
        if not wrote_it:
            begun = {"create_begun_at": self.now()}
            attempt = attempt.model_copy(update=begun)
            change = RunChange(run=head.model_copy(update={"updated_at": attempt.create_begun_at}), attempt=attempt)
            head = self.table.commit(change)
        jobs = self.backends.of(attempt)
        try:
            self.keep_bundle()
            job_arn = jobs.create(_recorded_parameters(attempt))
        except (TrainingJobNameTakenError, AwsRefusedError) as error:
            # A refusal too may be our own doing: a lost first call has the job, and with it the last of the quota.
            job = jobs.observe(attempt.job_name)
            if job is not None and is_ours(job, attempt):
                return self._created(head, attempt, job_arn=job.arn)
            if not alone:
                raise AwsBusyError(
                    operation=error.operation,
                    code=error.code,
                    reason=f"refused ({error.reason}), while another call for the run may still be accepted",
                ) from error
            return self._refused(head, attempt, error=error, taken_by=job)
        return self._created(head, attempt, job_arn=job_arn)

    def _is_settled(self, attempt: Attempt) -> bool:
        """Whether the function that set out to create the attempt's job is over: the job exists, or never will."""
        return self.now() - (attempt.create_begun_at or attempt.created_at) >= LAUNCH_SETTLES

    def _created(self, head: Run, attempt: Attempt, *, job_arn: str) -> Run:
        recorded = self.table.record_job_created(
            run=head.run, attempt=attempt.attempt, job_arn=job_arn, now=self.now(), read=(head, attempt)
        )
        if recorded.stop_requested_at is not None or recorded.state.ended or recorded.attempt != attempt.attempt:
            self._stop_job(attempt)
        if recorded.job_arn is None:
            raise RunChangedError(head.run)  # Another launcher recorded the job while the head was read.
        return recorded

    def _refused(self, head: Run, attempt: Attempt, *, error: AwsCallError, taken_by: JobView | None) -> Run:
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
        return self.table.commit(
            ended_without_job(
                run=head,
                request=request_of(head),
                attempt=attempt,
                earlier=self._earlier(head),
                reason=EndReason.QUOTA if error.code == _QUOTA_CODE else EndReason.LAUNCH_REFUSED,
                failure_reason=reason,
                deployment=self.deployment,
                now=self.now(),
            )
        )

    def _stop(self, head: Run, attempt: Attempt) -> Run:
        if attempt.job_arn is not None:
            self._stop_job(attempt)
            return head
        job = self.backends.of(attempt).observe(attempt.job_name)
        if job is not None and is_ours(job, attempt):
            return self._created(head, attempt, job_arn=job.arn)
        if not self._is_settled(attempt):
            return head  # A launcher may be about to create the job; it will see the stop and stop it.
        return self.table.commit(
            ended_without_job(
                run=head,
                request=request_of(head),
                attempt=attempt,
                earlier=self._earlier(head),
                reason=EndReason.STOPPED_BY_USER,
                deployment=self.deployment,
                now=self.now(),
            )
        )

    def _stop_job(self, attempt: Attempt) -> None:
        with contextlib.suppress(TrainingJobNotFoundError):  # Deleted by a person; the controller records the end.
            self.backends.of(attempt).stop(attempt.job_name)

    def _earlier(self, head: Run) -> list[Attempt]:
        return [attempt for attempt in self.table.attempts(head.run) if attempt.attempt < head.attempt]


def _recorded_parameters(attempt: Attempt) -> Mapping[str, Any]:
    if attempt.job_request is None:
        raise RunNotFoundError(attempt.run, attempt=attempt.attempt)
    return attempt.job_request


def is_ours(job: JobView, attempt: Attempt) -> bool:
    """Whether a job was created from the attempt's recorded request."""
    return is_same_launch(environment=job.environment, parameters=_recorded_parameters(attempt))


def refused_by_its_backend(run: Run) -> Problem:
    """Says that SageMaker or EC2 refused the job."""
    if run.backend == "ec2":
        return Problem(
            field="(EC2)",
            found=f"fleet of {run.job_name}",
            problem=f"was refused: {run.failure_reason}",
            fix="Correct the document or the account (quotas, service-linked roles), then launch with a new token.",
        )
    return Problem(
        field="(SageMaker)",
        found=f"training job {run.job_name}",
        problem=f"was refused: {run.failure_reason}",
        fix="Correct the document or the account (quotas, permissions), then launch with a new token.",
    )
