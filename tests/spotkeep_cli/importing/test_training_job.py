"""Each member of a request leaves a trace: in the job document, or in what was left out, by its name."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator
from typing import Any

import botocore.session
import pytest
from botocore.model import Shape
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.runner.environment import command_arguments
from spotkeep_cli.importing.training_job import ImportedJob, import_request

REQUEST: dict[str, Any] = {
    "TrainingJobName": "digits",
    "AlgorithmSpecification": {"TrainingImage": "a/b:1"},
    "ResourceConfig": {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 50},
}
ASKED_FOR = {"S3Uri": "s3://theirs/data/", "S3DataType": "S3Prefix", "MaxRuntimeInSeconds": 60, "InstanceCount": 1,
    "TrainingInputMode": "Pipe"}  # fmt: skip
"""Values that a member needs to be read; others are any that are not the default."""
Path = tuple[str | int, ...]
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
"""What a process can be given."""


@functools.cache
def shapes(operation: str) -> Shape:
    model = botocore.session.get_session().get_service_model("sagemaker").operation_model(operation)
    return model.output_shape if operation.startswith("Describe") else model.input_shape


def sample(shape: Shape, name: str = "") -> Any:
    """Return a value with each member of a shape."""
    if shape.type_name == "structure":
        return {name: sample(member, name) for name, member in shape.members.items()}
    if shape.type_name == "list":
        return [sample(shape.member, name)]
    if shape.type_name == "map":
        return {"some": "value"}
    if name in ASKED_FOR:
        return ASKED_FOR[name]
    kinds = {"boolean": True, "integer": 7_200, "long": 7, "float": 0.5}
    return kinds.get(shape.type_name) or (shape.metadata.get("enum") or [f"{name}-1"])[-1]


def channels(whole: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a channel for each kind of data of one that has all of them, and a channel that says little."""
    each = [
        whole | {"ChannelName": kind.lower(), "DataSource": {kind: source}}
        for kind, source in whole["DataSource"].items()
    ]
    return [*each, channel()]


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not items:
        yield path
    for name, inner in items:
        yield from leaves(inner, (*path, name))


def without(request: Any, path: Path) -> Any:
    less = copy.deepcopy(request)
    inner = less
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    return less


def named(path: Path, job: ImportedJob, names: list[str]) -> bool:
    """Return whether something that is left out is this member, or what it is in, by its name.

    Args:
        path: Of the member.
        job: What was imported.
        names: Those of the channels.
    """
    written = "".join(f".{name}" for name in path if isinstance(name, str))
    if path[0] == "InputDataConfig":
        around = ("DataSource", "S3DataSource", "FileSystemDataSource")
        member = [name for name in path if isinstance(name, str) and name not in around][1]
        written = f".InputDataConfig.{names[int(path[1])]}.{member}"
    fields = [field for each in job.left_out for field in each.field.split(", ")]
    return any(f"{written}.".startswith(f".{field}.") for field in fields)


def has_a_trace(request: dict[str, Any], path: Path) -> bool:
    job = import_request(request)
    try:
        less = import_request(without(request, path))
    except (KeyError, TypeError, AttributeError, ValueError):
        return True
    names = [each["ChannelName"] for each in request["InputDataConfig"]]
    return named(path, job, names) or less.fields != job.fields or less.not_imported() != job.not_imported()


@pytest.mark.parametrize("operation", ["CreateTrainingJob", "DescribeTrainingJob"])
@pytest.mark.parametrize("spot", [True, False])
def test_no_member_of_a_request_or_a_description_is_left_out_silently(operation: str, *, spot: bool) -> None:
    request = sample(shapes(operation)) | {"EnableManagedSpotTraining": spot}
    request["InputDataConfig"] = channels(request["InputDataConfig"][0])
    request["ResourceConfig"]["InstancePreferences"][0]["InstanceCount"] = 9
    # These have the value here that they have when they are not given.
    as_by_default = {"EnableManagedSpotTraining", "FileSystemAccessMode", "S3DataType"}
    lost = [path for path in leaves(request) if path[-1] not in as_by_default and not has_a_trace(request, path)]
    assert lost == []


def left_out(**changes: Any) -> dict[str, str]:
    return {each.field: each.why for each in import_request(REQUEST | changes).left_out}


def test_what_a_description_says_of_how_a_job_went_stands_in_one_line() -> None:
    went = {"TrainingJobStatus": "Completed", "BillableTimeInSeconds": 5}
    assert left_out(**went) == {"TrainingJobStatus, BillableTimeInSeconds": "it says how that job went"}


@pytest.mark.parametrize("member", ["FutureConfig", "TrainingJobNam"])
def test_a_member_that_is_not_known_is_named(member: str) -> None:
    assert left_out(**{member: {"Enabled": True}}) == {f"{member}.Enabled": "a job file has no field for it"}


def test_what_asks_for_nothing_is_not_named() -> None:
    idle = {
        "EnableNetworkIsolation": False,
        "DebugRuleConfigurations": [],
        "ExperimentConfig": {},
        "ProfilerConfig": {"DisableProfiler": True},
        "RemoteDebugConfig": {"EnableRemoteDebug": False},
    }
    assert left_out(**idle) == {}


def channel(**members: Any) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": "s3://theirs/data/"} | members.pop("S3DataSource", {})
    return {"ChannelName": "train", "DataSource": {"S3DataSource": source}, **members}


def test_what_a_channel_cannot_keep_is_named_with_what_it_means() -> None:
    sharded = {"S3DataDistributionType": "ShardedByS3Key"}
    of_one = channel(CompressionType="Gzip", ShuffleConfig={"Seed": 0}, RecordWrapperType="None", S3DataSource=sharded)
    job = import_request(REQUEST | {"InputDataConfig": [of_one]})
    assert job.fields["channels"] == [{"name": "train", "uri": "s3://theirs/data/", "input_mode": "File"}]
    assert {each.field: each.replaced for each in job.left_out} == {
        "InputDataConfig.train.S3DataDistributionType": True,
        "InputDataConfig.train.CompressionType": False,
        "InputDataConfig.train.ShuffleConfig": False,
    }


@pytest.mark.parametrize(("service", "field"), [("FSxLustre", "fsx"), ("EFS", "efs")])
def test_a_file_system_is_a_channel_too(service: str, field: str) -> None:
    source = {
        "FileSystemId": "fs-0123456789abcdef0",
        "FileSystemType": service,
        "FileSystemAccessMode": "rw",
        "DirectoryPath": "/fsx/data",
    }
    mounted = {"ChannelName": "train", "DataSource": {"FileSystemDataSource": source}, "CompressionType": "Gzip"}
    job = import_request(REQUEST | {"InputDataConfig": [mounted]})
    wanted = {"name": "train", field: "fs-0123456789abcdef0", "path": "/fsx/data", "access": "rw"}
    assert job.fields["channels"] == [wanted]
    assert [each.field for each in job.left_out] == ["InputDataConfig.train.CompressionType"]
    source["FileSystemType"] = "Another"
    job = import_request(REQUEST | {"InputDataConfig": [mounted]})
    assert "channels" not in job.fields


def test_data_that_instances_share_is_no_channel() -> None:
    two = REQUEST["ResourceConfig"] | {"InstanceCount": 2}
    sharded = channel(S3DataSource={"S3DataDistributionType": "ShardedByS3Key"})
    job = import_request(REQUEST | {"ResourceConfig": two, "InputDataConfig": [sharded]})
    assert "channels" not in job.fields
    assert [each.field for each in job.left_out] == ["InputDataConfig.train"]


@pytest.mark.parametrize(
    ("preferences", "count", "named"),
    [
        ([{"InstanceType": "ml.g5.xlarge"}, {"InstanceType": "ml.g6.xlarge"}], None, set()),
        ([{"InstanceType": "ml.g5.xlarge", "InstanceCount": 2}, {"InstanceType": "ml.g6.xlarge", "InstanceCount": 2}],
         2, set()),
        ([{"InstanceType": "ml.g5.xlarge", "InstanceCount": 2}, {"InstanceType": "ml.g6.xlarge", "InstanceCount": 1}],
         None, {"ResourceConfig.InstancePreferences"}),
        ([{"InstanceType": "ml.g5.xlarge", "TrainingPlanArns": ["arn"]}, {"InstanceType": "ml.g6.xlarge"}],
         None, {"ResourceConfig.InstancePreferences"}),
    ],
)  # fmt: skip
def test_preferred_instances_are_the_types_of_the_job(
    preferences: list[dict[str, Any]], count: int | None, named: set[str]
) -> None:
    job = import_request(REQUEST | {"ResourceConfig": {"InstancePreferences": preferences}})
    assert job.fields["instance_types"] == ["ml.g5.xlarge", "ml.g6.xlarge"]
    assert job.fields.get("instance_count") == count
    assert {each.field for each in job.left_out} == named


def test_checkpoints_that_nobody_would_save_are_named_with_their_directory() -> None:
    elsewhere = {"S3Uri": "s3://theirs/ck/", "LocalPath": "/opt/ml/ck2"}
    assert "/opt/ml/ck2" in left_out(CheckpointConfig=elsewhere)["CheckpointConfig.LocalPath"]
    assert "CheckpointConfig.LocalPath" not in left_out(CheckpointConfig={"LocalPath": "/opt/ml/checkpoints/"})


def test_times_that_a_job_has_no_use_for_are_named() -> None:
    times = {"MaxRuntimeInSeconds": 3_600, "MaxWaitTimeInSeconds": 7_200, "MaxPendingTimeInSeconds": 7_200}
    spot = import_request(REQUEST | {"StoppingCondition": times, "EnableManagedSpotTraining": True})
    assert spot.fields["max_wait"] == 7_200
    assert [each.field for each in spot.left_out] == ["StoppingCondition.MaxPendingTimeInSeconds"]
    on_demand = import_request(REQUEST | {"StoppingCondition": times})
    assert on_demand.fields["longest_wait"] == 7_200
    assert "StoppingCondition.MaxWaitTimeInSeconds" in {each.field for each in on_demand.left_out}


def test_words_of_the_container_get_no_hyperparameters_as_on_sagemaker() -> None:
    words = REQUEST["AlgorithmSpecification"] | {"ContainerEntrypoint": ["python"], "ContainerArguments": ["a.py"]}
    fields = import_request(REQUEST | {"AlgorithmSpecification": words, "HyperParameters": {"lr": "1"}}).fields
    assert (fields["command"], fields["arguments"]) == (["python", "a.py"], "none")
    assert fields["hyperparameters"] == {"lr": "1"}


@pytest.mark.parametrize(
    ("sent", "distributed", "named"),
    [
        ({"sagemaker_torch_distributed_enabled": "true"}, "torchrun", set()),
        ({"sagemaker_mpi_enabled": "true"}, {"launcher": "mpi", "processes": 1}, set()),
        ({"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "8"},
         {"launcher": "mpi", "processes": 8}, set()),
        ({"sagemaker_parameter_server_enabled": "true"}, None, {"sagemaker_parameter_server_enabled"}),
    ],
)  # fmt: skip
def test_processes_that_the_toolkit_starts_are_started_or_named(
    sent: dict[str, str], distributed: Any, named: set[str]
) -> None:
    sent = {"sagemaker_program": "train.py", "sagemaker_instance_type": '"ml.g5.xlarge"', **sent}
    job = import_request(REQUEST | {"HyperParameters": sent})
    assert job.fields.get("distributed") == distributed
    reasons = {each.field: each.why for each in job.left_out}
    assert {name for name, why in reasons.items() if "starts the processes" in why} == {
        f"HyperParameters.{name}" for name in named
    }


def test_arguments_of_an_images_own_entry_point_are_no_command() -> None:
    job = import_request(REQUEST | {"AlgorithmSpecification": {"TrainingImage": "a", "ContainerArguments": ["x"]}})
    assert "command" not in job.fields
    assert [each.field for each in job.left_out] == ["AlgorithmSpecification.ContainerArguments"]


@given(st.none() | st.booleans() | st.integers() | TEXTS | st.sampled_from(["true", "1.10", '"a"', "[1]"]))
def test_a_script_gets_the_hyperparameters_that_the_toolkit_gives_it(value: Any) -> None:
    sent = {"name": json.dumps(value), "sagemaker_program": "train.py"}
    imported = import_request(REQUEST | {"HyperParameters": sent}).fields["hyperparameters"]
    assert command_arguments(imported) == command_arguments(sent)


def test_the_drivers_of_the_sdk_are_named() -> None:
    drivers = ["-c", "chmod +x /opt/ml/input/data/sm_drivers/sm_train.sh && /opt/ml/input/data/sm_drivers/sm_train.sh"]
    words = REQUEST["AlgorithmSpecification"] | {"ContainerEntrypoint": ["/bin/bash"], "ContainerArguments": drivers}
    assert "AlgorithmSpecification.ContainerEntrypoint" in left_out(AlgorithmSpecification=words)


def test_a_name_is_shortened_and_that_is_said_and_one_that_is_missing_is_the_files() -> None:
    job = import_request(REQUEST | {"TrainingJobName": "a" * 63})
    assert job.fields["name"] == "a" * 43
    assert [each.field for each in job.left_out] == ["TrainingJobName"]
    nameless = {key: value for key, value in REQUEST.items() if key != "TrainingJobName"}
    assert import_request(nameless, name="request").fields["name"] == "request"


def test_entries_that_no_job_file_takes_are_left_out_and_the_others_stay() -> None:
    environment = {"SM_MODEL_DIR": "/x", "OMP_NUM_THREADS": "4"}
    request = REQUEST | {
        "Environment": environment,
        "HyperParameters": {"long": "x" * 2_000, "lr": "0.1"},
        "InputDataConfig": [channel(), channel(ChannelName="spotkeep")],
        "Tags": [{"Key": "aws:created", "Value": "x"}, {"Key": "team", "Value": "v"}],
    }
    job = import_request(request).without_refused_entries()
    assert job.fields["environment"] == {"OMP_NUM_THREADS": "4"}
    assert job.fields["hyperparameters"] == {"lr": "0.1"}
    assert [each["name"] for each in job.fields["channels"]] == ["train"]
    assert job.fields["tags"] == {"team": "v"}
    fields = {each.field for each in job.left_out}
    assert fields == {"Tags.aws:created", "hyperparameters.long", "environment.SM_MODEL_DIR", "channels.spotkeep"}
