"""The launcher's parts on real clients. Those that few invocations need are made when they are needed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import cache

import boto3

from launcher.settings import LauncherSettings
from spotkeep_jobs.backends.batch.api import ServiceJobsApi
from spotkeep_jobs.backends.batch.jobs import ServiceJobs
from spotkeep_jobs.backends.job_files import SpecStore, TrainingBundleStore
from spotkeep_jobs.backends.sagemaker.api import SageMakerTrainingJobs, client_config
from spotkeep_jobs.backends.session_manager import SessionManager
from spotkeep_jobs.cost.known_prices import KnownPrices
from spotkeep_jobs.functions.fleet_wiring import fleet_parts
from spotkeep_jobs.functions.launcher_parts import LauncherParts, launcher_parts
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.schedules.recurring_schedules import RecurringSchedules
from spotkeep_jobs.sweeps.launcher_function import LauncherFunction
from spotkeep_jobs.sweeps.search.tpe_function import TpeFunction, invocation_config


def wired(settings: LauncherSettings) -> tuple[LauncherParts, RunTable, KnownPrices]:
    """Make the parts; return them with table and prices.

    Args:
        settings: The launcher's.
    """
    dynamodb = boto3.client("dynamodb", config=client_config())
    sagemaker = boto3.client("sagemaker", config=client_config())
    prices = KnownPrices(settings.prices, region=sagemaker.meta.region_name)
    table = RunTable(client=dynamodb, table_name=settings.run_table)
    s3 = cache(lambda: boto3.client("s3", config=client_config()))
    batch = cache(lambda: boto3.client("batch", config=client_config()))
    scheduler = cache(lambda: boto3.client("scheduler", config=client_config()))
    systems_manager = cache(lambda: boto3.client("ssm", config=client_config()))
    functions = cache(lambda: boto3.client("lambda", config=invocation_config()))
    jobs = SageMakerTrainingJobs(sagemaker)
    bundle = TrainingBundleStore(s3, asset_uri=settings.training_bundle_asset_uri, uri=settings.training_bundle_uri)
    search = settings.tpe_search_function
    parts = launcher_parts(
        table=table,
        jobs=jobs,
        queues=ServiceJobs(api=ServiceJobsApi(batch), training_jobs=jobs, deployment=settings.deployment, now=_now),
        platform=settings.platform,
        defaults=replace(settings.defaults, prices=prices, region=sagemaker.meta.region_name),
        prices=prices,
        keep_bundle=bundle.keep,
        keep_spec=SpecStore(s3).keep,
        recurring=RecurringSchedules(scheduler, target=settings.schedule_target),
        now=_now,
        fleets=fleet_parts(settings, table=table, dynamodb=dynamodb, prices=prices, now=_now),
        callers=settings.callers,
        sessions=SessionManager(systems_manager) if settings.shells else None,
        tpe=None if search is None else TpeFunction(functions, function=search),
    )
    return parts, table, prices


def this_function(name: str) -> LauncherFunction:
    """Return the launcher's own function, to be invoked once more.

    Args:
        name: Its name.
    """
    return LauncherFunction(cache(lambda: boto3.client("lambda", config=client_config())), function_name=name)


def _now() -> datetime:
    return datetime.now(UTC)
