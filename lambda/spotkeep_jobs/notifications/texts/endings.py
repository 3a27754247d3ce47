"""The words for a run's end, in its timeline and in the notification of it.

A notification's summary of a run has its duration, cost, metrics, files, and commands for the reader.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from spotkeep_jobs.notifications.texts.composition import (
    EndingWords,
    Moment,
    clock,
    command_lines,
    compose,
    fact_line,
    quoted_reason,
    spoken_duration,
    spoken_usd,
    wrapped,
)
from spotkeep_jobs.notifications.texts.pools import pool_left
from spotkeep_jobs.record.record import BackendName, Cost, Metric, Notification, Pool, Run, ScriptMetrics, Volume
from spotkeep_jobs.record.states import EndReason, NotificationKind, RunState

_MOST_LINES: Final = 10
"""So many metrics are in a notification."""


def facts_of(run: Run) -> list[str]:
    """Return the end's time, the instance types, the number of interruptions, the cost and the savings."""
    lines = fact_line("Run", run.run)
    if run.ended_at is not None:
        lines += fact_line("Ended", clock(run.ended_at))
    cost = run.cost
    if cost is None:
        service = "EC2" if run.place.backend == "ec2" else "SageMaker"
        return lines + fact_line("Cost", f"not known: {service} does not say any more what the job used.")
    machines = f"{run.instances} x {run.place.instance_type}, {run.place.capacity}"
    if cost.training_seconds:
        attempts = "" if run.attempt == 1 else f", in {run.attempt} attempts"
        where = f" on {machines}{attempts}"
        if run.changed_instances:
            where = f"{attempts}, the last with {machines}"
        lines += fact_line("Ran", f"{_ran(run, cost)}{where}")
    else:
        had = "it had no instances" if run.node_range is None else "it had too few nodes"
        lines += fact_line("Ran", f"never: {had} ({machines})")
    if cost.waited_seconds >= 1:
        lines += fact_line("Waited", f"{spoken_duration(cost.waited_seconds)} for capacity and start-up")
    lines += fact_line("Interrupted", _interruptions(run, cost))
    unit = " of instance time" if run.had_several_instances else ""
    lines += fact_line("Cost", _paid_on_ec2(run, cost) if run.place.backend == "ec2" else paid_for(cost, unit=unit))
    if cost.storage_gb_hours or cost.root_volume_gb_hours:
        lines += fact_line("Storage", _storage(cost))
    if cost.training_seconds and (run.place.capacity == "spot" or cost.saved_seconds):
        lines += fact_line("Saved", saved_by(cost, unit=unit))
    if run.volume is not None:
        lines += fact_line("Volume", _volume(run, run.volume))
    return lines


def _ran(run: Run, cost: Cost) -> str:
    """Return the time that its jobs worked. Nodes come and go, so theirs is that of all of them together."""
    if run.node_range is None and cost.worked_seconds is not None:
        return spoken_duration(cost.worked_seconds)
    return _in_time_of_run(run, cost.training_seconds)


def _in_time_of_run(run: Run, instance_seconds: float) -> str:
    """Return instance seconds as the time of the run, where all its jobs had as many instances."""
    if run.node_range is not None:
        return f"{spoken_duration(instance_seconds)} of node time"
    if run.changed_instances:
        return f"{spoken_duration(instance_seconds)} of instance time"
    return spoken_duration(instance_seconds / run.place.instance_count)


def _interruptions(run: Run, cost: Cost) -> str:
    how_often = {0: "never", 1: "once"}.get(run.interruptions, f"{run.interruptions} times")
    if run.node_range is not None and run.interruptions:
        how_often = f"{how_often}, by the loss of a node"
    if cost.redone_steps is None:
        return f"{how_often}; how many steps were trained twice is not known"
    if not cost.redone_steps:
        # A machine that is lost without a notice takes the last lines of its log with it.
        return f"{how_often}; its log shows no step that was trained twice" if run.interruptions else how_often
    steps = "1 step was" if cost.redone_steps == 1 else f"{cost.redone_steps:,} steps were"
    took = "" if cost.redone_seconds is None else f" ({_in_time_of_run(run, cost.redone_seconds)})"
    return f"{how_often}; {steps} trained twice{took}"


def paid_for(cost: Cost, *, unit: str) -> str:
    """Return the time and the money that SageMaker bills for the run."""
    billed = spoken_duration(cost.billed_seconds) + unit
    if not cost.billed_seconds:
        return "nothing"
    if cost.billed_usd is None:
        return f"{billed} billed; the price of this instance type is not known here"
    return f"{spoken_usd(cost.billed_usd)} for {billed} billed"


def _paid_on_ec2(run: Run, cost: Cost) -> str:
    """Return the bill in the time of instances, because seconds on demand mean little for a market's price."""
    if not cost.training_seconds and (run.node_range is None or not cost.billed_usd):
        return "nothing"
    time = f"{spoken_duration(cost.training_seconds)} of instances"
    if run.node_range is not None:
        # A node that waits for others is billed, and does no work.
        time = f"{spoken_duration(cost.training_seconds)} of work, and the waits of nodes for others"
    if cost.billed_usd is None:
        return f"{time}; not known here: the price of {', '.join(cost.unknown_prices)}"
    return f"{spoken_usd(cost.billed_usd)} for {time}"


def _volume(run: Run, volume: Volume) -> str:
    asked = run.request.get("volume") or {}
    if run.state is not RunState.COMPLETED or asked.get("when_done") != "delete":
        return f"{volume.id}; it is kept, and billed until it is deleted"
    if volume.is_for_a_person:
        return f"{volume.id}; it has what is not in S3 (`spotkeep logs` says what), so it is kept: delete it yourself"
    return f"{volume.id}; it is deleted within minutes, as the job asks"


def _storage(cost: Cost) -> str:
    each = (
        (cost.storage_gb_hours, cost.storage_usd, "volume"),
        (cost.snapshot_gb_hours, cost.snapshot_usd, "snapshots, which moved it"),
        (cost.root_volume_gb_hours, cost.root_volume_usd, "the instances' root volumes"),
    )
    return "; ".join(_stored(gb_hours, usd, what=what) for gb_hours, usd, what in each if gb_hours)


def _stored(gb_hours: float, usd: float | None, *, what: str) -> str:
    used = f"{gb_hours:,.1f} GiB hours of {what}"
    return f"{used}, whose price is not known here" if usd is None else f"{spoken_usd(usd)} of it for {used}"


def saved_by(cost: Cost, *, unit: str) -> str:
    """Return the savings against the same work on demand, and the reason for another percentage in SageMaker."""
    if cost.saved_percent is None and cost.unknown_prices:
        return f"not known: the price of {', '.join(cost.unknown_prices)} is not known here"
    if cost.saved_percent is None:
        return "nothing: the run did no work that lasted"
    amount = spoken_duration(abs(cost.saved_seconds)) + unit
    if cost.saved_usd is not None:
        amount = spoken_usd(abs(cost.saved_usd))
    # A price that is missing where the saving is known is one of storage.
    at_most = "" if cost.redone_seconds is not None and not cost.unknown_prices else "at most "
    if cost.saved_seconds < 0:
        text = f"nothing: it cost {amount} more than the same work on demand, uninterrupted."
    else:
        text = f"{at_most}{amount} ({cost.saved_percent:.0f} %) against the same work on demand, uninterrupted."
    aws = cost.aws_saved_percent
    if aws is not None and round(aws) != round(cost.saved_percent):
        text += f" SageMaker shows {aws:.0f} %: it counts repeated work as useful."
    return text


def places_of(run: Run) -> list[str]:
    """Return the places of its model and its checkpoints."""
    lines = []
    if run.output_uri is not None:
        lines += ["Model", f"  {run.output_uri}", "  output.tar.gz beside it, where the script left other output"]
    if resumable(run) and _has_trained(run):
        lines += ["Checkpoints", f"  {run.checkpoint_uri}"]
    return lines or ["There is no model and there are no checkpoints."]


def next_steps(run: Run) -> list[str]:
    """Return the commands that are of use after this end."""
    story = (f"spotkeep describe {run.run}", "what happened, in order")
    log = (f"spotkeep logs {run.run}", "what the script printed")
    resume = f"spotkeep resume {run.run}"
    again = (resume, "go on from the newest checkpoint" if resumable(run) and _has_trained(run) else "try again")
    if run.adopted and run.end_reason is not EndReason.COMPLETED:
        return ["Next", *command_lines(log, (f"spotkeep import {run.job_name}", "make a job file of it"))]
    if run.end_reason is EndReason.COMPLETED:
        fetch = [] if run.output_uri is None else [f"  aws s3 cp {run.output_uri} ."]
        return ["Next", *fetch, *command_lines(story)]
    if run.next_pause_at_step is not None:
        on = (f"{resume} --set pause_at_step={run.next_pause_at_step}", "go on, and pause there")
        return ["Next", *command_lines(on, (f"{resume} --set pause_at_step=", "go on to the end"), story)]
    if run.end_reason is EndReason.SCRIPT_FAILED:
        return ["Next", *command_lines(log, again)]
    if run.end_reason in {EndReason.LAUNCH_REFUSED, EndReason.INPUT_ERROR}:
        return ["Next", *command_lines(story, (resume, "try again when that is put right"))]
    if run.end_reason is EndReason.MAX_COST:
        there = " and this checkpoint_prefix" if resumable(run) and _has_trained(run) else ""
        return ["Next", *command_lines(story, ("spotkeep launch job.yaml", f"again, with a new max_cost{there}"))]
    return ["Next", *command_lines(again, story)]


def goes_on(run: Run) -> str:
    """Return the words for the start of its next job."""
    if resumable(run):
        return "goes on from its newest checkpoint"
    return "starts from the beginning, for it has no checkpoints"


def resumable(run: Run) -> bool:
    """Return True if it was asked to keep checkpoints."""
    return bool(run.checkpoint_uri) and bool(run.request.get("checkpoints", True))


def _has_trained(run: Run) -> bool:
    """Return True if there may be checkpoints. A run of unknown usage may have some."""
    return run.cost is None or run.cost.training_seconds > 0


def measured(metrics: ScriptMetrics | None) -> list[str]:
    """Return a paragraph of the metrics, those with a goal first. Empty without metrics."""
    if metrics is None or not metrics.metrics:
        return []
    in_order = sorted(metrics.metrics.items(), key=lambda named: named[1].goal is None)
    lines = ["", "Metrics"]
    for name, metric in in_order[:_MOST_LINES]:
        lines += fact_line(f"{name} ", _spoken_metric(metric))
    if len(in_order) > _MOST_LINES:
        lines.append(f"  and {len(in_order) - _MOST_LINES} more: spotkeep describe")
    return lines


def _spoken_metric(metric: Metric) -> str:
    """Return a metric's last and best value with steps, such as `0.231 at step 9,000; best 0.219 at step 7,500`."""
    best = "" if metric.best is None else f"; best {_at(metric.best, metric.best_step)}"
    return f"{_at(metric.last, metric.last_step)}{best}"


def figures_of(metrics: ScriptMetrics) -> dict[str, Any]:
    """Return last and best value of each metric for programs, without the curves."""
    kept = {"goal", "last_step", "last", "best_step", "best"}
    return {name: metric.model_dump(mode="json", include=kept) for name, metric in metrics.metrics.items()}


def _at(value: float, step: int | None) -> str:
    return f"{value:.6g}" if step is None else f"{value:.6g} at step {step:,}"


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
    "and may only have been interrupted (spotkeep help interruptions)"
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
