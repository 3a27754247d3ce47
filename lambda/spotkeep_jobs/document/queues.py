"""The deployment's queues as the setting `queues` names them: AWS Batch's, for SageMaker training jobs. Pure.

Each queue is one service environment and one job queue with quota shares. What is written here is checked as a whole
before anything is deployed; the launcher reads it to judge a job file that names a queue.

Sources: https://docs.aws.amazon.com/batch/latest/userguide/quota-shares.html
    https://docs.aws.amazon.com/batch/latest/userguide/preemption.html
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

MAX_QUEUES: Final = 50
"""Job queues of an account and region."""
MAX_SHARES: Final = 20
"""Quota shares of a job queue."""
MAX_SHARE_TYPES: Final = 5
"""Instance types of a quota share."""
MOST_BORROWED_PERCENT: Final = 1_000
_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,19}")
_TYPE: Final = re.compile(r"ml\.[a-z][a-z0-9-]*\.[a-z0-9-]+")


def _refuse(problem: str, fix: str) -> PydanticCustomError:
    return PydanticCustomError("setting", "{problem}", {"problem": problem, "fix": fix})


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise _refuse("is not a name", "Use 1 to 20 of a-z, 0-9 and '-', a letter first, for example gpu.")
    return value


def _instance_type(value: str) -> str:
    if not _TYPE.fullmatch(value):
        raise _refuse("is not a SageMaker instance type", "Give SageMaker's names, such as ml.g5.2xlarge.")
    return value


QueueName = Annotated[str, AfterValidator(_name)]
InstanceCount = Annotated[int, Field(ge=1, le=10_000)]
InstanceCounts = Annotated[
    dict[Annotated[str, AfterValidator(_instance_type)], InstanceCount], Field(min_length=1, max_length=MAX_SHARE_TYPES)
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
        le=MOST_BORROWED_PERCENT,
        description="of its own instances, how many more it may borrow; without a limit when left out",
    )
    preempt_by_priority: bool = Field(
        default=False, description="whether a job of a higher priority takes the instances of a lower one in the share"
    )

    @model_validator(mode="after")
    def _borrows(self) -> Self:
        if self.borrow_limit_percent is not None and self.lending != "lend-and-borrow":
            raise _refuse(
                f"has a borrow_limit_percent with lending {self.lending}, which borrows nothing",
                "Remove borrow_limit_percent, or choose lending: lend-and-borrow.",
            )
        return self


class Queue(_Part):
    """A queue, with what may run in it at a time, and its shares."""

    types: InstanceCounts = Field(description="how many instances of each type may run at a time: {ml.g5.2xlarge: 20}")
    shares: dict[QueueName, Share] = Field(
        min_length=1, max_length=MAX_SHARES, description="its quota shares by name, one at least"
    )

    @model_validator(mode="after")
    def _shares_fit(self) -> Self:
        for name, share in self.shares.items():
            unknown = [each for each in share.types if each not in self.types]
            if unknown:
                raise _refuse(
                    f"has a share {name} of {', '.join(unknown)}, which is not among the queue's types",
                    "Add the type to the queue, or remove it from the share.",
                )
        for instance_type, most in self.types.items():
            given = sum(share.types.get(instance_type, 0) for share in self.shares.values())
            if given > most:
                raise _refuse(
                    f"gives its shares {given} of {instance_type} and has {most}",
                    "Raise the queue's number, or lower the shares'.",
                )
        return self


Queues = Annotated[dict[QueueName, Queue], Field(max_length=MAX_QUEUES)]


def job_queue_name(*, deployment: str, queue: str) -> str:
    """Return the name of a queue's job queue in AWS Batch."""
    return f"{deployment}-{queue}"
