"""What a deployment fills in and insists on, and what is derived from other fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from spotkeep_fleet.run_prefixes import RUNS_PREFIX, SOURCES_PREFIX, of_team
from spotkeep_jobs.document.deployment_policy import NO_LIMITS, SpendingLimits
from spotkeep_jobs.document.framework_images import ALGORITHM_IMAGES, FRAMEWORK_IMAGES
from spotkeep_jobs.document.limits import DAY_SECONDS, MAX_WAIT_SECONDS, NO_CHECKPOINTS_SPOT_SECONDS
from spotkeep_jobs.document.queues import Queue
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.training_image import aws_image, default_image_for, saves_checkpoints
from spotkeep_jobs.with_changes import with_changes


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


def with_defaults(request: JobRequest, *, given: set[Any], defaults: DeploymentDefaults) -> JobRequest:
    """Fill in what depends on other fields or on the deployment, so that the record says all that was decided."""
    on_ec2 = request.backend == "ec2"
    limit = defaults.max_run_limit_seconds
    default_types: tuple[str, ...] = (defaults.instance_type,) if defaults.instance_type else ()
    if on_ec2:
        default_types = defaults.fleet_instance_types or ()
    share = request.share
    if request.queue is not None and (queue := (defaults.queues or {}).get(request.queue)) is not None:
        share = share or (next(iter(queue.shares)) if len(queue.shares) == 1 else None)
        of_share = queue.shares[share].types if share in queue.shares else queue.types
        default_types = tuple(of_share) if len(of_share) == 1 else ()
    types = request.types or (default_types if request.ladder is None else ())
    max_run = request.max_run if "max_run" in given or limit is None else min(request.max_run, limit)
    max_wait = request.max_wait
    checkpoints = request.checkpoints
    if request.algorithm is not None and "checkpoints" not in given:
        checkpoints = saves_checkpoints(request.algorithm)
    # A ladder that is given is meant to be used: capacity need not say so. A deadline needs fallbacks.
    laddered = request.ladder is not None or (request.deadline is not None and not request.spot_only)
    capacity = "auto" if laddered and "capacity" not in given else request.capacity
    # A fleet on demand waits as one on spot does, and its instances bill while none of them trains.
    if max_wait is None and (capacity == "spot" or on_ec2):
        longest = MAX_WAIT_SECONDS if checkpoints or on_ec2 else NO_CHECKPOINTS_SPOT_SECONDS
        max_wait = min(max_run + DAY_SECONDS, longest)
    every_type = types or request.every_type
    image, framework, algorithm = request.image, request.framework, request.algorithm
    # The deployment's default image is for commands: no document asks for its entry point.
    if request.command is not None and image is None and framework is None and algorithm is None and not on_ec2:
        image = default_image_for(defaults.image, instance_types=every_type)
    if image is None and framework is not None and defaults.region is not None:
        image = aws_image(FRAMEWORK_IMAGES[framework], region=defaults.region, instance_types=every_type)
        framework = framework if image is None else None
    if image is None and algorithm is not None and defaults.region is not None and not on_ec2:
        image = aws_image(ALGORITHM_IMAGES[algorithm], region=defaults.region, instance_types=every_type)
    if not (request.instance_types and request.instance_type):
        request = with_changes(request, instance_types=types or None, instance_type=None)
    return with_changes(
        request,
        image=image,
        framework=framework,
        checkpoints=checkpoints,
        max_run=max_run,
        max_wait=max_wait,
        capacity=capacity,
        share=share,
    )
