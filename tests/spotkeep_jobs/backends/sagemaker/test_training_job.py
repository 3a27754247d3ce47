"""The CreateTrainingJob request: what SageMaker gets, checked against botocore's own model of the service.

What SageMaker's words for the end of a job mean.
"""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from typing import Any

import botocore.session
import botocore.validate
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.events import event_line
from spotkeep_fleet.training_spec import (
    ARGUMENTS,
    HOST_LOST,
    NOT_STARTED,
    HangLimit,
    JobSource,
    MlflowPlace,
    SearchedMetric,
    TrainingSpec,
    WandbPlace,
    decode_spec,
    encode_spec,
    spec_file_name,
)
from spotkeep_jobs.backends.sagemaker.training_job import (
    LAUNCH_MARKS,
    JobPlatform,
    build_training_job_request,
    end_reason_of,
    following_launch_id,
    is_same_launch,
    job_name_for,
    run_id_for,
    spec_of,
)
from spotkeep_jobs.document.capacity import first_job
from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
from spotkeep_jobs.document.request import validate
from spotkeep_jobs.record.states import EndReason

KEY = "arn:aws:kms:us-east-1:123456789012:key/6a1f8a52-2f0c-4a3e-9f65-0f3f6f0f1b7e"
PLATFORM = JobPlatform(
    deployment="spotkeep",
    checkpoint_bucket="checkpoints",
    execution_role_arn="arn:aws:iam::123456789012:role/spotkeep-execution",
    training_bundle_uri="s3://assets/0123abcd.pyz",
)
DEFAULTS = DeploymentDefaults(
    image="123456789012.dkr.ecr.us-east-1.amazonaws.com/training:1",
    instance_type="ml.m5.xlarge",
    checkpoint_bucket="checkpoints",
)


SPECS = "s3://checkpoints/specs/first-1a2b3c4d/"
ENVIRONMENTS = "s3://checkpoints/runs/first-1a2b3c4d/output/environments/"


@functools.cache
def service_model() -> Any:
    return botocore.session.get_session().get_service_model("sagemaker")


def complaints_of_botocore(parameters: dict[str, Any]) -> str:
    shape = service_model().operation_model("CreateTrainingJob").input_shape
    report = botocore.validate.ParamValidator().validate(parameters, shape)
    return str(report.generate_report())


def spec_for(**fields: Any) -> TrainingSpec:
    """Return the spec of a job, as its runner reads it."""
    document = {"name": "first", "command": "python train.py --epochs 3"} | fields
    request = validate(document, defaults=replace(DEFAULTS, region="us-east-1")).accepted()
    spec = spec_of(request=request, platform=PLATFORM, run="first-1a2b3c4d")
    assert spec is not None
    channels = {each["ChannelName"]: each["DataSource"]["S3DataSource"] for each in built(**fields)["InputDataConfig"]}
    assert channels["spotkeep-spec"]["S3Uri"] == spec.uri == SPECS + spec_file_name(spec.content)
    return decode_spec(spec.content.decode())


def test_a_file_system_is_mounted_and_never_streamed() -> None:
    channels = {
        "train": {"fsx": "fs-0123456789abcdef0", "path": "/abcdefgh/cifar10"},
        "shared": {"efs": "fs-0fedcba9876543210", "path": "/", "access": "rw", "content_type": "text/csv"},
    }
    *_, train, shared = built(channels=channels)["InputDataConfig"]
    assert train == {
        "ChannelName": "train",
        "InputMode": "File",
        "DataSource": {
            "FileSystemDataSource": {
                "FileSystemId": "fs-0123456789abcdef0",
                "FileSystemType": "FSxLustre",
                "FileSystemAccessMode": "ro",
                "DirectoryPath": "/abcdefgh/cifar10",
            }
        },
    }
    source = shared["DataSource"]["FileSystemDataSource"]
    assert (source["FileSystemType"], source["FileSystemAccessMode"], shared["ContentType"]) == (
        "EFS",
        "rw",
        "text/csv",
    )


def built(*, platform: JobPlatform = PLATFORM, **fields: Any) -> dict[str, Any]:
    document = {"name": "first", "command": "python train.py --epochs 3"} | fields
    request = validate(document, defaults=replace(DEFAULTS, region="us-east-1")).accepted()
    parameters = build_training_job_request(
        request=request, job=first_job(request, prices={}), platform=platform, run="first-1a2b3c4d", attempt=2,
        launch_id="feedfacecafebeef",
    )  # fmt: skip
    assert complaints_of_botocore(parameters) == ""
    return parameters


def test_the_plainest_request() -> None:
    spec = TrainingSpec(("python", "train.py", "--epochs", "3"), install="auto", environments=ENVIRONMENTS)
    name = spec_file_name(encode_spec(spec))
    assert built() == {
        "TrainingJobName": "first-1a2b3c4d-2",
        "RoleArn": PLATFORM.execution_role_arn,
        "AlgorithmSpecification": {
            "TrainingImage": DEFAULTS.image,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["python3", "/opt/ml/input/data/spotkeep/0123abcd.pyz", "run"],
        },
        "HyperParameters": {},
        "Environment": {
            "SPOTKEEP_RUN": "first-1a2b3c4d",
            "SPOTKEEP_ATTEMPT": "2",
            "SPOTKEEP_LAUNCH": "feedfacecafebeef",
            "SPOTKEEP_TRAINING_SPEC": f"/opt/ml/input/data/spotkeep-spec/{name}",
        },
        "InputDataConfig": [
            {
                "ChannelName": channel,
                "InputMode": "File",
                "DataSource": {
                    "S3DataSource": {
                        "S3DataType": "S3Prefix",
                        "S3Uri": uri,
                        "S3DataDistributionType": "FullyReplicated",
                    }
                },
            }
            for channel, uri in (("spotkeep", "s3://assets/0123abcd.pyz"), ("spotkeep-spec", SPECS + name))
        ],
        "OutputDataConfig": {"S3OutputPath": "s3://checkpoints/runs/first-1a2b3c4d/output/"},
        "ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30},
        "StoppingCondition": {"MaxRuntimeInSeconds": 86_400, "MaxWaitTimeInSeconds": 172_800},
        "EnableManagedSpotTraining": True,
        "RetryStrategy": {"MaximumRetryAttempts": 3},
        "CheckpointConfig": {
            "S3Uri": "s3://checkpoints/runs/first-1a2b3c4d/checkpoints/",
            "LocalPath": "/opt/ml/checkpoints",
        },
        "Tags": [
            {"Key": "spotkeep:deployment", "Value": "spotkeep"},
            {"Key": "spotkeep:run", "Value": "first-1a2b3c4d"},
            {"Key": "spotkeep:attempt", "Value": "2"},
        ],
    }


def test_on_demand_has_no_wait_and_may_keep_its_instances() -> None:
    parameters = built(capacity="on-demand", keep_alive="10m")
    assert "EnableManagedSpotTraining" not in parameters
    assert parameters["StoppingCondition"] == {"MaxRuntimeInSeconds": 86_400}
    assert parameters["ResourceConfig"]["KeepAlivePeriodInSeconds"] == 600
    # The next job on them finds what this one installed.
    assert spec_for(capacity="on-demand", keep_alive="10m").warm_pool


@pytest.mark.parametrize(
    ("fields", "pending"),
    [
        ({"instance_types": ["ml.g5.xlarge", "ml.trn1.2xlarge"], "longest_wait": "6h"}, 21_600),
        ({"instance_types": ["ml.p5.48xlarge"], "longest_wait": "28d"}, 2_419_200),
        ({"instance_types": ["ml.g5.xlarge"], "longest_wait": "20m"}, None),
        ({"instance_types": ["ml.g5.xlarge"]}, None),
        ({"instance_types": ["ml.m5.xlarge"], "longest_wait": "6h"}, None),
    ],
    ids=["accelerated", "longest", "too short for SageMaker", "not asked for", "no accelerator"],
)
def test_on_demand_a_job_is_pending_for_capacity_where_sagemaker_takes_that(
    fields: dict[str, Any], pending: int | None
) -> None:
    stopping = built(capacity="on-demand", **fields)["StoppingCondition"]
    assert stopping.get("MaxPendingTimeInSeconds") == pending
    assert "MaxPendingTimeInSeconds" not in built(instance_types=["ml.g5.xlarge"])["StoppingCondition"]


def test_several_types_on_demand_are_preferences_with_one_count_for_the_job() -> None:
    parameters = built(capacity="on-demand", instance_types=["ml.g5.xlarge", "ml.g6.xlarge"], instance_count=2)
    assert "EnableManagedSpotTraining" not in parameters  # Excluded by the preferences, whatever it says.
    resources = parameters["ResourceConfig"]
    assert resources["InstancePreferences"] == [{"InstanceType": "ml.g5.xlarge"}, {"InstanceType": "ml.g6.xlarge"}]
    assert resources["InstanceCount"] == 2
    assert "InstanceType" not in resources


def test_the_checkpoint_prefix_does_not_change_with_the_attempt_or_the_job_name() -> None:
    assert built(checkpoint_prefix="s3://checkpoints/runs/old/checkpoints")["CheckpointConfig"]["S3Uri"] == (
        "s3://checkpoints/runs/old/checkpoints/"
    )


def test_without_checkpoints_nothing_is_synchronised() -> None:
    assert "CheckpointConfig" not in built(checkpoints=False, max_run="30m")


def test_an_archive_is_a_channel_and_a_commit_is_in_the_spec() -> None:
    pinned = {"uri": "s3://code/a.tar.gz", "sha256": "b" * 64}
    archive = built(source=pinned, channels={"train": {"uri": "s3://data/x", "input_mode": "FastFile"}})
    assert [(channel["ChannelName"], channel["InputMode"]) for channel in archive["InputDataConfig"]] == [
        ("spotkeep", "File"),
        ("spotkeep-spec", "File"),
        ("source", "File"),
        ("train", "FastFile"),
    ]
    assert archive["InputDataConfig"][2]["DataSource"]["S3DataSource"]["S3Uri"] == "s3://code/a.tar.gz"
    assert spec_for(source=pinned).source == JobSource(**pinned)
    commit = {"git": "https://example.com/a.git", "commit": "a" * 40}
    assert [channel["ChannelName"] for channel in built(source=commit)["InputDataConfig"]] == [
        "spotkeep", "spotkeep-spec"
    ]  # fmt: skip
    assert spec_for(source=commit).source == JobSource(git_url=commit["git"], git_commit=commit["commit"])


def test_hyperparameters_and_variables_are_text() -> None:
    parameters = built(hyperparameters={"lr": 0.1, "amp": True, "epochs": 3}, environment={"OMP_NUM_THREADS": 4})
    assert parameters["HyperParameters"] == {"lr": "0.1", "amp": "true", "epochs": "3"}
    assert parameters["Environment"]["OMP_NUM_THREADS"] == "4"


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_a_job_that_wants_other_arguments_tells_the_runner(arguments: str) -> None:
    assert spec_for(arguments=arguments).arguments == arguments
    assert built(arguments=arguments)["AlgorithmSpecification"] == built()["AlgorithmSpecification"]


@pytest.mark.parametrize(
    ("fields", "install", "requirements", "setup"),
    [
        ({}, "auto", (), ()),
        ({"install": "none"}, "none", (), ()),
        ({"install": "requirements/train.txt", "source": "s3://code/" + "0" * 64 + ".tar.gz"},
         "requirements/train.txt", (), ()),
        ({"install": ["timm==1.0.9", "einops"]}, "none", ("timm==1.0.9", "einops"), ()),
        ({"setup": "python fetch.py --to 'a b'"}, "auto", (), ("python", "fetch.py", "--to", "a b")),
        ({"setup": "apt-get update\napt-get install -y x\n"}, "auto", (), "apt-get update\napt-get install -y x\n"),
    ],
)  # fmt: skip
def test_the_runner_installs_and_sets_up_what_is_asked_for(
    fields: dict[str, Any], install: str, requirements: tuple[str, ...], setup: tuple[str, ...] | str
) -> None:
    spec = spec_for(**fields)
    assert (spec.install, spec.requirements, spec.setup) == (install, requirements, setup)
    assert spec.environments == ENVIRONMENTS


def test_a_block_of_any_characters_reaches_the_runner_as_it_is() -> None:
    block = 'cd src\n# Größe\u2028 "quoted" \\n\n' + 'python train.py "$@"\n' * 400
    assert spec_for(command=block).command == block


def test_owner_and_tags_of_the_user_are_tags_of_the_job() -> None:
    tags = {tag["Key"]: tag["Value"] for tag in built(owner="ada@example.com", tags={"team": "vision"})["Tags"]}
    assert tags["team"] == "vision"
    assert tags["spotkeep:owner"] == "ada@example.com"


def test_the_deployments_key_and_network_are_used() -> None:
    platform = JobPlatform(
        **(vars(PLATFORM) | {"volume_kms_key_arn": KEY, "subnet_ids": ("subnet-1",), "security_group_ids": ("sg-1",)})
    )
    parameters = built(platform=platform)
    assert parameters["ResourceConfig"]["VolumeKmsKeyId"] == KEY
    assert parameters["OutputDataConfig"]["KmsKeyId"] == KEY
    assert parameters["VpcConfig"] == {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]}
    with_disks = built(platform=platform, instance_type="ml.g5.xlarge")
    assert "VolumeKmsKeyId" not in with_disks["ResourceConfig"]
    assert with_disks["OutputDataConfig"]["KmsKeyId"] == KEY


def test_an_image_outside_amazon_ecr_is_pulled_through_the_vpc() -> None:
    in_vpc = replace(PLATFORM, subnet_ids=("subnet-1",), security_group_ids=("sg-1",))
    through_it = built(platform=in_vpc, image="registry.example.com/mine:1")["AlgorithmSpecification"]
    assert through_it["TrainingImageConfig"] == {"TrainingRepositoryAccessMode": "Vpc"}
    for platform in (in_vpc, PLATFORM):
        assert "TrainingImageConfig" not in built(platform=platform)["AlgorithmSpecification"]


def test_names_are_deterministic() -> None:
    assert run_id_for(name="a", token="t") == run_id_for(name="a", token="t")
    assert run_id_for(name="a", token="t") != run_id_for(name="a", token="u")
    assert job_name_for(run="a-1", attempt=3) == "a-1-3"


def test_the_launch_that_follows_one_has_an_id_of_its_own_that_all_agree_on() -> None:
    first = "0123456789abcdef" * 2
    second = following_launch_id(first, attempt=2)
    assert second == following_launch_id(first, attempt=2)
    assert len({first, second, following_launch_id(first, attempt=3), following_launch_id(second, attempt=3)}) == 4
    assert len(second) == len(first)


def test_a_job_is_known_by_the_id_of_its_launch() -> None:
    ours = built()
    assert is_same_launch(environment=ours["Environment"] | {"ADDED": "by SageMaker"}, parameters=ours)
    assert not is_same_launch(environment={}, parameters=ours)
    assert not is_same_launch(environment=ours["Environment"] | {"SPOTKEEP_LAUNCH": "other"}, parameters=ours)


# Whatever is accepted, SageMaker's model accepts

names = st.from_regex(r"[a-zA-Z0-9](-?[a-zA-Z0-9]){0,10}", fullmatch=True)
words = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp")), max_size=300)
texts = st.dictionaries(st.text(max_size=260), st.text(max_size=260) | st.integers() | st.floats() | st.booleans())
documents = st.fixed_dictionaries(
    {"name": names, "command": st.lists(words, min_size=1, max_size=105) | words},
    optional={
        "run": names,
        "capacity": st.sampled_from(["spot", "on-demand"]),
        "instance_types": st.lists(st.sampled_from(["ml.g5.xlarge", "ml.m5.large", "ml.p4d.24xlarge"]), max_size=4),
        "instance_count": st.integers(-1, 25),
        "volume_size_gb": st.integers(0, 20_000),
        "max_run": st.integers(0, 3_000_000) | st.sampled_from(["1h", "90m", "28d"]),
        "max_wait": st.integers(0, 3_000_000),
        "keep_alive": st.integers(0, 4_000),
        "hyperparameters": texts,
        "environment": st.dictionaries(st.from_regex(r"[A-Za-z_]\w{0,9}", fullmatch=True), st.text() | st.integers()),
        "tags": st.dictionaries(words, words, max_size=50),
        "channels": st.dictionaries(
            st.from_regex(r"[A-Za-z0-9._-]{1,65}", fullmatch=True),
            st.from_regex(r"s3://[a-z0-9-]{3,20}/[a-z/]{0,20}", fullmatch=True),
            max_size=21,
        ),
        "source": st.sampled_from(["s3://code/a.zip", {"git": "https://example.com/a.git", "commit": "0" * 40}]),
        "checkpoints": st.booleans(),
        "checkpoint_prefix": st.from_regex(r"s3://[a-z0-9-]{3,20}/[a-z/]{0,20}", fullmatch=True),
        "owner": words,
    },
)


@pytest.mark.long
@given(document=documents, with_key=st.booleans())
def test_any_accepted_document_builds_a_request_botocore_accepts(document: dict[str, Any], with_key: bool) -> None:
    validation = validate(document, defaults=DEFAULTS)
    if validation.request is None:
        assert validation.problems
        return
    platform = JobPlatform(**(vars(PLATFORM) | {"volume_kms_key_arn": KEY if with_key else None}))
    parameters = build_training_job_request(
        request=validation.request,
        job=first_job(validation.request, prices={}),
        platform=platform,
        run="r" * 52,
        attempt=1,
        launch_id="0" * 16,
    )
    assert complaints_of_botocore(parameters) == ""
    assert len(parameters["TrainingJobName"]) <= 63
    assert len(parameters["InputDataConfig"]) <= 20
    assert len(parameters["Tags"]) <= 50
    assert len(parameters["Environment"]) <= 100
    assert max(map(len, parameters["HyperParameters"].values()), default=0) <= 256
    stopping = parameters["StoppingCondition"]
    assert stopping.get("MaxWaitTimeInSeconds", stopping["MaxRuntimeInSeconds"] + 1) > stopping["MaxRuntimeInSeconds"]


def test_a_team_with_a_role_of_its_own_works_with_that() -> None:
    platform = replace(PLATFORM, team_role_arns={"vision": "arn:aws:iam::123456789012:role/vision"})
    assert built(platform=platform, team="vision")["RoleArn"] == "arn:aws:iam::123456789012:role/vision"
    assert built(platform=platform)["RoleArn"] == PLATFORM.execution_role_arn


def test_metrics_are_definitions_and_patterns_reach_the_runner() -> None:
    metrics = {
        "val loss": r"val_loss=([0-9.]+)",
        "accuracy": {"goal": "maximize"},
        "last": {"pattern": "x" * 490 + "(.)", "step": "step (.)"},
    }
    made = built(metrics=metrics)
    definitions = {each["Name"]: each["Regex"] for each in made["AlgorithmSpecification"]["MetricDefinitions"]}
    assert definitions["val loss"] == r"val_loss=([0-9.]+)"
    event = event_line("progress", time_seconds=1.0, fields={"metrics": {"loss": 1, "accuracy": 0.5}})
    found = re.search(definitions["accuracy"], event)
    assert found[1] == "0.5"
    assert spec_for(metrics=metrics).metrics == {
        "val loss": SearchedMetric(r"val_loss=([0-9.]+)"),
        "last": SearchedMetric("x" * 490 + "(.)", "step (.)"),
    }


def test_the_script_knows_where_to_log_and_where_to_pause_and_a_shell_needs_remote_debugging() -> None:
    mlflow = {"tracking_uri": "https://mlflow.example.com", "experiment": "digits"}
    spec = spec_for(mlflow=mlflow, pause_at_step=1000)
    assert spec.mlflow == MlflowPlace("https://mlflow.example.com", "digits")
    assert spec.script_variables(run=None) == {
        "MLFLOW_TRACKING_URI": "https://mlflow.example.com",
        "MLFLOW_EXPERIMENT_NAME": "digits",
        "SPOTKEEP_PAUSE_AT_STEP": "1000",
    }
    assert built(debug=True)["RemoteDebugConfig"] == {"EnableRemoteDebug": True}


def test_the_runner_knows_when_a_training_hangs_and_the_project_of_weights_and_biases() -> None:
    assert spec_for(stuck="30m").stuck == HangLimit(1800, restart=False, at_most=3)
    spec = spec_for(stuck={"after": "90s", "restart": True, "at_most": 5}, wandb={"project": "a", "entity": "b"})
    assert (spec.stuck, spec.wandb) == (HangLimit(90, restart=True, at_most=5), WandbPlace("a", "b"))


class TestWithoutACommand:
    def test_the_images_own_entry_point_runs_and_nothing_of_ours_is_in_the_job(self) -> None:
        parameters = built(
            command=None,
            algorithm="xgboost-1.7",
            channels={"train": {"uri": "s3://data/train/", "content_type": "text/csv"}},
            hyperparameters={"num_round": 100},
        )
        assert set(parameters["AlgorithmSpecification"]) == {"TrainingImage", "TrainingInputMode"}
        [channel] = parameters["InputDataConfig"]
        assert (channel["ChannelName"], channel["ContentType"]) == ("train", "text/csv")
        assert parameters["HyperParameters"] == {"num_round": "100"}
        assert parameters["CheckpointConfig"]["LocalPath"] == "/opt/ml/checkpoints"
        assert parameters["Environment"]["SPOTKEEP_RUN"] == "first-1a2b3c4d"
        assert "SPOTKEEP_TRAINING_SPEC" not in parameters["Environment"]

    def test_the_script_knows_where_to_log_without_the_runner(self) -> None:
        image = "registry.example.com/mine:1"
        trackers = {"mlflow": "https://mlflow.example.com", "wandb": "digits"}
        parameters = built(command=None, image=image, **trackers, environment={"A": "b"})
        variables = {"A": "b", "MLFLOW_TRACKING_URI": "https://mlflow.example.com", "WANDB_PROJECT": "digits"}
        run = "first-1a2b3c4d"
        variables |= {"WANDB_RUN_ID": run, "WANDB_NAME": run, "WANDB_RESUME": "allow", "WANDB_MODE": "online"}
        assert parameters["Environment"].items() >= variables.items()

    def test_an_algorithm_without_checkpoints_has_none_to_keep(self) -> None:
        parameters = built(command=None, algorithm="knn", channels={"train": "s3://data/"}, max_run="30m")
        assert "CheckpointConfig" not in parameters
        assert parameters["StoppingCondition"] == {"MaxRuntimeInSeconds": 1_800, "MaxWaitTimeInSeconds": 3_600}

    def test_patterns_become_sagemakers_metrics_alone(self) -> None:
        parameters = built(command=None, image="registry.example.com/mine:1", metrics={"loss": "loss=([0-9.]+)"})
        assert "InputDataConfig" not in parameters
        [metric] = parameters["AlgorithmSpecification"]["MetricDefinitions"]
        assert metric["Name"] == "loss"
        assert set(parameters["Environment"]) == set(LAUNCH_MARKS)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (f"AlgorithmError: {NOT_STARTED}this image has no bash, exit code: 69", EndReason.INPUT_ERROR),
        ("AlgorithmError: python train.py exited with code 69:\nno, exit code: 69", EndReason.SCRIPT_FAILED),
        ("AlgorithmError: , exit code: 127", EndReason.SCRIPT_FAILED),
        (f"AlgorithmError: {HOST_LOST}algo-2 is gone, exit code: 75", EndReason.PLATFORM_ERROR),
        ("ClientError: no data", EndReason.INPUT_ERROR),
    ],
)
def test_a_command_that_was_never_started_is_no_script_that_failed(words: str, reason: EndReason) -> None:
    assert end_reason_of("Failed", "Failed", transitions=("Training", "Failed"), failure_reason=words) is reason
