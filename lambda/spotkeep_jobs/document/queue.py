"""The queues of a deployment, as its setting `queues` names them, and the jobs that wait in one.

They are AWS Batch's, for training jobs of SageMaker. Each queue is one service environment and one job queue with quota
shares. The setting is checked as a whole before anything is deployed. The launcher reads it to judge a job file that
names a queue.

AWS Batch limits the queues of an account, the shares of a queue, and the instance types of a share.

Sources: https://docs.aws.amazon.com/batch/latest/userguide/quota-shares.html
    https://docs.aws.amazon.com/batch/latest/userguide/preemption.html
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from spotkeep_jobs.document.reading import Rule, excluded, must, nearest, rule, shown, wrong
from spotkeep_jobs.document.times import DurationOf, format_duration
from spotkeep_jobs.errors import Problem

if TYPE_CHECKING:
    from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
    from spotkeep_jobs.document.request import JobRequest


MAX_PRIORITY: Final = 9_999
"""The highest priority of a service job.

Source: https://docs.aws.amazon.com/batch/latest/APIReference/API_SubmitServiceJob.html
"""
QueueName = Annotated[
    str,
    must(
        re.compile(r"[a-z][a-z0-9-]{0,19}").fullmatch,
        "is not a name",
        "Use 1 to 20 of a-z, 0-9 and '-', a letter first, for example gpu.",
    ),
]
_InstanceType = Annotated[
    str,
    must(
        re.compile(r"ml\.[a-z][a-z0-9-]*\.[a-z0-9-]+").fullmatch,
        "is not a SageMaker instance type",
        "Give SageMaker's names, such as ml.g5.2xlarge.",
    ),
]
InstanceCounts = Annotated[
    dict[_InstanceType, Annotated[int, Field(ge=1, le=10_000)]], Field(min_length=1, max_length=5)
]
"""The number of instances of each type."""
FrontLimit = Annotated[int, DurationOf(lowest=600, highest=86_400)]
"""The longest that a job may stand at the front of its queue, in seconds.

Source: https://docs.aws.amazon.com/batch/latest/APIReference/API_JobStateTimeLimitAction.html (maxTimeSeconds)
"""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Share(_Part):
    """A quota share, which is the part of a queue's instances that belongs to a team or a project."""

    types: InstanceCounts = Field(description="how many instances of each type belong to it: {ml.g5.2xlarge: 12}")
    lending: Literal["reserve", "lend", "lend-and-borrow"] = Field(
        default="lend-and-borrow",
        description="reserve: its idle instances stay its own; lend: others may use them until it needs them; "
        "lend-and-borrow: and it may use those of others",
    )
    borrow_limit_percent: int | None = Field(
        default=None,
        ge=0,
        le=1_000,
        description="of its own instances, how many more it may borrow; without a limit when left out",
    )
    preempt_by_priority: bool = Field(
        default=False, description="whether a job of a higher priority takes the instances of a lower one in the share"
    )

    @model_validator(mode="after")
    def _borrows(self) -> Self:
        if self.borrow_limit_percent is not None and self.lending != "lend-and-borrow":
            raise wrong(
                f"has a borrow_limit_percent with lending {self.lending}, which borrows nothing",
                "Remove borrow_limit_percent, or choose lending: lend-and-borrow.",
            )
        return self


class Queue(_Part):
    """A queue, with the instances that may run in it at a time, and its shares."""

    types: InstanceCounts = Field(description="how many instances of each type may run at a time: {ml.g5.2xlarge: 20}")
    shares: dict[QueueName, Share] = Field(
        min_length=1, max_length=20, description="its quota shares by name, one at least"
    )
    never_fits_limit: FrontLimit | None = Field(
        default=None,
        description="how long a job may stand at the front that asks for more than it may ever have (10m to 24h): then "
        "AWS Batch ends it; without a limit when left out",
    )
    no_capacity_limit: FrontLimit | None = Field(
        default=None,
        description="how long a job may stand at the front for which AWS has no capacity (10m to 24h): then AWS Batch "
        "ends it; without a limit when left out",
    )

    @model_validator(mode="after")
    def _shares_fit(self) -> Self:
        for name, share in self.shares.items():
            unknown = [each for each in share.types if each not in self.types]
            if unknown:
                raise wrong(
                    f"has a share {name} of {', '.join(unknown)}, which is not among the queue's types",
                    "Add the type to the queue, or remove it from the share.",
                )
        for instance_type, most in self.types.items():
            given = sum(share.types.get(instance_type, 0) for share in self.shares.values())
            if given > most:
                raise wrong(
                    f"gives its shares {given} of {instance_type} and has {most}",
                    "Raise the queue's number, or lower the shares'.",
                )
        return self


@dataclass(frozen=True, kw_only=True)
class Reach:
    """The most instances of a type that a share may have at once, when all that it may use is idle.

    Attributes:
        own: Those that belong to it.
        borrowed: Those that it may borrow besides.
    """

    own: int
    borrowed: int

    @property
    def most(self) -> int:
        """Together: a job that needs more never has its turn, and those behind it in the share do not, either."""
        return self.own + self.borrowed


def reach_of(queue: Queue, share_name: str, instance_type: str) -> Reach:
    """Return the instances of a type that a share of a queue may have.

    It borrows instances that others lend, and instances of no share. It never gets instances that others reserve.
    """
    share = queue.shares[share_name]
    own = share.types.get(instance_type, 0)
    if share.lending != "lend-and-borrow":
        return Reach(own=own, borrowed=0)
    reserved = sum(
        other.types.get(instance_type, 0)
        for name, other in queue.shares.items()
        if name != share_name and other.lending == "reserve"
    )
    lent = queue.types.get(instance_type, 0) - own - reserved
    limit = lent if share.borrow_limit_percent is None else own * share.borrow_limit_percent // 100
    return Reach(own=own, borrowed=min(lent, limit))


Queues = Annotated[dict[QueueName, Queue], Field(max_length=50)]


def instances_of(queues: Mapping[str, Queue]) -> dict[str, int]:
    """Return how many instances of each type all queues may have at work together, in alphabetical order."""
    together: Counter[str] = Counter()
    for queue in queues.values():
        together.update(queue.types)
    return dict(sorted(together.items()))


def job_queue_name(*, deployment: str, queue: str) -> str:
    """Return the name of a queue's job queue in AWS Batch.

    No name of a deployment or of a queue holds an underscore, so no two deployments in an account have one job queue.
    """
    return f"{deployment}_{queue}"


@rule("queue", "share", "backend")
def _queue_is_known(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.queue is None:
        return
    if request.backend == "ec2":
        yield Problem(
            field="queue",
            found=shown(request.queue),
            problem="is given with backend: ec2; the queues are for SageMaker training jobs",
            fix="Remove queue, or choose backend: sagemaker.",
        )
        return
    if defaults.queues is None:
        return
    queue = defaults.queues.get(request.queue)
    if queue is None:
        yield Problem(
            field="queue",
            found=shown(request.queue),
            problem="is no queue of this deployment",
            fix=nearest(request.queue, tuple(defaults.queues))
            if defaults.queues
            else "Remove queue, or ask for it in the setting queues.",
        )
    elif request.share is None:
        yield Problem(
            field="share",
            found="nothing",
            problem=f"is required: the queue {request.queue} has several",
            fix=f"Choose {', '.join(queue.shares)}.",
        )
    elif request.share not in queue.shares:
        yield Problem(
            field="share",
            found=shown(request.share),
            problem=f"is no share of the queue {request.queue}",
            fix=nearest(request.share, tuple(queue.shares)),
        )


@rule("queue", "share", "instance_types", "instance_type", "instance_count", "ladder", "capacity")
def _queue_has_the_instances(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.queue is None:
        return
    types = request.types
    if len(types) > 1:
        yield Problem(
            field="instance_types",
            found=", ".join(types),
            problem="names several instance types; a queue counts a job's instances as one type",
            fix=f"Keep one, for example {types[0]}.",
        )
        return
    queue = (defaults.queues or {}).get(request.queue)
    if queue is None or not types:
        return
    (wanted,) = types
    of, most = _most_of(queue, wanted, share=request.share)
    if most == 0:
        known = queue.shares[request.share].types if request.share in queue.shares else queue.types
        yield Problem(
            field="instance_types",
            found=wanted,
            problem=f"is no instance type of {of} {request.queue if of == 'the queue' else request.share}",
            fix=f"Choose {', '.join(known)}.",
        )
        return
    if request.share not in queue.shares:
        return
    reach = reach_of(queue, request.share or "", wanted)
    if request.instance_count > reach.most:
        # AWS Batch takes such a job, and it stands before those behind it for ever.
        yield Problem(
            field="instance_count",
            found=str(request.instance_count),
            problem=f"is more than the share {request.share} may ever have of {wanted}: {reach.own} of its own and "
            f"{reach.borrowed} that it may borrow; the job, and those behind it, would wait for ever",
            fix=f"Ask for {reach.most} at most, or choose another share.",
        )


def _most_of(queue: Queue, instance_type: str, *, share: str | None) -> tuple[str, int]:
    """Return the bound of a type, set by the queue or a share of it, and its number of instances."""
    if instance_type not in queue.types or share not in queue.shares:
        return "the queue", queue.types.get(instance_type, 0)
    return "the share", queue.shares[share].types.get(instance_type, 0)


@rule("queue", "capacity", "ladder", "deadline")
def _queue_goes_with_it(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.queue is None:
        return
    if request.deadline is not None:
        yield Problem(
            field="deadline",
            found=shown(request.deadline),
            problem="is given with a queue, whose turns nothing promises: no choice of ours could keep it",
            fix="Remove deadline and give a priority, or remove queue.",
        )
    elif request.capacity == "auto":
        yield Problem(
            field="ladder" if request.ladder is not None else "capacity",
            found="a ladder" if request.ladder is not None else "auto",
            problem="is given with a queue: a job that left its fallback would lose its turn, and wait for the next",
            fix="Choose capacity: on-demand or spot, with one instance type; or remove queue.",
        )


RULES: Final[tuple[Rule, ...]] = (
    excluded(
        "keep_alive",
        where=lambda request: request.queue is not None,
        reads=("queue", "capacity", "ladder", "deadline"),
        problem="is given with a queue: AWS Batch does not say that a job of it takes a warm pool, or counts one",
        fix="Remove keep_alive, or remove queue.",
        as_found=format_duration,
    ),
    *(
        excluded(
            field,
            where=lambda request: request.queue is None,
            reads=("queue",),
            problem="is given without a queue",
            fix=f"Name the queue as well, or remove {field}.",
        )
        for field in ("share", "priority")
    ),
    _queue_is_known,
    _queue_has_the_instances,
    _queue_goes_with_it,
)


def queue_warnings(request: JobRequest) -> Iterator[str]:
    """Yield probable mistakes of a job in a queue."""
    if request.queue is None:
        return
    if request.capacity == "spot":
        yield (
            "spot in a queue: AWS Batch passes it on and does not say how it counts a job that spot interrupts; "
            "capacity: on-demand is what it documents."
        )
    if not request.checkpoints:
        yield "a queue without checkpoints: a job that is preempted starts over."
