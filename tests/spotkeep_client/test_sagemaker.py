"""The SDK's own classes in, a launch out: a trainer becomes a run, or every argument that cannot is named."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from spotkeep_cli.errors import RefusedError
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
    assert launch["command"] == ["torchrun", "--standalone", "--nproc-per-node=4", "train.py"]


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
        "distributed": {"distributed": MPI(), "source_code": code},
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
    """Start the tuning job, and return what SageMaker would get."""
    import boto3

    def hold_back(params: dict[str, Any], **_: Any) -> None:
        raise _CapturedError(params["body"])

    session = boto3.Session("AKIDEXAMPLE", "secret", region_name="us-east-1")
    session.events.register("before-call.sagemaker.CreateHyperParameterTuningJob", hold_back)
    tuner.model_trainer.sagemaker_session.boto_session = session
    with pytest.raises(_CapturedError) as captured:
        tuner.tune(wait=False)
    return dict(json.loads(captured.value.args[0]))


@pytest.fixture
def tuner(configs: Any) -> Any:
    from sagemaker.train import ModelTrainer
    from sagemaker.train.model_trainer import Mode
    from sagemaker.train.tuner import ContinuousParameter, HyperparameterTuner

    class Session:
        """As much of the SDK's own as starts a tuning job."""

        boto_region_name = "us-east-1"
        settings = SimpleNamespace(include_jumpstart_tags=False)

    trainer = ModelTrainer(
        training_mode=Mode.LOCAL_CONTAINER,  # In its other mode it looks up its role.
        training_image=IMAGE,
        role="arn:aws:iam::123456789012:role/mine",
        compute=configs.Compute(instance_type="ml.m5.large", instance_count=1),
        stopping_condition=configs.StoppingCondition(max_runtime_in_seconds=3_600),
        checkpoint_config=configs.CheckpointConfig(s3_uri="s3://theirs/checkpoints/"),
        output_data_config=configs.OutputDataConfig(s3_output_path="s3://theirs/out/"),
    )
    trainer.__dict__["sagemaker_session"] = Session()
    return HyperparameterTuner(
        model_trainer=trainer,
        objective_metric_name="loss",
        metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
        hyperparameter_ranges={"lr": ContinuousParameter(0.01, 0.1)},
        tags=[{"Key": "project", "Value": "vision"}],
        max_jobs=4,
    )


def test_the_jobs_of_a_tuner_are_on_spot_keep_checkpoints_and_carry_the_tags_that_make_them_runs(tuner: Any) -> None:
    from spotkeep_client.sagemaker import make_adoptable

    request = tuning_request(make_adoptable(tuner, owner="ada"))
    definition = request["TrainingJobDefinition"]
    assert definition["EnableManagedSpotTraining"] is True
    assert definition["CheckpointConfig"]["S3Uri"] == "s3://theirs/checkpoints/"
    assert definition["StoppingCondition"] == {"MaxRuntimeInSeconds": 3_600, "MaxWaitTimeInSeconds": 90_000}
    assert {tag["Key"]: tag["Value"] for tag in request["Tags"]} == {
        "project": "vision",
        "spotkeep:deployment": "spotkeep",
        "spotkeep:owner": "ada",
    }


def test_a_tuner_whose_jobs_would_start_anew_is_refused(tuner: Any) -> None:
    from spotkeep_client.sagemaker import make_adoptable

    tuner.model_trainer.checkpoint_config = None
    with pytest.raises(RefusedError) as refusal:
        make_adoptable(tuner)
    assert [each.field for each in refusal.value.problems] == ["model_trainer.checkpoint_config"]
