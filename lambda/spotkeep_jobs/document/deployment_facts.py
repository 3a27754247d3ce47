"""The facts of a deployment by which documents are judged: defaults, policy, limits and prices. Pure."""

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
    """The ceilings of a deployment; each attribute is the setting of the same name. None: no ceiling.

    Attributes:
        allowed_instance_types: Shell patterns; a type of SageMaker or EC2 is allowed where one of them matches it.
        run_cost_limit_usd: What a run may cost in the worst case, over all its attempts.
        volume_size_limit_gb: Storage of each instance of a job, in GB, or of the volume of a run on EC2, in GiB.
        volume_iops_limit: Provisioned IOPS of the volume of a run on EC2.
        runs_in_flight_limit: How many runs of the deployment may be under way at a time.
    """

    allowed_instance_types: tuple[str, ...] = ("*",)
    run_cost_limit_usd: float | None = None
    volume_size_limit_gb: int | None = None
    volume_iops_limit: int | None = None
    runs_in_flight_limit: int | None = None


NO_LIMITS: Final = SpendingLimits()


@dataclass(frozen=True, kw_only=True)
class PoolRules:
    """What a deployment wants of warm pools.

    Attributes:
        reminder_lead_seconds: How long before its expiry users are reminded of a pool; 0 for no reminder.
        idle_limit_seconds: A pool that has waited longer is stopped; None for no such limit.
    """

    reminder_lead_seconds: int = 600
    idle_limit_seconds: int | None = None


@dataclass(frozen=True, kw_only=True)
class DeploymentPolicy:
    """What a decision needs to know of the deployment.

    Attributes:
        name: For the notifications.
        prices: On-demand US dollars per instance and hour, by instance type.
        long_wait: A wait for capacity that is worth a notification.
        pool_rules: What it wants of warm pools.
        limits: What a run may spend.
    """

    name: str
    prices: Mapping[str, float]
    long_wait: timedelta = DEFAULT_LONG_WAIT
    pool_rules: PoolRules = field(default_factory=PoolRules)
    limits: SpendingLimits = NO_LIMITS


@dataclass(frozen=True, kw_only=True)
class DeploymentDefaults:
    """What a deployment fills in and insists on.

    Attributes:
        image: the container image of documents that name none; their instance types fill in `{processor}`.
        instance_type: the instance type of documents that name none.
        checkpoint_bucket: the bucket that runs write and read, each below its prefix.
        data_locations: where else runs may read, `s3://<bucket>/<prefix>/` each; None where that is not known.
        mlflow_arns: SageMaker's MLflow that jobs may log to; None where that is not known.
        max_run_limit_seconds: the longest that a job may train, on SageMaker or on EC2, where it is known.
        prices: on-demand US dollars per instance and hour, by instance type.
        max_keep_alive_seconds: the longest a warm pool may be kept, where the deployment says so.
        isolated_teams: the teams whose runs live apart, below a prefix of their own.
        teams: the teams that have a role of their own; None where that is not known.
        fleet_instance_types: the EC2 types of documents that name none; None where the deployment has no fleets.
        limits: what a run may spend.
        shells: whether users may open shells in runs; None where that is not known.
        queues: the deployment's queues by name; None where that is not known.
        training_network: whether its SageMaker jobs are in a VPC of their own; None where that is not known.
        region: where its jobs run, which says whose account AWS's images are in; None where that is not known.
    """

    image: str | None = None
    instance_type: str | None = None
    checkpoint_bucket: str | None = None
    data_locations: tuple[str, ...] | None = None
    mlflow_arns: tuple[str, ...] | None = None
    max_run_limit_seconds: int | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    max_keep_alive_seconds: int | None = None
    isolated_teams: tuple[str, ...] = ()
    teams: tuple[str, ...] | None = None
    fleet_instance_types: tuple[str, ...] | None = None
    limits: SpendingLimits = NO_LIMITS
    shells: bool | None = None
    queues: Mapping[str, Queue] | None = None
    training_network: bool | None = None
    region: str | None = None

    def runs_uri(self, team: str | None) -> str:
        """Return what the addresses of all objects begin with that a run of a team may write, with a closing slash."""
        return self._uri(RUNS_PREFIX, team)

    def sources_uri(self, team: str | None) -> str:
        """Return what the addresses of all sources begin with that are uploaded for a team, with a closing slash."""
        return self._uri(SOURCES_PREFIX, team)

    def _uri(self, prefix: str, team: str | None) -> str:
        return f"s3://{self.checkpoint_bucket}/{of_team(prefix, team if team in self.isolated_teams else None)}"


NO_DEFAULTS: Final = DeploymentDefaults()
