"""The times of the saves, by steps, by seconds, or as often as pays. Pure, since the time is an argument.

Saving too often costs time, saving too seldom loses work. C is the extra training time of one checkpoint, and M the
mean time between interruptions. The loss is least at an interval of sqrt(2 C M) (Young 1974, Daly 2006). An
interruption with a notice in time loses nothing. So only the share 1 - q of them counts, and the interval is
sqrt(2 C M / (1 - q)).
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

_FIRST_SECONDS = 30.0
_SHORTEST_SECONDS = 1.0
_LONGEST_SECONDS = 3600.0
_REMEMBERED_SAVES = 32
_REMEMBERED_STEPS = 256
_NOTABLE_CHANGE = 1.5
# Writing at most half of the time leaves quiet steps, which tell what the others lose.
_LEAST_REST = 2.0


@dataclass(frozen=True)
class InterruptionOutlook:
    """The interruptions that a training expects of its machine.

    Attributes:
        mean_seconds_between: Mean time from one interruption to the next, in seconds. Three hours by default.
        notice_chance: Probability, from 0 to 1, of a notice in time for a save.
    """

    mean_seconds_between: float = 3 * 3600.0
    notice_chance: float = 0.5


@dataclass(frozen=True)
class Interval:
    """An interval that `auto` chose.

    Attributes:
        seconds: From one save to the next.
        reason: Why, in a sentence.
    """

    seconds: float
    reason: str


def best_interval(*, extra_seconds: float, durable_seconds: float, outlook: InterruptionOutlook) -> Interval:
    """Choose the interval that loses the least time.

    Args:
        extra_seconds: Seconds by which a checkpoint lengthens the training.
        durable_seconds: Seconds from the call until a checkpoint is durable. Saves are at least twice as far apart.
        outlook: The expected interruptions.
    """
    unnoticed = 1.0 - outlook.notice_chance
    mean = outlook.mean_seconds_between
    ideal = math.sqrt(2 * max(extra_seconds, 0.0) * mean / unnoticed) if unnoticed > 0 else math.inf
    shortest = max(_SHORTEST_SECONDS, _LEAST_REST * durable_seconds)
    longest = max(_LONGEST_SECONDS, shortest)
    seconds = min(max(ideal, shortest), longest)
    cost, between, chosen = rounded(extra_seconds), rounded(mean), rounded(ideal)
    reason = (
        f"a checkpoint costs {cost} s of training, an interruption is expected every {between} s, "
        f"{outlook.notice_chance:.0%} of them with a notice in time: sqrt(2 x {cost} x {between} / {unnoticed:.3g}) = "
        f"{chosen} s"
    )
    if seconds != ideal:
        reason += f", held between {rounded(shortest)} and {rounded(longest)} s"
    return Interval(seconds=seconds, reason=reason)


def rounded(seconds: float) -> str:
    """Write a number of seconds with three significant digits, such as `0.017` or `10,800`."""
    return f"{seconds:,.0f}" if 100 <= seconds < math.inf else f"{seconds:.3g}"


class ExtraTime:
    """Measures the time by which checkpoints lengthen a training.

    It adds the calls and the slower steps during a write.

    The calls are measured exactly. The loss of the steps is a small difference of noisy times, the steps beside a save
    against the mean of the quiet ones. It takes the mean, because the median hides that every tenth step is slow. A
    single save may seem to gain time, and only the sum of all may not.
    """

    def __init__(self) -> None:
        self._quiet_steps: deque[float] = deque(maxlen=_REMEMBERED_STEPS)
        self._calls: deque[float] = deque(maxlen=_REMEMBERED_SAVES)
        self._slowdowns: deque[float] = deque(maxlen=_REMEMBERED_SAVES)
        self._durable: deque[float] = deque(maxlen=_REMEMBERED_SAVES)
        self._call = 0.0
        self._slow_seconds = 0.0
        self._slow_steps = 0

    def step(self, seconds: float, *, while_saving: bool) -> None:
        """Take the time of one step. `while_saving` if a save was running during any part of it."""
        if while_saving:
            self._slow_seconds += seconds
            self._slow_steps += 1
        else:
            self._quiet_steps.append(seconds)

    def call(self, seconds: float) -> None:
        """Take the time that a save held the training up."""
        self._call += seconds

    def saved(self, durable_seconds: float) -> None:
        """Close the account of one checkpoint. A step that is still running counts for the next one."""
        self._calls.append(self._call)
        if self._quiet_steps:
            quiet = _mean_without_extremes(self._quiet_steps)
            self._slowdowns.append(self._slow_seconds - self._slow_steps * quiet)
        self._durable.append(durable_seconds)
        self.failed()

    def failed(self) -> None:
        """Forget the cost of a save that never became durable."""
        self._call, self._slow_seconds, self._slow_steps = 0.0, 0.0, 0

    @property
    def seconds(self) -> float | None:
        """The extra time of a checkpoint, None before the first one."""
        if not self._calls:
            return None
        slowdown = _mean_without_extremes(self._slowdowns) if self._slowdowns else 0.0
        return statistics.median(self._calls) + max(slowdown, 0.0)

    @property
    def durable_seconds(self) -> float:
        """The median seconds until a checkpoint is durable, 0 before the first one."""
        return statistics.median(self._durable) if self._durable else 0.0

    @property
    def fastest_durable_seconds(self) -> float:
        """Seconds until the fastest checkpoint was durable, 0 before the first one."""
        return min(self._durable, default=0.0)


class SaveSchedule:
    """Decides if a save is due.

    Attributes:
        every_steps: The interval in steps, or None.
        outlook: The expected interruptions.
        extra_time: The measured cost of the saves.

    Args:
        every_steps: The interval in steps. It is kept exactly, so a save waits for one that is still running.
        every_seconds: The interval in seconds, or `auto` for the best interval. While a save is running, none is due.
        auto: True to choose the seconds.
        outlook: The expected interruptions, for `auto`.
    """

    def __init__(
        self,
        *,
        every_steps: int | None = None,
        every_seconds: float | None = None,
        auto: bool = False,
        outlook: InterruptionOutlook | None = None,
    ) -> None:
        self.every_steps = every_steps
        self._every_seconds = _FIRST_SECONDS if auto else every_seconds
        self._auto = auto
        self._announced: float | None = None
        self._tried_step = 0
        self._tried_at = 0.0
        self._repeats = False
        self.outlook = outlook or InterruptionOutlook()
        self.extra_time = ExtraTime()

    def tried(self, step: int, now: float) -> None:
        """Note that a save of this step was started."""
        self._tried_step, self._tried_at, self._repeats = step, now, False

    def repeat(self) -> None:
        """Make a save due after the next step, in place of one that failed."""
        self._repeats = True

    def due(self, step: int, now: float, *, saving: bool) -> bool:
        """Tell if this step should be saved.

        Args:
            step: Completed steps.
            now: Seconds of any steady clock.
            saving: True while a save is still running.
        """
        return self.due_by_steps(step) or self.due_by_time(now, saving=saving)

    def due_by_steps(self, step: int) -> bool:
        """Tell if this step should be saved for its number alone."""
        return self.every_steps is not None and step - self._tried_step >= self.every_steps

    def due_by_time(self, now: float, *, saving: bool) -> bool:
        """Tell if the interval in seconds is over, or a save is to be repeated.

        Args:
            now: Seconds of any steady clock.
            saving: True while a save is still running.
        """
        if saving:
            return False
        return self._repeats or (self._every_seconds is not None and now - self._tried_at >= self._every_seconds)

    def saved(self, durable_seconds: float) -> Interval | None:
        """Learn from a checkpoint that has become durable.

        Args:
            durable_seconds: Seconds from the start of the save until the checkpoint was durable.

        Returns:
            The interval that `auto` chose, if it is the first one or differs by half from the last one given, else
            None.
        """
        self.extra_time.saved(durable_seconds)
        extra = self.extra_time.seconds
        if self._auto and extra is not None:
            interval = best_interval(
                extra_seconds=extra, durable_seconds=self.extra_time.durable_seconds, outlook=self.outlook
            )
            self._every_seconds = interval.seconds
            if self._differs_notably(interval.seconds):
                self._announced = interval.seconds
                return interval
        return None

    def failed(self) -> None:
        """Take note of a save that never became durable."""
        self.extra_time.failed()

    def _differs_notably(self, seconds: float) -> bool:
        if self._announced is None:
            return True
        return max(seconds, self._announced) >= _NOTABLE_CHANGE * min(seconds, self._announced)


def _mean_without_extremes(values: Collection[float]) -> float:
    """Average without the largest and the smallest of many, so that one long step (a compilation) does not decide it.

    No more are left out. If every tenth step is slow, those must count, and few saves meet one.
    """
    ordered = sorted(values)
    return statistics.fmean(ordered[1:-1] if len(ordered) >= _REMEMBERED_SAVES else ordered)
