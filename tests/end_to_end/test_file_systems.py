"""Channels on file systems on the deployed app: the script's reads and writes, refusals, and the grants it needs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from spotkeep_jobs.record.states import RunState
from spotkeep_local import cdk
from spotkeep_local.control import permissions
from tests.permissions.control import missed, withhold
from tests.permissions.withheld import WithheldGrant

from .conftest import CONTEXT, PROJECT, OnEc2, until

if TYPE_CHECKING:
    from .conftest import DeployedApp

pytestmark = pytest.mark.long

READING = """\
import os, pathlib
from spotkeep import Checkpointer

data = pathlib.Path(os.environ["SM_CHANNEL_TRAIN"])
shared = pathlib.Path(os.environ["SM_CHANNEL_SHARED"])
done = {"rows": 0}
with Checkpointer({"done": done}, every_steps=1) as checkpointer:
    for step in checkpointer.steps(2):
        done["rows"] += len((data / "rows.csv").read_text().splitlines())
(shared / "seen.txt").write_text(str(done["rows"]))
try:
    (data / "seen.txt").write_text("x")
except OSError as error:
    print("read only:", error.strerror, flush=True)
"""
ASKED = {
    "elasticfilesystem:DescribeMountTargetSecurityGroups",
    "elasticfilesystem:DescribeMountTargets",
    "ec2:DescribeNetworkInterfaceAttribute",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSecurityGroups",
    "fsx:DescribeFileSystems",
}
"""What only a launch of a job with file systems asks."""


def redeploy(app: DeployedApp, **settings: str) -> None:
    cdk.deploy(app.local, project_dir=PROJECT, context={**CONTEXT, **settings})


def file_systems_of(app: DeployedApp) -> tuple[dict[str, Any], str, str]:
    """Make a file system of each service in one subnet, and return them with that subnet."""
    subnet = app.client("ec2").describe_subnets()["Subnets"][0]["SubnetId"]
    lustre = app.client("fsx").create_file_system(FileSystemType="LUSTRE", SubnetIds=[subnet])["FileSystem"]
    efs = app.client("efs").create_file_system(CreationToken="once")["FileSystemId"]
    app.client("efs").create_mount_target(FileSystemId=efs, SubnetId=subnet)
    return lustre, efs, subnet


def test_a_job_trains_on_file_systems_that_its_deployment_names(withholding_app: DeployedApp, tmp_path: Path) -> None:
    app = withholding_app
    lustre, efs, subnet = file_systems_of(app)
    name, mount_name = lustre["FileSystemId"], lustre["LustreConfiguration"]["MountName"]
    data = app.state_dir / "file-systems" / name / "cifar10"
    data.mkdir()
    (data / "rows.csv").write_text("1\n2\n3\n")
    (app.state_dir / "file-systems" / efs).mkdir(exist_ok=True)
    (group,) = {
        each["GroupId"]
        for each in app.client("ec2").describe_network_interfaces(NetworkInterfaceIds=lustre["NetworkInterfaceIds"])[
            "NetworkInterfaces"
        ][0]["Groups"]
    }
    document = app.counting(
        "",
        files={"read.py": READING},
        channels={
            "train": {"fsx": name, "path": f"/{mount_name}/cifar10"},
            "shared": {"efs": efs, "path": "/", "access": "rw"},
        },
    )
    document["command"] = "python3 read.py"

    # Without a network and the setting, both are named for each channel, and nothing is launched.
    refused = app.invoke("launcher", {"token": "first", **document})
    assert not refused["ok"]
    said = json.dumps(refused)
    assert said.count("training_subnet_ids") == 2
    assert said.count("the deployment's setting file_systems") == 2

    subnets = [each["SubnetId"] for each in app.client("ec2").describe_subnets()["Subnets"]]
    redeploy(
        app,
        training_subnet_ids=",".join(subnets),
        training_security_group_ids=group,
        file_systems=f"{name},{efs}",
    )
    wrong = {**document, "channels": {"train": {"fsx": name, "path": "/other"}, "shared": {"efs": name, "path": "/"}}}
    job_file = tmp_path / "job.yaml"
    job_file.write_text(yaml.safe_dump(wrong))
    judged = app.spotkeep("doctor", str(job_file))
    assert judged.exit_code != 0
    words = " ".join(judged.output.split())
    assert f"the mount name of {name}" in words
    assert "has no mount target that is available" in words

    # The default security group of ministack lets nothing in from itself, unlike AWS's.
    refused = app.invoke("launcher", {"token": "second", **document})
    assert [each["field"] for each in refused["problems"]] == ["channels.train.fsx", "channels.shared.efs"]
    assert "aws ec2 authorize-security-group-ingress" in refused["problems"][0]["fix"]
    from_itself = {"IpProtocol": "tcp", "FromPort": 900, "ToPort": 2049, "UserIdGroupPairs": [{"GroupId": group}]}
    app.client("ec2").authorize_security_group_ingress(GroupId=group, IpPermissions=[from_itself])

    run = each_grant_is_missed(app, document)
    ended = app.wait_until_ended(run)
    assert ended.state is RunState.COMPLETED, ended.failure_reason
    assert (app.state_dir / "file-systems" / efs / "seen.txt").read_text() == "6"
    described = app.client("sagemaker").describe_training_job(TrainingJobName=f"{run}-1")
    assert described["VpcConfig"]["Subnets"] == [subnet]
    assert "read only: Read-only file system" in app.spotkeep("logs", run).stdout
    assert not (data / "seen.txt").exists()


@dataclass(frozen=True)
class LustreOfInstances:
    """A file system in one of the subnets of instances, with a security group that lets nothing in."""

    name: str
    mount_name: str
    group: str
    subnet: str
    zone: str
    folder: Path

    @classmethod
    def make(cls, app: DeployedApp) -> LustreOfInstances:
        ec2 = app.client("ec2")
        variables = app.client("lambda").get_function_configuration(FunctionName=app.connection["launcher_function"])
        settings = variables["Environment"]["Variables"].items()
        subnets = json.loads(next(value for key, value in settings if key.endswith("_FLEET_SUBNETS")))
        subnet, zone = next(iter(subnets.items()))
        vpc = ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["VpcId"]
        group = ec2.create_security_group(GroupName="lustre", Description="lustre", VpcId=vpc)["GroupId"]
        made = app.client("fsx").create_file_system(
            FileSystemType="LUSTRE", SubnetIds=[subnet], SecurityGroupIds=[group]
        )["FileSystem"]
        name, mount_name = made["FileSystemId"], made["LustreConfiguration"]["MountName"]
        folder = app.state_dir / "file-systems" / name / "cifar10"
        folder.mkdir()
        folder.chmod(0o777)
        redeploy(app, file_systems=name)
        return cls(name, mount_name, group, subnet, zone, folder)

    def channel(self, **more: str) -> dict[str, str]:
        return {"fsx": self.name, "path": f"/{self.mount_name}/cifar10", **more}

    def let_in(self, app: DeployedApp, refused: dict[str, Any]) -> None:
        """Let the instances of a refused launch in, as the refusal says."""
        (closed, *_) = refused["problems"]
        assert "lets no TCP in from instances" in closed["problem"]
        group = closed["fix"].rpartition("GroupId=")[2].partition("}")[0]
        every_port = {"IpProtocol": "tcp", "FromPort": 900, "ToPort": 1100, "UserIdGroupPairs": [{"GroupId": group}]}
        app.client("ec2").authorize_security_group_ingress(GroupId=self.group, IpPermissions=[every_port])


def test_an_instance_trains_on_a_file_system_in_its_zone_alone(withholding_app: DeployedApp) -> None:
    app = withholding_app
    lustre = LustreOfInstances.make(app)
    (lustre.folder / "rows.csv").write_text("1\n2\n3\n")
    document = app.counting(
        "",
        files={"read.py": READING},
        backend="ec2",
        instance_types=["m5.large"],
        volume={"size_gb": 1, "when_done": "delete"},
        channels={"train": lustre.channel(), "shared": lustre.channel(access="rw")},
    )
    document["command"] = "python3 read.py"
    lustre.let_in(app, app.invoke("launcher", {"token": "first", **document}))

    run = str(app.launch(**document)["run"])
    ended = app.wait_until_ended(run)
    assert ended.state is RunState.COMPLETED, ended.failure_reason
    # A host without mounts has a link there, through which the job writes "x".
    is_mounted = OnEc2(app).control.platform().isolation == "namespace"
    assert (lustre.folder / "seen.txt").read_text() == ("6" if is_mounted else "x")
    instances = OnEc2(app).instances(run)
    assert {each["Placement"]["AvailabilityZone"] for each in instances} == {lustre.zone}
    configs = app.client("ec2").describe_fleets()["Fleets"][0]["LaunchTemplateConfigs"]
    assert {each["SubnetId"] for config in configs for each in config["Overrides"]} == {lustre.subnet}


SUMMING = """\
import time
import torch.distributed
from spotkeep import Checkpointer

torch.distributed.init_process_group("gloo")
state = {"total": 0}
with Checkpointer(state, every_steps=1) as checkpointer:
    is_first = checkpointer.step == 0
    print("went on from", checkpointer.step, flush=True)
    for step in checkpointer.steps(200):
        state["total"] += step
        if is_first:
            time.sleep(0.5)
print("total", state["total"], flush=True)
"""


@pytest.mark.torch
def test_nodes_go_on_from_the_checkpoints_in_a_channel(withholding_app: DeployedApp) -> None:
    """One of two nodes is taken without a notice after step 3, which needs no copy in S3."""
    app = withholding_app
    lustre, on_ec2 = LustreOfInstances.make(app), OnEc2(app)
    document = app.counting(
        "",
        files={"total.py": SUMMING},
        backend="ec2",
        instance_types=["m5.large"],
        volume={"size_gb": 1},
        channels={"shared": lustre.channel(access="rw")},
        checkpoint_channel="shared",
        nodes=2,
        distributed={"launcher": "torchrun", "processes": 1},
    )
    document["command"] = "python3 total.py"
    lustre.let_in(app, app.invoke("launcher", {"token": "first", **document}))

    run = str(app.launch(**document)["run"])
    saved = lustre.folder / run / "checkpoints"
    until(lambda: any(saved.glob("step-3-*/manifest.json")), lambda: f"step 3 in\n{on_ec2.said(run)}")
    taken = next(each for each in on_ec2.instances(run) if each["State"]["Name"] == "running")
    on_ec2.control.interrupt(taken["InstanceId"], notice=False)
    ended = app.wait_until_ended(run)
    assert ended.state is RunState.COMPLETED, ended.failure_reason
    assert any(saved.glob("step-200-*/manifest.json"))
    logs = app.spotkeep("logs", run).stdout
    assert re.search(r"went on from ([3-9]|[1-9]\d+)\b", logs), logs
    assert "total 19900" in logs


def each_grant_is_missed(app: DeployedApp, document: dict[str, Any]) -> str:
    """Take what the launch needs of the setting away: no run begins before all that a call needs is given back."""
    launcher = next(each for each in permissions(app.local) if "LauncherRole" in each.name)
    # A first launch shows which statements allow what: an unmet one is refused by EFS itself, which names no run.
    first = app.launch(**{**document, "run": f"{document['run']}-first"})["run"]
    app.wait_until_ended(first)
    launcher = next(each for each in permissions(app.local) if each.name == launcher.name)
    granted = {
        WithheldGrant(identity=launcher.name, statement=statement, action=called.action)
        for called in launcher.granted
        for statement in called.statements
        if called.action in ASKED or called.action == "sagemaker:CreateTrainingJob"
    }
    assert {grant.action for grant in granted} == {*ASKED, "sagemaker:CreateTrainingJob"}
    try:
        withhold(app.local, granted)
        for tries in range(3 * len(granted)):
            payload = {"token": f"try-{tries}", **document, "run": f"{document['run']}-{tries}"}
            answer = app.invoke("launcher", payload)
            if {each.grant for each in missed(app.local)} >= granted and answer["ok"]:
                return str(answer["run"])
    finally:
        withhold(app.local, ())
    raise AssertionError(f"never missed: {granted - {each.grant for each in missed(app.local)}}")
