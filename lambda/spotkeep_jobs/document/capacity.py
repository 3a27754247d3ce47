"""The capacity of a job, which is its instance types with their disks, and the ladder of fallbacks of a run.

Managed spot takes one instance type a job and never falls back to on-demand by itself. So a run may have fallbacks,
each a job of its own on the same checkpoints. When one finds no capacity, the run tries the next.

A job on a type with NVMe disks of its own gets no EBS volume. AWS says: "Available storage is fixed to the NVMe-type
instance's storage capacity". So its `VolumeSizeInGB` has no effect, and SageMaker refuses a volume key for it, because
its disks encrypt in hardware.

Sources:
    https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ResourceConfig.html (InstancePreferences are for
    on-demand jobs only. VolumeSizeInGB, VolumeKmsKeyId)

    DescribeInstanceTypes, `InstanceStorageInfo.TotalSizeInGB`, as recorded in moto 5.2.5 (2026-10-27), which does not
    have p6e-gb200
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, WithJsonSchema

from spotkeep_jobs.document.instance_types import is_training_type, nearest_types
from spotkeep_jobs.document.reading import DocumentModel, Rule, each_once, read_list, read_text, rule, shown, wrong
from spotkeep_jobs.document.times import LongestWait
from spotkeep_jobs.errors import Problem
from spotkeep_jobs.record.record import Capacity

if TYPE_CHECKING:
    from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
    from spotkeep_jobs.document.request import JobRequest


_INSTANCE_TYPE: Final = r"ml\.[a-z][a-z0-9-]*\.[a-z0-9]+"
_EC2_TYPE: Final = r"[a-z][a-z0-9-]*\.[a-z0-9-]+"
_INSTANCE_SCHEMA: Final = WithJsonSchema({"type": "string", "pattern": f"^(ml\\.)?{_EC2_TYPE}$"}, mode="validation")


def _instance_type(value: object, info: ValidationInfo) -> str:
    """Return a type of the document's backend.

    Where the document names no backend, as a recorded request, take a type of either.
    """
    text = read_text(value)
    backend = (info.context or {}).get("backend")
    if backend == "ec2":
        return _ec2_instance_type(text)
    if re.fullmatch(_INSTANCE_TYPE, text, re.ASCII) or (backend is None and re.fullmatch(_EC2_TYPE, text, re.ASCII)):
        return text
    likely = "ml." + text.strip().lower().removeprefix("ml.")
    known = re.fullmatch(_INSTANCE_TYPE, likely, re.ASCII)
    hint = f"Write {likely}" if known else "Write it as ml.<family>.<size>, for example ml.g5.xlarge"
    raise wrong("is not a SageMaker instance type, which start with ml.", hint)


def _ec2_instance_type(text: str) -> str:
    if re.fullmatch(_EC2_TYPE, text, re.ASCII) and not text.startswith("ml."):
        return text
    likely = text.strip().lower().removeprefix("ml.")
    hint = f"Write {likely}" if re.fullmatch(_EC2_TYPE, likely, re.ASCII) else "Write it as <family>.<size>: g5.xlarge"
    raise wrong("is not an EC2 instance type, which backend: ec2 takes (without ml.)", hint)


InstanceType = Annotated[str, BeforeValidator(_instance_type), _INSTANCE_SCHEMA]
MAX_FALLBACKS: Final = 10


def read_fallbacks(value: object) -> object:
    """Return the fallbacks of a ladder, not empty and not too many."""
    listed = read_list(value)
    if isinstance(listed, list) and not listed:
        raise wrong("is empty", "Give at least one fallback, or leave it out")
    if isinstance(listed, list) and len(listed) > MAX_FALLBACKS:
        raise wrong(f"has {len(listed)} fallbacks; {MAX_FALLBACKS} are allowed", f"Keep the best {MAX_FALLBACKS}")
    return listed


InstanceTypes = Annotated[tuple[InstanceType, ...], AfterValidator(each_once), BeforeValidator(read_list)]


class FallbackRequest(DocumentModel):
    """One fallback of a capacity ladder, with the capacity to ask for and the longest wait."""

    capacity: Literal["spot", "on-demand"] = "spot"
    """spot or on-demand."""
    instance_types: InstanceTypes | None = Field(default=None, examples=[["ml.g5.xlarge", "ml.g5.2xlarge"]])
    """Instance types, best first. Spot tries them one after the other, and on-demand takes the first it can get."""
    instance_type: InstanceType | None = Field(default=None, examples=["ml.g5.xlarge"])
    """The same for a single type."""
    longest_wait: LongestWait | None = Field(default=None, examples=["30m"])
    """The longest wait for capacity before the next fallback. Default: the document's longest_wait."""

    @property
    def types(self) -> tuple[str, ...]:
        """The instance types, however they were given. Empty if none were."""
        if self.instance_types:
            return self.instance_types
        return (self.instance_type,) if self.instance_type else ()


# A `d` among the attributes (g4dn, p4d, r5d) says so, and these families have them without saying.
_LOCAL_DISK_TYPE: Final = re.compile(r"ml\.(?:[a-z]+\d+[a-z]*d[a-z]*|g[5-9]\w*|gr6\w*|p[5-9][\w-]*|trn\w+|i\d\w*)\.\w+")


_GB: Final[Mapping[str, Mapping[str, int]]] = {
    "g4dn": {"xlarge": 125, "2xlarge": 225, "4xlarge": 225, "8xlarge": 900, "12xlarge": 900, "16xlarge": 900},
    "g5": {
        "xlarge": 250, "2xlarge": 450, "4xlarge": 600, "8xlarge": 900, "12xlarge": 3_800, "16xlarge": 1_900,
        "24xlarge": 3_800, "48xlarge": 7_600,
    },
    "g6": {
        "xlarge": 250, "2xlarge": 450, "4xlarge": 600, "8xlarge": 900, "12xlarge": 3_760, "16xlarge": 1_880,
        "24xlarge": 3_760, "48xlarge": 7_520,
    },
    "g6e": {
        "xlarge": 250, "2xlarge": 450, "4xlarge": 600, "8xlarge": 900, "12xlarge": 3_800, "16xlarge": 1_900,
        "24xlarge": 3_800, "48xlarge": 7_600,
    },
    "g7": {
        "2xlarge": 440, "4xlarge": 875, "8xlarge": 930, "12xlarge": 1_900, "24xlarge": 3_800, "48xlarge": 7_600,
    },
    "g7e": {
        "2xlarge": 1_900, "4xlarge": 1_900, "8xlarge": 1_900, "12xlarge": 3_800, "24xlarge": 7_600, "48xlarge": 15_200,
    },
    "p3dn": {"24xlarge": 1_800},
    "p4d": {"24xlarge": 8_000},
    "p4de": {"24xlarge": 8_000},
    "p5": {"4xlarge": 3_800, "48xlarge": 30_400},
    "p5e": {"48xlarge": 30_400},
    "p5en": {"48xlarge": 30_400},
    "p6-b200": {"48xlarge": 30_400},
    "p6-b300": {"48xlarge": 30_400},
    "r5d": {
        "large": 75, "xlarge": 150, "2xlarge": 300, "4xlarge": 600, "8xlarge": 1_200, "12xlarge": 1_800,
        "16xlarge": 2_400, "24xlarge": 3_600,
    },
    "trn1": {"2xlarge": 474, "32xlarge": 7_600},
    "trn1n": {"32xlarge": 7_600},
    "trn2": {"48xlarge": 7_600},
}  # fmt: skip


def has_local_disks(instance_type: str) -> bool:
    """Return True if a type brings NVMe disks of its own, which no volume key may be named for."""
    return _LOCAL_DISK_TYPE.fullmatch(instance_type) is not None


def local_disks_gb(instance_type: str) -> int | None:
    """Return the size of a type's own disks together, in GB. None of a type that has none, or is not known here."""
    family, _, size = instance_type.removeprefix("ml.").partition(".")
    return _GB.get(family, {}).get(size)


def larger_disks(instance_type: str, *, than_gb: int) -> str | None:
    """Return the type of the same family with the smallest disks that hold so much. None where there is none.

    Args:
        instance_type: The instance type. Example: `ml.g5.xlarge`.
        than_gb: The least size of the disks, in GB.
    """
    family = instance_type.removeprefix("ml.").partition(".")[0]
    enough = [(gb, size) for size, gb in _GB.get(family, {}).items() if gb >= than_gb]
    return f"ml.{family}.{min(enough)[1]}" if enough else None


_SHORTEST_JOB_SECONDS: Final = 60
BETWEEN_PASSES_SECONDS: Final = 300
"""The time between two passes of the controller."""
FLEET_ENDS_WITHIN_SECONDS: Final = 960
"""The time in seconds for which a fleet may still bill when the controller last saw that it may go on.

The next pass asks it to end, five minutes later. Its instance has five minutes to save and leave. The pass after that
terminates it. EC2's answers may be a minute old.
"""
_DEFAULT_LONGEST_WAIT_SECONDS: Final = 3_600
_ON_DEMAND_WAITS: Final = timedelta(days=1)
"""The wait of a job on demand, if its document says none."""


@dataclass(frozen=True, kw_only=True)
class Fallback:
    """One kind of capacity to ask for.

    Attributes:
        capacity: Spot or on-demand.
        instance_types: Best first. Managed spot has one. On-demand takes the first it can get, and a fleet any.
        longest_wait_seconds: The longest wait for capacity at a time before the next fallback. None where max_wait or
            the run's deadline ends the waiting.
    """

    capacity: Capacity
    instance_types: tuple[str, ...]
    longest_wait_seconds: int | None = None

    def __str__(self) -> str:
        return f"{self.capacity} {' or '.join(self.instance_types)}"


@dataclass(frozen=True, kw_only=True)
class NextJob:
    """Another job for the run.

    Attributes:
        position: The number of its fallback, from 0.
        fallback: The fallback.
        max_run_seconds: The longest time that it may train.
        because: The reason for the job, in a clause.
        pause_seconds: The wait before its creation, as SageMaker had no capacity a moment ago.
        no_capacity_since: The time since when SageMaker has had no capacity, over the jobs before it. None where
            SageMaker is not asked again.
        max_wait_seconds: The time that a fleet may take in all, waiting included. None for SageMaker, and where nothing
            bounds it.
    """

    position: int
    fallback: Fallback
    max_run_seconds: int
    because: str
    pause_seconds: int = 0
    no_capacity_since: datetime | None = None
    max_wait_seconds: int | None = None


def fallbacks_of(request: JobRequest) -> tuple[Fallback, ...]:
    """Return the fallbacks of a validated request, first to last.

    Args:
        request: Its instance types are filled in.
    """
    if request.capacity != "auto":
        wait = request.longest_wait
        return (Fallback(capacity=request.capacity, instance_types=request.types, longest_wait_seconds=wait),)
    wait = request.longest_wait or _DEFAULT_LONGEST_WAIT_SECONDS
    if request.ladder is None:
        # A fleet chooses among all types by itself. Managed spot takes one.
        groups = [request.types] if request.backend == "ec2" else [(each,) for each in request.types]
        spot = [Fallback(capacity="spot", instance_types=types, longest_wait_seconds=wait) for types in groups]
        on_demand = Fallback(capacity="on-demand", instance_types=request.types, longest_wait_seconds=wait)
        return _until_the_deadline(request, spot if request.spot_only else [*spot, on_demand])
    fallbacks: list[Fallback] = []
    for asked in request.ladder:
        groups = [(each,) for each in asked.types] if asked.capacity == "spot" else [asked.types]
        fallbacks += [
            Fallback(capacity=asked.capacity, instance_types=types, longest_wait_seconds=asked.longest_wait or wait)
            for types in groups
        ]
    return _until_the_deadline(request, fallbacks)


def types_of(request: JobRequest) -> tuple[str, ...]:
    """Return the instance types of all fallbacks of a validated request, each once."""
    return tuple(dict.fromkeys(each for fallback in fallbacks_of(request) for each in fallback.instance_types))


def _until_the_deadline(request: JobRequest, fallbacks: Sequence[Fallback]) -> tuple[Fallback, ...]:
    """Return the fallbacks of a run with a deadline.

    There the policy and the guard send it on demand, and no clock does.
    """
    if request.deadline is None:
        return tuple(fallbacks)
    below = [*(fallback.capacity for fallback in fallbacks[1:]), "on-demand"]
    return tuple(
        replace(fallback, longest_wait_seconds=None) if next_capacity == "on-demand" else fallback
        for fallback, next_capacity in zip(fallbacks, below, strict=True)
    )


def longest_wait_without_a_job(request: JobRequest) -> timedelta:
    """Return the longest wait for a job on the last fallback, for room in a quota or for capacity.

    On spot it is `max_wait` less `max_run`, as a wait without a job counts as one with it.

    Args:
        request: The validated request.
    """
    longest = fallbacks_of(request)[-1].longest_wait_seconds
    if longest is not None:
        return timedelta(seconds=longest)
    if request.max_wait is not None:
        return timedelta(seconds=request.max_wait - request.max_run)
    return _ON_DEMAND_WAITS


def on_demand_below(fallbacks: Sequence[Fallback], position: int) -> int | None:
    """Return the first fallback on demand at or below a position. None where there is none."""
    return next((at for at in range(position, len(fallbacks)) if fallbacks[at].capacity == "on-demand"), None)


def first_job(
    request: JobRequest,
    *,
    prices: Mapping[str, float],
    spent_usd: float = 0.0,
    on_demand_because: str | None = None,
    begun_at: datetime | None = None,
) -> NextJob:
    """Return the run's first job, or the first after it was resumed.

    Args:
        request: The validated request.
        prices: On-demand US dollars per instance and hour, by instance type.
        spent_usd: The cost of the run so far, in US dollars.
        on_demand_because: The reason for passing over spot. None where spot is tried.
        begun_at: The time of the launch or the resume. None where the job is judged alone.

    Returns:
        Its `max_run_seconds` are below `shortest_job_seconds` when max_cost pays for no more.
    """
    fallbacks = fallbacks_of(request)
    position = (on_demand_below(fallbacks, 0) or 0) if on_demand_because is not None else 0
    fallback = fallbacks[position]
    affordable = affordable_seconds(request, fallback, spent_usd=spent_usd, prices=prices)
    seconds = affordable_run(request, longest=request.max_run, affordable=affordable)
    because = on_demand_because or "the run was asked for"
    return NextJob(
        position=position,
        fallback=fallback,
        max_run_seconds=seconds,
        because=because,
        max_wait_seconds=request.max_wait if begun_at is None else fleet_seconds(request, begun_at=begun_at),
    )


def fleet_seconds(request: JobRequest, *, begun_at: datetime) -> int | None:
    """Return the time that a run on fleets may take in all, in seconds. None where nothing bounds it.

    With a deadline it may wait until then, and train for one max_run more.

    Args:
        request: The validated request.
        begun_at: The time of its launch or resume.
    """
    deadline_at = request.deadline_at(begun_at)
    if request.max_wait is not None or request.backend != "ec2" or deadline_at is None:
        return request.max_wait
    return request.max_run + max(0, int((deadline_at - begun_at).total_seconds()))


def shortest_job_seconds(request: JobRequest) -> int:
    """Return the shortest training time, in seconds, for which a job is worth its start."""
    return min(_SHORTEST_JOB_SECONDS, request.max_run)


def price_of(types: Sequence[str], *, prices: Mapping[str, float]) -> float | None:
    """Return on-demand US dollars per instance and hour, of several types the dearest. None when one is not known."""
    known = [prices[each] for each in types if each in prices]
    return max(known) if known and len(known) == len(types) else None


def affordable_seconds(
    request: JobRequest, fallback: Fallback, *, spent_usd: float, prices: Mapping[str, float]
) -> int | None:
    """Return how long a fallback may be paid for at its on-demand price. None when there is no bound, or no price.

    The warm pool that the job may leave is paid for as well. So is the time until a fleet has ended.
    """
    price = price_of(fallback.instance_types, prices=prices)
    if request.max_cost is None or price is None:
        return None
    # A whole second is not to be lost to the last bit of a quotient.
    return int((request.max_cost - spent_usd) * 3_600 / (price * request.hosts) + 1e-6) - _paid_after(request)


def least_max_cost(request: JobRequest, fallback: Fallback, *, prices: Mapping[str, float]) -> float:
    """Return the least max_cost, in whole cents of US dollars, that pays for a start. Its types have known prices."""
    price = price_of(fallback.instance_types, prices=prices) or 0.0
    seconds = shortest_job_seconds(request) + _paid_after(request)
    return math.ceil(seconds * price * request.hosts / 36) / 100


def _paid_after(request: JobRequest) -> int:
    """Return the seconds that are paid for after the training of a job."""
    return FLEET_ENDS_WITHIN_SECONDS if request.backend == "ec2" else request.keep_alive


def affordable_run(request: JobRequest, *, longest: int, affordable: int | None) -> int:
    """Return the longest training time of a job in seconds, cut to the time that max_cost pays for.

    A fleet that is worth its start is not cut, because the controller counts its cost and ends it.

    Args:
        request: The validated request.
        longest: The longest training time without max_cost.
        affordable: The result of `affordable_seconds`.
    """
    if affordable is None or (request.backend == "ec2" and affordable >= shortest_job_seconds(request)):
        return longest
    return min(longest, affordable)


_MAX_INSTANCE_TYPES: Final = 5
"""The most instance types of a training job.

Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ResourceConfig.html
"""
_MAX_FLEET_TYPES: Final = 40


@rule("backend", "instance_types", "instance_type", "capacity", "ladder")
def _instance_types_fit(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.instance_types and request.instance_type:
        yield _given_twice("instance_type", request.instance_type)
        return
    types = request.types
    if request.ladder is not None:
        if types:
            yield Problem(
                field="instance_types",
                found=", ".join(types),
                problem="is given together with ladder, whose fallbacks name their own",
                fix="Move the types into the fallbacks, or remove ladder.",
            )
    elif not types:
        example = "g5.xlarge" if request.backend == "ec2" else "ml.g5.xlarge"
        yield Problem(
            field="instance_types",
            found="nothing",
            problem="is required: this deployment has no default instance type",
            fix=f"Name at least one instance type, for example {example}.",
        )
    elif len(types) > (most := _MAX_FLEET_TYPES if request.backend == "ec2" else _MAX_INSTANCE_TYPES):
        yield _too_many("instance_types", types, most=most, fix=f"Keep the best {most}.")
    elif len(types) > 1 and request.capacity == "spot" and request.backend != "ec2":
        yield Problem(
            field="instance_types",
            found=", ".join(types),
            problem="names several instance types; managed spot takes one",
            fix=f"Choose capacity: auto, which tries one after the other, or keep one, for example {types[0]}.",
        )


@rule("backend", "instance_types", "instance_type", "ladder")
def _types_train(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.backend == "ec2":
        return
    places = {"instance_types": request.types}
    places |= {
        f"ladder[{number}].instance_types": fallback.types for number, fallback in enumerate(request.ladder or ())
    }
    for field, types in places.items():
        for each in types:
            if is_training_type(each, priced=defaults.prices):
                continue
            near = nearest_types(each)
            meant = f"Did you mean {' or '.join(near)}?" if near else "Name a type that SageMaker trains on."
            yield Problem(
                field=field,
                found=shown(each),
                problem="is no instance type of SageMaker's training jobs",
                fix=f"{meant} A type that is newer than this version needs a price in the setting `prices`.",
            )


@rule("backend", "volume_size_gb", "instance_types", "instance_type", "ladder")
def _storage_is_there(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.backend == "ec2":
        return
    for each in dict.fromkeys(request.every_type):
        disks = local_disks_gb(each)
        if disks is not None and disks < request.volume_size_gb:
            larger = larger_disks(each, than_gb=request.volume_size_gb)
            yield Problem(
                field="volume_size_gb",
                found=f"{request.volume_size_gb:,}",
                problem=f"is more than {each} has: SageMaker gives it no volume, and its own disks hold {disks:,} GB",
                fix=f"Choose {larger or 'a type without disks of its own'}, or give {disks:,} at most.",
            )


def _longest_wait_means_something(request: JobRequest) -> Iterator[Problem]:
    if request.queue is not None:
        yield Problem(
            field="longest_wait",
            found=shown(request.queue),
            problem="is given with a queue, in which a job waits for its turn as long as it takes",
            fix="Remove longest_wait, or remove queue.",
        )
    elif request.capacity == "spot":
        yield Problem(
            field="longest_wait",
            found="spot",
            problem="is given with capacity: spot, whose wait max_wait bounds",
            fix="Choose capacity: auto or on-demand, or give max_wait instead.",
        )


@rule("backend", "capacity", "queue", "ladder", "longest_wait")
def _ladder_fits(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.capacity != "auto":
        if request.ladder is not None:
            yield Problem(
                field="ladder",
                found=shown(request.capacity),
                problem=f"is given with capacity: {request.capacity}, which asks for one kind of capacity only",
                fix="Choose capacity: auto, or remove ladder.",
            )
        if request.longest_wait is not None:
            yield from _longest_wait_means_something(request)
        return
    for number, fallback in enumerate(request.ladder or ()):
        place = f"ladder[{number}]"
        if fallback.instance_types and fallback.instance_type:
            yield _given_twice(f"{place}.instance_type", fallback.instance_type)
        elif not fallback.types:
            yield Problem(
                field=f"{place}.instance_types",
                found="nothing",
                problem="is required",
                fix="Name at least one instance type, for example ml.g5.xlarge.",
            )
        elif len(fallback.types) > (most := _MAX_INSTANCE_TYPES):
            fix = f"Keep the best {most}, or add a fallback."
            yield _too_many(f"{place}.instance_types", fallback.types, most=most, fix=fix)


@rule("capacity", "ladder", "spot_only")
def _spot_only_is_kept(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if not request.spot_only:
        return
    places = [
        f"ladder[{n}].capacity" for n, fallback in enumerate(request.ladder or ()) if fallback.capacity == "on-demand"
    ]
    for place in ["capacity", *places] if request.capacity == "on-demand" else places:
        yield Problem(
            field=place,
            found="on-demand",
            problem="is on demand, and spot_only forbids that",
            fix="Make it spot, or remove spot_only.",
        )


def _given_twice(field: str, value: object) -> Problem:
    problem, fix = "is given together with instance_types", "Give one of the two."
    return Problem(field=field, found=shown(value), problem=problem, fix=fix)


def _too_many(field: str, types: Sequence[str], *, most: int, fix: str) -> Problem:
    problem = f"names more than {most} instance types"
    return Problem(field=field, found=f"{len(types)} types", problem=problem, fix=fix)


RULES: Final[tuple[Rule, ...]] = (
    _instance_types_fit,
    _types_train,
    _storage_is_there,
    _ladder_fits,
    _spot_only_is_kept,
)


SPOT_WITHOUT_CHECKPOINTS: Final = "spot without checkpoints starts over after an interruption."
"""The warning of a job that may be interrupted, and has nothing to go on from."""


def capacity_warnings(request: JobRequest) -> Iterator[str]:
    """Yield warnings of instances that are allowed and probably not meant."""
    own_disks = [each for each in types_of(request) if request.backend == "sagemaker" and has_local_disks(each)]
    if own_disks and request.volume_size_gb != type(request).model_fields["volume_size_gb"].default:
        disks = local_disks_gb(own_disks[0])
        yield (
            f"volume_size_gb {request.volume_size_gb:,} has no effect on {own_disks[0]}: SageMaker gives it no volume, "
            f"and its own disks are its storage{'' if disks is None else f', {disks:,} GB'}."
        )
    if request.capacity != "on-demand" and not request.checkpoints and request.backend == "sagemaker":
        yield SPOT_WITHOUT_CHECKPOINTS
