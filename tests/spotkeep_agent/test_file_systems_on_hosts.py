"""Trainings on hosts of the local EC2 with channels on file systems, on each kind of host, also in a container."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spotkeep_fleet.instance_job import LUSTRE, NFS, FileSystemSpec, InstanceJob, NodesSpec, VolumeSpec
from spotkeep_fleet.ranks import Ranks
from spotkeep_fleet.record import FINISHED, INPUT_ERROR
from spotkeep_local import lifecycle
from spotkeep_local.ec2.catalog import PYTORCH
from spotkeep_local.hosts.isolation import Isolation
from spotkeep_local.options import ServerOptions
from tests.models.ec2 import instance_job
from tests.models.fleet_site import Site

pytestmark = pytest.mark.long
SHARED = "fs-0fedcba9876543210"
SCRIPT = """
import os
data, shared = os.environ["SM_CHANNEL_TRAIN"], os.environ["SM_CHANNEL_SHARED"]
rows = len(open(os.path.join(data, "rows.csv")).readlines())
rank = os.environ.get("RANK", "0")
with open(os.path.join(shared, f"seen-{rank}"), "w") as file:
    file.write(str(rows))
try:
    open(os.path.join(data, "written"), "w").close()
except OSError as error:
    print("read only:", error.strerror, flush=True)
with open(os.path.join(os.environ["SM_MODEL_DIR"], "rows"), "w") as file:
    file.write(str(rows))
"""


@pytest.fixture(params=[Isolation.RELOCATED, Isolation.AUTO])
def hosts(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    options = replace(ServerOptions.fast(), isolation=request.param)
    local = lifecycle.start(tmp_path / "aws", port=lifecycle.free_port(), options=options)
    hosts = Site(local)
    yield hosts
    hosts.close()
    lifecycle.stop(tmp_path / "aws")


def job(site: Site, folder: Path, **changes: Any) -> InstanceJob:
    """Make a file system of each service, with data in the first one, and a job that mounts both."""
    subnet = site.ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    made = site.session.client("fsx").create_file_system(FileSystemType="LUSTRE", SubnetIds=[subnet])["FileSystem"]
    data, shared = folder / made["FileSystemId"] / "cifar10", folder / SHARED
    data.mkdir()
    (data / "rows.csv").write_text("1\n2\n3\n")
    shared.mkdir()
    shared.chmod(0o777)
    source = f"{made['DNSName']}@tcp:/{made['LustreConfiguration']['MountName']}/cifar10"
    return instance_job(
        command=("python3", "-c", textwrap.dedent(SCRIPT)),
        volume=VolumeSpec(size_gb=1),
        log_group=site.group,
        event_bus="default",
        checkpoint_uri=f"s3://{site.bucket}/runs/{site.run}/checkpoints/",
        output_uri=f"s3://{site.bucket}/runs/{site.run}/output/",
        file_systems={
            "train": FileSystemSpec(LUSTRE, source),
            "shared": FileSystemSpec(NFS, f"{SHARED}.efs.us-east-1.amazonaws.com:/", writable=True),
        },
        **changes,
    )


def ends(site: Site, launched: InstanceJob, *, ami: str) -> str:
    """Run a job to its end, and return the console of its instance."""
    instance = site.instance(site.launch(launched, ami=ami))
    site.wait(lambda: site.record.training.over, "the end", lambda: site.console(instance))
    site.wait(lambda: "left: " in site.console(instance), "the instance's end", lambda: site.console(instance))
    return site.console(instance)


@pytest.mark.parametrize("image", [None, "public.ecr.aws/docker/library/python:3.12"])
def test_a_training_reads_one_and_writes_another(hosts: Site, tmp_path: Path, image: str | None) -> None:
    folder = tmp_path / "aws/file-systems"
    console = ends(hosts, job(hosts, folder, image=image), ami=PYTORCH.image_id)
    assert hosts.record.training.state == FINISHED, console
    assert (folder / SHARED / "seen-0").read_text() == "3"
    on_a_mount = "read only: Read-only file system" in console
    assert on_a_mount is not (next(folder.glob("fs-*/cifar10")) / "written").exists()


def test_a_directory_that_is_not_there_fails_the_run_with_the_words_of_mount(hosts: Site, tmp_path: Path) -> None:
    launched = job(hosts, tmp_path / "aws/file-systems")
    gone = replace(launched.file_systems["train"], source=launched.file_systems["train"].source + "-gone")
    console = ends(hosts, replace(launched, file_systems={"train": gone}), ami="ami-00000000000000001")
    training = hosts.record.training
    assert training.state == INPUT_ERROR, console
    assert "cifar10-gone" in (training.failure or "")
    assert "No such file or directory. Make the directory in the file system" in (training.failure or "")


@pytest.mark.torch
def test_each_node_mounts_them(hosts: Site, tmp_path: Path) -> None:
    folder = tmp_path / "aws/file-systems"
    launched = job(
        hosts, folder, nodes=NodesSpec(2, 2, 600, "k" * 32), distributed=Ranks(launcher="torchrun", processes=1)
    )
    console = ends(hosts, launched, ami=PYTORCH.image_id)
    assert hosts.record.training.state == FINISHED, console
    assert [(folder / SHARED / f"seen-{rank}").read_text() for rank in (0, 1)] == ["3", "3"]


SLOW_AT_FIRST = """
import os, time
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
with open(os.path.join(os.environ["SM_MODEL_DIR"], "total"), "w") as file:
    file.write(str(state["total"]))
"""


@pytest.mark.torch
def test_nodes_go_on_from_the_checkpoints_that_they_share(hosts: Site, tmp_path: Path) -> None:
    """A node is taken without a notice. The others and the next one read the folder that all of them wrote."""
    folder = tmp_path / "aws/file-systems"
    launched = job(
        hosts,
        folder,
        nodes=NodesSpec(2, 2, 600, "k" * 32),
        distributed=Ranks(launcher="torchrun", processes=1),
        checkpoint_channel="shared",
        environment={"SPOTKEEP_PROGRESS_SECONDS": "0"},
    )
    launched = replace(
        launched, training=replace(launched.training, command=("python3", "-c", textwrap.dedent(SLOW_AT_FIRST)))
    )
    fleet = hosts.launch(launched, ami=PYTORCH.image_id)
    first = hosts.instance(fleet)
    saved = folder / SHARED / hosts.run / "checkpoints"
    hosts.wait(lambda: any(saved.glob("step-3-*/manifest.json")), "step 3", lambda: hosts.console(first))
    hosts.control.interrupt(first["InstanceId"], notice=False)
    second = hosts.instance(fleet, other_than=(first["InstanceId"],))
    hosts.wait(lambda: hosts.record.training.over, "the end", lambda: hosts.console(second))
    assert hosts.record.training.state == FINISHED, hosts.console(second)
    went_on = re.compile(r"went on from ([3-9]|[1-9]\d+)\b")
    hosts.wait(lambda: bool(went_on.search(hosts.console(second))), "the next world", lambda: hosts.console(second))
    assert any(saved.glob("step-200-*/manifest.json"))
