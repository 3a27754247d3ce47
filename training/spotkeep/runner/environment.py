"""The environment variables of a training command. Pure. docs/environment-variables.md describes every variable.

The names and forms of `SM_*` are those of SageMaker's training toolkit, so scripts written for it run unchanged.
Source: `to_env_vars` in `sagemaker_training/environment.py` and `mapping.py` of aws/sagemaker-training-toolkit on
GitHub.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spotkeep.disk.shared_work import usable_processors
from spotkeep.notices.notice import NOTICE_FILE_VARIABLE, notice_seconds

from .layout import JobConfiguration, JobLayout

TENSORBOARD_VARIABLE = "TENSORBOARD_LOGGING_DIR"
"""Hugging Face's Trainer reads it by itself."""
_TORCHRUN_SHUTDOWN_VARIABLE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
"""The variable for the seconds from SIGTERM until torchrun kills its workers. Its default is 30.

accelerate's launcher is torchrun.

Source: `LaunchConfig` in torch/distributed/launcher/api.py, from torch 2.12 on.
"""
_SHARE_OF_NOTICE = 0.95
_LIST_SECONDS = 60.0
_MASTER_PORT = "7777"
_INTERFACE_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
_NOT_IN_A_NAME = re.compile(r"[^A-Z0-9_]")
_IMPOSSIBLE = re.compile(r"[=\0]")
"""Characters that the name of a variable may not hold."""
_IN_NO_ARGUMENT = re.compile("[\0\ud800-\udfff]")
"""Characters that no argument and no variable may hold, which are NUL and half of a surrogate pair."""
_PLATFORMS_OWN = ("_tuning_objective_metric", "default_user_module_name")
_PLATFORMS_PREFIX = "sagemaker_"
_NOT_FOR_FRAMEWORKS = ("program", "submit_directory", "enable_cloudwatch_metrics", "region", "container_log_level",
                       "job_name", "s3_output")  # fmt: skip
_LOG_LEVEL = "sagemaker_container_log_level"


@dataclass(frozen=True)
class Hardware:
    """The hardware of this machine.

    Attributes:
        cpus: Number of processors that this process may use.
        gpus: Number of NVIDIA devices.
        neurons: Number of AWS Neuron cores. Where no tool lists them, of Neuron devices.
    """

    cpus: int
    gpus: int
    neurons: int


def find_hardware(devices: Path = Path("/dev"), *, list_neurons: Sequence[str] = ("neuron-ls", "-j")) -> Hardware:
    """Count processors and accelerators from the kernel's files. A tool of AWS's lists the cores of Neuron devices.

    Args:
        devices: The folder of the kernel's device files.
        list_neurons: The command that lists Neuron devices as JSON. It runs where there are such devices.

    Source: `num_neurons` in `scripts/environment.py` of `sagemaker.train.container_drivers`, of the SageMaker SDK 3.
    """
    names = [entry.name for entry in devices.iterdir()] if devices.is_dir() else []
    neurons = sum(bool(re.fullmatch(r"neuron[0-9]+", name)) for name in names)
    return Hardware(
        cpus=usable_processors(),
        gpus=sum(bool(re.fullmatch(r"nvidia[0-9]+", name)) for name in names),
        neurons=(_neuron_cores(list_neurons) or neurons) if neurons else 0,
    )


def _neuron_cores(command: Sequence[str]) -> int:
    """Give the number of cores that a tool lists. 0 where there is no tool, or it lists none."""
    try:
        listed = subprocess.run(
            list(command), stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIST_SECONDS, check=True
        )
        return sum(int(each["nc_count"]) for each in json.loads(listed.stdout))
    except (OSError, subprocess.SubprocessError, ValueError, TypeError, KeyError):
        return 0


def command_arguments(hyperparameters: Mapping[str, Any], *, as_json: bool = False) -> list[str]:
    """Give the hyperparameters as arguments of the command.

    By default the form is that of SageMaker's training toolkit. It writes `--name value` in the order of the names, and
    `-n value` for a name of one letter. Booleans are `True` and `False`, a list is in Python's own form, an object is
    `key=value,...`, null is empty. SageMaker's own hyperparameters are left out.

    With `as_json` the form is that of the SageMaker SDK 3. It writes `--name value` of each in the platform's order,
    with two hyphens. All values but texts are written as JSON. The SDK's driver decodes twice, and so does this
    function.

    In both forms a number is passed as it was written. AWS's own code reads and writes it again, so `1.10` becomes
    `1.1` there.

    Args:
        hyperparameters: The hyperparameters in the platform's form.
        as_json: True for the form of the SDK 3.

    Source: `to_cmd_args` in `sagemaker_training/mapping.py` and `params.py` of aws/sagemaker-training-toolkit on
    GitHub. `hyperparameters_to_cli_args` in `common/utils.py` of `sagemaker.train.container_drivers`, of the SageMaker
    SDK 3.
    """
    if as_json:
        return [word for name, value in hyperparameters.items() for word in (f"--{name}", _json_argument(value))]
    own = _without_platforms(hyperparameters)
    return [word for name in sorted(own) for word in (f"{'-' * min(len(name), 2)}{name}", _argument(own[name]))]


def _without_platforms(hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in hyperparameters.items() if not _is_platforms(name)}


def _is_platforms(name: str) -> bool:
    return name in _PLATFORMS_OWN or name.startswith(_PLATFORMS_PREFIX)


def _decoded(value: Any) -> Any:
    """Decode a hyperparameter. SageMaker's hyperparameters are text, into which its SDKs put JSON."""
    if not isinstance(value, str):
        return value
    try:
        meaning = json.loads(value)
    except (ValueError, RecursionError):
        return value
    # `12e4567` is too large for a float, and some texts can be given to no process: both stay as they are written.
    if (isinstance(meaning, float) and math.isinf(meaning) and value.strip().lstrip("-") != "Infinity") or (
        isinstance(meaning, str) and _IN_NO_ARGUMENT.search(meaning)
    ):
        return value
    return meaning


def _as_written(value: Any) -> Any:
    """Decode a hyperparameter that is no number. A number keeps its text, because it may be a version or a commit."""
    meaning = _decoded(value)
    if isinstance(meaning, float):
        return value if math.isfinite(meaning) else meaning
    return value if isinstance(meaning, int) and not isinstance(meaning, bool) else meaning


def _argument(value: Any) -> str:
    meaning = _as_written(value)
    if isinstance(meaning, Mapping):
        pairs = ",".join(f"{key}={each}" for key, each in sorted(meaning.items()))
        return str(value) if _IN_NO_ARGUMENT.search(pairs) else pairs
    return "" if meaning is None else str(meaning)


def _json_argument(value: Any) -> str:
    value = _as_written(_as_written(value))
    return value if isinstance(value, str) else json.dumps(value)


def job_environment(
    *,
    inherited: Mapping[str, str],
    layout: JobLayout,
    configuration: JobConfiguration,
    hardware: Hardware,
    import_root: str,
    notice_file: Path,
    arguments: Sequence[str] | None = None,
) -> dict[str, str]:
    """Give the command's whole environment.

    Args:
        inherited: The runner's own environment, all of which is passed on.
        layout: The job's directories.
        configuration: The platform's configuration.
        hardware: The machine's hardware.
        import_root: The entry of PYTHONPATH by which `import spotkeep` works. It is the zipapp or a source directory.
        notice_file: Path at which the runner will write an interruption notice.
        arguments: The hyperparameters as arguments. By default in the form of SageMaker's training toolkit.
    """
    python_path = [import_root, *filter(None, [inherited.get("PYTHONPATH")])]
    return {
        "PYTHONUNBUFFERED": "1",
        "SPOTKEEP_EVENTS": "stdout",
        "SPOTKEEP_CHECKPOINT_DIR": str(configuration.checkpoint_directory),
        TENSORBOARD_VARIABLE: str(configuration.checkpoint_directory / "tensorboard"),
        _TORCHRUN_SHUTDOWN_VARIABLE: str(max(1, int(notice_seconds(inherited) * _SHARE_OF_NOTICE))),
        **meeting_place(configuration),
        **inherited,
        "PYTHONPATH": os.pathsep.join(python_path),
        NOTICE_FILE_VARIABLE: str(notice_file),
        **_toolkit_variables(layout, configuration, hardware, arguments),
    }


def _toolkit_variables(
    layout: JobLayout, configuration: JobConfiguration, hardware: Hardware, arguments: Sequence[str] | None
) -> dict[str, str]:
    facts = _facts(layout, configuration, hardware)
    given = configuration.hyperparameters
    variables: dict[str, Any] = {
        **{f"SM_{name.upper()}": facts[name] for name in _FACTS_WITH_A_VARIABLE},
        "SM_CHANNELS": sorted(configuration.channels),
        "SM_HPS": facts["hyperparameters"],
        "SM_USER_ARGS": command_arguments(given) if arguments is None else list(arguments),
        "SM_FRAMEWORK_PARAMS": facts["additional_framework_parameters"],
        "SM_TRAINING_ENV": facts,
        # These are of the containers of the SageMaker SDK 3.
        "SM_HOST_COUNT": len(configuration.hosts),
        "SM_CURRENT_HOST_RANK": configuration.hosts.index(configuration.current_host),
        "SM_MASTER": configuration.hosts[0],
        "SM_INPUT_DATA_DIR": str(layout.data),
        "SM_OUTPUT_FAILURE": str(layout.failure),
        **_named("SM_CHANNEL_", facts["channel_input_dirs"]),
        **_named("SM_HP_", {name: _as_written(value) for name, value in _without_platforms(given).items()}),
    }
    return {name: _text(value) for name, value in variables.items()}


_FACTS_WITH_A_VARIABLE = (
    "current_host", "current_instance_group", "current_instance_group_hosts", "current_instance_type", "hosts",
    "input_config_dir", "input_data_config", "input_dir", "instance_groups", "instance_groups_dict", "is_hetero",
    "log_level", "model_dir", "network_interface_name", "num_cpus", "num_gpus", "num_neurons", "output_data_dir",
    "output_dir", "resource_config",
)  # fmt: skip


def _facts(layout: JobLayout, configuration: JobConfiguration, hardware: Hardware) -> dict[str, Any]:
    """Give the toolkit's "training environment" under its names, but without its entries about a program."""
    resources = configuration.resources
    given = {name: _decoded(value) for name, value in configuration.hyperparameters.items()}
    listed = [each for each in resources.get("instance_groups") or () if isinstance(each, Mapping)]
    groups = {str(each.get("instance_group_name")): each for each in listed}
    group = resources.get("current_group_name", "homogeneousCluster")
    for_frameworks = set(given) - {_PLATFORMS_PREFIX + name for name in _NOT_FOR_FRAMEWORKS}
    return {
        "additional_framework_parameters": {
            name: given[name] for name in for_frameworks if name.startswith(_PLATFORMS_PREFIX)
        },
        "channel_input_dirs": {name: str(layout.data / name) for name in configuration.channels},
        "current_host": configuration.current_host,
        "current_instance_group": group,
        "current_instance_group_hosts": groups.get(group, {}).get("hosts", []),
        "current_instance_type": resources.get("current_instance_type", "local"),
        "hosts": list(configuration.hosts),
        "hyperparameters": _without_platforms(given),
        "input_config_dir": str(layout.configuration),
        "input_data_config": configuration.channels,
        "input_dir": str(layout.input),
        "instance_groups": list(groups),
        "instance_groups_dict": groups,
        "is_hetero": len(groups) > 1,
        "is_master": configuration.current_host == configuration.hosts[0],
        "log_level": given.get(_LOG_LEVEL, logging.INFO),
        "master_hostname": configuration.hosts[0],
        "model_dir": str(layout.model),
        "network_interface_name": resources.get("network_interface_name", "eth0"),
        "num_cpus": hardware.cpus,
        "num_gpus": hardware.gpus,
        "num_neurons": hardware.neurons,
        "output_data_dir": str(layout.output_data),
        "output_dir": str(layout.output),
        "resource_config": resources,
    }


def _named(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Name a variable for each value, as the toolkit does.

    A name with characters that no shell allows is also given with `_` in their place.
    """
    exact = {prefix + name.upper(): value for name, value in values.items() if not _IMPOSSIBLE.search(name)}
    return {**{prefix + _NOT_IN_A_NAME.sub("_", name.upper()): value for name, value in values.items()}, **exact}


def meeting_place(configuration: JobConfiguration) -> dict[str, str]:
    """Give the variables by which the ranks of several hosts find each other. A job's own values go before these.

    Without the interface, gloo offers its peers the address that the container's hostname resolves to. That name is not
    the host's name in the job. AWS's own images mend it in an entry script, and a job with a command starts without
    that script.

    Source: `torchrun_driver.py` and `environment.py` in `sagemaker.train.container_drivers`, of the SageMaker SDK 3.
    They set the address, the port and NCCL's interface. Spotkeep adds gloo's interface.
    """
    interface = configuration.resources.get("network_interface_name")
    several = len(configuration.hosts) > 1
    return {
        "SM_MASTER_ADDR": configuration.hosts[0],
        "SM_MASTER_PORT": _MASTER_PORT,
        # In a job with one host the ranks find each other on any interface, and its own may not be there at all.
        **(dict.fromkeys(_INTERFACE_VARIABLES, str(interface)) if several and interface else {}),
    }


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))
