"""The words for a run's end, in its timeline and in the notification of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final

from spotkeep_jobs.notifications.texts.composition import Moment, compose
from spotkeep_jobs.notifications.texts.pools import pool_left
from spotkeep_jobs.notifications.texts.run_summary import facts_of, figures_of, measured, next_steps, places_of
from spotkeep_jobs.notifications.texts.wording import EndingWords, quoted_reason, wrapped
from spotkeep_jobs.record.record import BackendName, Notification, Pool, Run, ScriptMetrics
from spotkeep_jobs.record.states import EndReason, NotificationKind, RunState

_ENDINGS: Final = {
    EndReason.COMPLETED: EndingWords(
        timeline="Completed",
        subject="completed",
        sentence="is done: the training script finished.",
    ),
    EndReason.SCRIPT_FAILED: EndingWords(
        timeline="Failed: the script ended with an error",
        subject="failed in its script",
        sentence="failed: the training script ended with an error.",
    ),
    EndReason.PAUSED: EndingWords(
        timeline="Paused",
        subject="paused",
        sentence="is paused, as its job file asks (pause_at_step).",
    ),
    EndReason.INPUT_ERROR: EndingWords(
        timeline="Failed: data, source, image, command or permissions did not work",
        subject="failed, not in its script",
        sentence="failed, not in its script: its data, source, image, command or permissions did not work.",
    ),
    EndReason.CAPACITY: EndingWords(
        timeline="Failed: no capacity of this instance type",
        subject="failed: no capacity",
        sentence="failed: AWS had no capacity of its instance type, and SageMaker gave up.",
    ),
    EndReason.PLATFORM_ERROR: EndingWords(
        timeline="Failed inside SageMaker",
        subject="failed in SageMaker",
        sentence="failed inside SageMaker, not in your script.",
    ),
    EndReason.JOB_VANISHED: EndingWords(
        timeline="The training job is gone",
        subject="failed: its job is gone",
        sentence="is lost: its training job was deleted before Spotkeep saw how it ended.",
    ),
    EndReason.NEVER_FITS: EndingWords(
        timeline="Ended: asked for more instances than its queue may ever have",
        subject="asked for too many instances",
        sentence="was ended by AWS Batch, as the settings of its queue ask: it stood at the front and could never have "
        "its turn, for it asks for more instances than its queue or share may have.",
    ),
    EndReason.QUOTA: EndingWords(
        timeline="The account's quota has no room for the training job",
        subject="has no quota",
        sentence="was not launched: the account's SageMaker quota has no room for its training job.",
    ),
    EndReason.LAUNCH_REFUSED: EndingWords(
        timeline="SageMaker refused the training job",
        subject="could not be launched",
        sentence="was not launched: SageMaker refused its training job.",
    ),
    EndReason.STOPPED_BY_USER: EndingWords(
        timeline="Stopped by a user",
        subject="was stopped",
        sentence="was stopped by a user.",
    ),
    EndReason.MAX_RUNTIME_EXCEEDED: EndingWords(
        timeline="Ended at its time limit (max_run)",
        subject="hit its time limit",
        sentence="was ended at its time limit (max_run), before the script was done.",
    ),
    EndReason.MAX_WAIT_EXCEEDED: EndingWords(
        timeline="Ended: waited for capacity longer than it may",
        subject="waited too long",
        sentence="was ended: it waited for capacity longer than it may.",
    ),
    EndReason.MAX_COST: EndingWords(
        timeline="Ended: the run has cost what it may (max_cost)",
        subject="has spent its max_cost",
        sentence="was ended: it has cost what it may (max_cost).",
    ),
    EndReason.DEADLINE: EndingWords(
        timeline="Ended: left spot to be done in time",
        subject="could not go on demand",
        sentence="left spot capacity for its deadline, and was ended before it could go on demand.",
    ),
}

_ENDINGS_ON_EC2: Final = {
    EndReason.PLATFORM_ERROR: EndingWords(
        timeline="Failed in EC2",
        subject="failed in EC2",
        sentence="failed in EC2, not in your script.",
    ),
    EndReason.JOB_VANISHED: EndingWords(
        timeline="The fleet is gone",
        subject="failed: its fleet is gone",
        sentence="is lost: its fleet was deleted before Spotkeep saw how it ended.",
    ),
    EndReason.LAUNCH_REFUSED: EndingWords(
        timeline="EC2 refused the fleet",
        subject="could not be launched",
        sentence="was not launched: EC2 refused its fleet.",
    ),
}

DOUBTFUL_END: Final = (
    "The script ended with code 0 on one notice after the other and did not say that it is done: it counts as done, "
    "and may only have been interrupted (docs/interruptions.md)"
)

_NOTIFICATION_OF_STATE: Final = {
    RunState.COMPLETED: NotificationKind.COMPLETED,
    RunState.FAILED: NotificationKind.FAILED,
    RunState.STOPPED: NotificationKind.STOPPED,
}


def words_of(reason: EndReason, *, backend: BackendName) -> EndingWords:
    """Return the words for an end reason."""
    return (_ENDINGS_ON_EC2 if backend == "ec2" else _ENDINGS).get(reason, _ENDINGS[reason])


def ending_notification(
    *,
    run: Run,
    deployment: str,
    created_at: datetime,
    pool: Pool | None = None,
    metrics: ScriptMetrics | None = None,
    is_doubtful: bool = False,
) -> Notification | None:
    """Compose the notification of the end of a run.

    Args:
        run: The run item, ended, with its cost.
        deployment: The deployment's name.
        created_at: The time when the notification is written.
        pool: The warm pool that its last job left.
        metrics: The metrics that its script measured.
        is_doubtful: Its script only counts as done.

    Returns:
        None when the run asked for no notification of this kind.
    """
    kind = _NOTIFICATION_OF_STATE[run.state]
    ending = run.ending
    if kind not in run.notify or ending is None:
        return None
    words = words_of(ending.reason, backend=run.place.backend)
    if ending.paused_at_step is not None:
        at_step = f"paused at step {ending.paused_at_step:,}"
        words = replace(words, subject=at_step, sentence=f"is {at_step}, as its job file asks (pause_at_step).")
    saved = ""
    cost = run.cost
    if kind is NotificationKind.COMPLETED and cost is not None and cost.redone_seconds is not None:
        saved = f", {cost.saved_percent:.0f} % saved" if (cost.saved_percent or 0) >= 1 else ""
    moment = Moment(
        run=run,
        attempt=run.attempt,
        deployment=deployment,
        happened_at=ending.at,
        created_at=created_at,
    )
    return compose(
        moment,
        kind=kind,
        subject=f"{words.subject}{saved}",
        paragraphs=[
            *wrapped(f"Your run {run.name} {words.sentence}"),
            *(wrapped(f"{DOUBTFUL_END}.") if is_doubtful else []),
            *quoted_reason(ending.failure_reason),
            *(wrapped(f"No job follows: {ending.no_more_jobs_because}.") if ending.no_more_jobs_because else []),
            "",
            *facts_of(run),
            *measured(metrics),
            "",
            *places_of(run),
            *pool_left(pool),
            "",
            *next_steps(run),
        ],
        reason=ending.reason.value,
        facts={} if metrics is None else {"metrics": figures_of(metrics)},
    )
