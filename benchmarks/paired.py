"""Times two things in turn, A B A B ..., so that a machine that slows down slows both."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


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
