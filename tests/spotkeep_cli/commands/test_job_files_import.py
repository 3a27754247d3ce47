"""`spotkeep import`: a training job of another client becomes a job file, and what is left out is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from spotkeep_cli.errors import ExitCode
from spotkeep_jobs.document.request import read_document

REQUEST: dict[str, Any] = {
    "TrainingJobName": "pytorch-training-2026-11-24-04-00-00-123-and-much-more",
    "RoleArn": "arn:aws:iam::123456789012:role/theirs",
    "AlgorithmSpecification": {
        "TrainingImage": "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-gpu-py312",
        "TrainingInputMode": "FastFile",
    },
    "HyperParameters": {
        "epochs": "30",
        "model": '"resnet50"',
        "sagemaker_program": '"train.py"',
        "sagemaker_submit_directory": '"s3://theirs/source.tar.gz"',
        "sagemaker_region": '"us-east-1"',
    },
    "InputDataConfig": [
        {"ChannelName": "train", "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://theirs/x/"}}},
        {"ChannelName": "shared", "DataSource": {"FileSystemDataSource": {"FileSystemId": "fs-1"}}},
    ],
    "OutputDataConfig": {"S3OutputPath": "s3://theirs/out"},
    "ResourceConfig": {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 50},
    "StoppingCondition": {"MaxRuntimeInSeconds": 7_200, "MaxWaitTimeInSeconds": 14_400},
    "EnableManagedSpotTraining": True,
    "CheckpointConfig": {"S3Uri": "s3://theirs/checkpoints"},
    "Tags": [{"Key": "team", "Value": "vision"}, {"Key": "aws:created", "Value": "by AWS"}],
}


@pytest.fixture
def imported(spotkeep: Any, tmp_path: Path) -> Any:
    def run(**changes: Any) -> tuple[Any, Path]:
        given = {key: value for key, value in (REQUEST | changes).items() if value is not None}
        (tmp_path / "request.json").write_text(json.dumps(given))
        output = tmp_path / "job.yaml"
        return spotkeep("import", str(tmp_path / "request.json"), "-o", str(output), columns=400), output

    return run


def test_a_job_of_the_sagemaker_sdk_becomes_a_job_file(imported: Any) -> None:
    result, output = imported()
    assert result.exit_code == ExitCode.DONE
    document = yaml.safe_load(output.read_text())
    assert document == {
        "name": "pytorch-training-2026-11-24-04-00-00-123-an",
        "command": ["python", "train.py"],
        "image": REQUEST["AlgorithmSpecification"]["TrainingImage"],
        "instance_types": ["ml.g5.xlarge"],
        "instance_count": 1,
        "volume_size_gb": 50,
        "capacity": "spot",
        "max_run": 7_200,
        "max_wait": 14_400,
        "channels": [{"name": "train", "uri": "s3://theirs/x/", "input_mode": "FastFile"}],
        "hyperparameters": {"epochs": "30", "model": "resnet50"},
        "checkpoints": True,
        "tags": {"team": "vision"},
    }
    assert read_document(document)[1] == []
    assert "doctor" in result.stdout


def test_each_part_that_is_left_out_is_named_with_why_and_in_the_file(imported: Any) -> None:
    result, output = imported()
    for field in (
        "RoleArn", "OutputDataConfig", "CheckpointConfig", "InputDataConfig.shared",
        "HyperParameters.sagemaker_submit_directory", "HyperParameters.sagemaker_region",
    ):  # fmt: skip
        assert f"not imported: {field}: " in result.stdout
        assert f"# not imported: {field}: " in output.read_text()


def test_a_job_that_a_launcher_made_is_refused_and_its_runs_job_file_named(imported: Any) -> None:
    result, output = imported(
        AlgorithmSpecification={
            "TrainingImage": REQUEST["AlgorithmSpecification"]["TrainingImage"],
            "ContainerEntrypoint": ["python3", "/opt/ml/input/data/spotkeep/spotkeep.pyz", "run"],
        },
        Environment={
            "SPOTKEEP_RUN": "digits-0123",
            "SPOTKEEP_TRAINING_SPEC": f"/opt/ml/input/data/spotkeep-spec/{'0' * 64}.json",
        },
    )
    assert result.exit_code == ExitCode.USAGE
    assert not output.exists()
    assert "its command is in the training spec of run digits-0123" in result.stderr
    assert "spotkeep describe digits-0123 --json" in result.stderr


def test_the_tracking_server_of_a_job_is_taken_over_and_the_name_of_its_run_is_not(imported: Any) -> None:
    arn = "arn:aws:sagemaker:us-east-1:123456789012:mlflow-app/app-0A1B2C3D"
    result, output = imported(
        MlflowConfig={"MlflowResourceArn": arn, "MlflowExperimentName": "digits", "MlflowRunName": "first"}
    )
    assert yaml.safe_load(output.read_text())["mlflow"] == {"tracking_uri": arn, "experiment": "digits"}
    assert "not imported: MlflowConfig.MlflowRunName: " in result.stdout


def test_own_words_of_the_container_are_the_command_and_its_metrics_and_debugging_are_taken_over(imported: Any) -> None:
    metrics = {"train:loss": "loss=([0-9.]+)", "accuracy": "(?i)accuracy: ([0-9.]+)"}
    algorithm = REQUEST["AlgorithmSpecification"] | {
        "ContainerEntrypoint": ["python3"],
        "ContainerArguments": ["a.py"],
        "MetricDefinitions": [{"Name": name, "Regex": regex} for name, regex in metrics.items()],
    }
    debugging = {"EnableRemoteDebug": True}
    result, output = imported(
        AlgorithmSpecification=algorithm, EnableManagedSpotTraining=None, RemoteDebugConfig=debugging
    )
    document = yaml.safe_load(output.read_text())
    assert document["debug"] is True
    assert document["metrics"] == {"train:loss": "loss=([0-9.]+)"}
    left_out = "AlgorithmSpecification.MetricDefinitions.accuracy"
    assert f"not imported: {left_out}: it has a group with an option" in result.stdout
    assert document["command"] == ["python3", "a.py"]
    assert document["capacity"] == "on-demand"
    assert "max_wait" not in document


def test_an_images_own_entry_point_needs_no_command_and_gets_its_hyperparameters_as_they_are(imported: Any) -> None:
    data = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://data/train/"}}
    channels = [{"ChannelName": "train", "ContentType": "text/csv", "DataSource": data}]
    result, output = imported(
        HyperParameters={"eta": "0.2", "objective": '"reg:linear"'},
        InputDataConfig=channels,
        RemoteDebugConfig={"EnableRemoteDebug": False},
    )
    document = yaml.safe_load(output.read_text())
    assert "debug" not in document
    assert "command" not in document
    assert document["hyperparameters"] == {"eta": "0.2", "objective": '"reg:linear"'}
    assert document["channels"][0]["content_type"] == "text/csv"
    assert "AlgorithmSpecification" not in result.stdout


def test_a_name_with_a_line_break_stays_in_its_comment(imported: Any) -> None:
    _, output = imported(HyperParameters={"sagemaker_a\ncommand: evil": "1", "sagemaker_program": "train.py"})
    assert yaml.safe_load(output.read_text())["command"] == ["python", "train.py"]


def test_a_script_of_the_sdk_has_its_source_beside_the_script(spotkeep: Any, tmp_path: Path) -> None:
    (tmp_path / "pipeline").mkdir()
    script = tmp_path / "pipeline" / "start it.py"
    script.write_text("Estimator(entry_point='train.py', source_dir='code', max_run=60)")
    result = spotkeep("import", str(script), "-o", str(tmp_path / "job.yaml"))
    assert result.exit_code == ExitCode.DONE
    document = yaml.safe_load((tmp_path / "job.yaml").read_text())
    assert (document["name"], document["source"], document["max_run"]) == ("start-it", "pipeline/code", 60)


def test_a_script_with_a_byte_order_mark_and_a_name_of_other_letters_is_read(spotkeep: Any, tmp_path: Path) -> None:
    script = tmp_path / "訓練.py"
    script.write_text("Estimator(image_uri='a/b:1')", encoding="utf-8-sig")
    assert spotkeep("import", str(script), "-o", str(tmp_path / "job.yaml")).exit_code == ExitCode.DONE
    assert yaml.safe_load((tmp_path / "job.yaml").read_text())["name"] == "training"


def test_a_file_that_is_there_is_kept(imported: Any) -> None:
    _, output = imported()
    before = output.read_text()
    result, _ = imported(RoleArn=None)
    assert result.exit_code == ExitCode.USAGE
    assert output.read_text() == before


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("start.py", "print(1)"),
        ("start.py", "def"),
        ("start.py", "Estimator()\nEstimator()"),
        ("request.json", "[]"),
        ("request.json", "{}"),
        ("request.json", "no JSON"),
        ("request.json", '{"TrainingJobName": "a", "ResourceConfig": 1}'),
    ],
)
def test_what_is_neither_a_request_nor_a_script_with_one_trainer_is_refused(
    spotkeep: Any, tmp_path: Path, name: str, content: str
) -> None:
    (tmp_path / name).write_text(content)
    result = spotkeep("import", str(tmp_path / name), "-o", str(tmp_path / "job.yaml"))
    assert result.exit_code == ExitCode.USAGE
    assert not (tmp_path / "job.yaml").exists()


@pytest.mark.parametrize(
    ("document", "hint"),
    [
        ({"StartAt": "Train", "States": {"Train": {"Parameters": REQUEST}}}, "Step Functions definition"),
        ({"Version": "2020-12-01", "Steps": [{"Type": "Training", "Arguments": REQUEST}]}, "SageMaker pipeline"),
        ({"AWSTemplateFormatVersion": "2010-09-09", "Resources": {}}, "CloudFormation template"),
        ({"HyperParameterTuningJobName": "a", "TrainingJobDefinition": REQUEST}, "tuning job"),
        ({"TrainingJobName": "a", "ServerlessJobConfig": {}}, "without instances"),
    ],
)
def test_a_document_that_only_holds_a_request_is_told_from_one(
    spotkeep: Any, tmp_path: Path, document: dict[str, Any], hint: str
) -> None:
    (tmp_path / "other.json").write_text(json.dumps(document))
    result = spotkeep("import", str(tmp_path / "other.json"), "-o", str(tmp_path / "job.yaml"), columns=400)
    assert result.exit_code == ExitCode.USAGE
    assert hint in result.stderr
    assert not (tmp_path / "job.yaml").exists()


@pytest.mark.parametrize("name", ["train.ipynb", "request.toml", "state-machine.asl"])
def test_a_file_of_another_kind_is_no_name_of_a_training_job(spotkeep: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}")
    result = spotkeep("import", str(tmp_path / name), "-o", str(tmp_path / "job.yaml"), columns=400)
    assert result.exit_code == ExitCode.USAGE
    assert "neither a .py script nor a .json or .yaml file" in result.stderr


SKYPILOT = """
name: resnet
workdir: .
num_nodes: 2
resources: {accelerators: A100:8, use_spot: true, infra: aws/us-east-1}
file_mounts: {/data: s3://my-bucket/imagenet}
run: |
  torchrun --nnodes=$SKYPILOT_NUM_NODES --node_rank=$SKYPILOT_NODE_RANK train.py
"""
PAGE = Path(__file__).parents[3] / "docs" / "other-clients.md"


def test_a_task_of_skypilot_becomes_a_job_file_as_the_page_shows_it(
    spotkeep: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "resnet").mkdir()
    (tmp_path / "resnet" / "task.yaml").write_text(SKYPILOT)
    command, _, shown = PAGE.read_text().rpartition("```\n$ ")[2].removesuffix("```\n").partition("\n")
    result = spotkeep(*command.split()[1:], columns=110)
    assert result.exit_code == ExitCode.DONE, result.stderr
    document = yaml.safe_load((tmp_path / "job.yaml").read_text())
    assert (document["source"], document["distributed"]) == ("resnet", "torchrun")
    assert [line.rstrip() for line in result.stdout.splitlines()] == shown.splitlines()


def test_a_task_may_become_nodes_of_a_fleet(spotkeep: Any, tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text(SKYPILOT)
    output = tmp_path / "job.yaml"
    result = spotkeep("import", str(tmp_path / "task.yaml"), "--backend", "ec2", "-o", str(output))
    assert result.exit_code == ExitCode.DONE, result.stderr
    document = yaml.safe_load(output.read_text())
    assert (document["backend"], document["nodes"], document["instance_types"]) == ("ec2", 2, ["p4d.24xlarge"])


def test_only_a_task_becomes_nodes_of_a_fleet(spotkeep: Any, tmp_path: Path) -> None:
    result = spotkeep("import", "request.json", "--backend", "ec2", "-o", str(tmp_path / "job.yaml"), columns=400)
    assert result.exit_code == ExitCode.USAGE
    assert "--backend ec2 is for tasks" in result.stderr


@pytest.mark.parametrize("content", ["[]", "name: x\ncommand: python a.py\n", "type: service\n", "a: [", "{}"])
def test_other_yaml_is_refused(spotkeep: Any, tmp_path: Path, content: str) -> None:
    (tmp_path / "request.yaml").write_text(content)
    result = spotkeep("import", str(tmp_path / "request.yaml"), "-o", str(tmp_path / "job.yaml"), columns=400)
    assert result.exit_code == ExitCode.USAGE
    assert "a task of SkyPilot or dstack" in result.stderr


def test_entries_that_are_refused_are_named_and_the_job_file_is_written(imported: Any) -> None:
    result, output = imported(Environment={"SM_MODEL_DIR": "/x", "OMP_NUM_THREADS": "4"})
    assert result.exit_code == ExitCode.DONE
    assert yaml.safe_load(output.read_text())["environment"] == {"OMP_NUM_THREADS": "4"}
    assert "not imported: environment.SM_MODEL_DIR: it is a variable that Spotkeep or SageMaker sets" in result.stdout


def test_a_document_that_its_own_rules_refuse_is_not_written(imported: Any) -> None:
    result, output = imported(StoppingCondition={"MaxRuntimeInSeconds": 0})
    assert result.exit_code == ExitCode.REFUSED
    assert not output.exists()
