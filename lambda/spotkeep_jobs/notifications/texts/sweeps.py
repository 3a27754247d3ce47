"""The notifications of a sweep, one at its end, and one when most of its money is spent."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final

from spotkeep_jobs.notifications.texts.composition import (
    addressed,
    clock,
    command_lines,
    fact_line,
    quoted_reason,
    spoken_duration,
    spoken_usd,
    wrapped,
)
from spotkeep_jobs.record.record import Notification
from spotkeep_jobs.record.states import NotificationKind, SweepState
from spotkeep_jobs.record.sweep import BestTrial, Sweep

_KINDS: Final = {
    SweepState.COMPLETED: NotificationKind.COMPLETED,
    SweepState.FAILED: NotificationKind.FAILED,
    SweepState.STOPPED: NotificationKind.STOPPED,
}
"""A paused sweep has no notification, because its own user paused it."""

_MOST: Final = 0.8
"""The share of a max_cost after which the rest pays for few trials, if for any."""


def sweep_ending_notification(*, sweep: Sweep, deployment: str, now: datetime) -> Notification | None:
    """Compose the notification of the end of a sweep.

    Args:
        sweep: The sweep's item, ended.
        deployment: The deployment's name.
        now: The time at which the notification is written.

    Returns:
        None when the sweep asked for no notification of this kind.
    """
    kind = _KINDS.get(sweep.state)
    if kind is None or kind not in sweep.notify:
        return None
    best = "" if sweep.best is None else f", best {_metric_of(sweep)} {_number(sweep.best.value)}"
    subject, sentence = {
        SweepState.COMPLETED: (f"is done{best}", "is done: its search has no trial left."),
        SweepState.FAILED: ("failed", "failed, and begins no more trials."),
        SweepState.STOPPED: (f"was stopped{best}", "was stopped."),
    }[sweep.state]
    return _composed(
        sweep=sweep,
        deployment=deployment,
        kind=kind,
        subject=subject,
        paragraphs=[
            *wrapped(f"Your sweep {sweep.name} {sentence}"),
            *quoted_reason(sweep.ended_because),
            *quoted_reason(sweep.warning),
            "",
            *_facts(sweep),
            *_best_lines(sweep.best, metric=_metric_of(sweep)),
        ],
        commands=[
            (f"spotkeep describe {sweep.sweep}", "its trials, the best first"),
            *_finish_commands(sweep),
            *([] if sweep.best is None else [(f"spotkeep best {sweep.sweep} --export best", "fetch the best one")]),
            *([_resume_command(sweep)] if sweep.can_go_on else []),
        ],
        now=now,
    )


def sweep_max_cost_near_notification(
    *, sweep: Sweep, spent_usd: float, max_cost_usd: float, deployment: str, now: datetime
) -> Notification:
    """Compose the notification that most of a sweep's max_cost is spent while it goes on.

    Args:
        sweep: The sweep's item.
        spent_usd: The cost of its trials so far.
        max_cost_usd: The limit of the sweep.
        deployment: The deployment's name.
        now: The time of the controller's pass.
    """
    return _composed(
        sweep=sweep,
        deployment=deployment,
        kind=NotificationKind.MAX_COST_NEAR,
        subject="has spent most of its max_cost",
        paragraphs=wrapped(
            f"The trials of your sweep {sweep.name} have cost about {spoken_usd(spent_usd)} of the "
            f"{spoken_usd(max_cost_usd)} it may cost (max_cost): those that train count at the on-demand price. It "
            "goes on; before the rest is spent, no trial begins any more, and those that train save first and are "
            "stopped."
        ),
        commands=[
            (f"spotkeep describe {sweep.sweep}", "where it stands"),
            (f"spotkeep pause {sweep.sweep}", "pause it; its trials save first"),
        ],
        now=now,
    )


def _composed(
    *,
    sweep: Sweep,
    deployment: str,
    kind: NotificationKind,
    subject: str,
    paragraphs: list[str],
    commands: list[tuple[str, str]],
    now: datetime,
) -> Notification:
    return addressed(
        what="sweep",
        subject_id=sweep.sweep,
        name=sweep.name,
        owner=sweep.owner,
        deployment=deployment,
        kind=kind,
        attempt=sweep.part,
        subject=subject,
        lines=[*paragraphs, "", "Next", *command_lines(*commands)],
        facts=_facts_for_programs(sweep),
        happened_at=sweep.ended_at or now,
        created_at=now,
    )


def _finish_commands(sweep: Sweep) -> list[tuple[str, str]]:
    best = sweep.best_to_finish
    if best is None:
        return []
    return [(f"spotkeep resume {best.run} {sweep.options_to_finish}", "train the best trial to its end")]


def _resume_command(sweep: Sweep) -> tuple[str, str]:
    limit, spent_usd = sweep.document.get("max_cost"), None if sweep.cost is None else sweep.cost.billed_usd
    if limit is not None and (spent_usd or 0.0) >= _MOST * float(limit):
        return f"spotkeep resume {sweep.sweep} --set max_cost={2 * float(limit):g}", "go on, with more money"
    if sweep.counts.failed:
        return f"spotkeep resume {sweep.sweep} --source .", "try what failed again, with fixed code"
    return f"spotkeep resume {sweep.sweep}", "go on with it"


def _facts_for_programs(sweep: Sweep) -> dict[str, Any]:
    if not sweep.state.ended:
        return {}
    return {
        "state": sweep.state.value,
        "trials": sweep.counts.model_dump(mode="json"),
        "best": None if sweep.best is None else sweep.best.model_dump(mode="json"),
        "cost": None if sweep.cost is None else sweep.cost.model_dump(mode="json"),
    }


def _facts(sweep: Sweep) -> list[str]:
    counts, cost = sweep.counts, sweep.cost
    states = [
        f"{count} {state}"
        for state in ("completed", "paused", "failed", "stopped")
        if (count := getattr(counts, state))
    ]
    lines = [*fact_line("Sweep", sweep.sweep), *fact_line("Trials", f"{counts.chosen}: {', '.join(states) or 'none'}")]
    if sweep.ended_at is not None:
        lines += fact_line("Ended", clock(sweep.ended_at))
    if cost is None:
        return [*lines, *fact_line("Cost", "nothing: no trial had an instance")]
    billed = spoken_duration(cost.billed_seconds)
    known = cost.billed_usd is not None
    lines += fact_line(
        "Cost", f"{spoken_usd(cost.billed_usd or 0.0)} for {billed} billed" if known else f"{billed} billed"
    )
    if cost.saved_usd is not None and cost.saved_usd > 0:
        percent = "" if cost.saved_percent is None else f" ({cost.saved_percent:.0f} %)"
        lines += fact_line("Saved", f"{spoken_usd(cost.saved_usd)}{percent} against the same work on demand")
    return lines


def _best_lines(best: BestTrial | None, *, metric: str) -> list[str]:
    if best is None:
        return []
    at = "" if best.step is None else f" at step {best.step:,}"
    return [
        "",
        "Best trial",
        *fact_line(f"Trial {best.number}", f"{metric} {_number(best.value)}{at}"),
        *(line for name, value in best.parameters.items() for line in fact_line(name, json.dumps(value).strip('"'))),
    ]


def _metric_of(sweep: Sweep) -> str:
    objective = sweep.document.get("sweep", {}).get("objective") or {}
    return str(objective.get("metric", "objective"))


def _number(value: float) -> str:
    return f"{value:.4g}"
