"""The settings of the local AWS, as one frozen value, handed to the daemon as JSON on its command line.

The defaults are SageMaker's own behaviour where AWS documents one, such as 120 s between SIGTERM and SIGKILL. Elsewhere
they are short, so that a rehearsal takes seconds. `ServerOptions.fast()` is for tests.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass

from spotkeep_local.hosts.isolation import Isolation

_Seconds = Annotated[float, Field(ge=0, le=3600, strict=True)]
_Scale = Annotated[float, Field(ge=1, le=1000, strict=True)]


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class ServerOptions:
    """Settings of one local AWS.

    Attributes:
        region: The region of clients and resources.
        account_id: The twelve digits that appear in ARNs.
        sync_interval_seconds: The seconds between two comparisons of a job's checkpoint directory with S3.
        upload_delay_seconds: The seconds that one checkpoint file takes to reach S3 (its marker file is there
            meanwhile).
        stop_grace_seconds: The seconds between SIGTERM and SIGKILL when a job is stopped or out of time.
            Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_StopTrainingJob.html
        call_rates: True where calls beyond AWS's rates are refused (`access.call_rates`). They are counted either way.
        isolation: The way in which a job gets its `/opt/ml`, and the kind of an EC2 instance's host. `namespace` has
            namespaces and loop devices, `relocated` process groups with directories for volumes.
        time_scale: The factor by which the local EC2 is faster than AWS with notices, launches, volumes and snapshots.
        agent_time_scale: The factor by which agents on local instances ask for notices more often than on AWS. With a
            large `time_scale` a notice passes between two requests otherwise.
        training_quota: The number of instances of one type that training jobs may use on spot, and as many on demand.
        warm_pool_quota: The number of instances that may be in warm pools, which is 0 in a new AWS account, where jobs
            leave no pool.
        batch_hands_tags_on: True where training jobs that Batch makes get the tags of their service job. AWS does not
            document it. Its own client gives tags to the service job alone.

    Raises:
        ValidationError: Values are out of range. Names every one.
    """

    region: Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")] = "us-east-1"
    account_id: Annotated[str, Field(pattern=r"^\d{12}$")] = "000000000000"
    sync_interval_seconds: Annotated[float, Field(ge=0.01, le=3600, strict=True)] = 0.5
    upload_delay_seconds: _Seconds = 0.0
    stop_grace_seconds: _Seconds = 120.0
    call_rates: Annotated[bool, Field(strict=True)] = True
    isolation: Isolation = Isolation.AUTO
    time_scale: _Scale = 1.0
    agent_time_scale: _Scale = 1.0
    training_quota: Annotated[int, Field(ge=0, strict=True)] = 20
    warm_pool_quota: Annotated[int, Field(ge=0, strict=True)] = 10
    batch_hands_tags_on: Annotated[bool, Field(strict=True)] = False

    @classmethod
    def fast(cls) -> ServerOptions:
        """Return options for tests, with short waits and no limit on the rate of calls."""
        return cls(
            sync_interval_seconds=0.1,
            stop_grace_seconds=10.0,
            call_rates=False,
            time_scale=60.0,
            agent_time_scale=20.0,
        )

    def to_json(self) -> str:
        """Return the same options as a JSON object."""
        return TypeAdapter(ServerOptions).dump_json(self).decode()

    @classmethod
    def from_json(cls, document: str) -> ServerOptions:
        """Read the JSON that `to_json` wrote.

        Raises:
            ValidationError: The document is no JSON object, or has unknown or wrong fields. Names every one.
        """
        return TypeAdapter(ServerOptions).validate_json(document)
