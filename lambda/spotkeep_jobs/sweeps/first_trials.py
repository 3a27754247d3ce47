"""The first trials of a sweep that is to be launched: their documents stand for those of all trials. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from spotkeep_jobs.record.ids import run_of_trial
from spotkeep_jobs.record.sweep import ParameterValue, Trial
from spotkeep_jobs.sweeps.document import SweepRequest
from spotkeep_jobs.sweeps.search.moves import Begin, Move
from spotkeep_jobs.sweeps.search.search import next_moves
from spotkeep_jobs.sweeps.trial_documents import sweep_id_for, trial_document

JUDGED_TRIALS: Final = 20
"""So many trials are judged before a sweep is launched; of listed trials, all."""


@dataclass(frozen=True, kw_only=True)
class FirstTrial:
    """A trial that would be begun.

    Attributes:
        number: From 1.
        parameters: By name.
        document: Its job document.
    """

    number: int
    parameters: Mapping[str, ParameterValue]
    document: Mapping[str, Any]


def first_trials(
    document: Mapping[str, Any], request: SweepRequest, *, token: str, owner: str | None
) -> tuple[FirstTrial, ...]:
    """Return the first trials of a sweep; of a list, all.

    Args:
        document: The sweep's document.
        request: Its sweep, in which everything fits together.
        token: The launch's token.
        owner: Whose the sweep is.
    """
    plan = request.plan
    moves: Sequence[Move] = request.listed_begins(begun=0)
    if plan is not None:
        # Where tpe begins is as good as anywhere in its space.
        sampled = replace(plan, search="random") if plan.search == "tpe" else plan
        moves = next_moves(sampled, trials=(), free=min(JUDGED_TRIALS, plan.trials))
    sweep = sweep_id_for(document, request, token=token)
    return tuple(
        FirstTrial(
            number=move.number,
            parameters=move.parameters,
            document=trial_document(
                document,
                request,
                trial=Trial(
                    sweep=sweep,
                    number=move.number,
                    run=run_of_trial(sweep, move.number),
                    parameters=dict(move.parameters),
                    pause_at_step=move.pause_at_step,
                    max_cost_usd=document.get("max_cost"),
                ),
                token=token,
                owner=owner,
            ),
        )
        for move in moves
        if isinstance(move, Begin)
    )
