"""The environment a training command sees is the one that SageMaker's toolkit gives, and a little more."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from spotkeep.runner.environment import Hardware, command_arguments, find_hardware, job_environment
from spotkeep.runner.layout import JobConfiguration, JobLayout

DOCUMENTED = Path(__file__).parents[3] / "docs" / "environment-variables.md"


@pytest.fixture
def environment():
    def build(*, configuration=None, **inherited):
        return job_environment(
            inherited=inherited,
            layout=JobLayout(base=Path("/opt/ml")),
            configuration=replace(
                JobConfiguration(
                    hyperparameters={"learning-rate": 0.1, "model": "resnet", "deep": {"a": [1]}},
                    channels={"train": {"TrainingInputMode": "File"}, "my-data": {}},
                    resources={"current_instance_type": "ml.m5.large", "network_interface_name": "eth1"},
                    checkpoint_directory=Path("/opt/ml/checkpoints"),
                    hosts=("algo-1", "algo-2"),
                    current_host="algo-2",
                ),
                **(configuration or {}),
            ),
            hardware=Hardware(cpus=4, gpus=1, neurons=0),
            import_root="/opt/ml/input/data/spotkeep/spotkeep.pyz",
            notice_file=Path("/scratch/notice.json"),
        )

    return build


def test_the_toolkits_variables_have_the_toolkits_forms(environment):
    found = environment()
    assert found["SM_MODEL_DIR"] == "/opt/ml/model"
    assert found["SM_OUTPUT_DATA_DIR"] == "/opt/ml/output/data"
    assert json.loads(found["SM_CHANNELS"]) == ["train", "my-data"]
    assert found["SM_CHANNEL_TRAIN"] == "/opt/ml/input/data/train"
    assert found["SM_CHANNEL_MY_DATA"] == "/opt/ml/input/data/my-data"
    assert json.loads(found["SM_HPS"]) == {"learning-rate": 0.1, "model": "resnet", "deep": {"a": [1]}}
    assert found["SM_HP_MODEL"] == "resnet"
    assert found["SM_HP_LEARNING_RATE"] == "0.1"
    assert json.loads(found["SM_HP_DEEP"]) == {"a": [1]}
    assert json.loads(found["SM_USER_ARGS"]) == ["--deep", "a=[1]", "--learning-rate", "0.1", "--model", "resnet"]
    assert json.loads(found["SM_HOSTS"]) == ["algo-1", "algo-2"]
    assert (found["SM_CURRENT_HOST"], found["SM_MASTER"]) == ("algo-2", "algo-1")
    assert (found["SM_HOST_COUNT"], found["SM_CURRENT_HOST_RANK"]) == ("2", "1")
    assert (found["SM_MASTER_ADDR"], found["SM_MASTER_PORT"]) == ("algo-1", "7777")
    assert (found["SM_NUM_CPUS"], found["SM_NUM_GPUS"], found["SM_NUM_NEURONS"]) == ("4", "1", "0")
    assert found["SM_CURRENT_INSTANCE_TYPE"] == "ml.m5.large"
    assert found["SM_NETWORK_INTERFACE_NAME"] == "eth1"


@pytest.mark.parametrize(
    ("hyperparameters", "arguments"),
    [
        ({}, []),
        ({"lr": 0.1, "epochs": 30}, ["--epochs", "30", "--lr", "0.1"]),
        ({"lr": 0.00001}, ["--lr", "1e-05"]),
        ({"b": 64}, ["-b", "64"]),
        ({"amp": True, "pin": False}, ["--amp", "True", "--pin", "False"]),
        ({"sizes": [64, 32], "names": ["a"]}, ["--names", "['a']", "--sizes", "[64, 32]"]),
        ({"optimizer": {"name": "adam", "eps": 0.1}}, ["--optimizer", "eps=0.1,name=adam"]),
        ({"seed": None}, ["--seed", ""]),
        ({"note": "two words; $HOME"}, ["--note", "two words; $HOME"]),
        ({"sagemaker_program": "train.py", "_tuning_objective_metric": "loss", "lr": 1}, ["--lr", "1"]),
    ],
)
def test_hyperparameters_are_arguments_as_the_toolkit_passes_them(hyperparameters, arguments):
    """The expected values are those of `to_cmd_args` in sagemaker_training/mapping.py."""
    assert command_arguments(hyperparameters) == arguments


def test_the_library_comes_first_on_the_path_and_nothing_inherited_is_lost(environment):
    found = environment(PYTHONPATH="/mine", HOME="/root", TRAINING_JOB_NAME="digits-1")
    assert found["PYTHONPATH"] == "/opt/ml/input/data/spotkeep/spotkeep.pyz:/mine"
    assert (found["HOME"], found["TRAINING_JOB_NAME"]) == ("/root", "digits-1")


def test_what_the_user_says_about_spotkeep_stands(environment):
    found = environment(SPOTKEEP_EVENTS="off", SPOTKEEP_CHECKPOINT_DIR="/mnt/fast", PYTHONUNBUFFERED="")
    assert (found["SPOTKEEP_EVENTS"], found["SPOTKEEP_CHECKPOINT_DIR"]) == ("off", "/mnt/fast")
    assert found["PYTHONUNBUFFERED"] == ""
    assert environment()["SPOTKEEP_EVENTS"] == "stdout"
    assert environment()["SPOTKEEP_CHECKPOINT_DIR"] == "/opt/ml/checkpoints"


@pytest.mark.parametrize(("notice", "seconds"), [({}, 114), ("20", 19), ("2.5", 2), ("0", 1), ("soon", 114)])
def test_torchrun_gives_its_workers_as_long_as_the_notice_unless_the_user_says_otherwise(environment, notice, seconds):
    given = {"SPOTKEEP_NOTICE_SECONDS": notice} if notice else {}
    assert environment(**given)["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == str(seconds)
    assert environment(**given, TORCH_ELASTIC_SHUTDOWN_TIMEOUT="7")["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == "7"


def test_ranks_of_several_hosts_talk_through_the_interface_that_the_platform_names(environment):
    found = environment()
    assert (found["GLOO_SOCKET_IFNAME"], found["NCCL_SOCKET_IFNAME"]) == ("eth1", "eth1")


def test_how_ranks_find_each_other_is_the_users_where_the_user_says_it(environment):
    own = {"GLOO_SOCKET_IFNAME": "ib0", "NCCL_SOCKET_IFNAME": "^lo", "SM_MASTER_ADDR": "10.0.0.9"}
    own["SM_MASTER_PORT"] = "29500"
    assert own.items() <= environment(**own).items()


@pytest.mark.parametrize(
    ("hosts", "resources"),
    [(("algo-1",), {"network_interface_name": "eth1"}), (("algo-1", "algo-2"), {})],
    ids=["one host", "no interface is named"],
)
def test_else_ranks_choose_the_interface_themselves(environment, hosts, resources):
    found = environment(configuration={"hosts": hosts, "current_host": "algo-1", "resources": resources})
    assert not {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"} & found.keys()
    assert (found["SM_MASTER_ADDR"], found["SM_CURRENT_HOST_RANK"]) == ("algo-1", "0")


def test_tensorboard_has_a_folder_among_the_checkpoints_unless_the_user_names_another(environment):
    assert environment()["TENSORBOARD_LOGGING_DIR"] == "/opt/ml/checkpoints/tensorboard"
    assert environment(TENSORBOARD_LOGGING_DIR="/mnt/events")["TENSORBOARD_LOGGING_DIR"] == "/mnt/events"


def test_accelerators_are_counted_from_their_devices(tmp_path):
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "neuron0", "null"):
        (tmp_path / name).touch()
    found = find_hardware(tmp_path)
    assert (found.gpus, found.neurons) == (2, 1)
    assert found.cpus >= 1
    assert find_hardware(tmp_path / "none").gpus == 0


def test_every_variable_that_is_set_or_read_is_documented(environment):
    sources = Path(__file__).parents[3] / "training" / "spotkeep"
    variable = re.compile(r"SPOTKEEP_[A-Z0-9_]+[A-Z0-9]")
    named = {name for path in sources.rglob("*.py") for name in variable.findall(path.read_text())}
    families = ("SM_HP_", "SM_CHANNEL_")
    named |= {name for name in environment() if name.startswith("SM_") and not name.startswith(families)}
    page = DOCUMENTED.read_text()
    assert {name for name in named if f"`{name}`" not in page} == set()
