"""What the record must become, given what SageMaker says. Pure: the same facts give the same record.

An event is only a hint that a job changed; DescribeTrainingJob is the fact (events come twice, late, out of order or
not at all). `decide` compares the fact with the record and answers with the missing changes, each one transaction.
Applied in any order of events, by any number of callers, they lead to one record and one set of notifications (I4).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.backends.job_view import ON_INSTANCES_PHASES, WAITING_PHASES, JobPhase
from spotkeep_jobs.backends.sagemaker.request import is_same_launch
from spotkeep_jobs.cost.run_cost import LiveCost, count_interruptions, live_cost, usage_of
from spotkeep_jobs.document.deployment_policy import DeploymentPolicy
from spotkeep_jobs.document.fallbacks import Fallback, fallbacks_of, on_demand_below
from spotkeep_jobs.notifications.texts.on_the_way import (
    Moment,
    interruption_notification,
    log_refused_notification,
    long_wait_notification,
    on_demand_notification,
    resume_notification,
    stale_checkpoint_notification,
)
from spotkeep_jobs.pools.warm_pool import kept_entry, pool_left_by, with_idle_time
from spotkeep_jobs.progress.checkpoint_alert import Freshness, freshness_of
from spotkeep_jobs.progress.job_log import Extent, JobLog
from spotkeep_jobs.record.record import Attempt, Notification, Progress, Run, RunChange, TimelineEntry
from spotkeep_jobs.record.states import EndReason, NotificationKind, RunState, TimelineKind
from spotkeep_jobs.runs import steering
from spotkeep_jobs.runs.ending import (
    close_attempt,
    ended_without_job,
    state_after,
    without_repeats,
)
from spotkeep_jobs.runs.max_cost import (
    cost_due_again_at,
    has_spent_max_cost,
    max_cost_near,
    max_cost_spent_entry,
)
from spotkeep_jobs.runs.steering import Standing, Steering
from spotkeep_planner.steering.guard import Choice

if TYPE_CHECKING:
    from spotkeep_jobs.backends.job_view import JobView, PhaseChange
    from spotkeep_jobs.document.request import JobRequest

VANISHED_AFTER: Final = timedelta(minutes=10)
"""A job that SageMaker accepted this long ago and does not know (any more) is gone."""


CHECKPOINTS_READ_EVERY: Final = timedelta(minutes=15)
"""How often a log is read that says of no checkpoint, or of none that is fresh."""


# DynamoDB takes 100 writes in a transaction; run item, attempt, checkpoint prefix and notifications need their share.
_ENTRIES_AT_ONCE: Final = 20


_TIMELINE: Final = {
    JobPhase.WAITING: TimelineKind.STARTING,
    JobPhase.LOADING: TimelineKind.DOWNLOADING,
    JobPhase.TRAINING: TimelineKind.TRAINING,
    JobPhase.INTERRUPTED: TimelineKind.INTERRUPTED,
    JobPhase.UPLOADING: TimelineKind.UPLOADING,
    JobPhase.STOPPING: TimelineKind.STOPPING,
}


_STEERED_TEXT: Final = {
    Choice.WAIT: "Waits for spot",
    Choice.SPOT: "Stays on spot",
    Choice.ON_DEMAND: "Stays on demand",
}


def decide(
    *,
    run: Run,
    request: JobRequest | None,
    attempt: Attempt,
    earlier: Sequence[Attempt] = (),
    job: JobView | None,
    log: JobLog,
    steering: Steering | None = None,
    deployment: DeploymentPolicy,
    now: datetime,
    chain_since: datetime | None = None,
) -> list[RunChange]:
    """Decide what is missing in the record.

    Args:
        run: The run item.
        request: Its request, as `request_of` parses it, once for each reading of the run.
        attempt: Its current attempt.
        earlier: The attempts before it.
        job: What SageMaker says of the attempt's job; None when it knows no such job.
        log: The job's own events, as far as they were read.
        steering: What a run with a deadline is steered by.
        deployment: Names and prices.
        now: The time of the decision.
        chain_since: When the job took over the instances of a warm pool: since when those have been handed on.

    Returns:
        The changes in order, each one transaction on the version the one before it leaves. Empty when the record
        says it all already, when the run has ended (an ending is final), or when the job is not the run's.
    """
    if run.state.ended or attempt.state.ended or run.attempt != attempt.attempt:
        return []
    if job is None:
        return _without_job(run=run, request=request, attempt=attempt, earlier=earlier, deployment=deployment, now=now)
    if not _is_of(attempt, job) or len(job.transitions) < attempt.recorded_transitions:
        # A stranger's job of the same name, or an answer older than the record.
        return []
    return list(
        _Decision(
            run=run,
            request=request,
            attempt=attempt,
            earlier=tuple(earlier),
            job=job,
            log=log,
            steering=steering,
            deployment=deployment,
            now=now,
            chain_since=chain_since,
        ).changes()
    )


@dataclass(frozen=True, kw_only=True)
class _Decision:
    run: Run
    request: JobRequest | None
    attempt: Attempt
    earlier: tuple[Attempt, ...]
    job: JobView
    log: JobLog
    steering: Steering | None
    deployment: DeploymentPolicy
    now: datetime
    chain_since: datetime | None

    def changes(self) -> Iterator[RunChange]:
        """Yield the changes in order: first the timeline in portions, with the last of them the state."""
        run, attempt = self.run, self._launched()
        recorded, total = attempt.recorded_transitions, len(self.job.transitions)
        while total - recorded > _ENTRIES_AT_ONCE:
            upto = recorded + _ENTRIES_AT_ONCE
            attempt = self._with_transitions(attempt, upto)
            run = self._with_attempt(run, attempt)
            yield RunChange(
                run=run,
                attempt=attempt,
                timeline=without_repeats(self._entries(recorded, upto)),
                notifications=tuple(self._notifications_on_the_way(attempt, recorded, upto)),
            )
            run = run.model_copy(update={"version": run.version + 1})
            recorded = upto
        attempt = self._with_transitions(attempt, total)
        entries = list(self._entries(recorded, total))
        notifications = list(self._notifications_on_the_way(attempt, recorded, total))
        run, refused_entries, refused_notifications = self._with_log_warning(run, attempt)
        entries += refused_entries
        notifications += refused_notifications
        if self.job.ended:
            resumes = self._step_entries()
            while len(resumes) > _ENTRIES_AT_ONCE:
                portion, resumes = resumes[:_ENTRIES_AT_ONCE], resumes[_ENTRIES_AT_ONCE:]
                yield RunChange(
                    run=run.model_copy(update={"log_warning": self.run.log_warning}),
                    attempt=self._with_transitions(self._launched(), recorded),
                    timeline=without_repeats(portion),
                )
                run = run.model_copy(update={"version": run.version + 1})
            attempt = self._ended(attempt)
            pool = pool_left_by(
                run=self.run,
                attempt=attempt,
                job=self.job,
                usd_per_hour=self.deployment.prices.get(attempt.instance_type),
                chain_since=self.chain_since,
                now=self.now,
            )
            if pool is not None:
                attempt = with_idle_time(attempt, pool)
                entries.append(kept_entry(pool))
            if self.steering is not None:
                run = run.model_copy(update={"progress": self.steering.progress})
            yield close_attempt(
                run=self._with_attempt(run, attempt),
                request=self.request,
                attempt=attempt,
                earlier=self.earlier,
                deployment=self.deployment,
                now=self.now,
                timeline=[*entries, *resumes],
                notifications=notifications,
                pool=pool,
            )
            return
        state = self._live_state()
        attempt = attempt.model_copy(update={"state": state})
        run = run.model_copy(update={"state": state})
        run = run.model_copy(update={"progress": self._progress()})
        run, attempt, steered = self._steered(run, attempt)
        cost = self._live_cost(attempt)
        run, attempt, cost_entries, cost_notifications = self._with_max_cost(run, attempt, cost)
        entries += [*steered, *cost_entries]
        notifications += cost_notifications
        if self._overstays(attempt):
            attempt = attempt.model_copy(update={"fallback_left_at": self.now})
            entries.append(self._fallback_left())
        elif (long_wait := self._waits_long(attempt)) is not None:
            attempt = attempt.model_copy(update={"long_wait_notified": attempt.interruptions})
            notifications.append(long_wait)
        attempt, stale = self._stale_checkpoint(run, attempt)
        notifications += stale
        attempt = attempt.model_copy(
            update={
                "seen_modified_at": self.job.last_modified_at and _in_record(self.job.last_modified_at),
                "reconcile_again_at": self._reconcile_again_at(run, attempt, cost),
            }
        )
        change = RunChange(
            run=self._with_attempt(run, attempt),
            attempt=attempt,
            timeline=without_repeats(entries),
            notifications=tuple(notifications),
        )
        if not _says_nothing_new(change, self.run, self.attempt):
            yield change

    def _launched(self) -> Attempt:
        if self.attempt.job_arn is not None:
            return self.attempt
        # The launch was cut short after SageMaker accepted the job: its ARN is recorded here.
        return self.attempt.model_copy(update={"job_arn": self.job.arn, "launched_at": self.job.created_at})

    def _with_transitions(self, attempt: Attempt, upto: int) -> Attempt:
        return attempt.model_copy(
            update={
                "recorded_transitions": upto,
                "interruptions": count_interruptions(self.job.transitions[:upto]),
                "started_at": attempt.started_at or self._first_on_instances(),
                # Of several types SageMaker takes the first with capacity, and bills that one.
                "instance_type": self.job.instance_type or attempt.instance_type,
            }
        )

    def _with_attempt(self, run: Run, attempt: Attempt) -> Run:
        return run.model_copy(
            update={
                "job_arn": attempt.job_arn,
                "instance_type": attempt.instance_type,
                "volume_id": self.job.volume_id or run.volume_id,
                "volume_is_for_a_person": self.job.volume_is_for_a_person,
                "waits_because": self.job.waits_because,
                "started_at": run.started_at or attempt.started_at,
                "interruptions": sum(before.interruptions for before in self.earlier) + attempt.interruptions,
                "updated_at": self.now,
            }
        )

    def _first_on_instances(self) -> datetime | None:
        return next(
            (entry.started_at for entry in self.job.transitions if entry.phase in ON_INSTANCES_PHASES),
            self.job.training_started_at,
        )

    def _live_state(self) -> RunState:
        phase = self.job.phase
        if phase is JobPhase.STOPPING or self.run.stop_requested_at is not None:
            return RunState.STOPPING
        if phase in ON_INSTANCES_PHASES:
            return RunState.TRAINING
        if phase in WAITING_PHASES or self.run.state is RunState.LAUNCHING:
            return RunState.INTERRUPTED if self._lost_its_capacity() else RunState.WAITING
        return self.run.state

    def _lost_its_capacity(self) -> bool:
        for entry in reversed(self.job.transitions):
            if entry.phase is JobPhase.INTERRUPTED:
                return True
            if entry.phase in ON_INSTANCES_PHASES:
                return False
        return self.job.phase is JobPhase.INTERRUPTED

    def _ended(self, attempt: Attempt) -> Attempt:
        reason = self.job.end_reason or EndReason.PLATFORM_ERROR
        if reason is EndReason.STOPPED_BY_USER and attempt.fallback_left_at and self.run.stop_requested_at is None:
            # The controller asked for this end.
            reason = _reason_of_our_stop(attempt)
        ended_at = _end_of(self.job) or self.now
        return attempt.model_copy(
            update={
                "state": state_after(reason),
                "end_reason": reason,
                "failure_reason": self.job.failure_reason,
                "seen_modified_at": None,
                "reconcile_again_at": None,
                "ended_at": ended_at,
                "output_uri": self.job.model_uri if reason in _HAS_MODEL and self.job.training_seconds else None,
                "usage": usage_of(job=self.job, log=self.log, earlier=self.earlier, ended_at=ended_at),
            }
        )

    def _steered(self, run: Run, attempt: Attempt) -> tuple[Run, Attempt, list[TimelineEntry]]:
        """Return what the run's policy and its guard say now; an entry only where that is new."""
        request, standing = self.request, self._standing()
        if self.steering is None or request is None:
            return run, attempt, []
        leaving = attempt.fallback_left_at or run.stop_requested_at or self.job.phase is JobPhase.STOPPING
        decided = None if leaving or standing is None else steering.choose(run, request, self.steering, standing)
        if decided is None:
            return run, attempt, []
        text = f"{_STEERED_TEXT[Choice(decided.choice)]}: {decided.reason}"
        if decided.choice == Choice.ON_DEMAND.value and attempt.capacity == "spot":
            if on_demand_below(fallbacks_of(request), attempt.fallback) is None:
                return run, attempt, []
            attempt = attempt.model_copy(update={"fallback_left_at": self.now, "left_spot_because": decided.reason})
            text = f"Leaves spot for on-demand: {decided.reason}"
        elif run.steered is not None and run.steered.choice == decided.choice:
            return run, attempt, []
        entry = steered_entry(run=run.run, attempt=attempt.attempt, text=text, at=self.now)
        return run.model_copy(update={"steered": decided}), attempt, [entry]

    def _standing(self) -> Standing | None:
        """Return what the run uses; None where its backend's word for it says neither."""
        if self.attempt.capacity == "on-demand":
            return Standing(using=Choice.ON_DEMAND, since=self.job.created_at, now=self.now)
        waiting = self._waiting_since()
        if waiting is not None:
            return Standing(using=Choice.WAIT, since=waiting, now=self.now)
        if self.job.phase not in ON_INSTANCES_PHASES:
            return None
        since = self.now
        for entry in reversed(self.job.transitions):
            if entry.phase not in ON_INSTANCES_PHASES:
                break
            since = entry.started_at
        return Standing(using=Choice.SPOT, since=since, now=self.now)

    def _with_max_cost(
        self, run: Run, attempt: Attempt, cost: LiveCost | None
    ) -> tuple[Run, Attempt, list[TimelineEntry], list[Notification]]:
        """Hold what the run has cost against its max_cost: notify when it is near, end the job when it is spent."""
        request = self.request
        if request is None or request.max_cost is None or cost is None:
            return run, attempt, [], []
        run, entries, notifications = max_cost_near(
            run,
            request=request,
            attempt=attempt.attempt,
            spent_usd=cost.usd,
            deployment=self.deployment.name,
            now=self.now,
            about=True,
        )
        ends = attempt.fallback_left_at or run.stop_requested_at or self.job.phase is JobPhase.STOPPING
        # A job that uploads its model is over in a moment, and completes.
        if ends or self.job.phase is JobPhase.UPLOADING or not has_spent_max_cost(request, cost):
            return run, attempt, entries, notifications
        entries.append(max_cost_spent_entry(run, request=request, attempt=attempt.attempt, now=self.now))
        attempt = attempt.model_copy(update={"fallback_left_at": self.now, "max_cost_is_spent": True})
        return run, attempt, entries, notifications

    def _live_cost(self, attempt: Attempt) -> LiveCost | None:
        """Return what the run has cost, its live job included; None where it is not known, or nothing asks for it."""
        if self.request is None or self.request.max_cost is None:
            return None
        plan = None if self.steering is None else self.steering.plan
        return live_cost(
            earlier=self.earlier,
            attempt=attempt,
            job=self.job,
            prices=self.deployment.prices,
            spot_usd_per_hour=None if plan is None else plan.spot_usd_per_hour,
            now=self.now,
        )

    def _overstays(self, attempt: Attempt) -> bool:
        """Return whether the job has waited longer than its fallback may, and no user has asked it to end."""
        if (
            attempt.fallback_left_at is not None
            or self.run.stop_requested_at is not None
            or self.job.phase is JobPhase.STOPPING
        ):
            return False
        waiting, fallback = self._waiting_since(), self._fallback()
        if waiting is None or fallback is None or fallback.longest_wait_seconds is None:
            return False
        return self.now - waiting >= timedelta(seconds=fallback.longest_wait_seconds)

    def _with_log_warning(self, run: Run, attempt: Attempt) -> tuple[Run, list[TimelineEntry], list[Notification]]:
        """Notify, once for each run, of what of the log was not taken: what makes it so goes on doing it."""
        warning = None if run.log_warning is not None else log_warning(self.log, job_name=attempt.job_name)
        if warning is None:
            return run, [], []
        entry = TimelineEntry(
            run=run.run, attempt=attempt.attempt, at=self.now, kind=TimelineKind.LOG_REFUSED, text=warning
        )
        notifications = []
        if NotificationKind.LOG_REFUSED in run.notify:
            notifications.append(
                log_refused_notification(
                    run=run, attempt=attempt, warning=warning, deployment=self.deployment.name, now=self.now
                )
            )
        return run.model_copy(update={"log_warning": warning}), [entry], notifications

    def _progress(self) -> Progress | None:
        """Return how far the run is, with what was read of its log."""
        return (self.log.progress or self.run.progress) if self.steering is None else self.steering.progress

    def _stale_checkpoint(self, run: Run, attempt: Attempt) -> tuple[Attempt, list[Notification]]:
        """Return the notification of a checkpoint that is too old, once for each checkpoint."""
        freshness = _freshness(run, self.request, self.job)
        if freshness is None or not self.log.complete or self.now < freshness.stale_at:
            return attempt, []
        newest_at = _in_record(freshness.newest_at or attempt.created_at)
        if attempt.stale_notified_of == newest_at:
            return attempt, []
        attempt = attempt.model_copy(
            update={"stale_notified": attempt.stale_notified + 1, "stale_notified_of": newest_at}
        )
        notification = stale_checkpoint_notification(
            run=run,
            attempt=attempt,
            freshness=freshness,
            nth=attempt.stale_notified,
            deployment=self.deployment.name,
            now=self.now,
        )
        return attempt, [notification]

    def _reconcile_again_at(self, run: Run, attempt: Attempt, cost: LiveCost | None) -> datetime | None:
        """Return when a wait gets too long for the fallback or for its users, a checkpoint too old, or a run too dear.

        Returns:
            None when time makes no difference.
        """
        times = [self._waits_too_long_at(run, attempt), self._max_cost_at(run, attempt, cost)]
        return min((_in_record(at) for at in times if at is not None), default=None)

    def _max_cost_at(self, run: Run, attempt: Attempt, cost: LiveCost | None) -> datetime | None:
        request = self.request
        if request is None or cost is None or attempt.fallback_left_at is not None:
            return None
        return cost_due_again_at(run, request=request, cost=cost, now=self.now)

    def _waits_too_long_at(self, run: Run, attempt: Attempt) -> datetime | None:
        since, fallback = self._waiting_since(), self._fallback()
        freshness = _freshness(run, self.request, self.job)
        if freshness is not None:
            notified = attempt.stale_notified_of == _in_record(freshness.newest_at or attempt.created_at)
            # Read a moment ago, or notified: then the log is read for a new checkpoint now and then.
            later = self.now + CHECKPOINTS_READ_EVERY
            return later if notified or freshness.read_at <= self.now else freshness.read_at
        if since is None:
            return None
        notified = (
            attempt.long_wait_notified == attempt.interruptions
            or NotificationKind.WAITING_TOO_LONG not in self.run.notify
        )
        longest = fallback.longest_wait_seconds if fallback is not None and attempt.fallback_left_at is None else None
        waits = [
            *([] if notified else [self._long_wait()]),
            *([] if longest is None else [timedelta(seconds=longest)]),
        ]
        return min((since + wait for wait in waits), default=None)

    def _waits_long(self, attempt: Attempt) -> Notification | None:
        """Return the notification of a long wait; None when it is not long, was notified, or is not asked for."""
        since = self._waiting_since()
        if since is None or NotificationKind.WAITING_TOO_LONG not in self.run.notify or self.run.stop_requested_at:
            return None
        if attempt.long_wait_notified == attempt.interruptions or self.now - since < self._long_wait():
            return None
        return long_wait_notification(
            run=self.run,
            attempt=attempt,
            deployment=self.deployment.name,
            nth=attempt.interruptions,
            waited_seconds=(self.now - since).total_seconds(),
            because=self.job.waits_because,
            happened_at=self.now,
        )

    def _long_wait(self) -> timedelta:
        """Return a wait that is worth a notification."""
        if self.request is None or self.request.waiting_too_long is None:
            return self.deployment.long_wait
        return timedelta(seconds=self.request.waiting_too_long)

    def _waiting_since(self) -> datetime | None:
        """Return when the wait that the job is in began; None when it has capacity."""
        if self.job.phase not in WAITING_PHASES:
            return None
        since = self.job.created_at
        for entry in self.job.transitions:
            if entry.phase in ON_INSTANCES_PHASES:
                since = entry.ended_at or entry.started_at
        return since

    def _fallback(self) -> Fallback | None:
        fallbacks = () if self.request is None else fallbacks_of(self.request)
        return fallbacks[self.attempt.fallback] if self.attempt.fallback < len(fallbacks) else None

    def _fallback_left(self) -> TimelineEntry:
        return TimelineEntry(
            run=self.run.run,
            attempt=self.attempt.attempt,
            at=self.now,
            kind=TimelineKind.FALLBACK_LEFT,
            text=f"Has waited long enough for {self._fallback()}: its job is asked to end",
        )

    def _entries(self, first: int, upto: int) -> Iterator[TimelineEntry]:
        for position in range(first, upto):
            transition = self.job.transitions[position]
            if transition.phase not in _TIMELINE:
                continue
            kind, text = _TIMELINE[transition.phase], transition.text
            if kind is TimelineKind.TRAINING and self._follows_interruption(position):
                kind, text = TimelineKind.RESUMED, "Trains again"
            yield TimelineEntry(
                run=self.run.run,
                attempt=self.attempt.attempt,
                at=transition.started_at,
                kind=kind,
                text=f"{text} ({transition.detail})" if transition.detail else text,
            )

    def _step_entries(self) -> list[TimelineEntry]:
        entries = [
            self._resumed_entry(
                at=resumed.at,
                step=resumed.step,
                text=f"The script went on from step {resumed.step:,}"
                if resumed.step
                else "The script began from the beginning",
            )
            for resumed in self.log.resumes
        ]
        if self.log.resumes_left_out:
            text = f"The script had taken up its work {self.log.resumes_left_out:,} times before, which is not listed"
            before_all = min(resumed.at for resumed in self.log.resumes) - 0.001
            entries.insert(0, self._resumed_entry(at=max(0.0, before_all), step=None, text=text))
        return entries

    def _resumed_entry(self, *, at: float, step: int | None, text: str) -> TimelineEntry:
        return TimelineEntry(
            run=self.run.run,
            attempt=self.attempt.attempt,
            at=datetime.fromtimestamp(at, tz=UTC),
            kind=TimelineKind.STEP_RESUMED,
            text=text,
            step=step,
        )

    def _notifications_on_the_way(self, attempt: Attempt, first: int, upto: int) -> Iterator[Notification]:
        for position in range(first, upto):
            transition = self.job.transitions[position]
            moment = Moment(
                run=self.run,
                attempt=attempt,
                deployment=self.deployment.name,
                nth=count_interruptions(self.job.transitions[: position + 1]),
                happened_at=transition.started_at,
                created_at=self.now,
            )
            if transition.phase is JobPhase.INTERRUPTED and NotificationKind.INTERRUPTED in self.run.notify:
                yield interruption_notification(moment)
            interrupted = self._follows_interruption(position)
            if transition.phase is JobPhase.TRAINING and interrupted and NotificationKind.RESUMED in self.run.notify:
                away = transition.started_at - interrupted.started_at
                yield resume_notification(moment, away_seconds=away.total_seconds())
            if transition.phase is JobPhase.TRAINING and not interrupted and self._is_dearer(attempt, position):
                yield on_demand_notification(
                    run=self.run,
                    attempt=attempt,
                    deployment=self.deployment.name,
                    happened_at=transition.started_at,
                    now=self.now,
                )

    def _is_dearer(self, attempt: Attempt, position: int) -> bool:
        """Say whether the training that begins here is the attempt's first, on demand, of a run that wanted spot."""
        first = all(entry.phase is not JobPhase.TRAINING for entry in self.job.transitions[:position])
        looked_for_spot = any(before.capacity == "spot" for before in self.earlier)
        asked = NotificationKind.ON_DEMAND in self.run.notify
        return asked and first and looked_for_spot and attempt.capacity == "on-demand"

    def _follows_interruption(self, position: int) -> PhaseChange | None:
        """Return the interruption that the training at this position ends, if it ends one."""
        for entry in reversed(self.job.transitions[:position]):
            if entry.phase is JobPhase.INTERRUPTED:
                return entry
            if entry.phase is JobPhase.TRAINING:
                return None
        return None


def log_warning(log: JobLog, *, job_name: str) -> str | None:
    """Return what of a job's log was not taken, in a person's words; None where everything was, or AWS did not answer.

    Args:
        log: What was read of it.
        job_name: The job.
    """
    refused = ", ".join(f"{count:,} {what.value}" for what, count in log.refused.items())
    said = [
        *([f"event lines in the log of {job_name} were refused: {refused}"] if refused else []),
        *([_NOT_ALL_READ[log.extent].format(job=job_name)] if log.extent in _NOT_ALL_READ else []),
    ]
    return "; ".join(said) or None


_NOT_ALL_READ: Final = {
    Extent.CUT: "the log of {job} is longer than what is read of one: 60 pages of event lines, for 20 seconds",
    Extent.PASSED_OVER: "the log of {job} is not read any more: function after function ended while it read it",
}


def asks_for_its_log(run: Run, *, request: JobRequest | None, job: JobView, now: datetime) -> bool:
    """Return whether the log of a live job has to be read before anything is decided about its run.

    A deadline asks how far it is; a checkpoint that seems stale may only be one whose line was not read yet.

    Args:
        run: The run item.
        request: Its request.
        job: Its job, not ended.
        now: The time of the decision.
    """
    if run.deadline_at is not None:
        return any(entry.phase is JobPhase.TRAINING for entry in job.transitions)
    freshness = _freshness(run, request, job)
    return freshness is not None and freshness.read_at <= now


def _freshness(run: Run, request: JobRequest | None, job: JobView) -> Freshness | None:
    """Return how fresh the newest checkpoint is; None where it was not asked for, or none is due."""
    if NotificationKind.CHECKPOINT_STALE not in run.notify or run.stop_requested_at is not None:
        return None
    if request is None or not request.checkpoints:
        return None
    if job.phase is not JobPhase.TRAINING:
        return None
    since = next((entry.started_at for entry in reversed(job.transitions) if entry.phase is JobPhase.TRAINING), None)
    if since is None:
        return None
    return freshness_of(run.progress, training_since=since, longest_age_seconds=request.checkpoint_stale)


def steered_entry(*, run: str, attempt: int, text: str, at: datetime) -> TimelineEntry:
    """Return an entry of the timeline about what the policy decided."""
    return TimelineEntry(run=run, attempt=attempt, at=at, kind=TimelineKind.STEERED, text=text)


_HAS_MODEL: Final = frozenset(
    # A stopped job uploads what is in /opt/ml/model within its last two minutes.
    {EndReason.COMPLETED, EndReason.STOPPED_BY_USER, EndReason.MAX_COST, EndReason.MAX_RUNTIME_EXCEEDED}
)


def _reason_of_our_stop(attempt: Attempt) -> EndReason:
    if attempt.max_cost_is_spent:
        return EndReason.MAX_COST
    return EndReason.MAX_WAIT_EXCEEDED if attempt.left_spot_because is None else EndReason.DEADLINE


def _without_job(
    *,
    run: Run,
    request: JobRequest | None,
    attempt: Attempt,
    earlier: Sequence[Attempt],
    deployment: DeploymentPolicy,
    now: datetime,
) -> list[RunChange]:
    if attempt.job_arn is None:
        # Not launched yet, or the launch was cut short: to complete it is the launcher's business.
        return []
    if now - (attempt.launched_at or attempt.created_at) < VANISHED_AFTER:
        return []
    return [
        ended_without_job(
            run=run,
            request=request,
            attempt=attempt,
            earlier=earlier,
            reason=EndReason.JOB_VANISHED,
            deployment=deployment,
            now=now,
        )
    ]


def _is_of(attempt: Attempt, job: JobView) -> bool:
    if attempt.job_arn is not None:
        return job.arn == attempt.job_arn
    # Not confirmed yet. The name alone says little: a run id may have been used before, by a run long forgotten.
    return attempt.job_request is not None and is_same_launch(
        environment=job.environment, parameters=attempt.job_request
    )


def _end_of(job: JobView) -> datetime | None:
    if job.training_ended_at is not None:
        return job.training_ended_at
    if job.transitions:
        last = job.transitions[-1]
        return last.started_at if last.phase not in _TIMELINE else last.ended_at or job.last_modified_at
    return job.last_modified_at


def _says_nothing_new(change: RunChange, run: Run, attempt: Attempt) -> bool:
    same_run = change.run.model_copy(update={"updated_at": run.updated_at}) == run
    return same_run and change.attempt == attempt and not change.notifications


def _in_record(at: datetime) -> datetime:
    """Return a time as the record keeps it, so that the same fact is the same record: `model_copy` does not convert."""
    return at.astimezone(UTC).replace(microsecond=at.microsecond // 1000 * 1000)
