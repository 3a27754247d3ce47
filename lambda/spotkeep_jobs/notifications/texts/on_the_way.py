"""Notifications of a run that goes on, after an interruption, a resume, a long wait or a fallback."""

from __future__ import annotations

from spotkeep_jobs.document.capacity import NextJob
from spotkeep_jobs.notifications.texts.composition import (
    Moment,
    clock,
    compose,
    ordinal,
    quoted_reason,
    spoken_duration,
    spoken_usd,
    wrapped,
)
from spotkeep_jobs.notifications.texts.endings import goes_on, resumable
from spotkeep_jobs.progress.job_log import Hang
from spotkeep_jobs.progress.progress import Freshness
from spotkeep_jobs.record.record import Attempt, Notification, Run
from spotkeep_jobs.record.states import NotificationKind


def interruption_notification(moment: Moment, *, error_of_aws: bool = False, lost: str = "") -> Notification:
    """Compose the notification that a run lost its capacity, or a node of it, and waits for new.

    Args:
        moment: The moment of the loss.
        error_of_aws: True for an error of SageMaker's own. SageMaker then starts the job again.
        lost: The instance that is lost, as EC2 names it, with its type and zone. Empty where the backend names none.
    """
    run = moment.run
    if run.node_range is not None:
        return _lost_node(moment, run.node_range[0], lost=lost)
    in_attempt = f" in attempt {moment.attempt}" if moment.attempt > 1 else ""
    taken, waits_for = "AWS took the capacity back.", "new capacity"
    if run.place.queue is not None:
        taken, waits_for = f"AWS Batch gave it to another job of the queue {run.place.queue.queue}.", "its next turn"
    if error_of_aws:
        taken = "SageMaker had an error of its own (InternalServerError), and starts the job again."
    instances = f"{_number_of_instances(run)}{run.place.instance_type}"
    return compose(
        moment,
        kind=NotificationKind.INTERRUPTED,
        subject="was interrupted",
        paragraphs=[
            *wrapped(
                f"Your run {run.name} lost its {instances} at {clock(moment.happened_at)}: {taken} "
                f"There is nothing to do: the job waits for {waits_for}, then {goes_on(run)}."
            ),
            *wrapped(f"This was {ordinal(moment.nth)} interruption{in_attempt}."),
            *(["", "Checkpoints", f"  {run.checkpoint_uri}"] if resumable(run) else []),
        ],
        commands=[(f"spotkeep describe {run.run}", "where it stands")],
    )


def _number_of_instances(run: Run) -> str:
    """Return the number of a run's instances, to stand before their type. Empty for one."""
    return "" if run.place.instance_count == 1 else f"{run.instances} x "


def _lost_node(moment: Moment, least: int, *, lost: str) -> Notification:
    run = moment.run
    which = f" ({lost})" if lost else ""
    return compose(
        moment,
        kind=NotificationKind.INTERRUPTED,
        subject="lost a node",
        paragraphs=[
            *wrapped(
                f"Your run {run.name} lost one of its nodes{which} at {clock(moment.happened_at)}. "
                f"There is nothing to do. {_the_others(run, least)}"
            ),
            *wrapped(f"This was {ordinal(moment.nth)} interruption."),
            *["", "Checkpoints", f"  {run.checkpoint_uri}"],
        ],
        commands=[(f"spotkeep describe {run.run}", "how many nodes train")],
    )


def _the_others(run: Run, least: int) -> str:
    channel = run.request.get("checkpoint_channel")
    newest = "the newest step that is in S3 as a whole"
    if channel is not None:
        newest = f"the newest step in its folder of the channel {channel}"
    if least == run.place.instance_count:
        return f"The run waits for another node, and goes on from {newest}. Nodes that wait are billed."
    fewer = f" With fewer than {least} they wait, on the bill." if least > 1 else ""
    return f"The others go on from {newest}.{fewer} A node that comes in its place joins them."


def resume_notification(moment: Moment, *, away_seconds: float) -> Notification:
    """Compose the notification that a run has capacity again and trains.

    Args:
        moment: The moment at which it trained again.
        away_seconds: From the interruption until then.
    """
    run = moment.run
    again = "" if run.node_range is not None else "has capacity again and "
    return compose(
        moment,
        kind=NotificationKind.RESUMED,
        subject="trains again",
        paragraphs=[
            *wrapped(
                f"Your run {run.name} {again}trains since {clock(moment.happened_at)}, "
                f"{spoken_duration(away_seconds)} after it was interrupted. There is nothing to do."
            ),
        ],
        commands=[(f"spotkeep logs {run.run} -f", "from which step it goes on")],
    )


def next_fallback_notification(moment: Moment, *, left: Attempt, job: NextJob) -> Notification:
    """Compose the notification that a run found no capacity, and tries its next fallback.

    Args:
        moment: The moment of the decision, with the attempt that follows.
        left: The attempt that found none.
        job: The job that follows.
    """
    run = moment.run
    dearer = left.place.capacity == "spot" and job.fallback.capacity == "on-demand"
    types = _number_of_instances(run) + " or ".join(job.fallback.instance_types)
    what = f"looks for {types} on demand now, at the full price" if dearer else f"looks for {job.fallback} now"
    return compose(
        moment,
        kind=NotificationKind.NEXT_FALLBACK,
        subject="goes on demand" if dearer else "looks elsewhere for capacity",
        paragraphs=[
            *wrapped(
                f"Your run {run.name} {what} ({clock(moment.happened_at)}): {job.because}. There is nothing to do: "
                f"with capacity it {goes_on(run)}."
            ),
        ],
        commands=[(f"spotkeep describe {run.run}", "where it stands"), (f"spotkeep stop {run.run}", "end it instead")],
    )


def long_wait_notification(moment: Moment, *, waited_seconds: float, because: str | None) -> Notification:
    """Compose the notification that a run has waited long for capacity, and still waits.

    Args:
        moment: The event, with the number of the interruption before the wait as `nth`, 0 before the first capacity.
        waited_seconds: The length of the wait so far.
        because: AWS's reason. None without one.
    """
    run = moment.run
    where, why = f"{_number_of_instances(run)}{run.place.capacity} {run.place.instance_type}", "AWS has none to spare"
    costs = "Waiting costs nothing."
    if run.node_range is not None:
        least = run.node_range[0]
        where = f"{where}, all in one zone"
        why = f"no zone has {least} of them to spare" if least > 1 else why
        costs = "Waiting costs nothing while there is no node. Nodes that wait for others are billed."
    if run.place.queue is not None:
        where = f"its turn in the queue {run.place.queue.queue} ({where})"
        why = f"other jobs have the instances of share {run.place.queue.share}"
    return compose(
        moment,
        kind=NotificationKind.WAITING_TOO_LONG,
        subject="is waiting long for capacity",
        paragraphs=[
            *wrapped(
                f"Your run {run.name} has been waiting for {where} for {spoken_duration(waited_seconds)} and waits on"
                f"{'.' if because else f': {why}.'} With capacity it "
                f"{goes_on(run) if moment.nth or moment.attempt > 1 else 'begins'}. {costs}"
            ),
            *quoted_reason(because),
        ],
        commands=[
            (f"spotkeep describe {run.run}", "where it stands"),
            (f"spotkeep stop {run.run}", "end it, to look elsewhere"),
        ],
    )


def queue_blocked_notification(moment: Moment, *, because: str) -> Notification:
    """Compose the notification that a run in a queue can never have its turn, and that others wait behind it.

    Args:
        moment: The moment at which that was seen.
        because: AWS Batch's words.
    """
    run = moment.run
    place = (
        "its queue"
        if run.place.queue is None
        else f"share {run.place.queue.share} of the queue {run.place.queue.queue}"
    )
    return compose(
        moment,
        kind=NotificationKind.QUEUE_BLOCKED,
        subject="can never have its turn",
        paragraphs=[
            *wrapped(
                f"Your run {run.name} is at the front of {place} and can never have its turn: it asks for "
                f"{run.place.instance_count} x {run.place.instance_type}, more than there can be. "
                "It holds up the jobs behind it. Stop it and resume it with fewer instances or in another share, "
                "or have the deployment give the queue and the share more (setting queues). You are notified once."
            ),
            *quoted_reason(because),
        ],
        commands=[
            (f"spotkeep stop {run.run}", "let the others pass"),
            (f"spotkeep describe {run.run}", "where it stands"),
        ],
    )


def long_quota_wait_notification(moment: Moment, *, waited_seconds: float, reason: str) -> Notification:
    """Compose the notification that a run has been waiting for room in the account's quota for long, and waits on.

    Args:
        moment: The moment at which that was seen.
        waited_seconds: Since when.
        reason: The quota, in SageMaker's words.
    """
    run = moment.run
    needed = "" if run.place.instance_count == 1 else f", of which it needs {run.place.instance_count}"
    return compose(
        moment,
        kind=NotificationKind.WAITING_TOO_LONG,
        subject="is waiting long for quota",
        paragraphs=[
            *wrapped(
                f"Your run {run.name} has been waiting for {spoken_duration(waited_seconds)} and waits on: other jobs "
                f"use up the account's quota for {run.place.capacity} {run.place.instance_type}{needed}. "
                "When one of them ends, the run that waits longest is next. Waiting costs nothing. "
                "You can request a larger quota in the Service Quotas console."
            ),
            *quoted_reason(reason),
        ],
        commands=[
            (f"spotkeep describe {run.run}", "where it stands"),
            ("spotkeep ps", "which runs are in flight"),
            (f"spotkeep stop {run.run}", "end it, to look elsewhere"),
        ],
    )


def stale_checkpoint_notification(moment: Moment, *, freshness: Freshness) -> Notification:
    """Compose the notification that a run trains and has not saved for longer than it should.

    Args:
        moment: The moment at which that was seen.
        freshness: The age of its newest checkpoint.
    """
    run = moment.run
    age = spoken_duration((moment.happened_at - freshness.counted_from).total_seconds())
    newest = freshness.newest_at
    if newest is None:
        text = f"trains, and has reported no checkpoint since {clock(freshness.counted_from)}, {age} ago"
    elif newest < freshness.counted_from:
        text = f"trains since {clock(freshness.counted_from)}, {age} ago, and has not saved since then"
    else:
        text = f"trains, and its newest checkpoint is of {clock(newest)}, {age} ago"
    if freshness.interval_s is not None:
        text += f"; it saves every {spoken_duration(freshness.interval_s)} otherwise"
    stuck = "Newer ones are on the job's disk and do not reach S3. " if freshness.stuck_on_its_way else ""
    return compose(
        moment,
        kind=NotificationKind.CHECKPOINT_STALE,
        subject="has not saved for long",
        paragraphs=[
            *wrapped(
                f"Your run {run.name} {text}. {stuck}If its capacity went away now, the work since then would be "
                "repeated. You are notified once; the next checkpoint makes it fresh again."
            ),
        ],
        commands=[
            (f"spotkeep logs {run.run} -f", "whether it says why"),
            (f"spotkeep checkpoints ls {run.run}", "what is there"),
        ],
    )


def stuck_notification(moment: Moment, *, hang: Hang) -> Notification:
    """Compose the notification that a run's training stood still, and what follows.

    Args:
        moment: The moment at which the runner noticed it.
        hang: The silence, and the consequence.
    """
    run, silence = moment.run, spoken_duration(hang.silent_seconds)
    text = f"Your run {run.name} showed no step and no line of output for {silence}, at {clock(moment.happened_at)}."
    if hang.restarts is None:
        subject = "stands still"
        then = (
            "Nothing ends it before its max_run, and its instances are billed. Stop it, which asks it to save, and "
            f"resume it{' from its checkpoint' if resumable(run) else ''}."
        )
        if run.place.instance_count == 1:
            then += " Or let Spotkeep do that with restart: true below stuck."
    elif hang.starts_again:
        subject = "stood still and starts again"
        then = (
            "Its command was asked to save, and ended. There is nothing to do: on the same instance it starts again "
            f"and {goes_on(run)}. This was start {hang.restarts + 1} of at most {hang.at_most} for that in this job."
        )
    else:
        subject = "stood still and fails"
        then = (
            f"Its command had started again {hang.restarts} times for that, as often as it may (stuck.at_most). It was "
            "asked to save, and ended, and the job fails."
        )
    return compose(
        moment,
        kind=NotificationKind.STUCK,
        subject=subject,
        paragraphs=[*wrapped(f"{text} {then}"), *wrapped("You are notified once for each such time.")],
        commands=[
            (f"spotkeep logs {run.run}", "what it printed last"),
            (f"spotkeep stop {run.run}", "end it; it saves first")
            if hang.restarts is None
            else (f"spotkeep describe {run.run}", "where it stands"),
        ],
    )


def log_refused_notification(moment: Moment, *, warning: str) -> Notification:
    """Compose the notification that the controller refused or did not read a part of a job's log.

    Args:
        moment: The event.
        warning: The refused or unread part.
    """
    run = moment.run
    return compose(
        moment,
        kind=NotificationKind.LOG_REFUSED,
        subject="writes a log that is not all taken",
        paragraphs=[
            *wrapped(
                f"Your run {run.name} goes on, but {warning}. What it says of itself there counts for nothing: the "
                "steps it trained twice, and how far it is, may not be known. You are notified once for each run."
            ),
        ],
        commands=[
            (f"spotkeep logs {run.run} --raw", "what it writes"),
            (f"spotkeep describe {run.run}", "where it stands"),
        ],
    )


def on_demand_notification(moment: Moment) -> Notification:
    """Compose the notification that a run which asked for spot capacity trains on demand, at the full price."""
    run = moment.run
    return compose(
        moment,
        kind=NotificationKind.ON_DEMAND,
        subject="trains on demand",
        paragraphs=[
            *wrapped(
                f"Your run {run.name} trains on demand since {clock(moment.happened_at)}, on "
                f"{run.instances} x {run.place.instance_type}, at the full price: "
                "there was no spot capacity for it. It will not be interrupted."
            ),
        ],
        commands=[(f"spotkeep describe {run.run}", "what it has cost so far"), (f"spotkeep stop {run.run}", "end it")],
    )


def max_cost_near_notification(
    moment: Moment, *, spent_usd: float, about: bool, max_cost_usd: float, remark: str = ""
) -> Notification:
    """Compose the notification that most of a run's max_cost is spent while it goes on.

    Args:
        moment: The event.
        spent_usd: The cost of the run so far, in US dollars.
        about: True if the cost counts a live job without a known bill.
        max_cost_usd: The limit of the run, in US dollars.
        remark: The prices that are missing in the cost, in a clause. Empty where none is.
    """
    run = moment.run
    counted = f", {remark}" if remark else ""
    saves = "saves first and is stopped; its checkpoints stay" if resumable(run) else "is stopped"
    return compose(
        moment,
        kind=NotificationKind.MAX_COST_NEAR,
        subject="has spent most of its max_cost",
        paragraphs=[
            *wrapped(
                f"Your run {run.name} has cost {'about ' if about else ''}{spoken_usd(spent_usd)} of the "
                f"{spoken_usd(max_cost_usd)} it may (max_cost){counted}. It goes on; when the rest is spent, it "
                f"{saves}."
            ),
        ],
        commands=[
            (f"spotkeep describe {run.run}", "where it stands"),
            (f"spotkeep stop {run.run}", "end it; it saves first"),
        ],
    )
