"""One job of a queue as the controller sees any job. It merges a service job and its training jobs. Pure.

AWS Batch creates training jobs one after another for a service job. When Batch preempts one, SageMaker stops it. Batch
creates the next one when it is the service job's turn again. The same follows a training job that failed by an error of
SageMaker's own. In the view these are one job that was interrupted. Three rules keep the view true when an answer is
missing, late or out of order:

- Its phases only grow. A training job counts from its first instances on. SageMaker deletes one that it had no capacity
  for, and that one leaves no trace. The stop of a training job becomes a phase of the view only when its outcome is
  known. That is a preemption, or the end.
- Phases of long ago become sums, because AWS Batch may preempt a job any number of times. The newest training jobs are
  listed. Those before them are exact sums, so the bill is the same.
- It has ended only when the service job is over and its last training job as well. Batch may say FAILED while the
  container still saves.

Source: https://docs.aws.amazon.com/batch/latest/userguide/service-job-status.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from spotkeep_jobs.backends.backend import ON_INSTANCES_PHASES, JobPhase, JobView, PhaseChange, with_phases
from spotkeep_jobs.backends.batch.service_job import ServiceJob
from spotkeep_jobs.backends.sagemaker.training_job import ERROR_OF_SAGEMAKER, is_internal_server_error
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.record import EarlierTrainingJobs, PhaseSpan, QueuedTrainingJob, TrainingJobs
from spotkeep_jobs.record.states import EndReason

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T", int, float)
TRIED_AGAIN: Final = f"{ERROR_OF_SAGEMAKER} at its next turn in the queue"
PREEMPTED: Final = "Preempted: its instances went to another job, and it waits in the queue for its next turn"
KNOWN_AFTER: Final = timedelta(minutes=10)
"""The time after the service job's end from which a training job that SageMaker does not know is gone."""
KEPT_TRAINING_JOBS: Final = 50
"""The number of the newest training jobs that stay listed."""
MOST_TRAINING_JOBS: Final = 100
"""The most training jobs that are ever listed, even where SageMaker does not say that the oldest is over."""
KEPT_PHASES: Final = 4 * KEPT_TRAINING_JOBS
"""The number of phases of all of them that stay listed. Managed spot may interrupt a training job, too."""
KEPT_NAMES: Final = 500
"""The number of names that are kept of the earlier ones. A log with more parts is read in part, and says so."""
_WAITS: Final = "Waits in the queue for its turn"
_BOUNDARIES: Final = frozenset({JobPhase.STOPPING, JobPhase.ENDED})


def training_job_of(view: JobView) -> QueuedTrainingJob | None:
    """Return the record of a training job. None for one that has had no instances.

    Args:
        view: SageMaker's description of it.
    """
    first = next((at for at, each in enumerate(view.transitions) if each.phase in ON_INSTANCES_PHASES), None)
    if first is None:
        return None
    end = _boundary(view)
    phases = view.transitions[first:end]
    left_at = view.transitions[end].started_at if end is not None else view.training_ended_at if view.ended else None
    return QueuedTrainingJob(
        name=view.name,
        over=view.ended,
        phases=tuple(
            PhaseSpan(phase=each.phase, started_at=each.started_at, ended_at=each.ended_at, text=each.text)
            for each in phases
        ),
        left_at=left_at,
        failed_in_sagemaker=is_internal_server_error(view.failure_reason),
        training_seconds=view.training_seconds,
        billable_seconds=view.billable_seconds,
    )


def to_describe(service_job: ServiceJob, known: TrainingJobs) -> tuple[str, ...]:
    """Return the names of the training jobs to describe. These are new, not over, or the newest.

    Args:
        service_job: AWS Batch's description of the service job.
        known: The training jobs that are recorded.
    """
    over = {*known.earlier.names, *(job.name for job in known.listed if job.over)}
    names = tuple(dict.fromkeys((*(job.name for job in known.listed), *service_job.training_jobs)))
    newest = service_job.training_jobs[-1:] or names[-1:]
    return tuple(name for name in names if name not in over or name in newest)


def as_job_view(
    service_job: ServiceJob,
    *,
    known: TrainingJobs,
    seen: Mapping[str, JobView | None],
    instance_count: int,
    now: datetime,
) -> JobView:
    """Merge the descriptions of an attempt by AWS Batch and SageMaker.

    Args:
        service_job: AWS Batch's description of the service job.
        known: The training jobs that are recorded.
        seen: SageMaker's descriptions of the training jobs to describe. None for one that it does not know.
        instance_count: The number of instances of each training job. SageMaker may not know the newest one.
        now: The time.
    """
    jobs, earlier = _folded(service_job, _merged(service_job, known, seen), known.earlier)
    newest_name = service_job.training_jobs[-1] if service_job.training_jobs else (jobs[-1].name if jobs else None)
    newest = None if newest_name is None else seen.get(newest_name)
    ended = service_job.over and all(_is_over(view, service_job, now=now) for view in seen.values())
    # The end of a training job that was preempted is not the attempt's.
    was_preempted = any(job.preempted and job.name == newest_name for job in jobs)
    last = None if was_preempted or not (service_job.over or service_job.terminated) else newest
    said = [view for view in seen.values() if view is not None]
    return JobView(
        name=service_job.name,
        job_id=service_job.arn,
        phase=_phase(service_job, newest, jobs=jobs, ended=ended),
        end_reason=_end_reason(service_job, last, was_preempted=was_preempted) if ended else None,
        created_at=service_job.created_at,
        last_modified_at=max((view.last_modified_at for view in said if view.last_modified_at), default=None),
        training_started_at=earlier.phases.first_on_instances_at or (jobs[0].phases[0].started_at if jobs else None),
        training_ended_at=_ended_at(service_job, last) if ended else None,
        training_seconds=_sum([earlier.training_seconds, *(job.training_seconds for job in jobs)]),
        billable_seconds=_sum([earlier.billable_seconds, *(job.billable_seconds for job in jobs)]),
        failure_reason=_failure_reason(service_job, last) if ended else None,
        instance_type=newest.instance_type if newest is not None else None,
        instance_count=instance_count,
        model_uri=newest.model_uri if newest is not None else None,
        transitions=tuple(_transitions(service_job, jobs, earlier=earlier, last=last)),
        earlier_phases=earlier.phases,
        environment=service_job.environment,
        waits_because=service_job.status_reason if service_job.waits else None,
        never_fits=service_job.never_fits,
        session_targets=newest.session_targets if newest is not None else (),
        remote_debugging_off_in=newest.remote_debugging_off_in if newest is not None else None,
        training_jobs=TrainingJobs(listed=jobs, earlier=earlier),
    )


def _is_over(view: JobView | None, service_job: ServiceJob, *, now: datetime) -> bool:
    """Return True if a training job has ended. SageMaker may show it only some time after the service job's end."""
    if view is not None:
        return view.ended
    return service_job.stopped_at is None or now - service_job.stopped_at >= KNOWN_AFTER


def _boundary(view: JobView) -> int | None:
    """Return the position of the phase in which a training job was asked to stop, or ended."""
    return next((at for at, each in enumerate(view.transitions) if each.phase in _BOUNDARIES), None)


def _merged(
    service_job: ServiceJob, known: TrainingJobs, seen: Mapping[str, JobView | None]
) -> tuple[QueuedTrainingJob, ...]:
    """Return the training jobs that had instances, as they are known now, without those that were added up."""
    recorded = {job.name: job for job in known.listed}
    jobs: list[QueuedTrainingJob] = []
    for name in dict.fromkeys((*recorded, *service_job.training_jobs)):
        view, before = seen.get(name), recorded.get(name)
        if name in known.earlier.names:
            continue
        now = None if view is None else training_job_of(view)
        if now is not None and before is not None and before.earlier_phases:
            now = _without_phases(now, before.earlier_phases)
        # Not described again, or deleted by a person, or an answer older than the record: what was seen last stays.
        if now is None or (before is not None and len(now.phases) < len(before.phases)):
            now = before
        if now is not None:
            jobs.append(with_changes(now, preempted=before is not None and before.preempted))
    return tuple(
        with_changes(job, preempted=True)
        if following is not None
        or (
            job.left_at is not None
            and (
                service_job.waits
                or job.name != next(iter(service_job.training_jobs[-1:]), job.name)
                or job.name in service_job.preempted
                # It would have been tried again.
                or (job.failed_in_sagemaker and service_job.terminated)
            )
        )
        else job
        for job, following in zip(jobs, [*jobs[1:], None], strict=False)
    )


def _without_phases(job: QueuedTrainingJob, count: int) -> QueuedTrainingJob:
    return with_changes(job, phases=job.phases[count:], earlier_phases=job.earlier_phases + count)


def _folded(
    service_job: ServiceJob, jobs: tuple[QueuedTrainingJob, ...], earlier: EarlierTrainingJobs
) -> tuple[tuple[QueuedTrainingJob, ...], EarlierTrainingJobs]:
    """Return the training jobs that stay listed, and the sums of the others and of some of their phases."""
    spare = 0
    while len(jobs) - spare > KEPT_TRAINING_JOBS and (jobs[spare].over or len(jobs) - spare > MOST_TRAINING_JOBS):
        spare += 1
    gone, kept = jobs[:spare], jobs[spare:]
    phases: list[PhaseChange] = []
    if not earlier.phases.count and jobs:
        phases.append(_first_wait(service_job, jobs))
    for job, following in zip(gone, jobs[1:], strict=False):
        phases += _phases_of(job, until=following.phases[0].started_at)
    # Of the oldest that stays, its newest phase says whether it had instances when it left.
    many = min(sum(len(job.phases) for job in kept) - KEPT_PHASES, len(kept[0].phases) - 1 if kept else 0)
    if many > 0:
        phases += [_change(span) for span in kept[0].phases[:many]]
        kept = (_without_phases(kept[0], many), *kept[1:])
    if not gone and many <= 0:
        return jobs, earlier
    return kept, EarlierTrainingJobs(
        names=(*earlier.names, *(job.name for job in gone))[-KEPT_NAMES:],
        left_at=_left_at(gone[-1]) if gone else earlier.left_at,
        training_seconds=_sum([earlier.training_seconds, *(job.training_seconds for job in gone)]),
        billable_seconds=_sum([earlier.billable_seconds, *(job.billable_seconds for job in gone)]),
        phases=with_phases(earlier.phases, phases, until=kept[0].phases[0].started_at),
    )


def _first_wait(service_job: ServiceJob, jobs: Sequence[QueuedTrainingJob]) -> PhaseChange:
    first = jobs[0].phases[0].started_at if jobs else None
    return PhaseChange(phase=JobPhase.WAITING, started_at=service_job.created_at, ended_at=first, text=_WAITS)


def _phases_of(job: QueuedTrainingJob, *, until: datetime | None) -> Iterator[PhaseChange]:
    """Yield the phases of a training job, and the preemption or the error of SageMaker's own that ended it.

    Args:
        job: The training job.
        until: The end of that job. None while it goes on.
    """
    yield from (_change(span) for span in job.phases)
    if job.preempted and _had_instances_last(job):
        error = job.failed_in_sagemaker
        yield PhaseChange(
            phase=JobPhase.INTERRUPTED,
            started_at=_left_at(job),
            ended_at=until,
            text=TRIED_AGAIN if error else PREEMPTED,
            error_of_aws=error,
        )


def _phase(
    service_job: ServiceJob,
    newest: JobView | None,
    *,
    jobs: Sequence[QueuedTrainingJob],
    ended: bool,
) -> JobPhase:
    if ended:
        return JobPhase.ENDED
    if service_job.terminated or service_job.over:
        return JobPhase.STOPPING
    waiting = JobPhase.INTERRUPTED if jobs else JobPhase.WAITING
    has_left = not jobs or jobs[-1].preempted
    if service_job.waits or newest is None:
        # Back in the queue, and SageMaker does not say yet that the training job was stopped: not known which is true.
        return waiting if has_left else JobPhase.UNKNOWN
    if newest.phase is JobPhase.WAITING:
        return waiting
    # It is being stopped: by a preemption, or by its user. AWS Batch says which when it is over.
    return JobPhase.UNKNOWN if newest.phase in _BOUNDARIES else newest.phase


def _transitions(
    service_job: ServiceJob,
    jobs: Sequence[QueuedTrainingJob],
    *,
    earlier: EarlierTrainingJobs,
    last: JobView | None,
) -> Iterator[PhaseChange]:
    """Yield the phases of all training jobs, with the preemptions between them, and the end of the last one.

    Args:
        service_job: AWS Batch's description of the service job.
        jobs: The training jobs that had instances, and are listed.
        earlier: The sums over those that are not listed any more.
        last: SageMaker's description of the training job whose end is the attempt's. None where there is none yet.
    """
    if not earlier.phases.count:
        yield _first_wait(service_job, jobs)
    for job, following in zip(jobs, [*jobs[1:], None], strict=False):
        yield from _phases_of(
            job, until=service_job.stopped_at if following is None else following.phases[0].started_at
        )
    if last is not None and (end := _boundary(last)) is not None:
        yield from last.transitions[end:]


def _had_instances_last(job: QueuedTrainingJob) -> bool:
    """Return True if it had instances when it was stopped. Spot may have interrupted it before."""
    for span in reversed(job.phases):
        if span.phase == JobPhase.INTERRUPTED:
            return False
        if span.phase in ON_INSTANCES_PHASES:
            return True
    return False


def _left_at(job: QueuedTrainingJob) -> datetime:
    last = job.phases[-1]
    return job.left_at or last.ended_at or last.started_at


def _change(span: PhaseSpan) -> PhaseChange:
    return PhaseChange(phase=JobPhase(span.phase), started_at=span.started_at, ended_at=span.ended_at, text=span.text)


def _end_reason(service_job: ServiceJob, last: JobView | None, *, was_preempted: bool) -> EndReason:
    if service_job.status == "SUCCEEDED":
        return EndReason.COMPLETED
    if (front := service_job.ended_at_the_front) is not None:
        return EndReason.NEVER_FITS if front.startswith("MISCONFIGURATION:") else EndReason.MAX_WAIT_EXCEEDED
    if last is not None and last.end_reason is not None:
        return last.end_reason
    if service_job.terminated:
        return EndReason.STOPPED_BY_USER
    # Batch does not judge the payload when it is submitted: SageMaker refuses it when it is its turn.
    of_aws = was_preempted or is_internal_server_error(service_job.status_reason)
    return EndReason.PLATFORM_ERROR if of_aws else EndReason.LAUNCH_REFUSED


def _failure_reason(service_job: ServiceJob, last: JobView | None) -> str | None:
    if service_job.ended_at_the_front is not None:
        return service_job.status_reason
    if last is not None:
        return last.failure_reason
    return service_job.status_reason if service_job.status == "FAILED" and not service_job.terminated else None


def _ended_at(service_job: ServiceJob, last: JobView | None) -> datetime | None:
    of_training = None if last is None else last.training_ended_at
    return of_training or service_job.stopped_at


def _sum(seconds: Sequence[T | None]) -> T | None:
    known = [each for each in seconds if each is not None]
    return sum(known[1:], start=known[0]) if known else None
