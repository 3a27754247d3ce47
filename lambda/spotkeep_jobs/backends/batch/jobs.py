"""Attempts in a queue, behind the interface `Backend`, so that the controller knows one kind of job.

At most one service job of an attempt lives (I1), although AWS Batch lets any number have the same name. These are the
reasons:

- The name, the payload and the client token of a submission follow from the attempt's record. Batch takes two
  submissions with the same token for one. Its documentation does not say for how long it remembers a token.
- So the launcher first searches the queue for a service job of that name with the marks of this launch. The search
  finds an old submission. The token covers a submission just made by another function, or one with a lost answer.
- A service job with the same name and other marks belongs to a stranger or to an earlier run. It is left alone.
- Should there be two all the same, the older one is the attempt's, and `settle` terminates the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from spotkeep_jobs.backends.backend import JobView
from spotkeep_jobs.backends.batch.attempt_view import as_job_view, to_describe
from spotkeep_jobs.backends.batch.service_job import ServiceJob, job_id_of, submission_of
from spotkeep_jobs.backends.sagemaker.training_job import DEPLOYMENT_TAG, RUN_TAG, RUN_VARIABLE, is_same_launch
from spotkeep_jobs.document.queue import job_queue_name
from spotkeep_jobs.errors import JobNotFoundError
from spotkeep_jobs.record.record import Attempt, QueuePlace, Run, TrainingJobs

if TYPE_CHECKING:
    from spotkeep_jobs.backends.batch.api import ServiceJobsApi
    from spotkeep_jobs.backends.sagemaker.api import SageMakerTrainingJobs

TRAINING_JOB_PREFIX: Final = "AWSBatch"
"""The beginning of the names that AWS Batch gives to training jobs."""
STOPPED_BY_SPOTKEEP: Final = "Stopped by Spotkeep"
TWICE: Final = "Submitted twice: the older one of its launch goes on"


@dataclass(frozen=True, kw_only=True)
class ServiceJobs:
    """The service jobs of a deployment's queues.

    Attributes:
        api: AWS Batch.
        training_jobs: SageMaker, which is asked about the training jobs that Batch makes.
        deployment: The deployment's name.
        now: The time, aware.
        has_queues: True where the deployment has queues. Without any, no training job of AWS Batch is its own.
    """

    api: ServiceJobsApi
    training_jobs: SageMakerTrainingJobs
    deployment: str
    now: Callable[[], datetime]
    has_queues: bool = True

    def run_of(self, job_id: str) -> str | None:
        """Return the run that a service job's tags name.

        None for a service job of another deployment, or without such tags.

        Raises:
            AwsCallError: AWS refused or could not answer.
        """
        found = self.api.describe(job_id)
        return None if found is None or not self.owns(found) else found.tags.get(RUN_TAG)

    def run_of_training_job(self, job_name: str) -> str | None:
        """Return the run that a training job's environment names, by its marks. None where AWS Batch did not create it.

        The answer is only a hint, because any client that creates a job chooses its environment. The run's record
        decides, with DescribeServiceJob's answer for its own service job.

        Raises:
            AwsCallError: SageMaker refused or could not answer.
        """
        if not self.has_queues or not job_name.startswith(TRAINING_JOB_PREFIX):
            return None
        found = self.training_jobs.observe(job_name)
        return None if found is None else found.environment.get(RUN_VARIABLE)

    def unfinished(self, queues: Sequence[str]) -> Iterator[str]:
        """Yield the ids of the service jobs of queues that are not over, those of other clients too.

        Args:
            queues: As the settings name them.
        """
        for queue in queues:
            yield from self.api.unfinished(job_queue=job_queue_name(deployment=self.deployment, queue=queue))

    def own_unfinished(self, job_id: str) -> ServiceJob | None:
        """Describe a service job. None for one that is over, is asked to end or lacks the deployment's tag."""
        found = self.api.describe(job_id)
        alive = found is not None and not found.over and not found.terminated
        return found if found is not None and alive and self.owns(found) else None

    def terminate(self, service_job: ServiceJob) -> None:
        """Have AWS Batch end a service job."""
        self.api.terminate(service_job.job_id, reason=STOPPED_BY_SPOTKEEP)

    def owns(self, service_job: ServiceJob) -> bool:
        """Return True if a service job has the deployment's tag."""
        return service_job.tags.get(DEPLOYMENT_TAG) == self.deployment

    def of(self, attempt: Attempt | Run, place: QueuePlace) -> ServiceJobOfAttempt:
        """Return the interface for one attempt, or for a run's current one."""
        known = attempt.training_jobs if isinstance(attempt, Attempt) else TrainingJobs()
        request = attempt.job_request if isinstance(attempt, Attempt) else None
        return ServiceJobOfAttempt(
            jobs=self,
            place=place,
            instance_count=attempt.place.instance_count,
            job_arn=attempt.job_id,
            known=known,
            recorded_request=request,
        )


@dataclass(frozen=True, kw_only=True)
class ServiceJobOfAttempt:
    """One attempt in a queue, through the interface `Backend`.

    Attributes:
        jobs: The deployment's service jobs.
        place: Where it waits.
        instance_count: The number of instances of each of its training jobs.
        job_arn: The ARN of its service job, where that is recorded.
        known: The training jobs that are recorded.
        recorded_request: The request that is recorded. None where only the run item is known.
    """

    jobs: ServiceJobs
    place: QueuePlace
    instance_count: int
    job_arn: str | None
    known: TrainingJobs
    recorded_request: Mapping[str, Any] | None

    def create(self, request: Mapping[str, Any], /) -> str:
        """Submit the service job of a request, unless it was submitted before. Return its ARN."""
        found = self._found(request["TrainingJobName"], request)
        if found:
            return found[0].arn
        return self.jobs.api.submit(submission_of(request, place=self.place, deployment=self.jobs.deployment))

    def observe(self, job_name: str, /) -> JobView | None:
        """Describe the service job and its training jobs. None if there is none."""
        service_job, others = self._service_job(job_name)
        if service_job is None:
            return None
        seen = {name: self.jobs.training_jobs.observe(name) for name in to_describe(service_job, known=self.known)}
        view = as_job_view(
            service_job, known=self.known, seen=seen, instance_count=self.instance_count, now=self.jobs.now()
        )
        return replace(view, has_more_to_do=bool(others))

    def settle(self, job_name: str, /) -> JobView | None:
        """Terminate a second submission, and describe the service job that goes on."""
        _, others = self._service_job(job_name)
        for other in others:
            self.jobs.api.terminate(other.job_id, reason=TWICE)
        return self.observe(job_name)

    def stop(self, job_name: str, /) -> bool:
        """Terminate the service job. AWS Batch stops its training job, which saves, and creates no other."""
        service_job, others = self._service_job(job_name)
        if service_job is None:
            raise JobNotFoundError(
                operation="DescribeServiceJob", code="NotFound", reason=f"no service job {job_name} of this launch"
            )
        stopped = False
        for each in (service_job, *others):
            if not each.over and not each.terminated:
                self.jobs.api.terminate(each.job_id, reason=STOPPED_BY_SPOTKEEP)
                stopped = True
        return stopped

    def _service_job(self, job_name: str) -> tuple[ServiceJob | None, tuple[ServiceJob, ...]]:
        """Return the attempt's service job, and those that were submitted beside it and are not over."""
        if self.job_arn is not None:
            return self.jobs.api.describe(job_id_of(self.job_arn)), ()
        if self.recorded_request is None:
            return None, ()
        found = self._found(job_name, self.recorded_request)
        if not found:
            return None, ()
        first, *others = found
        return first, tuple(each for each in others if not each.over and not each.terminated)

    def _found(self, job_name: str, request: Mapping[str, Any]) -> list[ServiceJob]:
        """Return the service jobs of the queue that have the marks of a launch, oldest first."""
        queue = job_queue_name(deployment=self.jobs.deployment, queue=self.place.queue)
        named = self.jobs.api.named(job_name, job_queue=queue)
        return [each for each in named if is_same_launch(environment=each.environment, parameters=request)]
