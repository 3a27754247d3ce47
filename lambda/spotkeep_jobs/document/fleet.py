"""Runs on EC2, with the fleets that run them, the number of runs of a document, and the volume that follows each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from pydantic import Field

from spotkeep_fleet.ecr_images import ecr_registry, is_in_public_gallery
from spotkeep_jobs.document.deployment_facts import NO_DEFAULTS
from spotkeep_jobs.document.reading import (
    MAX_RUN_ID_LENGTH,
    RUN_ID_HEX_DIGITS,
    DocumentModel,
    Rule,
    Text,
    WholeNumber,
    excluded,
    outlined,
    rule,
)
from spotkeep_jobs.document.times import format_duration
from spotkeep_jobs.errors import Problem

if TYPE_CHECKING:
    from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
    from spotkeep_jobs.document.request import JobRequest


MAX_RUNS: Final = 15
"""They are recorded in one DynamoDB transaction, of at most 100 items, and created one by one within a minute."""


class VolumeRequest(DocumentModel):
    """The volume that follows a run on EC2, for its data and checkpoints."""

    size_gb: WholeNumber = Field(default=100, ge=1, le=65_536)
    """Its size in GiB, at least the snapshot's. A volume of the run that is smaller grows when it moves."""
    type: Literal["gp3", "gp2", "io2", "io1", "st1", "sc1"] = "gp3"
    """gp3, gp2, io2, io1, st1 or sc1."""
    iops: WholeNumber | None = Field(default=None, ge=100, le=256_000)
    """Provisioned operations a second, of gp3, io1 and io2. Default: the type's own."""
    throughput: WholeNumber | None = Field(default=None, ge=125, le=2_000)
    """MiB/s, of gp3. Default: 125."""
    initialization_rate: WholeNumber | None = Field(default=None, ge=100, le=300)
    """The speed, in MiB/s, at which a volume is filled from its snapshot when the run moves to another zone. It is
    billed by the GiB. Default: blocks are fetched when they are read."""
    snapshot: Text | None = Field(default=None, examples=["snap-0123456789abcdef0"], pattern="^snap-[0-9a-f]{8,17}$")
    """The source of the run's first volume. Default: it begins empty."""
    volume: Text | None = Field(default=None, examples=["vol-0123456789abcdef0"], pattern="^vol-[0-9a-f]{8,17}$")
    """A volume of your own to begin on, which is never deleted. Default: the run makes its own."""
    when_done: Literal["keep", "delete"] = "keep"
    """The end of the volume when the run has completed. It is keep (for as long as the deployment keeps volumes) or
    delete. The volume of a run that failed or was stopped is kept, since the run can be resumed."""


_METADATA_KEY: Final = re.compile(r"[A-Za-z0-9+\-=.,_:@]+", re.ASCII)
_NO_METADATA_KEYS: Final = frozenset({".", "..", "_index"})
"""Instances read their tags in the metadata, which names a path after each.

Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/work-with-tags-in-IMDS.html
"""


class _EbsLimits(NamedTuple):
    """The limits of EBS for a volume type.

    Attributes:
        size_gb: Lowest and highest size, GiB.
        iops: Lowest and highest provisioned IOPS. None where there are none to provision.
        iops_per_gb: The most IOPS for each GiB.

    Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateVolume.html
    """

    size_gb: tuple[int, int]
    iops: tuple[int, int] | None = None
    iops_per_gb: int = 0


_EBS_LIMITS: Final[Mapping[str, _EbsLimits]] = {
    "gp3": _EbsLimits((1, 65_536), (3_000, 80_000), 500),
    "gp2": _EbsLimits((1, 16_384)),
    "io2": _EbsLimits((4, 65_536), (100, 256_000), 1_000),
    "io1": _EbsLimits((4, 16_384), (100, 64_000), 50),
    "st1": _EbsLimits((125, 16_384)),
    "sc1": _EbsLimits((125, 16_384)),
}
_GP3_IOPS_PER_THROUGHPUT: Final = 4
"""Each MiB/s of gp3 beyond the first 125 asks for 4 IOPS ("Amazon EBS General Purpose SSD volumes")."""


@rule("backend")
def _there_are_fleets(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.backend == "ec2" and defaults.fleet_instance_types is None and defaults is not NO_DEFAULTS:
        yield no_fleets()


def no_fleets() -> Problem:
    """Return the problem of a fleet in a deployment that has none."""
    return Problem(
        field="backend",
        found="ec2",
        problem="needs EC2 fleets, and this deployment has none",
        fix="Set ec2_fleets and deploy again, or launch it on SageMaker: remove backend.",
    )


@rule("backend", "channels")
def _channels_are_copied(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    for channel in request.channels if request.backend == "ec2" else ():
        if channel.content_type is not None:
            yield Problem(
                field=f"channels.{channel.name}.content_type",
                found=outlined(channel.content_type),
                problem="is SageMaker's: a script on an instance reads files",
                fix="Remove it.",
            )
        if channel in request.s3_channels and channel.input_mode != "File":
            yield Problem(
                field=f"channels.{channel.name}.input_mode",
                found=channel.input_mode,
                problem="is SageMaker's: an instance copies its channels to the volume, once",
                fix="Use File, or read the objects in the script.",
            )


@rule("backend", "tags")
def _tag_keys_fit_into_the_metadata(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.backend != "ec2":
        return
    for key in request.tags:
        if _METADATA_KEY.fullmatch(key) is None or key in _NO_METADATA_KEYS:
            yield Problem(
                field=f"tags.{key}",
                found=outlined(key),
                problem="is no key of a tag that an instance can read in its metadata; EC2 would launch none",
                fix="Rename it: letters a to z, digits and + - = . , _ : @, without spaces or slashes, and not one of "
                f"{', '.join(sorted(_NO_METADATA_KEYS))}.",
            )


@rule("backend", "name", "run", "runs", "on_demand_base", "capacity", "volume", "checkpoint_prefix")
def _runs_are_independent(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.backend != "ec2":
        return
    if request.on_demand_base > request.runs:
        yield Problem(
            field="on_demand_base",
            found=str(request.on_demand_base),
            problem=f"is more than there are runs ({request.runs})",
            fix=f"Give {request.runs} at most.",
        )
    if request.on_demand_base and request.capacity == "on-demand":
        yield Problem(
            field="on_demand_base",
            found=str(request.on_demand_base),
            problem="is given with capacity: on-demand, which makes all of them on demand",
            fix="Remove it, or choose capacity: spot for the others.",
        )
    if request.runs == 1:
        return
    if request.checkpoint_prefix is not None:
        yield Problem(
            field="checkpoint_prefix",
            found=request.checkpoint_prefix,
            problem=f"is one prefix for {request.runs} runs, of which each needs its own",
            fix="Remove it: each run keeps its checkpoints below its own id.",
        )
    if request.volume is not None and request.volume.volume is not None:
        yield Problem(
            field="volume.volume",
            found=request.volume.volume,
            problem=f"is one volume for {request.runs} runs, and a volume is attached to one instance at a time",
            fix="Make a snapshot of it, and give volume.snapshot: each run then begins on a copy.",
        )
    id_length = len(request.run) if request.run is not None else len(request.name) + 1 + RUN_ID_HEX_DIGITS
    longest = MAX_RUN_ID_LENGTH - len(f"-{request.runs}")
    if id_length > longest:
        yield Problem(
            field="name" if request.run is None else "run",
            found=request.run or request.name,
            problem="leaves no room for the numbers of the runs",
            fix=f"Choose a run id of at most {longest} characters: their ids end with -1 to -{request.runs}.",
        )


@rule("backend", "volume")
def _volume_fits(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    volume = request.volume
    if request.backend != "ec2" or volume is None:
        return
    limits = _EBS_LIMITS[volume.type]
    low, high = limits.size_gb
    if not low <= volume.size_gb <= high:
        yield Problem(
            field="volume.size_gb",
            found=str(volume.size_gb),
            problem=f"is not a size of {volume.type}, which has {low:,} to {high:,} GiB",
            fix=f"Choose {low:,} to {high:,}, or another type.",
        )
    yield from _provisioned_speed_fits(volume)
    if volume.snapshot and volume.volume:
        yield Problem(
            field="volume.snapshot",
            found=volume.snapshot,
            problem="is given together with a volume to begin on",
            fix="Give one of the two.",
        )
    if volume.volume and volume.when_done == "delete":
        yield Problem(
            field="volume.when_done",
            found="delete",
            problem="is given with a volume of your own, which Spotkeep never deletes",
            fix="Remove when_done, and delete the volume yourself when you are done.",
        )


def _provisioned_speed_fits(volume: VolumeRequest) -> Iterator[Problem]:
    limits = _EBS_LIMITS[volume.type]
    if volume.iops is None and limits.iops is not None and volume.type != "gp3":
        yield Problem(
            field="volume.iops",
            found="nothing",
            problem=f"is required: {volume.type} is provisioned",
            fix=f"Give {limits.iops[0]:,} to {limits.iops[1]:,}, or choose gp3.",
        )
    elif volume.iops is not None and limits.iops is None:
        yield Problem(
            field="volume.iops",
            found=str(volume.iops),
            problem=f"cannot be provisioned of {volume.type}",
            fix="Remove it, or choose gp3 or io2.",
        )
    elif volume.iops is not None and limits.iops is not None:
        low, high = limits.iops[0], min(limits.iops[1], max(limits.iops[0], limits.iops_per_gb * volume.size_gb))
        if not low <= volume.iops <= high:
            yield Problem(
                field="volume.iops",
                found=str(volume.iops),
                problem=f"is not what {volume.type} of {volume.size_gb:,} GiB takes: {low:,} to {high:,}",
                fix=f"Choose {low:,} to {high:,}.",
            )
    if volume.throughput is not None and volume.type != "gp3":
        yield Problem(
            field="volume.throughput",
            found=str(volume.throughput),
            problem=f"cannot be provisioned of {volume.type}",
            fix="Remove it, or choose gp3.",
        )
    elif volume.throughput is not None:
        most = (volume.iops or 3_000) // _GP3_IOPS_PER_THROUGHPUT
        if volume.throughput > most:
            yield Problem(
                field="volume.throughput",
                found=str(volume.throughput),
                problem=f"asks for more than the {most:,} MiB/s that {volume.iops or 3_000:,} IOPS allow",
                fix=f"Raise volume.iops to {volume.throughput * _GP3_IOPS_PER_THROUGHPUT:,}, or lower it to {most:,}.",
            )


_NOT_ON_EC2: Final[Mapping[str, str]] = {
    "algorithm": "Remove it: SageMaker's built-in algorithms run in its training jobs alone.",
    "instance_count": "Write nodes: for instances that train together, or runs: for independent trainings.",
    "volume_size_gb": "Write volume: {size_gb: ...}.",
    "ladder": "Remove it: a fleet chooses among all instance_types and zones by itself. capacity: auto goes on demand "
    "after longest_wait.",
    "spot_only": "Remove it: capacity: spot stays on spot.",
    "max_total_run": "Remove it: max_run bounds the training, over all instances.",
    "keep_alive": "Remove it: warm pools are SageMaker's.",
    "team": "Remove it: what an isolated team stores is kept apart on SageMaker alone; instances work below runs/.",
}
"""Fields of a training job that a run on EC2 does not take, and their remedies."""
_DURATIONS: Final = frozenset({"max_total_run", "keep_alive"})
"""Those of them that are durations."""
_ADD_BACKEND: Final = "Add backend: ec2, or remove it."
_ONLY_ON_EC2: Final[Mapping[str, str]] = {
    "volume": _ADD_BACKEND,
    "max_price": _ADD_BACKEND,
    "rebalance": _ADD_BACKEND,
    "instance_metadata": _ADD_BACKEND,
    "runs": "Add backend: ec2, or launch the file several times: what SageMaker's quotas leave room for is known only "
    "job by job, so several could not be launched all or none.",
    "on_demand_base": _ADD_BACKEND,
}


RULES: Final[tuple[Rule, ...]] = (
    *(
        excluded(
            field,
            where=lambda request: request.backend == "ec2",
            reads=("backend",),
            problem="is not taken with backend: ec2",
            fix=fix,
            as_found=format_duration if field in _DURATIONS else outlined,
        )
        for field, fix in _NOT_ON_EC2.items()
    ),
    *(
        excluded(
            field,
            where=lambda request: request.backend == "sagemaker",
            reads=("backend",),
            problem="is not taken with backend: sagemaker",
            fix=fix,
        )
        for field, fix in _ONLY_ON_EC2.items()
    ),
    _there_are_fleets,
    _channels_are_copied,
    _tag_keys_fit_into_the_metadata,
    _runs_are_independent,
    _volume_fits,
)


def fleet_warnings(request: JobRequest) -> Iterator[str]:
    """Yield probable mistakes of a run on EC2."""
    if request.backend != "ec2":
        return
    if not request.checkpoints and request.several_nodes is None:
        yield (
            "checkpoints: false keeps nothing in S3: what the script saves is on the volume alone, and is lost with it."
        )
    if request.image is not None and ecr_registry(request.image) is None and not is_in_public_gallery(request.image):
        yield (
            f"image {request.image} is not in Amazon ECR: each instance pulls it over the internet and without a "
            "login, which Docker Hub, for one, limits. A copy in Amazon ECR is there faster, and always."
        )
    if request.max_cost is not None and request.volume is not None and request.volume.type != "gp3":
        yield (
            f"max_cost does not count the run's volume: the price of {request.volume.type} storage is not known here. "
            "It counts instances, root volumes and snapshots."
        )
    if request.capacity != "on-demand" and len(request.types) == 1:
        yield (
            f"one instance type ({request.types[0]}) is one pool a zone: name several types, and a fleet finds "
            "capacity sooner and loses it less often."
        )
    moves = request.volume if request.several_nodes is None else None
    if moves is not None and moves.initialization_rate is None and moves.size_gb > 200:
        yield (
            f"volume.initialization_rate is not given: after a move to another zone, {moves.size_gb:,} GiB "
            "are fetched block by block as they are read, which is slow."
        )
