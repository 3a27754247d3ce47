"""Reads the points at which a rehearsed run loses its capacity.

A point is `40%` of its steps, after step `120`, or `30s` into the training.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from spotkeep_cli.errors import UsageError
from spotkeep_local.capacity import Interruption

LOCAL_NOTICE_SECONDS = 10.0
"""Seconds from SIGTERM to the loss of capacity in a rehearsal, unless the script has left before. AWS gives 120 s.

On a machine that is busy, a save takes seconds."""
CAPACITY_RETURNS_AFTER_SECONDS = 1.5

_POINT = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>%|s|)")


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


def _interruption(point: str, *, notice: bool) -> Interruption:
    parsed = _POINT.fullmatch(point.strip())
    number = float(parsed["number"]) if parsed else -1.0
    unit = parsed["unit"] if parsed else ""
    wrong_share = unit == "%" and not 0 < number < 100
    if parsed is None or wrong_share or (unit == "" and not (number.is_integer() and number > 0)):
        raise UsageError(
            f"--interrupt-at takes a share of the steps (40%), a step (120) or a time (30s), found {point!r}",
            hint="for example: --interrupt-at 25% --interrupt-at 60%",
        )
    return Interruption(
        at_fraction=number / 100 if unit == "%" else None,
        at_step=int(number) if unit == "" else None,
        at_seconds=number if unit == "s" else None,
        notice=notice,
        notice_seconds=LOCAL_NOTICE_SECONDS,
        capacity_returns_after_seconds=CAPACITY_RETURNS_AFTER_SECONDS,
    )
