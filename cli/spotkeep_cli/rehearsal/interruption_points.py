"""Reads the points at which a rehearsed run loses its capacity.

A point is `40%` of its steps, after step `120`, or `30s` into the training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from spotkeep_cli.errors import UsageError
from spotkeep_local.capacity import Interruption
from spotkeep_rehearsal.losses import read_point

LOCAL_NOTICE_SECONDS = 10.0
"""Seconds from SIGTERM to the loss of capacity in a rehearsal, unless the script has left before. AWS gives 120 s.

On a machine that is busy, a save takes seconds."""
CAPACITY_RETURNS_AFTER_SECONDS = 1.5

_EXAMPLE = "for example: --interrupt-at 25% --interrupt-at 60%"


def read_interruptions(points: Sequence[str], *, notice: bool) -> tuple[Interruption, ...]:
    """Read `--interrupt-at` values, in the order in which they are to happen.

    Args:
        points: `40%`, `120` or `30s` each. Without points, a run loses its capacity at 35% after a notice and at 70%
            without one.
        notice: True if SIGTERM comes first at the given points.

    Raises:
        UsageError: A point cannot be understood.
    """
    if not points:
        return (_interruption("35%", notice=notice), _interruption("70%", notice=False))
    return tuple(_interruption(point, notice=notice) for point in points)


def in_the_middle_of_copies(
    interruptions: Sequence[Interruption], *, hosts: int, chance: Random
) -> tuple[Interruption, ...]:
    """Return the interruptions of a job with several hosts, of which those without notice cut copies off.

    Each then comes after a drawn number of files of the next checkpoint, so that a part of it is in S3.

    Args:
        interruptions: The planned interruptions.
        hosts: The number of hosts. One keeps its interruptions as they are.
        chance: Draws the numbers.
    """
    if hosts == 1:
        return tuple(interruptions)
    return tuple(
        each if each.notice else replace(each, after_uploads=chance.randint(1, 2 * hosts)) for each in interruptions
    )


def _interruption(point: str, *, notice: bool) -> Interruption:
    try:
        loss = read_point(point, notice=notice)
    except ValueError as error:
        raise UsageError(str(error), hint=_EXAMPLE) from error
    if loss.before_first_save:
        raise UsageError(f"{point} is for `spotkeep rehearse -- command`", hint=_EXAMPLE)
    return Interruption(
        at_fraction=loss.at_fraction,
        at_step=loss.at_step,
        at_seconds=loss.at_seconds,
        notice=notice,
        notice_seconds=LOCAL_NOTICE_SECONDS,
        capacity_returns_after_seconds=CAPACITY_RETURNS_AFTER_SECONDS,
    )
