"""The requests to the function `search`, and its answers, as JSON. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from spotkeep_jobs.record.states import TrialState
from spotkeep_jobs.record.sweep import ParameterValue
from spotkeep_jobs.sweeps.search.search import Begin, SearchPlan, TrialResult
from spotkeep_jobs.sweeps.space import Space

MOST_TRIALS: Final = 1_000
"""The most trials of a search by tpe.

Optuna recommends this number. With so many trials a choice takes about a second.

Source: https://optuna.readthedocs.io/en/stable/reference/samplers/index.html ("Recommended budgets")
"""
MOST_AT_ONCE: Final = 10
"""Trials that are chosen in one invocation. The launcher asks again for more."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class ReportedTrial(_Part):
    """A trial that was begun."""

    number: int
    parameters: dict[str, ParameterValue]
    state: TrialState
    value: float | None = None
    """The best value of the objective that it reported. None where it has none."""


class TpeRequest(_Part):
    """A request for the trials that follow."""

    space: Space
    trials: Annotated[int, Field(ge=1, le=MOST_TRIALS)]
    """The most trials that begin."""
    seed: int
    goal: Literal["minimize", "maximize"]
    begun: tuple[ReportedTrial, ...]
    """In the order of their numbers."""
    free: int
    """The number of further trials that may run."""

    @classmethod
    def of(cls, plan: SearchPlan, *, trials: Sequence[TrialResult], free: int) -> Self:
        """Return the request that follows from the trials so far.

        Args:
            plan: The plan of the search.
            trials: Those begun, in any order.
            free: The number of further trials that may run.

        Raises:
            ValueError: The plan has no goal.
        """
        if plan.goal is None:
            raise ValueError("tpe needs the goal of its objective")
        best = min if plan.goal == "minimize" else max
        begun = [
            ReportedTrial(
                number=trial.number,
                parameters=dict(trial.parameters),
                state=trial.state,
                # JSON has no other numbers than finite ones.
                value=best((value for value in trial.values.values() if math.isfinite(value)), default=None),
            )
            for trial in sorted(trials, key=lambda trial: trial.number)
        ]
        return cls(space=plan.space, trials=plan.trials, seed=plan.seed, goal=plan.goal, begun=tuple(begun), free=free)


class TpeAnswer(_Part):
    """These trials follow. Each trains to its end."""

    chosen: tuple[Begin, ...]
