"""Deployments on the models of AWS, as launcher and controller see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast

from spotkeep_fleet.training_spec import SPEC_CHANNEL, TrainingSpec, decode_spec
from spotkeep_jobs.backends.batch.api import ServiceJobsApi
from spotkeep_jobs.backends.batch.jobs import ServiceJobs
from spotkeep_jobs.backends.sagemaker.api import SageMakerTrainingJobs
from spotkeep_jobs.backends.sagemaker.training_job import JobPlatform
from spotkeep_jobs.cost.prices import KnownPrices
from spotkeep_jobs.deployment import Clients, Deployment
from spotkeep_jobs.document.command import SpecObject
from spotkeep_jobs.document.deployment_facts import DeploymentDefaults, DeploymentPolicy
from spotkeep_jobs.pools.scheduler_api import ScheduleTarget
from spotkeep_jobs.record.record import Ending, Run, RunChange
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.states import EndReason, RunState
from spotkeep_jobs.runs.callers import CallerRules
from spotkeep_jobs.runs.launch_completion import LaunchCompletion
from spotkeep_jobs.settings import ControllerSettings, LauncherSettings
from tests.models.batch import Batch
from tests.models.clock import Clock
from tests.models.functions import Functions
from tests.models.notifications import SqsQueue, Topic
from tests.models.s3 import BUCKET, Objects
from tests.models.sagemaker import SageMaker
from tests.models.scheduler import Schedules

PLATFORM: Final = JobPlatform(
    deployment="spotkeep",
    checkpoint_bucket="checkpoints",
    execution_role_arn="arn:aws:iam::123456789012:role/spotkeep-execution",
    training_bundle_uri="s3://checkpoints/bundles/0123abcd/spotkeep.pyz",
)
DEFAULTS: Final = DeploymentDefaults(
    image="123456789012.dkr.ecr.us-east-1.amazonaws.com/training:1",
    instance_type="ml.m5.xlarge",
    checkpoint_bucket="checkpoints",
)
PRICES: Final = {"ml.m5.xlarge": 0.23}
_SHARED: Final[Mapping[str, Any]] = {
    "deployment": "spotkeep",
    "run_table": "runs",
    "checkpoint_bucket": "checkpoints",
    "training_bundle_uri": PLATFORM.training_bundle_uri,
    "training_bundle_asset_uri": "s3://assets/4567.pyz",
    "schedule_role_arn": "role",
    "schedule_dead_letter_arn": "queue",
}
LAUNCHER: Final = LauncherSettings(
    **_SHARED,
    schedule_group="launches",
    schedule_function_arn="launcher",
    execution_role_arn=PLATFORM.execution_role_arn,
)
CONTROLLER: Final = ControllerSettings(
    **_SHARED,
    schedule_group="pools",
    schedule_function_arn="controller",
    launcher_function="spotkeep-launcher",
    notification_topic_arn="topic",
    dead_notification_queue_url="queue",
)
_DeploymentT = TypeVar("_DeploymentT", bound=Deployment[Any])
TARGET: Final = ScheduleTarget.of(LAUNCHER)
_SPEC_TEXTS: dict[str, bytes] = {}


def keep_spec(spec: SpecObject) -> None:
    """Put a spec."""
    _SPEC_TEXTS[spec.uri] = spec.content


NOTHING_TO_COPY: Final = SimpleNamespace(keep=lambda *_: None)
"""Stands for the bundle, where a test has no model of S3."""
KEPT_SPECS: Final = SimpleNamespace(keep=keep_spec)
"""Stands for the training specs in S3."""


def jobs_of(sagemaker: SageMaker) -> SageMakerTrainingJobs:
    """Return the backend on a model of SageMaker."""
    return SageMakerTrainingJobs(sagemaker)  # type: ignore[arg-type]


def queues_on(jobs: Any, batch: Batch | None = None, *, now: Callable[[], datetime] | None = None) -> ServiceJobs:
    """Return the queues of a deployment, on a model of AWS Batch or on none that answers."""
    return ServiceJobs(api=ServiceJobsApi(lambda: batch), training_jobs=jobs, deployment="spotkeep", now=now or Clock())


def launcher_on(
    table: RunTable,
    sagemaker: SageMaker,
    *,
    settings: Mapping[str, Any] | None = None,
    clients: Mapping[str, Any] | None = None,
    callers: CallerRules | None = None,
    now: Callable[[], datetime] | None = None,
    sleep: Callable[[float], None] = lambda _seconds: None,
    **made: Any,
) -> Deployment[LauncherSettings]:
    """Return a deployment as its launcher sees it.

    Args:
        table: The run table.
        sagemaker: The model of SageMaker.
        settings: The settings that are not the usual ones.
        clients: The models of other services that are not the usual ones, as `Clients` names them.
        callers: The rules for callers; None to verify no caller.
        now: The time; None for SageMaker's.
        sleep: Lets the function wait for so many seconds.
        made: Properties of the deployment that a test makes itself.
    """
    defaults = made.setdefault("defaults", DEFAULTS)
    made = {"platform": PLATFORM, "training_bundle": NOTHING_TO_COPY, "specs": KEPT_SPECS} | made
    change = {"spending_limits": defaults.limits, "max_keep_alive_seconds": defaults.max_keep_alive_seconds}
    if callers is not None:
        change |= {
            "verify_callers": True,
            "team_members": callers.team_members,
            "administrators": tuple(callers.administrators),
        }
    return _made(
        Deployment(
            settings=LAUNCHER.model_copy(update=change | dict(settings or {})),
            clients=clients_on(sagemaker, clients),
            now=now or sagemaker.now,
            wait=sleep,
        ),
        table,
        made,
    )


def controller_on(
    table: RunTable,
    sagemaker: SageMaker,
    *,
    settings: Mapping[str, Any] | None = None,
    clients: Mapping[str, Any] | None = None,
    now: Callable[[], datetime] | None = None,
    **made: Any,
) -> Deployment[ControllerSettings]:
    """Return a deployment as its controller sees it.

    Args:
        table: The run table.
        sagemaker: The model of SageMaker.
        settings: The settings that are not the usual ones.
        clients: The models of other services that are not the usual ones, as `Clients` names them.
        now: The time; None for SageMaker's.
        made: Properties of the deployment that a test makes itself.
    """
    return _made(
        Deployment(
            settings=CONTROLLER.model_copy(update=dict(settings or {})),
            clients=clients_on(sagemaker, clients),
            now=now or sagemaker.now,
            wait=lambda _seconds: None,
        ),
        table,
        {"training_bundle": NOTHING_TO_COPY} | made,
    )


def clients_on(sagemaker: SageMaker, others: Mapping[str, Any] | None = None) -> Clients:
    """Return the clients of a deployment, on models.

    Args:
        sagemaker: The model of SageMaker.
        others: Models of other services that are not the usual ones, as `Clients` names them.
    """
    usual = {
        "region": "us-east-1",
        "sagemaker": sagemaker,
        "batch": None,
        "logs": sagemaker.logs,
        "sns": Topic(),
        "sqs": SqsQueue(),
        "scheduler": Schedules(now=sagemaker.now),
        "functions": Functions(),
    }
    return cast("Clients", SimpleNamespace(**usual | dict(others or {})))


def _made(deployment: _DeploymentT, table: RunTable, made: dict[str, Any]) -> _DeploymentT:
    """Give a deployment the properties that a test makes itself."""
    prices = made.pop("prices", PRICES)
    known = prices if isinstance(prices, KnownPrices) else KnownPrices(prices, region="us-east-1")
    made = {"table": table, "prices": known} | made
    if "queues" not in made and deployment.clients.batch is None:
        made["queues"] = queues_on(made.get("training_jobs") or deployment.training_jobs, now=deployment.now)
    deployment.__dict__.update(made)
    return deployment


def completion_on(table: RunTable, jobs: Any, *, now: Callable[[], datetime], **made: Any) -> LaunchCompletion:
    """Return what completes launches whose launcher died, as a reconciliation does."""
    policy = DeploymentPolicy(name="spotkeep", prices=made.pop("prices", PRICES), **made.pop("policy", {}))
    made = {"training_jobs": jobs, "policy": policy} | made
    return LaunchCompletion(controller_on(table, SageMaker(), now=now, **made))


def completed_launch(run: str, *, table: RunTable, sagemaker: SageMaker) -> Run:
    """Complete a launch whose launcher died."""
    return completion_on(table, jobs_of(sagemaker), now=sagemaker.now).complete(run)


def end_run(
    table: RunTable,
    sagemaker: SageMaker,
    run: str,
    *,
    state: RunState = RunState.STOPPED,
    paused_at_step: int | None = None,
    **fields: Any,
) -> Run:
    """End a run's job and record it, as a reconciliation does; return the run."""
    before = table.runs.get(run)
    assert before is not None
    attempt = table.runs.attempt(run, before.attempt)
    assert attempt is not None
    sagemaker.becomes(before.job_name, state.value.capitalize())
    reason = EndReason.COMPLETED if state is RunState.COMPLETED else EndReason.MAX_RUNTIME_EXCEEDED
    if paused_at_step is not None:
        reason = EndReason.PAUSED
    ended = {"state": state, "ending": Ending(at=before.updated_at, reason=reason, paused_at_step=paused_at_step)}
    return table.runs.commit(
        RunChange(
            run=before.model_copy(update=ended | fields),
            attempt=attempt.model_copy(update=ended),
        )
    )


def spec_in(request: Mapping[str, Any], *, objects: Objects | None = None) -> TrainingSpec:
    """Read the spec that a job's request names as its channel.

    Args:
        request: The parameters of CreateTrainingJob.
        objects: The model of S3 with the spec. None where the launcher has no model of S3.
    """
    [channel] = [each for each in request["InputDataConfig"] if each["ChannelName"] == SPEC_CHANNEL]
    uri = channel["DataSource"]["S3DataSource"]["S3Uri"]
    content = _SPEC_TEXTS[uri] if objects is None else objects.contents[uri.removeprefix(f"s3://{BUCKET}/")]
    return decode_spec(content.decode())
