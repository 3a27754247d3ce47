"""The environment a training command sees. Pure. docs/environment-variables.md describes every variable.

The names and forms of `SM_*` are those of SageMaker's training toolkit, so scripts written for it run unchanged.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spotkeep.disk.shared_work import usable_processors
from spotkeep.notices.notice import NOTICE_FILE_VARIABLE, notice_seconds

from .layout import JobConfiguration, JobLayout

TENSORBOARD_VARIABLE = "TENSORBOARD_LOGGING_DIR"
"""Hugging Face's Trainer reads it by itself."""
_TORCHRUN_SHUTDOWN_VARIABLE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
"""How many seconds after SIGTERM torchrun kills its workers: 30 by itself. accelerate's launcher is torchrun.

Source: `LaunchConfig` in torch/distributed/launcher/api.py, from torch 2.12 on.
"""
_SHARE_OF_NOTICE = 0.95
_MASTER_PORT = "7777"
_INTERFACE_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
_NOT_IN_A_NAME = re.compile(r"[^A-Z0-9_]")
_PLATFORMS_OWN = ("_tuning_objective_metric", "default_user_module_name")


@dataclass(frozen=True)
class Hardware:
    """What this machine has.

    Attributes:
        cpus: Processors this process may use.
        gpus: NVIDIA devices.
        neurons: AWS Neuron devices.
    """

    cpus: int
    gpus: int
    neurons: int


def find_hardware(devices: Path = Path("/dev")) -> Hardware:
    """Count processors and accelerators from what the kernel shows, without calling any tool."""
    names = [entry.name for entry in devices.iterdir()] if devices.is_dir() else []
    return Hardware(
        cpus=usable_processors(),
        gpus=sum(bool(re.fullmatch(r"nvidia[0-9]+", name)) for name in names),
        neurons=sum(bool(re.fullmatch(r"neuron[0-9]+", name)) for name in names),
    )


def command_arguments(hyperparameters: Mapping[str, Any]) -> list[str]:
    """Give the hyperparameters as arguments of the command, the way SageMaker's training toolkit passes them.

    `--name value` in the order of the names, `-n value` for a name of one letter; booleans are `True` and `False`, a
    list is in Python's own form, an object is `key=value,...`, null is empty. SageMaker's own are left out.

    Args:
        hyperparameters: Decoded.

    Source: `to_cmd_args` in `sagemaker_training/mapping.py`, `params.py`; aws/sagemaker-training-toolkit on GitHub.
    """
    own = (name for name in sorted(hyperparameters) if name not in _PLATFORMS_OWN and not name.startswith("sagemaker_"))
    return [
        word
        for name in own
        for word in (f"--{name}" if len(name) > 1 else f"-{name}", _argument(hyperparameters[name]))
    ]


def _argument(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{key}={each}" for key, each in sorted(value.items()))
    return "" if value is None else str(value)


def job_environment(
    *,
    inherited: Mapping[str, str],
    layout: JobLayout,
    configuration: JobConfiguration,
    hardware: Hardware,
    import_root: str,
    notice_file: Path,
) -> dict[str, str]:
    """Give the command's whole environment.

    Args:
        inherited: The runner's own environment; all of it is passed on.
        layout: Where things are.
        configuration: What the platform says.
        hardware: What the machine has.
        import_root: What must be on PYTHONPATH so that `import spotkeep` works: the zipapp, or a source directory.
        notice_file: Where the runner will leave an interruption notice.
    """
    python_path = [import_root, *filter(None, [inherited.get("PYTHONPATH")])]
    return {
        "PYTHONUNBUFFERED": "1",
        "SPOTKEEP_EVENTS": "stdout",
        "SPOTKEEP_CHECKPOINT_DIR": str(configuration.checkpoint_directory),
        TENSORBOARD_VARIABLE: str(configuration.checkpoint_directory / "tensorboard"),
        _TORCHRUN_SHUTDOWN_VARIABLE: str(max(1, int(notice_seconds(inherited) * _SHARE_OF_NOTICE))),
        **_meeting_place(configuration),
        **inherited,
        "PYTHONPATH": os.pathsep.join(python_path),
        NOTICE_FILE_VARIABLE: str(notice_file),
        **_toolkit_variables(layout, configuration, hardware),
    }


def _toolkit_variables(layout: JobLayout, configuration: JobConfiguration, hardware: Hardware) -> dict[str, str]:
    resources = configuration.resources
    variables: dict[str, Any] = {
        "SM_MODEL_DIR": str(layout.model),
        "SM_INPUT_DIR": str(layout.input),
        "SM_INPUT_CONFIG_DIR": str(layout.configuration),
        "SM_INPUT_DATA_CONFIG": configuration.channels,
        "SM_OUTPUT_DIR": str(layout.output),
        "SM_OUTPUT_DATA_DIR": str(layout.output_data),
        "SM_CHANNELS": list(configuration.channels),
        "SM_HPS": configuration.hyperparameters,
        "SM_USER_ARGS": command_arguments(configuration.hyperparameters),
        "SM_RESOURCE_CONFIG": resources,
        "SM_HOSTS": list(configuration.hosts),
        "SM_CURRENT_HOST": configuration.current_host,
        "SM_HOST_COUNT": len(configuration.hosts),
        "SM_CURRENT_HOST_RANK": configuration.hosts.index(configuration.current_host),
        "SM_MASTER": configuration.hosts[0],
        "SM_CURRENT_INSTANCE_TYPE": resources.get("current_instance_type", ""),
        "SM_CURRENT_INSTANCE_GROUP": resources.get("current_group_name", ""),
        "SM_NETWORK_INTERFACE_NAME": resources.get("network_interface_name", "eth0"),
        "SM_NUM_CPUS": hardware.cpus,
        "SM_NUM_GPUS": hardware.gpus,
        "SM_NUM_NEURONS": hardware.neurons,
    }
    for name in configuration.channels:
        variables[f"SM_CHANNEL_{_variable(name)}"] = str(layout.data / name)
    for name, value in configuration.hyperparameters.items():
        variables[f"SM_HP_{_variable(name)}"] = value
    return {name: _text(value) for name, value in variables.items()}


def _meeting_place(configuration: JobConfiguration) -> dict[str, str]:
    """Give the variables by which the ranks of several hosts find each other; a job's own values go before these.

    Without the interface, gloo offers its peers the address that the container's hostname resolves to. That name is not
    the host's name in the job. AWS's own images mend it in an entry script, and a job with a command starts without it.

    Source of address, port and NCCL's interface: `torchrun_driver.py` and `environment.py` in
    `sagemaker.train.container_drivers`, of the SageMaker SDK 3. gloo's interface is ours.
    """
    interface = configuration.resources.get("network_interface_name")
    several = len(configuration.hosts) > 1
    return {
        "SM_MASTER_ADDR": configuration.hosts[0],
        "SM_MASTER_PORT": _MASTER_PORT,
        # In a job with one host the ranks find each other on any interface, and its own may not be there at all.
        **(dict.fromkeys(_INTERFACE_VARIABLES, str(interface)) if several and interface else {}),
    }


def _variable(name: str) -> str:
    return _NOT_IN_A_NAME.sub("_", name.upper())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
