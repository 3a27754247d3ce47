"""The controller's settings, read once from the environment that its constructs set."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Json

from spotkeep_jobs.document.deployment_policy import DEFAULT_LONG_WAIT, PoolRules
from spotkeep_jobs.functions.fleet_wiring import FleetSettings
from spotkeep_jobs.functions.function_settings import FunctionSettings


class ControllerSettings(FleetSettings, FunctionSettings):
    """The controller's settings."""

    notification_topic_arn: str
    dead_notification_queue_url: str
    """Where the notifications go that SNS has refused for hours."""
    pool_schedule_group: str
    """The group of the one-time schedules of warm pools."""
    pool_schedule_role_arn: str
    pool_schedule_dead_letter_arn: str
    pool_schedule_function_arn: str
    """What these schedules invoke: the controller itself."""
    waiting_too_long_seconds: Annotated[int, Field(gt=0)] = int(DEFAULT_LONG_WAIT.total_seconds())
    deployment_metrics: bool = True
    """Whether the dashboard's metrics are written."""
    pool_reminder_seconds: Annotated[int, Field(ge=0)] = 600
    pool_idle_limit_seconds: Annotated[int, Field(gt=0)] | None = None
    pool_idle_limit_usd: Annotated[float, Field(gt=0)] | None = None

    checkpoint_bucket: str
    isolated_teams: Json[tuple[str, ...]] = ()
    """Teams whose runs are stored apart."""
    orphans: Literal["remove", "report"] = "remove"
    """Whether what belongs to no live run is removed by rule, or only reported."""

    @property
    def pool_rules(self) -> PoolRules:
        """What this deployment wants of warm pools."""
        return PoolRules(
            reminder_lead_seconds=self.pool_reminder_seconds,
            idle_limit_seconds=self.pool_idle_limit_seconds,
            idle_limit_usd=self.pool_idle_limit_usd,
        )
