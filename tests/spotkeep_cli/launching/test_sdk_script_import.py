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
        "volume_size_gb": 30,
        "max_run": 7_200,
        "max_wait": 14_400,
        "arguments": "json",
        "hyperparameters": {"epochs": 30, "lr": -1e-3, "model": "resnet50"},
        "capacity": "spot",
        "checkpoints": True,
        "command": ["python", "train.py"],
        "channels": [{"name": "train", "uri": "s3://theirs/data/", "input_mode": "File"}],
        "tags": {"team": "vision"},
    }
    assert read_document(without_source(fields))[1] == []
    reasons = left_out(MODEL_TRAINER)
    assert set(reasons) == {"role", "checkpoint_config", "environment.NOW", "sagemaker_session"}
    assert reasons["environment.NOW"] == "the script computes it: 'str(time.time())'"


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
        "channels": [{"name": "train", "uri": "s3://theirs/data/", "input_mode": "File"}],
    }
    assert fields["framework"].startswith("pytorch-2.8")
    assert read_document(without_source(fields))[1] == []
    assert set(left_out(ESTIMATOR)) == {"role", "checkpoint_s3_uri", "metric_definitions.x", "inputs.test"}


def of(**arguments: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Import a trainer with a script and these arguments; return the fields, and what is left out."""
    given = {"source_code": 'SourceCode(source_dir="src", entry_script="train.py")'} | arguments
    job = import_script(f"ModelTrainer({', '.join(f'{name}={value}' for name, value in given.items())})", name="a")
    return job.fields, {each.field: each.why for each in job.left_out}


def block(line: str) -> str:
    return f"set +u  # as the SageMaker SDK runs it\n{line}\n"


@pytest.mark.parametrize(
    ("source_code", "command"),
    [
        ('command="python train.py --epochs 3"', ["python", "train.py", "--epochs", "3"]),
        ('command="python train.py", args=["--note", "a b", 3]', ["python", "train.py", "--note", "a b", "3"]),
        ('command="echo don\\\'t", args=["a b"]', block("echo don't 'a b'")),
        ('command="a && b"', block("a && b")),
        ('command="LR=1 python train.py"', block("LR=1 python train.py")),
        ('command="exec python train.py"', block("exec python train.py")),
        ('command="./setup.sh"', ["./setup.sh"]),
        ('command="b", entry_script="train.py"', ["b"]),
    ],
)
def test_a_command_is_the_sdks_and_gets_no_hyperparameters(source_code: str, command: list[str] | str) -> None:
    fields, _ = of(source_code=f"SourceCode({source_code})")
    assert (fields["command"], fields["arguments"], fields["install"]) == (command, "none", "none")


def run(fields: dict[str, Any], folder: Path) -> tuple[int, str]:
    """Run an imported command with a hyperparameter; return its exit code and what it printed."""
    command = fields["command"]
    words = ["bash", "-euo", "pipefail", "-c", command, "bash"] if isinstance(command, str) else command
    done = subprocess.run([*words, "--b", "1"], cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout


def test_a_shell_script_is_started_by_its_first_line_and_gets_the_hyperparameters(tmp_path: Path) -> None:
    (tmp_path / "my train.sh").write_text('#!/bin/bash -e\necho "$@"\nfalse\necho went on\n')
    fields, _ = of(source_code='SourceCode(source_dir="src", entry_script="my train.sh")')
    assert run(fields, tmp_path) == (1, "--b 1\n")


@pytest.mark.parametrize("command", ["false; echo went on", "false | cat", "false $UNSET"])
def test_a_command_that_fails_ends_the_job(tmp_path: Path, command: str) -> None:
    fields, _ = of(source_code=f"SourceCode(command={command!r})")
    assert run(fields, tmp_path) == (1, "")


def test_arguments_of_a_command_are_not_a_scripts() -> None:
    fields, left = of(source_code='SourceCode(source_dir="src", entry_script="train.py", args=["--epochs", 3])')
    assert fields["command"] == ["python", "train.py"]
    assert "command alone" in left["source_code.args"]


def ran_by_torchrun(fields: dict[str, Any], folder: Path, **environment: str) -> list[str]:
    """Run an imported command with a torchrun that prints its words; return them."""
    (folder / "torchrun").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    (folder / "torchrun").chmod(0o755)
    command = [*fields["command"], "--b", "1"]
    variables = {"PATH": f"{folder}:/usr/bin:/bin", "SM_NUM_GPUS": "0", **environment}
    return subprocess.run(command, env=variables, check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.parametrize(
    ("processes", "gpus", "expected"), [("", "0", "1"), ("", "8", "8"), ("process_count_per_node=4", "0", "4")]
)
@pytest.mark.parametrize("instances", [1, 2])
def test_torchrun_starts_as_many_processes_as_there_are_gpus_or_as_it_is_told(
    tmp_path: Path, processes: str, gpus: str, expected: str, instances: int
) -> None:
    fields, left_out = of(distributed=f"Torchrun({processes})", compute=f"Compute(instance_count={instances})")
    hosts = {"SM_HOST_COUNT": "2", "SM_CURRENT_HOST_RANK": "1", "SM_MASTER_ADDR": "algo-1", "SM_MASTER_PORT": "7777"}
    words = " ".join(ran_by_torchrun(fields, tmp_path, SM_NUM_GPUS=gpus, **hosts)).replace("=", " ")
    several = "--nnodes 2 --node-rank 1 --master-addr algo-1 --master-port 7777"
    where = "--standalone" if instances == 1 else several
    assert words == f"{where} --nproc-per-node {expected} train.py --b 1"
    assert left_out == {}


def test_the_estimators_of_pytorch_start_torchrun_too(tmp_path: Path) -> None:
    call = 'entry_point="train.py", source_dir="src", framework_version="2.8"'
    job = import_script(f'PyTorch({call}, distribution={{"torch_distributed": {{"enabled": True}}}})', name="a")
    assert "--nproc-per-node 8" in " ".join(ran_by_torchrun(job.fields, tmp_path, SM_NUM_GPUS="8"))
    assert job.left_out == ()


def test_neuron_cores_are_not_counted_and_their_number_is_asked_for() -> None:
    _, left_out = of(distributed="Torchrun()", compute='Compute(instance_type="ml.trn1.32xlarge")')
    assert "Neuron core" in left_out["distributed.process_count_per_node"]


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ("ModelTrainer(source_code=SourceCode(source_dir='s', entry_script='a.py'), distributed=MPI())", "distributed"),
        ("TensorFlow(entry_point='a.py', distribution={'parameter_server': {'enabled': True}})",
         "distribution.parameter_server"),
        ("PyTorch(entry_point='a.py', distribution={'smdistributed': {'dataparallel': {'enabled': True}}})",
         "distribution.smdistributed"),
        ("MXNet(entry_point='a.py', distributions={'mpi': {'enabled': True, 'processes_per_host': 2}})",
         "distribution.mpi"),
        ("HuggingFace(entry_point='a.py', distribution={'pytorchddp': {'enabled': True}})", "distribution.pytorchddp"),
        ("PyTorch(entry_point='a.py', distribution=chosen())", "distribution"),
    ],
)  # fmt: skip
def test_processes_that_are_started_in_another_way_are_named(call: str, field: str) -> None:
    assert field in left_out(call)


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
        {"name": "part", "uri": "s3://a/b/", "input_mode": "File"},
        {"name": "csv", "uri": "s3://a/", "input_mode": "File", "content_type": "text/csv"},
    ]
    assert set(left_out) == {"inputs.part.s3_data_distribution_type", "inputs.here", "inputs.csv.shuffle_config"}


def test_data_that_instances_share_is_no_channel() -> None:
    sharded = 'S3DataSource(s3_uri="s3://a/b/", s3_data_distribution_type="ShardedByS3Key")'
    fields, left_out = of(
        input_data_config=f'[InputData(channel_name="part", data_source={sharded})]',
        compute="Compute(instance_count=2)",
    )
    assert "channels" not in fields
    assert "a part of the data" in left_out["inputs.part"]


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
