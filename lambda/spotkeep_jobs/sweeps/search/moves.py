"""The facts that a search has of the trials so far, and the moves that it answers with. Pure.

Asha compares trials after certain numbers of steps, and its moves call each such number a rung (Li et al. 2020).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from spotkeep_jobs.record.states import TrialState
from spotkeep_jobs.record.sweep import ParameterValue


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """A trial that was begun, and the values that it has reported.

    Attributes:
        number: From 1, in the order in which trials are chosen.
        parameters: By name.
        state: The state of the trial.
        values: The objective by completed steps, where the trial paused or ended. A paused trial without a value at its
            pause is never promoted.
    """

    number: int
    parameters: Mapping[str, ParameterValue]
    state: TrialState
    values: Mapping[int, float]


@dataclass(frozen=True, kw_only=True)
class Begin:
    """Begin a trial.

    Attributes:
        number: Its number.
        parameters: By name.
        pause_at_step: The step at which it pauses, in completed steps. None to train to its end.
    """

    number: int
    parameters: Mapping[str, ParameterValue]
    pause_at_step: int | None = None


@dataclass(frozen=True, kw_only=True)
class Promote:
    """Let a paused trial go on from its checkpoint.

    Attributes:
        number: Its number.
        pause_at_step: The step at which it pauses next, in completed steps. None to train to its end.
    """

    number: int
    pause_at_step: int | None


Move: TypeAlias = Begin | Promote
