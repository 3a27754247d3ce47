"""Paths in a training job, this library's among them, and the platform's files about the job.

Source: AWS, "How Amazon SageMaker AI Provides Training Information".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spotkeep.errors import ConfigurationError
from spotkeep_fleet.training_spec import SPEC_CHANNEL

BASE_DIRECTORY_VARIABLE = "SAGEMAKER_BASE_DIR"
RESERVED_CHANNELS = frozenset({"spotkeep", "source", SPEC_CHANNEL})
_PLATFORM_BASE = "/opt/ml"
_MAX_BYTES = 16 * 2**20
"""The most bytes of one of the platform's files. Hyperparameters have at most 100 values of 256 characters."""


@dataclass(frozen=True)
class JobLayout:
    """The directories of a job below one base directory.

    Attributes:
        base: The directory `/opt/ml`, or the one in SAGEMAKER_BASE_DIR.
    """

    base: Path

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> JobLayout:
        """Find the base directory."""
        return cls(base=Path(environment.get(BASE_DIRECTORY_VARIABLE) or _PLATFORM_BASE).absolute())

    @property
    def input(self) -> Path:
        """The directory of the job's input."""
        return self.base / "input"

    @property
    def configuration(self) -> Path:
        """The directory of the platform's JSON files about the job."""
        return self.input / "config"

    @property
    def data(self) -> Path:
        """One directory a channel."""
        return self.input / "data"

    @property
    def hyperparameters(self) -> Path:
        """The platform's file of hyperparameters."""
        return self.configuration / "hyperparameters.json"

    @property
    def model(self) -> Path:
        """The directory that becomes the model artifact."""
        return self.base / "model"

    @property
    def output(self) -> Path:
        """The directory of the job's output."""
        return self.base / "output"

    @property
    def output_data(self) -> Path:
        """The directory that becomes the output artifact."""
        return self.output / "data"

    @property
    def failure(self) -> Path:
        """The file whose first 1,024 characters become the job's FailureReason."""
        return self.output / "failure"

    @property
    def source(self) -> Path:
        """The directory in which the source is unpacked and the command runs."""
        return self.base / "source"

    @property
    def environment(self) -> Path:
        """The virtual environment with the script's packages that the image does not have."""
        return self.base / "environment"

    @property
    def kept_environments(self) -> Path:
        """The environments on a host of a warm pool, in the directory that stays with the host from job to job."""
        return self.base / "sagemaker" / "warmpoolcache" / "spotkeep-environments"

    @property
    def put_aside(self) -> Path:
        """The directory for checkpoints that an interruption cut off."""
        return self.base / "put-aside"

    @property
    def wandb(self) -> Path:
        """The files of Weights & Biases' client, outside of the checkpoints."""
        return self.base / "wandb"

    def relocated(self, path: str) -> Path:
        """Give the place of a path that the platform spells from `/opt/ml`."""
        given = Path(path)
        try:
            return self.base / given.relative_to(_PLATFORM_BASE)
        except ValueError:
            return given


@dataclass(frozen=True)
class JobConfiguration:
    """The content of the platform's files about the job.

    Attributes:
        hyperparameters: The values as text, in the platform's order.
        channels: The platform's description of each input channel, by name.
        resources: Hosts, instance type, network interface.
        checkpoint_directory: The directory of checkpoints, relocated.
        hosts: The names of all hosts, in the order of the platform. Amazon SageMaker sorts them. A host's place among
            them is its number.
        current_host: The name of this host.
    """

    hyperparameters: dict[str, Any]
    channels: dict[str, Any]
    resources: dict[str, Any]
    checkpoint_directory: Path
    hosts: tuple[str, ...] = field(default=("algo-1",))
    current_host: str = "algo-1"


def read_configuration(layout: JobLayout) -> JobConfiguration:
    """Read the platform's files. A missing file leaves its defaults, for the job may run elsewhere.

    Raises:
        ConfigurationError: If a file is not the JSON object it should be. Names every such file.
    """
    problems: list[str] = []
    hyperparameters = _read_object(layout.hyperparameters, problems)
    channels = _read_object(layout.configuration / "inputdataconfig.json", problems)
    resources = _read_object(layout.configuration / "resourceconfig.json", problems)
    checkpoints = _read_object(layout.configuration / "checkpointconfig.json", problems)
    current_host = str(resources.get("current_host") or "algo-1")
    hosts = tuple(str(host) for host in resources.get("hosts") or [current_host])
    if current_host not in hosts:
        problems.append(
            f"{layout.configuration / 'resourceconfig.json'}: current_host {current_host} is not among hosts: "
            f"{', '.join(hosts)}"
        )
    if problems:
        raise ConfigurationError(
            "the platform's configuration cannot be read:\n" + "\n".join(f"  - {problem}" for problem in problems)
        )
    if not channels and layout.data.is_dir():
        channels = {entry.name: {} for entry in sorted(layout.data.iterdir()) if entry.is_dir()}
    return JobConfiguration(
        hyperparameters=hyperparameters,
        channels={name: value for name, value in sorted(channels.items()) if name not in RESERVED_CHANNELS},
        resources=resources,
        checkpoint_directory=layout.relocated(str(checkpoints.get("LocalPath") or f"{_PLATFORM_BASE}/checkpoints")),
        hosts=hosts,
        current_host=current_host,
    )


def _read_object(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        document = json.loads(_content(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        problems.append(f"{path}: {error}")
        return {}
    if document is None:
        return {}
    if not isinstance(document, dict):
        problems.append(f"{path}: a {type(document).__name__} where a JSON object was expected")
        return {}
    return document


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        raw = file.read(_MAX_BYTES + 1)
    if len(raw) > _MAX_BYTES:
        raise ValueError(f"more than {_MAX_BYTES:,} bytes")
    return raw


def import_root() -> str:
    """Give the path by which `import spotkeep` finds this very library. It is a zipapp or a directory."""
    return str(Path(__file__).absolute().parent.parent.parent)
