"""A sweep on one page, with its state, its best trial, its bill, and its trials, the best first."""

from __future__ import annotations

import json
from itertools import accumulate
from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.columns import Column, Fact, facts, table_that_fits
from spotkeep_cli.rendering.curves import curve
from spotkeep_cli.rendering.metric_list import at_step, sparkline
from spotkeep_jobs.record.states import SweepState, TrialState
from spotkeep_jobs.sweeps.document import SweepRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from rich.console import RenderableType

    from spotkeep_jobs.record.record import Cost
    from spotkeep_jobs.record.sweep import Sweep, Trial, TrialCounts
    from spotkeep_jobs.sweeps.document import Objective

_SWEEP_STYLES = {
    SweepState.RUNNING: "bold green",
    SweepState.STOPPING: "yellow",
    SweepState.PAUSED: "cyan",
    SweepState.COMPLETED: "green",
    SweepState.FAILED: "bold red",
    SweepState.STOPPED: "magenta",
}
_TRIAL_STYLES = {
    TrialState.RUNNING: "bold green",
    TrialState.PAUSED: "cyan",
    TrialState.COMPLETED: "green",
    TrialState.FAILED: "bold red",
    TrialState.STOPPED: "magenta",
}
TRIALS_SHOWN = 20


def sweep_list(sweeps: Sequence[Sweep], *, now: datetime, width: int) -> RenderableType:
    """Return one row a sweep.

    Args:
        sweeps: At least one.
        now: The time.
        width: The room, in characters.
    """
    columns = [
        Column(heading="SWEEP", cells=[sweep.sweep for sweep in sweeps]),
        Column(heading="STATE", cells=[sweep_state(sweep) for sweep in sweeps]),
        Column(heading="TRIALS", cells=[_progress(sweep) for sweep in sweeps], importance=4),
        Column(heading="AGE", cells=[quantities.age(sweep.created_at, now=now) for sweep in sweeps], justify="right"),
        Column(
            heading="BEST",
            cells=[
                "" if sweep.best is None else f"{sweep.best.value:.4g} (trial {sweep.best.number})" for sweep in sweeps
            ],
            importance=3,
        ),
        Column(
            heading="COST",
            cells=[quantities.dollars(sweep.cost.billed_usd if sweep.cost else None) for sweep in sweeps],
            importance=2,
            justify="right",
        ),
        Column(heading="OWNER", cells=[sweep.owner or quantities.UNKNOWN for sweep in sweeps], importance=0),
    ]
    return table_that_fits(columns, width=width)


def sweep_page(sweep: Sweep, trials: Sequence[Trial], *, now: datetime, width: int, everything: bool) -> RenderableType:
    """Draw a sweep on one page.

    Args:
        sweep: Its item.
        trials: Its trials.
        now: The time.
        width: The room, in characters.
        everything: True to show more than the best trials.
    """
    request = SweepRequest.model_validate(sweep.document["sweep"])
    heading = Text.assemble((sweep.sweep, "bold"), "  ", sweep_state(sweep))
    rows: list[Fact] = [
        ("begun", f"{quantities.moment(sweep.created_at)}, {quantities.age(sweep.created_at, now=now)} ago"),
        ("trials", trials_in_words(sweep, request)),
        ("search", search_in_words(request)),
    ]
    if sweep.ended_because is not None:
        rows.append(("because", sweep.ended_because))
    if sweep.warning is not None:
        rows.append(("warning", sweep.warning))
    if sweep.best is not None and request.objective is not None:
        values = at_step(sweep.best.value, sweep.best.step)
        rows.append(("best", f"trial {sweep.best.number}: {request.objective.metric} {values}"))
        rows.append(("", ", ".join(f"{name}={value_text(each)}" for name, each in sweep.best.parameters.items())))
    best = [] if request.objective is None else best_so_far(ended_with_value(trials), request.objective)
    if len(best) > 1:
        rows.append(("best so far", f"{sparkline(best)}  {best[0]:.4g} to {best[-1]:.4g}"))
    rows += money_facts(sweep.cost, limit=sweep.document.get("max_cost"))
    ordered = in_order(trials, request)
    shown = ordered if everything else ordered[:TRIALS_SHOWN]
    parts: list[RenderableType] = [heading, facts(rows)]
    if shown:
        parts += [
            Text(),
            Padding(table_that_fits(trial_columns(shown, request), width=width - 2), (0, 0, 0, 2), expand=False),
        ]
    if len(shown) < len(ordered):
        parts.append(Text(f"  and {len(ordered) - len(shown):,} more; --all shows them", style="dim"))
    return Group(*parts)


def best_curve(sweep: Sweep, trials: Sequence[Trial], *, width: int) -> RenderableType:
    """Draw the best value of the objective after each trial that ended.

    Args:
        sweep: Its item.
        trials: Its trials.
        width: The room, in characters.
    """
    objective = SweepRequest.model_validate(sweep.document["sweep"]).objective
    best = [] if objective is None else best_so_far(ended_with_value(trials), objective)
    if objective is None or len(best) < 2:
        return Text("\n  No curve: fewer than two trials have ended with a value of the objective.", style="dim")
    heading = Text.assemble("\n  ", (objective.metric, "bold"), "  best so far")
    return Group(heading, *curve(list(enumerate(best, start=1)), width=width, unit="trials ended"))


def trial_columns(
    trials: Sequence[Trial], request: SweepRequest, *, interruptions: Mapping[int, int] | None = None
) -> list[Column]:
    """Return one row a trial, with the parameters that differ.

    Args:
        trials: In the order in which they are shown.
        request: The sweep's request.
        interruptions: The number of interruptions by the trial's number. None to leave them out.
    """
    metric = "VALUE" if request.objective is None else request.objective.metric
    return [
        Column(heading="TRIAL", cells=[str(trial.number) for trial in trials], justify="right"),
        Column(heading="STATE", cells=[_trial_state(trial) for trial in trials]),
        Column(
            heading=metric,
            cells=["" if trial.best is None else f"{trial.best:.6g}" for trial in trials],
            justify="right",
        ),
        Column(
            heading="STEP",
            cells=["" if trial.step is None else f"{trial.step:,}" for trial in trials],
            importance=3,
            justify="right",
        ),
        *(
            Column(
                heading=name,
                cells=[value_text(trial.parameters.get(name, "")) for trial in trials],
                importance=5,
                justify="right",
            )
            for name in differing(trials)
        ),
        *(
            []
            if interruptions is None
            else [
                Column(
                    heading="INTERRUPTED",
                    cells=[str(interruptions.get(trial.number, "")) for trial in trials],
                    justify="right",
                )
            ]
        ),
        Column(
            heading="COST",
            cells=[quantities.dollars(trial.cost.billed_usd) if trial.cost else "" for trial in trials],
            importance=4,
            justify="right",
        ),
        Column(heading="WHY", cells=[_why(trial) for trial in trials], importance=0),
    ]


def sweep_state(sweep: Sweep) -> Text:
    """Return the state of a sweep, in its colour."""
    return Text(sweep.state.value.lower(), style=_SWEEP_STYLES[sweep.state])


def in_order(trials: Iterable[Trial], request: SweepRequest) -> list[Trial]:
    """Return trials, the best first. Those without a value last, by number."""
    sign = -1 if request.objective is not None and request.objective.goal == "maximize" else 1
    return sorted(trials, key=lambda trial: (trial.best is None, sign * (trial.best or 0.0), trial.number))


def differing(trials: Sequence[Trial]) -> list[str]:
    """Return the parameters that not all trials have alike, in the order in which the sweep names them."""
    names = dict.fromkeys(name for trial in trials for name in trial.parameters)
    return [name for name in names if len({json.dumps(trial.parameters.get(name)) for trial in trials}) > 1]


def ended_with_value(trials: Iterable[Trial]) -> list[Trial]:
    """Return the trials that have ended with a value of the objective, in the order of their ends."""
    ended = (trial for trial in trials if trial.ended_at is not None and trial.best is not None)
    return sorted(ended, key=lambda each: (each.ended_at, each.number))


def best_so_far(trials: Iterable[Trial], objective: Objective) -> list[float]:
    """Return the best value of the objective after each of these trials."""
    better = max if objective.goal == "maximize" else min
    return list(accumulate((float(trial.best or 0.0) for trial in trials), better))


def trials_in_words(sweep: Sweep, request: SweepRequest) -> str:
    """Return the number of trials, and their states."""
    of = f"{sweep.counts.chosen} of {request.most_trials:,}, {request.parallel} at a time"
    states = states_in_words(sweep.counts)
    return f"{of}: {states}" if states else of


def states_in_words(counts: TrialCounts) -> str:
    """Return the number of trials in each state, such as `2 running, 1 paused`. Empty where there are none."""
    return ", ".join(f"{count} {state}" for state, count in counts.model_dump().items() if count)


def search_in_words(request: SweepRequest) -> str:
    """Return the way in which trials are chosen."""
    how = "as the file lists them" if request.search is None else request.search
    objective = "" if request.objective is None else f", {request.objective.goal} {request.objective.metric}"
    asha = request.asha
    steps = (
        ""
        if asha is None
        else f", {asha.min_steps:,} to {asha.max_steps:,} steps, one in {asha.reduction_factor} goes on"
    )
    seed = "" if request.search in {None, "grid"} else f", seed {request.seed}"
    return f"{how}{objective}{steps}{seed}"


def _progress(sweep: Sweep) -> str:
    most = SweepRequest.model_validate(sweep.document["sweep"]).most_trials
    counts = sweep.counts
    running = f", {counts.running} running" if counts.running else ""
    return f"{counts.chosen - counts.running} of {most:,}{running}"


def money_facts(cost: Cost | None, *, limit: object) -> list[Fact]:
    """Return the bill of a sweep, a line each."""
    of = "" if not isinstance(limit, int | float) else f" of {quantities.dollars(float(limit))} (max_cost)"
    if cost is None:
        return [("cost", f"nothing billed yet{of}")]
    billed = quantities.duration(cost.billed_seconds)
    if cost.billed_usd is None:
        return [("cost", f"{billed} billed{of}; the price is not known")]
    rows: list[Fact] = [("cost", f"{quantities.dollars(cost.billed_usd)}{of} for {billed}, of trials that have ended")]
    if cost.saved_usd is not None:
        at_most = "at most " if cost.saves_at_most else ""
        saved = f"{at_most}{quantities.percent(cost.saved_percent)}, {quantities.dollars(cost.saved_usd)}"
        rows.append(("saved", saved))
    return rows


def _trial_state(trial: Trial) -> Text:
    return Text(trial.state.value.lower(), style=_TRIAL_STYLES[trial.state])


def _why(trial: Trial) -> str:
    reason = trial.failure_reason or trial.stop_because or ""
    return reason if len(reason) <= 60 else reason[:57] + "..."


def value_text(value: object) -> str:
    """Return a value of a parameter as people write it."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value)
