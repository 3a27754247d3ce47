"""The CreateTrainingJob request of one attempt, and the meaning of SageMaker's statuses of its job. Pure.

The request is a function of the run's request and of the deployment.
The container runs `spotkeep.pyz` from an input channel, so any image with `python3` will do. A second channel brings
the training spec. An environment variable holds the spec's path. Without a command the image's own entry point runs,
and no file of Spotkeep is in the job.

Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateTrainingJob.html
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from spotkeep_fleet.ecr_images import ecr_registry
from spotkeep_fleet.run_prefixes import run_prefix, specs_prefix
from spotkeep_fleet.training_spec import HOST_LOST, NOT_STARTED, SPEC_CHANNEL, SPEC_VARIABLE
from spotkeep_jobs.backends.backend import JobPhase
from spotkeep_jobs.document.capacity import Fallback, NextJob, has_local_disks
from spotkeep_jobs.document.command import SpecObject, spec_object, training_spec_of
from spotkeep_jobs.document.image import processor_of
from spotkeep_jobs.document.metrics import MetricRequest
from spotkeep_jobs.document.reading import RUN_ID_HEX_DIGITS
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.source import AnyChannel, ArchiveSource, Channel
from spotkeep_jobs.document.times import MAX_WAIT_SECONDS, NO_CHECKPOINTS_SPOT_SECONDS
from spotkeep_jobs.record.record import Attempt, PoolTraits
from spotkeep_jobs.record.states import EndReason

DEPLOYMENT_TAG: Final = "spotkeep:deployment"
"""The tag of a job that names its deployment."""
RUN_TAG: Final = "spotkeep:run"
"""The tag of a job that names its run."""
RESTARTS: Final = 3
"""The number of restarts after an error of SageMaker's own, by SageMaker or, in a queue, by AWS Batch.

A restart is the same training job, or the same service job, so there is one writer (I1). `MaxRuntimeInSeconds` counts
all its starts. The controller launches a next job of the run where this is not enough.

Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_RetryStrategy.html
"""
CHECKPOINT_DIRECTORY: Final = "/opt/ml/checkpoints"
INPUT_DIRECTORY: Final = "/opt/ml/input/data"
BUNDLE_CHANNEL: Final = "spotkeep"
SOURCE_CHANNEL: Final = "source"
RUN_VARIABLE: Final = "SPOTKEEP_RUN"
"""The environment variable in which a job that a launcher created finds its run."""
LAUNCH_VARIABLE: Final = "SPOTKEEP_LAUNCH"
"""The environment variable in which the job finds the id of its launch."""
ATTEMPT_VARIABLE: Final = "SPOTKEEP_ATTEMPT"
"""The environment variable in which the job finds its number."""
LAUNCH_MARKS: Final = (RUN_VARIABLE, ATTEMPT_VARIABLE, LAUNCH_VARIABLE)
"""The environment variables that distinguish a launch from any other (`marks_of`)."""
LAUNCH_ID_HEX_DIGITS: Final = 32


@dataclass(frozen=True, kw_only=True)
class JobPlatform:
    """The settings that a deployment gives every training job.

    Attributes:
        deployment: the deployment's name.
        checkpoint_bucket: the bucket of checkpoints and outputs, each run's below `run_prefix`.
        execution_role_arn: the ARN of the job's role.
        training_bundle_uri: S3 URI of the copy of `spotkeep.pyz`, pinned by the hash in its key.
        volume_kms_key_arn: the ARN of the KMS key that encrypts volumes and outputs, or None for AWS's own key.
        subnet_ids: the subnets of the job, empty for SageMaker's own network.
        security_group_ids: the security groups that go with them.
        team_role_arns: the roles of teams that have one of their own, by team. Their warm pools fit no other team's
            jobs.
    """

    deployment: str
    checkpoint_bucket: str
    execution_role_arn: str
    training_bundle_uri: str
    volume_kms_key_arn: str | None = None
    subnet_ids: tuple[str, ...] = ()
    security_group_ids: tuple[str, ...] = ()
    team_role_arns: Mapping[str, str] = field(default_factory=dict)

    def role_arn_for(self, team: str | None) -> str:
        """Return the role of a team's jobs. It is the deployment's where a team has none, or there is no team."""
        return self.team_role_arns.get(team or "", self.execution_role_arn)

    def run_uri(self, run: str, *, team: str | None) -> str:
        """Return the address to which a run's jobs write, with a closing slash. An isolated team has its own prefix."""
        return f"s3://{self.checkpoint_bucket}/{run_prefix(run, team=self._isolated(team))}"

    def specs_uri(self, run: str, *, team: str | None) -> str:
        """Return the place of a run's training specs, with a closing slash."""
        return f"s3://{self.checkpoint_bucket}/{specs_prefix(run, team=self._isolated(team))}"

    def _isolated(self, team: str | None) -> str | None:
        return team if team in self.team_role_arns else None


def run_id_for(*, name: str, token: str) -> str:
    """Return the run id of a request that names none. The same token gives the same id."""
    return f"{name}-{hashlib.sha256(token.encode()).hexdigest()[:RUN_ID_HEX_DIGITS]}"


def job_name_for(*, run: str, attempt: int) -> str:
    """Return the name of an attempt's training job. It is deterministic, so that a retried launch finds its own job."""
    return f"{run}-{attempt}"


def following_launch_id(launch_id: str, *, attempt: int) -> str:
    """Return the id of a run's next launch, from its last one's. Every function that decides to launch gets the same.

    Args:
        launch_id: The id of the last launch.
        attempt: The number of the next attempt.
    """
    return hashlib.sha256(f"{launch_id}\n{attempt}".encode()).hexdigest()[:LAUNCH_ID_HEX_DIGITS]


def marks_of(*, run: str, attempt: int, launch_id: str) -> dict[str, str]:
    """Return the variables in the job's environment that distinguish a launch from any other.

    A job that holds the launch's id is Spotkeep's. One of the same name without it belongs to a stranger, or to an
    earlier run with an expired record. The job prints the id with each event. A line without it is not this job's.

    Args:
        run: the run's id.
        attempt: from 1.
        launch_id: random, 32 hexadecimal digits, so that no other job can know it.
    """
    return {RUN_VARIABLE: run, ATTEMPT_VARIABLE: str(attempt), LAUNCH_VARIABLE: launch_id}


def launch_id_of(attempt: Attempt) -> str | None:
    """Return the id of an attempt's launch. None for an attempt without a recorded request."""
    if attempt.job_request is None:
        return None
    launch_id: str | None = attempt.job_request["Environment"].get(LAUNCH_VARIABLE)
    return launch_id


def without_launch_id(attempt: Attempt) -> dict[str, Any]:
    """Return an attempt as JSON values to show.

    Its launch's id is left out, since with it anyone can print its job's events.
    """
    document: dict[str, Any] = attempt.model_dump(mode="json")
    launch_id = launch_id_of(attempt)
    if launch_id:
        document["job_request"] = json.loads(json.dumps(document["job_request"]).replace(launch_id, "(not shown)"))
    return document


def checkpoint_uri_for(*, request: JobRequest, run: str, platform: JobPlatform) -> str:
    """Return the S3 prefix of the run's checkpoints, with its closing slash."""
    return request.checkpoint_prefix or f"{platform.run_uri(run, team=request.team)}checkpoints/"


def output_prefix_for(*, request: JobRequest, run: str, platform: JobPlatform) -> str:
    """Return the S3 prefix of the run's outputs. SageMaker adds `<job>/output/model.tar.gz`."""
    return f"{platform.run_uri(run, team=request.team)}output/"


def spec_of(*, request: JobRequest, platform: JobPlatform, run: str) -> SpecObject | None:
    """Return the object that holds the training spec of a run's jobs. None for the image's own entry point.

    Args:
        request: The validated request, defaults filled in.
        platform: The settings that the deployment gives every job.
        run: The run's id.
    """
    if request.command is None:
        return None
    # Where the job's role may write.
    environments = f"{output_prefix_for(request=request, run=run, platform=platform)}environments/"
    spec = training_spec_of(request, environments=environments)
    return spec_object(spec, prefix=platform.specs_uri(run, team=request.team))


def build_training_job_request(
    *, request: JobRequest, job: NextJob, platform: JobPlatform, run: str, attempt: int, launch_id: str
) -> dict[str, Any]:
    """Return the parameters of CreateTrainingJob.

    Args:
        request: the validated request, with defaults filled in, an image and at least one instance type.
        job: the places in which the job asks for capacity, and its time limit for training.
        platform: the settings that the deployment gives every job.
        run: the run's id, at most 52 characters.
        attempt: from 1.
        launch_id: see `marks_of`.
    """
    spec = spec_of(request=request, platform=platform, run=run)
    parameters: dict[str, Any] = {
        "TrainingJobName": job_name_for(run=run, attempt=attempt),
        "RoleArn": platform.role_arn_for(request.team),
        "AlgorithmSpecification": {
            "TrainingImage": request.image,
            "TrainingInputMode": "File",
            **_registry_access(request, platform),
            **_entry_point(request, platform),
        },
        "HyperParameters": dict(request.hyperparameters),
        "Environment": _environment(request, spec, run=run, attempt=attempt, launch_id=launch_id),
        "OutputDataConfig": {"S3OutputPath": output_prefix_for(request=request, run=run, platform=platform)},
        **_place(request, job, kms_key_arn=platform.volume_kms_key_arn),
        "Tags": _tags(request, platform, run=run, attempt=attempt),
    }
    if request.queue is None:
        # In a queue AWS Batch tries again (`submission_of`): both together would multiply.
        parameters["RetryStrategy"] = {"MaximumRetryAttempts": RESTARTS}
    if channels := _channels(request, platform, spec):
        parameters["InputDataConfig"] = channels
    if request.debug:
        parameters["RemoteDebugConfig"] = {"EnableRemoteDebug": True}
    if request.metrics:
        parameters["AlgorithmSpecification"]["MetricDefinitions"] = _metric_definitions(request.metrics)
    if request.checkpoints:
        parameters["CheckpointConfig"] = {
            "S3Uri": checkpoint_uri_for(request=request, run=run, platform=platform),
            "LocalPath": CHECKPOINT_DIRECTORY,
        }
    if platform.volume_kms_key_arn:
        parameters["OutputDataConfig"]["KmsKeyId"] = platform.volume_kms_key_arn
    if platform.subnet_ids:
        parameters["VpcConfig"] = {
            "Subnets": list(platform.subnet_ids),
            "SecurityGroupIds": list(platform.security_group_ids),
        }
    return parameters


def follow_up_request(
    *, previous: Mapping[str, Any], request: JobRequest, job: NextJob, run: str, attempt: int, launch_id: str
) -> dict[str, Any]:
    """Return the parameters of a run's next job. It does the same work, with the same code and role, in another place.

    Args:
        previous: the parameters of the run's last job.
        request: the run's validated request.
        job: the places in which the next one asks for capacity, and its time limit for training.
        run: the run's id.
        attempt: the next job's number.
        launch_id: see `following_launch_id`.
    """
    marks = {ATTEMPT_VARIABLE: str(attempt), LAUNCH_VARIABLE: launch_id}
    work = {name: value for name, value in previous.items() if name not in _PLACE}
    return {
        **work,
        **_place(request, job, kms_key_arn=previous["OutputDataConfig"].get("KmsKeyId")),
        "TrainingJobName": job_name_for(run=run, attempt=attempt),
        "Environment": {**previous["Environment"], **marks},
        "Tags": [
            {**tag, "Value": str(attempt)} if tag["Key"] == "spotkeep:attempt" else tag for tag in previous["Tags"]
        ],
    }


def with_less_wait(parameters: Mapping[str, Any], *, waited: timedelta) -> dict[str, Any]:
    """Return the parameters of a job, with a wait without a job taken off its MaxWaitTimeInSeconds.

    Args:
        parameters: The result of `build_training_job_request` or `follow_up_request`.
        waited: The time that the run has waited.
    """
    stopping = parameters.get("StoppingCondition", {})
    if "MaxWaitTimeInSeconds" not in stopping:
        return dict(parameters)
    left = max(stopping["MaxRuntimeInSeconds"], stopping["MaxWaitTimeInSeconds"] - int(waited.total_seconds()))
    return {**parameters, "StoppingCondition": {**stopping, "MaxWaitTimeInSeconds": left}}


def is_same_launch(*, environment: Mapping[str, str], parameters: Mapping[str, Any]) -> bool:
    """Return True if a job that SageMaker describes is the one for which these parameters ask.

    Args:
        environment: the described job's environment.
        parameters: the result of `build_training_job_request`.
    """
    ours: Mapping[str, str] = parameters["Environment"]
    return all(environment.get(mark) == ours[mark] for mark in LAUNCH_MARKS)


def _registry_access(request: JobRequest, platform: JobPlatform) -> dict[str, Any]:
    """Return the parameter by which SageMaker pulls an image through the job's VPC, where it is not in Amazon ECR.

    Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_TrainingImageConfig.html
    """
    if not platform.subnet_ids or ecr_registry(request.image or "") is not None:
        return {}
    return {"TrainingImageConfig": {"TrainingRepositoryAccessMode": "Vpc"}}


def _entry_point(request: JobRequest, platform: JobPlatform) -> dict[str, list[str]]:
    """Return the parameters that start the runner in the container. None for the image's own entry point."""
    if request.command is None:
        return {}
    bundle = platform.training_bundle_uri.rsplit("/", 1)[-1]
    return {"ContainerEntrypoint": ["python3", f"{INPUT_DIRECTORY}/{BUNDLE_CHANNEL}/{bundle}", "run"]}


def _environment(
    request: JobRequest, spec: SpecObject | None, *, run: str, attempt: int, launch_id: str
) -> dict[str, str]:
    """Return the user's variables, the marks of the launch, and the place of the spec.

    Without a command no runner reads a spec. The launcher then sets the variables that give the spec's settings to a
    script.
    """
    if spec is None:
        variables = training_spec_of(request).script_variables(run=run)
    else:
        variables = {
            **request.environment,
            SPEC_VARIABLE: f"{INPUT_DIRECTORY}/{SPEC_CHANNEL}/{spec.uri.rpartition('/')[2]}",
        }
    return {**variables, **marks_of(run=run, attempt=attempt, launch_id=launch_id)}


def _metric_definitions(metrics: Mapping[str, MetricRequest]) -> list[dict[str, str]]:
    """Return the definitions of the metrics that SageMaker puts into CloudWatch, in `/aws/sagemaker/TrainingJobs`.

    SageMaker finds a metric that the script logs itself in the lines of its events.
    Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_MetricDefinition.html
    """
    return [
        {
            "Name": name,
            "Regex": metric.pattern or rf'"metrics":\{{[^}}]*{re.escape(json.dumps(name))}:(-?[0-9.eE+-]+)',
        }
        for name, metric in metrics.items()
    ]


def _channels(request: JobRequest, platform: JobPlatform, spec: SpecObject | None) -> list[dict[str, Any]]:
    channels = []
    if spec is not None:
        channels += [input_channel(BUNDLE_CHANNEL, platform.training_bundle_uri), input_channel(SPEC_CHANNEL, spec.uri)]
    if isinstance(request.source, ArchiveSource):
        channels.append(input_channel(SOURCE_CHANNEL, request.source.uri))
    return channels + [_data_channel(channel) for channel in request.channels]


def _data_channel(channel: AnyChannel) -> dict[str, Any]:
    """Return the input channel of a job file's channel.

    Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_FileSystemDataSource.html
    """
    if isinstance(channel, Channel):
        return input_channel(
            channel.name, channel.uri, input_mode=channel.input_mode, content_type=channel.content_type
        )
    return {
        "ChannelName": channel.name,
        "InputMode": channel.input_mode,
        **({"ContentType": channel.content_type} if channel.content_type else {}),
        "DataSource": {
            "FileSystemDataSource": {
                "FileSystemId": channel.file_system,
                "FileSystemType": "EFS" if channel.fsx is None else "FSxLustre",
                "FileSystemAccessMode": channel.access,
                "DirectoryPath": channel.path,
            }
        },
    }


def input_channel(name: str, uri: str, *, input_mode: str = "File", content_type: str | None = None) -> dict[str, Any]:
    """Return an input channel of a training job, for all objects with keys that begin with an `s3://` address."""
    return {
        "ChannelName": name,
        "InputMode": input_mode,
        **({"ContentType": content_type} if content_type else {}),
        "DataSource": {
            "S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": "FullyReplicated"}
        },
    }


_SHORTEST_PENDING_SECONDS: Final = 1_800
_LONGEST_PENDING_SECONDS: Final = 2_419_200
_PLACE: Final = frozenset({"ResourceConfig", "StoppingCondition", "EnableManagedSpotTraining"})
"""The parameters that say where a job asks for capacity, and for how long."""


def _place(request: JobRequest, job: NextJob, *, kms_key_arn: str | None) -> dict[str, Any]:
    """Return the parameters that `_PLACE` names. The last of them on spot only."""
    place: dict[str, Any] = {
        "ResourceConfig": _resources(request, job.fallback, kms_key_arn=kms_key_arn),
        "StoppingCondition": {"MaxRuntimeInSeconds": job.max_run_seconds},
    }
    if job.fallback.capacity == "spot":
        # On demand it is left out: beside InstancePreferences, the API reference excludes the field, not only `true`.
        place["EnableManagedSpotTraining"] = True
        place["StoppingCondition"]["MaxWaitTimeInSeconds"] = _max_wait_seconds(request, job)
    elif (pending := _max_pending_seconds(request, job.fallback)) is not None:
        place["StoppingCondition"]["MaxPendingTimeInSeconds"] = pending
    return place


def _max_pending_seconds(request: JobRequest, fallback: Fallback) -> int | None:
    """Return the seconds for which SageMaker keeps a job on demand pending for capacity.

    None for a job that fails at once.

    SageMaker takes the limit for accelerated types alone. Only a document with a time to wait sets it.

    Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_StoppingCondition.html
    """
    waits = request.longest_wait is not None or any(each.longest_wait is not None for each in request.ladder or ())
    seconds = fallback.longest_wait_seconds
    if not waits or seconds is None or seconds < _SHORTEST_PENDING_SECONDS or request.queue is not None:
        return None
    if any(processor_of(each) == "cpu" for each in fallback.instance_types):
        return None
    return min(seconds, _LONGEST_PENDING_SECONDS)


def _max_wait_seconds(request: JobRequest, job: NextJob) -> int:
    if request.max_wait is not None:
        # What is cut from max_run (by max_cost, by earlier jobs) is not to be waited for instead.
        return request.max_wait - (request.max_run - job.max_run_seconds)
    # On a ladder each fallback's own rule ends the wait; AWS's limit, which counts all of them, is out of the way.
    return MAX_WAIT_SECONDS if request.checkpoints else NO_CHECKPOINTS_SPOT_SECONDS


def _resources(request: JobRequest, fallback: Fallback, *, kms_key_arn: str | None) -> dict[str, Any]:
    resources: dict[str, Any] = {"InstanceCount": request.instance_count, "VolumeSizeInGB": request.volume_size_gb}
    if len(fallback.instance_types) == 1:
        resources["InstanceType"] = fallback.instance_types[0]
    else:
        # One count for the job: AWS refuses it in the preferences and beside them at once.
        resources["InstancePreferences"] = [
            {"InstanceType": instance_type} for instance_type in fallback.instance_types
        ]
    if request.keep_alive:
        resources["KeepAlivePeriodInSeconds"] = request.keep_alive
    if kms_key_arn and not any(map(has_local_disks, fallback.instance_types)):
        resources["VolumeKmsKeyId"] = kms_key_arn
    return resources


def _tags(request: JobRequest, platform: JobPlatform, *, run: str, attempt: int) -> list[dict[str, str]]:
    own = {
        DEPLOYMENT_TAG: platform.deployment,
        RUN_TAG: run,
        "spotkeep:attempt": str(attempt),
        **({"spotkeep:owner": request.owner} if request.owner else {}),
    }
    return [{"Key": key, "Value": value} for key, value in {**request.tags, **own}.items()]


def traits_of(document: Mapping[str, Any]) -> PoolTraits | None:
    """Return the traits that SageMaker compares to find a warm pool.

    They come from a request or a described training job.

    Returns:
        None for a job that can neither leave nor take a pool, such as a heterogeneous cluster or a serverless job.
    """
    resources: Mapping[str, Any] = document.get("ResourceConfig") or {}
    types = [preference["InstanceType"] for preference in resources.get("InstancePreferences") or ()]
    instance_type = resources.get("SelectedInstanceType") or resources.get("InstanceType") or " or ".join(types)
    role = document.get("RoleArn")
    if not instance_type or not role or resources.get("InstanceGroups"):
        return None
    network: Mapping[str, Any] = document.get("VpcConfig") or {}
    return PoolTraits(
        role_arn=role,
        instance_type=instance_type,
        instance_count=resources.get("SelectedInstanceCount") or resources.get("InstanceCount") or 1,
        volume_size_gb=resources.get("VolumeSizeInGB") or 0,
        volume_kms_key_id=resources.get("VolumeKmsKeyId"),
        subnets=tuple(sorted(network.get("Subnets") or ())),
        security_group_ids=tuple(sorted(network.get("SecurityGroupIds") or ())),
        inter_container_encryption=bool(document.get("EnableInterContainerTrafficEncryption")),
        network_isolation=bool(document.get("EnableNetworkIsolation")),
        session_tag_chaining=bool((document.get("SessionChainingConfig") or {}).get("EnableSessionTagChaining")),
    )


ERROR_OF_SAGEMAKER: Final = "Lost to an error of SageMaker's own (InternalServerError), starts again"
DOWNLOADS_ITS_IMAGE: Final = "Has capacity, downloads its image"
"""The line in the timeline that distinguishes the download of the image from that of the data."""
_ENDED: Final = frozenset({"Completed", "Failed", "Stopped", "Deleting"})
"""Statuses after which a job never runs again. `Deleting` follows one of the others."""

_LIMITS: Final = {
    "MaxRuntimeExceeded": EndReason.MAX_RUNTIME_EXCEEDED,
    "MaxWaitTimeExceeded": EndReason.MAX_WAIT_EXCEEDED,
}

_END_WORDS: Final = _ENDED | _LIMITS.keys()

_PHASES: Final = {
    "Pending": (JobPhase.WAITING, "Waits for capacity"),
    "Starting": (JobPhase.WAITING, "Waits for capacity and starts"),
    "LaunchingMLInstances": (JobPhase.WAITING, "Instances are launched"),
    "PreparingTrainingStack": (JobPhase.WAITING, "Instances are prepared"),
    "Restarting": (JobPhase.INTERRUPTED, ERROR_OF_SAGEMAKER),
    "Downloading": (JobPhase.LOADING, "Has capacity, downloads its data"),
    "DownloadingTrainingImage": (JobPhase.LOADING, DOWNLOADS_ITS_IMAGE),
    "Training": (JobPhase.TRAINING, "Trains"),
    "Interrupted": (JobPhase.INTERRUPTED, "Lost its capacity, waits for new"),
    "Uploading": (JobPhase.UPLOADING, "Uploads its model and output"),
    "Stopping": (JobPhase.STOPPING, "Is being stopped"),
}

_FAILURES: Final = (
    # The class in front of FailureReason.
    ("capacityerror", EndReason.CAPACITY),
    # To SageMaker every exit code is the algorithm's: the runner could not start the command.
    (f"algorithmerror:{NOT_STARTED}".replace(" ", ""), EndReason.INPUT_ERROR),
    # The runner of a host has left, since another host of the job is gone.
    (f"algorithmerror:{HOST_LOST}".replace(" ", ""), EndReason.PLATFORM_ERROR),
    ("algorithmerror", EndReason.SCRIPT_FAILED),
    ("clienterror", EndReason.INPUT_ERROR),
    ("internalservererror", EndReason.PLATFORM_ERROR),
)


def phase_of(status: str, secondary_status: str) -> JobPhase:
    """Return the phase of a job."""
    if status in _ENDED:
        return JobPhase.ENDED
    if status == "Stopping":
        return JobPhase.STOPPING
    phase, _ = transition_of(secondary_status)
    return JobPhase.UNKNOWN if phase is JobPhase.ENDED else phase


def transition_of(status: str) -> tuple[JobPhase, str]:
    """Return the phase that an entry of SecondaryStatusTransitions begins, and its line in the timeline."""
    if status in _END_WORDS:
        return JobPhase.ENDED, ""
    return _PHASES.get(status, (JobPhase.UNKNOWN, ""))


def is_internal_server_error(words: str | None) -> bool:
    """Return True if SageMaker itself failed, by its FailureReason or by AWS Batch's copy of that text.

    A failure of another class, or without a class, may recur each time.
    """
    return _folded(words).removeprefix("receivedstatusfromsagemaker:").startswith("internalservererror")


def is_host_lost(words: str | None) -> bool:
    """Return True if a host of the job was gone, by the FailureReason that the runner of another one left."""
    return _folded(words).startswith(_folded(f"AlgorithmError:{HOST_LOST}"))


def _folded(words: str | None) -> str:
    return (words or "").replace(" ", "").lower()


def end_reason_of(
    status: str, secondary_status: str, *, transitions: Sequence[str], failure_reason: str | None
) -> EndReason:
    """Distinguish the endings of a job.

    Args:
        status: TrainingJobStatus of an ended job.
        secondary_status: SecondaryStatus. MaxRuntimeExceeded and MaxWaitTimeExceeded come with status Stopped and are
            not a user's stop. AWS puts them into the secondary status, and in some answers only into the transitions.
        transitions: The statuses of SecondaryStatusTransitions.
        failure_reason: FailureReason.
    """
    if status == "Completed" or secondary_status == "Completed":
        return EndReason.COMPLETED
    said = (secondary_status, *reversed(transitions))
    limit = next((_LIMITS[word] for word in said if word in _LIMITS), None)
    if limit is not None:
        return limit
    if status == "Failed" or secondary_status == "Failed":
        words = _folded(failure_reason).lstrip()
        return next((reason for prefix, reason in _FAILURES if words.startswith(prefix)), EndReason.PLATFORM_ERROR)
    if status == "Deleting" and "Stopped" not in said:
        return EndReason.JOB_VANISHED
    return EndReason.STOPPED_BY_USER
