"""The rules of CreateTrainingJob that the service model does not state, and the limits of this machine.

SageMaker documents the first kind in prose and refuses offending requests with ValidationException. Sources stand
beside them. The second kind are the local service's own limits. Requests beyond them are refused with the same
exception and the words "the local AWS". They are never ignored, because a rehearsal that skips something proves
nothing. docs/local-training.md lists them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from spotkeep_local.service_base.aws_service import ValidationError
from spotkeep_local.training.object_store import S3Location

Programs = Mapping[str, tuple[str, ...]]
"""The words of a program by image. The image is whole or without its registry, as in `sagemaker-xgboost:1.7-1`."""


MAX_RUNTIME_LIMIT_SECONDS = 28 * 24 * 3600
"""Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_StoppingCondition.html"""
_ACCELERATED = re.compile(r"ml\.(g|p|trn|inf)\d.*")
"""Instance types with GPUs or AWS Neuron devices."""
DEFAULT_MAX_RUNTIME_SECONDS = 24 * 3600
MAX_KEEP_ALIVE_SECONDS = 3600
"""The model allows more, the service does not.
Source: https://docs.aws.amazon.com/sagemaker/latest/dg/train-warm-pools.html"""
MAX_HYPERPARAMETER_VALUE_CHARACTERS = 256
"""The model allows 2,500. The guide says 256, and a local service should refuse all values that AWS might refuse."""
DEFAULT_CHECKPOINT_PATH = "/opt/ml/checkpoints"

_ECR_IMAGE = re.compile(r"[0-9]{12}\.dkr\.ecr(-fips)?\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/")

_ELSEWHERE = {
    "ServerlessJobConfig": "serverless jobs",
    "ModelPackageConfig": "model packages",
}


def program_of(request: Mapping[str, Any], *, programs: Programs) -> tuple[str, ...] | None:
    """Return the command line that a job runs, which is its own or its image's. None where neither is known.

    Args:
        request: A CreateTrainingJob request.
        programs: The programs that stand for images.
    """
    algorithm = request["AlgorithmSpecification"]
    arguments = algorithm.get("ContainerArguments")
    if "ContainerEntrypoint" in algorithm:
        return (*algorithm["ContainerEntrypoint"], *(arguments or ()))
    image = algorithm.get("TrainingImage", "")
    program = programs.get(image) or programs.get(image.partition("/")[2])
    return None if program is None else (*program, *(arguments or ("train",)))


def named_program(request: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Read an image and its program.

    Raises:
        ValidationError: One of the two is missing.
    """
    image, program = request.get("image"), request.get("program")
    if not isinstance(image, str) or not image:
        raise ValidationError(f"image must be the name of an image, found {image!r}")
    if not isinstance(program, list) or not program or not all(isinstance(word, str) for word in program):
        raise ValidationError(f"program must be a list of words, found {program!r}")
    return image, tuple(program)


def create_problems(request: dict[str, Any], *, programs: Programs) -> list[str]:
    """Return everything wrong with a CreateTrainingJob request that fits the service model. Empty when it is fine.

    Args:
        request: The request.
        programs: The programs that stand for images here.
    """
    return [
        *_stopping_condition(request),
        *_resources(request),
        *_hyperparameters(request),
        *_channels(request),
        *_algorithm(request, programs),
        *_locations(request),
        *_tags(request),
        *(f"the local AWS has no {what}: leave {name} out" for name, what in _ELSEWHERE.items() if name in request),
    ]


def is_spot(request: dict[str, Any]) -> bool:
    """Return whether the request asks for managed spot capacity."""
    return bool(request.get("EnableManagedSpotTraining", False))


def keep_alive_seconds(request: dict[str, Any]) -> int:
    """Return the seconds that the job's host is kept for a next job. 0 for not at all."""
    return int(request["ResourceConfig"].get("KeepAlivePeriodInSeconds", 0))


def most_restarts(request: dict[str, Any]) -> int:
    """Return the most restarts of the job after errors of SageMaker's own."""
    return int(request.get("RetryStrategy", {}).get("MaximumRetryAttempts", 0))


def instance_type(request: dict[str, Any]) -> str:
    """Return the instance type that the job gets. Here there is always capacity for the first preference."""
    resources = request["ResourceConfig"]
    preferences = resources.get("InstancePreferences")
    return str(preferences[0]["InstanceType"] if preferences else resources["InstanceType"])


def instance_count(request: dict[str, Any]) -> int:
    """Return the number of hosts of the job. It stands beside the preferences, or in each of them."""
    resources = request["ResourceConfig"]
    preferences = resources.get("InstancePreferences") or [{}]
    return int(resources.get("InstanceCount", preferences[0].get("InstanceCount", 1)))


def max_runtime_seconds(request: dict[str, Any]) -> int:
    """Return the runtime limit, with AWS's default of one day."""
    value = request.get("StoppingCondition", {}).get("MaxRuntimeInSeconds", DEFAULT_MAX_RUNTIME_SECONDS)
    return int(value)


def max_pending_seconds(request: dict[str, Any]) -> int | None:
    """Return the seconds that the job may wait for capacity on demand. None for one that fails without it."""
    value = request.get("StoppingCondition", {}).get("MaxPendingTimeInSeconds")
    return None if value is None else int(value)


def _types(request: dict[str, Any]) -> list[str]:
    resources = request.get("ResourceConfig") or {}
    preferences = [preference["InstanceType"] for preference in resources.get("InstancePreferences", ())]
    return preferences or [str(resources.get("InstanceType", ""))]


def _stopping_condition(request: dict[str, Any]) -> list[str]:
    condition = request.get("StoppingCondition", {})
    max_wait = condition.get("MaxWaitTimeInSeconds")
    max_runtime = max_runtime_seconds(request)
    problems = []
    pending = max_pending_seconds(request)
    if pending is not None and not all(_ACCELERATED.fullmatch(each) for each in _types(request)):
        problems.append("MaxPendingTimeInSeconds is supported only for accelerated instance types")
    if not 1 <= max_runtime <= MAX_RUNTIME_LIMIT_SECONDS:
        problems.append(f"Invalid MaxRuntimeInSeconds {max_runtime}. It must be from 1 to {MAX_RUNTIME_LIMIT_SECONDS}")
    if is_spot(request):
        if max_wait is None or max_wait < max_runtime:
            problems.append(
                "Invalid MaxWaitTimeInSeconds. It must be present and be greater than or equal to "
                f"MaxRuntimeInSeconds ({max_runtime}) with EnableManagedSpotTraining, found {max_wait}"
            )
    elif max_wait is not None:
        problems.append(
            f"Invalid MaxWaitTimeInSeconds {max_wait}. It is supported only when EnableManagedSpotTraining "
            "is set to true"
        )
    return problems


def _resources(request: dict[str, Any]) -> list[str]:
    resources = request.get("ResourceConfig")
    if resources is None:
        return ["ResourceConfig is required"]
    problems = [
        f"the local AWS has no {what}: leave ResourceConfig.{name} out"
        for name, what in (
            ("InstanceGroups", "heterogeneous clusters"),
            ("TrainingPlanArn", "training plans"),
        )
        if resources.get(name)
    ]
    problems += [
        f"ResourceConfig.{name} is read-only and is not accepted in CreateTrainingJob"
        for name in ("SelectedInstanceType", "SelectedInstanceCount")
        if name in resources
    ]
    preferences = resources.get("InstancePreferences", [])
    if "InstanceType" not in resources and not preferences:
        problems.append("ResourceConfig.InstanceType is required")
    if preferences and "InstanceType" in resources:
        problems.append("ResourceConfig.InstancePreferences cannot be given together with InstanceType")
    if preferences and "EnableManagedSpotTraining" in request:
        # Whatever its value. Source: API_ResourceConfig.html, "mutually exclusive with"
        problems.append("ResourceConfig.InstancePreferences is not supported with EnableManagedSpotTraining")
    problems += _preferences(preferences, counted="InstanceCount" in resources)
    counts = [each["InstanceCount"] for each in (resources, *preferences) if "InstanceCount" in each]
    problems += [f"Invalid InstanceCount {count}. It must be at least 1" for count in counts if count < 1]
    if resources.get("VolumeSizeInGB", 1) < 1:
        problems.append(f"Invalid VolumeSizeInGB {resources['VolumeSizeInGB']}. It must be at least 1")
    keep_alive = resources.get("KeepAlivePeriodInSeconds", 0)
    if keep_alive > MAX_KEEP_ALIVE_SECONDS:
        problems.append(f"Invalid KeepAlivePeriodInSeconds {keep_alive}. It must be at most {MAX_KEEP_ALIVE_SECONDS}")
    if keep_alive and is_spot(request):
        problems.append("KeepAlivePeriodInSeconds is not supported with EnableManagedSpotTraining")
    return problems


def _preferences(preferences: list[dict[str, Any]], *, counted: bool) -> list[str]:
    """Return the faults of an ordered list of instance types.

    Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_InstancePreference.html

    Args:
        preferences: The list, empty where there is none.
        counted: True where the number of instances stands beside the list.
    """
    problems = []
    types = Counter(each["InstanceType"] for each in preferences)
    problems += [f"InstancePreferences has InstanceType {name} {n} times" for name, n in types.items() if n > 1]
    with_count = sum("InstanceCount" in each for each in preferences)
    if preferences and (with_count, counted) not in {(0, True), (len(preferences), False)}:
        beside = "with" if counted else "without"
        problems.append(
            "InstanceCount must be in ResourceConfig alone, or in each of InstancePreferences: found in "
            f"{with_count} of {len(preferences)} preferences, {beside} one in ResourceConfig"
        )
    if any(each.get("TrainingPlanArns") for each in preferences):
        problems.append("the local AWS has no training plans: leave TrainingPlanArns of InstancePreferences out")
    return problems


def _hyperparameters(request: dict[str, Any]) -> list[str]:
    return [
        f"Value of hyperparameter '{key}' has {len(value)} characters; at most "
        f"{MAX_HYPERPARAMETER_VALUE_CHARACTERS} are allowed"
        for key, value in request.get("HyperParameters", {}).items()
        if len(value) > MAX_HYPERPARAMETER_VALUE_CHARACTERS
    ]


def _channels(request: dict[str, Any]) -> list[str]:
    channels = request.get("InputDataConfig", [])
    default_mode = request["AlgorithmSpecification"]["TrainingInputMode"]
    counts = Counter(channel["ChannelName"] for channel in channels)
    problems = [f"ChannelName '{name}' is given {n} times" for name, n in counts.items() if n > 1]
    for channel in channels:
        name = channel["ChannelName"]
        mode = channel.get("InputMode", default_mode)
        if channel["DataSource"].get("FileSystemDataSource") is not None:
            problems += _file_system(channel["DataSource"]["FileSystemDataSource"], request, name=name, mode=mode)
            continue
        if mode == "Pipe":
            problems.append(f"the local AWS has no Pipe input mode: use File or FastFile for channel '{name}'")
        source = channel["DataSource"].get("S3DataSource")
        if source is None:
            problems.append(f"the local AWS reads S3 and file systems only: channel '{name}' has another source")
            continue
        if source["S3DataType"] != "S3Prefix":
            problems.append(f"the local AWS reads S3Prefix only: channel '{name}' has {source['S3DataType']}")
        problems += _s3_problems(source["S3Uri"], f"S3Uri of channel '{name}'")
    return problems


def _file_system(source: dict[str, Any], request: dict[str, Any], *, name: str, mode: str) -> list[str]:
    """Return the faults of a channel on a file system. AWS's messages are not documented, so these words are ours."""
    problems = []
    if "VpcConfig" not in request:
        problems.append(f"FileSystemDataSource of channel '{name}' requires VpcConfig")
    if mode != "File":
        problems.append(f"FileSystemDataSource of channel '{name}' requires the input mode File, found {mode}")
    if not source["DirectoryPath"].startswith("/"):
        problems.append(f"DirectoryPath of channel '{name}' must be absolute, found {source['DirectoryPath']!r}")
    return problems


def _algorithm(request: dict[str, Any], programs: Programs) -> list[str]:
    algorithm = request["AlgorithmSpecification"]
    if "AlgorithmName" in algorithm:
        return ["the local AWS has no algorithm resources: give TrainingImage and ContainerEntrypoint"]
    problems = []
    if "TrainingImage" not in algorithm:
        problems.append("AlgorithmSpecification.TrainingImage is required")
    else:
        problems += _registry(algorithm["TrainingImage"], request)
    if program_of(request, programs=programs) is None:
        problems.append(
            "the local AWS runs no images, so there is no `train` program to start: say what to run in "
            "AlgorithmSpecification.ContainerEntrypoint, or name a program for the image first: "
            f"spotkeep local image {algorithm.get('TrainingImage', 'IMAGE')} PROGRAM"
        )
    return problems


def _registry(image: str, request: dict[str, Any]) -> list[str]:
    """Return the reason why SageMaker could not pull an image. Empty when it could.

    An image outside Amazon ECR needs `Vpc`, and `Vpc` needs a VPC. SageMaker does not pull from AWS's public registry.
    AWS's message for this case is not documented, so these words are ours.
    """
    access = request["AlgorithmSpecification"].get("TrainingImageConfig", {}).get("TrainingRepositoryAccessMode")
    if access == "Vpc" and "VpcConfig" not in request:
        return ["TrainingRepositoryAccessMode Vpc requires VpcConfig"]
    if _ECR_IMAGE.match(image) or (access == "Vpc" and not image.startswith("public.ecr.aws/")):
        return []
    return [
        f"Invalid TrainingImage {image}. It must be in a private repository of Amazon ECR, or in a private registry "
        "that is reached with TrainingRepositoryAccessMode Vpc"
    ]


def _locations(request: dict[str, Any]) -> list[str]:
    output = request["OutputDataConfig"]
    problems = _s3_problems(output["S3OutputPath"], "S3OutputPath")
    if output.get("CompressionType", "GZIP") != "GZIP":
        problems.append("the local AWS packs output with GZIP only: leave OutputDataConfig.CompressionType out")
    checkpoints = request.get("CheckpointConfig")
    if checkpoints:
        problems += _s3_problems(checkpoints["S3Uri"], "CheckpointConfig.S3Uri")
        local = checkpoints.get("LocalPath", DEFAULT_CHECKPOINT_PATH)
        taken = ("/opt/ml/input", "/opt/ml/model", "/opt/ml/output", "/opt/ml/code")
        parts = local.rstrip("/").split("/")
        if not local.startswith("/opt/ml/") or ".." in parts or len(parts) < 4:
            problems.append(f"the local AWS syncs checkpoints below /opt/ml: CheckpointConfig.LocalPath is {local!r}")
        elif any(local == path or local.startswith(f"{path}/") for path in taken):
            problems.append(f"CheckpointConfig.LocalPath must not be in {', '.join(taken)}, found {local!r}")
    return problems


def _tags(request: dict[str, Any]) -> list[str]:
    counts = Counter(tag["Key"] for tag in request.get("Tags", ()))
    return [f"Duplicate tag key '{key}': a key may be given once" for key, n in counts.items() if n > 1]


def _s3_problems(uri: str, name: str) -> list[str]:
    try:
        S3Location.parse(uri)
    except ValueError as error:
        return [f"{name}: {error}"]
    return []
