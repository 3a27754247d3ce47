"""Times two things in turn, A B A B ..., so that a machine that slows down slows both."""

from __future__ import annotations

import math
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_OUTSIDE = 0.05


@dataclass(frozen=True, kw_only=True)
class Seconds:
    """Durations of one thing over several rounds."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The figure to quote."""
        return statistics.median(self.rounds)

    @property
    def minimum(self) -> float:
        """The round least disturbed by whatever else the machine was doing."""
        return min(self.rounds)

    def to_document(self) -> dict[str, float | list[float]]:
        """Return the figures as JSON."""
        return {
            "median_s": round(self.median, 4),
            "min_s": round(self.minimum, 4),
            "rounds_s": [round(value, 4) for value in self.rounds],
        }


@dataclass(frozen=True, kw_only=True)
class PairedRatio:
    """A ratio of two things that were measured in the same rounds.

    Attributes:
        median: The median of the ratios of the rounds.
        low: The lower end of the median's 95% interval.
        high: The upper end.
    """

    median: float
    low: float
    high: float

    def verdict(self, target: float) -> str:
        """Judge the ratio, which is to be at most the target.

        Returns:
            `met` or `not met` where all of the interval says so. `not decided` where only a part of it does, or where
            the interval is wider than the target.
        """
        if self.high - self.low > target or self.low <= target < self.high:
            return "not decided"
        return "met" if self.high <= target else "not met"


def paired_ratio(first: Sequence[float], second: Sequence[float]) -> PairedRatio:
    """Compare two things round by round.

    The interval has the ratios whose ranks hold the median of any distribution in 95 of 100 cases (the sign test). With
    five rounds or fewer no ranks do, and it is all that can be.

    Args:
        first: The figure of each round.
        second: The other figure of the same rounds, above 0.
    """
    ratios = sorted(one / other for one, other in zip(first, second, strict=True))
    count = len(ratios)
    below, chance = 0, 0.5**count
    while below < count // 2 and 2 * chance <= _OUTSIDE:
        below += 1
        chance += math.comb(count, below) * 0.5**count
    if not below:
        return PairedRatio(median=statistics.median(ratios), low=-math.inf, high=math.inf)
    return PairedRatio(median=statistics.median(ratios), low=ratios[below - 1], high=ratios[count - below])


def in_turn(
    first: Callable[[], object], second: Callable[[], object], *, rounds: int, warmups: int = 1
) -> tuple[Seconds, Seconds]:
    """Time two actions alternately.

    Args:
        first: The action under test.
        second: The action to compare it with.
        rounds: Counted rounds of each.
        warmups: Uncounted rounds before them.

    Returns:
        The durations of the first and of the second, round by round.
    """
    durations: tuple[list[float], list[float]] = ([], [])
    for number in range(warmups + rounds):
        for action, kept in zip((first, second), durations, strict=True):
            started = time.perf_counter()
            action()
            if number >= warmups:
                kept.append(time.perf_counter() - started)
    return Seconds(rounds=tuple(durations[0])), Seconds(rounds=tuple(durations[1]))


def process(command: Sequence[str], *, environment: Mapping[str, str], directory: Path) -> Callable[[], None]:
    """Return an action that runs a command to its end.

    Raises:
        subprocess.CalledProcessError: From the action, when the command fails. Its output is in the error.
    """

    def run() -> None:
        subprocess.run(
            command, env=dict(environment), cwd=directory, check=True, capture_output=True, text=True, timeout=300
        )

    return run
