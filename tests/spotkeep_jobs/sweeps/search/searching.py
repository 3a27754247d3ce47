"""Sweeps on a model of the record: trials run, report in any order, and the search is asked again and again."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from spotkeep_jobs.record.states import TrialState
from spotkeep_jobs.sweeps.search.search import Begin, Move, Promote, SearchPlan, TrialResult
from spotkeep_jobs.sweeps.space import Space


def plan(parameters: Mapping[str, Any], *, search: str, trials: int = 20, **fields: Any) -> SearchPlan:
    """Return a plan on a space that is written as in a document."""
    return SearchPlan(space=Space.model_validate(parameters), search=search, trials=trials, **fields)  # type: ignore[arg-type]


def chance_of(seed: int) -> random.Random:
    """Return chance that repeats itself."""
    return random.Random(seed)  # noqa: S311


def loss(number: int, steps: int) -> float:
    """Return what a trial reports at a step: any numbers, the same ones each time."""
    return chance_of(number * 1_000_003 + steps).random()


class Record:
    """The trials of a sweep as the table holds them, and what is under way for them."""

    def __init__(self, *, fails: float = 0.0, seed: int = 0) -> None:
        self.trials: dict[int, TrialResult] = {}
        self.pauses: dict[int, int | None] = {}
        self._fails = fails
        self._chance = chance_of(seed)

    @property
    def running(self) -> list[int]:
        return [number for number, trial in self.trials.items() if trial.state is TrialState.RUNNING]

    def write(self, moves: Sequence[Move]) -> None:
        """Record moves, as one transaction does."""
        for move in moves:
            match move:
                case Begin(number=number, parameters=parameters, pause_at_step=step):
                    assert number not in self.trials
                    self.trials[number] = TrialResult(
                        number=number, parameters=parameters, state=TrialState.RUNNING, values={}
                    )
                    self.pauses[number] = step
                case Promote(number=number, pause_at_step=step):
                    assert self.trials[number].state is TrialState.PAUSED
                    self.trials[number] = replace(self.trials[number], state=TrialState.RUNNING)
                    self.pauses[number] = step

    def report(self, number: int) -> None:
        """Let a running trial come to where it pauses, or to its end; it may fail. Reported again, nothing changes."""
        trial = self.trials[number]
        if trial.state is not TrialState.RUNNING:
            return
        steps = self.pauses[number]
        if self._chance.random() < self._fails:
            self.trials[number] = replace(trial, state=TrialState.FAILED)
        elif steps is None:
            self.trials[number] = replace(trial, state=TrialState.COMPLETED)
        else:
            values = {**trial.values, steps: loss(number, steps)}
            self.trials[number] = replace(trial, state=TrialState.PAUSED, values=values)
