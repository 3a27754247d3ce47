"""A script of the SageMaker SDK becomes a job document without being run; what it computes is named."""

from __future__ import annotations

import subprocess
from pathlib import Path
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
    checkpoint_s3_uri=uri, enable_remote_debug=True,
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
        "arguments": "json",
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
        "command": ["sh", "-c", 'chmod +x "$0" && exec "./$0" "$@"', "train.sh"],
        "framework": fields["framework"],
        "debug": True,
        "metrics": {"loss": "loss=([0-9.]+)"},
    }
    assert fields["framework"].startswith("pytorch-2.8")
    assert read_document(without_source(fields))[1] == []
    assert set(left_out(ESTIMATOR)) == {"role", "py_version", "checkpoint_s3_uri", "metric_definitions.x", "inputs"}


def of(**arguments: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Import a trainer with a script and these arguments; return the fields, and what is left out."""
    given = {"source_code": 'SourceCode(source_dir="src", entry_script="train.py")'} | arguments
    job = import_script(f"ModelTrainer({', '.join(f'{name}={value}' for name, value in given.items())})", name="a")
    return job.fields, {each.field: each.why for each in job.left_out}


SHELL = ("bash", "-eo", "pipefail", "-c")


@pytest.mark.parametrize(
    ("source_code", "command"),
    [
        ('command="python train.py --epochs 3"', ["python", "train.py", "--epochs", "3"]),
        ('command="python train.py", args=["--note", "a b", 3]', ["python", "train.py", "--note", "a b", "3"]),
        ('command="echo don\\\'t", args=["a b"]', [*SHELL, "echo don't 'a b'"]),
        ('command="a && b"', [*SHELL, "a && b"]),
        ('command="LR=1 python train.py"', [*SHELL, "LR=1 python train.py"]),
        ('command="b", entry_script="train.py"', ["b"]),
    ],
)
def test_a_command_is_the_sdks_and_gets_no_hyperparameters(source_code: str, command: list[str]) -> None:
    fields, _ = of(source_code=f"SourceCode({source_code})")
    assert (fields["command"], fields["arguments"], fields["install"]) == (command, "none", "none")


def run(fields: dict[str, Any], folder: Path) -> tuple[int, str]:
    """Run an imported command with two hyperparameters; return its exit code and what it printed."""
    done = subprocess.run([*fields["command"], "--b", "1"], cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout


def test_a_shell_script_is_started_by_its_first_line_and_gets_the_hyperparameters(tmp_path: Path) -> None:
    (tmp_path / "my train.sh").write_text('#!/bin/bash -e\necho "$@"\nfalse\necho went on\n')
    fields, _ = of(source_code='SourceCode(source_dir="src", entry_script="my train.sh")')
    assert run(fields, tmp_path) == (1, "--b 1\n")


@pytest.mark.parametrize("command", ["false; echo went on", "false | cat"])
def test_a_command_that_fails_ends_the_job(tmp_path: Path, command: str) -> None:
    fields, _ = of(source_code=f"SourceCode(command={command!r})")
    assert run(fields, tmp_path) == (1, "")


def test_arguments_of_a_command_are_not_a_scripts() -> None:
    fields, left = of(source_code='SourceCode(source_dir="src", entry_script="train.py", args=["--epochs", 3])')
    assert fields["command"] == ["python", "train.py"]
    assert "command alone" in left["source_code.args"]


@pytest.mark.parametrize(
    ("distributed", "instances", "command"),
    [
        ("Torchrun(process_count_per_node=4)", 1, ["torchrun", "--standalone", "--nproc-per-node=4", "train.py"]),
        ("Torchrun()", 1, ["torchrun", "--standalone", "--nproc-per-node=auto", "train.py"]),
        ("Torchrun()", 2, None),
        ("MPI()", 1, None),
    ],
)
def test_torchrun_on_one_instance_is_its_command_and_else_it_is_named(
    distributed: str, instances: int, command: list[str] | None
) -> None:
    fields, left_out = of(distributed=distributed, compute=f"Compute(instance_count={instances})")
    assert ("distributed" in left_out) == (command is None)
    assert fields["command"] == (command or ["python", "train.py"])


def test_what_would_run_otherwise_than_it_was_asked_to_is_named() -> None:
    fields, left_out = of(
        compute="Compute(enable_managed_spot_training=True)",
        stopping_condition="StoppingCondition(max_runtime_in_seconds=60, max_wait_time_in_seconds=60)",
        networking='Networking(subnets=["subnet-1"], enable_network_isolation=1)',
        checkpoint_config='CheckpointConfig(local_path="/tmp/checkpoints")',
        input_s3_key_prefix='"mine"',
    )
    assert set(left_out) == {
        "stopping_condition.max_wait_time_in_seconds", "networking", "networking.enable_network_isolation",
        "checkpoint_config", "checkpoint_config.local_path", "input_s3_key_prefix",
    }  # fmt: skip
    assert "max_wait" not in fields


@pytest.mark.parametrize(
    ("call", "computed"),
    [
        ('Estimator(image_uri="a/b:1")', False),
        ('Estimator(image_uri="a/b:1", entry_point=chosen())', True),
        ('ModelTrainer(training_image="a/b:1", source_code=SourceCode(source_dir="src"))', True),
        ('ModelTrainer(training_image="a/b:1", source_code=code())', True),
    ],
)
def test_an_image_alone_runs_its_own_entry_point_and_a_computed_command_is_named(call: str, computed: bool) -> None:
    job = import_script(call, name="a")
    assert "command" not in job.fields
    assert ("command" in [each.field for each in job.left_out]) == computed


def test_a_channel_is_a_prefix_in_any_of_the_sdks_shapes() -> None:
    plain = 'S3DataSource(s3_data_type="S3Prefix", s3_uri="s3://a/b/", s3_data_distribution_type="FullyReplicated")'
    sharded = 'S3DataSource(s3_uri="s3://a/b/", s3_data_distribution_type="ShardedByS3Key")'
    inputs = [
        f'InputData(channel_name="train", data_source={plain})',
        f'Channel(channel_name="test", input_mode="FastFile", data_source=DataSource(s3_data_source={plain}))',
        f'InputData(channel_name="part", data_source={sharded})',
        'InputData(channel_name="here", data_source="./data")',
        'InputData(channel_name="csv", data_source="s3://a/", content_type="text/csv", shuffle_config=1)',
    ]
    fields, left_out = of(input_data_config=f"[{', '.join(inputs)}]")
    assert fields["channels"] == [
        {"name": "train", "uri": "s3://a/b/", "input_mode": "File"},
        {"name": "test", "uri": "s3://a/b/", "input_mode": "FastFile"},
        {"name": "csv", "uri": "s3://a/", "input_mode": "File", "content_type": "text/csv"},
    ]
    assert set(left_out) == {"inputs.part", "inputs.here", "inputs.csv.shuffle_config"}


def test_a_name_that_is_assigned_twice_is_computed() -> None:
    script = 'kind = "ml.g5.xlarge"\nkind = "ml.p4d.24xlarge"\nEstimator(instance_type=kind, entry_point="a.py")'
    assert left_out(script)["instance_type"] == "the script computes it: 'kind'"


@pytest.mark.parametrize(
    "value",
    ["n", '"a" * 10**9', "10**9", "-'a'", "[*a]", "{**a}", "{(1,): 2}", "f'{a!r}'", "lambda: 1"],
)
def test_what_is_no_plain_value_is_named_and_not_run(value: str) -> None:
    script = f'n = n\nEstimator(instance_count={value}, entry_point="a.py")'
    assert "instance_count" in left_out(script)


def test_a_long_sum_is_read_in_one_pass() -> None:
    job = import_script(f"Estimator(max_run={' + '.join(['1'] * 60)})", name="a")
    assert job.fields["max_run"] == 60


@pytest.mark.parametrize(
    "doubled",
    ["{} + {}", "{{'x': {}, 'y': {}}}", "Compute(a={}, b={})", "f'{{{}}}{{{}}}'"],
)
@pytest.mark.timeout(60)
def test_names_that_double_each_other_take_no_time(doubled: str) -> None:
    names = ["a0 = 'x'", *(f"a{n + 1} = {doubled.format(f'a{n}', f'a{n}')}" for n in range(64))]
    script = "\n".join([*names, "Estimator(compute=a64, hyperparameters={'x': a64}, max_run=60)"])
    job = import_script(script, name="a")
    assert job.fields["max_run"] == 60
    assert {each.field for each in job.left_out} == {"compute", "hyperparameters"}


@pytest.mark.parametrize("value", ["c", "Compute(c=c)", "d"])
def test_a_name_that_stands_for_itself_is_computed(value: str) -> None:
    job = import_script(f"c = {value}\nd = c\nEstimator(compute=c, max_run=60)", name="a")
    assert job.fields["max_run"] == 60
    assert all(each.field.startswith("compute") for each in job.left_out)


def test_a_long_chain_of_names_is_named() -> None:
    names = "\n".join(f"a{n + 1} = a{n}" for n in range(2_000))
    assert left_out(f"{names}\nEstimator(max_run=a2000)") == {"max_run": "the script computes it: 'a2000'"}


def test_an_argument_as_large_as_any_is_read() -> None:
    values = {f"name-{n}": "x" * 500 for n in range(100)}
    assert import_script(f"Estimator(hyperparameters={values})", name="a").fields["hyperparameters"] == values


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
    st.sampled_from(
        ["hyperparameters", "tags", "metric_definitions", "inputs", "environment", "max_run", "compute", "source_code"]
    ),
)
def test_whatever_a_script_holds_it_is_imported_or_named(value: str, argument: str) -> None:
    job = import_script(f"a = 2\nEstimator({argument}={value})", name="a")
    assert job.fields["name"] == "a"
