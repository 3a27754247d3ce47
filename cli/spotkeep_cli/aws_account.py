"""Looks at the account that a deployment is in, with the user's own credentials; changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from spotkeep_cli.account_check import RUNS_LOOKED_AT, AccountCheck, in_order, wanted_quotas
from spotkeep_cli.own_training_jobs import OwnTrainingJobs
from spotkeep_cli.quotas import read_quotas
from spotkeep_cli.service_roles import read_service_roles
from spotkeep_fleet.service_roles import DRILL_SERVICE_ROLES, FLEET_SERVICE_ROLES
from spotkeep_jobs.backends.ec2.ec2_api import BotoEc2Api
from spotkeep_jobs.backends.ec2.records import DynamoFleetRecords
from spotkeep_jobs.backends.ec2.sweep import FleetSweep, Retention
from spotkeep_jobs.cost.known_prices import KnownPrices
from spotkeep_jobs.functions.orphan_wiring import sources_of
from spotkeep_jobs.orphans.sources import Surroundings
from spotkeep_jobs.orphans.watch import look_at

if TYPE_CHECKING:
    from spotkeep_cli.aws_calls import ClientFactory, Connection
    from spotkeep_cli.quotas import Quota
    from spotkeep_jobs.record.orphan_findings import Finding
    from spotkeep_jobs.record.run_table import RunTable


def check_account(
    *, connection: Connection, client: ClientFactory, table: RunTable, clock: Callable[[], datetime]
) -> AccountCheck:
    """Look for what the reconciler looks for, and at the quotas of the types that runs use.

    Args:
        connection: Where everything is.
        client: Makes a boto3 client of a service.
        table: The run table.
        clock: The time, aware.
    """
    prices = KnownPrices({}, region=connection.region)
    prices.refresh(table, now=clock())
    around = Surroundings(
        table=table,
        deployment=connection.deployment,
        prices=prices,
        s3_usd_per_gigabyte_month=lambda: prices.storage.s3_standard,
        schedule_group=connection.pool_schedule_group or f"{connection.deployment}-pools",
        clock=clock,
    )
    sources = sources_of(
        around=around,
        jobs=OwnTrainingJobs(client("sagemaker"), clock=clock),
        scheduler=client("scheduler"),
        s3=client("s3"),
        checkpoint_bucket=connection.checkpoint_bucket,
        fleets=_fleets(connection=connection, client=client, table=table, clock=clock),
    )
    found: list[Finding] = []
    unreadable: dict[str, str] = {}
    for source in sources:
        seen, problem = look_at(source)
        found += seen
        if problem is not None:
            unreadable[source.name] = problem
    wanted = wanted_quotas(table.list(limit=RUNS_LOOKED_AT))
    quotas, why_not = _quotas(client("service-quotas"), types={instance_type for instance_type, _ in wanted})
    return AccountCheck(
        findings=in_order(found),
        unreadable=unreadable,
        quotas=quotas,
        quotas_unreadable=why_not,
        service_roles=read_service_roles(client("iam"), _needed_roles(connection)),
        wanted=wanted,
        last_look=table.last_look(),
    )


def _fleets(
    *, connection: Connection, client: ClientFactory, table: RunTable, clock: Callable[[], datetime]
) -> FleetSweep | None:
    if not connection.fleet_log_group:
        return None
    return FleetSweep(
        ec2=BotoEc2Api(lambda: client("ec2")),
        records=DynamoFleetRecords(client("dynamodb"), table_name=connection.run_table, retention_days=0),
        table=table,
        deployment=connection.deployment,
        # How long volumes stay is the deployment's affair: those that wait for its rule are no finding.
        retention=Retention(volumes=None, runs=timedelta(0)),
        now=clock,
    )


def _needed_roles(connection: Connection) -> dict[str, str]:
    fleets = FLEET_SERVICE_ROLES if connection.fleet_log_group else {}
    return fleets | (DRILL_SERVICE_ROLES if connection.drill_template_id else {})


def _quotas(client: Any, *, types: set[str]) -> tuple[tuple[Quota, ...], str | None]:
    if not types:
        return (), None
    try:
        return read_quotas(client, types=types), None
    except (BotoCoreError, ClientError) as error:
        return (), str(error)
