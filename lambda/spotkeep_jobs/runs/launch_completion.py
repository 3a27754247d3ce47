"""The completion of a launch. The job of a recorded run is created, or stopped if a user asked for that.

Any function can complete a launch. A run that waits for the account's quota is completed in its turn.

A quota of SageMaker counts instances of one type, for spot and on demand apart. While others use it up, SageMaker
refuses CreateTrainingJob. SageMaker has no queue, so the run waits in the table. The controller asks again when a job
ends, and with each of its passes. It asks first for the run that waits longest. When SageMaker refuses it, the
controller does not ask for the others of the same quota. So a thousand waiting runs cost no more calls than one.

Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateTrainingJob.html (ResourceLimitExceeded)
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from spotkeep_jobs.backends.backend import JobView
from spotkeep_jobs.backends.sagemaker.training_job import is_same_launch, with_less_wait
from spotkeep_jobs.document.capacity import MAX_FALLBACKS, fallbacks_of, longest_wait_without_a_job
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.errors import (
    AwsBusyError,
    AwsCallError,
    AwsRefusedError,
    JobNotFoundError,
    Problem,
    RequestRefusedError,
    RunChangedError,
    RunNotRecordedError,
    SpotkeepJobsError,
    TrainingJobNameTakenError,
    UnreadableRecordError,
    in_words,
)
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.record import Attempt, QuotaWait, Run, RunChange, TimelineEntry
from spotkeep_jobs.record.states import EndReason, RunState, TimelineKind
from spotkeep_jobs.record.sweep_store import SweepChangedError
from spotkeep_jobs.record.table_client import RecordRefusedError, Unreadable, until_written
from spotkeep_jobs.runs.ending import ended_without_job, request_of
from spotkeep_jobs.runs.rules import LAUNCH_SETTLES, RunFacts

if TYPE_CHECKING:
    from spotkeep_jobs.deployment import Deployment
    from spotkeep_jobs.settings import DeploymentSettings

TRIED_AGAIN_AFTER: Final = timedelta(minutes=4)
"""The time for which a refusal counts as SageMaker's answer. It is a little less than the time between two passes."""
_FILLED: Final = re.compile(r"is (?P<limit>\d+) Instances.*request delta of (?P<asked>\d+) Instances", re.DOTALL)


def wait_for_quota(
    run: Run, *, request: JobRequest | None, attempt: Attempt, reason: str, now: datetime
) -> RunChange | None:
    """Let a run wait after SageMaker has just refused its job for the account's quota.

    Args:
        run: The run item.
        request: Its request, or None if it cannot be read.
        attempt: Its attempt.
        reason: SageMaker's message.
        now: The time.

    Returns:
        The change, or None if the run does not wait. It does not wait if another fallback follows, if the whole quota
        is smaller than the job, or if its longest wait is over.
    """
    if request is None or attempt.fallback + 1 < len(fallbacks_of(request)) or _never_fits(reason):
        return None
    begins = run.quota_wait is None
    since = now if run.quota_wait is None else run.quota_wait.since
    if now >= _ends_at(run, request=request, since=since):
        return None
    entry = TimelineEntry(
        run=run.run,
        attempt=attempt.attempt,
        at=now,
        kind=TimelineKind.QUOTA_WAIT,
        text=f"Waits for room in the account's quota: {reason}",
    )
    return RunChange(
        run=with_changes(
            run,
            state=RunState.WAITING,
            quota_wait=QuotaWait(since=since, refused_at=now, reason=reason),
            updated_at=now,
        ),
        # SageMaker's refusal is its last word: no function is creating the job any more.
        attempt=with_changes(attempt, state=RunState.WAITING, create_begun_at=None),
        timeline=(entry,) if begins else (),
    )


def is_due(run: Run, *, now: datetime) -> bool:
    """Return True if a run's job may be asked for now. That always holds for a run that waits for no quota."""
    return run.quota_wait is None or now - run.quota_wait.refused_at >= TRIED_AGAIN_AFTER


def request_after_wait(run: Run, *, parameters: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return a CreateTrainingJob request with a longest wait for capacity reduced by the wait for quota.

    Args:
        run: The run item.
        parameters: The request as it was sent last.
        now: The time.
    """
    if run.quota_wait is None:
        return dict(parameters)
    return with_less_wait(parameters, waited=now - run.quota_wait.refused_at)


def by_quota(runs: Iterable[Run]) -> Sequence[Sequence[Run]]:
    """Put runs that wait for quota into the order in which their jobs are asked for.

    Args:
        runs: Runs that wait for quota, in any order.

    Returns:
        Those of each quota, by capacity and instance type, the one that waits longest first.
    """
    quotas: dict[tuple[str, str], list[tuple[datetime, str, Run]]] = defaultdict(list)
    for run in runs:
        if run.quota_wait is not None:
            quotas[run.place.capacity, run.place.instance_type].append((run.quota_wait.since, run.run, run))
    return [[run for _, _, run in sorted(waiting, key=lambda each: each[:2])] for waiting in quotas.values()]


def has_waited_enough(run: Run, *, request: JobRequest | None, now: datetime) -> bool:
    """Return True if a run has waited for quota for as long as it may. The next refusal ends it.

    Args:
        run: The run item.
        request: Its request, or None if it cannot be read and so bounds no wait.
        now: The time.
    """
    if run.quota_wait is None:
        return False
    return request is None or now >= _ends_at(run, request=request, since=run.quota_wait.since)


def _ends_at(run: Run, *, request: JobRequest, since: datetime) -> datetime:
    wait = longest_wait_without_a_job(request)
    return since + wait if run.deadline_at is None else min(since + wait, run.deadline_at)


def _never_fits(reason: str) -> bool:
    """Return True if the quota that SageMaker names is smaller than the job, even with nothing else running."""
    named = _FILLED.search(reason)
    return named is not None and int(named["limit"]) < int(named["asked"])


_QUOTA_CODE: Final = "ResourceLimitExceeded"


@dataclass(frozen=True)
class LaunchCompletion:
    """Creates the job of a recorded run, or stops it if a user asked for that.

    Any function may call it at any time, any number of times. A launch calls it for a token used before. The controller
    calls it for every run in LAUNCHING or STOPPING.
    """

    deployment: Deployment[DeploymentSettings]

    def complete(
        self,
        run: str,
        *,
        read: tuple[Run, Attempt] | None = None,
        wrote_attempt: bool = False,
        room_is_free: bool = False,
    ) -> Run:
        """Finish the work that a launcher began.

        Args:
            run: The run's id.
            read: The run item and its current attempt, as the caller has just read or written them, or None to read
                them.
            wrote_attempt: True if the caller has just recorded this attempt, and so may create its job.
            room_is_free: True if a job has just ended. SageMaker is then asked at once for a run that waits for quota.

        Returns:
            The run item afterwards. If SageMaker refuses the job for good, the run has ended with LAUNCH_REFUSED. If
            SageMaker refuses it for the account's quota, the run waits (`quota_wait`).

        Raises:
            RunNotRecordedError: There is no such run.
            RunChangedError: The run kept changing under every try.
            DeploymentIsBeingDeletedError: The job is not created, because the deployment is being deleted.
            AwsCallError: SageMaker gave no certain answer, or may not be asked. Call again later.
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
        """Record that a run is to end, and end its job. The job is ended even if DynamoDB refuses the record.

        Raises:
            RunNotRecordedError: No such run.
            RunChangedError: The run kept changing under every try.
            RecordRefusedError: It is not recorded. Its job was asked to end all the same.
            AwsCallError: AWS did not answer for certain, or may not be asked. Call again later.
        """
        try:
            read = self.deployment.table.runs.request_stop(run=run, now=self.deployment.now())
        except RecordRefusedError:
            run_item, attempt = self._read(run)
            if not run_item.state.ended:
                self.end_job(attempt)
            raise
        return self.complete(run, read=read)

    def end_job(self, attempt: Attempt) -> None:
        """End the job of an attempt, if there is one, without a record that says so.

        Args:
            attempt: The attempt as it was read.
        """
        if attempt.job_id is None:
            job = self.deployment.backend_of(attempt).observe(attempt.job_name)
            if job is None or not is_ours(job, attempt):
                return
        self._stop_job(attempt)

    def _read(self, run: str) -> tuple[Run, Attempt]:
        run_item = self.deployment.table.runs.get(run)
        if run_item is None:
            raise RunNotRecordedError(run)
        attempt = self.deployment.table.runs.attempt(run, run_item.attempt)
        if attempt is None:
            raise RunNotRecordedError(run, attempt=run_item.attempt)
        return run_item, attempt

    def _act(self, run: Run, attempt: Attempt, *, wrote_it: bool, room_is_free: bool) -> tuple[Run, Attempt | None]:
        """Take the run's next step. Return the run item, and the attempt that follows a refused one."""
        if run.state.ended:
            return run, None
        if run.job_id != attempt.job_id:
            raise RunChangedError(run.run)  # Read before and after the same change.
        if run.asked_to_end is not None or attempt.asked_to_end is not None:
            return self._stop(run, attempt), None
        if attempt.job_id is not None:
            return run, None
        if attempt.retry is not None and self.deployment.now() < attempt.retry.at:
            return run, None
        if run.quota_wait is not None and not self._is_settled(run, attempt):
            return run, None  # Another function asks for it right now.
        if not room_is_free and not is_due(run, now=self.deployment.now()):
            return run, None
        return self._create(run, attempt, wrote_it=wrote_it)

    def _create(self, run: Run, attempt: Attempt, *, wrote_it: bool) -> tuple[Run, Attempt | None]:
        alone = attempt.create_begun_at is None if wrote_it else self._is_settled(run, attempt)
        if not wrote_it:
            now = self.deployment.now()
            parameters = request_after_wait(run, parameters=_recorded_parameters(attempt), now=now)
            attempt = with_changes(attempt, create_begun_at=now, job_request=parameters)
            begun = RunChange(run=with_changes(run, updated_at=now), attempt=attempt)
            run = self.deployment.table.runs.commit(begun, begins_job=True)
        jobs = self.deployment.backend_of(attempt)
        try:
            self.deployment.training_bundle.keep()
            job_id = jobs.create(_recorded_parameters(attempt))
        except (TrainingJobNameTakenError, AwsRefusedError) as error:
            # A refusal too may be our own doing: a lost first call has the job, and with it the last of the quota.
            job = jobs.observe(attempt.job_name)
            if job is not None and is_ours(job, attempt):
                return self._created(run, attempt, job_id=job.job_id), None
            if not alone:
                raise AwsBusyError(
                    operation=error.operation,
                    code=error.code,
                    reason=f"refused ({error.reason}), while another call for the run may still be accepted",
                ) from error
            return self._refused(run, attempt, error=error, taken_by=job)
        return self._created(run, attempt, job_id=job_id), None

    def _is_settled(self, run: Run, attempt: Attempt) -> bool:
        """Return True if the function that began to create the attempt's job is over.

        The job then exists, or never will.

        A function that let the run wait for quota was over when it wrote that. No other function begins before the
        wait's time.
        """
        if run.quota_wait is not None and attempt.create_begun_at is None:
            return True
        if attempt.retry is not None and self.deployment.now() < attempt.retry.at:
            return True
        return self.deployment.now() - (attempt.create_begun_at or attempt.created_at) >= LAUNCH_SETTLES

    def _created(self, run: Run, attempt: Attempt, *, job_id: str) -> Run:
        recorded = self.deployment.table.runs.record_job_created(
            run=run.run, attempt=attempt.attempt, job_id=job_id, now=self.deployment.now(), read=(run, attempt)
        )
        if recorded.asked_to_end is not None or recorded.state.ended or recorded.attempt != attempt.attempt:
            self._stop_job(attempt)
        if recorded.job_id is None:
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
            waits = wait_for_quota(
                run, request=request_of(run), attempt=attempt, reason=reason, now=self.deployment.now()
            )
            if waits is not None:
                return self.deployment.table.runs.commit(waits), None
        why = EndReason.QUOTA if of_quota else EndReason.LAUNCH_REFUSED
        change = ended_without_job(self._facts(run, attempt), reason=why, failure_reason=reason)
        return self.deployment.table.runs.commit(change), change.next_attempt

    def _stop(self, run: Run, attempt: Attempt) -> Run:
        if attempt.job_id is not None:
            self._stop_job(attempt)
            return run
        job = self.deployment.backend_of(attempt).observe(attempt.job_name)
        if job is not None and is_ours(job, attempt):
            return self._created(run, attempt, job_id=job.job_id)
        if not self._is_settled(run, attempt):
            return run  # A launcher may be about to create the job; it will see the stop and stop it.
        return self.deployment.table.runs.commit(
            ended_without_job(self._facts(run, attempt), reason=EndReason.STOPPED_BY_USER)
        )

    def _stop_job(self, attempt: Attempt) -> None:
        with contextlib.suppress(JobNotFoundError):  # Deleted by a person; the controller records the end.
            self.deployment.backend_of(attempt).stop(attempt.job_name)

    def _facts(self, run: Run, attempt: Attempt) -> RunFacts:
        return RunFacts(
            run=run,
            request=request_of(run),
            attempt=attempt,
            earlier=[each for each in self.deployment.table.runs.attempts(run.run) if each.attempt < run.attempt],
            deployment=self.deployment.policy,
            now=self.deployment.now(),
        )


def _recorded_parameters(attempt: Attempt) -> Mapping[str, Any]:
    if attempt.job_request is None:
        raise RunNotRecordedError(attempt.run, attempt=attempt.attempt)
    return attempt.job_request


def is_ours(job: JobView, attempt: Attempt) -> bool:
    """Return whether a job was created from the attempt's recorded request."""
    return is_same_launch(environment=job.environment, parameters=_recorded_parameters(attempt))


def refused_by_its_backend(run: Run) -> Problem:
    """Return the problem that SageMaker, AWS Batch or EC2 refused the job."""
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


REFUSED: Final = frozenset({EndReason.LAUNCH_REFUSED, EndReason.QUOTA})
"""The ending of a run after AWS refused to create its job."""


class LaunchUnfinishedError(SpotkeepJobsError):
    """AWS gave no certain answer. A second call with the same token is safe."""

    def __init__(self, doing: str, *, cause: Exception, then: str) -> None:
        """Say how far the action came, and how it goes on.

        Args:
            doing: The action and its subject, such as `launching run 'a'`.
            cause: The error that ended it.
            then: The state of the records, and the next step of the caller.
        """
        super().__init__(f"{doing} is not finished: {cause}. {then}")


CALL_AGAIN: Final = "Call again"


def not_recorded(token: str) -> str:
    """Return the state and the next step of a launch that ended before its first record.

    An earlier call with the token may have recorded the run all the same.
    """
    return f"This call launched nothing and recorded nothing. Call again with the same document and token {token}"


def is_recorded(what: str, *, token: str, completes: str) -> str:
    """Return the state and the next step of a launch that ended after its first record.

    Args:
        what: The kind of the recorded subject, such as `run`.
        token: The launch's token.
        completes: The controller's next act on it.
    """
    return (
        f"The {what} is recorded, and nothing runs twice. Call again with the same document and token {token}, or wait "
        f"for the controller, which {completes} within minutes"
    )


@dataclass(frozen=True, kw_only=True)
class Launched:
    """A run that has its job, or several that were launched as one.

    Attributes:
        run: The run item, or the first one of several.
        others: The other run items, in the order of their numbers.
        replayed: True if an earlier call launched the run, and this one launched nothing.
        warnings: Settings that are allowed but probably not meant.
    """

    run: Run
    others: tuple[Run, ...] = ()
    replayed: bool
    warnings: tuple[str, ...] = ()

    @property
    def runs(self) -> tuple[Run, ...]:
        """All of them."""
        return (self.run, *self.others)


@contextlib.contextmanager
def unfinished_without_an_answer(doing: str, *, then: str) -> Iterator[None]:
    """Raise LaunchUnfinishedError if AWS gave no certain answer, or if the record kept changing under every try.

    Args:
        doing: The action and its subject, such as `launching run 'a'`.
        then: The state of the records, and the caller's next step.
    """
    try:
        yield
    except (AwsCallError, RunChangedError, SweepChangedError) as error:
        raise LaunchUnfinishedError(doing, cause=error, then=then) from error


def refuse_if_its_backend_did(run: Run) -> Run:
    """Return a run, unless AWS refused its job for good.

    Raises:
        RequestRefusedError: It says why AWS refused the job.
    """
    if run.end_reason in REFUSED:
        raise RequestRefusedError([refused_by_its_backend(run)])
    return run


def runs_by_quota(
    deployment: Deployment[DeploymentSettings], *, unreadable: Unreadable | None = None
) -> Sequence[Sequence[Run]]:
    """Return the runs that wait for quota, grouped by quota, with the longest wait first in each group.

    Args:
        deployment: The deployment.
        unreadable: Receives each run that cannot be read. None to raise at the first.
    """
    return by_quota(deployment.table.runs.waiting_for_quota(unreadable=unreadable))


def advance_quota(
    deployment: Deployment[DeploymentSettings],
    waiting: Sequence[Run],
    *,
    unreadable: Unreadable,
    room_is_free: bool = False,
) -> Iterator[tuple[Run, Run]]:
    """Create the jobs that a quota has room for, and end the runs that have waited for as long as they may.

    A run that cannot be read does not stop the runs behind it.

    Args:
        deployment: The deployment.
        waiting: The runs that wait for one quota, in their order.
        unreadable: Receives each run that cannot be read.
        room_is_free: True if a job has just ended. SageMaker is then asked even if it refused a moment ago.

    Yields:
        Each run that SageMaker was asked for, before and after.

    Raises:
        AwsCallError: SageMaker gave no certain answer.
        RunChangedError: A run kept changing under every try.
    """
    may_have_room = True
    for run in waiting:
        if may_have_room or has_waited_enough(run, request=request_of(run), now=deployment.now()):
            try:
                after = LaunchCompletion(deployment).complete(run.run, room_is_free=room_is_free)
            except UnreadableRecordError as error:
                unreadable[error.what] = in_words(error)
                continue
            yield run, after
            may_have_room = may_have_room and after.quota_wait is None
