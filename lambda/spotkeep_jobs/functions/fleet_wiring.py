"""What the functions are made of where fleets are concerned: the parts on real clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
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


@dataclass(frozen=True, kw_only=True)
class FleetParts:
    """What a deployment has for runs on EC2; one without fleets has what refuses them.

    Attributes:
        platform: What it gives every fleet; None in a deployment without.
        jobs: Attempts on fleets, behind the seam.
        owners: The attempts that fleets belong to.
        checks: Asks EC2 about requests; None in a deployment without.
        orphans: Finds and removes orphans of fleets; None in a deployment without.
    """

    platform: FleetPlatform | None = None
    jobs: Backend = field(default_factory=NoFleets)
    owners: FleetOwners = field(default_factory=lambda: FleetOwners(None, deployment=""))
    checks: FleetChecks | None = None
    orphans: FleetOrphans | None = None


def fleet_parts(
    settings: RunEnvironment,
    *,
    table: RunTable,
    dynamodb: DynamoDBClient,
    prices: KnownPrices,
    now: Callable[[], datetime],
) -> FleetParts:
    """Wire the parts on real clients. EC2's is made when it is first needed: most invocations need none.

    Args:
        settings: The function's settings.
        table: The run table.
        dynamodb: A client.
        prices: The prices of instances and storage, as they become known.
        now: The time, aware.
    """
    if settings.launch_template_id is None:
        return FleetParts()
    platform = FleetPlatform(
        launch_template_id=settings.launch_template_id,
        subnets=settings.fleet_subnets,
        instance_types=settings.fleet_instance_types,
        log_group=settings.fleet_log_group,
        volume_kms_key_arn=settings.fleet_volume_kms_key_arn,
    )
    records = FleetTable(dynamodb, table_name=settings.run_table, retention_days=RUN_RETENTION_DAYS)
    ec2 = Ec2Api(lambda: boto3.client("ec2", config=client_config()), bundle_uri=settings.training_bundle_uri)
    days = settings.volume_retention_days
    return FleetParts(
        platform=platform,
        jobs=FleetJobs(
            ec2=ec2,
            records=records,
            deployment=settings.deployment,
            prices=prices,
            storage_prices=lambda: prices.storage,
            now=now,
        ),
        owners=FleetOwners(ec2, deployment=settings.deployment),
        checks=FleetChecks(
            ec2=ec2,
            template_id=platform.launch_template_id,
            subnets=platform.subnets,
            deployment=settings.deployment,
            now=now,
        ),
        orphans=FleetOrphans(
            ec2=ec2,
            records=records,
            table=table,
            deployment=settings.deployment,
            retention=VolumeRetention(
                volumes=None if days is None else timedelta(days=days),
                runs=timedelta(days=RUN_RETENTION_DAYS),
            ),
            now=now,
        ),
    )
