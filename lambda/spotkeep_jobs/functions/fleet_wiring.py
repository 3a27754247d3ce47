"""What the functions are made of where fleets are concerned: the settings of it, and the parts on real clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Protocol

import boto3
from pydantic import BaseModel, ConfigDict, Field, Json

from spotkeep_jobs.backends.backend import Backend
from spotkeep_jobs.backends.ec2.checks import FleetChecks
from spotkeep_jobs.backends.ec2.ec2_api import Ec2Api
from spotkeep_jobs.backends.ec2.fleet_orphans import FleetOrphans, Retention
from spotkeep_jobs.backends.ec2.fleet_table import FleetTable
from spotkeep_jobs.backends.ec2.jobs import FleetJobs, NoFleets
from spotkeep_jobs.backends.ec2.launch import FleetPlatform
from spotkeep_jobs.backends.ec2.owners import FleetOwners
from spotkeep_jobs.backends.sagemaker.api import client_config

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from spotkeep_jobs.cost.known_prices import KnownPrices
    from spotkeep_jobs.functions.function_settings import FunctionSettings
    from spotkeep_jobs.record.run_table import RunTable


class FleetSettings(BaseModel):
    """Fields that the functions of a deployment with EC2 fleets have beside their own; all unset without."""

    model_config = ConfigDict(frozen=True)

    launch_template_id: str | None = None
    fleet_subnets: Json[dict[str, str]] = Field(default_factory=dict)
    """Zones by subnet id."""
    fleet_instance_types: Json[tuple[str, ...]] = ()
    fleet_log_group: str | None = None
    fleet_event_bus: str = "default"
    fleet_volume_kms_key_arn: str | None = None
    volume_retention_days: Annotated[int, Field(ge=0)] | None = None
    """How long volumes of runs that are over are kept; None for ever."""

    @property
    def fleet_platform(self) -> FleetPlatform | None:
        """What this deployment gives every fleet; None where it has none."""
        if self.launch_template_id is None:
            return None
        return FleetPlatform(
            launch_template_id=self.launch_template_id,
            subnets=self.fleet_subnets,
            instance_types=self.fleet_instance_types,
            log_group=self.fleet_log_group,
            event_bus=self.fleet_event_bus,
            volume_kms_key_arn=self.fleet_volume_kms_key_arn,
        )


class _OrphanSettings(Protocol):
    """The settings of a function that removes orphans of fleets."""

    @property
    def deployment(self) -> str: ...

    @property
    def run_retention_days(self) -> int: ...

    @property
    def volume_retention_days(self) -> int | None: ...


@dataclass(frozen=True, kw_only=True)
class FleetParts:
    """The parts, wired.

    Attributes:
        jobs: Attempts on fleets, behind the seam.
        owners: The attempts that fleets belong to.
        ec2: EC2; None in a deployment without fleets.
        records: What is recorded of fleets.
        checks: Asks EC2 about requests; None as above.
    """

    jobs: Backend
    owners: FleetOwners
    ec2: Ec2Api | None
    records: FleetTable
    checks: FleetChecks | None = None


def fleet_parts(
    settings: FunctionSettings,
    *,
    platform: FleetPlatform | None,
    dynamodb: DynamoDBClient,
    prices: KnownPrices,
    now: Callable[[], datetime],
) -> FleetParts:
    """Wire the parts on real clients. EC2's is made when it is first needed: most invocations need none.

    Args:
        settings: The function's settings.
        platform: What the deployment gives every fleet; None where it has none.
        dynamodb: A client.
        prices: Of instances and storage, as they become known.
        now: The time, aware.
    """
    records = FleetTable(dynamodb, table_name=settings.run_table, retention_days=settings.run_retention_days)
    if platform is None:
        return FleetParts(
            jobs=NoFleets(), owners=FleetOwners(None, deployment=settings.deployment), ec2=None, records=records
        )
    ec2 = Ec2Api(lambda: boto3.client("ec2", config=client_config()), bundle_uri=settings.training_bundle_uri)
    jobs = FleetJobs(
        ec2=ec2,
        records=records,
        deployment=settings.deployment,
        prices=prices,
        storage_prices=lambda: prices.storage,
        now=now,
    )
    owners = FleetOwners(ec2, deployment=settings.deployment)
    checks = FleetChecks(
        ec2,
        template_id=platform.launch_template_id,
        subnets=platform.subnets,
        deployment=settings.deployment,
        now=now,
    )
    return FleetParts(jobs=jobs, owners=owners, ec2=ec2, records=records, checks=checks)


def fleet_orphans_of(
    settings: _OrphanSettings, *, parts: FleetParts, table: RunTable, now: Callable[[], datetime]
) -> FleetOrphans | None:
    """Wires what removes orphans of fleets; None in a deployment without fleets.

    Args:
        settings: The function's settings.
        parts: Where fleets are.
        table: The run table.
        now: The time, aware.
    """
    if parts.ec2 is None:
        return None
    days = settings.volume_retention_days
    return FleetOrphans(
        ec2=parts.ec2,
        records=parts.records,
        table=table,
        deployment=settings.deployment,
        retention=Retention(
            volumes=None if days is None else timedelta(days=days),
            runs=timedelta(days=settings.run_retention_days),
        ),
        now=now,
    )
