"""A script of the SageMaker SDK becomes a job document without being run; what it computes is named."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_cli.launching.sdk_script_import import import_script
from spotkeep_jobs.document.validation import read_document

MODEL_TRAINER = """
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, InputData, SourceCode, StoppingCondition, CheckpointConfig

HOUR = 60 * 60
bucket = "theirs"
source_code = SourceCode(source_dir="src", entry_script="train.py", requirements="requirements.txt")

def main():
    trainer = ModelTrainer(
        base_job_name="resnet",
        training_image="763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-gpu-py312",
        source_code=source_code,
        role=get_execution_role(),
        compute=Compute(instance_type="ml.g5.xlarge", instance_count=1, enable_managed_spot_training=True),
        stopping_condition=StoppingCondition(max_runtime_in_seconds=2 * HOUR, max_wait_time_in_seconds=4 * HOUR),
        checkpoint_config=CheckpointConfig(s3_uri=f"s3://{bucket}/checkpoints/"),
        hyperparameters={"epochs": 30, "lr": -1e-3, "model": "resnet50"},
        environment={"NOW": str(time.time())},
        sagemaker_session=session,
        tags=[{"key": "team", "value": "vision"}],
    )
    trainer.train(input_data_config=[InputData(channel_name="train", data_source=f"s3://{bucket}/data/")])
"""
ESTIMATOR = """
from sagemaker.pytorch import PyTorch
estimator = PyTorch(
    entry_point="train.sh", source_dir="code", role=role, framework_version="2.8", py_version="py312",
    instance_count=1, instance_type="ml.g5.xlarge", use_spot_instances=True, max_run=3600, max_wait=7200,
    checkpoint_s3_uri=uri,
    metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}, {"Name": "x", "Regex": "x"}],
)
estimator.fit({"train": "s3://theirs/data/", "test": computed()})
"""


def left_out(text: str) -> dict[str, str]:
    return {each.field: each.why for each in import_script(text, name="a").left_out}


def without_source(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != "source"}


def test_a_model_trainer_of_version_3() -> None:
    fields = import_script(MODEL_TRAINER, name="launch").fields
    assert fields == {
        "name": "resnet",
        "image": "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-gpu-py312",
        "source": "src",
        "install": "requirements.txt",
        "instance_type": "ml.g5.xlarge",
        "instance_count": 1,
        "max_run": 7_200,
        "max_wait": 14_400,
        "hyperparameters": {"epochs": 30, "lr": -1e-3, "model": "resnet50"},
        "capacity": "spot",
        "checkpoints": True,
        "command": ["python", "train.py"],
        "channels": [{"name": "train", "uri": "s3://theirs/data/", "input_mode": "File"}],
        "tags": {"team": "vision"},
    }
    assert read_document(without_source(fields))[1] == []
    reasons = left_out(MODEL_TRAINER)
    assert set(reasons) == {"role", "checkpoint_config", "environment", "sagemaker_session"}
    assert reasons["environment"] == "the script computes it: \"{'NOW': str(time.time())}\""


def test_an_estimator_of_version_2() -> None:
    fields = import_script(ESTIMATOR, name="launch").fields
    assert fields == {
        "name": "launch",
        "source": "code",
        "instance_type": "ml.g5.xlarge",
        "instance_count": 1,
        "max_run": 3_600,
        "max_wait": 7_200,
        "capacity": "spot",
        "checkpoints": True,
        "command": ["bash", "train.sh"],
        "framework": fields["framework"],
        "metrics": {"loss": "loss=([0-9.]+)"},
    }
    assert fields["framework"].startswith("pytorch-2.8")
    assert read_document(without_source(fields))[1] == []
    assert set(left_out(ESTIMATOR)) == {"role", "py_version", "checkpoint_s3_uri", "metric_definitions.x", "inputs"}


def test_a_name_that_is_assigned_twice_is_computed() -> None:
    script = 'kind = "ml.g5.xlarge"\nkind = "ml.p4d.24xlarge"\nEstimator(instance_type=kind, entry_point="a.py")'
    assert left_out(script)["instance_type"] == "the script computes it: 'kind'"


@pytest.mark.parametrize("value", ["n", '"a" * 10**9', "10**9", "-'a'", "[*a]", "{**a}", "f'{a!r}'", "lambda: 1"])
def test_what_is_no_plain_value_is_named_and_not_run(value: str) -> None:
    script = f'n = n\nEstimator(instance_count={value}, entry_point="a.py")'
    assert "instance_count" in left_out(script)


def test_a_long_sum_is_read_in_one_pass() -> None:
    job = import_script(f"Estimator(max_run={' + '.join(['1'] * 60)})", name="a")
    assert job.fields["max_run"] == 60


@pytest.mark.parametrize("script", ["print(1)", "Estimator()\nModelTrainer()", "def"])
def test_a_script_without_one_trainer_is_refused(script: str) -> None:
    with pytest.raises((ValueError, SyntaxError)):
        import_script(script, name="a")


@given(
    st.recursive(
        st.sampled_from(["a", "1", "-1", "'x'", "None", "1.5", "Compute(a=b)", "f'{a}'"]),
        lambda inner: (
            st.builds("({}, {})".format, inner, inner)
            | st.builds("({} + {})".format, inner, inner)
            | st.builds("{{{}: {}}}".format, inner, inner)
            | st.builds("({} * {})".format, inner, inner)
        ),
    ),
    st.sampled_from(["hyperparameters", "tags", "metric_definitions", "inputs", "environment", "max_run", "compute"]),
)
def test_whatever_a_script_holds_it_is_imported_or_named(value: str, argument: str) -> None:
    job = import_script(f"a = 2\nEstimator({argument}={value})", name="a")
    assert job.fields["name"] == "a"
