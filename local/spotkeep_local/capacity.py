"""The script of the local AWS's capacity, and its faults, as values that travel as JSON.

On AWS no client can choose the time when a spot instance is reclaimed. Here a script sets it exactly, so that a
rehearsal tests the intended moment.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, TypeAdapter, model_validator
from pydantic.dataclasses import dataclass

_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


_EXACT = ConfigDict(extra="forbid")
_Seconds = Annotated[float, Field(ge=0, strict=True)]
_Part = Annotated[float, Field(ge=0, le=1, strict=True)]
_Switch = Annotated[bool, Field(strict=True)]


class JsonDocument:
    """The base of a dataclass that travels."""

    def to_document(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        document: dict[str, Any] = _adapter(type(self)).dump_python(self, mode="json")
        return document

    @classmethod
    def from_document(cls, document: object) -> Self:
        """Read the document that `to_document` wrote.

        Raises:
            ValidationError: Unknown fields or wrong values. Names every one.
        """
        found: Self = _adapter(cls).validate_python(document)
        return found


def _adapter(kind: type[JsonDocument]) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


@dataclass(frozen=True, kw_only=True, config=_EXACT)
class Interruption:
    """One loss of capacity, with its moment, an optional notice before it, and the return of capacity.

    Attributes:
        at_step: The number of complete steps at which it comes, as the job reports them.
        at_fraction: The part of the job's total steps (0 to 1) at which it comes, as the job reports them.
        at_seconds: The seconds in secondary status Training after which it comes, waiting not counted.
        at_uploads: The number of checkpoint files copied to S3 at which it comes. It counts from the arrival of the
            capacity, with files that were copied again.
        after_uploads: The number of checkpoint files that are copied to S3 between this moment and the interruption. So
            it comes in the middle of the copies of a checkpoint. It waits for these copies for 5 seconds, and for half
            of the steps that are left.
        notice: True where the process gets SIGTERM first, False where the whole group gets SIGKILL at once.
        notice_seconds: The seconds from SIGTERM to the loss of the capacity.
        capacity_returns_after_seconds: The seconds from the loss until new capacity. None is never.
        internal_error: True for an error of SageMaker's own instead of a loss of spot capacity, on demand as well. The
            host is then gone without notice. The job starts again as often as its RetryStrategy says, and then fails
            with InternalServerError.

    Raises:
        ValidationError: Not exactly one of the four moments, a number out of range, or an error with a notice.
    """

    at_step: Annotated[int, Field(ge=0, strict=True)] | None = None
    at_fraction: _Part | None = None
    at_seconds: _Seconds | None = None
    at_uploads: Annotated[int, Field(ge=0, strict=True)] | None = None
    after_uploads: Annotated[int, Field(ge=0, strict=True)] = 0
    notice: _Switch = True
    notice_seconds: _Seconds = 120.0
    capacity_returns_after_seconds: _Seconds | None = 1.0
    internal_error: _Switch = False

    @model_validator(mode="after")
    def _has_one_moment(self) -> Self:
        if self.internal_error and self.notice:
            raise ValueError("an internal_error comes without notice: give notice=False")
        moments = [self.at_step, self.at_fraction, self.at_seconds, self.at_uploads]
        if sum(moment is not None for moment in moments) != 1:
            raise ValueError("an interruption needs exactly one of at_step, at_fraction, at_seconds, at_uploads")
        return self

    def is_due(self, *, step: int | None, total_steps: int | None, training_seconds: float, uploads: int = 0) -> bool:
        """Return whether a job that has come this far loses its capacity now."""
        if self.at_seconds is not None:
            return training_seconds >= self.at_seconds
        if self.at_uploads is not None:
            return uploads >= self.at_uploads
        if step is None:
            return False
        if self.at_step is not None:
            return step >= self.at_step
        return bool(total_steps) and step / (total_steps or 1) >= (self.at_fraction or 0.0)

    @property
    def needs_steps(self) -> bool:
        """True where only the job's reports tell the moment."""
        return self.at_seconds is None and self.at_uploads is None


@dataclass(frozen=True, kw_only=True, config=_EXACT)
class CapacityScript(JsonDocument):
    """The interruptions of one run's capacity, in order.

    Attributes:
        interruptions: The interruptions, used once each, one after the other.
        initial_wait_seconds: The seconds from the launch until the first capacity.
        gives_up_after_seconds: The seconds of waiting for the first capacity that end the job with a CapacityError.
            SageMaker ends a job so when there is no capacity. None waits on.

    Raises:
        ValidationError: A number is out of range.
    """

    interruptions: tuple[Interruption, ...] = ()
    initial_wait_seconds: _Seconds = 0.0
    gives_up_after_seconds: _Seconds | None = None

    def after_first(self) -> CapacityScript:
        """Return the script without its first interruption."""
        return CapacityScript(interruptions=self.interruptions[1:])


@dataclass(frozen=True, kw_only=True, config=_EXACT)
class EventFaults(JsonDocument):
    """The faults of state-change events on their way. AWS does not rule any of them out.

    Attributes:
        duplicate: Every event is sent twice.
        delay_seconds: Every event is this late.
        shuffle: Events overtake each other: each is late by up to `SHUFFLE_SECONDS`, at random.
        drop: The part of all events (0 to 1) that never arrives. 1 loses every one.
        seed: The seed of the random choices, so that a failure can be seen again.

    Raises:
        ValidationError: A number is out of range.
    """

    duplicate: _Switch = False
    delay_seconds: _Seconds = 0.0
    shuffle: _Switch = False
    drop: _Part = 0.0
    seed: int = 0


@dataclass(frozen=True, kw_only=True, config=_EXACT)
class CallFaults(JsonDocument):
    """The faults of calls, by chance, for every caller but the local AWS itself.

    Attributes:
        throttled: The part of all calls (0 to 1) that is throttled, with the error code of its service.
        lost: The part of all calls (0 to 1) that takes effect and is answered with an error of the service.
        service: The one service with faults, as boto3 spells it (`batch`). None for every service.
        seed: The seed of the random choices.

    Raises:
        ValidationError: A number is out of range.
    """

    throttled: _Part = 0.0
    lost: _Part = 0.0
    service: str | None = None
    seed: int = 0


COPIES_SECONDS = 5.0
"""The longest wait for copies that an interruption comes in the middle of, in seconds."""
SHUFFLE_SECONDS = 2.0
"""The longest delay of a shuffled event, in seconds."""


def belongs_to_run(*, job_name: str, run: str) -> bool:
    """Return whether a training job is the run itself or one of its attempts, `<run>-<number>`."""
    return re.fullmatch(re.escape(run) + r"(-\d+)?", job_name) is not None
