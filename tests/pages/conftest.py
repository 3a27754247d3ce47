"""The worlds on models of AWS. Some are fixtures of the command line's tests, for the pages that show the same."""

# ruff: noqa: F401, F811 - fixtures
from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spotkeep_cli.account.check import AccountCheck, in_order
from spotkeep_jobs.document.request import validate
from spotkeep_jobs.record.deployment_records import OrphanKind, OrphanReport
from spotkeep_jobs.record.record import Metric, ScriptMetrics, TrialPlace
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.schedule import Schedule
from spotkeep_jobs.record.states import EndReason, RunState, SweepState
from spotkeep_jobs.record.sweep import TrialCounts
from spotkeep_jobs.schedules.scheduled_launches import refused_firing_notification
from tests.pages.worlds import PROJECT, notifications_in
from tests.spotkeep_cli.commands.test_checkpoints import flip, saved, written
from tests.spotkeep_cli.commands.test_job_files_doctor import a_finding
from tests.spotkeep_cli.commands.test_notifications import notified
from tests.spotkeep_cli.commands.test_pool import OLD as POOL_RUN
from tests.spotkeep_cli.commands.test_pool import pools
from tests.spotkeep_cli.commands.test_startup import interrupted
from tests.spotkeep_cli.commands.test_steering_priority import queued
from tests.spotkeep_cli.conftest import NOW, deployment, ec2, job_file, make, market, spot_market, spotkeep
from tests.spotkeep_cli.sweeps.test_sweep_commands import SWEEP, TRIALS, sweep, with_sweep

RUN = "digits-1a2b3c4d"
TEXTS = PROJECT / "tests/spotkeep_jobs/notifications/__snapshots__/test_texts.ambr"


@pytest.fixture
def notifications(make: Any) -> dict[str, str]:
    """The notifications of the tests of their texts, by the tests' names, and that of a schedule."""
    schedule = Schedule(
        schedule="demand-nightly", name="demand", token="token", document={"name": "demand"}, owner="ada",
        expression="rate(1 day)", timezone="UTC", created_at=make.now, begins_at=make.now,
    )  # fmt: skip
    refused = refused_firing_notification(
        schedule=schedule, fired_at=make.now - timedelta(hours=11), next_firing=make.now + timedelta(hours=13),
        refusal="max_cost: is above the 25 USD that a run may cost in this deployment (max_cost_limit) (found 40). "
        "Lower it, or have the setting raised.", deployment="spotkeep", now=make.now,
    )  # fmt: skip
    return notifications_in(TEXTS.read_text()) | {"refused-firing": f"Subject: {refused.subject}\n\n{refused.body}"}


@pytest.fixture
def account(deployment: Any, make: Any) -> None:
    """A training job of no run, and a pool that waits as it was asked to."""
    job = a_finding(make, OrphanKind.UNRECORDED_JOB, usd_per_hour=0.23)
    pool = a_finding(
        make, OrphanKind.IDLE_POOL, usd_per_hour=0.12, since=make.now - timedelta(minutes=12),
        says=f"the warm pool of {RUN} waits for a next job until 12:18 UTC", risk="is billed while it waits",
        mend=f"spotkeep pool stop {RUN}",
    )  # fmt: skip
    report = OrphanReport(begun_at=make.now - timedelta(minutes=47), removes=True, handled=())
    deployment.account = AccountCheck(findings=in_order([pool, job]), unreadable={}, last_report=report)


@pytest.fixture
def damaged(saved: Path) -> Path:
    """Of three checkpoints the newest has an altered byte, and the file of the one before is too short."""
    flip(saved / "step-300" / "data-00000.bin", 700_000)
    short = saved / "step-200" / "data-00000.bin"
    short.write_bytes(short.read_bytes()[:1_000_000])
    return saved


@pytest.fixture
def failed(deployment: Any, make: Any, job_file: Path) -> None:
    """A run whose script failed, and a launcher that resumes it."""
    deployment.dynamodb.add(
        make.run(
            state=RunState.FAILED, end_reason=EndReason.SCRIPT_FAILED, ended_at=make.now, cost=make.cost(),
            failure_reason="AlgorithmError: ValueError: no column 12",
        )
    )  # fmt: skip
    deployment.answers["resume"] = {"ok": True, "run": RUN, "job_name": f"{RUN}-2", "attempt": 2, "warnings": []}


@pytest.fixture
def measured(deployment: Any, make: Any) -> None:
    """A run with a loss that falls from step to step, with a bend every tenth step."""
    points = tuple((step, round(2.3 / step + step % 10 / 50, 4)) for step in range(1, 61))
    best_step, best = min(points, key=lambda point: point[1])
    loss = Metric(
        goal="minimize", last=points[-1][1], last_step=60, best=best, best_step=best_step, points=points,
    )  # fmt: skip
    deployment.dynamodb.add(make.completed(), metrics=ScriptMetrics(metrics={"loss": loss}))


@pytest.fixture
def two_metrics(deployment: Any, make: Any) -> None:
    """A run with a metric that its script logged, and one that it printed."""
    accuracy = tuple((step, 0.5 + 0.48 * (1 - abs(850 - step) / 850) ** 0.5) for step in range(50, 901, 50))
    losses = tuple((step, round(0.219 + (step - 7) ** 2 / 60, 3)) for step in range(1, 9)) + ((9, 0.231),)
    metrics = {
        "accuracy": Metric(
            goal="maximize", last=0.97, last_step=900, best=0.98, best_step=850,
            points=(*((step, round(value, 3)) for step, value in accuracy[:-1]), (900, 0.97)),
        ),
        "validation_loss": Metric(
            goal="minimize", last=0.231, last_step=9, best=0.219, best_step=7, points=losses,
        ),
    }  # fmt: skip
    deployment.dynamodb.add(make.completed(), metrics=ScriptMetrics(metrics=metrics))


@pytest.fixture
def unexpanded(deployment: Any, job_file: Path) -> None:
    """A job file whose command needs a shell, and the launcher's judgement of it."""
    command = "python prepare.py --out $SM_MODEL_DIR && python train.py"
    job_file.write_text(f"name: digits\nsource: .\ninstance_type: ml.m5.large\ncommand: {command}\n")
    problems = validate({"name": "digits", "instance_type": "ml.m5.large", "command": command}).problems
    deployment.answers["validate"] = {
        "ok": False, "error": "refused", "problems": [problem.as_document() for problem in problems], "warnings": [],
    }  # fmt: skip


@pytest.fixture
def launched(deployment: Any, make: Any, job_file: Path) -> None:
    """A job file with a channel, a run that a follower sees end at once, and a launcher that takes everything."""
    job_file.write_text(job_file.read_text() + "channels: [{name: train, uri: s3://my-data/train/}]\n")
    deployment.dynamodb.add(make.completed())
    request = {"name": "digits", "command": ["python", "train.py"], "instance_type": "ml.m5.xlarge", "max_run": 7_200}
    deployment.answers["validate"] = {
        "ok": True, "request": request, "warnings": [], "usd_per_hour": 0.23, "worst_case_usd": 0.46,
    }  # fmt: skip
    started = {"ok": True, "run": RUN, "state": "LAUNCHING", "job_name": f"{RUN}-1", "attempt": 1, "warnings": []}
    deployment.answers["launch"] = {**started, "replayed": False, "next": []}
    deployment.answers["resume"] = started
    deployment.answers["stop"] = {"ok": True, "run": RUN, "state": "STOPPING", "warnings": []}


@pytest.fixture
def warm(pools: Any, make: Any, job_file: Path) -> None:
    """Two pools, a job that fits the first, an extension beyond the limit, and the bill of a run with a pool."""
    problem = {
        "field": "for", "found": "1h",
        "problem": "would make the keep-alive period 1h30m; AWS documents 1h as the longest",
        "fix": "Extend it by 30m at most, or run a job on it: its pool is kept anew.",
    }  # fmt: skip
    pools.answers["extend-pool"] = {"ok": False, "error": "refused", "problems": [problem], "warnings": []}
    idle = make.cost(
        billed_seconds=840, idle_pool_seconds=600, billed_usd=0.0536, idle_pool_usd=0.0383,
        saved_seconds=-180, saved_usd=-0.0115, saved_percent=-27.3,
    )  # fmt: skip
    pools.dynamodb.add(make.completed(POOL_RUN, cost=idle, capacity="on-demand"))


@pytest.fixture
def cities(deployment: Any, make: Any, job_file: Path) -> None:
    """A launcher that takes a schedule of a sweep, and three schedules with what came of them."""
    schedule = {"expression": "cron(0 2 * * ? *)", "timezone": "Europe/Berlin"}
    first = {"schedule": "demand-nightly", **schedule, "owner": "ada", "next_firing": "2026-11-22T01:00:00+00:00"}
    request = {
        "name": "demand-berlin",
        "command": ["python", "train.py"],
        "instance_type": "ml.m5.xlarge",
        "max_run": 7_200,
    }
    deployment.answers["validate"] = {
        "ok": True, "request": request, "warnings": [], "usd_per_hour": 0.23, "worst_case_usd": 0.46, "schedule": first,
    }  # fmt: skip
    deployment.answers["launch"] = {"ok": True, "schedule": first, "replayed": False, "warnings": [], "next": []}
    table = RunTable.of(client=deployment.dynamodb, table_name="runs")
    for minutes, (name, fields) in enumerate(
        {
            "demand-nightly": {**schedule, "last_launched": "demand-nightly-20261121-0100", "last_firing": make.now},
            "probe": {"expression": "rate(6 hours)", "last_refusal": "max_run: is too long", "last_firing": make.now},
            "new": {"expression": "cron(0 4 ? * MON-FRI *)", "owner": None},
        }.items()
    ):
        table.schedules.open(
            Schedule(
                schedule=name, name="demand", token="token", document={"name": "demand"},
                created_at=make.now - timedelta(minutes=minutes), begins_at=make.now + timedelta(hours=6),
                **{"owner": "ada", "timezone": "UTC", **fields},
            )
        )  # fmt: skip


@pytest.fixture
def searched(with_sweep: Any, make: Any, job_file: Path, saved: Path) -> None:
    """A sweep at work with checkpoints, and a launcher that launches another, pauses it and stops it."""
    for number in (2, 4):
        run = make.completed(f"{SWEEP}-{number}").model_copy(update={"trial": TrialPlace(sweep=SWEEP, number=number)})
        with_sweep.dynamodb.add(run, attempts=[make.attempt(run.run)])
    for file in saved.rglob("*"):
        if file.is_file():
            with_sweep.s3.contents[f"runs/{SWEEP}-2/checkpoints/{file.relative_to(saved)}"] = file.read_bytes()
    running = {"ok": True, "sweep": SWEEP, "state": "RUNNING", "trials": {"running": 3}, "warnings": []}
    request = {
        "name": "resnet-sweep",
        "command": ["python", "train.py"],
        "instance_type": "ml.g5.2xlarge",
        "max_run": 14_400,
    }
    with_sweep.answers |= {
        "validate": {"ok": True, "request": request, "warnings": [], "usd_per_hour": 1.2, "worst_case_usd": 4.8},
        "launch": running | {"replayed": False, "next": []},
        "pause": running | {"state": "PAUSING"},
        "stop": running | {"state": "STOPPING"},
        "resume": running,
    }
    invoke = with_sweep.invoke_launcher

    def invoke_and_end(payload: Any) -> Any:
        if payload.get("action") == "stop":
            with_sweep.dynamodb.add_sweep(sweep(state=SweepState.PAUSED, ended_at=NOW), *TRIALS)
        return invoke(payload)

    with_sweep.invoke_launcher = invoke_and_end


@pytest.fixture
def searched_in_vain(deployment: Any, job_file: Path) -> None:
    """A sweep with failed trials, and a launcher that tries them again."""
    counts = TrialCounts(completed=2, failed=30)
    deployment.dynamodb.add_sweep(sweep(state=SweepState.COMPLETED, ended_at=NOW, counts=counts), *TRIALS[:3])
    trials = {"running": 4, "completed": 2, "failed": 26}
    deployment.answers["resume"] = {"ok": True, "sweep": SWEEP, "state": "RUNNING", "trials": trials}


@pytest.fixture
def in_a_queue(queued: Any, deployment: Any, make: Any, job_file: Path) -> None:
    """A run in a queue, and a launcher that launches another one, gives it a priority and stops it."""
    place = {"queue": "gpu", "share": "vision", "priority": 9}
    request = {
        "name": "segmentation",
        "command": ["python", "train.py"],
        "instance_type": "ml.g5.2xlarge",
        "max_run": 14_400,
    }
    deployment.dynamodb.add(make.completed("segmentation-1a2b3c4d"))
    deployment.answers |= {
        "validate": {"ok": True, "request": request, "warnings": [], "usd_per_hour": 1.2, "worst_case_usd": 4.8},
        "launch": {
            "ok": True, "run": "segmentation-1a2b3c4d", "job_name": "segmentation-1a2b3c4d-1", "attempt": 1,
            "replayed": False, "warnings": [], "next": [],
        },
        "priority": {"ok": True, "run": RUN, "queue": place},
        "stop": {"ok": True, "run": RUN},
    }  # fmt: skip
