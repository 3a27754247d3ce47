"""The notification that a run's money is nearly spent."""

from __future__ import annotations

from datetime import datetime

from spotkeep_jobs.notifications.texts.composition import compose
from spotkeep_jobs.notifications.texts.run_summary import resumable
from spotkeep_jobs.notifications.texts.wording import spoken_usd, wrapped
from spotkeep_jobs.record.record import Notification, Run
from spotkeep_jobs.record.states import NotificationKind


def max_cost_near_notification(
    *, run: Run, attempt: int, spent_usd: float, about: bool, max_cost_usd: float, deployment: str, now: datetime
) -> Notification:
    """Compose the notification that most of a run's max_cost is spent while it goes on.

    Args:
        run: The run item.
        attempt: The attempt that spent it.
        spent_usd: What the run has cost so far.
        about: Whether a live job is counted, whose bill is not known.
        max_cost_usd: What the run may cost.
        deployment: The deployment's name.
        now: When it was seen.
    """
    saves = "saves first and is stopped; its checkpoints stay" if resumable(run) else "is stopped"
    return compose(
        run=run,
        deployment=deployment,
        kind=NotificationKind.MAX_COST_NEAR,
        attempt=attempt,
        happened_at=now,
        created_at=now,
        subject="has spent most of its max_cost",
        paragraphs=[
            *wrapped(
                f"Your run {run.name} has cost {'about ' if about else ''}{spoken_usd(spent_usd)} of the "
                f"{spoken_usd(max_cost_usd)} it may (max_cost). It goes on; when the rest is spent, it {saves}."
            ),
        ],
        commands=[
            (f"spotkeep describe {run.run}", "where it stands"),
            (f"spotkeep stop {run.run}", "end it; it saves first"),
        ],
    )
