"""Each argument that the SageMaker SDK's trainers take leaves a trace: in the job document, or by its name.

The names are those of the signatures; of version 3 those of the installed SDK.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from spotkeep_cli.importing.sdk_script import import_script

VERSIONS_1_AND_2: Mapping[str, str] = {
    "Estimator": """
        image_uri role instance_count instance_type keep_alive_period_in_seconds volume_size volume_kms_key max_run
        input_mode output_path output_kms_key base_job_name sagemaker_session hyperparameters tags subnets
        security_group_ids model_uri model_channel_name metric_definitions encrypt_inter_container_traffic
        use_spot_instances max_wait checkpoint_s3_uri checkpoint_local_path enable_network_isolation rules
        debugger_hook_config tensorboard_output_config enable_sagemaker_metrics profiler_config disable_profiler
        environment max_retry_attempts source_dir git_config container_log_level code_location entry_point dependencies
        instance_groups training_repository_access_mode training_repository_credentials_provider_arn
        container_entry_point container_arguments disable_output_compression enable_infra_check enable_remote_debug
        enable_session_tag_chaining training_plan instance_placement_config
        image_name train_instance_count train_instance_type train_volume_size train_volume_kms_key train_max_run
        train_use_spot_instances train_max_wait enable_cloudwatch_metrics""",
    "PyTorch": "entry_point framework_version py_version source_dir hyperparameters image_uri distribution "
    "compiler_config training_recipe recipe_overrides",
    "TensorFlow": "py_version framework_version model_dir image_uri distribution compiler_config "
    "training_steps evaluation_steps checkpoint_path requirements_file script_mode distributions",
    "HuggingFace": "py_version entry_point transformers_version tensorflow_version pytorch_version source_dir "
    "hyperparameters image_uri distribution compiler_config",
    "MXNet": "entry_point framework_version py_version source_dir hyperparameters image_uri distribution distributions",
    "SKLearn": "entry_point framework_version py_version source_dir hyperparameters image_uri image_uri_region",
    "XGBoost": "entry_point framework_version source_dir hyperparameters py_version image_uri image_uri_region",
    "Chainer": "entry_point use_mpi num_processes process_slots_per_host additional_mpi_options source_dir "
    "hyperparameters framework_version py_version image_uri",
    "RLEstimator": "entry_point toolkit toolkit_version framework source_dir hyperparameters image_uri "
    "metric_definitions",
}
"""Arguments by class, of sagemaker 2.257.1 and 1.72.1; those of `Estimator` are the others', too."""
OF_FIT = "inputs wait logs job_name experiment_config run_tensorboard_locally"
OF_INPUT = (
    "s3_data distribution compression content_type record_wrapping s3_data_type instance_groups input_mode "
    "attribute_names target_attribute_name shuffle_config hub_access_config model_access_config"
)
VALUES = ("'sample'", "True", "7", "chosen()")
CHANNEL = "s3://theirs/data/"


@functools.cache
def read(script: str) -> tuple[str, tuple[str, ...]]:
    job = import_script(script, name="a")
    return repr(sorted(job.fields.items())), tuple(job.not_imported())


def untraced(without: str, scripts: Mapping[str, str]) -> list[str]:
    """Return which of some scripts give the same job, and the same lines, as the one without their argument."""
    return [name for name, script in scripts.items() if read(script) == read(without)]


def estimator(kind: str, **arguments: str) -> str:
    given = ", ".join(f"{name}={value}" for name, value in arguments.items())
    return f"{kind}({given}).fit({CHANNEL!r})"


@pytest.mark.parametrize("kind", VERSIONS_1_AND_2)
def test_no_argument_of_an_estimator_is_left_out_silently(kind: str) -> None:
    needed = {"entry_point": "'train.py'", "source_dir": "'src'", "instance_count": "3", "volume_size": "2"}
    scripts = {
        f"{name}={value}": estimator(kind, **needed | {name: value})
        for name in VERSIONS_1_AND_2[kind].split()
        for value in VALUES
    }
    assert untraced(estimator(kind, **needed), scripts) == []


def test_no_argument_of_fit_and_of_its_inputs_is_left_out_silently() -> None:
    call = "PyTorch(entry_point='train.py', source_dir='src', framework_version='2.8').fit({})"
    scripts = {f"{name}={value}": call.format(f"{name}={value}") for name in OF_FIT.split() for value in VALUES}
    assert untraced(call.format(""), scripts) == []
    call = "PyTorch(entry_point='train.py').fit({{'train': TrainingInput({})}})"
    given = {"s3_data": f"'{CHANNEL}'"}
    scripts = {
        f"{name}={value}": call.format(", ".join(f"{key}={each}" for key, each in (given | {name: value}).items()))
        for name in OF_INPUT.split()
        for value in VALUES
    }
    assert untraced(call.format(f"s3_data='{CHANNEL}'"), scripts) == []


def arguments_of(kind: Any) -> Iterator[tuple[str, Any]]:
    """Yield the arguments of a pydantic class, each with the class of its value where that has arguments, too."""
    import typing

    from pydantic import BaseModel

    for name, field in kind.model_fields.items():
        inside = [field.annotation, *typing.get_args(field.annotation)]
        yield name, next((each for each in inside if isinstance(each, type) and issubclass(each, BaseModel)), None)


# Importing the SDK takes seconds, and warns.
@pytest.mark.long
@pytest.mark.filterwarnings("default")
def test_no_argument_of_a_model_trainer_is_left_out_silently() -> None:
    from sagemaker.train import ModelTrainer, configs, distributed

    code = "SourceCode(source_dir='src', entry_script='train.py')"
    data = f"[InputData(channel_name='train', data_source={CHANNEL!r})]"
    given = {"source_code": code, "input_data_config": data, "compute": "Compute()"}

    def script(**arguments: str) -> str:
        return f"ModelTrainer({', '.join(f'{name}={value}' for name, value in (given | arguments).items())})"

    scripts = {f"{name}={value}": script(**{name: value}) for name, _ in arguments_of(ModelTrainer) for value in VALUES}
    assert untraced(script(), scripts) == []
    classes = {
        "source_code": configs.SourceCode, "compute": configs.Compute, "networking": configs.Networking,
        "stopping_condition": configs.StoppingCondition, "checkpoint_config": configs.CheckpointConfig,
        "output_data_config": configs.OutputDataConfig, "training_image_config": configs.TrainingImageConfig,
        "distributed": distributed.Torchrun,
    }  # fmt: skip
    own = {"source_code": code[:-1] + ", ", "distributed": "Torchrun("}
    for path, kind in classes.items():
        begun = own.get(path, f"{kind.__name__}(")
        scripts = {
            f"{path}.{name}={value}": script(**{path: f"{begun}{name}={value})"})
            for name, _ in arguments_of(kind)
            for value in VALUES
            if f"{name}=" not in begun
        }
        # What has no field at all is named as a whole.
        whole = path in ("networking", "checkpoint_config", "output_data_config", "training_image_config")
        assert untraced(script() if whole else script(**{path: f"{begun})"}), scripts) == [], path
    places = (configs.S3DataSource, configs.Channel)
    channel = f"Channel(channel_name='train', data_source=S3DataSource(s3_uri={CHANNEL!r}{{}}){{}})"
    scripts = {
        f"{place}.{name}={value}": script(
            input_data_config=f"[{channel.format(*(f', {name}={value}' * (each is place) for each in places))}]"
        )
        for place in places
        for name, _ in arguments_of(place)
        for value in VALUES
        if name not in ("channel_name", "data_source", "s3_uri")
    }
    assert untraced(script(input_data_config=f"[{channel.format('', '')}]"), scripts) == []


@pytest.mark.long
@pytest.mark.filterwarnings("default")
def test_what_is_set_later_by_any_method_of_a_model_trainer_leaves_a_trace() -> None:
    from sagemaker.train import ModelTrainer

    begun = "trainer = ModelTrainer(source_code=SourceCode(source_dir='src', entry_script='train.py'))"
    methods = [name for name in dir(ModelTrainer) if name.startswith("with_")]
    assert len(methods) >= 7
    calls = {
        f"{name}({value})": f"{begun}\n{{}}trainer.{name}({value})".format(before)
        for name in methods
        for value in ("", "Config(a=1)")
        for before in ("", "trainer = ")
    }
    chained = {f"chained {name}": f"{begun}.{name}(Config(a=1))" for name in methods}
    assert untraced(begun, calls | chained) == []
