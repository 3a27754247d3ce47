"""The seam to the services that run attempts: SageMaker's training jobs, AWS Batch's queues of them, and EC2 fleets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spotkeep_jobs.backends.batch.jobs import ServiceJobs
    from spotkeep_jobs.backends.job_view import JobView
    from spotkeep_jobs.record.record import Attempt, Run


class Backend(Protocol):
    """What Spotkeep asks of a service that runs attempts. Every call is safe to make twice."""

    def create(self, request: Mapping[str, Any], /) -> str:
        """Create a job and return its ARN, or the id of its fleet.

        Raises:
            TrainingJobNameTakenError: A job of that name exists.
            AwsRefusedError: The request will never be accepted. Nothing was created.
            AwsBusyError: It may or may not have been created.
        """
        ...

    def observe(self, job_name: str, /) -> JobView | None:
        """Describe a job. None if there is none of that name. Changes nothing, neither in AWS nor in a record.

        Raises:
            AwsCallError: AWS refused or could not answer.
        """
        ...

    def settle(self, job_name: str, /) -> JobView | None:
        """Do what is due about what a job runs on, where its service leaves that to us, and describe it afterwards.

        Of a fleet whose training is over, it deletes the fleet and terminates the instance. It also writes down what
        EC2 would forget. `JobView.has_more_to_do` says when there is something to do.

        Raises:
            AwsCallError: AWS refused or could not answer.
        """
        ...

    def stop(self, job_name: str, /) -> bool:
        """Ask a job to stop: SIGTERM, then 120 s later SIGKILL.

        Returns:
            False if there was nothing to stop any more.

        Raises:
            TrainingJobNotFoundError: No job has that name.
            AwsCallError: AWS refused or could not answer.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Backends:
    """The services that run attempts.

    Attributes:
        sagemaker: Training jobs.
        ec2: Fleets of one instance.
        queues: Training jobs that wait in a queue for their turn.
    """

    sagemaker: Backend
    ec2: Backend
    queues: ServiceJobs

    def of(self, attempt: Attempt | Run) -> Backend:
        """Return the service that runs an attempt, or a run's current one."""
        if attempt.place.queue is not None:
            return self.queues.of(attempt, attempt.place.queue)
        return self.ec2 if attempt.place.backend == "ec2" else self.sagemaker
