"""Notifications of money: a budget that is near, a limit that was reached."""

from __future__ import annotations

from datetime import datetime

from spotkeep_jobs.notifications.texts.composition import compose
from spotkeep_jobs.notifications.texts.wording import command_lines, spoken_usd, wrapped
from spotkeep_jobs.record.record import Notification, Run
from spotkeep_jobs.record.states import NotificationKind


def max_cost_notification(
    *, run: Run, attempt: int, spent_usd: float, max_cost_usd: float, deployment: str, now: datetime
) -> Notification:
    """Tell that most of a run's max_cost is spent while it goes on.

    Args:
        run: The head.
        attempt: The attempt that ended.
        spent_usd: What the run has cost so far.
        max_cost_usd: What it may cost.
        deployment: The deployment's name.
        now: When it was seen.
    """
    return _budget_notification(
        run=run,
        attempt=attempt,
        deployment=deployment,
        now=now,
        subject="has spent most of its max_cost",
        text=f"Your run {run.name} has cost {spoken_usd(spent_usd)} of the {spoken_usd(max_cost_usd)} it may "
        "(max_cost). It goes on with another job, which ends when the rest is spent; its checkpoints stay.",
    )


def budget_notification(
    *, run: Run, attempt: int, nth: int, spent: str, budget_usd: float, over: bool, deployment: str, now: datetime
) -> Notification:
    """Tell that a run's budget is nearly spent, or spent; which ends nothing.

    Args:
        run: The head.
        attempt: Its current attempt.
        nth: 1 for nearly, 2 for spent.
        spent: What the run has cost so far, in words: `at most 12.50 USD`.
        budget_usd: What it is meant to cost.
        over: Whether it has cost that.
        deployment: The deployment's name.
        now: When it was seen.
    """
    return _budget_notification(
        run=run,
        attempt=attempt,
        nth=nth,
        deployment=deployment,
        now=now,
        subject="has spent its budget" if over else "has spent most of its budget",
        text=f"Your run {run.name} has cost {spent} of the {spoken_usd(budget_usd)} it is meant to (budget). It goes "
        "on: a budget is told and ends nothing, max_cost does.",
    )


def _budget_notification(
    *, run: Run, attempt: int, deployment: str, now: datetime, subject: str, text: str, nth: int = 0
) -> Notification:
    return compose(
        run=run,
        deployment=deployment,
        kind=NotificationKind.BUDGET_NEAR,
        attempt=attempt,
        nth=nth,
        happened_at=now,
        created_at=now,
        subject=subject,
        paragraphs=[
            *wrapped(text),
            "",
            "Next",
            *command_lines(
                (f"spotkeep describe {run.run}", "where it stands"),
                (f"spotkeep stop {run.run}", "end it; it saves first"),
            ),
        ],
    )
