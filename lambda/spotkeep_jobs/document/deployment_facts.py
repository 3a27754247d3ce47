"""The facts of a deployment by which documents are judged, such as defaults, policy, limits and prices. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from spotkeep_fleet.run_prefixes import RUNS_PREFIX, SOURCES_PREFIX, of_team
from spotkeep_jobs.document.queue import Queue

DEFAULT_LONG_WAIT: Final = timedelta(hours=2)


@dataclass(frozen=True, kw_only=True)
class SpendingLimits:
    """The ceilings of a deployment. Each attribute is the setting of the same name, and None means no ceiling.

    Attributes:
        allowed_instance_types: Shell patterns for the types of SageMaker and EC2 that are allowed.
        run_cost_limit_usd: The most US dollars of a run in the worst case, over all its attempts.
        volume_size_limit_gb: Storage of each instance of a job, in GB, or of the volume of a run on EC2, in GiB.
        volume_iops_limit: Provisioned IOPS of the volume of a run on EC2.
        runs_in_flight_limit: The most runs of the deployment that may be under way at a time.
    """

    allowed_instance_types: tuple[str, ...] = ("*",)
    run_cost_limit_usd: float | None = None
    volume_size_limit_gb: int | None = None
    volume_iops_limit: int | None = None
    runs_in_flight_limit: int | None = None


NO_LIMITS: Final = SpendingLimits()


@dataclass(frozen=True, kw_only=True)
class PoolRules:
    """The rules of a deployment for warm pools.

    Attributes:
        reminder_lead_seconds: The time before a pool's expiry at which users get a reminder, or 0.
        idle_limit_seconds: A pool that has waited longer is stopped. None for no such limit.
    """

    reminder_lead_seconds: int = 600
    idle_limit_seconds: int | None = None


@dataclass(frozen=True, kw_only=True)
class DeploymentPolicy:
    """The facts of the deployment that a decision needs.

    Attributes:
        name: For the notifications.
        prices: On-demand US dollars per instance and hour, by instance type.
        long_wait: A wait for capacity that is worth a notification.
        pool_rules: Its rules for warm pools.
        limits: The spending limits of a run.
    """

    name: str
    prices: Mapping[str, float]
    long_wait: timedelta = DEFAULT_LONG_WAIT
    pool_rules: PoolRules = field(default_factory=PoolRules)
    limits: SpendingLimits = NO_LIMITS


@dataclass(frozen=True, kw_only=True)
class DeploymentDefaults:
    """The values that a deployment fills in and insists on.

    Attributes:
        image: The container image of documents that name none, with `{processor}` for their instance types.
        instance_type: The instance type of documents that name none.
        checkpoint_bucket: The bucket that runs write and read, each below its prefix.
        data_locations: Other places that runs may read, `s3://<bucket>/<prefix>/` each, or None where that is not
            known.
        file_systems: The file systems that jobs may mount, by id. None where that is not known.
        mlflow_arns: SageMaker's MLflow that jobs may log to. None where that is not known.
        secrets: The secrets that jobs may read, by name or ARN. None where that is not known.
        max_run_limit_seconds: The longest that a job may train, on SageMaker or on EC2, where it is known.
        prices: On-demand US dollars per instance and hour, by instance type.
        prices_are_known: False where there is no deployment, so that nothing is known of prices.
        max_keep_alive_seconds: The longest a warm pool may be kept, where the deployment says so.
        isolated_teams: The teams with runs that live apart, below a prefix of their own.
        teams: The teams that have a role of their own. None where that is not known.
        fleet_instance_types: The EC2 types of documents that name none. None where the deployment has no fleets.
        nodes_network: True if the nodes of a run reach each other there. None where that is not known.
        limits: The spending limits of a run.
        shells: True if users may open shells in runs. None where that is not known.
        queues: The deployment's queues by name. None where that is not known.
        training_network: True if its SageMaker jobs are in a VPC of their own. None where that is not known.
        region: The region of its jobs, which decides the AWS account of AWS's images. None where that is not known.
    """

    image: str | None = None
    instance_type: str | None = None
    checkpoint_bucket: str | None = None
    data_locations: tuple[str, ...] | None = None
    file_systems: tuple[str, ...] | None = None
    mlflow_arns: tuple[str, ...] | None = None
    secrets: tuple[str, ...] | None = None
    max_run_limit_seconds: int | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    prices_are_known: bool = True
    max_keep_alive_seconds: int | None = None
    isolated_teams: tuple[str, ...] = ()
    teams: tuple[str, ...] | None = None
    fleet_instance_types: tuple[str, ...] | None = None
    nodes_network: bool | None = None
    limits: SpendingLimits = NO_LIMITS
    shells: bool | None = None
    queues: Mapping[str, Queue] | None = None
    training_network: bool | None = None
    region: str | None = None

    def runs_uri(self, team: str | None) -> str:
        """Return the beginning of the addresses of all objects that a run of a team may write, with a closing slash."""
        return self._uri(RUNS_PREFIX, team)

    def sources_uri(self, team: str | None) -> str:
        """Return the beginning of the addresses of all sources that are uploaded for a team, with a closing slash."""
        return self._uri(SOURCES_PREFIX, team)

    def _uri(self, prefix: str, team: str | None) -> str:
        return f"s3://{self.checkpoint_bucket}/{of_team(prefix, team if team in self.isolated_teams else None)}"


NO_DEFAULTS: Final = DeploymentDefaults()
