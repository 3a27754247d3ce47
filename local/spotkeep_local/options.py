"""What can be set on the local AWS: one frozen value, handed to the daemon as JSON on its command line.

The defaults are SageMaker's own behaviour where AWS documents one (120 s between SIGTERM and SIGKILL) and
quick where it documents none, so that a rehearsal takes seconds. `ServerOptions.fast()` is for tests.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from spotkeep_local.errors import OptionsError

_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")
_ACCOUNT = re.compile(r"\d{12}")
_FASTEST = 1000
_LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


class Isolation(StrEnum):
    """How a local training job or instance is kept apart from the machine."""

    AUTO = "auto"
    """A private mount namespace where the machine allows one, a relocated base directory elsewhere."""
    NAMESPACE = "namespace"
    """Always a private mount namespace; starting a job fails where the machine refuses it."""
    RELOCATED = "relocated"
    """Always a relocated base directory, named to the job by `SAGEMAKER_BASE_DIR`."""


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Settings of one local AWS.

    Attributes:
        region: The region clients are given and resources live in.
        account_id: The twelve digits that appear in ARNs.
        log_level: Of `server.log`: DEBUG, INFO, WARNING or ERROR.
        sync_interval_seconds: How often a job's checkpoint directory is compared with S3.
        upload_delay_seconds: How long one checkpoint file takes to reach S3 (its marker file is there
            meanwhile).
        stop_grace_seconds: Between SIGTERM and SIGKILL when a job is stopped or out of time.
            Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_StopTrainingJob.html
        isolation: How a job gets its `/opt/ml`, and whether an EC2 instance is a host with namespaces and loop devices
            (`namespace`) or a process group with directories for volumes (`relocated`).
        time_scale: How many times faster than AWS the local EC2 is: notices, launches, volumes, snapshots.
        agent_time_scale: How many times more often than on AWS the agents on local instances ask whether they are to
            leave. With a large `time_scale` a notice passes between two requests otherwise.
        warm_pool_quota: How many instances may be in warm pools. A new AWS account has 0: jobs then run and leave no
            pool.

    Raises:
        OptionsError: Values are out of range; names every one.
    """

    region: str = "us-east-1"
    account_id: str = "000000000000"
    log_level: str = "INFO"
    sync_interval_seconds: float = 0.5
    upload_delay_seconds: float = 0.0
    stop_grace_seconds: float = 120.0
    isolation: Isolation = Isolation.AUTO
    time_scale: float = 1.0
    agent_time_scale: float = 1.0
    warm_pool_quota: int = 10

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be a number of seconds from {low:g} to {high:g}, found {value!r}"
            for name, low, high in (
                ("sync_interval_seconds", 0.01, 3600),
                ("upload_delay_seconds", 0, 3600),
                ("stop_grace_seconds", 0, 3600),
            )
            if isinstance(value := getattr(self, name), bool)
            or not isinstance(value, int | float)
            or not low <= value <= high
        ]
        problems += [
            f"{name} must be a number from 1 to {_FASTEST}, found {scale!r}"
            for name in ("time_scale", "agent_time_scale")
            if isinstance(scale := getattr(self, name), bool)
            or not isinstance(scale, int | float)
            or not 1 <= scale <= _FASTEST
        ]
        quota = self.warm_pool_quota
        if isinstance(quota, bool) or not isinstance(quota, int) or quota < 0:
            problems.append(f"warm_pool_quota must be a number of instances from 0, found {quota!r}")
        if not _REGION.fullmatch(str(self.region)):
            problems.append(f"region must look like us-east-1, found {self.region!r}")
        if not _ACCOUNT.fullmatch(str(self.account_id)):
            problems.append(f"account_id must be twelve digits, found {self.account_id!r}")
        if self.log_level not in _LOG_LEVELS:
            problems.append(f"log_level must be one of {', '.join(_LOG_LEVELS)}, found {self.log_level!r}")
        try:
            object.__setattr__(self, "isolation", Isolation(self.isolation))
        except ValueError:
            problems.append(f"isolation must be one of {', '.join(Isolation)}, found {self.isolation!r}")
        if problems:
            raise OptionsError(problems)

    @classmethod
    def fast(cls) -> ServerOptions:
        """Options for tests: everything that waits, waits little."""
        return cls(
            sync_interval_seconds=0.1,
            stop_grace_seconds=3.0,
            time_scale=60.0,
            agent_time_scale=20.0,
        )

    def to_json(self) -> str:
        """The same options as a JSON object."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, document: str) -> ServerOptions:
        """Reads what `to_json` wrote.

        Raises:
            OptionsError: The document is not a JSON object, or has unknown or wrong fields.
        """
        try:
            values: Any = json.loads(document)
        except json.JSONDecodeError as error:
            raise OptionsError([f"not a JSON object: {error}"]) from error
        if not isinstance(values, dict):
            raise OptionsError([f"not a JSON object: {document!r}"])
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise OptionsError([f"unknown option {name}; known: {', '.join(sorted(known))}" for name in unknown])
        return cls(**values)
