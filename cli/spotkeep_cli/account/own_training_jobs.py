"""SageMaker's training jobs as the users' policy shows them: the names of all, and no more of other deployments' jobs.

IAM binds DescribeTrainingJob and ListTags by the tag of a job. It has no such bound for Search, which answers whole
jobs and is therefore not in the policy. A job without the tag, and one that is not there, are both denied.

Source: https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonsagemakerai.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.backends.sagemaker.api import SageMakerTrainingJobs
from spotkeep_jobs.backends.sagemaker.request import DEPLOYMENT_TAG
from spotkeep_jobs.document.times import MAX_WAIT_SECONDS
from spotkeep_jobs.errors import AwsRefusedError

if TYPE_CHECKING:
    from mypy_boto3_sagemaker.client import SageMakerClient

    from spotkeep_jobs.backends.job_view import JobView

_DENIED: Final = "AccessDeniedException"
_LONGEST_JOB: Final = timedelta(seconds=MAX_WAIT_SECONDS)
"""SageMaker ends every job by then, which bounds the history that a list goes through."""


class OwnTrainingJobs(SageMakerTrainingJobs):
    """The training jobs that carry the deployment's tag, with the credentials of a user."""

    def __init__(self, client: SageMakerClient, *, clock: Callable[[], datetime]) -> None:
        """Bind the client.

        Args:
            client: A boto3 client of SageMaker, with the user's credentials.
            clock: The time, aware.
        """
        super().__init__(client)
        self._clock = clock

    def search_in_progress(self, deployment: str, /) -> Iterator[JobView]:
        """Yield the deployment's jobs in progress, found by their names and their tags instead of a search."""
        recent = {"StatusEquals": "InProgress", "CreationTimeAfter": self._clock() - _LONGEST_JOB}
        for summary in self.listed(recent):
            if self.tags(summary.arn).get(DEPLOYMENT_TAG) != deployment:
                continue
            job = self.observe(summary.name)
            if job is not None and not job.ended:
                yield job

    def observe(self, job_name: str, /) -> JobView | None:
        """Describe a job; None if there is none of that name, or it is not the deployment's."""
        try:
            return super().observe(job_name)
        except AwsRefusedError as error:
            if error.code != _DENIED:
                raise
            return None

    def tags(self, arn: str, /) -> Mapping[str, str]:
        """Return a job's tags; none of a job that is not the deployment's."""
        try:
            return super().tags(arn)
        except AwsRefusedError as error:
            if error.code != _DENIED:
                raise
            return {}
