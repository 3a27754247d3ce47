"""The deployment's queues as the setting `queues` names them: AWS Batch's, for SageMaker training jobs. Pure.

Each queue is one service environment and one job queue with quota shares. What is written here is checked as a whole
before anything is deployed; the launcher reads it to judge a job file that names a queue.

How many queues an account has, shares a queue, and instance types a share, are AWS Batch's limits.

Sources: https://docs.aws.amazon.com/batch/latest/userguide/quota-shares.html
    https://docs.aws.amazon.com/batch/latest/userguide/preemption.html
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from spotkeep_jobs.document.values import must, wrong

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
"""How many instances of each type."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Share(_Part):
    """A quota share: the part of a queue's instances that belongs to a team or a project."""

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
    """A queue, with what may run in it at a time, and its shares."""

    types: InstanceCounts = Field(description="how many instances of each type may run at a time: {ml.g5.2xlarge: 20}")
    shares: dict[QueueName, Share] = Field(
        min_length=1, max_length=20, description="its quota shares by name, one at least"
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
