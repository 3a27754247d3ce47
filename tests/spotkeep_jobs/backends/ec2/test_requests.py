"""The fields of a run on EC2: what is taken, what belongs to SageMaker alone, what EBS takes of a volume."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from spotkeep_fleet.instance_job import LUSTRE, NFS, FileSystemSpec, decode_job, encode_job
from spotkeep_fleet.training_spec import HangLimit, WandbPlace
from spotkeep_jobs.backends.ec2.launch import (
    FleetPlatform,
    create_fleet_request,
    fleet_launch,
    job_request_of,
    launch_of,
)
from spotkeep_jobs.document.capacity import first_job
from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
from spotkeep_jobs.document.request import JobRequest, Validation, validate

DEFAULTS = DeploymentDefaults(
    image="some/image:1", instance_type="ml.m5.xlarge", checkpoint_bucket="bucket", fleet_instance_types=("m5.xlarge",)
)
EC2 = {"name": "count", "command": "python train.py", "backend": "ec2"}


def judged(**fields: Any) -> Validation:
    return validate({**EC2, **fields}, defaults=DEFAULTS)


def fields_of(validation: Validation) -> list[str]:
    return [problem.field for problem in validation.problems]


def test_the_deployments_types_and_a_volume_are_filled_in_and_no_image_is() -> None:
    request = judged().accepted()
    assert (request.types, request.image, request.capacity) == (("m5.xlarge",), None, "spot")
    assert (request.volume_or_default.size_gb, request.volume_or_default.type) == (100, "gp3")
    assert request.max_wait == 2 * 86_400
    # The record reads its own request again.
    assert validate(request.as_document(), defaults=DEFAULTS).accepted() == request
    assert JobRequest.model_validate(request.as_document()) == request


def test_types_are_the_backends_own() -> None:
    (problem,) = judged(instance_types=["g5.xlarge", "ml.g5.xlarge"]).problems
    assert problem.field == "instance_types[1]"
    assert "Write g5.xlarge" in problem.fix
    assert judged(instance_types=["g5.xlarge", "g6.xlarge", "p4d.24xlarge", "u-6tb1.metal"]).accepted()
    sagemaker = validate({**EC2, "backend": "sagemaker", "instance_type": "g5.xlarge"}, defaults=DEFAULTS)
    assert fields_of(sagemaker) == ["instance_type"]


def test_what_is_sagemakers_is_refused_all_at_once_with_what_to_do() -> None:
    refused = judged(
        instance_count=2, volume_size_gb=50, keep_alive="10m",
        team="vision", max_total_run="3d", capacity="on-demand",
        channels={"train": {"uri": "s3://data/x", "input_mode": "FastFile"}},
    )  # fmt: skip
    assert {"instance_count", "volume_size_gb", "keep_alive", "team", "max_total_run",
            "channels.train.input_mode"} <= set(fields_of(refused))  # fmt: skip
    assert all(problem.fix for problem in refused.problems)
    spot = {"instance_types": ["g5.xlarge"], "capacity": "spot"}
    ladder = judged(ladder=[spot, spot])
    assert "capacity: auto goes on demand" in next(each.fix for each in ladder.problems if each.field == "ladder")


IN_ECR = "123456789012.dkr.ecr.us-east-1.amazonaws.com/team/training:7"


def test_an_image_is_what_instances_train_in_and_without_one_the_ami_is() -> None:
    assert launched(image=IN_ECR).instance_job.image == IN_ECR
    assert launched().instance_job.image is None


def in_us_east_1(**fields: Any) -> Validation:
    return validate(
        {**EC2, "instance_types": ["m5.xlarge", "m6i.xlarge"], **fields}, defaults=replace(DEFAULTS, region="us-east-1")
    )


def test_an_image_in_another_regions_ecr_is_refused_before_instances_come_and_go() -> None:
    (problem,) = in_us_east_1(image=IN_ECR.replace("us-east-1", "eu-west-1")).problems
    assert (problem.field, "eu-west-1" in problem.problem) == ("image", True)
    assert "Replicate it to us-east-1" in problem.fix


def test_an_image_with_neuron_devices_is_refused_and_one_outside_ecr_is_warned_of() -> None:
    (problem,) = in_us_east_1(image=IN_ECR, instance_types=["trn1.2xlarge", "inf2.xlarge"]).problems
    assert (problem.field, "trn1.2xlarge" in problem.problem) == ("image", True)
    assert not in_us_east_1(image=IN_ECR).warnings
    assert not in_us_east_1(image="public.ecr.aws/docker/library/python:3.12").warnings
    (warning,) = in_us_east_1(image="python:3.12").warnings
    assert "without a login" in warning
    assert "SageMaker" not in warning


def test_an_images_own_entry_point_runs_on_sagemaker_alone() -> None:
    document = {name: value for name, value in EC2.items() if name != "command"}
    (problem,) = validate({**document, "image": IN_ECR}, defaults=DEFAULTS).problems
    assert (problem.field, "SageMaker alone" in problem.problem) == ("command", True)


@pytest.mark.parametrize("fields", [{"volume": {"size_gb": 5}}, {"max_price": 1.0}, {"rebalance": "leave"}])
def test_what_is_ec2s_is_refused_on_sagemaker(fields: dict[str, Any]) -> None:
    refused = validate({**EC2, "backend": "sagemaker", **fields}, defaults=DEFAULTS)
    assert fields_of(refused) == list(fields)


def test_a_deployment_without_fleets_says_so() -> None:
    refused = validate(EC2, defaults=DeploymentDefaults(instance_type="ml.m5.xlarge", checkpoint_bucket="bucket"))
    assert "backend" in fields_of(refused)


@pytest.mark.parametrize("key", ["cost/center", "cost center", "größe", "_index", ".", ".."])
def test_tags_that_instances_could_not_read_in_their_metadata_are_refused_on_ec2_alone(key: str) -> None:
    (problem,) = judged(tags={key: "vision", "cost:center": "vision"}).problems
    assert problem.field == f"tags.{key}"
    assert "EC2 would launch none" in problem.problem
    assert not validate({**EC2, "backend": "sagemaker", "tags": {key: "vision"}}, defaults=DEFAULTS).problems


def test_tags_leave_room_for_our_own_and_that_of_a_drill() -> None:
    tags = {f"t{number}": "" for number in range(44)}
    (problem,) = judged(tags=tags).problems
    assert "the 43 that AWS leaves" in problem.problem
    del tags["t43"]
    request = judged(tags=tags, owner="ada@example.com").accepted()
    assert len(launched(tags=tags, owner=request.owner).tags) + len({"spotkeep:drill"}) == 50


@pytest.mark.parametrize(
    ("volume", "field"),
    [
        ({"size_gb": 0}, "volume.size_gb"),
        ({"size_gb": "100 GB"}, "volume.size_gb"),
        ({"size": 100}, "volume.size"),
        ({"type": "gp3", "size_gb": 70_000}, "volume.size_gb"),
        ({"type": "st1", "size_gb": 100}, "volume.size_gb"),
        ({"type": "io2"}, "volume.iops"),
        ({"type": "gp2", "iops": 3_000}, "volume.iops"),
        ({"type": "gp3", "size_gb": 10, "iops": 6_000}, "volume.iops"),
        ({"type": "gp2", "throughput": 200}, "volume.throughput"),
        ({"throughput": 1_000}, "volume.throughput"),
        ({"initialization_rate": 99}, "volume.initialization_rate"),
        ({"snapshot": "snap-1"}, "volume.snapshot"),
        ({"snapshot": "snap-0123456789abcdef0", "volume": "vol-0123456789abcdef0"}, "volume.snapshot"),
        ({"volume": "vol-0123456789abcdef0", "when_done": "delete"}, "volume.when_done"),
    ],
)
def test_volumes_that_ebs_would_not_make_are_refused(volume: dict[str, Any], field: str) -> None:
    assert fields_of(judged(volume=volume)) == [field]


def test_volumes_that_ebs_makes_are_taken() -> None:
    assert judged(volume={"size_gb": 500, "iops": 16_000, "throughput": 1_000}).accepted()
    assert judged(volume={"type": "io2", "size_gb": 10, "iops": 10_000}).accepted()


def launched(
    *, volume_kms_key_arn: str | None = None, file_systems: Mapping[str, str] | None = None, **fields: Any
) -> Any:
    request = judged(**fields).accepted()
    subnets = {"subnet-a": "us-east-1a", "subnet-b": "us-east-1b"}
    return fleet_launch(
        request=request, job=first_job(request, prices={}), deployment="spotkeep", run="count-1", attempt=2,
        platform=FleetPlatform(
            launch_template_id="lt-1", subnets=subnets, volume_kms_key_arn=volume_kms_key_arn,
            file_systems=file_systems or {},
        ),
        launch_id="0123456789abcdef", checkpoint_uri="s3://bucket/runs/count-1/checkpoints/",
        output_prefix="s3://bucket/runs/count-1/output/",
    )  # fmt: skip


def test_the_script_knows_where_to_log_and_where_to_pause() -> None:
    given = {"MLFLOW_TRACKING_URI": "https://mlflow.example.com", "SPOTKEEP_PAUSE_AT_STEP": "1000"}
    spec = launched(mlflow="https://mlflow.example.com", pause_at_step=1000).instance_job.training
    assert spec.script_variables(run=None).items() >= given.items()
    assert not launched().instance_job.training.script_variables(run=None).keys() & given.keys()
    hangs = launched(stuck={"after": 90, "restart": True}, wandb="digits").instance_job.training
    assert (hangs.stuck, hangs.wandb) == (HangLimit(90, restart=True, at_most=3), WandbPlace("digits"))


def test_the_instances_mount_what_the_channels_name_by_the_names_that_aws_gave() -> None:
    lustre, shared = "fs-0123456789abcdef0", "fs-0fedcba9876543210"
    channels = {
        "train": {"fsx": lustre, "path": "/abcdefgh/cifar10"},
        "shared": {"efs": shared, "path": "/", "access": "rw"},
        "test": "s3://data/test/",
    }
    names = {lustre: f"{lustre}.fsx.us-east-1.amazonaws.com", shared: f"{shared}.efs.us-east-1.amazonaws.com"}
    launch = launched(channels=channels, file_systems=names)
    job = launch_of(job_request_of(launch, marks={})).instance_job
    assert job.channels == {"test": "s3://data/test/"}
    assert job.file_systems == {
        "train": FileSystemSpec(LUSTRE, f"{names[lustre]}@tcp:/abcdefgh/cifar10"),
        "shared": FileSystemSpec(NFS, f"{names[shared]}:/", writable=True),
    }
    assert decode_job(encode_job(job)) == job


def test_the_channel_of_the_checkpoints_reaches_the_nodes() -> None:
    lustre = "fs-0123456789abcdef0"
    channels = {"shared": {"fsx": lustre, "path": "/abcdefgh", "access": "rw"}}
    launch = launched(
        channels=channels, file_systems={lustre: "name"}, nodes=2, distributed="torchrun", checkpoint_channel="shared"
    )
    assert launch.nodes_job(key="k" * 32).checkpoint_channel == "shared"


def test_a_fleet_keeps_one_instance_of_any_type_in_any_zone_where_capacity_is_deepest() -> None:
    launch = launched(instance_types=["g5.xlarge", "g6.xlarge"], max_price=0.75)
    asked = create_fleet_request(launch, template_version="7")
    assert (asked["Type"], asked["ClientToken"]) == ("maintain", "0123456789abcdef")
    assert asked["SpotOptions"]["AllocationStrategy"] == "price-capacity-optimized"
    target = asked["TargetCapacitySpecification"]
    assert (target["TotalTargetCapacity"], target["SpotTargetCapacity"]) == (1, 1)
    (config,) = asked["LaunchTemplateConfigs"]
    assert config["LaunchTemplateSpecification"] == {"LaunchTemplateId": "lt-1", "Version": "7"}
    places = [(each["InstanceType"], each["SubnetId"], each["MaxPrice"]) for each in config["Overrides"]]
    assert places == [(t, s, "0.75") for t in ("g5.xlarge", "g6.xlarge") for s in ("subnet-a", "subnet-b")]
    # A fleet of this type takes no tags for its instances: they are in the version of the launch template.
    assert [each["ResourceType"] for each in asked["TagSpecifications"]] == ["fleet"]
    on_demand = create_fleet_request(launched(capacity="on-demand"), template_version="7")
    assert on_demand["TargetCapacitySpecification"]["OnDemandTargetCapacity"] == 1


def test_the_tags_of_an_instance_say_what_its_credentials_are_for() -> None:
    tags = {"spotkeep:run": "count-1", "spotkeep:attempt": "2", "spotkeep:checkpoints": "runs/count-1/checkpoints"}
    assert launched().tags.items() >= tags.items()


def test_a_users_tags_and_the_owner_reach_all_that_the_run_makes_and_ec2_bills() -> None:
    """Once the fleet and the instance had them, and the volumes, snapshots and addresses stood on a bill of no team."""
    given = {"team": "vision", "cost-center": "42"}
    launch = launched(tags=given, owner="ada")
    carried = {**given, "spotkeep:owner": "ada"}
    assert launch.tags.items() >= carried.items()
    assert launch.tags["Name"] == "count-1-2"
    assert launch.instance_job.volume.tags == carried, "of volumes and snapshots, which the agent makes"
    assert launch_of(job_request_of(launch, marks={})).instance_job.volume.tags == carried


def test_a_name_of_the_users_own_takes_the_place_of_ours() -> None:
    launch = launched(tags={"Name": "my training"})
    assert (launch.tags["Name"], launch.instance_job.volume.tags) == ("my training", {"Name": "my training"})


def test_the_deployments_key_encrypts_the_runs_volume() -> None:
    key = "arn:aws:kms:us-east-1:123456789012:key/1234abcd"
    assert launched(volume_kms_key_arn=key).instance_job.volume.kms_key_id == key
    assert launched().instance_job.volume.kms_key_id is None


def test_what_is_recorded_is_what_is_launched() -> None:
    launch = launched(
        source={"git": "https://example.com/a.git", "commit": "0" * 40}, script_retries=2, arguments="json",
        install=["timm==1.0.9"], setup="python fetch.py",
    )  # fmt: skip
    again = launch_of(job_request_of(launch, marks={"SPOTKEEP_RUN": "count-1"}))
    assert again == launch
    job = again.instance_job
    spec = job.training
    assert (job.max_script_retries, job.attempt, spec.arguments) == (2, 2, "json")
    assert (spec.install, spec.requirements, spec.setup) == ("none", ("timm==1.0.9",), ("python", "fetch.py"))
    assert launched().instance_job.training.install == "auto"
    assert spec.source.git_commit == "0" * 40
    assert spec.environments is None, "the volume keeps what is installed"
    assert job.output_uri == "s3://bucket/runs/count-1/output/count-1-2/output/"
