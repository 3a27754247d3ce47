"""The scenario of `spotkeep rehearse-pool`.

Its order is job, pool, next job, extension, reminder, expiry. The app, its functions and its schedules are the ones
that AWS would get. Time runs faster. Periods of half an hour on AWS are divided by a factor. The factor applies to the
job, the deployment's settings and the extension, so only the figures differ.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

from spotkeep_cli.rehearsal.engine import WHOLE_TRAINING, Rehearsal, Scenario
from spotkeep_cli.rehearsal.evidence import RehearsalTimeoutError, RehearsedRunFailedError
from spotkeep_cli.rehearsal.gathering import events_of
from spotkeep_cli.rehearsal.pool_verdict import JobStart, PoolEvidence, judge_pool
from spotkeep_cli.rehearsal.report import PoolReport
from spotkeep_cli.rehearsal.view import Stage
from spotkeep_cli.terminal import NextStep
from spotkeep_jobs.progress.job_events import JobEventKind
from spotkeep_jobs.record.record import Pool
from spotkeep_jobs.record.states import NotificationKind, PoolState, RunState

KEEP_ALIVE_SECONDS = 1800
EXTENSION_SECONDS = 600
REMINDER_LEAD_SECONDS = 600
"""Seconds that people would choose, before time runs faster."""


def pool_scenario(*, faster: float) -> Scenario:
    """Return the scenario in which a job leaves a warm pool and the next one takes it.

    Args:
        faster: The factor that divides every period.
    """
    # A job that may leave a warm pool is on demand, and nothing else; its subscribers get every notification.
    on_demand = dict.fromkeys(("ladder", "longest_wait", "spot_only", "max_wait", "notify"))
    return Scenario(
        command="rehearse-pool",
        introduction=(
            "Rehearsing a warm pool with {job_file} on this machine: the real app, no account, nothing billed.\n"
            f"Its periods run {faster:g} times as fast.\n"
        ),
        job_fields={**WHOLE_TRAINING, "capacity": "on-demand", **on_demand},
        suffixes=("-first", "-next"),
        settings=lambda _fields: {"pool_reminder_seconds": str(_on_this_clock(REMINDER_LEAD_SECONDS, faster=faster))},
        perform=partial(_perform, faster=faster),
        report_name="pool-report.json",
        failed_hint="what should happen: spotkeep help warm-pools",
        next_steps=(
            NextStep(command="spotkeep pool match {job_file}", what="which pool your job would take, once deployed"),
            NextStep(command="spotkeep doctor {job_file}", what="spot or pool: what is cheaper for your job"),
        ),
    )


def _on_this_clock(seconds: float, *, faster: float) -> int:
    """Return a period on this machine's clock, in whole seconds as SageMaker takes them."""
    return max(1, round(seconds / faster))


def _perform(rehearsal: Rehearsal, *, faster: float) -> PoolReport:
    clock = partial(_on_this_clock, faster=faster)
    asked_seconds = clock(EXTENSION_SECONDS)
    with _no_pool_left(rehearsal):
        first = _job(rehearsal, Stage.FIRST_JOB, rehearsal.first, keep_alive_seconds=clock(KEEP_ALIVE_SECONDS))
        second = _job(rehearsal, Stage.NEXT_JOB, rehearsal.second, keep_alive_seconds=clock(KEEP_ALIVE_SECONDS))
        extended_seconds = _extend(rehearsal, seconds=asked_seconds)
        for stage, kind in (
            (Stage.REMINDER, NotificationKind.POOL_EXPIRING),
            (Stage.EXPIRY, NotificationKind.POOL_EXPIRED),
        ):
            with rehearsal.view.stage(stage) as outcome:
                # A schedule of the app's own brings it.
                _await(rehearsal, rehearsal.second, kind.value, beyond_seconds=clock(2 * KEEP_ALIVE_SECONDS))
                outcome.append("received")
        rehearsal.listen_on()
    evidence = PoolEvidence(
        first=first,
        second=second,
        first_pool=_pool(rehearsal, rehearsal.first),
        second_pool=_pool(rehearsal, rehearsal.second),
        first_run=rehearsal.run(rehearsal.first),
        second_run=rehearsal.run(rehearsal.second),
        extended_seconds=extended_seconds,
        asked_seconds=float(asked_seconds),
        notifications=rehearsal.notifications,
    )
    return PoolReport(checks=judge_pool(evidence), evidence=evidence, faster=faster)


@contextlib.contextmanager
def _no_pool_left(rehearsal: Rehearsal) -> Iterator[None]:
    """End the pools of a rehearsal that ends early."""
    try:
        yield
    except BaseException:
        for run in (rehearsal.first, rehearsal.second):
            with contextlib.suppress(Exception):  # What ended the rehearsal is what its user must hear of.
                rehearsal.deployment.ask("stop-pool", run=run)
        raise


def _job(rehearsal: Rehearsal, stage: Stage, name: str, *, keep_alive_seconds: int) -> JobStart:
    """Run the job once, until its end is notified and its pool is recorded."""
    with rehearsal.view.stage(stage) as outcome:
        rehearsal.deployment.launch(run=name, keep_alive=keep_alive_seconds)
        run = rehearsal.follow(name)[name]
        if run.state is RunState.FAILED:
            raise RehearsedRunFailedError(run=name, failure=run.failure_reason or "")
        attempt = rehearsal.deployment.table.runs.attempts(name)[-1]
        events = events_of([attempt], rehearsal.logs)
        resumed = [event.at for event in events if event.kind is JobEventKind.RESUME]
        if not resumed:
            raise RehearsalTimeoutError(seconds=0, states={name: "its script never reported a step"})
        start = JobStart(
            run=name,
            job_name=attempt.job_name,
            took_over=rehearsal.control.job_facts(attempt.job_name).took_over,
            seconds=round(resumed[0] - attempt.created_at.timestamp(), 3),
        )
        _await(rehearsal, name, "completed")
        where = f"on the host of {start.took_over}" if start.took_over else "on a new host"
        outcome.append(f"{name} started in {start.seconds:.1f} s, {where}")
    return start


def _extend(rehearsal: Rehearsal, *, seconds: int) -> float:
    """Keep the second pool longer. Return the seconds by which its expiry moved."""
    with rehearsal.view.stage(Stage.EXTENSION) as outcome:
        before = _pool(rehearsal, rehearsal.second).kept_until
        rehearsal.deployment.ask("extend-pool", run=rehearsal.second, **{"for": seconds})
        after = _pool(rehearsal, rehearsal.second).kept_until
        outcome.append(f"kept until {after:%H:%M:%S} UTC instead of {before:%H:%M:%S}")
    return (after - before).total_seconds()


def _await(rehearsal: Rehearsal, run: str, status: str, *, beyond_seconds: float = 0.0) -> None:
    """Wait for a notification of a run.

    Raises:
        RehearsalTimeoutError: It did not come in time.
    """
    if not rehearsal.received(run, {status}, within_seconds=rehearsal.timeout_seconds + beyond_seconds):
        states = {run: f"{rehearsal.run(run).state.value}, without a notification {status}"}
        raise RehearsalTimeoutError(seconds=rehearsal.timeout_seconds, states=states)


def _pool(rehearsal: Rehearsal, run: str) -> Pool:
    pool = rehearsal.deployment.table.pools.get(run, 1)
    if pool is None or pool.state is PoolState.NOT_KEPT:
        raise RehearsalTimeoutError(seconds=0, states={run: "its job left no warm pool"})
    return pool
