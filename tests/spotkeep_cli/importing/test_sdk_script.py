"""A script of the SageMaker SDK becomes a job document without being run; what it computes is named."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.runner.environment import command_arguments
from spotkeep_cli.importing.sdk_script import import_script
from spotkeep_jobs.document.request import read_document

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
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
"""What a process can be given."""


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
        ('command="time python train.py"', block("time python train.py")),
        ('command="read name"', block("read name")),
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


def test_lines_that_the_sdk_joins_are_named_and_a_block_is_written_as_lines() -> None:
    fields, left = of(source_code="SourceCode(command='python a.py\\npython b.py')")
    assert fields["command"] == ["python", "a.py", "python", "b.py"]
    assert "one line" in left["source_code.command"]
    job = import_script("ModelTrainer(source_code=SourceCode(command='a && b'))", name="a")
    assert "command: |\n  set +u  # as the SageMaker SDK runs it\n  a && b\n" in job.as_job_file()


def test_arguments_of_a_command_are_not_a_scripts() -> None:
    fields, left = of(source_code='SourceCode(source_dir="src", entry_script="train.py", args=["--epochs", 3])')
    assert fields["command"] == ["python", "train.py"]
    assert "command alone" in left["source_code.args"]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("Torchrun()", "torchrun"),
        ("Torchrun(process_count_per_node=4)", {"launcher": "torchrun", "processes": 4}),
        ("MPI()", "mpi"),
        ("MPI(process_count_per_node=2)", {"launcher": "mpi", "processes": 2}),
    ],
)
@pytest.mark.parametrize("instances", [1, 2])
def test_ranks_are_started_as_many_as_it_is_said_or_one_a_gpu(call: str, expected: Any, instances: int) -> None:
    fields, left_out = of(distributed=call, compute=f"Compute(instance_count={instances})")
    words = ["python", "-m", "mpi4py", "train.py"] if "MPI" in call else ["python", "train.py"]
    assert (fields["distributed"], fields["command"], left_out) == (expected, words, {})


@pytest.mark.parametrize(
    ("trainer", "distribution", "expected", "named"),
    [
        ("PyTorch", "{'torch_distributed': {'enabled': True}}", "torchrun", set()),
        ("PyTorch", "{'pytorchddp': {'enabled': True}}", "torchrun", {"distribution.pytorchddp"}),
        ("PyTorch", "{'pytorchddp': {'enabled': True, 'custom_mpi_options': '-x A'}}", "torchrun",
         {"distribution.pytorchddp", "distribution.pytorchddp.custom_mpi_options"}),
        ("MXNet", "{'mpi': {'enabled': True}}", {"launcher": "mpi", "processes": 1}, {"framework"}),
        ("PyTorch", "{'mpi': {'enabled': True, 'processes_per_host': 2, 'custom_mpi_options': '-x A'}}",
         {"launcher": "mpi", "processes": 2}, {"distribution.mpi.custom_mpi_options"}),
    ],
)  # fmt: skip
def test_the_estimators_start_ranks_too(trainer: str, distribution: str, expected: Any, named: set[str]) -> None:
    version = 'framework_version="2.8"' if trainer == "PyTorch" else 'py_version="py3"'
    call = f'entry_point="train.py", source_dir="src", {version}, distribution={distribution}'
    job = import_script(f"{trainer}({call})", name="a")
    assert job.fields["distributed"] == expected
    assert {each.field for each in job.left_out} - {"py_version"} == named


def test_options_of_mpirun_are_named() -> None:
    fields, left_out = of(distributed="MPI(mpi_additional_options=['-x', 'A'])")
    assert fields["distributed"] == "mpi"
    assert "distributed: none" in left_out["distributed.mpi_additional_options"]


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ("TensorFlow(entry_point='a.py', distribution={'parameter_server': {'enabled': True}})",
         "distribution.parameter_server"),
        ("PyTorch(entry_point='a.py', distribution={'smdistributed': {'dataparallel': {'enabled': True}}})",
         "distribution.smdistributed"),
        ("PyTorch(entry_point='a.py', distribution={'mpi': {'enabled': True}, 'torch_distributed': {'enabled': True}})",
         "distribution.mpi"),
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


def test_a_file_system_is_a_channel_in_both_versions_of_the_sdk() -> None:
    name = "fs-0123456789abcdef0"
    of_version_2 = f'FileSystemInput("{name}", "FSxLustre", "/fsx/a")'
    job = import_script(f'e = PyTorch(entry_point="a.py")\ne.fit({{"train": {of_version_2}}})', name="a")
    assert job.fields["channels"] == [{"name": "train", "fsx": name, "path": "/fsx/a", "access": "ro"}]
    where = f'file_system_id="{name}", file_system_type="EFS", directory_path="/a", file_system_access_mode="rw"'
    source = f"FileSystemDataSource({where})"
    wanted = [{"name": "train", "efs": name, "path": "/a", "access": "rw"}]
    for written in (source, f"DataSource(file_system_data_source={source})"):
        fields, _ = of(input_data_config=f'[InputData(channel_name="train", data_source={written})]')
        assert fields["channels"] == wanted


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


def estimator(kind: str = "PyTorch", **arguments: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Import an estimator with a script and these arguments; return the fields, and what is left out."""
    given = {"entry_point": '"train.py"', "source_dir": '"src"'} | arguments
    job = import_script(f"{kind}({', '.join(f'{name}={value}' for name, value in given.items())})", name="a")
    return job.fields, {each.field: each.why for each in job.left_out}


@pytest.mark.parametrize(
    ("kind", "versions", "framework", "named"),
    [
        ("HuggingFace", 'transformers_version="4.56", pytorch_version="2.8", py_version="py312"',
         "huggingface-4.56.2", set()),
        ("HuggingFace", 'transformers_version="4.56.2"', "huggingface-4.56.2", set()),
        ("HuggingFace", 'transformers_version="4.56", pytorch_version="2.6", py_version="py310"', "huggingface-4.56.2",
         {"pytorch_version", "py_version"}),
        ("HuggingFace", 'transformers_version="4.28", pytorch_version="2.0"', None,
         {"transformers_version", "pytorch_version"}),
        ("HuggingFace", 'transformers_version="4.5"', None, {"transformers_version"}),
        ("HuggingFace", 'transformers_version="4.56", tensorflow_version="2.4"', None,
         {"framework", "transformers_version", "tensorflow_version"}),
        ("PyTorch", 'framework_version="2.10"', "pytorch-2.10.0", set()),
        ("PyTorch", 'framework_version="2.1"', None, {"framework_version"}),
        ("PyTorch", 'framework_version="1.13.1", py_version="py39"', None, {"framework_version", "py_version"}),
        ("PyTorch", 'framework_version="2"', "pytorch-2.10.0", {"framework_version"}),
        ("PyTorch", "framework_version=VERSION", None, {"framework_version"}),
        ("PyTorch", 'image_uri="a/b:1", framework_version="1.13"', None, {"framework_version"}),
        ("PyTorch", "image_uri=chosen(), framework_version='2.8'", None, {"image_uri", "framework_version"}),
        ("TensorFlow", 'framework_version="2.19", py_version="py312", model_dir=False', "tensorflow-2.19.0", set()),
        ("TensorFlow", 'framework_version="2.19"', "tensorflow-2.19.0", {"model_dir"}),
        ("XGBoost", 'framework_version="1.7-1", py_version="py3"', "xgboost-1.7-1", set()),
        ("SKLearn", 'framework_version="1.2-1"', "sklearn-1.2-1", set()),
        ("SKLearn", "", None, {"framework_version"}),
        ("MXNet", 'framework_version="1.9"', None, {"framework", "framework_version"}),
        ("Chainer", 'framework_version="5.0.0"', None, {"framework", "framework_version"}),
        ("RLEstimator", 'toolkit_version="1.0"', None, {"framework", "toolkit_version"}),
    ],
)  # fmt: skip
def test_no_other_version_is_taken_without_a_word(
    kind: str, versions: str, framework: str | None, named: set[str]
) -> None:
    job = import_script(f"{kind}(entry_point='train.py', source_dir='src', {versions})", name="a")
    assert job.fields.get("framework") == framework
    assert {each.field for each in job.left_out} == named


@pytest.mark.parametrize(
    ("call", "fields", "named"),
    [
        ('Estimator(image_uris.retrieve("xgboost", region, "1.7-1"), role)', {"algorithm": "xgboost-1.7-1"}, set()),
        ('Estimator(image_uri=retrieve(framework="kmeans", region=region))', {"algorithm": "kmeans-1"}, set()),
        ('Estimator(image_uri=retrieve("xgboost", region, "1.7"), entry_point="a.py", source_dir="s")',
         {"framework": "xgboost-1.7-1"}, set()),
        ('ModelTrainer(training_image=retrieve("pytorch", "us-east-1", version="2.8", image_scope="training"), '
         'source_code=SourceCode(command="a"))', {"framework": "pytorch-2.8.0"}, set()),
        ('Estimator(image_uri=retrieve("xgboost", region, "0.90-1"))', {}, {"image_uri"}),
        ('Estimator(image_uri=retrieve("xgboost", region))', {}, {"image_uri"}),
        ('Estimator(image_uri=retrieve("xgboost", region, version()))', {}, {"image_uri", "image_uri.version"}),
        ('Estimator(image_uri=retrieve("detectron", region, "1"))', {}, {"image_uri"}),
        ('Estimator(image_uri=retrieve("pytorch", region, "2.8", image_scope="inference"), entry_point="a.py", '
         'source_dir="s")', {}, {"image_uri"}),
    ],
)  # fmt: skip
def test_an_image_that_the_sdk_looks_up_is_a_framework_or_an_algorithm(
    call: str, fields: dict[str, str], named: set[str]
) -> None:
    job = import_script(call, name="a")
    found = {name: job.fields[name] for name in ("algorithm", "framework", "image") if name in job.fields}
    assert found == fields
    assert {each.field for each in job.left_out} - {"role"} == named


def test_names_of_version_1_are_read() -> None:
    job = import_script(
        "TensorFlow(entry_point='train.py', source_dir='src', framework_version='2.19', train_instance_count=1,"
        "train_instance_type='ml.p3.2xlarge', train_use_spot_instances=True, train_max_run=3600, train_max_wait=7200,"
        "train_volume_size=9, script_mode=True, model_dir=False, train_volume_kms_key=key()).fit(s3_input('s3://b/x/'))",
        name="a",
    )
    expected = {"capacity": "spot", "instance_type": "ml.p3.2xlarge", "max_run": 3_600, "max_wait": 7_200,
        "volume_size_gb": 9, "instance_count": 1}  # fmt: skip
    assert job.fields | expected == job.fields
    assert {each.field for each in job.left_out} == {"script_mode", "train_volume_kms_key"}
    old_image = import_script("Estimator(image_name='a/b:1')", name="a")
    assert old_image.fields["image"] == "a/b:1"


COMMIT = "0123456789" * 4
REPOSITORY = "https://github.com/org/repo.git"


@pytest.mark.parametrize(
    ("git_config", "source", "named"),
    [
        (f'{{"repo": "{REPOSITORY}", "branch": "main", "commit": "{COMMIT}"}}',
         {"git": REPOSITORY, "commit": COMMIT}, set()),
        (f'{{"repo": "{REPOSITORY}", "branch": "main"}}', {"git": REPOSITORY, "branch": "main"}, set()),
        (f'{{"repo": "{REPOSITORY}"}}', {"git": REPOSITORY}, {"git_config"}),
        (f'{{"repo": "{REPOSITORY}", "commit": "0123abc"}}', {"git": REPOSITORY, "commit": "0123abc"},
         {"git_config.commit"}),
        (f'{{"repo": "{REPOSITORY}", "commit": head()}}', {"git": REPOSITORY}, {"git_config", "git_config.commit"}),
        ('{"repo": repository()}', None, {"git_config.repo"}),
        ("settings()", None, {"git_config"}),
        (f'{{"repo": "{REPOSITORY.replace("//", "//ada:secret@")}", "commit": "{COMMIT}", "password": "secret", '
         '"token": read("secret")}',
         {"git": REPOSITORY, "commit": COMMIT}, {"git_config.repo", "git_config.password", "git_config.token"}),
    ],
)  # fmt: skip
def test_a_repository_is_the_source_and_its_login_is_not_written(
    git_config: str, source: dict[str, str] | None, named: set[str]
) -> None:
    fields, left_out = estimator(git_config=git_config, source_dir='"pytorch"', framework_version='"2.8"')
    assert fields.get("source") == source
    assert fields["command"] == ["python", "pytorch/train.py" if source else "train.py"]
    assert {*left_out} == {"source_dir", *named}
    assert "secret" not in f"{fields}{left_out}"


def test_a_script_without_a_source_directory_brings_the_directory_that_it_is_in() -> None:
    job = import_script("PyTorch('code/train.py', framework_version='2.8', dependencies=['lib'])", name="a")
    assert (job.fields["source"], job.fields["install"], job.fields["command"]) == (
        "code",
        "none",
        ["python", "train.py"],
    )
    assert {each.field: each.replaced for each in job.left_out} == {"entry_point": True, "dependencies": False}


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
        | st.sampled_from(["true", "null", "1.10", "8716e25", '"a"', "[1, 2]", "Infinity", "-0"]),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
        max_leaves=4,
    )
)  # fmt: skip
@pytest.mark.parametrize("kind", ["PyTorch", "ModelTrainer"])
def test_a_script_gets_the_arguments_that_the_sdk_gives_it(kind: str, value: Any) -> None:
    # Version 2 sends each value as JSON, version 3 texts as they are.
    as_json = kind == "ModelTrainer"
    sent = value if as_json and isinstance(value, str) else json.dumps(value)
    fields, left_out = (of if as_json else estimator)(hyperparameters=repr({"name": value}))
    assert "hyperparameters.name" not in left_out
    imported = fields["hyperparameters"]["name"]
    written = imported if isinstance(imported, str) else json.dumps(imported)
    expected = command_arguments({"name": sent}, as_json=as_json)
    assert command_arguments({"name": written}, as_json=as_json) == expected


def test_words_of_the_container_run_in_the_place_of_a_script() -> None:
    words = "container_entry_point=['python', 'b.py'], container_arguments=['--x', 1]"
    job = import_script(f"Estimator('a/b:1', entry_point='a.py', source_dir='s', {words})", name="a")
    assert (job.fields["command"], job.fields["arguments"]) == (["python", "b.py", "--x", "1"], "none")
    assert {each.field for each in job.left_out} == {"entry_point"}
    alone = import_script("Estimator('a/b:1', container_arguments=['--x'])", name="a")
    assert "command" not in alone.fields
    assert {each.field for each in alone.left_out} == {"container_arguments"}


def test_an_estimator_of_an_image_gets_what_python_prints() -> None:
    values = "{'flag': True, 'layers': [1, 2], 'none': None, 'lr': 0.1, 'text': 'true'}"
    fields = import_script(f"Estimator(image_uri='a/b:1', hyperparameters={values})", name="a").fields
    assert fields["hyperparameters"] == {"flag": "True", "layers": "[1, 2]", "none": "None", "lr": 0.1, "text": "true"}


@pytest.mark.parametrize("given", ["None", "{}", "dict()"])
def test_no_hyperparameters_are_none(given: str) -> None:
    fields, left_out = of(hyperparameters=given)
    assert "hyperparameters" not in fields
    assert left_out == {}


def test_a_capacity_that_is_computed_is_named_with_its_wait() -> None:
    fields, left_out = estimator(framework_version='"2.8"', use_spot_instances="args.spot", max_wait="7200")
    assert (fields["capacity"], fields.get("max_wait")) == ("on-demand", None)
    assert {*left_out} == {"use_spot_instances", "max_wait"}
    assert "is computed" in left_out["max_wait"]


def test_hyperparameters_of_a_file_are_named_with_the_file() -> None:
    fields, left_out = of(hyperparameters='"hp.json"')
    assert "hyperparameters" not in fields
    assert "hp.json" in left_out["hyperparameters"]


def test_what_is_chained_set_and_started_later_counts() -> None:
    job = import_script(
        """
trainer = ModelTrainer(
    source_code=SourceCode(source_dir="src", entry_script="train.py"),
    input_data_config=[InputData(channel_name="train", data_source="s3://a/old/"),
                       InputData(channel_name="test", data_source="s3://a/test/")],
).with_checkpoint_config().with_metric_definitions([MetricDefinition(name="loss", regex="loss=([0-9.]+)")])
trainer.with_remote_debug_config(RemoteDebugConfig(enable_remote_debug=True))
trainer = trainer.with_retry_strategy(RetryStrategy(maximum_retry_attempts=2))
trainer.compute.enable_managed_spot_training = True
trainer.hyperparameters["lr"] = 0.1
trainer.train(input_data_config=[InputData(channel_name="train", data_source="s3://a/new/")], wait=False)
""",
        name="a",
    )
    expected = {"checkpoints": True, "metrics": {"loss": "loss=([0-9.]+)"}, "debug": True, "capacity": "spot"}
    assert job.fields | expected == job.fields
    channels = {each["name"]: each["uri"] for each in job.fields["channels"]}
    assert channels == {"train": "s3://a/new/", "test": "s3://a/test/"}
    assert {each.field for each in job.left_out} == {
        "checkpoint_config", "retry_strategy", "hyperparameters['lr']", "fit.wait",
    }  # fmt: skip


def test_what_is_set_later_stands_in_the_place_of_what_was_given() -> None:
    job = import_script(
        """
trainer = ModelTrainer(
    compute=Compute(instance_type="ml.g5.xlarge", volume_size_in_gb=100, keep_alive_period_in_seconds=60),
    checkpoint_config=CheckpointConfig(local_path="/tmp/old"), training_image=image(),
    input_data_config=[InputData(channel_name="train", data_source="s3://theirs/old/")],
)
trainer.compute = Compute(instance_type="ml.g6.xlarge")
trainer.with_checkpoint_config(CheckpointConfig(s3_uri=uri))
trainer.training_image = "a/b:1"
trainer.train([InputData(channel_name="train", data_source=newest())])
""",
        name="a",
    )
    assert (job.fields["instance_type"], job.fields["volume_size_gb"], job.fields["image"]) == (
        "ml.g6.xlarge",
        30,
        "a/b:1",
    )
    assert not {"keep_alive", "channels"} & {*job.fields}
    assert {each.field for each in job.left_out} == {"checkpoint_config", "input_data_config.train"}


def test_a_hyperparameter_that_is_computed_later_has_not_the_value_that_it_had_before() -> None:
    script = "e = Estimator('a/b:1', hyperparameters={'a': 1, 'b': 2})\ne.set_hyperparameters(b=f())"
    job = import_script(script, name="a")
    assert job.fields["hyperparameters"] == {"a": 1}
    assert [each.field for each in job.left_out] == ["hyperparameters.b"]


def test_hyperparameters_that_are_set_later_count() -> None:
    job = import_script(
        "e = PyTorch(entry_point='a.py', source_dir='s', hyperparameters={'a': 1, 'b': 1}, framework_version='2.8')\n"
        "e.set_hyperparameters(b=2, c=f())\nimputer.fit(values)\ne.fit({'train': 's3://a/x/'})",
        name="a",
    )
    assert job.fields["hyperparameters"] == {"a": 1, "b": 2}
    assert [each["name"] for each in job.fields["channels"]] == ["train"]
    assert [each.field for each in job.left_out] == ["hyperparameters.c"]


def test_what_is_set_in_some_cases_or_after_the_start_is_named_and_not_taken() -> None:
    job = import_script(
        """
def made(lr):
    return PyTorch(entry_point="a.py", source_dir="s", framework_version="2.8", max_run=60, hyperparameters={"lr": 1})

e = made(0.1)
other = e
other.volume_size = 50
if debugs:
    e.max_run = 120
    e.set_hyperparameters(steps=10)
setattr(e, "instance_count", 2)
e.keep_alive_period_in_seconds: int = 60
e.max_wait, e.environment = 7200, {"A": "1"}
if __name__ == "__main__":
    e.instance_type = "ml.g5.xlarge"
    other.fit({"train": "s3://theirs/data/"})
    e.instance_type = "ml.p4d.24xlarge"
    e.set_hyperparameters(lr=2)
    e.fit({"train": "s3://theirs/more/"})
""",
        name="a",
    )
    expected = {"max_run": 60, "hyperparameters": {"lr": 1}, "instance_type": "ml.g5.xlarge", "volume_size_gb": 50}
    expected |= {"keep_alive": 60}
    assert job.fields | expected == job.fields
    assert {each.field: each.why for each in job.left_out} == {
        "max_run": "the script sets it in some cases alone, in line 9",
        "hyperparameters.steps": "the script sets it in some cases alone, in line 10",
        "instance_count": "the script sets it by setattr, in line 11",
        "max_wait": "the script sets it later, in line 13",
        "environment": "the script sets it later, in line 13",
        "instance_type": "the script sets it after it has started the job, in line 17",
        "hyperparameters.lr": "the script sets it after it has started the job, in line 18",
        "fit (line 19)": "it starts another job, and one job file is one job",
    }


def test_what_a_loop_around_all_of_it_sets_is_set_for_each_job() -> None:
    job = import_script("for t in types:\n  e = Estimator('a/b:1')\n  e.max_run = 60\n  e.fit()", name="a")
    assert job.fields["max_run"] == 60


def test_positional_arguments_that_the_versions_of_the_sdk_do_not_share_are_to_be_named() -> None:
    found = left_out("Estimator('a/b:1', 'role', 1, 'ml.m5.large', 50)")
    assert found["argument 5"] == "its name depends on the version of the SDK: write it with its name"


def test_what_a_model_trainer_asks_for_by_itself_is_in_the_job_file() -> None:
    asked = ("instance_type", "instance_count", "volume_size_gb", "max_run")
    fields, _ = of()
    assert [fields[name] for name in asked] == ["ml.m5.xlarge", 1, 30, 3_600]
    fields, _ = of(compute='Compute(instance_type="ml.g5.xlarge")', stopping_condition="StoppingCondition()")
    assert [fields.get(name) for name in asked] == ["ml.g5.xlarge", 1, 30, None]
    fields, _ = of(compute="chosen()", stopping_condition="StoppingCondition(max_runtime_in_seconds=limit)")
    assert not {*asked} & {*fields}
    fields, _ = of(stopping_condition="StoppingCondition(max_runtime_in_seconds=None)")
    assert fields["max_run"] == 3_600
    spread = import_script("ModelTrainer(source_code=SourceCode(command='a'), **settings())", name="a")
    assert not {*asked} & {*spread.fields}
    preferred = "Compute(instance_preferences=[InstancePreference(instance_type='ml.g5.xlarge')])"
    fields, left_out = of(compute=preferred)
    assert fields["instance_types"] == ["ml.g5.xlarge"]
    assert "instance_type" not in fields
    assert left_out == {}


@pytest.mark.parametrize(
    ("script", "field"),
    [
        ("for lr in rates:\n    PyTorch(entry_point='a.py', source_dir='s')", "PyTorch (line 2)"),
        ("jobs = [PyTorch(entry_point='a.py', source_dir='s') for _ in range(3)]", "PyTorch (line 1)"),
        ("e = PyTorch(entry_point='a.py', source_dir='s')\nwhile True:\n    e.fit('s3://a/x/')", "fit (line 3)"),
        ("e = PyTorch(entry_point='a.py', source_dir='s')\ne.fit('s3://a/x/')\ne.fit('s3://a/y/')", "fit (line 3)"),
        ("e = PyTorch(entry_point='a.py')\nHyperparameterTuner(e, 'loss').fit('s3://a/x/')",
         "HyperparameterTuner (line 2)"),
        ("TrainingStep(estimator=PyTorch(entry_point='a.py'))", "TrainingStep (line 1)"),
    ],
)  # fmt: skip
def test_several_jobs_of_one_script_are_named(script: str, field: str) -> None:
    assert field in left_out(script)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("a = PyTorch(x=1)\nb = Estimator(y=2)", "PyTorch in line 1, Estimator in line 2"),
        ("from sagemaker import KMeans\nKMeans(k=10)", "write algorithm: kmeans"),
        ("import sagemaker\nsagemaker.PCA(role=r)", "write algorithm: pca"),
        ("from sagemaker.train import ModelTrainer\nModelTrainer.from_recipe(x)", "a recipe"),
        ("from sagemaker.pytorch import PyTorch\nPyTorch.attach('job')", "spotkeep import NAME"),
        ("from sagemaker.train import SFTTrainer\nSFTTrainer(model='m')", "SFTTrainer in line 2"),
        ("from spotkeep_client.sagemaker import SpotTrainer as ModelTrainer\nModelTrainer()", "launches runs itself"),
        ("from sklearn.cluster import KMeans\nKMeans(3)", "no ModelTrainer, no estimator"),
    ],
)
def test_a_script_with_another_number_or_kind_of_trainers_is_refused_by_their_lines(script: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        import_script(script, name="a")


def test_a_script_of_boto3_is_read_as_its_request() -> None:
    script = """
request = {
    "TrainingJobName": f"job-{time.time()}",
    "RoleArn": role(),
    "AlgorithmSpecification": {"TrainingImage": "a/b:1", "ContainerEntrypoint": ["python", "train.py"]},
    "ResourceConfig": {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 50},
    "InputDataConfig": [{"ChannelName": "train", "DataSource": {"S3DataSource": {
        "S3DataType": "S3Prefix", "S3Uri": bucket}}}],
}
request["HyperParameters"] = {"lr": "0.1", "now": str(time.time())}
boto3.client("sagemaker").create_training_job(**request, EnableManagedSpotTraining=True, **more)
"""
    job = import_script(script, name="a")
    assert job.fields["command"] == ["python", "train.py"]
    assert (job.fields["capacity"], job.fields["hyperparameters"], job.fields["name"]) == ("spot", {"lr": "0.1"}, "a")
    assert {each.field for each in job.left_out} == {
        "TrainingJobName", "RoleArn", "HyperParameters.now", "**more", "InputDataConfig.train",
        "InputDataConfig.0.DataSource.S3DataSource.S3Uri",
    }  # fmt: skip


def test_a_script_of_sagemaker_core_is_read_as_its_request() -> None:
    script = """
TrainingJob.create(training_job_name="digits", role_arn=role, session=session,
    algorithm_specification=AlgorithmSpecification(training_image="a/b:1", training_input_mode="FastFile"),
    resource_config=ResourceConfig(instance_type="ml.m5.large", instance_count=1, volume_size_in_gb=3),
    mlflow_config=MlflowConfig(mlflow_resource_arn="arn:aws:sagemaker:us-east-1:1:mlflow-tracking-server/a"),
    hyper_parameters={"my_lr": "1"}, stopping_condition=StoppingCondition(max_runtime_in_seconds=60),
    input_data_config=[Channel(channel_name="a", data_source=DataSource(s3_data_source=S3DataSource(
        s3_data_type="S3Prefix", s3_uri="s3://theirs/data/")))])
"""
    job = import_script(script, name="a")
    assert job.fields | {"name": "digits", "volume_size_gb": 3, "hyperparameters": {"my_lr": "1"}} == job.fields
    assert job.fields["mlflow"] == {"tracking_uri": "arn:aws:sagemaker:us-east-1:1:mlflow-tracking-server/a"}
    assert job.fields["channels"] == [{"name": "a", "uri": "s3://theirs/data/", "input_mode": "FastFile"}]
    assert {each.field for each in job.left_out} == {"RoleArn", "Session"}


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
    [
        "{} + {}",
        "f'{{{}}}{{{}}}'",
        pytest.param("{{'x': {}, 'y': {}}}", marks=pytest.mark.long),
        pytest.param("Compute(a={}, b={})", marks=pytest.mark.long),
    ],
)
@pytest.mark.timeout(60)
def test_names_that_double_each_other_take_no_time(doubled: str) -> None:
    names = ["a0 = 'x'", *(f"a{n + 1} = {doubled.format(f'a{n}', f'a{n}')}" for n in range(64))]
    script = "\n".join([*names, "Estimator(compute=a64, hyperparameters={'x': a64}, max_run=60)"])
    job = import_script(script, name="a")
    assert job.fields["max_run"] == 60
    assert {each.field for each in job.left_out} == {"compute", "hyperparameters"}


@pytest.mark.parametrize(
    "script",
    [
        "e = PyTorch()\n" + f"e{'.fit()' * 400}\n" * 20,
        "e = PyTorch()\n" + "e.a = 1\n" * 2_000,
        pytest.param(
            f"{' = '.join(f'e{n}' for n in range(2_000))} = PyTorch()\n" + "e1.x = e2.y[0] = 1\n" * 2_000,
            marks=pytest.mark.long,
        ),
        f"x = [f({'1, ' * 20_000})]\nEstimator(tags=[{'x, ' * 5_000}])",
        f"{'[' * 90}PyTorch() for a in b{'] for a in b' * 89}]",
        "PyTorch()\n" * 5_000,
    ],
    ids=["chains", "attributes", "names", "an expression that names lead to", "loops", "trainers"],
)
@pytest.mark.timeout(60)
def test_a_script_as_large_as_any_takes_seconds(script: str) -> None:
    try:
        import_script(script, name="a")
    except ValueError as error:
        assert len(str(error)) < 1_000  # noqa: PT017 - one of them has several trainers


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
        st.sampled_from(["a", "1", "-1", "'x'", "None", "1.5", "Compute(a=b)", "Compute(a=1)", "f'{a}'"]),
        lambda inner: (
            st.builds("({}, {})".format, inner, inner)
            | st.builds("({} + {})".format, inner, inner)
            | st.builds("{{{}: {}}}".format, inner, inner)
            | st.builds("({} * {})".format, inner, inner)
        ),
    ),
    st.sampled_from(
        ["hyperparameters", "tags", "metric_definitions", "inputs", "environment", "max_run", "compute", "source_code",
         "max_wait", "git_config", "distribution", "container_arguments", "image_uri", "framework_version",
         "source_dir", "entry_point", "checkpoint_local_path", "input_mode", "instance_type", "instance_count",
         "model_dir"]
    ),
    st.sampled_from(["Estimator", "TensorFlow", "HuggingFace", "ModelTrainer"]),
)  # fmt: skip
def test_whatever_a_script_holds_it_is_imported_or_named(value: str, argument: str, kind: str) -> None:
    job = import_script(f"a = 2\n{kind}(use_spot_instances=True, {argument}={value})", name="a")
    assert job.fields["name"] == "a"
    job.without_refused_entries().as_job_file()


@given(
    st.recursive(
        st.sampled_from(["a", "1", "'x'", "None", "[]", "{}", "f()", "Compute(a=1)"]),
        lambda inner: st.builds("[{}, {}]".format, inner, inner) | st.builds("{{'x': {}}}".format, inner),
        max_leaves=4,
    ),
    st.sampled_from(
        ["ResourceConfig", "InputDataConfig", "Tags", "HyperParameters", "Environment", "StoppingCondition",
         "AlgorithmSpecification", "CheckpointConfig", "MlflowConfig", "TrainingJobName"]
    ),
)  # fmt: skip
def test_whatever_a_request_in_a_script_holds_it_is_imported_or_refused(value: str, member: str) -> None:
    script = f"client.create_training_job(AlgorithmSpecification={{}}, ResourceConfig={{}}, **{{{member!r}: {value}}})"
    try:
        job = import_script(script, name="a")
    except ValueError as error:
        assert "create_training_job in line 1" in str(error)  # noqa: PT017 - not each example is refused
    else:
        job.without_refused_entries().as_job_file()
