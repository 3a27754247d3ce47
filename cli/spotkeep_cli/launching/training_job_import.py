"""Turns a CreateTrainingJob request, or what DescribeTrainingJob says of a job, into a job document. Pure.

Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateTrainingJob.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml
from pydantic_core import PydanticCustomError

from spotkeep_jobs.document.reading import printable_name
from spotkeep_jobs.document.values import read_metric_name, read_metric_pattern

_NOT_A_NAME: Final = re.compile(r"[^A-Za-z0-9]+")
_NAME_CHARACTERS: Final = 43
_TOOLKIT: Final = "sagemaker_"
"""How hyperparameters begin that the SageMaker SDK hands to the training toolkit in the image."""
SPOTKEEPS_OWN: Final = {
    "RoleArn": "the deployment has a role of its own; give it the data by the setting data_locations",
    "OutputDataConfig": "outputs go to the deployment's bucket",
    "VpcConfig": "subnets and security groups are settings of the deployment",
    "CheckpointConfig": "checkpoints go to the deployment's bucket, from an empty prefix",
}
_WITHOUT_A_FIELD: Final = {
    "EnableNetworkIsolation", "EnableInterContainerTrafficEncryption", "ExperimentConfig", "DebugHookConfig",
    "DebugRuleConfigurations", "ProfilerConfig", "ProfilerRuleConfigurations", "TensorBoardOutputConfig",
    "RetryStrategy", "InfraCheckConfig", "SessionChainingConfig", "ServerlessJobConfig",
    "ModelPackageConfig",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """What of a request is not in the document.

    Attributes:
        field: Its path in the request.
        why: In words.
        replaced: Whether the job runs as it would with it: the deployment has something in its place.
    """

    field: str
    why: str
    replaced: bool = False


@dataclass(frozen=True, kw_only=True)
class ImportedJob:
    """A job document and what it lacks of its request.

    Attributes:
        fields: The document.
        left_out: What is not in it.
    """

    fields: dict[str, Any]
    left_out: tuple[LeftOut, ...]

    @classmethod
    def of(cls, fields: Mapping[str, Any], left_out: Iterable[LeftOut]) -> ImportedJob:
        """Return the job without the fields that have no value."""
        kept = {key: value for key, value in fields.items() if value not in (None, [], {})}
        return cls(fields=kept, left_out=tuple(left_out))

    def not_imported(self) -> list[str]:
        """Return a line for each part that is left out, of printable text: names and values are a stranger's."""
        lines = (f"not imported: {printable_name(each.field)}: {each.why}" for each in self.left_out)
        return ["".join(each if each.isprintable() else repr(each)[1:-1] for each in line) for line in lines]

    def as_job_file(self) -> str:
        """Return the job file, of printable text: what it lacks in comments, and the document."""
        document = yaml.safe_dump(self.fields, sort_keys=False, allow_unicode=True)
        if not document.replace("\n", "").isprintable():
            # A next line (U+0085) is written as it is, and read as a space.
            document = yaml.safe_dump(self.fields, sort_keys=False)
        return "\n".join([*(f"# {line}" for line in self.not_imported()), document])


def import_request(request: Mapping[str, Any]) -> ImportedJob:
    """Read a request.

    Args:
        request: The parameters of CreateTrainingJob, or the answer of DescribeTrainingJob.

    Raises:
        KeyError, TypeError, AttributeError, ValueError: It is neither.
    """
    name = name_of_job(request["TrainingJobName"])
    algorithm, resources = request.get("AlgorithmSpecification", {}), request["ResourceConfig"]
    stopping, left_out = request.get("StoppingCondition", {}), list(_left_out(request))
    given, metrics = request.get("HyperParameters", {}), algorithm.get("MetricDefinitions", ())
    hyperparameters = {key: _value(text) for key, text in given.items()}
    command = _command(algorithm, hyperparameters)
    if command is None:
        hyperparameters = dict(given)  # The image's own entry point reads them as they are.
    spot = bool(request.get("EnableManagedSpotTraining"))
    fields: dict[str, Any] = {
        "name": name,
        "command": command,
        "image": algorithm.get("TrainingImage"),
        "instance_types": [each["InstanceType"] for each in resources.get("InstancePreferences", ())]
        or [resources["InstanceType"]],
        "instance_count": resources.get("InstanceCount"),
        "volume_size_gb": resources.get("VolumeSizeInGB"),
        "capacity": "spot" if spot else "on-demand",
        "max_run": stopping.get("MaxRuntimeInSeconds"),
        "max_wait": stopping.get("MaxWaitTimeInSeconds") if spot else None,
        "longest_wait": None if spot else stopping.get("MaxPendingTimeInSeconds"),
        "keep_alive": resources.get("KeepAlivePeriodInSeconds"),
        "mlflow": _mlflow(request.get("MlflowConfig", {})),
        "debug": bool(request.get("RemoteDebugConfig", {}).get("EnableRemoteDebug")) or None,
        "channels": [],
        "metrics": metrics_of(metrics, left_out, path="AlgorithmSpecification.MetricDefinitions"),
        "hyperparameters": {key: value for key, value in hyperparameters.items() if not key.startswith(_TOOLKIT)},
        "environment": dict(request.get("Environment", {})),
        "checkpoints": "CheckpointConfig" in request,
        "tags": {each["Key"]: each["Value"] for each in request.get("Tags", ()) if _is_theirs(each["Key"])},
    }
    if fields["max_wait"] is not None and fields["max_wait"] <= (fields["max_run"] or 0):
        left_out.append(LeftOut(field="StoppingCondition.MaxWaitTimeInSeconds", why="it leaves no time to wait"))
        fields["max_wait"] = None
    for channel in request.get("InputDataConfig", ()):
        data = channel["DataSource"].get("S3DataSource", {})
        if data.get("S3DataType") == "S3Prefix":
            mode = channel.get("InputMode") or algorithm.get("TrainingInputMode") or "File"
            kind = {"content_type": channel["ContentType"]} if channel.get("ContentType") else {}
            fields["channels"].append(
                {"name": channel["ChannelName"], "uri": data["S3Uri"], "input_mode": mode, **kind}
            )
        else:
            why = "a channel is an S3 prefix: no manifest, no file system"
            left_out.append(LeftOut(field=f"InputDataConfig.{channel['ChannelName']}", why=why))
    for key in sorted(hyperparameters):
        if key == "sagemaker_submit_directory":
            why = "the archive's hash is not known: unpack it beside the job file, or name it as {uri, sha256}"
            left_out.append(LeftOut(field=f"HyperParameters.{key}", why=why))
        elif key.startswith(_TOOLKIT) and key != "sagemaker_program":
            left_out.append(LeftOut(field=f"HyperParameters.{key}", why="it is for SageMaker's training toolkit"))
    return ImportedJob.of(fields, left_out)


def name_of_job(name: str) -> str:
    """Return the name of a training job as a job file may have it."""
    return _NOT_A_NAME.sub("-", name).strip("-")[:_NAME_CHARACTERS].strip("-")


def command_of_script(script: str) -> list[str]:
    """Return how the SageMaker SDK starts a script, in both versions: a shell's by its first line, which may say -e."""
    return ["sh", "-c", 'chmod +x "$0" && exec "./$0" "$@"', script] if script.endswith(".sh") else ["python", script]


def metrics_of(definitions: Iterable[Any], left_out: list[LeftOut], *, path: str) -> dict[str, str]:
    """Return the metrics of a job: patterns by name.

    Args:
        definitions: With `Name` and `Regex` each.
        left_out: What is left out so far; those that no job file takes are added.
        path: Where they are in the request.
    """
    metrics = {}
    for definition in definitions:
        name, pattern = (definition.get(key) if isinstance(definition, dict) else None for key in ("Name", "Regex"))
        try:
            metrics[read_metric_name(name)] = read_metric_pattern(pattern)
        except PydanticCustomError as error:
            left_out.append(LeftOut(field=f"{path}.{name}", why=f"it {error.message()}"))
    return metrics


def _left_out(request: Mapping[str, Any]) -> Iterator[LeftOut]:
    for name in request:
        if name in SPOTKEEPS_OWN:
            yield LeftOut(field=name, why=SPOTKEEPS_OWN[name], replaced=True)
        elif name == "MlflowConfig" and "MlflowRunName" in request[name]:
            yield LeftOut(field="MlflowConfig.MlflowRunName", why="the MLflow run is named in the script")
        elif name in _WITHOUT_A_FIELD and request[name] not in (False, None, {}, []):
            yield LeftOut(field=name, why="a job file has no field for it")
    algorithm = request.get("AlgorithmSpecification", {})
    if "AlgorithmName" in algorithm:
        yield LeftOut(field="AlgorithmSpecification.AlgorithmName", why="name its image")
    if "TrainingRepositoryAuthConfig" in algorithm.get("TrainingImageConfig", {}):
        field = "AlgorithmSpecification.TrainingImageConfig.TrainingRepositoryAuthConfig"
        yield LeftOut(field=field, why="an image outside Amazon ECR is pulled without a login: copy it to Amazon ECR")
    for key in ("InstanceGroups", "TrainingPlanArn", "VolumeKmsKeyId", "InstancePlacementConfig"):
        if key in request["ResourceConfig"]:
            yield LeftOut(field=f"ResourceConfig.{key}", why="a job file has no field for it")


def _command(algorithm: Mapping[str, Any], hyperparameters: Mapping[str, Any]) -> list[str] | None:
    """Return what trains: the request's own words, or the script that the SageMaker SDK names; None for neither."""
    words = [*algorithm.get("ContainerEntrypoint", ()), *algorithm.get("ContainerArguments", ())]
    if words:
        return words
    program = hyperparameters.get("sagemaker_program")
    if not isinstance(program, str):
        return None
    return command_of_script(program)


def _is_theirs(tag: str) -> bool:
    """Return whether a tag is the client's: neither AWS's own nor Spotkeep's."""
    return not tag.startswith(("aws:", "spotkeep:"))


def _mlflow(config: Mapping[str, str]) -> dict[str, str]:
    fields = {"tracking_uri": config.get("MlflowResourceArn"), "experiment": config.get("MlflowExperimentName")}
    return {name: value for name, value in fields.items() if value} if fields["tracking_uri"] else {}


def _value(text: str) -> str:
    """Return a hyperparameter as a script gets it: the SageMaker SDK writes texts as JSON, in quotes."""
    if text.startswith('"'):
        try:
            return str(json.loads(text))
        except ValueError:
            return text
    return text
