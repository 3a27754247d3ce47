"""The end of an attempt, the reason for it, and the consequence for the run. Pure.

Either another job follows on one of the run's fallbacks, or the run ends with the attempt. Both are one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from pydantic import ValidationError

from spotkeep_jobs.backends.backend import end_of
from spotkeep_jobs.backends.ec2.launch import following_launch, job_request_of, launch_of
from spotkeep_jobs.backends.sagemaker.training_job import (
    LAUNCH_VARIABLE,
    follow_up_request,
    following_launch_id,
    is_host_lost,
    is_internal_server_error,
    job_name_for,
    marks_of,
    with_less_wait,
)
from spotkeep_jobs.cost.run_cost import bill, usage_of
from spotkeep_jobs.document.capacity import (
    NextJob,
    affordable_run,
    affordable_seconds,
    fallbacks_of,
    fleet_seconds,
    longest_wait_without_a_job,
    on_demand_below,
    shortest_job_seconds,
)
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.spending import another_job_problems
from spotkeep_jobs.document.times import format_duration
from spotkeep_jobs.notifications.texts.composition import Moment
from spotkeep_jobs.notifications.texts.endings import DOUBTFUL_END, ending_notification, words_of
from spotkeep_jobs.notifications.texts.on_the_way import next_fallback_notification
from spotkeep_jobs.notifications.texts.pools import pool_over_notification
from spotkeep_jobs.progress.job_log import JobLog
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.record import (
    Attempt,
    Cost,
    Ending,
    Notification,
    Notified,
    Place,
    Pool,
    Retry,
    Run,
    RunChange,
    TimelineEntry,
)
from spotkeep_jobs.record.states import EndReason, NotificationKind, PoolState, RunState, TimelineKind
from spotkeep_jobs.runs.rules import JobFacts, RunFacts, max_cost_near

_FIRST_PAUSE_SECONDS: Final = 300
_LONGEST_PAUSE_SECONDS: Final = 3600
"""The pause before SageMaker is asked again doubles each time, up to this."""
_MOST_DOUBLINGS: Final = 10
_NO_CAPACITY: Final = frozenset({EndReason.CAPACITY, EndReason.MAX_WAIT_EXCEEDED, EndReason.QUOTA})


@dataclass(frozen=True, kw_only=True)
class NoMoreJobs:
    """The run ends here.

    Attributes:
        because: A sentence about the bound that stopped a next job, or None if no job could have followed.
        max_cost_is_spent: True if that bound was max_cost.
    """

    because: str | None = None
    max_cost_is_spent: bool = False


def next_job(
    *,
    request: JobRequest,
    attempts: Sequence[Attempt],
    cost: Cost | None,
    prices: Mapping[str, float],
    deadline_at: datetime | None = None,
) -> NextJob | NoMoreJobs:
    """Return the step after the run's last job, which has ended.

    The run may train until its deadline. Repeated work must not make the run end earlier.

    Args:
        request: The validated request.
        attempts: All attempts of the run, first to last, of which the last one has its end and its usage.
        cost: The cost of the attempts, or None if it is not known.
        prices: On-demand US dollars per instance and hour, by instance type.
        deadline_at: The time of the run's deadline, if it has one.
    """
    last = attempts[-1]
    fallbacks = fallbacks_of(request)
    position = min(last.fallback, len(fallbacks) - 1)
    trained = _trained_seconds(attempts)
    allowed = request.max_total_run or (request.max_run if deadline_at is None else None)
    trained_of_allowed = f"trained {format_duration(int(trained))}" + (
        "" if allowed is None else f" of {format_duration(allowed)}"
    )
    on_demand = on_demand_below(fallbacks, position)
    pause, no_capacity_since = 0, None
    match last.end_reason:
        case EndReason.DEADLINE if on_demand is not None:
            asked = last.asked_to_end
            position, because = on_demand, "the deadline asks for it" if asked is None else asked.text
        case EndReason.CAPACITY if position + 1 == len(fallbacks):
            again = _asked_again(attempts, request=request, deadline_at=deadline_at)
            if again is None:
                return NoMoreJobs(because=f"SageMaker had no capacity for {fallbacks[position]} in time")
            pause, no_capacity_since = again
            because = f"there was no capacity for {fallbacks[position]}, and SageMaker is asked again"
        case reason if reason in _NO_CAPACITY and len(fallbacks) > 1:
            if position + 1 == len(fallbacks):
                if request.backend == "ec2":
                    return NoMoreJobs(because=f"{fallbacks[position]} is the last that it looks for")
                return NoMoreJobs(because=f"the ladder has no fallback below {fallbacks[position]}")
            because = f"there was {_LACK_IN_WORDS[reason]} for {fallbacks[position]}"
            position += 1
        case EndReason.SCRIPT_FAILED if request.script_retries:
            failed = sum(attempt.end_reason is EndReason.SCRIPT_FAILED for attempt in attempts)
            if failed > request.script_retries:
                return NoMoreJobs(because=f"the script has failed {failed} times (script_retries)")
            because = f"the script failed and may be started again ({failed} of {request.script_retries})"
        case EndReason.PLATFORM_ERROR if is_internal_server_error(last.failure_reason):
            pause = _pause_after_errors_of_sagemaker(attempts)
            because = "SageMaker had an error of its own (InternalServerError)"
        case EndReason.PLATFORM_ERROR if is_host_lost(last.failure_reason):
            pause = _pause_after_errors_of_sagemaker(attempts)
            because = "a host of the job was gone"
        case EndReason.MAX_RUNTIME_EXCEEDED if deadline_at and last.ended_at and last.ended_at >= deadline_at:
            return NoMoreJobs(because="its deadline has passed")
        case EndReason.MAX_RUNTIME_EXCEEDED if request.max_total_run or request.max_cost or deadline_at:
            because = f"the run has {trained_of_allowed}"
        case _:
            return NoMoreJobs()
    if len(attempts) >= request.max_attempts:
        return NoMoreJobs(because=f"the run has had its {request.max_attempts} jobs (max_attempts)")
    fallback = fallbacks[position]
    shortest = shortest_job_seconds(request)
    seconds = request.max_run if allowed is None else min(request.max_run, int(allowed - trained))
    if allowed is not None and seconds < shortest:
        return NoMoreJobs(because=f"the run has trained the {format_duration(allowed)} it may")
    if request.max_cost is not None:
        spent = None if cost is None else cost.billed_usd
        affordable = None if spent is None else affordable_seconds(request, fallback, spent_usd=spent, prices=prices)
        if spent is None or affordable is None:
            return NoMoreJobs(because="what the run has cost is not known, and max_cost bounds it")
        if affordable < shortest:
            return NoMoreJobs(
                because=f"the run has cost {spent:.2f} of the {request.max_cost:.2f} USD it may", max_cost_is_spent=True
            )
        seconds = affordable_run(request, longest=seconds, affordable=affordable)
    max_wait = _rest_of_wait(attempts, request=request)
    if max_wait is not None and max_wait < shortest:
        return NoMoreJobs(because="the run has taken all the time that it may (max_wait)")
    return NextJob(
        position=position,
        fallback=fallback,
        max_run_seconds=seconds,
        because=because,
        pause_seconds=pause,
        no_capacity_since=no_capacity_since,
        max_wait_seconds=max_wait,
    )


def _rest_of_wait(attempts: Sequence[Attempt], *, request: JobRequest) -> int | None:
    """Return the rest of the time that a run on fleets may take in all. None where nothing bounds it."""
    begun_at = next(each.created_at for each in reversed(attempts) if each.resumed or each is attempts[0])
    longest = fleet_seconds(request, begun_at=begun_at)
    taken = (attempts[-1].ended_at or begun_at) - begun_at
    return None if request.backend != "ec2" or longest is None else longest - int(taken.total_seconds())


def _asked_again(
    attempts: Sequence[Attempt], *, request: JobRequest, deadline_at: datetime | None
) -> tuple[int, datetime] | None:
    """Return the time to ask SageMaker again after it had no capacity for the run's last job.

    Returns:
        The seconds until then, and the time since when there has been no capacity. None if the run's longest wait is
        over.
    """
    last = attempts[-1]
    ended_at = last.ended_at or last.created_at
    since = ended_at
    if last.started_at is None:
        since = (last.retry and last.retry.no_capacity_since) or last.created_at
    refused = 0
    for attempt in reversed(attempts):
        if attempt.end_reason is not EndReason.CAPACITY or attempt.started_at is not None:
            break
        refused += 1
    pause = min(_FIRST_PAUSE_SECONDS * 2 ** max(0, min(refused, _MOST_DOUBLINGS) - 1), _LONGEST_PAUSE_SECONDS)
    begins_at = ended_at + timedelta(seconds=pause)
    too_late = begins_at >= since + longest_wait_without_a_job(request)
    return None if too_late or (deadline_at is not None and begins_at >= deadline_at) else (pause, since)


def _pause_after_errors_of_sagemaker(attempts: Sequence[Attempt]) -> int:
    """Return the seconds that the next job waits. It waits only after two or more errors of SageMaker in a row.

    A lost host counts as such an error.
    """
    in_a_row = 0
    for attempt in reversed(attempts):
        if not is_internal_server_error(attempt.failure_reason) and not is_host_lost(attempt.failure_reason):
            break
        in_a_row += 1
    if in_a_row < 2:
        return 0
    doubled: int = _FIRST_PAUSE_SECONDS * 2 ** min(in_a_row - 2, _MOST_DOUBLINGS)
    return min(doubled, _LONGEST_PAUSE_SECONDS)


def _trained_seconds(attempts: Sequence[Attempt]) -> float:
    return sum(attempt.usage.training_seconds or 0.0 for attempt in attempts if attempt.usage is not None)


_LACK_IN_WORDS: Final = {
    EndReason.CAPACITY: "no capacity",
    EndReason.MAX_WAIT_EXCEEDED: "no capacity in time",
    EndReason.QUOTA: "no quota",
}


_STATE_OF: Final = {
    EndReason.COMPLETED: RunState.COMPLETED,
    EndReason.PAUSED: RunState.STOPPED,
    EndReason.STOPPED_BY_USER: RunState.STOPPED,
    EndReason.MAX_RUNTIME_EXCEEDED: RunState.STOPPED,
    EndReason.MAX_WAIT_EXCEEDED: RunState.STOPPED,
    EndReason.MAX_COST: RunState.STOPPED,
    EndReason.DEADLINE: RunState.STOPPED,
}

_HAS_MODEL: Final = frozenset(
    # A stopped job uploads what is in /opt/ml/model within its last two minutes.
    {EndReason.COMPLETED, EndReason.STOPPED_BY_USER, EndReason.MAX_COST, EndReason.MAX_RUNTIME_EXCEEDED}
)


def ended_with_job(facts: JobFacts) -> Attempt:
    """Return the attempt of an ended job, with the reason and time of its end, its model and its usage.

    Args:
        facts: The known facts. If the backend does not name the time of the end, the present time is taken.
    """
    attempt, job, log = facts.attempt, facts.job, facts.log
    reason = job.end_reason or EndReason.PLATFORM_ERROR
    if reason is EndReason.STOPPED_BY_USER and attempt.asked_to_end and facts.run.asked_to_end is None:
        # The controller asked for this end.
        reason = attempt.asked_to_end.reason
    pause_at_step = None if facts.request is None else facts.request.pause_at_step
    if reason is EndReason.COMPLETED and _may_have_paused(facts.run, pause_at_step=pause_at_step, log=log):
        reason = EndReason.PAUSED
    ended_at = end_of(job) or facts.now
    return with_changes(
        attempt,
        state=state_after(reason),
        ending=Ending(
            at=ended_at,
            reason=reason,
            failure_reason=job.failure_reason,
            paused_at_step=log.paused_at_step or pause_at_step if reason is EndReason.PAUSED else None,
        ),
        last_reconciled=None,
        counted_cost=None,
        output_uri=job.model_uri if reason in _HAS_MODEL and job.training_seconds else None,
        usage=usage_of(job=job, log=log, earlier=facts.earlier, ended_at=ended_at),
    )


def _may_have_paused(run: Run, *, pause_at_step: int | None, log: JobLog) -> bool:
    """Return True if a script that exited without an error has paused, or may have because its log is incomplete.

    Then the run counts as paused. A user can resume a paused run, but not a completed one. If the training was in fact
    done, the resumed script has nothing to train. For a fleet, the fleet's record says which of the two happened.
    """
    if run.place.backend == "ec2":
        return False
    return log.paused_at_step is not None or (pause_at_step is not None and not (log.complete and log.exited))


def ended_without_job(facts: RunFacts, *, reason: EndReason, failure_reason: str | None = None) -> RunChange:
    """End an attempt that has no training job, or has lost it. The run ends too, unless another job follows.

    Args:
        facts: The known facts.
        reason: The reason for the end.
        failure_reason: SageMaker's message, if it refused the job.
    """
    ended = with_changes(
        facts.attempt,
        state=state_after(reason),
        ending=Ending(at=facts.now, reason=reason, failure_reason=failure_reason),
    )
    return close_attempt(replace(facts, attempt=ended))


def close_attempt(
    facts: RunFacts,
    *,
    timeline: Sequence[TimelineEntry] = (),
    notifications: Sequence[Notification] = (),
    pool: Pool | None = None,
) -> RunChange:
    """End an attempt. In the same transaction either the run ends too, or the next attempt follows.

    With one transaction the run is never ended in between, and never releases its checkpoint prefix (I1).

    Args:
        facts: The known facts, with an attempt that has its end and its usage.
        timeline: Other new entries of the timeline.
        notifications: Other notifications to the users.
        pool: The warm pool that its job left.
    """
    run, request, attempt, deployment = facts.run, facts.request, facts.attempt, facts.deployment
    attempts = (*facts.earlier, attempt)
    ending = attempt.ending or Ending(at=facts.now, reason=EndReason.PLATFORM_ERROR)
    cost = bill(attempts, prices=deployment.prices)
    after: NextJob | NoMoreJobs = NoMoreJobs()
    may_follow = run.asked_to_end is None and (
        run.place.backend == "sagemaker" or _may_follow_fleet(run, request, ending)
    )
    if may_follow and request is not None and attempt.job_request is not None:
        after = next_job(
            request=request, attempts=attempts, cost=cost, prices=deployment.prices, deadline_at=run.deadline_at
        )
    if isinstance(after, NextJob) and request is not None:
        above = another_job_problems(
            request, limits=deployment.limits, prices=deployment.prices, begun_at=run.created_at
        )
        after = next((NoMoreJobs(because=f"{each.field} {each.found} {each.problem}") for each in above), after)
    if isinstance(after, NextJob) and request is not None:
        facts = replace(facts, run=with_changes(run, cost=cost))
        change = _followed(facts, request, ending=ending, job=after, timeline=timeline, notifications=notifications)
        return with_changes(change, pool=pool, metrics=facts.metrics)
    if isinstance(after, NoMoreJobs):
        ending = with_changes(ending, no_more_jobs_because=after.because)
        if ending.reason is EndReason.MAX_RUNTIME_EXCEEDED and after.max_cost_is_spent:
            # The job's max_run was cut to what was left of it.
            ending = with_changes(ending, reason=EndReason.MAX_COST)
    run = with_changes(
        run,
        state=state_after(ending.reason),
        ending=ending,
        updated_at=facts.now,
        quota_wait=None,
        output_uri=attempt.output_uri or run.output_uri,
        cost=cost,
        instance_time=run.instance_time if cost is None or cost.billed_usd is None else None,
    )
    name, now = deployment.name, facts.now
    doubtful = ending.reason is EndReason.COMPLETED and isinstance(facts, JobFacts) and facts.log.end_is_doubtful
    endings = [
        ending_notification(
            run=run, deployment=name, created_at=now, pool=pool, metrics=facts.metrics, is_doubtful=doubtful
        )
    ]
    if pool is not None and NotificationKind.POOL_EXPIRED in run.notify and pool.state in _POOL_OVER:
        endings.append(pool_over_notification(run=run, pool=pool, deployment=name, created_at=now))
    return RunChange(
        run=run,
        attempt=attempt,
        timeline=without_repeats([*timeline, *_ending_entries(run, ending, doubtful=doubtful)]),
        notifications=(*notifications, *(notification for notification in endings if notification is not None)),
        pool=pool,
        metrics=facts.metrics,
    )


_FOLLOWED_ON_EC2: Final = frozenset({EndReason.DEADLINE, EndReason.MAX_WAIT_EXCEEDED, EndReason.MAX_RUNTIME_EXCEEDED})
"""The ends of a fleet that another one may follow. An instance starts a failed script again by itself."""


def _may_follow_fleet(run: Run, request: JobRequest | None, ending: Ending) -> bool:
    """Return True if another fleet may follow. A fleet of one kind of capacity looks everywhere at once, and alone."""
    steered = request is not None and (request.capacity == "auto" or run.deadline_at is not None)
    return steered and ending.reason in _FOLLOWED_ON_EC2


_POOL_OVER: Final = frozenset({PoolState.ENDED, PoolState.NOT_KEPT})


def _followed(
    facts: RunFacts,
    request: JobRequest,
    *,
    ending: Ending,
    job: NextJob,
    timeline: Sequence[TimelineEntry],
    notifications: Sequence[Notification],
) -> RunChange:
    run, attempt, now = facts.run, facts.attempt, facts.now
    following = _following(run=run, attempt=attempt, request=request, job=job, now=now)
    notifications = list(notifications)
    if job.position != attempt.fallback and NotificationKind.NEXT_FALLBACK in run.notify:
        moment = Moment(
            run=run, attempt=following.attempt, deployment=facts.deployment.name, happened_at=now, created_at=now
        )
        notifications.append(next_fallback_notification(moment, left=attempt, job=job))
    near = max_cost_near(facts, spent_usd=None if run.cost is None else run.cost.billed_usd)
    entries = [
        *timeline,
        *near.timeline,
        TimelineEntry(
            run=run.run,
            attempt=attempt.attempt,
            at=ending.at,
            kind=TimelineKind.ATTEMPT_ENDED,
            text=words_of(ending.reason, backend=run.place.backend).timeline,
        ),
        TimelineEntry(
            run=run.run,
            attempt=following.attempt,
            at=now,
            kind=TimelineKind.ATTEMPT_BEGUN,
            text=f"Attempt {following.attempt} looks for {job.fallback}: {job.because}",
        ),
    ]
    run = with_changes(
        near.run,
        state=following.state,
        attempt=following.attempt,
        job_name=following.job_name,
        job_id=None,
        training_job=None,
        place=following.place,
        quota_wait=None,
        log_reading=None,
        instance_time=None,
        updated_at=now,
    )
    return RunChange(
        run=run,
        attempt=attempt,
        next_attempt=following,
        timeline=without_repeats(entries),
        notifications=(*notifications, *near.notifications),
    )


def _following(*, run: Run, attempt: Attempt, request: JobRequest, job: NextJob, now: datetime) -> Attempt:
    number = attempt.attempt + 1
    previous = attempt.job_request or {}
    paused = job.pause_seconds > 0
    retry: Retry | None = None
    if paused:
        retry = Retry(at=now + timedelta(seconds=job.pause_seconds), no_capacity_since=job.no_capacity_since)
    launch_id = following_launch_id(previous["Environment"][LAUNCH_VARIABLE], attempt=number)
    if run.place.backend == "ec2":
        launch = following_launch(launch_of(previous), job=job, attempt=number, launch_id=launch_id)
        parameters = job_request_of(launch, marks=marks_of(run=run.run, attempt=number, launch_id=launch_id))
    else:
        parameters = follow_up_request(
            previous=previous, request=request, job=job, run=run.run, attempt=number, launch_id=launch_id
        )
    if retry is not None and retry.no_capacity_since is not None:
        parameters = with_less_wait(parameters, waited=retry.at - retry.no_capacity_since)
    return Attempt(
        run=run.run,
        attempt=number,
        fallback=job.position,
        state=RunState.WAITING if paused else RunState.LAUNCHING,
        job_name=job_name_for(run=run.run, attempt=number),
        place=Place(
            backend=run.place.backend,
            queue=attempt.place.queue,
            capacity=job.fallback.capacity,
            instance_type=job.fallback.instance_types[0],
            instance_count=run.place.instance_count,
        ),
        created_at=now,
        retry=retry,
        notified=Notified(long_wait=attempt.notified.long_wait if paused and attempt.started_at is None else None),
        job_request=parameters,
    )


def request_of(run: Run) -> JobRequest | None:
    """Parse the run's request. None when another version of Spotkeep wrote it with fields that are not known here."""
    try:
        return JobRequest.model_validate(run.request)
    except ValidationError:
        return None


def _ending_entries(run: Run, ending: Ending, *, doubtful: bool) -> Iterator[TimelineEntry]:
    if doubtful:
        yield TimelineEntry(
            run=run.run, attempt=run.attempt, at=ending.at, kind=TimelineKind.END_DOUBTFUL, text=DOUBTFUL_END
        )
    text = words_of(ending.reason, backend=run.place.backend).timeline
    if ending.paused_at_step is not None:
        text = f"Paused at step {ending.paused_at_step:,}"
    because = f"; no job follows, for {ending.no_more_jobs_because}" if ending.no_more_jobs_because else ""
    yield TimelineEntry(
        run=run.run,
        attempt=run.attempt,
        at=ending.at,
        kind=TimelineKind.ENDED,
        text=f"{text}{because}",
        step=ending.paused_at_step,
    )


def state_after(reason: EndReason) -> RunState:
    """Return the state of a run that ends for this reason."""
    return _STATE_OF.get(reason, RunState.FAILED)


def without_repeats(entries: Iterable[TimelineEntry]) -> tuple[TimelineEntry, ...]:
    """Drop entries that are listed twice. DynamoDB refuses two writes of one item in a transaction."""
    return tuple({(entry.at, entry.kind): entry for entry in entries}.values())
