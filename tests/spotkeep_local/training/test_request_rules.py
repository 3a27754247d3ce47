"""Which program stands for an image's own entry point."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from spotkeep_local.service_base.aws_service import ValidationError
from spotkeep_local.training.request_rules import (
    create_problems,
    instance_count,
    instance_type,
    named_program,
    program_of,
)

CHANNEL = {
    "ChannelName": "train",
    "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/data"}},
}
SPOT = {
    "TrainingJobName": "job",
    "AlgorithmSpecification": {
        "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/image:1",
        "TrainingInputMode": "File",
        "ContainerEntrypoint": ["python3"],
    },
    "RoleArn": "arn:aws:iam::000000000000:role/training-role",
    "InputDataConfig": [CHANNEL],
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
    "CheckpointConfig": {"S3Uri": "s3://bucket/checkpoints"},
    "EnableManagedSpotTraining": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 60},
}


FILE_SYSTEM = {
    "ChannelName": "shared",
    "DataSource": {
        "FileSystemDataSource": {
            "FileSystemId": "fs-0123abcd",
            "FileSystemType": "EFS",
            "FileSystemAccessMode": "ro",
            "DirectoryPath": "/",
        }
    },
}


def relative() -> dict[str, Any]:
    """Return the channel with a directory that is not absolute."""
    changed = copy.deepcopy(FILE_SYSTEM)
    changed["DataSource"]["FileSystemDataSource"]["DirectoryPath"] = "a"  # type: ignore[index]
    return changed


THROUGH_THE_VPC = {"TrainingRepositoryAccessMode": "Vpc"}


PROGRAMS = {"sagemaker-xgboost:1.7-1": ("/opt/train", "--quiet"), "mine:1": ("mine.sh",)}
IN_US = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"


def changed(path: str, value: object) -> dict:
    request = copy.deepcopy(SPOT)
    *parents, last = path.split(".")
    place = request
    for parent in parents:
        place = place[parent]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return request


def preferred(*counts: int | None) -> dict:
    """Return resources with a preference for each count, which may leave it out."""
    types = ("ml.m5.large", "ml.m5.xlarge")
    each = [{"InstanceType": name, "InstanceCount": count} for name, count in zip(types, counts, strict=True)]
    return {"InstancePreferences": [{key: value for key, value in one.items() if value is not None} for one in each]}


PREFERRED = preferred(2, 4)


def test_a_spot_request_is_fine():
    assert create_problems(SPOT, programs={}) == []


@pytest.mark.parametrize(
    ("image", "refused"),
    [
        ("registry.example.com/mine:1", False),
        ("123456789012.dkr.ecr-fips.us-east-1.amazonaws.com/mine:1", False),
        ("public.ecr.aws/docker/library/python:3.12", True),
    ],
)
def test_in_a_vpc_a_private_registry_is_reached(image, refused):
    request = changed("VpcConfig", {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]})
    request["AlgorithmSpecification"] |= {"TrainingImage": image, "TrainingImageConfig": THROUGH_THE_VPC}
    assert bool(create_problems(request, programs={})) == refused


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("StoppingCondition.MaxWaitTimeInSeconds", 59, "Invalid MaxWaitTimeInSeconds. It must be present"),
        ("StoppingCondition.MaxWaitTimeInSeconds", None, "Invalid MaxWaitTimeInSeconds. It must be present"),
        ("StoppingCondition", {"MaxWaitTimeInSeconds": 3600}, "MaxRuntimeInSeconds (86400)"),
        ("EnableManagedSpotTraining", False, "supported only when EnableManagedSpotTraining"),
        ("StoppingCondition.MaxPendingTimeInSeconds", 3600, "supported only for accelerated instance types"),
        ("StoppingCondition.MaxRuntimeInSeconds", 2419201, "Invalid MaxRuntimeInSeconds 2419201"),
        ("ResourceConfig.KeepAlivePeriodInSeconds", 60, "not supported with EnableManagedSpotTraining"),
        ("ResourceConfig.KeepAlivePeriodInSeconds", 3601, "must be at most 3600"),
        ("ResourceConfig.InstanceType", None, "InstanceType is required"),
        ("ResourceConfig.InstancePreferences", [{"InstanceType": "ml.m5.large"}], "not supported with EnableManaged"),
        ("ResourceConfig.InstancePreferences", [{"InstanceType": "ml.m5.large"}], "together with InstanceType"),
        ("ResourceConfig", PREFERRED | {"InstanceCount": 2}, "in 2 of 2 preferences, with one in ResourceConfig"),
        ("ResourceConfig", preferred(2, None), "in 1 of 2 preferences, without one in ResourceConfig"),
        ("ResourceConfig", preferred(None, None), "in 0 of 2 preferences, without one in ResourceConfig"),
        ("ResourceConfig", preferred(2, 0), "Invalid InstanceCount 0"),
        ("ResourceConfig", {"InstancePreferences": [{"InstanceType": "ml.m5.large"}] * 2}, "ml.m5.large 2 times"),
        ("ResourceConfig.SelectedInstanceCount", 2, "SelectedInstanceCount is read-only"),
        ("ResourceConfig.VolumeSizeInGB", 0, "Invalid VolumeSizeInGB 0"),
        ("ResourceConfig.InstanceGroups", [{}], "has no heterogeneous clusters"),
        ("ResourceConfig", None, "ResourceConfig is required"),
        ("HyperParameters", {"long": "x" * 257}, "hyperparameter 'long' has 257 characters"),
        ("InputDataConfig", [CHANNEL, CHANNEL], "ChannelName 'train' is given 2 times"),
        ("InputDataConfig", [CHANNEL | {"InputMode": "Pipe"}], "has no Pipe input mode"),
        ("AlgorithmSpecification.TrainingInputMode", "Pipe", "has no Pipe input mode"),
        ("InputDataConfig", [{"ChannelName": "fs", "DataSource": {}}], "S3 and file systems only: channel 'fs'"),
        ("InputDataConfig", [FILE_SYSTEM], "of channel 'shared' requires VpcConfig"),
        ("InputDataConfig", [{**FILE_SYSTEM, "InputMode": "FastFile"}], "requires the input mode File, found FastFile"),
        ("InputDataConfig", [relative()], "must be absolute, found 'a'"),
        ("AlgorithmSpecification.ContainerEntrypoint", None, "no `train` program"),
        ("AlgorithmSpecification.TrainingImage", None, "TrainingImage is required"),
        ("AlgorithmSpecification.TrainingImage", "python:3.12", "Invalid TrainingImage python:3.12"),
        ("AlgorithmSpecification.TrainingImage", "public.ecr.aws/docker/library/python:3.12", "Invalid TrainingImage"),
        ("AlgorithmSpecification.TrainingImageConfig", THROUGH_THE_VPC, "Vpc requires VpcConfig"),
        ("AlgorithmSpecification.AlgorithmName", "mine", "no algorithm resources"),
        ("OutputDataConfig.S3OutputPath", "https://bucket/out", "S3OutputPath: must be an S3 URI"),
        ("CheckpointConfig.S3Uri", "s3://", "CheckpointConfig.S3Uri: must be an S3 URI"),
        ("CheckpointConfig.LocalPath", "/data/checkpoints", "syncs checkpoints below /opt/ml"),
        ("CheckpointConfig.LocalPath", "/opt/ml/../etc", "syncs checkpoints below /opt/ml"),
        ("CheckpointConfig.LocalPath", "/opt/ml/model/x", "must not be in /opt/ml/input"),
        ("ServerlessJobConfig", {}, "has no serverless jobs"),
    ],
)
def test_each_rule_names_what_is_wrong(path, value, problem):
    problems = create_problems(changed(path, value), programs={})
    assert any(problem in found for found in problems), problems


@pytest.mark.parametrize("value", [True, False])
def test_preferences_exclude_the_field_of_managed_spot_whatever_it_says(value):
    request = changed("ResourceConfig", {"InstancePreferences": [{"InstanceType": "ml.m5.large"}], "InstanceCount": 1})
    request["StoppingCondition"] = {"MaxRuntimeInSeconds": 60}
    del request["EnableManagedSpotTraining"]
    assert create_problems(request, programs={}) == []
    problems = create_problems(request | {"EnableManagedSpotTraining": value}, programs={})
    assert any("InstancePreferences is not supported with EnableManaged" in found for found in problems), problems


def test_the_number_of_hosts_stands_beside_the_preferences_or_in_each_of_them():
    on_demand = changed("EnableManagedSpotTraining", None) | {"StoppingCondition": {"MaxRuntimeInSeconds": 60}}
    for resources, hosts in ((PREFERRED, 2), (preferred(None, None) | {"InstanceCount": 3}, 3)):
        request = on_demand | {"ResourceConfig": resources | {"VolumeSizeInGB": 1}}
        assert create_problems(request, programs={}) == []
        assert (instance_count(request), instance_type(request)) == (hosts, "ml.m5.large")


def test_all_problems_are_found_at_once():
    request = changed("StoppingCondition.MaxWaitTimeInSeconds", None)
    request["ResourceConfig"] = {"InstanceType": "ml.m5.large", "KeepAlivePeriodInSeconds": 9999}
    request["OutputDataConfig"]["S3OutputPath"] = "here"
    assert len(create_problems(request, programs={})) == 4


def test_an_image_with_a_program_of_its_own_needs_no_entry_point():
    request = changed("AlgorithmSpecification.ContainerEntrypoint", None)
    assert create_problems(request, programs={"image:1": ("train.sh",)}) == []
    [problem] = create_problems(request, programs={"another": ("train.sh",)})
    assert "spotkeep local image 123456789012.dkr.ecr.us-east-1.amazonaws.com/image:1 PROGRAM" in problem


@pytest.mark.parametrize(
    ("algorithm", "command"),
    [
        ({"TrainingImage": IN_US}, ("/opt/train", "--quiet", "train")),
        ({"TrainingImage": "mine:1"}, ("mine.sh", "train")),
        ({"TrainingImage": "mine:1", "ContainerArguments": ["serve"]}, ("mine.sh", "serve")),
        ({"TrainingImage": "mine:1", "ContainerEntrypoint": ["a"], "ContainerArguments": ["b"]}, ("a", "b")),
        ({"TrainingImage": "mine:1", "ContainerEntrypoint": ["a"]}, ("a",)),
        ({"TrainingImage": "mine:2"}, None),
        ({}, None),
    ],
)
def test_an_entry_point_of_the_request_wins_then_the_program_of_the_image(
    algorithm: dict[str, Any], command: tuple[str, ...] | None
) -> None:
    assert program_of({"AlgorithmSpecification": algorithm}, programs=PROGRAMS) == command


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"program": ["a"]}, "image must be"),
        ({"image": "", "program": ["a"]}, "image must be"),
        ({"image": "a", "program": []}, "program must be"),
        ({"image": "a", "program": "words"}, "program must be"),
        ({"image": "a", "program": [1]}, "program must be"),
    ],
)
def test_an_image_or_a_program_that_is_missing_is_refused(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        named_program(asked)
