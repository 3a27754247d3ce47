"""The interface to the services that run attempts, which are SageMaker, AWS Batch's queues and EC2 fleets. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spotkeep_jobs.backends.job_view import JobView


class Backend(Protocol):
    """The calls that Spotkeep makes to a service that runs attempts. Every call is safe to make twice."""

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
        """Take the steps that are due for a job and that its service leaves to Spotkeep. Describe the job afterwards.

        For a fleet with finished training, this deletes the fleet and terminates the instance. It also records facts
        that EC2 would forget. `JobView.has_more_to_do` is true while there is something to do.

        Raises:
            AwsCallError: AWS refused or could not answer.
        """
        ...

    def stop(self, job_name: str, /) -> bool:
        """Ask a job to stop. The container gets SIGTERM, and SIGKILL 120 s later.

        Returns:
            False where the job had stopped already.

        Raises:
            JobNotFoundError: No job has that name.
            AwsCallError: AWS refused or could not answer.
        """
        ...
