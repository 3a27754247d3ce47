"""A job mounts file systems as channels: a folder of this machine, with FSx's and EFS's own API before it."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from spotkeep_local.hosts.isolation import Isolation
from spotkeep_local.service_base.aws_service import HttpRequest
from spotkeep_local.training.file_systems import TARGET, FileSystems
from spotkeep_local.training.job_host import resolve_isolation

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotkeep_local.lifecycle import LocalAws
    from tests.spotkeep_local.training.conftest import Training

READING = """
import os, pathlib, sys

base = pathlib.Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
for name in sys.argv[1:]:
    channel = base / "input" / "data" / name
    print("read", name, sorted(path.name for path in channel.iterdir()))
    try:
        (channel / "written").write_text("x")
        print("wrote", name)
    except OSError as error:
        print("refused", name, error.errno)
"""
VPC = {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]}


def subnet_of(local: LocalAws) -> str:
    return str(local.session().client("ec2").describe_subnets()["Subnets"][0]["SubnetId"])


def call(file_systems: FileSystems, operation: str, **request: Any) -> tuple[int, dict[str, Any]]:
    asked = HttpRequest(headers={"x-amz-target": f"{TARGET}.{operation}"}, body=json.dumps(request).encode())
    status, _, body = file_systems.api.answer(asked)
    return status, json.loads(body)


def made(training: Training, **changes: Any) -> dict[str, Any]:
    request = {"FileSystemType": "LUSTRE", "StorageCapacity": 1_200, "SubnetIds": [subnet_of(training.local)]}
    status, answer = call(training.file_systems, "CreateFileSystem", **request | changes)
    assert status == 200, answer
    described: dict[str, Any] = answer["FileSystem"]
    return described


def shared(local: LocalAws, *, mount_target: bool = True) -> str:
    efs = local.session().client("efs")
    name = str(efs.create_file_system(CreationToken=uuid.uuid4().hex)["FileSystemId"])
    if mount_target:
        efs.create_mount_target(FileSystemId=name, SubnetId=subnet_of(local))
    return name


def channel(name: str, file_system: str, path: str, *, kind: str = "FSxLustre", access: str = "ro") -> dict[str, Any]:
    source = {
        "FileSystemId": file_system,
        "FileSystemType": kind,
        "FileSystemAccessMode": access,
        "DirectoryPath": path,
    }
    return {"ChannelName": name, "DataSource": {"FileSystemDataSource": source}}


def run(training: Training, name: str, *channels: dict[str, Any]) -> dict[str, Any]:
    code = training.channel("code", "code/")
    names = [each["ChannelName"] for each in channels]
    training.create(name, READING, *names, InputDataConfig=[code, *channels], VpcConfig=VPC)
    return training.wait_ended(name)


def test_the_files_of_a_folder_are_a_channel_and_what_may_be_written_is_there_afterwards(training: Training) -> None:
    lustre = made(training, LustreConfiguration={"DeploymentType": "PERSISTENT_2"})
    mount_name = lustre["LustreConfiguration"]["MountName"]
    data = training.file_systems.folder_of(lustre["FileSystemId"]) / "cifar10" / "train"
    data.mkdir(parents=True)
    (data / "a.csv").write_text("1")
    efs = shared(training.local)
    (training.file_systems.folder_of(efs) / "b.csv").write_text("2")
    ended = run(
        training,
        "mounted",
        channel("train", lustre["FileSystemId"], f"/{mount_name}/cifar10/train"),
        channel("more", efs, "/", kind="EFS", access="rw"),
    )
    assert ended["TrainingJobStatus"] == "Completed", ended.get("FailureReason")
    log = training.log("mounted")
    assert "read train ['a.csv']" in log
    assert "read more ['b.csv']" in log
    assert "wrote more" in log
    assert (training.file_systems.folder_of(efs) / "written").read_text() == "x"
    assert [path.name for path in data.parent.iterdir()] == ["train"]


def test_nothing_is_written_where_the_job_may_read_alone(training: Training) -> None:
    efs = shared(training.local)
    ended = run(training, "reading", channel("train", efs, "/", kind="EFS"))
    assert ended["TrainingJobStatus"] == "Completed", ended.get("FailureReason")
    if resolve_isolation(training.options.isolation) is Isolation.RELOCATED:
        pytest.skip("this machine has no mount namespaces, and a link is written through")
    assert "refused train 30" in training.log("reading")
    assert not (training.file_systems.folder_of(efs) / "written").exists()


def test_without_a_namespace_the_channel_is_a_link_whose_files_stay(make_training: Callable[..., Training]) -> None:
    training = make_training(isolation=Isolation.RELOCATED)
    efs = shared(training.local)
    (training.file_systems.folder_of(efs) / "a.csv").write_text("1")
    ended = run(training, "linked", channel("train", efs, "/", kind="EFS", access="rw"))
    assert ended["TrainingJobStatus"] == "Completed", ended.get("FailureReason")
    assert "read train ['a.csv']" in training.log("linked")
    assert (training.file_systems.folder_of(efs) / "a.csv").read_text() == "1"


def test_what_is_not_there_fails_the_job_with_its_name(training: Training) -> None:
    lustre = made(training)
    assert lustre["LustreConfiguration"]["MountName"] == "fsx"
    name, unreachable = lustre["FileSystemId"], shared(training.local, mount_target=False)
    for number, (wrong, said) in enumerate(
        [
            (channel("train", name, "/other/a"), "does not begin with /fsx"),
            (channel("train", name, "/fsx/missing"), "there is no directory /fsx/missing"),
            (channel("train", name, "/fsx/../../.."), "there is no directory"),
            (channel("train", "fs-0bbbbbbbbbbbbbbbb", "/fsx"), "FSx has no such file system"),
            (channel("train", unreachable, "/", kind="EFS"), "EFS has no mount target"),
        ]
    ):
        ended = run(training, f"wrong-{number}", wrong)
        assert ended["TrainingJobStatus"] == "Failed"
        assert ended["FailureReason"].startswith("ClientError: Unable to mount file system")
        assert said in ended["FailureReason"]


def test_fsx_answers_as_aws_does(training: Training, local_aws: LocalAws) -> None:
    lustre = made(training, SecurityGroupIds=["sg-0123456789abcdef0"], Tags=[{"Key": "a", "Value": "b"}])
    name = lustre["FileSystemId"]
    _, answer = call(training.file_systems, "DescribeFileSystems", FileSystemIds=[name])
    assert answer["FileSystems"] == [lustre]
    assert (lustre["FileSystemType"], lustre["Lifecycle"]) == ("LUSTRE", "AVAILABLE")
    (interface,) = lustre["NetworkInterfaceIds"]
    ec2 = local_aws.session().client("ec2")
    (found,) = ec2.describe_network_interfaces(NetworkInterfaceIds=[interface])["NetworkInterfaces"]
    assert [group["GroupId"] for group in found["Groups"]] == ["sg-0123456789abcdef0"]
    kept = FileSystems(
        folder=training.folder / "file-systems", session=local_aws.session(), account_id="1", region="us-east-1"
    )
    assert call(kept, "DescribeFileSystems")[1]["FileSystems"] == [lustre]
    assert call(kept, "DeleteFileSystem", FileSystemId=name)[1] == {"FileSystemId": name, "Lifecycle": "DELETING"}
    assert kept.folder_of(name).is_dir()
    status, answer = call(kept, "DescribeFileSystems", FileSystemIds=[name])
    assert (status, answer["__type"]) == (400, "FileSystemNotFound")
    for wrong, code in (
        ({"FileSystemType": "ONTAP", "SubnetIds": ["subnet-0123456789abcdef0"]}, "BadRequest"),
        ({"FileSystemType": "LUSTRE", "SubnetIds": ["subnet-0123456789abcdef0"]}, "InvalidNetworkSettings"),
    ):
        status, answer = call(training.file_systems, "CreateFileSystem", **wrong)
        assert (status, answer["__type"]) == (400, code)


def test_both_services_are_reached_at_the_local_aws(local_aws: LocalAws) -> None:
    fsx = local_aws.session().client("fsx")
    name = fsx.create_file_system(FileSystemType="LUSTRE", SubnetIds=[subnet_of(local_aws)])["FileSystem"][
        "FileSystemId"
    ]
    assert [each["FileSystemId"] for each in fsx.describe_file_systems(FileSystemIds=[name])["FileSystems"]] == [name]
    fsx.delete_file_system(FileSystemId=name)
    with pytest.raises(fsx.exceptions.FileSystemNotFound):
        fsx.describe_file_systems(FileSystemIds=[name])
