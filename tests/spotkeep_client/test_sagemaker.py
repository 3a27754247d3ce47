"""The SDK's own classes in, a launch out: a trainer becomes a run, or every argument that cannot is named."""

from __future__ import annotations

import io
import json
import tarfile
import warnings
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from spotkeep_cli.errors import RefusedError, UsageError
from spotkeep_cli.seams import Seams
from spotkeep_jobs.record.states import SweepState
from tests.spotkeep_cli.conftest import NOW, FakeDeployment
from tests.spotkeep_cli.sweeps.test_sweep_commands import REQUEST, sweep

# Importing the SDK takes seconds, and warns.
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("default")]

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-gpu-py312"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "src"
    (source / "data").mkdir(parents=True)
    for name in ("train.py", "requirements.txt", ".env", "data/large.bin"):
        (source / name).write_text(name)
    return source


@pytest.fixture
def configs() -> Any:
    """The SDK's classes of what a training job has."""
    from sagemaker.train import configs

    return configs


@pytest.fixture
def code(configs: Any, source: Path) -> Any:
    return configs.SourceCode(source_dir=str(source), entry_script="train.py")


@pytest.fixture
def trainer(accepting: FakeDeployment, seams: Seams) -> Callable[..., Any]:
    """Makes trainers."""
    from spotkeep_client.sagemaker import SpotTrainer

    return partial(SpotTrainer, seams=seams, training_image=IMAGE)


@pytest.fixture
def trained(deployment: FakeDeployment, trainer: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """Launches with a trainer, and returns the document that the launcher got."""

    def train(inputs: Any = None, **arguments: Any) -> dict[str, Any]:
        trainer(**arguments).train(inputs, wait=False)
        [launch] = [document for document in deployment.invocations if "action" not in document]
        return launch

    return train


def test_the_same_arguments_launch_a_run_and_what_the_deployment_has_is_warned_of(
    deployment: FakeDeployment, trained: Callable[..., dict[str, Any]], configs: Any, source: Path
) -> None:
    with pytest.warns(UserWarning, match="is not used") as warned:
        launch = trained(
            [configs.InputData(channel_name="train", data_source="s3://theirs/newer/")],
            role="arn:aws:iam::123456789012:role/mine",
            base_job_name="resnet_50",
            source_code=configs.SourceCode(
                source_dir=str(source),
                entry_script="train.py",
                requirements="requirements.txt",
                ignore_patterns=[".env", "data"],
            ),
            compute=configs.Compute(instance_type="ml.g5.xlarge", instance_count=1, enable_managed_spot_training=True),
            stopping_condition=configs.StoppingCondition(max_runtime_in_seconds=7_200, max_wait_time_in_seconds=14_400),
            checkpoint_config=configs.CheckpointConfig(s3_uri="s3://theirs/checkpoints/"),
            output_data_config=configs.OutputDataConfig(s3_output_path="s3://theirs/out/"),
            input_data_config=[
                configs.InputData(channel_name="train", data_source="s3://theirs/data/"),
                configs.InputData(channel_name="test", data_source="s3://theirs/test/"),
            ],
            hyperparameters={"epochs": 30, "lr": 0.1, "layers": [1, 2]},
            environment={"OMP_NUM_THREADS": "4"},
            tags=[configs.Tag(key="project", value="vision")],
            max_cost=25,
            notify=["completed"],
        )
    sources = {"source", "token", "run"}
    assert {name: value for name, value in launch.items() if name not in sources} == {
        "name": "resnet-50",
        "image": IMAGE,
        "command": ["python", "train.py"],
        "arguments": "json",
        "install": "requirements.txt",
        "instance_type": "ml.g5.xlarge",
        "instance_count": 1,
        "capacity": "spot",
        "max_run": 7_200,
        "max_wait": 14_400,
        "checkpoints": True,
        "channels": [
            {"name": "train", "uri": "s3://theirs/newer/", "input_mode": "File"},
            {"name": "test", "uri": "s3://theirs/test/", "input_mode": "File"},
        ],
        "hyperparameters": {"epochs": "30", "lr": "0.1", "layers": "[1, 2]"},
        "environment": {"OMP_NUM_THREADS": "4"},
        "tags": {"project": "vision"},
        "max_cost": 25,
        "notify": ["completed"],
    }
    unused = {str(each.message).partition(" ")[0] for each in warned if "is not used" in str(each.message)}
    assert unused == {"role", "checkpoint_config", "output_data_config"}
    [packed] = deployment.uploads.values()
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert sorted(archive.getnames()) == ["requirements.txt", "train.py"]


def test_the_trainers_own_defaults_hold_and_spot_is_what_it_is_called_for(
    trained: Callable[..., dict[str, Any]], configs: Any, source: Path
) -> None:
    launch = trained(
        source_code=configs.SourceCode(source_dir=str(source), command="python train.py", args=["--note", "a b"])
    )
    expected = {
        "name": "pytorch-training-job",
        "command": ["python", "train.py", "--note", "a b"],
        "arguments": "none",
        "install": "none",
        "instance_type": "ml.m5.xlarge",
        "max_run": 3_600,
        "capacity": "spot",
        "checkpoints": False,
    }
    assert launch | expected == launch


def test_processes_of_one_instance_are_started_by_torchrun(trained: Callable[..., dict[str, Any]], code: Any) -> None:
    from sagemaker.train.distributed import Torchrun

    launch = trained(source_code=code, distributed=Torchrun(process_count_per_node=4))
    assert launch["command"] == ["python", "train.py"]
    assert launch["distributed"] == {"launcher": "torchrun", "processes": 4}


def test_without_a_number_a_process_a_gpu_is_started_on_whatever_types_the_run_comes_to(
    trained: Callable[..., dict[str, Any]], code: Any
) -> None:
    from sagemaker.train.distributed import Torchrun

    launch = trained(source_code=code, distributed=Torchrun(), instance_types=["ml.g5.12xlarge"])
    assert launch["distributed"] in ("torchrun", {"launcher": "torchrun", "processes": "auto"})


def test_preferred_instances_are_the_types_of_the_run(trained: Callable[..., dict[str, Any]], configs: Any) -> None:
    from sagemaker.core.shapes import InstancePreference

    types = ["ml.g5.xlarge", "ml.g6.xlarge"]
    preferred = [InstancePreference(instance_type=each, instance_count=2) for each in types]
    launch = trained(compute=configs.Compute(instance_preferences=preferred, enable_managed_spot_training=False))
    assert (launch["instance_types"], launch["instance_count"]) == (types, 2)
    assert "instance_type" not in launch


def test_whatever_a_run_cannot_keep_is_refused_by_the_name_of_its_argument(
    trainer: Callable[..., Any], configs: Any, code: Any, source: Path
) -> None:
    from sagemaker.core.shapes import Channel, DataSource, ModelPackageConfig, S3DataSource, ShuffleConfig
    from sagemaker.core.workflow.parameters import ParameterInteger
    from sagemaker.train.distributed import MPI
    from sagemaker.train.model_trainer import Mode

    cases: dict[str, dict[str, Any]] = {
        "training_mode": {"training_mode": Mode.LOCAL_CONTAINER},
        "compute.training_plan_arn": {"compute": configs.Compute(training_plan_arn="arn:aws:sagemaker:us-east-1:1:p")},
        "networking.enable_network_isolation": {"networking": configs.Networking(enable_network_isolation=True)},
        "checkpoint_config.local_path": {
            "checkpoint_config": configs.CheckpointConfig(s3_uri="s3://a/", local_path="/b")
        },
        "distributed.mpi_additional_options": {
            "distributed": MPI(mpi_additional_options=["-x", "A"]),
            "source_code": code,
        },
        "inputs.train": {"input_data_config": [configs.InputData(channel_name="train", data_source=str(source))]},
        "inputs.train.shuffle_config": {
            "input_data_config": [
                Channel(
                    channel_name="train",
                    data_source=DataSource(s3_data_source=S3DataSource(s3_data_type="S3Prefix", s3_uri="s3://a/")),
                    shuffle_config=ShuffleConfig(seed=1),
                )
            ]
        },
        "hyperparameters.layers": {
            "source_code": code,
            "hyperparameters": {"layers": [1, ParameterInteger(name="Width")]},
        },
        "environment.WORKERS": {"environment": {"WORKERS": ParameterInteger(name="Workers")}},
        "model_package_config": {"model_package_config": ModelPackageConfig(model_package_group_arn="arn:a")},
    }
    for field, arguments in cases.items():
        with pytest.raises(RefusedError) as refused:
            trainer(**{"command": "python train.py", **arguments})
        assert field in {each.field for each in refused.value.problems}, field


class Optimizer(StrEnum):
    ADAM = "adam"


def test_hyperparameters_are_the_texts_that_the_sdk_sends_and_the_script_gets_them_as_from_it(
    trained: Callable[..., dict[str, Any]], code: Any
) -> None:
    from sagemaker.train.utils import safe_serialize

    given = {
        "none": None, "on": True, "deep": {"b": [1, None], "a": "ü"}, "lr": 1e-05, "limit": float("inf"), "big": 10**30,
        "empty": "", "below": -3, "two words": "it is", "numpy": np.float32(0.1), "count": np.int64(3),
        "path": Path("/opt/ml"), "optimizer": Optimizer.ADAM, "version": "1.10",
    }  # fmt: skip
    launch = trained(source_code=code, hyperparameters=given)
    assert launch["arguments"] == "json"
    assert launch["hyperparameters"] == {name: safe_serialize(value) for name, value in given.items()}
    assert list(launch["hyperparameters"]) == list(given)


@pytest.mark.parametrize(("given", "sent"), [('{"layers": [64, 32]}', {"layers": "[64, 32]"}), (None, None)])
def test_hyperparameters_may_be_in_a_file_or_not_there(
    trained: Callable[..., dict[str, Any]], code: Any, tmp_path: Path, given: str | None, sent: dict[str, str] | None
) -> None:
    file = tmp_path / "hyperparameters.json"
    file.write_text(given or "")
    launch = trained(source_code=code, hyperparameters=given and str(file))
    assert launch.get("hyperparameters") == sent


def test_without_source_code_the_image_runs_its_own_entry_point(
    trained: Callable[..., dict[str, Any]], configs: Any
) -> None:
    inputs = [configs.InputData(channel_name="train", data_source="s3://a/b/", content_type="text/csv")]
    launch = trained(inputs, hyperparameters={"max_depth": 5})
    assert "command" not in launch
    assert launch["channels"] == [
        {"name": "train", "uri": "s3://a/b/", "input_mode": "File", "content_type": "text/csv"}
    ]


def test_what_is_chained_later_is_judged_when_it_trains(
    deployment: FakeDeployment, trainer: Callable[..., Any], configs: Any
) -> None:
    chained = trainer(command="python train.py")
    chained.with_remote_debug_config(configs.RemoteDebugConfig(enable_remote_debug=True))
    chained.with_metric_definitions([configs.MetricDefinition(name="loss", regex="loss=([0-9.]+)")])
    chained.train(dry_run=True)
    assert chained.run is None
    assert not deployment.invocations
    chained.train(wait=False)
    assert deployment.invocations[-1]["metrics"] == {"loss": "loss=([0-9.]+)"}
    assert deployment.invocations[-1]["debug"] is True
    chained.with_retry_strategy(configs.RetryStrategy(maximum_retry_attempts=2))
    with pytest.raises(RefusedError):
        chained.train(wait=False)


def test_a_trainer_with_a_sweep_launches_one(
    deployment: FakeDeployment, trainer: Callable[..., Any], code: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    over = sweep(state=SweepState.COMPLETED, ended_at=NOW)
    deployment.answers["launch"] = {"ok": True, "sweep": over.sweep, "trials": {"running": 3}}
    deployment.dynamodb.add_sweep(over)
    sweeping = trainer(source_code=code, hyperparameters={"epochs": 3}, sweep=REQUEST, queue="gpu", share="research")
    sweeping.train()
    launch = deployment.invocations[-1]
    assert (launch["sweep"], launch["queue"], launch["hyperparameters"]) == (REQUEST, "gpu", {"epochs": "3"})
    assert len(deployment.uploads) == 1
    assert sweeping.sweep is not None
    assert sweeping.sweep.best().number == 2
    assert (sweeping.run, sweeping.latest_training_job) == (None, None)
    assert "completed" in capsys.readouterr().out


def test_a_name_that_is_neither_the_trainers_nor_a_job_files_is_an_error(trainer: Callable[..., Any]) -> None:
    with pytest.raises(ValidationError, match="max_kost"):
        trainer(command="python train.py", max_kost=25)


class _CapturedError(Exception):
    """The call of AWS that was held back."""


def tuning_request(tuner: Any) -> dict[str, Any]:
    """Start the tuning job, and return what SageMaker would get but for the job's name."""
    import boto3

    def hold_back(params: dict[str, Any], **_: Any) -> None:
        raise _CapturedError(params["body"])

    session = boto3.Session("AKIDEXAMPLE", "secret", region_name="us-east-1")
    session.events.register("before-call.sagemaker.CreateHyperParameterTuningJob", hold_back)
    tuner.model_trainer.sagemaker_session.boto_session = session
    with pytest.raises(_CapturedError) as captured:
        tuner.tune(wait=False)
    return {**json.loads(captured.value.args[0]), "HyperParameterTuningJobName": None}


@pytest.fixture
def tuner(configs: Any) -> Callable[..., Any]:
    """Makes tuners of one trainer."""
    from sagemaker.train import ModelTrainer
    from sagemaker.train.model_trainer import Mode
    from sagemaker.train.tuner import ContinuousParameter, HyperparameterTuner

    class Session:
        """As much of the SDK's own as starts a tuning job."""

        boto_region_name = "us-east-1"
        settings = SimpleNamespace(include_jumpstart_tags=False)

    def make(**arguments: Any) -> Any:
        given = {
            "training_image": IMAGE,
            "role": "arn:aws:iam::123456789012:role/mine",
            "compute": configs.Compute(instance_type="ml.m5.large", instance_count=1),
            "stopping_condition": configs.StoppingCondition(max_runtime_in_seconds=3_600),
            "checkpoint_config": configs.CheckpointConfig(s3_uri="s3://theirs/checkpoints/"),
            "output_data_config": configs.OutputDataConfig(s3_output_path="s3://theirs/out/"),
            **arguments,
        }
        chained = {name: given.pop(name) for name in [*given] if name.startswith("with_")}
        # In its other mode it looks up its role.
        trainer = ModelTrainer(training_mode=Mode.LOCAL_CONTAINER, **given)
        for name, value in chained.items():
            getattr(trainer, name)(value)
        trainer.__dict__["sagemaker_session"] = Session()
        return HyperparameterTuner(
            model_trainer=trainer,
            objective_metric_name="loss",
            metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
            hyperparameter_ranges={"lr": ContinuousParameter(0.01, 0.1)},
            tags=[{"Key": "project", "Value": "vision"}],
            max_jobs=4,
        )

    return make


def test_the_jobs_of_a_tuner_are_on_spot_keep_checkpoints_and_carry_the_tags_that_make_them_runs(
    tuner: Callable[..., Any], configs: Any
) -> None:
    from spotkeep_client.sagemaker import make_adoptable

    of_another = configs.Tag(key="spotkeep:owner", value="bob")
    request = tuning_request(make_adoptable(tuner(tags=[of_another]), owner="ada"))
    definition = request["TrainingJobDefinition"]
    assert definition["EnableManagedSpotTraining"] is True
    assert definition["CheckpointConfig"]["S3Uri"] == "s3://theirs/checkpoints/"
    assert definition["StoppingCondition"] == {"MaxRuntimeInSeconds": 3_600, "MaxWaitTimeInSeconds": 90_000}
    assert [(tag["Key"], tag["Value"]) for tag in request["Tags"]] == [
        ("project", "vision"),
        ("spotkeep:deployment", "spotkeep"),
        ("spotkeep:owner", "ada"),
    ]


def arguments_of_trainers(configs: Any) -> dict[str, dict[str, Any]]:
    """Each argument of a trainer, with a value that no trainer has by itself."""
    from sagemaker.core import shapes

    group = shapes.InstanceGroup(instance_type="ml.m5.large", instance_count=1, instance_group_name="a")
    preference = shapes.InstancePreference(instance_type="ml.m5.large", instance_count=1)
    placement = shapes.InstancePlacementConfig(enable_multiple_jobs=True)
    on = {"instance_type": "ml.m5.large", "instance_count": 1}
    some = {
        "compute": {
            "instance_type": {**on, "instance_type": "ml.m5.xlarge"}, "instance_count": {**on, "instance_count": 2},
            "volume_size_in_gb": {**on, "volume_size_in_gb": 50},
            "volume_kms_key_id": {**on, "volume_kms_key_id": "key"},
            "keep_alive_period_in_seconds": {**on, "keep_alive_period_in_seconds": 60},
            "instance_groups": {"instance_groups": [group]},
            "training_plan_arn": {**on, "training_plan_arn": "arn:aws:sagemaker:us-east-1:1:p"},
            "instance_placement_config": {**on, "instance_placement_config": placement},
            "instance_preferences": {"instance_preferences": [preference]},
        },
        "stopping_condition": {
            "max_runtime_in_seconds": {"max_runtime_in_seconds": 60},
            "max_pending_time_in_seconds": {"max_runtime_in_seconds": 3_600, "max_pending_time_in_seconds": 7_200},
        },
        "networking": {
            "security_group_ids": {"security_group_ids": ["sg-1"], "subnets": ["subnet-1"]},
            "subnets": {"security_group_ids": ["sg-1"], "subnets": ["subnet-1"]},
            "enable_network_isolation": {"enable_network_isolation": True},
            "enable_inter_container_traffic_encryption": {"enable_inter_container_traffic_encryption": True},
        },
        "checkpoint_config": {
            "s3_uri": {"s3_uri": "s3://theirs/others/"}, "local_path": {"s3_uri": "s3://theirs/", "local_path": "/a"},
        },
        "output_data_config": {
            "s3_output_path": {"s3_output_path": "s3://theirs/others/"},
            "kms_key_id": {"s3_output_path": "s3://theirs/out/", "kms_key_id": "key"},
            "compression_type": {"s3_output_path": "s3://theirs/out/", "compression_type": "NONE"},
        },
        "source_code": {"command": {"command": "python train.py"}},
    }  # fmt: skip
    classes = {
        "compute": configs.Compute, "stopping_condition": configs.StoppingCondition, "networking": configs.Networking,
        "checkpoint_config": configs.CheckpointConfig, "output_data_config": configs.OutputDataConfig,
        "source_code": configs.SourceCode,
    }  # fmt: skip
    of_no_sample = {
        "max_wait_time_in_seconds",
        "selected_instance_type",
        "selected_instance_count",
        "enable_managed_spot_training",
    }
    for name, samples in some.items():
        if name != "source_code":
            assert set(samples) == set(classes[name].model_fields) - of_no_sample, f"a sample for each field of {name}"
    access = shapes.TrainingImageConfig(training_repository_access_mode="Vpc")
    debug = configs.RemoteDebugConfig(enable_remote_debug=True)
    return {
        **{f"{name}.{field}": {name: classes[name](**each)} for name in some for field, each in some[name].items()},
        "role": {"role": "arn:aws:iam::123456789012:role/other"},
        "training_image": {"training_image": IMAGE.replace("2.8", "2.9")},
        "training_input_mode": {"training_input_mode": "FastFile"},
        "environment": {"environment": {"A": "b"}},
        "hyperparameters": {"hyperparameters": {"epochs": 3}},
        "tags": {"tags": [configs.Tag(key="team", value="a")]},
        "training_image_config": {"training_image_config": access},
        "model_package_config": {"model_package_config": shapes.ModelPackageConfig(model_package_group_arn="arn:a")},
        "with_retry_strategy": {"with_retry_strategy": configs.RetryStrategy(maximum_retry_attempts=2)},
        "with_remote_debug_config": {"with_remote_debug_config": debug},
        "with_infra_check_config": {"with_infra_check_config": shapes.InfraCheckConfig(enable_infra_check=True)},
        "with_session_chaining_config": {
            "with_session_chaining_config": shapes.SessionChainingConfig(enable_session_tag_chaining=True)
        },
        "with_tensorboard_output_config": {
            "with_tensorboard_output_config": shapes.TensorBoardOutputConfig(s3_output_path="s3://theirs/events/")
        },
        "with_metric_definitions": {
            "with_metric_definitions": [shapes.MetricDefinition(name="loss", regex="a=([0-9]+)")]
        },
    }


def named_by(call: Callable[[], Any]) -> tuple[Any, set[str]]:
    """Return what a call returned, None where it refused, and the arguments that it refused or warned of."""
    returned, named = None, set[str]()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            returned = call()
        except RefusedError as refused:
            named |= {each.field for each in refused.problems}
    return returned, named | {str(each.message).partition(" ")[0] for each in said}


def test_a_link_to_nothing_in_the_source_is_named(
    deployment: FakeDeployment, trainer: Callable[..., Any], configs: Any, source: Path
) -> None:
    (source / "data/latest").symlink_to("gone")
    code = configs.SourceCode(source_dir=str(source), entry_script="train.py")
    with pytest.raises(UsageError, match="data/latest cannot be copied") as refused:
        trainer(source_code=code).train(wait=False)
    assert "ignore_patterns" in refused.value.hint
    assert not deployment.invocations


def test_what_says_that_a_script_saves_is_used_and_not_warned_of(trainer: Callable[..., Any], configs: Any) -> None:
    _, named = named_by(lambda: trainer(checkpoint_config=configs.CheckpointConfig()))
    assert not named


def test_nothing_that_a_trainer_says_is_lost_in_a_run_without_a_word(
    deployment: FakeDeployment, trainer: Callable[..., Any], configs: Any
) -> None:
    def launched(**arguments: Any) -> dict[str, Any]:
        chained = {name: arguments.pop(name) for name in [*arguments] if name.startswith("with_")}
        made = trainer(**arguments)
        for name, value in chained.items():
            getattr(made, name)(value)
        made.train(wait=False)
        return {name: value for name, value in deployment.invocations[-1].items() if name != "run"}

    usual_arguments = {
        "compute": configs.Compute(instance_type="ml.m5.large", instance_count=1),
        "stopping_condition": configs.StoppingCondition(max_runtime_in_seconds=3_600),
        "checkpoint_config": configs.CheckpointConfig(s3_uri="s3://theirs/checkpoints/"),
        "input_data_config": [configs.InputData(channel_name="train", data_source="s3://theirs/data/")],
    }
    usual, always = named_by(lambda: launched(**usual_arguments))
    assert always == {"checkpoint_config"}
    for field, arguments in arguments_of_trainers(configs).items():
        launch, named = named_by(partial(launched, **usual_arguments | arguments))
        assert launch is None or launch != usual or {field, field.partition(".")[0]} & named, field


def test_nothing_that_a_trainer_says_is_lost_in_a_tuning_job_without_a_word(
    tuner: Callable[..., Any], configs: Any
) -> None:
    from spotkeep_client.sagemaker import make_adoptable

    usual = tuning_request(tuner())
    lost, named_for_nothing = set(), set()
    for field, arguments in arguments_of_trainers(configs).items():
        sent = tuning_request(tuner(**arguments)) != usual
        _, named = named_by(partial(make_adoptable, tuner(**arguments)))
        lost |= {field} if not sent and f"model_trainer.{field}" not in named else set()
        named_for_nothing |= {field} if sent and f"model_trainer.{field}" in named else set()
    # A trainer with one of these has no instance type, which the request then lacks.
    assert (lost, named_for_nothing) == (set(), {"compute.instance_groups", "compute.instance_preferences"})


def test_a_trainer_that_launches_runs_creates_no_jobs_for_the_sdk(
    tuner: Callable[..., Any], trainer: Callable[..., Any], configs: Any, code: Any
) -> None:
    from sagemaker.train.aws_batch.training_queue import TrainingQueue

    from spotkeep_client.sagemaker import make_adoptable

    spot = trainer(source_code=code, checkpoint_config=configs.CheckpointConfig(s3_uri="s3://theirs/"))
    with pytest.raises(RefusedError, match="the launcher creates"):
        TrainingQueue("gpu").submit(spot, inputs=None)
    searching = tuner()
    searching.model_trainer = spot
    with pytest.raises(RefusedError) as refused:
        make_adoptable(searching)
    assert [each.field for each in refused.value.problems] == ["model_trainer"]


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ({}, "max_runtime_in_seconds"),
        ({"max_wait_time_in_seconds": 7_200}, "max_runtime_in_seconds"),
        ({"max_runtime_in_seconds": 7_200, "max_wait_time_in_seconds": 7_199}, "max_wait_time_in_seconds"),
        ({"max_runtime_in_seconds": 7_200, "max_wait_time_in_seconds": 7_200}, None),
    ],
)
def test_times_that_a_tuning_job_cannot_have_are_named(
    tuner: Callable[..., Any], configs: Any, limits: dict[str, int], field: str | None
) -> None:
    from spotkeep_client.sagemaker import make_adoptable

    given = tuner(stopping_condition=configs.StoppingCondition(**limits))
    if field is None:
        make_adoptable(given)
        return
    with pytest.raises(RefusedError) as refused:
        make_adoptable(given)
    assert [each.field for each in refused.value.problems] == [f"model_trainer.stopping_condition.{field}"]


def test_a_tuner_whose_jobs_would_start_anew_or_without_what_they_need_is_refused_with_each_reason(
    tuner: Callable[..., Any], configs: Any, source: Path
) -> None:
    from sagemaker.train.distributed import Torchrun

    from spotkeep_client.sagemaker import make_adoptable

    (source / "gpu.txt").write_text("")
    code = {"source_dir": str(source), "entry_script": "train.py"}
    source_code = configs.SourceCode(**code, requirements="gpu.txt")
    made = tuner(checkpoint_config=None, source_code=source_code, distributed=Torchrun())
    with pytest.raises(RefusedError) as refused:
        make_adoptable(made)
    found = {each.field.removeprefix("model_trainer.") for each in refused.value.problems}
    assert found == {"checkpoint_config", "source_code.requirements", "distributed"}
    assert not made.model_trainer.compute.enable_managed_spot_training, "it is left as it was"
    make_adoptable(tuner(source_code=configs.SourceCode(**code, requirements="requirements.txt")))
