"""AWS Batch's service jobs. No other module calls its client.

botocore retries throttled calls and lost connections (`client_config`), with the same client token. A failure after
that is an `AwsBusyError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spotkeep_jobs.backends.batch.service_job import ServiceJob, service_job_of
from spotkeep_jobs.errors import AwsBusyError, AwsCallError, AwsRefusedError, JobNotFoundError
from spotkeep_jobs.temporary_errors import typed_errors

_SERVER_ERROR: Final = "ServerException"
_JOBS_A_PAGE: Final = 100
_SAYS_NOT_FOUND: Final = re.compile(r"not found|could not find|does not exist", re.IGNORECASE)
# "The second request is rejected", says the API reference, and not with which words.
_SAYS_SUBMITTED: Final = re.compile(r"token|idempot|duplicate|already", re.IGNORECASE)
UNFINISHED: Final = ("SUBMITTED", "PENDING", "RUNNABLE", "SCHEDULED", "STARTING", "RUNNING")
"""The states in which a service job has, or will have, a training job."""


@dataclass(frozen=True)
class ServiceJobsApi:
    """AWS Batch's service jobs, on a boto3 client. Make the client with `client_config`.

    Attributes:
        batch: Creates the client of AWS Batch at its first use, as most deployments have no queue.
    """

    batch: Callable[[], Any]

    def submit(self, request: Mapping[str, Any], /) -> str:
        """Submit a service job. Return its ARN.

        Raises:
            AwsRefusedError: It will never be accepted.
            AwsBusyError: It may or may not have been submitted. Or it was submitted before, with the same token.
        """
        answer = self._call("submit_service_job", **request)
        if "jobArn" in answer:
            return str(answer["jobArn"])
        submitted = self.describe(answer["jobId"])
        if submitted is None:
            reason = f"the service job {answer['jobId']} cannot be described yet"
            raise AwsBusyError(operation="DescribeServiceJob", code="NotFound", reason=reason)
        return submitted.arn

    def describe(self, job_id: str, /) -> ServiceJob | None:
        """Describe a service job. None if no job has that id, or AWS Batch no longer keeps it."""
        try:
            return service_job_of(self._call("describe_service_job", jobId=job_id))
        except JobNotFoundError:
            return None

    def named(self, name: str, /, *, job_queue: str) -> Iterator[ServiceJob]:
        """Describe each service job of a queue that has a name, those of other clients too, oldest first."""
        ids = [
            (entry.get("createdAt", 0), entry["jobId"])
            for entry in self._listed({"jobQueue": job_queue, "filters": [{"name": "JOB_NAME", "values": [name]}]})
            if entry["jobName"] == name
        ]
        for _, job_id in sorted(ids):
            if (found := self.describe(job_id)) is not None:
                yield found

    def unfinished(self, *, job_queue: str) -> Iterator[str]:
        """Yield the ids of the service jobs of a queue that are not over."""
        for status in UNFINISHED:
            for entry in self._listed({"jobQueue": job_queue, "jobStatus": status}):
                yield entry["jobId"]

    def terminate(self, job_id: str, /, *, reason: str) -> None:
        """Ask AWS Batch to end a service job. Batch stops its training job and creates no other.

        Raises:
            JobNotFoundError: No service job has that id.
            AwsCallError: AWS refused or could not answer.
        """
        self._call("terminate_service_job", jobId=job_id, reason=reason)

    def change_priority(self, job_id: str, /, *, priority: int) -> None:
        """Give a service job another priority.

        Raises:
            JobNotFoundError: There is none of that id.
            AwsCallError: AWS refused or could not answer.
        """
        self._call("update_service_job", jobId=job_id, schedulingPriority=priority)

    def _listed(self, wanted: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        query: dict[str, Any] = {**wanted, "maxResults": _JOBS_A_PAGE}
        while True:
            page = self._call("list_service_jobs", **query)
            yield from page["jobSummaryList"]
            if not page.get("nextToken"):
                return
            query["nextToken"] = page["nextToken"]

    def _call(self, method: str, **parameters: Any) -> Mapping[str, Any]:
        kind_of = _kind_of_submission if method == "submit_service_job" else _kind_of
        with typed_errors(method, kind_of=kind_of):
            answer: Mapping[str, Any] = getattr(self.batch(), method)(**parameters)
        return answer


def _kind_of_submission(code: str, reason: str) -> type[AwsCallError]:
    # With the same token it may have been submitted before: the next search of the queue finds it.
    return AwsBusyError if code == _SERVER_ERROR or _SAYS_SUBMITTED.search(reason) else AwsRefusedError


def _kind_of(code: str, reason: str) -> type[AwsCallError]:
    if code == _SERVER_ERROR:
        return AwsBusyError
    return JobNotFoundError if _SAYS_NOT_FOUND.search(reason) else AwsRefusedError
