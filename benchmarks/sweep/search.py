"""What searches spend to come to an objective: without interruptions, and with those of recorded zones.

Time is simulated, losses are read from the table. A search has spent the time in which its workers had capacity:
starts and lost work are in it, waiting is not. Without interruptions nothing but epochs is counted.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from benchmarks.sweep.capacity import Capacity, RecordedZone, Uninterrupted
from benchmarks.sweep.searches import MAKERS, Job, Search
from benchmarks.sweep.table import EPOCHS, LossTable
from spotkeep_planner.traces.capacity_trace import CapacityTrace

WORKERS: Final = 4
START_S: Final = 720.0
"""From having capacity to the first step, as in the planner's benchmark."""
FULL_TRAININGS_H: Final = (3.0, 9.0, 27.0)
JUDGED_H: Final = 9.0
ONE_OF: Final = 25
"""The objective is the loss that one of so many configurations comes to."""
BUDGETS: Final = (2, 5, 10, 20)
"""In whole trainings."""
LONGEST_SEARCH: Final = 60
"""In whole trainings."""
TARGET: Final = 0.8
OURS_RESTARTED: Final = "spotkeep, restarted"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A search under a condition, which is repeated with different seeds.

    Attributes:
        who: Whose search.
        algorithm: random or asha.
        full_training_h: How long a whole training takes; None without interruptions.
        keeps: Whether an interrupted trial goes on from its last epoch. Others begin again: at 0, or where they paused.
    """

    who: str
    algorithm: Literal["random", "asha"]
    full_training_h: float | None = None
    keeps: bool = False

    @property
    def name(self) -> str:
        """How the case is called in tables."""
        return self.who if self.keeps or self.who != "spotkeep" or self.full_training_h is None else OURS_RESTARTED


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The best loss so far over what was spent, in whole trainings: a point for each improvement."""

    spent: tuple[float, ...]
    best: tuple[float, ...]

    def best_at(self, budget: float) -> float:
        """Return the best loss that was found with a budget; infinite where there was none."""
        found = int(np.searchsorted(self.spent, budget, side="right"))
        return self.best[found - 1] if found else float("inf")

    def spent_until(self, objective: float) -> float:
        """Return what was spent when a loss was reached; the longest search where it never was."""
        return next(
            (spent for spent, best in zip(self.spent, self.best, strict=True) if best <= objective),
            float(LONGEST_SEARCH),
        )


def searched(
    search: Search, table: LossTable, *, workers: Sequence[Capacity], epoch_s: float, start_s: float, keeps: bool
) -> Curve:
    """Search until the objective is reached and the largest budget spent, or the longest search is over.

    Args:
        search: The search, from its beginning.
        table: What trials report.
        workers: The capacity of each worker.
        epoch_s: How long an epoch takes.
        start_s: How long a job takes to its first epoch, each time it gets capacity.
        keeps: Whether an interrupted trial goes on from its last epoch.
    """
    whole_s, objective = epoch_s * EPOCHS, table.objective(one_of=ONE_OF)
    spent_s = 0.0
    spent: list[float] = []
    best: list[float] = []
    jobs: dict[int, tuple[Job, int, int]] = {}
    """By worker: its job, the epochs done, and those reported."""
    starts = set(range(len(workers)))
    moments = [(0.0, worker) for worker in range(len(workers))]
    idle: list[int] = []
    while moments and spent_s < whole_s * (BUDGETS[-1] if best and best[-1] <= objective else LONGEST_SEARCH):
        at_s, worker = heapq.heappop(moments)
        if worker not in jobs:
            job = search.next_job()
            if job is None:
                idle.append(worker)
                continue
            jobs[worker] = job, job.begins_at, job.begins_at
            starts.add(worker)
        job, done, reported = jobs[worker]
        stretch = workers[worker].work(at_s=at_s, for_s=epoch_s + (start_s if worker in starts else 0.0))
        spent_s += stretch.billed_s
        heapq.heappush(moments, (stretch.ended_at_s, worker))
        if not stretch.was_done:
            starts.add(worker)
            jobs[worker] = job, done if keeps else job.begins_at, reported
            continue
        starts.discard(worker)
        done += 1
        jobs[worker] = job, done, max(done, reported)
        if done <= reported:
            continue
        loss = float(table.losses[job.configuration, done - 1])
        if not best or loss < best[-1]:
            spent.append(spent_s / whole_s)
            best.append(loss)
        if not search.goes_on(job, epoch=done, loss=loss) or done == EPOCHS:
            del jobs[worker]
            for waiting in idle:
                heapq.heappush(moments, (stretch.ended_at_s, waiting))
            idle.clear()
    return Curve(spent=tuple(spent), best=tuple(best))


def repeated(case: Case, table: LossTable, traces: Sequence[CapacityTrace], *, seeds: Sequence[int]) -> list[Curve]:
    """Search with each seed. The same seed has the same capacity in every case.

    Args:
        case: What is searched, and under which condition.
        table: What trials report.
        traces: The recorded zones; none for a case without interruptions.
        seeds: Of searches and of where in the traces they begin.
    """
    curves = []
    for seed in seeds:
        workers: list[Capacity] = [Uninterrupted()] * WORKERS
        if case.full_training_h is not None:
            draw = np.random.default_rng(seed)
            zones = [traces[(seed + worker) % len(traces)] for worker in range(WORKERS)]
            workers = [RecordedZone(zone, begin=int(draw.integers(len(zone)))) for zone in zones]
        curves.append(
            searched(
                MAKERS[case.who](case.algorithm, seed),
                table,
                workers=workers,
                epoch_s=(case.full_training_h or EPOCHS) * 3600 / EPOCHS,
                start_s=0.0 if case.full_training_h is None else START_S,
                keeps=case.keeps,
            )
        )
    return curves


def measured(
    table: LossTable,
    traces: Sequence[CapacityTrace],
    *,
    contenders: Sequence[str],
    repetitions: int,
    processes: int,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    """Measure every case.

    Args:
        table: What trials report.
        traces: The recorded zones; without any, interruptions are left out.
        contenders: Whose searches are compared with ours.
        repetitions: How many seeds.
        processes: How many at once.
        progress: Is called with how many cases are done, of how many.
    """
    algorithms: tuple[Literal["random", "asha"], ...] = ("random", "asha")
    whose = ("spotkeep", *contenders)
    cases = [Case(who=who, algorithm=algorithm) for algorithm in algorithms for who in whose]
    for hours in FULL_TRAININGS_H if traces else ():
        for algorithm in algorithms if hours == JUDGED_H else algorithms[1:]:
            cases += [Case(who=who, algorithm=algorithm, full_training_h=hours) for who in whose]
            cases.append(Case(who="spotkeep", algorithm=algorithm, full_training_h=hours, keeps=True))
    objective = table.objective(one_of=ONE_OF)
    curves: dict[Case, list[Curve]] = {}
    with ProcessPoolExecutor(processes) as pool:
        asked = {pool.submit(repeated, case, table, traces, seeds=range(repetitions)): case for case in cases}
        for number, done in enumerate(as_completed(asked), start=1):
            curves[asked[done]] = done.result()
            progress(number, len(cases))
    return {
        "objective": round(objective, 4),
        "best": table.best,
        "repetitions": repetitions,
        "uninterrupted": [
            _regrets(case, curves[case], table, objective) for case in cases if case.full_training_h is None
        ],
        "interrupted": [_spending(case, curves, objective) for case in cases if case.full_training_h is not None],
        "target": TARGET,
    }


def _regrets(case: Case, curves: Sequence[Curve], table: LossTable, objective: float) -> dict[str, Any]:
    return {
        "search": case.name,
        "algorithm": case.algorithm,
        "regret": {
            str(budget): _spread([curve.best_at(budget) - table.best for curve in curves]) for budget in BUDGETS
        },
        "spent": _spread([curve.spent_until(objective) for curve in curves]),
    }


def _spending(case: Case, curves: Mapping[Case, Sequence[Curve]], objective: float) -> dict[str, Any]:
    """Return what a case spent, and what ours, which keeps what is interrupted, spent of that with the same seeds."""
    ours = Case(who="spotkeep", algorithm=case.algorithm, full_training_h=case.full_training_h, keeps=True)
    spent = [curve.spent_until(objective) for curve in curves[case]]
    ours_spent = [curve.spent_until(objective) for curve in curves[ours]]
    return {
        "search": case.name,
        "algorithm": case.algorithm,
        "full_training_h": case.full_training_h,
        "spent": _spread(spent),
        "not_reached": sum(each >= LONGEST_SEARCH for each in spent),
        "ours_of_it": round(float(np.median(ours_spent) / np.median(spent)), 3),
        "ours_of_it_in_all": round(sum(ours_spent) / sum(spent), 3),
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    quartiles = np.quantile(values, [0.25, 0.5, 0.75])
    return {name: round(float(value), 4) for name, value in zip(("low", "median", "high"), quartiles, strict=True)}
