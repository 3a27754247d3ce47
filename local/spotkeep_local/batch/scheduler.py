"""Batch's work without a request. One thread follows training jobs, dispatches service jobs, and stops others.

It decides with the account's lock, and calls SageMaker without it. CreateTrainingJob reads S3, which is this very
server, and takes its time.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError
from botocore.exceptions import ClientError as BotoClientError

from spotkeep_local.batch import attempts, description, scheduling
from spotkeep_local.batch.records import JobStatus, LocalServiceJob, StopCause
from spotkeep_local.service_base.aws_service import ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from spotkeep_local.batch.account import BatchAccount
    from spotkeep_local.batch.records import JobQueue, ServiceEnvironment
    from spotkeep_local.training.service import TrainingService

_LOG = logging.getLogger(__name__)
_LONGEST_WAIT_SECONDS: Final = 60.0
_MISCONFIGURED: Final = "MISCONFIGURATION:"


class Scheduler:
    """Takes service jobs from one status to the next.

    Args:
        account: Keeps them, and wakes the thread by its event `changed`.
        training: SageMaker.
        send: Sends an event with its detail, its detail type and its resources.
        now: The clock, in epoch seconds.
        hands_tags_on: Training jobs get the tags of their service job, from now on.
    """

    def __init__(
        self,
        account: BatchAccount,
        *,
        training: TrainingService,
        send: Callable[[dict[str, Any], str, list[str]], None],
        now: Callable[[], float],
        hands_tags_on: bool,
    ) -> None:
        self.hands_tags_on = hands_tags_on
        self._account = account
        self._training = training
        self._send = send
        self._now = now
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="batch-scheduler", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and return when it has ended."""
        self._stopping = True
        self._account.changed.set()
        if self._thread.is_alive():
            self._thread.join()

    def announce(self, job: LocalServiceJob) -> None:
        """Send the event that a job has another status."""
        self._send(description.state_change(job), description.STATE_CHANGE, [job.arn])

    def step(self) -> None:
        """Do all due work."""
        with self._account.lock:
            now = self._now()
            for job in self._jobs():
                self._bring_up_to_date(job, now=now)
            for environment in self._account.environments.values():
                if environment.enabled:
                    self._schedule(environment, now=now)
            to_create = [job for job in self._jobs() if self._waits_for_creation(job)]
            to_stop = [job.training_job for job in self._jobs() if job.training_job and self._has_to_stop(job)]
        for job in to_create:
            self._create(job)
        for name in to_stop:
            try:
                self._training.stop_job(name)
            except ServiceError as error:
                _LOG.info("the training job %s could not be stopped: %s", name, error)

    def _run(self) -> None:
        while not self._stopping:
            self._account.changed.clear()
            try:
                self.step()
                seconds = self._seconds_until_due()
            except Exception:  # noqa: BLE001 - without it nothing would ever happen again
                _LOG.exception("the local Batch could not do what was due; trying again")
                seconds = 1.0
            self._account.changed.wait(seconds)

    def _jobs(self) -> list[LocalServiceJob]:
        return [job for job in self._account.jobs.values() if not job.ended]

    def _put(self, job: LocalServiceJob) -> None:
        before = self._account.jobs[job.job_id]
        self._account.jobs[job.job_id] = job
        if job.status is not before.status:
            self.announce(job)
        if job.preempted_count > before.preempted_count:
            self._send(description.preemption_completed(job), description.PREEMPTION_COMPLETED, [job.arn])

    # Follow.

    def _bring_up_to_date(self, job: LocalServiceJob, *, now: float) -> None:
        if job.status is JobStatus.SUBMITTED:
            self._put(replace(job, status=JobStatus.RUNNABLE))
        elif job.training_job is not None:
            training = self._training.job(job.training_job)
            if training is None and job.terminate_reason is not None:
                self._put(attempts.terminated(job, now=now))
                return
            job = attempts.follow(job, training, now=now)
            times_out_at = attempts.times_out_at(job)
            if job.training_job and times_out_at is not None and now >= times_out_at and job.stop_cause is None:
                job = replace(job, stop_cause=StopCause.TIMEOUT)
            self._put(job)

    # Decide.

    def _schedule(self, environment: ServiceEnvironment, *, now: float) -> None:
        queues = [queue for queue in self._account.queues.values() if queue.environment == environment.arn]
        decision = scheduling.decide(
            scheduling.SchedulerEnvironment(
                limits=environment.limits, queues=tuple(self._queue(queue, now=now) for queue in queues)
            )
        )
        for job_id in decision.dispatched:
            self._put(attempts.dispatched(self._account.jobs[job_id], now=now))
        for preemption in decision.preempted:
            self._preempt(preemption)
        arns = {queue.arn for queue in queues}
        for job in self._jobs():
            if job.queue in arns and job.waits:
                self._explain(job, decision.blocked.get(job.job_id), now=now)

    def _preempt(self, preemption: scheduling.Preemption) -> None:
        job = replace(self._account.jobs[preemption.job_id], stop_cause=StopCause.PREEMPTION)
        self._put(job)
        detail = description.preemption_started(job, within_share=preemption.within_share)
        self._send(detail, description.PREEMPTION_STARTED, [job.arn])
        self._put(replace(self._account.jobs[preemption.beneficiary], promised=True))

    def _explain(self, job: LocalServiceJob, blocked: str | None, *, now: float) -> None:
        was_blocked = (job.status_reason or "").startswith(_MISCONFIGURED)
        if blocked is not None or was_blocked:
            job = replace(job, status_reason=blocked, front_reason=job.front_reason if blocked else None)
        job = attempts.held_up(job, now=now)
        self._put(attempts.ended_at_the_front(job, self._limits_of(job), now=now) or job)
        if blocked is not None and not was_blocked:
            self._send(description.state_change(job), description.QUEUE_BLOCKED, [job.arn])

    def _limits_of(self, job: LocalServiceJob) -> Sequence[Mapping[str, Any]]:
        queue = self._account.queues.get(job.queue)
        return () if queue is None else queue.time_limit_actions

    def _queue(self, queue: JobQueue, *, now: float) -> scheduling.SchedulerQueue:
        jobs = [job for job in self._jobs() if job.queue == queue.arn]
        policy = self._account.policy_of(queue)
        shares = None
        if policy is not None:
            shares = tuple(self._account.shares_of(queue))
        return scheduling.SchedulerQueue(
            priority=queue.priority,
            waiting=tuple(job for job in jobs if job.waits and job.not_before <= now),
            placed=tuple(job for job in jobs if job.training_job is not None),
            shares=shares,
        )

    # Act.

    def _waits_for_creation(self, job: LocalServiceJob) -> bool:
        return job.training_job is not None and self._training.job(job.training_job) is None

    def _has_to_stop(self, job: LocalServiceJob) -> bool:
        if job.stop_cause is None and job.terminate_reason is None:
            return False
        training = self._training.job(job.training_job or "")
        return training is not None and not training.ended and not training.stop_requested

    def _create(self, job: LocalServiceJob) -> None:
        try:
            request = attempts.training_request(job, hands_tags_on=self.hands_tags_on)
        except ValueError as error:
            self._refuse(job, code="ValidationException", message=str(error))
            return
        try:
            self._training.create(request, queued_as=job.name)
        except ServiceError as error:
            self._refuse(job, code=error.code, message=error.message)
        except (BotoClientError, BotoCoreError) as error:
            self._refuse(job, code="ValidationException", message=str(error))
        self._account.changed.set()

    def _refuse(self, job: LocalServiceJob, *, code: str, message: str) -> None:
        with self._account.lock:
            found = self._account.jobs[job.job_id]
            self._put(attempts.refused(found, code=code, message=message, now=self._now()))

    def _seconds_until_due(self) -> float:
        with self._account.lock:
            now = self._now()
            moments = list(self._moments(now))
        return max(0.0, min(moments) - now)

    def _moments(self, now: float) -> Iterator[float]:
        yield now + _LONGEST_WAIT_SECONDS
        for job in self._jobs():
            times_out_at = attempts.times_out_at(job)
            if job.training_job and times_out_at is not None and job.stop_cause is None:
                yield times_out_at
            if job.waits and job.not_before > now:
                yield job.not_before
            if (until := attempts.front_limit_of(job, self._limits_of(job))) is not None:
                yield until
