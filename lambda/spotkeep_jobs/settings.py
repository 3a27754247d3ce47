"""The settings of each function, one class a function.

The constructs write them with `variables`, and the functions read them with `from_environment`.
A Lambda environment holds 4,096 bytes, so long values lie in a file beside the code, under the same names.
Each synth imports this module, which therefore imports little.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, Json

from spotkeep_jobs.document.deployment_facts import NO_LIMITS, PoolRules, SpendingLimits
from spotkeep_jobs.document.queue import Queues

LONGEST_CHOICE_SECONDS: Final = 50
"""The timeout of the function `search`, in seconds. The launcher that waits for its answer has a minute."""
_PREFIX: Final = "SPOTKEEP_"
_BUNDLE: Final = r"^s3://[^/]+/.+\.pyz$"
_PACKED: Final = Path(__file__).parents[1] / "variables.json"


class FunctionSettings(BaseModel):
    """The settings of every function. Each field is the variable `SPOTKEEP_<FIELD>`. An empty variable is unset."""

    model_config = ConfigDict(frozen=True)

    deployment: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,19}$")]

    @classmethod
    def names(cls) -> frozenset[str]:
        """Return the names of all variables that the function reads."""
        return frozenset(_PREFIX + field.upper() for field in cls.model_fields)

    @classmethod
    def variables(cls, **fields: object) -> dict[str, str]:
        """Return variables as `from_environment` reads them, for some or all of the fields.

        Args:
            fields: Their values. Text stays as it is, so it may hold the CDK's tokens. None is left out.

        Raises:
            TypeError: The function reads no such field.
        """
        if unknown := sorted(fields.keys() - cls.model_fields.keys()):
            raise TypeError(f"{cls.__name__} has no field {', '.join(unknown)}")
        return {
            _PREFIX + field.upper(): value if isinstance(value, str) else json.dumps(value, sort_keys=True)
            for field, value in fields.items()
            if value is not None
        }

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ, *, packed: Path = _PACKED) -> Self:
        """Read the fields.

        Args:
            environment: The variables, which have precedence over those of the file.
            packed: The file, a JSON object of variables, which need not exist.

        Raises:
            pydantic.ValidationError: A variable is missing or wrong. It names each.
        """
        variables = {**(json.loads(packed.read_bytes()) if packed.exists() else {}), **environment}
        given: dict[str, Any] = {
            field: variables[_PREFIX + field.upper()]
            for field in cls.model_fields
            if variables.get(_PREFIX + field.upper())
        }
        return cls.model_validate(given)


class DeploymentSettings(FunctionSettings):
    """The settings that launcher and controller share. The fields of fleets are unset in a deployment without."""

    run_table: str
    checkpoint_bucket: str
    training_bundle_uri: Annotated[str, Field(pattern=_BUNDLE)]
    """Where jobs and instances fetch `spotkeep.pyz`."""
    training_bundle_asset_uri: Annotated[str, Field(pattern=_BUNDLE)]
    """The object that `cdk deploy` uploaded. `training_bundle_uri` is a copy of it."""
    prices: Json[dict[str, float]] = Field(default_factory=dict)
    """On-demand US dollars per hour of an instance, by type."""
    spending_limits: Json[SpendingLimits] = NO_LIMITS
    queues: Json[Queues] = Field(default_factory=dict)
    """The queues of the deployment."""
    schedule_group: str
    """The group of the function's schedules. The controller's are for warm pools, the launcher's for documents."""
    schedule_role_arn: str
    schedule_dead_letter_arn: str
    schedule_function_arn: str
    """The function that these schedules invoke, which is this one."""

    launch_template_id: str | None = None
    fleet_subnets: Json[dict[str, str]] = Field(default_factory=dict)
    """Zones by subnet id."""
    fleet_nodes_security_group_id: str | None = None
    """The security group in which the nodes of a run reach each other."""
    fleet_instance_types: Json[tuple[str, ...]] = ()
    fleet_log_group: str | None = None
    fleet_volume_kms_key_arn: str | None = None
    volume_retention_days: Annotated[int, Field(ge=0)] | None = None
    """Days for which the volume of a run that is over is kept. None keeps it for ever."""

    @property
    def pool_rules(self) -> PoolRules:
        """The rules for warm pools. Reminders and limits are the controller's, which reconciles every pool."""
        return PoolRules(reminder_lead_seconds=0)

    @property
    def schedules_pools(self) -> bool:
        """True for the controller, which schedules later reconciliations of a warm pool."""
        return False


class LauncherSettings(DeploymentSettings):
    """The launcher's settings, with its part of each job, its defaults for documents and its bounds."""

    execution_role_arn: str
    default_image: str | None = None
    default_instance_type: str | None = None
    volume_kms_key_arn: str | None = None
    subnet_ids: Json[tuple[str, ...]] = ()
    security_group_ids: Json[tuple[str, ...]] = ()
    max_run_limit_seconds: Annotated[int, Field(gt=0)] | None = None
    max_keep_alive_seconds: Annotated[int, Field(ge=0)] | None = None
    data_locations: Json[tuple[str, ...]] = ()
    mlflow_arns: Json[tuple[str, ...]] = ()
    """The MLflow tracking servers and apps of SageMaker that jobs may log to."""
    file_systems: Json[tuple[str, ...]] = ()
    """The file systems of FSx for Lustre and of Amazon EFS that jobs may mount, by id."""
    secrets: Json[tuple[str, ...]] = ()
    """The secrets that jobs may read, by name or ARN."""
    secret_key_arns: Json[tuple[str, ...]] = ()
    """The KMS keys of those secrets that have one of their own."""
    team_roles: Json[dict[str, str]] = Field(default_factory=dict)
    """The name of each team's role, where it has one of its own."""

    verify_callers: bool = False
    team_members: Json[dict[str, tuple[str, ...]]] = Field(default_factory=dict)
    administrators: Json[tuple[str, ...]] = ()
    shells: bool = False
    """Lets users open shells in runs."""
    tpe_search_function: str | None = None
    """The name of the function `search`, which searches by tpe. None in a deployment without it."""


class ControllerSettings(DeploymentSettings):
    """The controller's settings."""

    launcher_function: str
    """The launcher's name. It advances sweeps, and launches their trials."""
    notification_topic_arn: str
    dead_notification_queue_url: str
    """Where the notifications go that SNS has refused for hours."""
    deployment_metrics: bool = True
    """Writes the dashboard's metrics."""
    pool_reminder_seconds: Annotated[int, Field(ge=0)] = 600
    pool_idle_limit_seconds: Annotated[int, Field(gt=0)] | None = None

    isolated_teams: Json[tuple[str, ...]] = ()
    """Teams with a place of their own for runs, below a prefix of the checkpoint bucket."""
    orphans: Literal["remove", "report"] = "remove"
    """Removes the orphans of runs by rule, or only reports them."""

    @property
    def pool_rules(self) -> PoolRules:
        """The rules for warm pools."""
        return PoolRules(
            reminder_lead_seconds=self.pool_reminder_seconds,
            idle_limit_seconds=self.pool_idle_limit_seconds,
        )

    @property
    def schedules_pools(self) -> bool:
        """True: the controller schedules later reconciliations of a warm pool."""
        return True


class CredentialsSettings(FunctionSettings):
    """The settings of the function `instance_credentials`."""

    instance_role_arn: str
    """The role of the instances that it answers."""
    run_role_arn: str
    """The role that it gives sessions of."""


class WebhookSettings(FunctionSettings):
    """The settings of the webhook."""

    webhook_address_secret_arn: str
    """The team's secret that holds the address."""
    webhook_secret_arn: str
    """The deployment's secret that signatures are made with."""
