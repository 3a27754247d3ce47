"""SageMaker's training API. No other module calls its client.

A job's name is fixed before it is created. A retry of a lost call that took effect therefore raises
`TrainingJobNameTakenError`. A description of the job then distinguishes it from a stranger's. botocore retries
throttled calls and lost connections (`client_config`). A failure after that is an `AwsBusyError`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from spotkeep_fleet.shells import training_job_target
from spotkeep_jobs.backends.backend import (
    ON_INSTANCES_PHASES,
    JobPhase,
    JobSummary,
    JobView,
    PhaseChange,
    WarmPoolStatus,
)
from spotkeep_jobs.backends.sagemaker.training_job import (
    DEPLOYMENT_TAG,
    ERROR_OF_SAGEMAKER,
    end_reason_of,
    phase_of,
    traits_of,
    transition_of,
)
from spotkeep_jobs.errors import AwsCallError, AwsRefusedError, JobNotFoundError, TrainingJobNameTakenError
from spotkeep_jobs.record.states import EndReason
from spotkeep_jobs.temporary_errors import typed_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from botocore.config import Config
    from mypy_boto3_sagemaker import SageMakerClient

    from spotkeep_jobs.record.record import Capacity

CREATE_ATTEMPTS = 5
_JOBS_A_PAGE = 100
_CONNECT_TIMEOUT_SECONDS = 3
_READ_TIMEOUT_SECONDS = 8

_SDK_SCRIPT = "/sm_drivers/sm_train.sh"
"""The script of `ModelTrainer` that bash starts. Source: `sagemaker/train/constants.py` of the SageMaker SDK 3."""
_SAYS_NOT_FOUND = re.compile(r"not found|could not find|does not exist", re.IGNORECASE)
_SAYS_ENDED = re.compile(r"\b(?:completed|failed|stopped|stopping)\b", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class AdoptableJob:
    """A training job that another client created.

    Attributes:
        view: SageMaker's present view of it.
        capacity: The kind of its capacity, spot for a managed spot job.
        checkpoint_uri: The `s3://` address to which SageMaker copies its checkpoints. None for a job without
            CheckpointConfig.
        output_prefix: S3OutputPath, with a closing slash, or empty for a job that has none.
        tuning_job: The name of the tuning job that created it, or None where none did.
        starts_by_sdk: True where the script of the SageMaker SDK 3 starts it.
        longest_seconds: Its limit in seconds for all its time, waiting included. None where it has no such limit.
    """

    view: JobView
    capacity: Capacity
    checkpoint_uri: str | None
    output_prefix: str
    tuning_job: str | None
    starts_by_sdk: bool
    longest_seconds: int | None


class SageMakerTrainingJobs:
    """The backend of SageMaker, which also keeps warm pools, and describes many jobs at once.

    Args:
        client: The client of SageMaker. Make it with `client_config`.
    """

    def __init__(self, client: SageMakerClient) -> None:
        self._client = client

    def create(self, request: Mapping[str, Any], /) -> str:
        """Create a training job and return its ARN."""
        return str(self._call("create_training_job", **request)["TrainingJobArn"])

    def observe(self, job_name: str, /) -> JobView | None:
        """Describe a job. None if there is none of that name."""
        try:
            return _job_view_of(self._call("describe_training_job", TrainingJobName=job_name))
        except JobNotFoundError:
            return None

    def adoptable(self, job_name: str, /) -> AdoptableJob | None:
        """Describe a job that another client created. None if there is none of that name.

        Raises:
            AwsCallError: SageMaker refused or could not answer.
        """
        try:
            answer = self._call("describe_training_job", TrainingJobName=job_name)
        except JobNotFoundError:
            return None
        return _adoptable_job_of(answer)

    def settle(self, job_name: str, /) -> JobView | None:
        """Describe a job. SageMaker ends its instances by itself."""
        return self.observe(job_name)

    def with_waiting_pool(self, *, since: datetime) -> Iterator[JobSummary]:
        """List the ended jobs of the whole account with a warm pool that waits for a next job.

        Args:
            since: The earliest time of their last change, which bounds the search.

        Raises:
            AwsCallError: SageMaker refused or could not answer.
        """
        return self.listed({"WarmPoolStatusEquals": "Available", "LastModifiedTimeAfter": since})

    def tags(self, arn: str, /) -> Mapping[str, str]:
        """Return a job's tags. They are 50 at most and fit in one page.

        Raises:
            AwsCallError: SageMaker refused or could not answer.
        """
        entries: Sequence[Mapping[str, str]] = self._call("list_tags", ResourceArn=arn, MaxResults=50)["Tags"]
        return {entry["Key"]: entry["Value"] for entry in entries}

    def listed(self, wanted: Mapping[str, Any]) -> Iterator[JobSummary]:
        """List jobs of the account, those of other clients too.

        Args:
            wanted: Filters, as ListTrainingJobs takes them.

        Raises:
            AwsCallError: SageMaker refused or could not answer.
        """
        for page in self._pages("list_training_jobs", **wanted):
            for entry in page["TrainingJobSummaries"]:
                yield JobSummary(
                    name=entry["TrainingJobName"],
                    arn=entry["TrainingJobArn"],
                    ended_at=entry.get("TrainingEndTime"),
                    last_modified_at=entry.get("LastModifiedTime"),
                )

    def search_in_progress(self, deployment: str, /) -> Iterator[JobView]:
        """Find every job of a deployment that is InProgress, as far as the index knows. The index is a little behind.

        ListTrainingJobs does not serve here. It takes a page of the account's whole history and then leaves out the
        ended jobs. So its calls grow with every job there ever was. It returns no more than a status of each.
        Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ListTrainingJobs.html (Note),
        https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_Search.html

        Args:
            deployment: The value of its jobs' tag `spotkeep:deployment`.

        Raises:
            AwsCallError: SageMaker refused or could not answer.
        """
        wanted = {"TrainingJobStatus": "InProgress", f"Tags.{DEPLOYMENT_TAG}": deployment}
        filters = [{"Name": name, "Operator": "Equals", "Value": value} for name, value in wanted.items()]
        for page in self._pages("search", Resource="TrainingJob", SearchExpression={"Filters": filters}):
            for record in page["Results"]:
                yield _job_view_of(record["TrainingJob"])

    def stop(self, job_name: str, /) -> bool:
        """Ask a job to stop. Return False if it had stopped already."""
        try:
            self._call("stop_training_job", TrainingJobName=job_name)
        except AwsRefusedError as error:
            if _SAYS_ENDED.search(error.reason):
                return False
            raise
        return True

    def keep_alive(self, job_name: str, seconds: int, /) -> None:
        """Change the keep-alive period of the warm pool that an ended job left. 0 ends the pool.

        Raises:
            AwsRefusedError: The pool is not there any more, or the period is above a limit.
            AwsCallError: SageMaker refused or could not answer.
        """
        self._call(
            "update_training_job", TrainingJobName=job_name, ResourceConfig={"KeepAlivePeriodInSeconds": seconds}
        )

    def take_sessions(self, job_name: str, /) -> None:
        """Switch remote debugging on in a job that loads or trains. Its container's agent then connects by itself.

        Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_UpdateTrainingJob.html

        Raises:
            AwsRefusedError: The job neither loads nor trains any more.
            AwsCallError: SageMaker refused or could not answer.
        """
        self._call("update_training_job", TrainingJobName=job_name, RemoteDebugConfig={"EnableRemoteDebug": True})

    def _pages(self, method: str, **query: Any) -> Iterator[Mapping[str, Any]]:
        query["MaxResults"] = _JOBS_A_PAGE
        while True:
            page = self._call(method, **query)
            yield page
            if not page.get("NextToken"):
                return
            query["NextToken"] = page["NextToken"]

    def _call(self, method: str, **parameters: Any) -> Mapping[str, Any]:
        kind_of = _kind_of_creation if method == "create_training_job" else _kind_of
        with typed_errors(method, kind_of=kind_of):
            answer: Mapping[str, Any] = getattr(self._client, method)(**parameters)
        return answer


def client_config() -> Config:
    """Return the settings of a client, which makes a few patient retries that end within the function's minute.

    AWS limits CreateTrainingJob to one call a second per account and region, so it throttles every burst of launches.
    Standard mode retries throttles, server errors and lost connections with jittered backoff.
    Source: https://docs.aws.amazon.com/boto3/latest/guide/retries.html
    """
    from botocore.config import Config

    return Config(
        retries={"mode": "standard", "total_max_attempts": CREATE_ATTEMPTS},
        connect_timeout=_CONNECT_TIMEOUT_SECONDS,
        read_timeout=_READ_TIMEOUT_SECONDS,
    )


def _job_view_of(answer: Mapping[str, Any]) -> JobView:
    """Read an answer of DescribeTrainingJob, as boto3 gives it."""
    resources: Mapping[str, Any] = answer.get("ResourceConfig", {})
    status, secondary_status = answer["TrainingJobStatus"], answer["SecondaryStatus"]
    entries: Sequence[Mapping[str, Any]] = answer.get("SecondaryStatusTransitions", ())
    phase, reason = phase_of(status, secondary_status), None
    transitions = tuple(_changes_of(entries))
    if phase is JobPhase.INTERRUPTED and transitions and transitions[-1].phase is JobPhase.WAITING:
        phase = JobPhase.WAITING
    instance_type, count = _instances_of(resources)
    if phase is JobPhase.ENDED:
        words = [entry["Status"] for entry in entries]
        reason = end_reason_of(status, secondary_status, transitions=words, failure_reason=answer.get("FailureReason"))
        if reason is EndReason.STOPPED_BY_USER and _was_pending_for_too_long(answer):
            reason = EndReason.MAX_WAIT_EXCEEDED
    return JobView(
        name=answer["TrainingJobName"],
        job_id=answer["TrainingJobArn"],
        phase=phase,
        end_reason=reason,
        created_at=answer["CreationTime"],
        last_modified_at=answer.get("LastModifiedTime"),
        training_started_at=answer.get("TrainingStartTime"),
        training_ended_at=answer.get("TrainingEndTime"),
        training_seconds=answer.get("TrainingTimeInSeconds"),
        billable_seconds=answer.get("BillableTimeInSeconds"),
        failure_reason=answer.get("FailureReason"),
        instance_type=instance_type,
        instance_count=count,
        model_uri=answer.get("ModelArtifacts", {}).get("S3ModelArtifacts"),
        transitions=transitions,
        environment=dict(answer.get("Environment", {})),
        keep_alive_seconds=resources.get("KeepAlivePeriodInSeconds") or 0,
        warm_pool=_warm_pool_of(answer),
        pool_traits=traits_of(answer),
        tuning_job_arn=answer.get("TuningJobArn"),
        session_targets=_session_targets_of(answer, phase=phase, hosts=count),
        remote_debugging_off_in=None if _takes_sessions(answer) else answer["TrainingJobName"],
    )


def _instances_of(resources: Mapping[str, Any]) -> tuple[str | None, int]:
    """Return the instance type of a job, where it is known, and the number of its instances.

    A heterogeneous cluster has several types, and the job of another client may have a number for each preference.
    """
    if groups := resources.get("InstanceGroups"):
        first, *others = dict.fromkeys(group["InstanceType"] for group in groups)
        # A record has no room for the names of all five.
        named = [first, *others] if len(others) < 2 else [first, f"{len(others)} other types"]
        return " and ".join(named), sum(group["InstanceCount"] for group in groups)
    preferred = max((each.get("InstanceCount", 0) for each in resources.get("InstancePreferences") or ()), default=0)
    instance_type = resources.get("SelectedInstanceType") or resources.get("InstanceType")
    return instance_type, resources.get("SelectedInstanceCount") or resources.get("InstanceCount") or preferred or 1


def _adoptable_job_of(answer: Mapping[str, Any]) -> AdoptableJob:
    view = _job_view_of(answer)
    output = answer.get("OutputDataConfig", {}).get("S3OutputPath", "")
    words, limits = answer.get("AlgorithmSpecification", {}), answer.get("StoppingCondition", {})
    return AdoptableJob(
        view=view,
        capacity="spot" if answer.get("EnableManagedSpotTraining") else "on-demand",
        checkpoint_uri=answer.get("CheckpointConfig", {}).get("S3Uri"),
        output_prefix=f"{output.rstrip('/')}/" if output else "",
        tuning_job=None if view.tuning_job_arn is None else view.tuning_job_arn.rpartition("/")[2],
        starts_by_sdk=any(_SDK_SCRIPT in word for word in [*words.get("ContainerArguments", ())]),
        longest_seconds=limits.get("MaxWaitTimeInSeconds") or limits.get("MaxRuntimeInSeconds"),
    )


def _session_targets_of(answer: Mapping[str, Any], *, phase: JobPhase, hosts: int) -> tuple[str, ...]:
    """Return the containers of a job while it trains. With remote debugging they take sessions.

    Source: https://docs.aws.amazon.com/sagemaker/latest/dg/train-remote-debugging.html (Access your training container)
    """
    if phase is not JobPhase.TRAINING:
        return ()
    return tuple(training_job_target(answer["TrainingJobName"], host) for host in range(1, hosts + 1))


def _takes_sessions(answer: Mapping[str, Any]) -> bool:
    return bool(answer.get("RemoteDebugConfig", {}).get("EnableRemoteDebug"))


def _was_pending_for_too_long(answer: Mapping[str, Any]) -> bool:
    """Return True if SageMaker stopped a job that got no instances within its MaxPendingTimeInSeconds.

    Its status is Stopped, as after a user's stop. AWS documents no word of its own for it.
    Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_StoppingCondition.html
    """
    limit = answer.get("StoppingCondition", {}).get("MaxPendingTimeInSeconds")
    ended_at = answer.get("TrainingEndTime") or answer.get("LastModifiedTime")
    if limit is None or ended_at is None or answer.get("TrainingStartTime") is not None:
        return False
    return bool(ended_at - answer["CreationTime"] >= timedelta(seconds=limit))


def _warm_pool_of(answer: Mapping[str, Any]) -> WarmPoolStatus | None:
    status: Mapping[str, Any] | None = answer.get("WarmPoolStatus")
    if not status:
        return None
    return WarmPoolStatus(
        status=status["Status"],
        idle_seconds=status.get("ResourceRetainedBillableTimeInSeconds"),
        reused_by=status.get("ReusedByJob"),
    )


def _changes_of(entries: Sequence[Mapping[str, Any]]) -> Iterator[PhaseChange]:
    had_instances = False
    for entry in entries:
        # Its StatusMessage says no more than its Status.
        phase, text = transition_of(entry["Status"])
        restarts = text == ERROR_OF_SAGEMAKER
        if restarts and not had_instances:
            phase = JobPhase.WAITING  # What it never had, it has not lost.
        had_instances = had_instances or phase in ON_INSTANCES_PHASES
        yield PhaseChange(
            phase=phase, started_at=entry["StartTime"], ended_at=entry.get("EndTime"), text=text, error_of_aws=restarts
        )


def _kind_of_creation(code: str, _reason: str) -> type[AwsCallError]:
    return TrainingJobNameTakenError if code == "ResourceInUse" else AwsRefusedError


def _kind_of(code: str, reason: str) -> type[AwsCallError]:
    # DescribeTrainingJob answers "Requested resource not found." as a ValidationException.
    if code == "ResourceNotFound" or (code == "ValidationException" and _SAYS_NOT_FOUND.search(reason)):
        return JobNotFoundError
    return AwsRefusedError
