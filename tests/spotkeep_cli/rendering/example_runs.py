"""Runs with a page worth looking at: a long one with three attempts, one at work, one that failed at once."""

from __future__ import annotations

import math
from datetime import timedelta

from spotkeep_cli.rendering.run_description import RunStory
from spotkeep_jobs.record.record import (
    JobUsage,
    Metric,
    Notification,
    Progress,
    ScriptMetrics,
    TimelineEntry,
)
from spotkeep_jobs.record.states import EndReason, NotificationKind, NotificationState, RunState, TimelineKind
from tests.spotkeep_cli.conftest import NOW, make_attempt, make_completed, make_cost, make_run

RUN = "resnet-9f8e7d6c"
_BEGAN = NOW - timedelta(hours=9)


def entry(hours: float, attempt: int, kind: TimelineKind, text: str, step: int | None = None) -> TimelineEntry:
    at = _BEGAN + timedelta(hours=hours)
    return TimelineEntry(run=RUN, attempt=attempt, at=at, kind=kind, text=text, step=step)


TIMELINE = [
    entry(0, 1, TimelineKind.RUN_OPENED, "ada asked for the run"),
    entry(0.01, 1, TimelineKind.JOB_CREATED, f"SageMaker accepted training job {RUN}-1"),
    entry(0.4, 1, TimelineKind.STARTING, "Prepares the instances"),
    entry(0.5, 1, TimelineKind.DOWNLOADING, "Downloads the input data"),
    entry(0.7, 1, TimelineKind.TRAINING, "Training began"),
    entry(2.4, 1, TimelineKind.INTERRUPTED, "Lost its capacity and waits for new"),
    entry(3.1, 1, TimelineKind.STARTING, "Prepares the instances"),
    entry(3.2, 1, TimelineKind.DOWNLOADING, "Downloads the input data"),
    entry(3.4, 1, TimelineKind.RESUMED, "Trains again"),
    entry(3.4, 1, TimelineKind.STEP_RESUMED, "Resumed after step 3,400", 3_400),
    entry(4.6, 1, TimelineKind.INTERRUPTED, "Lost its capacity and waits for new"),
    entry(5.6, 1, TimelineKind.FALLBACK_LEFT, "Waited longer than 1h, so the next fallback is tried"),
    entry(5.62, 1, TimelineKind.ATTEMPT_ENDED, "Stopped, and another job follows"),
    entry(5.63, 2, TimelineKind.ATTEMPT_BEGUN, "Asks for ml.g5.xlarge, on-demand"),
    entry(5.64, 2, TimelineKind.JOB_CREATED, f"SageMaker accepted training job {RUN}-2"),
    entry(5.75, 2, TimelineKind.STARTING, "Prepares the instances"),
    entry(5.85, 2, TimelineKind.DOWNLOADING, "Downloads the input data"),
    entry(6.0, 2, TimelineKind.TRAINING, "Training began"),
    entry(6.0, 2, TimelineKind.STEP_RESUMED, "Resumed after step 5,750", 5_750),
    entry(8.6, 2, TimelineKind.UPLOADING, "Uploads the model"),
    entry(8.7, 2, TimelineKind.ENDED, "Completed"),
]


def _curve(name: str, at: int) -> float:
    wobble = 0.03 * math.sin(at * 12.9898) * math.sin(at * 4.1414)
    if name == "learning_rate":
        return 1e-3 * 10 ** (-3 * at / 11_000)
    if name == "val_accuracy":
        return 0.93 * (1 - math.exp(-at / 2_600)) + wobble / 3
    return 2.3 * math.exp(-at / 2_900) + 0.12 + wobble


def metric(name: str, *, goal: str | None = None) -> Metric:
    points = tuple((at, _curve(name, at)) for at in range(100, 11_000, 190))
    best = None if goal is None else (min if goal == "minimize" else max)(points, key=lambda point: point[1])
    return Metric.model_validate(
        {
            "goal": goal,
            "last_step": points[-1][0],
            "last": points[-1][1],
            "best_step": best and best[0],
            "best": best and best[1],
            "points": points,
        }
    )


METRICS = ScriptMetrics(
    metrics={
        "loss": metric("loss", goal="minimize"),
        "val_accuracy": metric("val_accuracy", goal="maximize"),
        "learning_rate": metric("learning_rate"),
    }
)
BODY = f"""{RUN} completed.

It trained for 6h 25m and was interrupted 2 times.
Billed: $3.42. Saved: 48% against a clean on-demand run.

Model: s3://spotkeep-checkpoints-123456789012/runs/{RUN}/output/{RUN}-2/output/model.tar.gz

spotkeep describe {RUN}
"""


def notification(kind: NotificationKind, subject: str, body: str, *, nth: int = 0, hours: float = 8.7) -> Notification:
    at = _BEGAN + timedelta(hours=hours)
    return Notification(
        notification_id=f"{RUN}/{kind.value}/1-{nth}",
        subject_id=RUN,
        kind=kind,
        nth=nth,
        state=NotificationState.SENT,
        subject=subject,
        body=body,
        attributes={},
        happened_at=at,
        created_at=at,
        sent_at=at + timedelta(seconds=2),
    )


def interrupted_run() -> RunStory:
    """A run that was interrupted twice, left spot and completed."""
    run = make_completed(
        RUN,
        name="resnet",
        interruptions=2,
        created_at=_BEGAN,
        started_at=_BEGAN + timedelta(hours=0.4),
        ended_at=_BEGAN + timedelta(hours=8.7),
        instance_type="ml.g5.xlarge",
        capacity="on-demand",
        attempt=2,
        cost=make_cost(
            billed_seconds=12_400,
            training_seconds=23_100,
            waited_seconds=7_300,
            redone_steps=132,
            redone_seconds=240,
            clean_on_demand_seconds=22_700,
            saved_seconds=10_300,
            saved_percent=45.4,
            usd_per_hour=1.408,
            billed_usd=4.85,
            clean_on_demand_usd=8.88,
            saved_usd=4.03,
            aws_saved_percent=46.3,
        ),
    )
    usage = JobUsage(
        instance_count=1, billable_seconds=4_000, training_seconds=11_500, waited_seconds=5_000, redone_steps=132,
        redone_seconds=240, restart_overhead_seconds=300,
    )  # fmt: skip
    first = make_attempt(
        RUN, state=RunState.STOPPED, instance_type="ml.g5.xlarge", interruptions=2, usage=usage,
        created_at=_BEGAN, started_at=_BEGAN + timedelta(hours=0.4),
    )  # fmt: skip
    second = make_attempt(
        RUN, attempt=2, job_name=f"{RUN}-2", instance_type="ml.g5.xlarge", capacity="on-demand", interruptions=0,
        created_at=_BEGAN + timedelta(hours=5.6), started_at=_BEGAN + timedelta(hours=5.75),
    )  # fmt: skip
    return RunStory(
        run=run,
        attempts=[first, second],
        timeline=TIMELINE,
        metrics=METRICS,
        notifications=[
            notification(NotificationKind.INTERRUPTED, f"{RUN} lost its capacity", "It waits.", nth=1, hours=2.4),
            notification(NotificationKind.COMPLETED, f"{RUN} completed: saved 45%", BODY),
        ],
        plan=None,
        page=f"https://eu-central-1.console.aws.amazon.com/sagemaker/home?region=eu-central-1#/jobs/{RUN}-2",
    )


def run_at_work() -> RunStory:
    """A run that trains after an interruption."""
    timeline = [each for each in TIMELINE if each.at <= _BEGAN + timedelta(hours=3.4)]
    progress = Progress(step=4_321, total_steps=11_000, durable_step=4_200, reported_at=NOW, read_to=NOW.timestamp())
    run = make_run(
        RUN, created_at=_BEGAN, started_at=_BEGAN + timedelta(hours=0.4), interruptions=1, progress=progress,
        instance_type="ml.g5.xlarge",
    )  # fmt: skip
    attempt = make_attempt(RUN, state=RunState.TRAINING, created_at=_BEGAN, instance_type="ml.g5.xlarge")
    return RunStory(run=run, attempts=[attempt], timeline=timeline, metrics=METRICS, plan=None, page=None)


def failed_run(reason: str = "ModuleNotFoundError: No module named 'timm'") -> RunStory:
    """A run whose script failed before its first step."""
    run = make_run(
        RUN, state=RunState.FAILED, end_reason=EndReason.SCRIPT_FAILED, failure_reason=reason,
        ended_at=NOW - timedelta(minutes=2), cost=make_cost(redone_steps=None, redone_seconds=None, saved_percent=None),
    )  # fmt: skip
    timeline = [
        entry(0, 1, TimelineKind.RUN_OPENED, "ada asked for the run"),
        entry(0.5, 1, TimelineKind.ENDED, reason),
    ]
    return RunStory(run=run, attempts=[make_attempt(RUN)], timeline=timeline, metrics=None, plan=None, page=None)
