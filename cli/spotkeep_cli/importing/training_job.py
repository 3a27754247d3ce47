"""Turns a CreateTrainingJob request, or the answer of DescribeTrainingJob, into a job document. Pure.

Each member is taken for a field of the document. Any other member is left out by name, so nothing is lost silently.
That holds for members that AWS adds later.

Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateTrainingJob.html
"""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml
from pydantic_core import PydanticCustomError

from spotkeep_fleet.ranks import MPI, TORCHRUN
from spotkeep_jobs.document.metrics import read_metric_name, read_metric_pattern
from spotkeep_jobs.document.reading import printable_name
from spotkeep_jobs.document.request import read_document

_NOT_A_NAME: Final = re.compile(r"[^A-Za-z0-9]+")
_NAME_CHARACTERS: Final = 43
_TOOLKIT: Final = "sagemaker_"
"""The prefix of hyperparameters that the SageMaker SDK hands to the training toolkit in the image."""
_SDK_DRIVERS: Final = "sm_drivers"
"""The channel in which the SageMaker SDK 3 brings the scripts that start a training script."""
CHECKPOINT_DIRECTORY: Final = "/opt/ml/checkpoints"
_TORCHRUN: Final = "sagemaker_torch_distributed_enabled"
"""The hyperparameter with which the SageMaker SDK 2 asks for torchrun."""
_MPI: Final = "sagemaker_mpi_enabled"
_MPI_PROCESSES: Final = "sagemaker_mpi_num_of_processes_per_host"
PROCESSES_OF_ITS_OWN: Final = "write the command that starts the processes"
WITHOUT_A_FIELD: Final = "a job file has no field for it"


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A part of a request that is not in the document.

    Attributes:
        field: Its path in the request.
        why: In words.
        replaced: True if the deployment has a replacement, so that the job runs alike.
    """

    field: str
    why: str
    replaced: bool = False


def replaced(why: str) -> LeftOut:
    """Return the meaning of a part that the deployment replaces by something of its own."""
    return LeftOut(field="", why=why, replaced=True)


def lost(why: str) -> LeftOut:
    """Return the meaning of a part without which the job runs otherwise."""
    return LeftOut(field="", why=why)


ELSEWHERE: Final = replaced("credentials and region are those of the command: --profile, --region")
MEANINGS: Final[Mapping[str, LeftOut]] = {
    "RoleArn": replaced("the deployment has a role of its own; give it the data by the setting data_locations"),
    "OutputDataConfig": replaced("outputs go to the deployment's bucket"),
    "OutputDataConfig.KmsKeyId": replaced("the deployment's bucket has an encryption of its own"),
    "OutputDataConfig.CompressionType": lost("the model comes back compressed, as model.tar.gz"),
    "VpcConfig": replaced("subnets and security groups are settings of the deployment"),
    "CheckpointConfig": replaced("checkpoints go to the deployment's bucket, from an empty prefix"),
    "EnableNetworkIsolation": lost("the container has network access; a job file has no field for it"),
    "EnableInterContainerTrafficEncryption": lost(
        "traffic between instances is not encrypted; a job file has no field for it"
    ),
    "ExperimentConfig": lost("no experiment of SageMaker records the job; mlflow names a tracking server"),
    "DebugHookConfig": lost("SageMaker Debugger saves no tensors of the job"),
    "DebugRuleConfigurations": lost("no rules of SageMaker Debugger watch the job"),
    "ProfilerConfig": lost("SageMaker's profiler does not watch the job"),
    "ProfilerRuleConfigurations": lost("no rules of SageMaker's profiler watch the job"),
    "TensorBoardOutputConfig": lost(
        "SageMaker uploads no TensorBoard logs: write them to $TENSORBOARD_LOGGING_DIR, beside the checkpoints"
    ),
    "RetryStrategy": lost("max_attempts and script_retries say how often a run is tried again"),
    "InfraCheckConfig": lost("SageMaker does not check the instances before the job"),
    "SessionChainingConfig": lost("the session of the role carries no tags"),
    "ServerlessJobConfig": lost("a job file is for jobs on instances"),
    "ModelPackageConfig": lost("no model package is made of the model"),
    "MlflowConfig": lost("mlflow needs the ARN of a tracking server"),
    "MlflowConfig.MlflowRunName": lost("the MLflow run is named in the script"),
    "AlgorithmSpecification.AlgorithmName": lost("name its image"),
    "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries": replaced("the metrics of a run are in CloudWatch"),
    "AlgorithmSpecification.TrainingImageConfig": replaced("the launch says how the image is reached"),
    "AlgorithmSpecification.TrainingImageConfig.TrainingRepositoryAuthConfig": lost(
        "an image outside Amazon ECR is pulled without a login: copy it to Amazon ECR"
    ),
    "Session": ELSEWHERE,
    "Region": ELSEWHERE,
    "AlgorithmSpecification.ContainerArguments": lost(
        "the image's own entry point gets them, and a job file has words for that only as command: write it"
    ),
    "ResourceConfig.VolumeKmsKeyId": lost(
        "the deployment's setting volume_kms_key_arn says which key encrypts volumes"
    ),
    "ResourceConfig.InstanceType": replaced("instance_types has the preferred ones"),
    "ResourceConfig.InstanceGroups": lost("all instances of a job are of one type: give instance_type"),
    "ResourceConfig.TrainingPlanArn": lost("the capacity of a training plan is not used"),
    "ResourceConfig.InstancePlacementConfig": lost("where the instances are placed is not chosen"),
    "ResourceConfig.InstancePreferences": lost("all types are asked for with instance_count, and without a plan"),
    "ResourceConfig.SelectedInstanceType": replaced("it is a result of that job"),
    "ResourceConfig.SelectedInstanceCount": replaced("it is a result of that job"),
    "StoppingCondition.MaxWaitTimeInSeconds": lost("max_wait is for spot, which the job does not ask for"),
    "StoppingCondition.MaxPendingTimeInSeconds": lost("on spot max_wait bounds how long it waits, its time included"),
}
"""The meaning of leaving a member out. The longest path that the member begins with counts."""
_CHANNEL_MEANINGS: Final[Mapping[str, LeftOut]] = {
    "CompressionType": lost("the script reads the data as it is stored, compressed"),
    "RecordWrapperType": lost("the script reads the data as it is stored, not wrapped in RecordIO"),
    "ShuffleConfig": lost("the objects come in the same order in each epoch"),
    "AttributeNames": lost("the attributes of a manifest are not read"),
    "TargetAttributeName": lost("the attributes of a manifest are not read"),
    "InstanceGroupNames": lost("each instance gets the channel"),
    "HubAccessConfig": lost("a model of a hub is not reached"),
    "ModelAccessConfig": lost("no terms of a model are accepted"),
}
_SERVICES_OF_FILE_SYSTEMS: Final = {"FSxLustre": "fsx", "EFS": "efs"}
"""The fields of a job file by SageMaker's types of file systems."""
_NEUTRAL: Final[Mapping[str, Any]] = {
    "OutputDataConfig.CompressionType": "GZIP",
    "AlgorithmSpecification.TrainingImageConfig.TrainingRepositoryAccessMode": "Platform",
    "ProfilerConfig.DisableProfiler": True,
}
"""Values that do not change a run."""
_RESULTS: Final = frozenset(
    {"TrainingJobArn", "TuningJobArn", "LabelingJobArn", "AutoMLJobArn", "ModelArtifacts", "TrainingJobStatus",
     "SecondaryStatus", "FailureReason", "WarmPoolStatus", "CreationTime", "TrainingStartTime", "TrainingEndTime",
     "LastModifiedTime", "SecondaryStatusTransitions", "FinalMetricDataList", "TrainingTimeInSeconds",
     "BillableTimeInSeconds", "BillableTokenCount", "DebugRuleEvaluationStatuses", "ProfilerRuleEvaluationStatuses",
     "ProfilingStatus", "MlflowDetails", "ProgressInfo", "OutputModelPackageArn", "ResponseMetadata"}
)  # fmt: skip
"""Members of DescribeTrainingJob about the course of a job."""


@dataclass(frozen=True, kw_only=True)
class ImportedJob:
    """A job document, and the parts of its request that it lacks.

    Attributes:
        fields: The document.
        left_out: The parts that are not in it.
    """

    fields: dict[str, Any]
    left_out: tuple[LeftOut, ...]

    @classmethod
    def of(cls, fields: Mapping[str, Any], left_out: Iterable[LeftOut]) -> ImportedJob:
        """Return the job without fields that have no value. A part left out twice for one reason stands once."""
        kept = {key: value for key, value in fields.items() if value not in (None, [], {})}
        return cls(fields=kept, left_out=tuple(dict.fromkeys(left_out)))

    def not_imported(self) -> list[str]:
        """Return a line of printable text for each part that is left out. Names and values are a stranger's."""
        lines = (f"not imported: {printable_name(each.field)}: {each.why}" for each in self.left_out)
        return ["".join(each if each.isprintable() else repr(each)[1:-1] for each in line) for line in lines]

    def as_job_file(self) -> str:
        """Return the job file, of printable text, with the missing parts in comments above the document."""
        document = yaml.dump(self.fields, Dumper=_JobFileDumper, sort_keys=False, allow_unicode=True)
        if not document.replace("\n", "").isprintable():
            # A next line (U+0085) is written as it is, and read as a space.
            document = yaml.dump(self.fields, Dumper=_JobFileDumper, sort_keys=False)
        return "\n".join([*(f"# {line}" for line in self.not_imported()), document])

    def without_refused_entries(self) -> ImportedJob:
        """Return the job without the entries that no job file takes.

        Each is named, such as `environment.SM_MODEL_DIR` here.
        """
        fields, left_out = {**self.fields}, [*self.left_out]
        for name in ("hyperparameters", "environment", "tags", "channels"):
            entries = fields.get(name)
            if name == "channels" and isinstance(entries, list):
                each = [(entry["name"], entry) for entry in entries]
            elif name != "channels" and isinstance(entries, dict):
                each = [*entries.items()]
            else:
                continue
            refusals = [_refusal(name, key, value) for key, value in each]
            left_out += [
                LeftOut(field=f"{name}.{key}", why=why) for (key, _), why in zip(each, refusals, strict=True) if why
            ]
            kept = [entry for entry, why in zip(each, refusals, strict=True) if not why]
            fields[name] = [value for _, value in kept] if name == "channels" else dict(kept)
        return ImportedJob.of(fields, left_out)


class _JobFileDumper(yaml.SafeDumper):
    """Writes a text of several lines as a block after `|`, and numbers as JSON does.

    PyYAML's 1.0e-05 would reach the script in these characters.
    """


_JobFileDumper.add_representer(
    float,
    lambda dumper, number: (
        dumper.represent_scalar("tag:yaml.org,2002:float", json.dumps(number))
        if math.isfinite(number)
        else dumper.represent_str(json.dumps(number))
    ),
)
_JobFileDumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)
# A job file's numbers are those of YAML 1.2: -.0 is one, and PyYAML would write that text without quotes.
_JobFileDumper.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)
_JobFileDumper.add_multi_representer(dict, yaml.SafeDumper.represent_dict)


def _refusal(field: str, key: str, value: Any) -> str | None:
    """Return the reason that no job file takes an entry. None where it does."""
    entry = [value] if field == "channels" else {key: value}
    _, problems, _ = read_document({"name": "job", "command": "python", field: entry})
    return f"it {problems[0].problem}. {problems[0].fix}" if problems else None


def import_request(request: Mapping[str, Any], *, name: str = "training") -> ImportedJob:
    """Read a request.

    Args:
        request: The parameters of CreateTrainingJob, or the answer of DescribeTrainingJob.
        name: The job's name where the request has none.

    Raises:
        KeyError, TypeError, AttributeError, ValueError: It is neither.
    """
    rest = _Rest(request)
    left_out = list[LeftOut]()
    if not {"AlgorithmSpecification", "ResourceConfig"} & {*request}:
        raise ValueError("it has neither AlgorithmSpecification nor ResourceConfig")
    resources = request.get("ResourceConfig") or {}
    given_name = str(rest.take("TrainingJobName") or name)
    spot = bool(rest.take("EnableManagedSpotTraining"))
    count = rest.take("ResourceConfig", "InstanceCount")
    one = rest.take("ResourceConfig", "InstanceType") if not resources.get("InstancePreferences") else None
    types, of_each, is_all = preferred_instances(resources.get("InstancePreferences") or [])
    types, count = types or ([one] if one else []), count or of_each
    if is_all:
        rest.take("ResourceConfig", "InstancePreferences")
    fields: dict[str, Any] = {
        "name": shortened_name(given_name, left_out, path="TrainingJobName"),
        **_work(rest, left_out),
        "image": rest.take("AlgorithmSpecification", "TrainingImage"),
        "instance_types": types,
        "instance_count": count,
        "volume_size_gb": rest.take("ResourceConfig", "VolumeSizeInGB"),
        "capacity": "spot" if spot else "on-demand",
        "max_run": rest.take("StoppingCondition", "MaxRuntimeInSeconds"),
        "keep_alive": rest.take("ResourceConfig", "KeepAlivePeriodInSeconds"),
        "mlflow": _mlflow(rest),
        "debug": bool(rest.take("RemoteDebugConfig", "EnableRemoteDebug")) or None,
        "channels": list(_channels(rest, left_out, instances=count)),
        "environment": rest.take("Environment") or {},
        "checkpoints": "CheckpointConfig" in request,
        "tags": dict(_tags(rest, left_out)),
    }
    if spot:
        longest = rest.take("StoppingCondition", "MaxWaitTimeInSeconds")
        fields |= max_wait_of(longest, fields["max_run"], left_out, path="StoppingCondition.MaxWaitTimeInSeconds")
    else:
        pending = rest.take("StoppingCondition", "MaxPendingTimeInSeconds")
        fields |= longest_wait_of(pending, left_out, path="StoppingCondition.MaxPendingTimeInSeconds")
    local_path = rest.take("CheckpointConfig", "LocalPath")
    left_out += checkpoints_elsewhere(local_path, path="CheckpointConfig.LocalPath")
    metrics = rest.take("AlgorithmSpecification", "MetricDefinitions") or ()
    fields["metrics"] = metrics_of(metrics, left_out, path="AlgorithmSpecification.MetricDefinitions")
    return ImportedJob.of(fields, [*rest.left_out(), *left_out])


def name_of_job(name: str) -> str:
    """Return the name of a training job as a job file may have it."""
    return _NOT_A_NAME.sub("-", name).strip("-")[:_NAME_CHARACTERS].strip("-")


def shortened_name(name: str, left_out: list[LeftOut], *, path: str) -> str:
    """Return the name of a training job as a job file may have it. That it had to be shortened is left out by name."""
    if len(name) > _NAME_CHARACTERS:
        why = f"a name has at most {_NAME_CHARACTERS} characters: it is shortened"
        left_out.append(LeftOut(field=path, why=why, replaced=True))
    return name_of_job(name) or "training"


def command_of_script(script: str) -> list[str]:
    """Return the command with which the SageMaker SDK starts a script, in both versions.

    A shell's first line may say -e.
    """
    return ["sh", "-c", 'chmod +x "$0" && exec "./$0" "$@"', script] if script.endswith(".sh") else ["python", script]


def preferred_instances(preferences: Sequence[Mapping[str, Any]]) -> tuple[list[Any], Any, bool]:
    """Return the types of instances in order of preference, the number of each, and True if that is all.

    Args:
        preferences: As `InstancePreferences` of CreateTrainingJob.
    """
    counts = {each.get("InstanceCount") for each in preferences}
    is_all = len(counts) <= 1 and not any({*each} - {"InstanceType", "InstanceCount"} for each in preferences)
    return [each["InstanceType"] for each in preferences], counts.pop() if len(counts) == 1 else None, is_all


def distributed_of(launcher: str, processes: Any) -> str | dict[str, Any]:
    """Return the field `distributed`.

    Args:
        launcher: `torchrun` or `mpi`.
        processes: Number of ranks an instance. None for one a GPU, else a Neuron core, else one.
    """
    return launcher if processes is None else {"launcher": launcher, "processes": processes}


def mpi_command_of_script(script: str) -> list[str]:
    """Return the command of a rank that the SageMaker SDK starts with mpirun, in both versions."""
    return ["python", "-m", "mpi4py", script]


def text_that_stays(text: str) -> str:
    """Return a hyperparameter that a script gets as this text. It is in quotes where JSON would mean something else.

    A number stays as it is, since a job hands it over as it is written.
    """
    try:
        meant = json.loads(text)
    except (ValueError, RecursionError):
        return text
    is_number = isinstance(meant, int | float) and not isinstance(meant, bool) and math.isfinite(meant)
    return text if is_number else json.dumps(text)


def checkpoints_elsewhere(local_path: Any, *, path: str) -> Iterator[LeftOut]:
    """Yield the loss where a script has its checkpoints in a directory that Spotkeep does not save.

    Args:
        local_path: The directory. None for that of SageMaker.
        path: Its place in the request.
    """
    if local_path is not None and str(local_path).rstrip("/") != CHECKPOINT_DIRECTORY:
        why = f"files in {local_path} are lost: let the script save in {CHECKPOINT_DIRECTORY}"
        yield LeftOut(field=path, why=why)


def max_wait_of(longest: Any, max_run: Any, left_out: list[LeftOut], *, path: str) -> dict[str, Any]:
    """Return the field `max_wait` of a spot job. Without it where it leaves no time to wait."""
    if isinstance(longest, int) and isinstance(max_run, int) and longest <= max_run:
        left_out.append(LeftOut(field=path, why="it leaves no time to wait", replaced=True))
        return {}
    return {"max_wait": longest}


def longest_wait_of(pending: Any, left_out: list[LeftOut], *, path: str) -> dict[str, Any]:
    """Return the field `longest_wait` of a job on demand."""
    if pending is None:
        return {}
    why = "longest_wait stands in its place: the run ends when it has waited so long for capacity"
    left_out.append(LeftOut(field=path, why=why, replaced=True))
    return {"longest_wait": pending}


def metrics_of(definitions: Iterable[Any], left_out: list[LeftOut], *, path: str) -> dict[str, str]:
    """Return the patterns of a job's metrics, by name.

    Args:
        definitions: With `Name` and `Regex` each, or `name` and `regex`.
        left_out: The parts that are left out so far. Definitions that no job file takes are added.
        path: Their place in the request.
    """
    metrics = {}
    for definition in definitions:
        given = {str(key).lower(): value for key, value in definition.items()} if isinstance(definition, dict) else {}
        name, pattern = given.get("name"), given.get("regex")
        try:
            metrics[read_metric_name(name)] = read_metric_pattern(pattern)
        except PydanticCustomError as error:
            left_out.append(LeftOut(field=f"{path}.{name}", why=f"it {error.message()}"))
    return metrics


def channel_of(
    name: Any,
    members: Mapping[str, Any],
    left_out: list[LeftOut],
    *,
    path: str,
    mode: str,
    instances: Any,
    written: Callable[[str], str] = str,
) -> Iterator[dict[str, Any]]:
    """Yield the channel of a job file, if it can be one.

    Args:
        name: The channel's name.
        members: Those of a channel of CreateTrainingJob, of its data source and of the source in it, in one mapping.
        left_out: The parts that are left out so far, to which the lost members of the channel are added.
        path: Its place in the request, including its name.
        mode: The input mode where the channel has none.
        instances: Number of instances. None where that is not known.
        written: Gives the name of a member as the request writes it.
    """
    given = {key: value for key, value in members.items() if value is not None}
    uri, kind = given.pop("S3Uri", None), given.pop("S3DataType", "S3Prefix")
    content = given.pop("ContentType", None)
    of_a_kind = {"content_type": content} if content else {}
    file_system, service = given.pop("FileSystemId", None), given.pop("FileSystemType", None)
    if file_system is not None and service in _SERVICES_OF_FILE_SYSTEMS:
        directory, access = given.pop("DirectoryPath", None), given.pop("FileSystemAccessMode", "ro")
        if given.pop("InputMode", "File") != "File":
            why = "a mounted file is read when it is needed"
            left_out.append(LeftOut(field=f"{path}.{written('InputMode')}", why=why, replaced=True))
        of_service = {_SERVICES_OF_FILE_SYSTEMS[service]: file_system}
        yield {"name": name, **of_service, "path": directory, "access": access, **of_a_kind}
        _leave_out_the_rest(given, left_out, path=path, written=written)
        return
    if kind != "S3Prefix" or not isinstance(uri, str) or not uri.startswith("s3://"):
        why = "a channel is an S3 prefix or a directory of FSx for Lustre or EFS: no manifest"
        left_out.append(LeftOut(field=path, why=why))
        return
    if (distribution := given.pop("S3DataDistributionType", "FullyReplicated")) != "FullyReplicated":
        if instances != 1:
            why = f"{distribution} gives each instance a part of the data; a channel of a job file gives each all of it"
            left_out.append(LeftOut(field=path, why=why))
            return
        why = f"{distribution} gives one instance all of the data, as the channel does"
        left_out.append(LeftOut(field=f"{path}.{written('S3DataDistributionType')}", why=why, replaced=True))
    yield {"name": name, "uri": uri, "input_mode": given.pop("InputMode", mode), **of_a_kind}
    _leave_out_the_rest(given, left_out, path=path, written=written)


def _leave_out_the_rest(
    given: Mapping[str, Any], left_out: list[LeftOut], *, path: str, written: Callable[[str], str]
) -> None:
    """Add the members of a channel that no field of a job file takes."""
    for member, value in given.items():
        if value not in ("None", False, "", [], {}):
            meaning = _CHANNEL_MEANINGS.get(member, LeftOut(field="", why=WITHOUT_A_FIELD))
            left_out.append(LeftOut(field=f"{path}.{written(member)}", why=meaning.why, replaced=meaning.replaced))


def meaning_of(path: str, meanings: Mapping[str, LeftOut] = MEANINGS) -> LeftOut:
    """Return the meaning of leaving a part of a request out, by the longest path that it begins with.

    Args:
        path: Of the part, with dots.
        meanings: By path.
    """
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        field = ".".join(parts[:length])
        if field in meanings:
            return LeftOut(field=field, why=meanings[field].why, replaced=meanings[field].replaced)
    return LeftOut(field=path, why=WITHOUT_A_FIELD)


class _Rest:
    """The members of a request that are not taken yet."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self._members: dict[str, Any] = copy.deepcopy(dict(request))

    def take(self, *path: str) -> Any:
        """Take a member. Return None where it is not there."""
        members = self._members
        for name in path[:-1]:
            members = members.get(name) or {}
        return members.pop(path[-1], None)

    def left_out(self) -> Iterator[LeftOut]:
        """Yield each member that was not taken and asks for something, with the meaning of leaving it out."""
        results = [name for name in self._members if name in _RESULTS]
        if results:
            yield LeftOut(field=", ".join(results), why="it says how that job went", replaced=True)
        for name, member in self._members.items():
            if name not in _RESULTS:
                for path, value in _leaves(name, member):
                    if value not in (None, False, "", [], {}, _NEUTRAL.get(path)):
                        yield meaning_of(path)


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, member in value.items():
            yield from _leaves(f"{path}.{name}", member)
    else:
        yield path, value


def _work(rest: _Rest, left_out: list[LeftOut]) -> dict[str, Any]:
    """Return the command and its hyperparameters, from the request's words, or from the script that the SDK names."""
    given = rest.take("HyperParameters") or {}
    hyperparameters = {key: _value(text) for key, text in given.items()}
    words = list(rest.take("AlgorithmSpecification", "ContainerEntrypoint") or ())
    if words:
        words += rest.take("AlgorithmSpecification", "ContainerArguments") or ()
    program = hyperparameters.get("sagemaker_program")
    work: dict[str, Any]
    if words:
        # SageMaker hands them no hyperparameters.
        work = {"command": words, "arguments": "none"}
        if any(_SDK_DRIVERS in word for word in words):
            why = "drivers of the SageMaker SDK start it: import the script that made the job, or write your command"
            left_out.append(LeftOut(field="AlgorithmSpecification.ContainerEntrypoint", why=why))
    elif isinstance(program, str):
        work = {"command": command_of_script(program)}
        if hyperparameters.get(_TORCHRUN) == "true":
            del hyperparameters[_TORCHRUN]
            work["distributed"] = distributed_of(TORCHRUN, None)
        elif hyperparameters.get(_MPI) == "true":
            processes = hyperparameters.pop(_MPI_PROCESSES, "1")
            del hyperparameters[_MPI]
            count = int(processes) if processes.isdigit() else None
            work = {"command": mpi_command_of_script(program), "distributed": distributed_of(MPI, count)}
    else:
        # The image's own entry point reads them as they are.
        work, hyperparameters = {}, given
    for key in sorted(hyperparameters):
        if key == "sagemaker_submit_directory":
            why = "the archive's hash is not known: unpack it beside the job file, or name it as {uri, sha256}"
            left_out.append(LeftOut(field=f"HyperParameters.{key}", why=why))
        elif key.startswith(_TOOLKIT) and key.endswith("_enabled") and hyperparameters[key] == "true":
            left_out.append(LeftOut(field=f"HyperParameters.{key}", why=PROCESSES_OF_ITS_OWN))
        elif key.startswith(_TOOLKIT) and (key != "sagemaker_program" or words):
            left_out.append(LeftOut(field=f"HyperParameters.{key}", why="it is for SageMaker's training toolkit"))
    return work | {
        "hyperparameters": {key: value for key, value in hyperparameters.items() if not key.startswith(_TOOLKIT)}
    }


def _channels(rest: _Rest, left_out: list[LeftOut], *, instances: Any) -> Iterator[dict[str, Any]]:
    mode = rest.take("AlgorithmSpecification", "TrainingInputMode") or "File"
    for channel in rest.take("InputDataConfig") or ():
        name, source = channel.pop("ChannelName", None), channel.pop("DataSource", None) or {}
        for kind in ("S3DataSource", "FileSystemDataSource"):
            channel |= source.pop(kind, None) or {}
        members = channel | source
        yield from channel_of(name, members, left_out, path=f"InputDataConfig.{name}", mode=mode, instances=instances)


def _tags(rest: _Rest, left_out: list[LeftOut]) -> Iterator[tuple[str, str]]:
    """Yield the client's own tags. AWS and Spotkeep set theirs themselves."""
    for tag in rest.take("Tags") or ():
        if tag["Key"].startswith(("aws:", "spotkeep:")):
            whose = "AWS" if tag["Key"].startswith("aws:") else "Spotkeep"
            left_out.append(LeftOut(field=f"Tags.{tag['Key']}", why=f"{whose} sets tags of this name", replaced=True))
        else:
            yield tag["Key"], tag["Value"]


def _mlflow(rest: _Rest) -> dict[str, str]:
    tracking_uri = rest.take("MlflowConfig", "MlflowResourceArn")
    if not tracking_uri:
        return {}
    experiment = rest.take("MlflowConfig", "MlflowExperimentName")
    return {"tracking_uri": tracking_uri} | ({"experiment": experiment} if experiment else {})


def _value(text: str) -> str:
    """Return a hyperparameter as a script gets it. The SageMaker SDK 2 writes texts as JSON, in quotes."""
    try:
        meant = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text_that_stays(meant) if isinstance(meant, str) else text
