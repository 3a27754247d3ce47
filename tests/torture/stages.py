"""Long work in stages, watched: a bar for each on a terminal, a line for each in a log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.console import Console

from benchmarks import report

FoundT = TypeVar("FoundT")
Done = Callable[[int], None]
"""Called with how many trials were done since it was last called."""


@dataclass(frozen=True, kw_only=True)
class TrialStage(Generic[FoundT]):
    """One kind of work.

    Attributes:
        trials: How many there will be.
        work: Does them, and says what it found.
    """

    trials: int
    work: Callable[[Done], FoundT]


def run_stages(
    stages: Mapping[str, TrialStage[FoundT]], console: Console, *, in_a_line: Callable[[FoundT], str]
) -> dict[str, FoundT]:
    """Do one stage after the other.

    Args:
        stages: By name, in order.
        console: Where progress is shown.
        in_a_line: What a stage found, for a log, which has no bars.
    """
    results: dict[str, FoundT] = {}
    with report.progress(console, disable=not console.is_terminal) as progress:
        for name, stage in stages.items():
            task = progress.add_task(name, total=stage.trials)
            results[name] = stage.work(lambda done, task=task: progress.advance(task, done))  # type: ignore[misc]
            if not console.is_terminal:
                console.print(f"{name}: {in_a_line(results[name])}", highlight=False)
    return results
