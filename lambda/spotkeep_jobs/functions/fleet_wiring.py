"""What the functions are made of where fleets are concerned: the parts on real clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import boto3

from spotkeep_jobs.backends.backend import Backend
from spotkeep_jobs.backends.ec2.checks import FleetChecks
from spotkeep_jobs.backends.ec2.ec2_api import Ec2Api
from spotkeep_jobs.backends.ec2.fleet_orphans import FleetOrphans, VolumeRetention
from spotkeep_jobs.backends.ec2.fleet_table import FleetTable
from spotkeep_jobs.backends.ec2.jobs import FleetJobs, FleetOwners, NoFleets
from spotkeep_jobs.backends.ec2.launch import FleetPlatform
from spotkeep_jobs.backends.sagemaker.api import client_config
from spotkeep_jobs.record.table_client import RUN_RETENTION_DAYS

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from spotkeep_jobs.cost.known_prices import KnownPrices
    from spotkeep_jobs.functions.environment import RunEnvironment
    from spotkeep_jobs.record.run_table import RunTable


def fleet_platform(settings: RunEnvironment) -> FleetPlatform | None:
    """Return what this deployment gives every fleet; None where it has none.

    Args:
        settings: The function's settings.
    """
    if settings.launch_template_id is None:
        return None
    return FleetPlatform(
        launch_template_id=settings.launch_template_id,
        subnets=settings.fleet_subnets,
        instance_types=settings.fleet_instance_types,
        log_group=settings.fleet_log_group,
        volume_kms_key_arn=settings.fleet_volume_kms_key_arn,
    )


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
    settings: RunEnvironment,
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
        prices: The prices of instances and storage, as they become known.
        now: The time, aware.
    """
    records = FleetTable(dynamodb, table_name=settings.run_table, retention_days=RUN_RETENTION_DAYS)
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
        ec2=ec2,
        template_id=platform.launch_template_id,
        subnets=platform.subnets,
        deployment=settings.deployment,
        now=now,
    )
    return FleetParts(jobs=jobs, owners=owners, ec2=ec2, records=records, checks=checks)


def fleet_orphans_of(
    settings: RunEnvironment, *, parts: FleetParts, table: RunTable, now: Callable[[], datetime]
) -> FleetOrphans | None:
    """Wire what removes orphans of fleets; None in a deployment without fleets.

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
        retention=VolumeRetention(
            volumes=None if days is None else timedelta(days=days),
            runs=timedelta(days=RUN_RETENTION_DAYS),
        ),
        now=now,
    )
