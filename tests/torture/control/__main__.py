"""Tortures the control plane and gives a verdict: ``python -m tests.torture.control``."""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import get_state_machine_test
from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.report import STATE
from tests.torture.control import bad_input
from tests.torture.control.budget_story import BudgetStory
from tests.torture.control.fleet_story import FleetStory
from tests.torture.control.foreign_id_story import ForeignIdStory
from tests.torture.control.story import ControlPlaneStory
from tests.torture.control.sweep_story import SweepStory
from tests.torture.stages import Done, TrialStage, run_stages

STEPS_A_STORY: Final = 50
SHARE_OF_SWEEPS: Final = 5
"""One step for so many is taken besides, in stories with sweeps in them, and as many in those of foreign ids."""
_WORDS_OF_A_PROBLEM: Final = 6_000


@dataclass(frozen=True, kw_only=True)
class StageFindings:
    """What one kind of torture found.

    Attributes:
        trials: How many steps, or inputs.
        problems: One text for each thing that must not be, with the way to it.
        figures: Counts worth a line.
    """

    trials: int
    problems: tuple[str, ...] = ()
    figures: dict[str, int] = field(default_factory=dict)


def main() -> int:
    """Run stories, feed bad input, print a table, write JSON. Returns 0 when nothing broke, 1 otherwise."""
    options = _options()
    console = Console()
    started = time.monotonic()
    stages = {
        name: TrialStage(
            trials=options.steps // share,
            work=partial(run_stories, kind, steps=options.steps // share, first_seed=options.seed),
        )
        for name, kind, share in (
            ("stories", ControlPlaneStory, 1),
            ("stories of sweeps", SweepStory, SHARE_OF_SWEEPS),
            ("stories of foreign ids", ForeignIdStory, SHARE_OF_SWEEPS),
            ("stories of sweeps with a max_cost", BudgetStory, SHARE_OF_SWEEPS),
            ("stories of fleets", FleetStory, SHARE_OF_SWEEPS),
        )
    } | {
        f"bad input: {function}": TrialStage(
            trials=options.inputs, work=partial(feed, function, inputs=options.inputs, first_seed=options.seed)
        )
        for function in bad_input.FUNCTIONS
    }
    results = run_stages(
        stages, console, in_a_line=lambda found: f"{found.trials:,} done, {len(found.problems)} problems"
    )
    problems = [problem for found in results.values() for problem in found.problems]
    document = {
        "seed": options.seed,
        "seconds": round(time.monotonic() - started, 1),
        "unbroken": not problems,
        "kinds": {name: asdict(found) for name, found in results.items()},
    }
    console.print(_table(results))
    for problem in problems:
        console.print(f"BROKEN  {problem}", style="red", markup=False, highlight=False)
    verdict = "nothing broke" if not problems else f"{len(problems)} problems"
    total = sum(found.trials for found in results.values())
    console.print(f"\n{verdict}: {total:,} steps and inputs, {document['seconds']:,} s")
    report.write(options.output, document, console)
    return 0 if not problems else 1


def run_stories(kind: type[ControlPlaneStory], done: Done, *, steps: int, first_seed: int) -> StageFindings:
    """Run stories until so many steps are taken, or one breaks.

    Args:
        kind: What happens in them.
        done: Called with the number of steps since it was last called.
        steps: At least so many.
        first_seed: What chance starts from.
    """

    class Story(kind):  # type: ignore[misc, valid-type]
        """Counts for itself."""

        steps_taken = 0
        happenings: ClassVar[Counter[str]] = Counter()

        def reported_of_step(self) -> None:
            done(1)

    round_number = 0
    while Story.steps_taken < steps:
        examples = max(1, min(200, (steps - Story.steps_taken) // STEPS_A_STORY + 1))
        how = settings(
            max_examples=examples,
            stateful_step_count=STEPS_A_STORY,
            deadline=None,
            database=None,
            derandomize=False,
            report_multiple_bugs=False,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
        )
        try:
            seed(first_seed + round_number)(get_state_machine_test(Story, settings=how))()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the verdict
            return StageFindings(trials=Story.steps_taken, problems=(_words_of(error),), figures=dict(Story.happenings))
        round_number += 1
    return StageFindings(trials=Story.steps_taken, figures=dict(sorted(Story.happenings.items())))


def feed(function: str, done: Done, *, inputs: int, first_seed: int) -> StageFindings:
    """Feed one function with bad input.

    Args:
        function: One of `bad_input.FUNCTIONS`.
        done: Called with the number of inputs since it was last called.
        inputs: How many.
        first_seed: What chance starts from.
    """
    fed = bad_input.InputCounts()
    round_number = 0
    while fed.inputs < inputs:
        before = fed.inputs
        how = settings(
            max_examples=min(500, inputs - before),
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            report_multiple_bugs=False,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
        )
        try:
            seed(first_seed + round_number)(bad_input.trial(function, fed=fed, how=how))()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the verdict
            return StageFindings(trials=fed.inputs, problems=(_words_of(error),), figures=dict(fed.answers))
        done(fed.inputs - before)
        round_number += 1
    return StageFindings(trials=fed.inputs, figures=dict(sorted(fed.answers.items())))


def _table(results: dict[str, StageFindings]) -> Table:
    table = report.table("what was done", "steps, inputs", "problems")
    table.add_column("of these")
    for name, found in results.items():
        figures = ", ".join(f"{count:,} {what}" for what, count in found.figures.items())
        table.add_row(name, f"{found.trials:,}", f"{len(found.problems):,}", figures)
    return table


def _words_of(error: BaseException) -> str:
    """Return what broke, and the end of the way to it: a story of many steps has more than anyone reads."""
    way = "".join(traceback.format_exception(error))
    return f"{type(error).__name__}: {error}\n{way[-_WORDS_OF_A_PROBLEM:]}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture.control", description=__doc__)
    parser.add_argument("--steps", type=int, default=25_000, help="steps of stories (default 25000)")
    parser.add_argument("--inputs", type=int, default=10_000, help="bad inputs to each function (default 10000)")
    parser.add_argument("--seed", type=int, default=1, help="what chance starts from (default 1)")
    parser.add_argument("--output", type=Path, default=STATE / "torture" / "control.json")
    return parser.parse_args()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # of the whole process, so not where others call `main`
    sys.exit(main())
