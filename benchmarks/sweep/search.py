"""The spending of searches until an objective, without interruptions and with those of recorded zones.

Time is simulated, and losses are read from the table. A search spends the time in which its workers have capacity.
Starts and lost work count, waiting does not. Without interruptions only epochs count.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.sweep.searches import EPOCHS, MAKERS, Job, LossTable, Search
from spotkeep_planner.traces import CapacityTrace


class Stretch(NamedTuple):
    """The outcome of some work.

    Attributes:
        ended_at_s: The time of its end or interruption, in seconds.
        billed_s: Seconds of work on the capacity.
        was_done: True when it was done.
    """

    ended_at_s: float
    billed_s: float
    was_done: bool


class WorkerCapacity(Protocol):
    """The capacity of one worker."""

    def work(self, *, at_s: float, for_s: float) -> Stretch:
        """Begin some work as soon as there is capacity, and do it until it is done or interrupted.

        Args:
            at_s: The earliest time of its start, in seconds.
            for_s: Seconds of the work.
        """


class Uninterrupted:
    """Capacity that is always there."""

    def work(self, *, at_s: float, for_s: float) -> Stretch:
        """See `WorkerCapacity`."""
        return Stretch(at_s + for_s, for_s, was_done=True)


class RecordedZone:
    """Capacity as it was in a zone, from a moment on. After its end the trace begins again."""

    def __init__(self, trace: CapacityTrace, *, begin: int) -> None:
        """Bind the zone.

        Args:
            trace: The recorded capacity.
            begin: The tick at which time is 0.
        """
        available = np.roll(np.asarray(trace.available, dtype=bool), -begin)
        self._tick_s = trace.tick_s
        self._ticks = len(available)
        twice = np.concatenate([available, available])
        self._next_up = _next(twice)[: self._ticks]
        self._next_down = _next(~twice)[: self._ticks]

    def work(self, *, at_s: float, for_s: float) -> Stretch:
        """See `WorkerCapacity`."""
        begin_s = self._when(self._next_up, at_s)
        taken_s = self._when(self._next_down, begin_s)
        if begin_s + for_s <= taken_s:
            return Stretch(begin_s + for_s, for_s, was_done=True)
        return Stretch(taken_s, taken_s - begin_s, was_done=False)

    def _when(self, following: NDArray[np.int64], at_s: float) -> float:
        """Return when the next tick of a kind begins, or the moment itself where it is in one."""
        rounds, tick = divmod(int(at_s // self._tick_s), self._ticks)
        return max(at_s, (rounds * self._ticks + int(following[tick])) * self._tick_s)


def _next(is_so: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return for each tick the first one from it on at which something is so. Far away where it never is."""
    ticks = np.where(is_so, np.arange(len(is_so)), np.iinfo(np.int64).max // 4)
    return np.minimum.accumulate(ticks[::-1])[::-1]


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
RESAMPLES: Final = 2_000
OURS_RESTARTED: Final = "spotkeep, restarted"


@dataclass(frozen=True, kw_only=True)
class SearchCase:
    """A search under a condition, which is repeated with different seeds.

    Attributes:
        who: The library of the search.
        algorithm: random or asha.
        full_training_h: Hours of a whole training, or None without interruptions.
        keeps: True when an interrupted trial goes on from its last epoch, False when it begins at 0 or at its last
            pause.
    """

    who: str
    algorithm: Literal["random", "asha"]
    full_training_h: float | None = None
    keeps: bool = False

    @property
    def name(self) -> str:
        """The case's name in tables."""
        return self.who if self.keeps or self.who != "spotkeep" or self.full_training_h is None else OURS_RESTARTED


class Spent(NamedTuple):
    """The capacity spent, in whole trainings.

    Attributes:
        epochs: On epochs that counted.
        starts: On the first start of each job, of a trial or of a promotion.
        lost: On interruptions, with work that was cut off or done again, and the starts after it.
    """

    epochs: float = 0.0
    starts: float = 0.0
    lost: float = 0.0

    @property
    def total(self) -> float:
        """All of it."""
        return self.epochs + self.starts + self.lost


@dataclass(frozen=True, kw_only=True)
class SearchCurve:
    """The best loss so far over the capacity spent, with a point for each improvement."""

    spent: tuple[Spent, ...]
    best: tuple[float, ...]

    def best_at(self, budget: float) -> float:
        """Return the best loss that was found with a budget. Infinite where there was none."""
        found = int(np.searchsorted([spent.total for spent in self.spent], budget, side="right"))
        return self.best[found - 1] if found else float("inf")

    def until(self, objective: float) -> Spent | None:
        """Return the capacity spent when a loss was reached, or None if it never was."""
        return next((spent for spent, best in zip(self.spent, self.best, strict=True) if best <= objective), None)

    def spent_until(self, objective: float) -> float:
        """Return all that was spent when a loss was reached. The longest search where it never was."""
        spent = self.until(objective)
        return float(LONGEST_SEARCH) if spent is None else spent.total


class _Worker:
    """A worker with its capacity, its job, and its current stretch of work."""

    def __init__(self, capacity: WorkerCapacity, *, epoch_s: float, start_s: float, keeps: bool) -> None:
        self._capacity = capacity
        self._epoch_s = epoch_s
        self._start_s = start_s
        self._keeps = keeps
        self._stretch: Stretch | None = None
        self._starts_job = False
        self._was_interrupted = False
        self._reported = 0
        self.job: Job | None = None
        self.done = 0

    def takes(self, job: Job) -> None:
        """Begin a job."""
        self.job = job
        self.done = self._reported = job.begins_at
        self._starts_job, self._was_interrupted = True, False

    def works(self, *, at_s: float) -> float:
        """Begin the next epoch. Return when it is done, or interrupted."""
        starts = self._starts_job or self._was_interrupted
        self._stretch = self._capacity.work(at_s=at_s, for_s=self._epoch_s + (self._start_s if starts else 0.0))
        return self._stretch.ended_at_s

    def ends(self) -> tuple[Spent, bool]:
        """Return the seconds of the stretch that ends now, and True when the job reports an epoch."""
        stretch, self._stretch = self._stretch, None
        if stretch is None or self.job is None:
            return Spent(), False
        if not stretch.was_done:
            self.done = self.done if self._keeps else self.job.begins_at
            self._starts_job, self._was_interrupted = False, True
            return Spent(lost=stretch.billed_s), False
        start_s = stretch.billed_s - self._epoch_s
        self.done += 1
        is_new = self.done > self._reported
        self._reported = max(self.done, self._reported)
        spent = Spent(
            epochs=self._epoch_s if is_new else 0.0,
            starts=start_s if self._starts_job else 0.0,
            lost=(start_s if self._was_interrupted else 0.0) + (0.0 if is_new else self._epoch_s),
        )
        self._starts_job = self._was_interrupted = False
        return spent, is_new


def searched(
    search: Search,
    table: LossTable,
    *,
    workers: Sequence[WorkerCapacity],
    epoch_s: float,
    start_s: float,
    keeps: bool,
    at_least: float = BUDGETS[-1],
) -> SearchCurve:
    """Search until the objective is reached and a budget spent, or the longest search is over.

    Args:
        search: The search, from its beginning.
        table: The losses that trials report.
        workers: The capacity of each worker.
        epoch_s: Seconds of an epoch.
        start_s: Seconds of a job before its first epoch, each time it gets capacity.
        keeps: True when an interrupted trial goes on from its last epoch.
        at_least: The budget, in whole trainings.
    """
    whole_s, objective = epoch_s * EPOCHS, table.objective(one_of=ONE_OF)
    spent = Spent()
    curve: list[tuple[Spent, float]] = []
    at_work = [_Worker(capacity, epoch_s=epoch_s, start_s=start_s, keeps=keeps) for capacity in workers]
    moments = [(0.0, number) for number in range(len(workers))]
    idle: list[int] = []
    while moments and spent.total < (at_least if curve and curve[-1][1] <= objective else LONGEST_SEARCH):
        at_s, number = heapq.heappop(moments)
        worker = at_work[number]
        took_s, reports = worker.ends()
        spent = Spent(*(before + seconds / whole_s for before, seconds in zip(spent, took_s, strict=True)))
        if reports and worker.job is not None:
            loss = float(table.losses[worker.job.configuration, worker.done - 1])
            if not curve or loss < curve[-1][1]:
                curve.append((spent, loss))
            if not search.goes_on(worker.job, epoch=worker.done, loss=loss) or worker.done == EPOCHS:
                worker.job = None
                for waiting in idle:
                    heapq.heappush(moments, (at_s, waiting))
                idle.clear()
        if worker.job is None:
            job = search.next_job()
            if job is None:
                idle.append(number)
                continue
            worker.takes(job)
        heapq.heappush(moments, (worker.works(at_s=at_s), number))
    return SearchCurve(spent=tuple(point for point, _ in curve), best=tuple(loss for _, loss in curve))


def repeated(
    case: SearchCase, table: LossTable, traces: Sequence[CapacityTrace], *, seeds: Sequence[int]
) -> list[SearchCurve]:
    """Search with each seed. The same seed has the same capacity in every case.

    Args:
        case: The search and its condition.
        table: The losses that trials report.
        traces: The recorded zones, or None for a case without interruptions.
        seeds: Seeds of searches and of their starts in the traces.
    """
    curves = []
    for seed in seeds:
        workers: list[WorkerCapacity] = [Uninterrupted()] * WORKERS
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
                at_least=BUDGETS[-1] if case.full_training_h is None else 0,
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
        table: The losses that trials report.
        traces: The recorded zones, without which cases with interruptions are left out.
        contenders: The libraries to compare with Spotkeep.
        repetitions: Number of seeds.
        processes: Number of processes at once.
        progress: Called with the number of finished cases and of all cases.
    """
    algorithms: tuple[Literal["random", "asha"], ...] = ("random", "asha")
    whose = ("spotkeep", *contenders)
    cases = [SearchCase(who=who, algorithm=algorithm) for algorithm in algorithms for who in whose]
    for hours in FULL_TRAININGS_H if traces else ():
        for algorithm in algorithms if hours == JUDGED_H else algorithms[1:]:
            cases += [SearchCase(who=who, algorithm=algorithm, full_training_h=hours) for who in whose]
            cases.append(SearchCase(who="spotkeep", algorithm=algorithm, full_training_h=hours, keeps=True))
    objective = table.objective(one_of=ONE_OF)
    curves: dict[SearchCase, list[SearchCurve]] = {}
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


def _regrets(case: SearchCase, curves: Sequence[SearchCurve], table: LossTable, objective: float) -> dict[str, Any]:
    return {
        "search": case.name,
        "algorithm": case.algorithm,
        "regret": {
            str(budget): _spread([curve.best_at(budget) - table.best for curve in curves]) for budget in BUDGETS
        },
        "spent": _spread([curve.spent_until(objective) for curve in curves]),
    }


def _spending(case: SearchCase, curves: Mapping[SearchCase, Sequence[SearchCurve]], objective: float) -> dict[str, Any]:
    """Return a case's spending, and the share of it that Spotkeep spends, with interrupted trials kept."""
    ours = SearchCase(who="spotkeep", algorithm=case.algorithm, full_training_h=case.full_training_h, keeps=True)
    spent = np.array([curve.spent_until(objective) for curve in curves[case]])
    ours_spent = np.array([curve.spent_until(objective) for curve in curves[ours]])
    reached = [until for curve in curves[case] if (until := curve.until(objective)) is not None]
    parts = Spent(*(sum(part) for part in zip(*reached, strict=True)))
    return {
        "search": case.name,
        "algorithm": case.algorithm,
        "full_training_h": case.full_training_h,
        "spent": _spread(spent),
        "not_reached": len(spent) - len(reached),
        "starts_share": round(parts.starts / parts.total, 3) if reached else None,
        "lost_share": round(parts.lost / parts.total, 3) if reached else None,
        "ours_of_it": round(float(np.median(ours_spent) / np.median(spent)), 3),
        "ours_of_it_90": _interval(ours_spent, spent),
        "ours_of_it_in_all": round(float(ours_spent.sum() / spent.sum()), 3),
    }


def _interval(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> dict[str, float]:
    """Return where nine in ten ratios of medians lie when the same number of seeds is drawn again (bootstrap)."""
    drawn = np.random.default_rng(0).integers(len(ours), size=(RESAMPLES, len(ours)))
    ratios = np.median(ours[drawn], axis=1) / np.median(theirs[drawn], axis=1)
    low, high = np.quantile(ratios, [0.05, 0.95])
    return {"low": round(float(low), 3), "high": round(float(high), 3)}


def _spread(values: Sequence[float] | NDArray[np.float64]) -> dict[str, float]:
    quartiles = np.quantile(values, [0.25, 0.5, 0.75])
    return {name: round(float(value), 4) for name, value in zip(("low", "median", "high"), quartiles, strict=True)}
