"""When the local AWS interrupts a job's capacity and lets it return: a script, instead of a market.

On AWS no one can choose when a spot instance is reclaimed; here it is chosen exactly, so that a rehearsal
tests what it says it tests. The types are values that travel as JSON; the training service acts on them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from spotkeep_local.errors import LocalAwsError


class CapacityScriptError(LocalAwsError, ValueError):
    """A capacity script, or a set of event faults, is not valid; the text names every problem."""


def _numbers(value: object, *, names: tuple[str, ...], high: float = float("inf")) -> list[str]:
    return [
        f"{name} must be a number from 0{f' to {high:g}' if high != float('inf') else ''}, found {found!r}"
        for name in names
        if (found := getattr(value, name)) is not None
        and (isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= high)
    ]


def _known_fields(kind: type[Any], document: object) -> dict[str, Any]:
    if not isinstance(document, Mapping):
        raise CapacityScriptError(f"{kind.__name__} must be an object, found {document!r}")
    known = [field.name for field in fields(kind)]
    if unknown := sorted(set(document) - set(known)):
        raise CapacityScriptError(f"{kind.__name__} has unknown fields {', '.join(unknown)}; known: {', '.join(known)}")
    return dict(document)


@dataclass(frozen=True, kw_only=True)
class Interruption:
    """One loss of capacity: when it comes, whether a notice precedes it, and when capacity returns.

    Attributes:
        at_step: As soon as the job reports that this many steps are complete.
        at_fraction: As soon as the job reports that this part of its total steps (0 to 1) is complete.
        at_seconds: After this much time in secondary status Training, waiting not counted.
        notice: Whether the process gets SIGTERM first. Without, the whole group gets SIGKILL at once.
        notice_seconds: How long after SIGTERM the capacity is gone.
        capacity_returns_after_seconds: From the loss until new capacity; None is never.

    Raises:
        CapacityScriptError: Not exactly one of the three moments, or a number out of range.
    """

    at_step: int | None = None
    at_fraction: float | None = None
    at_seconds: float | None = None
    notice: bool = True
    notice_seconds: float = 120.0
    capacity_returns_after_seconds: float | None = 1.0

    def __post_init__(self) -> None:
        problems = _numbers(
            self, names=("at_step", "at_seconds", "notice_seconds", "capacity_returns_after_seconds")
        ) + _numbers(self, names=("at_fraction",), high=1.0)
        moments = [self.at_step, self.at_fraction, self.at_seconds]
        if sum(moment is not None for moment in moments) != 1:
            problems.append("an interruption needs exactly one of at_step, at_fraction, at_seconds")
        if not isinstance(self.notice, bool):
            problems.append(f"notice must be true or false, found {self.notice!r}")
        if problems:
            raise CapacityScriptError("; ".join(problems))

    def is_due(self, *, step: int | None, total_steps: int | None, training_seconds: float) -> bool:
        """Returns whether a job that has come this far loses its capacity now."""
        if self.at_seconds is not None:
            return training_seconds >= self.at_seconds
        if step is None:
            return False
        if self.at_step is not None:
            return step >= self.at_step
        return bool(total_steps) and step / (total_steps or 1) >= (self.at_fraction or 0.0)

    @property
    def needs_steps(self) -> bool:
        """Whether the moment can only be known from what the job reports."""
        return self.at_seconds is None


@dataclass(frozen=True, kw_only=True)
class CapacityScript:
    """The interruptions of one run's capacity, in order.

    Attributes:
        interruptions: Taken one after the other; each is used once.
        initial_wait_seconds: From the launch until the first capacity.
        gives_up_after_seconds: Waiting this long for the first capacity ends the job with a CapacityError, as
            SageMaker does when there is none to be had; None waits on.

    Raises:
        CapacityScriptError: A number is out of range.
    """

    interruptions: tuple[Interruption, ...] = ()
    initial_wait_seconds: float = 0.0
    gives_up_after_seconds: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "interruptions", tuple(self.interruptions))
        problems = _numbers(self, names=("initial_wait_seconds", "gives_up_after_seconds"))
        problems += [
            f"interruptions must hold Interruption values, found {item!r}"
            for item in self.interruptions
            if not isinstance(item, Interruption)
        ]
        if problems:
            raise CapacityScriptError("; ".join(problems))

    def after_first(self) -> CapacityScript:
        """Returns the script without its first interruption."""
        return CapacityScript(interruptions=self.interruptions[1:])

    def to_document(self) -> dict[str, Any]:
        """Returns the script as a JSON object."""
        return {
            "interruptions": [asdict(interruption) for interruption in self.interruptions],
            "initial_wait_seconds": self.initial_wait_seconds,
            "gives_up_after_seconds": self.gives_up_after_seconds,
        }

    @classmethod
    def from_document(cls, document: object) -> CapacityScript:
        """Reads what `to_document` wrote.

        Raises:
            CapacityScriptError: Unknown fields or wrong values.
        """
        values = _known_fields(cls, document)
        interruptions = values.pop("interruptions", [])
        if not isinstance(interruptions, list | tuple):
            raise CapacityScriptError(f"interruptions must be a list, found {interruptions!r}")
        return cls(
            interruptions=tuple(Interruption(**_known_fields(Interruption, item)) for item in interruptions),
            **values,
        )


@dataclass(frozen=True, kw_only=True)
class EventFaults:
    """The faults of state-change events on their way; AWS does not rule any of them out.

    Attributes:
        duplicate: Every event is sent twice.
        delay_seconds: Every event is this late.
        shuffle: Events overtake each other: each is late by up to `SHUFFLE_SECONDS`, at random.
        drop: The part of all events (0 to 1) that never arrives; 1 loses every one.
        seed: Of the random choices, so that a failure can be seen again.

    Raises:
        CapacityScriptError: A number is out of range.
    """

    duplicate: bool = False
    delay_seconds: float = 0.0
    shuffle: bool = False
    drop: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        problems = _numbers(self, names=("delay_seconds",)) + _numbers(self, names=("drop",), high=1.0)
        if problems:
            raise CapacityScriptError("; ".join(problems))

    def to_document(self) -> dict[str, Any]:
        """Returns the faults as a JSON object."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: object) -> EventFaults:
        """Reads what `to_document` wrote.

        Raises:
            CapacityScriptError: Unknown fields or wrong values.
        """
        return cls(**_known_fields(cls, document))


SHUFFLE_SECONDS = 2.0
"""How late a shuffled event may be."""


def belongs_to_run(*, job_name: str, run: str) -> bool:
    """Returns whether a training job is the run itself or one of its attempts, `<run>-<number>`."""
    return re.fullmatch(re.escape(run) + r"(-\d+)?", job_name) is not None
