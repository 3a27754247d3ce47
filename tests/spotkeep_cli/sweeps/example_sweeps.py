"""Sweeps of any size, as their records are when they have ended, for pictures and pages."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from spotkeep_cli.sweeps.sweep_report import SweepStory
from spotkeep_cli.sweeps.sweep_view import in_order
from spotkeep_jobs.record.record import Cost
from spotkeep_jobs.record.states import SweepState, TrialState
from spotkeep_jobs.record.sweep import BestTrial, Sweep, Trial, TrialCounts
from spotkeep_jobs.sweeps.document import SweepRequest
from tests.spotkeep_cli.conftest import NOW, make_cost

NAME = "digits-sweep-0f0f0f0f"
COMPARED = (100, 300, 900, 2_700, 8_100)
SPACE = {
    "lr": {"log_uniform": [1e-5, 1e-1]},
    "depth": [18, 34, 50],
    "optimizer": ["adam", "sgd", "lion"],
    "dropout": {"uniform": [0, 0.5]},
}


def cost(usd: float | None) -> Cost:
    return make_cost(
        billed_seconds=600.0, clean_on_demand_seconds=1_500.0, saved_seconds=900.0, saved_percent=60.0,
        usd_per_hour=1.0, billed_usd=usd, clean_on_demand_usd=None if usd is None else 2.5 * usd,
        saved_usd=None if usd is None else 1.5 * usd,
    )  # fmt: skip


def example(
    count: int,
    *,
    goal: str = "minimize",
    search: str = "asha",
    space: Mapping[str, Any] = SPACE,
    scale: float = 1.0,
    constant: bool = False,
    ended: bool = True,
    failed: int = 20,
    metric: str = "validation_loss",
) -> SweepStory:
    """Return a sweep.

    Args:
        count: The number of its trials.
        goal: The better direction of its objective.
        search: The name of its search.
        space: Its parameters.
        scale: The size of the objective.
        constant: True where the objective is the same for all.
        ended: False while all trials run.
        failed: Each trial with a multiple of this number has failed.
        metric: The name of the objective.
    """
    draw = random.Random(count)  # noqa: S311 - to be repeated
    document: dict[str, Any] = {
        "parameters": dict(space), "search": search, "trials": count, "parallel": 8,
        "objective": {"metric": metric, "goal": goal},
    }  # fmt: skip
    if search == "asha":
        document["asha"] = {"min_steps": 100, "max_steps": 8_100}
    request = SweepRequest.model_validate(document)
    assert request.parameters is not None
    trials, curves, seconds = [], {}, 0.0
    for number in range(1, count + 1):
        parameters = request.parameters.at([draw.random() for _ in request.parameters.root])
        distance = abs(math.log10(float(parameters.get("lr", 1e-3))) + 3) * 0.15 + 0.1 * draw.random()
        steps = (COMPARED[min(4, int(draw.expovariate(0.9)))] if distance > 0.1 else 8_100) if search == "asha" else 900
        values = {}
        for step in range(20, steps + 1, max(20, steps // 50)):
            loss = 0.5 if constant else (distance + 2 * math.exp(-step / (150 + 50 * draw.random()))) * scale
            values[step] = loss if goal == "minimize" else 1 / (1 + loss)
        has_failed = number % failed == 0
        seconds += 240 * draw.random()
        best = (max if goal == "maximize" else min)(values.values())
        done = {"ended_at": NOW - timedelta(hours=8) + timedelta(seconds=seconds), "cost": cost(steps * 2e-4)}
        state = TrialState.COMPLETED if steps == 8_100 or search != "asha" else TrialState.PAUSED
        last = list(values.values())[-1]
        compared = {step: values.get(step, last) for step in COMPARED if step <= steps}
        trials.append(
            Trial(
                sweep=NAME, number=number, run=f"{NAME}-{number}", parameters=parameters,
                state=TrialState.FAILED if has_failed else state if ended else TrialState.RUNNING,
                best=None if has_failed else best, best_step=None if has_failed else steps, step=steps,
                values={} if has_failed or search != "asha" else compared,
                failure_reason="SCRIPT_FAILED: ValueError: loss is nan" if has_failed else None,
                **(done if ended else {}),
            )
        )  # fmt: skip
        if not has_failed:
            curves[number] = tuple(values.items())
    first = in_order(trials, request)[0]
    best_trial = None
    if first.best is not None:
        best_trial = BestTrial(
            number=first.number, run=first.run, value=first.best, step=first.best_step, parameters=first.parameters
        )
    sweep = Sweep(
        sweep=NAME, name="digits-sweep", owner="ada", created_at=NOW - timedelta(hours=8), updated_at=NOW,
        token="token", counts=TrialCounts(completed=count) if ended else TrialCounts(running=count), best=best_trial,
        document={"name": "digits-sweep", "command": "python train.py", "max_cost": 60, "sweep": document},
        state=SweepState.COMPLETED if ended else SweepState.RUNNING, ended_at=NOW if ended else None,
        cost=cost(sum(each.cost.billed_usd or 0 for each in trials if each.cost)) if ended else None,
    )  # fmt: skip
    interruptions = {trial.number: int(trial.number % 3 == 0) for trial in trials}
    return SweepStory(sweep=sweep, trials=trials, curves=curves, interruptions=interruptions)
