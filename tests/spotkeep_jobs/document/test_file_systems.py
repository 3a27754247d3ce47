"""Channels on file systems: how they are written, and the refusals that need no answer of AWS's."""

from __future__ import annotations

from typing import Any

import pytest

from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
from spotkeep_jobs.document.request import JobRequest, validate
from spotkeep_jobs.errors import Problem

LUSTRE, SHARED = "fs-0123456789abcdef0", "fs-0fedcba9876543210"
DOCUMENT = {"name": "first", "command": "python train.py"}


def judged(channels: Any, **fields: Any) -> tuple[JobRequest | None, list[Problem]]:
    known = {"file_systems": (LUSTRE, SHARED), "training_network": True, **fields.pop("known", {})}
    defaults = DeploymentDefaults(
        image="123456789012.dkr.ecr.us-east-1.amazonaws.com/a:1",
        instance_type="ml.m5.xlarge",
        fleet_instance_types=("m5.xlarge",),
        **known,
    )
    validation = validate({**DOCUMENT, "channels": channels, **fields}, defaults=defaults)
    return validation.request, list(validation.problems)


def problems(channels: Any, **fields: Any) -> dict[str, str]:
    _, found = judged(channels, **fields)
    return {each.field: f"{each.problem}. {each.fix}" for each in found}


def test_a_channel_with_a_folder_is_one_on_a_file_system_and_its_unknown_field_is_compared_with_theirs() -> None:
    said = problems({"mine": {"file_system": SHARED, "path": "/a"}})
    assert list(said) == ["channels.mine.file_system"]
    assert "Known are: fsx, efs, path, access" in said["channels.mine.file_system"]


def test_both_kinds_stand_beside_channels_in_s3_by_name_or_in_a_list() -> None:
    named = {
        "train": {"fsx": LUSTRE, "path": "/abcdefgh/cifar10/"},
        "shared": {"efs": SHARED, "path": "/", "access": "rw", "content_type": "text/csv"},
        "test": "s3://data/test/",
    }
    request, found = judged(named)
    assert not found
    assert request is not None
    assert [each.name for each in request.s3_channels] == ["test"]
    train, shared = request.file_system_channels
    assert (train.file_system, train.path, train.access, train.mount_name) == (
        LUSTRE,
        "/abcdefgh/cifar10",
        "ro",
        "abcdefgh",
    )
    assert (shared.file_system, shared.path, shared.access, shared.mount_name) == (SHARED, "/", "rw", "")
    listed = [{"name": name, **(each if isinstance(each, dict) else {"uri": each})} for name, each in named.items()]
    assert judged(listed)[0] == request
    assert JobRequest.model_validate(request.as_document()) == request


@pytest.mark.parametrize(
    ("channel", "field", "words"),
    [
        ({"fsx": "fs-12", "path": "/a"}, "fsx", ""),
        ({"efs": f"arn:aws:elasticfilesystem:us-east-1:1:file-system/{SHARED}", "path": "/a"}, "efs", ""),
        ({"fsx": LUSTRE}, "path", "is required"),
        ({"fsx": LUSTRE, "path": "a/b"}, "path", "does not begin with a slash"),
        ({"efs": SHARED, "path": "/a//b"}, "path", "an empty, a . or a .. segment"),
        ({"efs": SHARED, "path": "/a/../b"}, "path", "an empty, a . or a .. segment"),
        ({"efs": SHARED, "path": "/a\nb"}, "path", "cannot be printed"),
        ({"efs": SHARED, "path": "/" + "a" * 4_096}, "path", "SageMaker takes 4,096"),
        ({"efs": SHARED, "path": "/a", "access": "write"}, "access", ""),
        ({"efs": SHARED, "path": "/a", "uri": "s3://data/"}, "uri", ""),
        ({"fsx": LUSTRE, "path": "/"}, "path", "--file-system-ids " + LUSTRE),
        ({"fsx": LUSTRE, "path": "/m/a", "input_mode": "FastFile"}, "input_mode", "Leave it out"),
        ({"efs": SHARED, "path": "/a", "input_mode": "Pipe"}, "input_mode", "Leave it out"),
    ],
)
def test_what_is_wrong_with_a_channel_is_named_at_its_field(channel: Any, field: str, words: str) -> None:
    ((place, said),) = problems({"train": channel}).items()
    assert place == f"channels.train.{field}"
    assert words in said


def test_it_is_one_file_system() -> None:
    both = problems({"train": {"fsx": LUSTRE, "efs": SHARED, "path": "/a"}})
    assert "one file system" in both["channels.train"]
    assert "one file system" in problems({"train": {"fsx": None, "path": "/a"}})["channels.train"]


def test_an_instance_mounts_both_kinds_without_the_network_of_training_jobs() -> None:
    channels = {"train": {"fsx": LUSTRE, "path": "/m/a"}, "more": {"efs": SHARED, "path": "/"}}
    assert problems(channels, backend="ec2", known={"training_network": False}) == {}
    typed = {"train": {**channels["train"], "content_type": "text/csv"}}
    assert set(problems(typed, backend="ec2")) == {"channels.train.content_type"}
    unnamed = problems(channels, backend="ec2", known={"file_systems": (LUSTRE,)})
    assert set(unnamed) == {"channels.more.efs"}


NODES = {"backend": "ec2", "nodes": 2, "distributed": "torchrun"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({**NODES, "checkpoint_channel": "shared"}, None),
        ({**NODES, "checkpoint_channel": "train"}, "Write access: rw in channels.train"),
        ({**NODES, "checkpoint_channel": "test"}, "Name one of train, shared"),
        ({"backend": "ec2", "checkpoint_channel": "shared"}, "nodes: 2 or more"),
        ({"checkpoint_channel": "shared"}, "backend: ec2"),
    ],
)
def test_nodes_share_their_checkpoints_on_a_channel_that_they_write(fields: dict[str, Any], words: str | None) -> None:
    channels = {
        "train": {"fsx": LUSTRE, "path": "/m/a"},
        "shared": {"fsx": LUSTRE, "path": "/m/b", "access": "rw"},
        "test": "s3://data/test/",
    }
    said = problems(channels, **fields)
    assert set(said) == (set() if words is None else {"checkpoint_channel"})
    assert words is None or words in said["checkpoint_channel"]


def test_a_job_without_a_file_system_gets_the_form_of_one_for_its_checkpoints() -> None:
    said = problems({"test": "s3://data/test/"}, **NODES, checkpoint_channel="shared")
    assert "Add one, such as channels: {shared: {fsx: ..., path: ..., access: rw}}" in said["checkpoint_channel"]
    said = problems({"mine": "s3://data/a/"}, **NODES, checkpoint_channel="mine")
    assert "names a channel in S3" in said["checkpoint_channel"]
    assert "Write channels: {mine: {fsx: ..., path: ..., access: rw}}" in said["checkpoint_channel"]


def test_what_the_deployment_lacks_is_named_with_its_settings_at_once() -> None:
    channels = {"train": {"fsx": LUSTRE, "path": "/m/a"}, "more": {"efs": SHARED, "path": "/"}}
    _, found = judged(channels, known={"file_systems": (), "training_network": False})
    assert [each.field for each in found] == ["channels.train.fsx"] * 2 + ["channels.more.efs"] * 2
    unnamed, without_network = found[:2]
    assert "the deployment has none" in unnamed.problem
    assert "setting file_systems" in unnamed.fix
    assert "training_subnet_ids" in without_network.fix
    _, (other,) = judged({"more": channels["more"]}, known={"file_systems": (LUSTRE,)})
    assert LUSTRE in other.problem


def test_a_document_is_judged_without_a_deployment_too() -> None:
    validation = validate({**DOCUMENT, "channels": {"train": {"efs": SHARED, "path": "/a"}}})
    assert not [each for each in validation.problems if each.field.startswith("channels")]
