"""The losses of a rehearsal. They are planned before the first run, and placed after the runs left alone. Pure."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

_SHORTEST_NOTICE_SECONDS, _LONGEST_NOTICE_SECONDS, _SHARE_OF_NOTICE = 3.0, 10.0, 0.2


def notice_seconds_of(run_seconds: float) -> float:
    """Return the seconds from SIGTERM to the loss, unless the command has left before. AWS gives 120 s.

    A command that ignores the notice trains on until then, and is not to come to its end.

    Args:
        run_seconds: The length of the run left alone.
    """
    return min(_LONGEST_NOTICE_SECONDS, max(_SHORTEST_NOTICE_SECONDS, _SHARE_OF_NOTICE * run_seconds))


BEFORE_FIRST_SAVE = "first-save"
_POINT = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>%|s|)")
_FEWEST_WRITES = 4
_EARLIEST, _LATEST = 0.1, 0.9
"""The shares of a run between which a moment is drawn."""


@dataclass(frozen=True)
class PlannedLoss:
    """A loss of the machine. One of the first four attributes is given.

    Attributes:
        at_fraction: Share of the steps, between 0 and 1.
        at_step: Number of steps.
        at_seconds: Seconds of training, over all lives.
        before_first_save: True for a moment before the first checkpoint.
        notice: True if SIGTERM comes first.
    """

    at_fraction: float | None = None
    at_step: int | None = None
    at_seconds: float | None = None
    before_first_save: bool = False
    notice: bool = False


def read_point(point: str, *, notice: bool) -> PlannedLoss:
    """Read an `--interrupt-at` value.

    Args:
        point: `40%`, `120`, `30s` or `first-save`.
        notice: True if SIGTERM comes first.

    Raises:
        ValueError: It cannot be understood.
    """
    if point.strip() == BEFORE_FIRST_SAVE:
        return PlannedLoss(before_first_save=True, notice=notice)
    parsed = _POINT.fullmatch(point.strip())
    number = float(parsed["number"]) if parsed else -1.0
    unit = parsed["unit"] if parsed else ""
    wrong_share = unit == "%" and not 0 < number < 100
    if parsed is None or wrong_share or (unit == "" and not (number.is_integer() and number > 0)):
        raise ValueError(
            "--interrupt-at takes a share of the steps (40%), a step (120), a time (30s) or first-save, found"
            f" {point!r}"
        )
    if unit == "%":
        return PlannedLoss(at_fraction=number / 100, notice=notice)
    return PlannedLoss(at_seconds=number, notice=notice) if unit else PlannedLoss(at_step=int(number), notice=notice)


def planned_losses(points: Sequence[str], *, drawn: int | None, seed: int, notice: bool) -> tuple[PlannedLoss, ...]:
    """Return the losses of the interrupted run, in order.

    Without points and a number, there are three. One comes before the first save, one at 35% after a notice, and one
    at 70% without one.

    Args:
        points: `--interrupt-at` values.
        drawn: Number of losses at drawn moments. None for none.
        seed: The seed of the draw. The same seed gives the same losses.
        notice: True if SIGTERM comes first at the given points, and at a drawn half of the others.
    """
    given = tuple(read_point(point, notice=notice) for point in points)
    if drawn:
        draw = random.Random(seed)  # noqa: S311 - a rehearsal is no secret
        moments = sorted(draw.uniform(_EARLIEST, _LATEST) for _ in range(drawn))
        return given + tuple(
            PlannedLoss(at_fraction=round(moment, 4), notice=notice and draw.random() < 0.5) for moment in moments
        )
    return given or (
        PlannedLoss(before_first_save=True),
        PlannedLoss(at_fraction=0.35, notice=notice),
        PlannedLoss(at_fraction=0.7),
    )


@dataclass(frozen=True)
class PlacedLoss:
    """A loss at its place in the run.

    Attributes:
        position: The number of the milestone after which it comes. None for one by time.
        seconds: Seconds of training over all lives. With a position, seconds after the milestone.
        notice: True if SIGTERM comes first.
        in_life: True if the seconds count from the start of the life.
        writes: The number of checkpoint files written in this life after which it comes. None for one by another count.
        at_the_latest: With `writes`, seconds since the start of the life after which it comes once one file was
            written. On a busy machine the rehearsal misses a file that the next one replaced.
    """

    position: int | None
    seconds: float
    notice: bool
    in_life: bool = False
    writes: int | None = None
    at_the_latest: float = math.inf

    def is_due_by_writes(self, written: Sequence[float], *, seconds: float) -> bool:
        """Return True once it comes. For a loss with `writes`.

        Args:
            written: The times of the checkpoint files written in this life, in seconds since its start.
            seconds: The time now.
        """
        if self.writes is None or not written:
            return False
        counted = len(written) >= self.writes and seconds >= written[self.writes - 1] + self.seconds
        return counted or seconds >= max(self.at_the_latest, written[-1] + self.seconds)


def place(
    loss: PlannedLoss,
    *,
    times: Sequence[float],
    seconds: float,
    first_save_seconds: float | None,
    steps: Sequence[int] | None = None,
    fraction_before: float = 0.0,
    writes: Sequence[float] = (),
) -> PlacedLoss | None:
    """Return the place of a loss in a run like the one left alone. None where there is no such place.

    It comes half-way between a milestone and the next one. A command often saves at a milestone, and a loss at each
    save would be no fair draw.

    Args:
        loss: The loss.
        times: The times of the milestones of the run left alone, in seconds since its start.
        seconds: The length of the run left alone.
        first_save_seconds: The time of its first checkpoint. None without one.
        steps: The number of completed steps at each milestone. None where milestones are counted.
        fraction_before: The share of the steps at the loss before.
        writes: The times of the checkpoint files that it wrote. They count where there are no milestones.
    """
    if loss.before_first_save:
        if first_save_seconds is None:
            return None
        before = [time for time in times if time < first_save_seconds * 0.8]
        if before:
            return PlacedLoss(position=len(before) - 1, seconds=0.0, notice=loss.notice)
        return PlacedLoss(position=None, seconds=0.6 * first_save_seconds, notice=loss.notice, in_life=True)
    if loss.at_seconds is not None:
        return PlacedLoss(position=None, seconds=loss.at_seconds, notice=loss.notice)
    if len(times) < 2:
        # A life that goes on has done the share before, and one that begins anew has something to read.
        share = (loss.at_fraction if loss.at_fraction is not None else 0.5) - fraction_before
        if len(writes) >= _FEWEST_WRITES:
            number = _between_saves(writes, max(1, min(int(share * len(writes)), len(writes) - 2)))
            return PlacedLoss(
                position=None,
                seconds=max(0.0, writes[number] - writes[number - 1]) / 2,
                notice=loss.notice,
                in_life=True,
                writes=number,
                at_the_latest=writes[number],
            )
        least = 0.0 if first_save_seconds is None else min(1.2 * first_save_seconds, 0.9 * seconds)
        return PlacedLoss(position=None, seconds=max(share * seconds, least), notice=loss.notice, in_life=True)
    if loss.at_fraction is not None:
        position = int(loss.at_fraction * len(times)) - 1
        position = min(max(position, 0), len(times) - 2)
        if first_save_seconds is not None and loss.at_fraction >= 0.5:
            # A late loss shows how the command goes on, so there must be a checkpoint.
            saved = sum(1 for time in times if time <= first_save_seconds)
            position = max(position, min(saved, len(times) - 2))
    else:
        wanted = loss.at_step or 1
        counts = steps if steps is not None else range(1, len(times) + 1)
        reached = [number for number, count in enumerate(counts) if count >= wanted]
        if not reached:
            return None
        position = reached[0]
    after = times[position + 1] - times[position] if position + 1 < len(times) else 0.0
    return PlacedLoss(position=position, seconds=after / 2, notice=loss.notice)


def _between_saves(writes: Sequence[float], wanted: int) -> int:
    """Return the number of files near the wanted one after which a pause comes. A save may be of several files."""
    pauses = {number: writes[number] - writes[number - 1] for number in range(1, len(writes))}
    usual = (writes[-1] - writes[0]) / len(pauses)
    return min(
        (number for number, pause in pauses.items() if pause >= 0.99 * usual), key=lambda number: abs(number - wanted)
    )
