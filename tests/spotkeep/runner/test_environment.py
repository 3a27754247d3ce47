"""The environment a training command sees is the one that SageMaker's toolkit gives, and a little more."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.runner.environment import Hardware, command_arguments, find_hardware, job_environment
from spotkeep.runner.layout import JobConfiguration, JobLayout, read_configuration

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
    assert json.loads(found["SM_CHANNELS"]) == ["my-data", "train"]
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


HYPERPARAMETERS = {
    "learning-rate": "0.1", "model": "resnet", "deep": '{"b": {"y": [1, null], "x": true}, "a": "ü"}',
    "lr.decay": "1e-05", "batch size": "64", "null": "null", "flag": "true", "off": "false", "python": "True",
    "empty": "", "list": '["b", "a"]', "text": '"quoted"', "note": "zwei Wörter; $HOME", "größe": "1", "b": "2",
    "Mixed_Case": "x", "nan": "NaN", "sagemaker_program": '"train.py"', "sagemaker_container_log_level": "10",
    "sagemaker_mpi_enabled": "true", "_tuning_objective_metric": "loss", "default_user_module_name": "m",
}  # fmt: skip
RESOURCES = {
    "current_host": "algo-2", "hosts": ["algo-1", "algo-2"], "current_instance_type": "ml.m5.large",
    "current_group_name": "g", "network_interface_name": "eth1",
    "instance_groups": [
        {"instance_group_name": "g", "instance_type": "ml.m5.large", "hosts": ["algo-1", "algo-2"]}
    ],
}  # fmt: skip
HPS = (
    '{"Mixed_Case":"x","b":2,"batch size":64,"deep":{"a":"\\u00fc","b":{"x":true,"y":[1,null]}},"empty":"","flag":true,'
    '"gr\\u00f6\\u00dfe":1,"learning-rate":0.1,"list":["b","a"],"lr.decay":1e-05,"model":"resnet","nan":NaN,'
    '"note":"zwei W\\u00f6rter; $HOME","null":null,"off":false,"python":"True","text":"quoted"}'
)
RESOURCE_CONFIG = (
    '{"current_group_name":"g","current_host":"algo-2","current_instance_type":"ml.m5.large","hosts":["algo-1","algo-2"],'
    '"instance_groups":[{"hosts":["algo-1","algo-2"],"instance_group_name":"g","instance_type":"ml.m5.large"}],'
    '"network_interface_name":"eth1"}'
)
OF_THE_TOOLKIT = {
    "SM_CHANNELS": '["my-data","train"]',
    "SM_CHANNEL_MY-DATA": "/opt/ml/input/data/my-data",
    "SM_CHANNEL_TRAIN": "/opt/ml/input/data/train",
    "SM_CURRENT_HOST": "algo-2",
    "SM_CURRENT_INSTANCE_GROUP": "g",
    "SM_CURRENT_INSTANCE_GROUP_HOSTS": '["algo-1","algo-2"]',
    "SM_CURRENT_INSTANCE_TYPE": "ml.m5.large",
    "SM_FRAMEWORK_PARAMS": '{"sagemaker_mpi_enabled":true}',
    "SM_HOSTS": '["algo-1","algo-2"]',
    "SM_HPS": HPS,
    "SM_HP_B": "2",
    "SM_HP_BATCH SIZE": "64",
    "SM_HP_DEEP": '{"a":"\\u00fc","b":{"x":true,"y":[1,null]}}',
    "SM_HP_EMPTY": "",
    "SM_HP_FLAG": "true",
    "SM_HP_GRÖSSE": "1",
    "SM_HP_LEARNING-RATE": "0.1",
    "SM_HP_LIST": '["b","a"]',
    "SM_HP_LR.DECAY": "1e-05",
    "SM_HP_MIXED_CASE": "x",
    "SM_HP_MODEL": "resnet",
    "SM_HP_NAN": "NaN",
    "SM_HP_NOTE": "zwei Wörter; $HOME",
    "SM_HP_NULL": "",
    "SM_HP_OFF": "false",
    "SM_HP_PYTHON": "True",
    "SM_HP_TEXT": "quoted",
    "SM_INPUT_CONFIG_DIR": "/opt/ml/input/config",
    "SM_INPUT_DATA_CONFIG": '{"my-data":{},"train":{"TrainingInputMode":"File"}}',
    "SM_INPUT_DIR": "/opt/ml/input",
    "SM_INSTANCE_GROUPS": '["g"]',
    "SM_INSTANCE_GROUPS_DICT": (
        '{"g":{"hosts":["algo-1","algo-2"],"instance_group_name":"g","instance_type":"ml.m5.large"}}'
    ),
    "SM_IS_HETERO": "false",
    "SM_LOG_LEVEL": "10",
    "SM_MODEL_DIR": "/opt/ml/model",
    "SM_NETWORK_INTERFACE_NAME": "eth1",
    "SM_NUM_CPUS": "2",
    "SM_NUM_GPUS": "0",
    "SM_NUM_NEURONS": "0",
    "SM_OUTPUT_DATA_DIR": "/opt/ml/output/data",
    "SM_OUTPUT_DIR": "/opt/ml/output",
    "SM_RESOURCE_CONFIG": RESOURCE_CONFIG,
    "SM_USER_ARGS": (
        '["--Mixed_Case","x","-b","2","--batch size","64","--deep","a=\\u00fc,b={\'y\': [1, None], \'x\': True}",'
        '"--empty","","--flag","True","--gr\\u00f6\\u00dfe","1","--learning-rate","0.1","--list","[\'b\', \'a\']",'
        '"--lr.decay","1e-05","--model","resnet","--nan","nan","--note","zwei W\\u00f6rter; $HOME","--null","","--off",'
        '"False","--python","True","--text","quoted"]'
    ),
}
"""What `Environment().to_env_vars()` of the toolkit gave for these files: commit 33839372 of September 2025."""
OF_A_PROGRAM = {
    "SM_DISTRIBUTION_INSTANCE_GROUPS", "SM_FRAMEWORK_MODULE", "SM_MODULE_DIR", "SM_MODULE_NAME",
    "SM_OUTPUT_INTERMEDIATE_DIR", "SM_USER_ENTRY_POINT",
}  # fmt: skip
"""It gives these, too, and a job of ours has no such thing."""


@pytest.fixture
def of_files(tmp_path):
    """Give the environment that follows from the platform's files."""

    def build(hyperparameters, resources, channels):
        layout = JobLayout(base=tmp_path)
        layout.configuration.mkdir(parents=True, exist_ok=True)
        layout.hyperparameters.write_text(json.dumps(hyperparameters))
        (layout.configuration / "resourceconfig.json").write_text(json.dumps(resources))
        (layout.configuration / "inputdataconfig.json").write_text(json.dumps(channels))
        found = job_environment(
            inherited={}, layout=JobLayout(base=Path("/opt/ml")), configuration=read_configuration(layout),
            hardware=Hardware(cpus=2, gpus=0, neurons=0), import_root="/root", notice_file=Path("/notice"),
        )  # fmt: skip
        return {name: value for name, value in found.items() if name.startswith("SM_")}

    return build


def test_every_variable_of_the_toolkit_has_the_toolkits_name_and_value(of_files):
    found = of_files(HYPERPARAMETERS, RESOURCES, {"train": {"TrainingInputMode": "File"}, "my-data": {}})
    assert {name: found.get(name) for name in OF_THE_TOOLKIT} == OF_THE_TOOLKIT
    assert not OF_A_PROGRAM & set(found)
    assert set(found) - set(OF_THE_TOOLKIT) == {
        "SM_TRAINING_ENV", "SM_HOST_COUNT", "SM_CURRENT_HOST_RANK", "SM_MASTER", "SM_MASTER_ADDR", "SM_MASTER_PORT",
        "SM_INPUT_DATA_DIR", "SM_OUTPUT_FAILURE",
        "SM_CHANNEL_MY_DATA", "SM_HP_LEARNING_RATE", "SM_HP_LR_DECAY", "SM_HP_BATCH_SIZE", "SM_HP_GR_SSE",
    }  # fmt: skip


def test_all_is_in_one_variable_too(of_files):
    found = of_files(HYPERPARAMETERS, RESOURCES, {"train": {}})
    training = json.loads(found["SM_TRAINING_ENV"].replace("NaN", '"NaN"'))
    assert training["hyperparameters"]["learning-rate"] == 0.1
    assert training["channel_input_dirs"] == {"train": "/opt/ml/input/data/train"}
    assert (training["is_master"], training["master_hostname"], training["log_level"]) == (False, "algo-1", 10)
    assert training["additional_framework_parameters"] == {"sagemaker_mpi_enabled": True}


def test_where_the_platform_says_nothing_the_toolkits_defaults_stand(of_files):
    found = of_files({}, {}, {})
    assert (found["SM_CURRENT_INSTANCE_TYPE"], found["SM_CURRENT_INSTANCE_GROUP"]) == ("local", "homogeneousCluster")
    assert (found["SM_NETWORK_INTERFACE_NAME"], found["SM_LOG_LEVEL"], found["SM_HPS"]) == ("eth0", "20", "{}")
    assert (found["SM_INSTANCE_GROUPS"], found["SM_CURRENT_INSTANCE_GROUP_HOSTS"]) == ("[]", "[]")


def test_the_name_that_a_shell_knows_is_another_hyperparameters_if_that_has_it(of_files):
    found = of_files({"a-b": "1", "a_b": "2", "c=d": "3", "": "4"}, {}, {})
    assert (found["SM_HP_A-B"], found["SM_HP_A_B"]) == ("1", "2")
    assert found["SM_HP_C_D"] == "3"
    assert not any("=" in name for name in found), "no process can be started with such a variable"


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
        ({"": 1}, ["", "1"]),
        ({"note": "two words; $HOME"}, ["--note", "two words; $HOME"]),
        ({"sagemaker_program": "train.py", "_tuning_objective_metric": "loss", "lr": 1}, ["--lr", "1"]),
    ],
)
def test_hyperparameters_are_arguments_as_the_toolkit_passes_them(hyperparameters, arguments):
    """The expected values are those of `to_cmd_args` in sagemaker_training/mapping.py."""
    assert command_arguments(hyperparameters) == arguments


@pytest.fixture(scope="module")
def of_the_sdk():
    """Give the arguments that a script gets from the driver that the installed SDK sends into the container."""
    sdk = importlib.util.find_spec("sagemaker")  # Importing it takes seconds; its drivers stand alone.
    drivers = Path(sdk.origin).parent / "train" / "container_drivers"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(drivers), *sys.path])
        container = importlib.import_module("scripts.environment")
        driver = importlib.import_module("distributed_drivers.basic_script_driver")
        patch.setenv("SM_ENTRY_SCRIPT", "train.py")

        def arguments(hyperparameters):
            decoded = container.deserialize_hyperparameters(hyperparameters)
            patch.setenv("SM_HPS", container.safe_serialize(decoded))
            return driver.create_commands()[2:]

        yield arguments
    packages = ("common", "scripts", "distributed_drivers")
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        del sys.modules[name]


LIKE_JSON = (
    "true", "null", "None", '"quoted"', '"true"', '"[1,2]"', '"\\"twice\\""', "[1,2]", '{"b":1,"a":[null]}', '["ü"]',
    "[", "{}", "NaN", "-Infinity", "", " ", "zwei Wörter; $HOME", 'x"y', "--flag",
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
TEXTS = st.sampled_from(LIKE_JSON) | st.text().filter(lambda text: not re.match(r'[\s"]*-?\d', text))


@given(st.dictionaries(st.text(), TEXTS | VALUES.filter(lambda value: not isinstance(value, str)).map(json.dumps)))
def test_as_json_they_are_the_arguments_that_the_sdks_own_driver_makes_of_them(of_the_sdk, hyperparameters):
    assert command_arguments(hyperparameters, as_json=True) == of_the_sdk(hyperparameters)


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("written", ["1.10", "8716e25", "00123", "1e3", "-0", "12e4567", "1" * 400, "0.1", "30"])
def test_a_number_is_passed_as_it_was_written(of_files, written, as_json):
    assert command_arguments({"commit": written}, as_json=as_json) == ["--commit", written]
    assert of_files({"commit": written}, {}, {})["SM_HP_COMMIT"] == written


def test_the_drivers_of_aws_write_some_numbers_anew(of_the_sdk):
    """Where this changes, docs/environment-variables.md and `as_json` say too much."""
    assert of_the_sdk({"version": "1.10", "commit": "8716e25"}) == ["--version", "1.1", "--commit", "8.716e+28"]


def test_all_in_one_object_numbers_are_numbers(of_files):
    found = of_files({"lr": "1e-3", "commit": "12e4567"}, {}, {})
    assert json.loads(found["SM_HPS"]) == {"lr": 0.001, "commit": "12e4567"}


@pytest.mark.parametrize("written", ['"\\ud800"', '"\\u0000"', '{"a": "\\ud800"}'])
def test_what_no_process_can_be_given_stays_as_it_was_written(of_files, written):
    found = of_files({"text": written}, {}, {})
    assert found["SM_HP_TEXT"].replace(":", ": ") == written
    assert command_arguments({"text": written}) == ["--text", written]
    assert command_arguments({"text": written}, as_json=True) == ["--text", written]


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
