"""The agent's settings from its environment. User data sets the first four, hosts and tests set the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spotkeep_fleet.shells import TRAINING_USER

from .errors import InstanceSettingsError

RUN_TABLE_VARIABLE = "SPOTKEEP_RUN_TABLE"
CREDENTIALS_FUNCTION_VARIABLE = "SPOTKEEP_CREDENTIALS_FUNCTION"
REGION_VARIABLE = "AWS_REGION"
DEPLOYMENT_VARIABLE = "SPOTKEEP_DEPLOYMENT"
ROOT_VARIABLE = "SPOTKEEP_LOCAL_INSTANCE_ROOT"
USER_VARIABLE = "SPOTKEEP_USER"
LINGER_VARIABLE = "SPOTKEEP_LINGER_SECONDS"
TIME_SCALE_VARIABLE = "SPOTKEEP_LOCAL_TIME_SCALE"
FIRST_WORLD_VARIABLE = "SPOTKEEP_LOCAL_FIRST_WORLD_SECONDS"


@dataclass(frozen=True)
class AgentSettings:
    """Settings of the agent.

    Attributes:
        run_table: Name of the run table.
        credentials_function: Name of the function that gives this instance the credentials of its run.
        region: The region of the deployment, or empty for the instance's own.
        deployment: Its name.
        root: `/`, or the folder of this instance's files on a machine that it shares with others. In such a folder its
            volumes are directories, and no process is root.
        user: The user that trains, where the agent is root.
        linger_seconds: Seconds for which it stays after the end of the training, until the fleet is deleted, which
            would replace an instance that powers itself off.
        time_scale: The factor by which it reads the metadata and its run's record more often than on AWS. The local AWS
            lets two minutes pass in seconds.
        first_world_seconds: Seconds without another node after which a run begins with fewer nodes than it may have.
            None for the time on AWS, by the time scale. A rehearsal sets it on the local AWS.
    """

    run_table: str
    credentials_function: str
    region: str
    deployment: str
    root: Path
    user: str
    linger_seconds: float
    time_scale: float
    first_world_seconds: float | None

    @property
    def directories(self) -> bool:
        """True when volumes are directories."""
        return self.root != Path("/")

    @property
    def mount_point(self) -> Path:
        """The mount point of the volume, which is the base directory of the job."""
        return self.root / "opt/ml"

    @property
    def devices(self) -> Path:
        """The folder in which devices are linked by their ids."""
        return self.root / "dev/disk/by-id"

    @property
    def pci_devices(self) -> Path:
        """The folder of PCI devices, which shows the accelerators of this instance."""
        return self.root / "sys/bus/pci/devices"

    @property
    def fabric_adapters(self) -> Path:
        """The folder of the devices of Elastic Fabric Adapters."""
        return self.root / "dev/infiniband"

    @property
    def file_systems(self) -> Path:
        """The folder of the mount points of file systems."""
        return self.root / "mnt/spotkeep"

    @property
    def state(self) -> Path:
        """The folder of the agent's lock and the notice file."""
        return self.root / "run/spotkeep"


def read_settings(environment: Mapping[str, str]) -> AgentSettings:
    """Read the environment.

    Raises:
        InstanceSettingsError: If values are missing or make no sense, all of which the error names.
    """
    needed = (RUN_TABLE_VARIABLE, CREDENTIALS_FUNCTION_VARIABLE, DEPLOYMENT_VARIABLE)
    problems = [f"{name} is not set" for name in needed if not environment.get(name)]
    linger_seconds, time_scale = 0.0, 1.0
    first_world_seconds: float | None = None
    try:
        linger_seconds = float(environment.get(LINGER_VARIABLE) or 600.0)
    except ValueError:
        problems.append(f"{LINGER_VARIABLE} is {environment[LINGER_VARIABLE]!r}; set it to a number of seconds")
    try:
        time_scale = float(environment.get(TIME_SCALE_VARIABLE) or 1.0)
    except ValueError:
        time_scale = 0.0
    if not time_scale >= 1:
        problems.append(f"{TIME_SCALE_VARIABLE} is {environment[TIME_SCALE_VARIABLE]!r}; set it to a number from 1")
    given = environment.get(FIRST_WORLD_VARIABLE)
    try:
        first_world_seconds = float(given) if given else None
    except ValueError:
        problems.append(f"{FIRST_WORLD_VARIABLE} is {given!r}; set it to a number of seconds")
    if problems:
        raise InstanceSettingsError(problems)
    return AgentSettings(
        run_table=environment[RUN_TABLE_VARIABLE],
        credentials_function=environment[CREDENTIALS_FUNCTION_VARIABLE],
        region=environment.get(REGION_VARIABLE, ""),
        deployment=environment[DEPLOYMENT_VARIABLE],
        root=Path(environment.get(ROOT_VARIABLE) or "/").absolute(),
        user=environment.get(USER_VARIABLE) or TRAINING_USER,
        linger_seconds=linger_seconds,
        time_scale=time_scale,
        first_world_seconds=first_world_seconds,
    )
