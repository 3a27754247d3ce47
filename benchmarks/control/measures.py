"""The functions' calls of AWS, counted on the model. No clock of this machine is in any figure but `wall_s`.

Time is the model's. A SageMaker call takes half a second, because the simulated account allows two a second. Every
other call takes ten milliseconds.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from controller.events import AGENT_SOURCE, EventBatch, PoolCheck, controller_event_of
from controller.full_pass import FullPass
from controller.reconciliation import reconcile_batch, reconcile_pool
from spotkeep_jobs.backends.sagemaker.training_job import DEPLOYMENT_TAG, RUN_VARIABLE
from spotkeep_jobs.notifications.outbox import STALE_AFTER
from spotkeep_jobs.record.deployment_records import OrphanOutcome
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.record import Ending, Notification, RunChange
from spotkeep_jobs.record.states import EndReason, NotificationKind, RunState
from spotkeep_jobs.runs.launch import Launcher
from spotkeep_jobs.runs.rules import METRICS_READ_EVERY
from tests.models.clock import NOON
from tests.models.control_plane import TIMEOUT_SECONDS, ControlPlane
from tests.models.faults import client_error
from tests.models.instances import Instances
from tests.models.sagemaker import ModelJob
from tests.models.unsureness import SERVICES

SAGEMAKER_CALLS_A_SECOND: Final = 2
OTHER_CALL_SECONDS: Final = 0.01
_IN_A_TRANSACTION: Final = 50
"""Notifications. DynamoDB takes a hundred items, and a change of a run has a few besides."""
SWEEP_INTERVAL_SECONDS: Final = 300
LARGEST_TRACKER_RATIO: Final = 1.5
MOST_CALLS_A_NODE_EVENT: Final = 6
ORPHANED: Final = 50
"""As many of a kind as one pass describes."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One measure.

    Attributes:
        figures: The counts by name.
        kept: True when its target holds, or None without a target.
        target: The target in words.
    """

    figures: dict[str, Any]
    kept: bool | None = None
    target: str = ""


class MeasuredPlane(ControlPlane):
    """The functions on the model of AWS. Each measurement makes its own events."""

    def launched(self, name: str, **fields: Any) -> str:
        """Launch a run, a plain spot one by default, and return its job's name."""
        document = {"name": name, "run": name, "token": name, "command": "x", "capacity": "spot", **fields}
        Launcher(self.launcher).launch(document, default_token=name)
        return f"{name}-1"

    def events_come(self, events: list[dict[str, Any]]) -> dict[str, Any]:
        """Hand the controller a batch of events. Return its answer."""
        records = [{"messageId": f"m{n}", "body": json.dumps(event)} for n, event in enumerate(events)]
        batch = controller_event_of({"Records": records}, now=self.service.clock())
        assert isinstance(batch, EventBatch)
        return reconcile_batch(batch, deployment=lambda: self.controller)

    def trains_before_a_pool(self, name: str, **fields: Any) -> ModelJob:
        """Launch a run with a job that will leave a warm pool for an hour, and let it train."""
        job = self.service.jobs[self.launched(name, capacity="on-demand", keep_alive="1h", **fields)]
        self.service.gets_capacity(job)
        self.events_come(self.service.events[-2:])
        return job

    def leaves_its_pool(self, job: ModelJob) -> list[dict[str, Any]]:
        """Complete such a job. Return its last event."""
        self.service.ends(job, "Completed")
        return self.service.events[-1:]

    def reads_pool(self, name: str) -> None:
        """Fire a schedule of a pool."""
        reconcile_pool(PoolCheck(run=name, attempt=1), deployment=self.controller)

    def calls_of(self, act: Callable[[], object]) -> Counter[str]:
        """Return the AWS calls that something makes."""
        before = Counter(self.service.calls)
        act()
        return Counter(self.service.calls) - before


def calls() -> Measured:
    """Count AWS calls for each event, for a whole run, and against a handler that only describes."""
    plane = MeasuredPlane()
    service = plane.service
    launching = plane.calls_of(lambda: plane.launched("digits"))
    job = service.jobs["digits-1"]
    by_event: dict[str, dict[str, int]] = {"launch": dict(launching)}
    total = Counter(launching)
    events = 0

    def happens(what: str, act: Callable[[], object]) -> None:
        nonlocal events
        sent = len(service.events)
        act()
        new = service.events[sent:]
        events += len(new)
        counted = plane.calls_of(lambda: plane.events_come(new))
        by_event[what] = dict(counted)
        total.update(counted)

    happens("waits", lambda: service.events.append(service.events[-1]))
    happens("gets capacity", lambda: service.gets_capacity(job))
    service.trains(job, 12)
    happens("is interrupted", lambda: service.is_interrupted(job))
    happens("gets capacity again", lambda: service.gets_capacity(job))
    service.trains(job, 12)
    repeated = [service.events[-1]]
    by_event["an event that says nothing new"] = dict(plane.calls_of(lambda: plane.events_come(repeated)))
    happens("completes", lambda: service.ends(job, "Completed"))
    after = plane.calls_of(lambda: plane.events_come([service.events[-1]]))
    by_event["an event after the end"] = dict(after)
    burst = [service.events[-1]] * 10
    in_burst = plane.calls_of(lambda: plane.events_come(burst))
    nothing_new = by_event["an event that says nothing new"]
    left = plane.leaves_its_pool(plane.trains_before_a_pool("warm"))
    by_event["a job completes and leaves a warm pool"] = dict(plane.calls_of(lambda: plane.events_come(left)))
    by_event["reading a warm pool that waits"] = dict(plane.calls_of(lambda: plane.reads_pool("warm")))
    followed = service.jobs[plane.launched("followed", metrics=["loss"])]
    service.gets_capacity(followed)
    plane.events_come(service.events[-1:])
    service.seconds += METRICS_READ_EVERY.total_seconds()
    by_event["following a run for its metrics, every ten minutes"] = dict(
        plane.calls_of(lambda: plane.events_come(service.events[-1:]))
    )
    service.seconds += 3_700
    by_event["reading a warm pool that is over"] = dict(plane.calls_of(lambda: plane.reads_pool("warm")))
    describes = sum(count for name, count in nothing_new.items() if SERVICES[name] == "sagemaker")
    bare = _bare_calls(plane)
    ratio = sum(nothing_new.values()) / sum(bare.values())
    return Measured(
        figures={
            "by_event": by_event,
            "of_a_run": {"calls": sum(total.values()), "events": events, "by_call": dict(total)},
            "ten_events_of_one_job_in_a_batch": dict(in_burst),
            "bare_handler": dict(bare),
            "sagemaker_calls_to_those_of_a_bare_handler": describes / bare["DescribeTrainingJob"],
            "all_calls_to_those_of_a_bare_handler": round(ratio, 2),
        },
        kept=ratio <= LARGEST_TRACKER_RATIO,
        target=f"an event that says nothing new: at most {LARGEST_TRACKER_RATIO} times the calls of a handler that "
        "reads the run and describes its job",
    )


def node_events(*, nodes: int = 8) -> Measured:
    """Count AWS calls for each event of the nodes of a run, which come one by one.

    Args:
        nodes: The most nodes of the run.
    """
    plane = MeasuredPlane(has_fleets=True)
    plane.ec2.page_size = 100  # EC2 answers about so many nodes in one page.
    instances = Instances(plane.ec2, plane.service.dynamodb, now=plane.service.now)
    plane.launched("nodes", backend="ec2", nodes={"min": 2, "max": nodes}, distributed="torchrun")
    [fleet] = plane.ec2.fleets
    detail = {"run": "nodes", "attempt": 1}
    event = {"source": AGENT_SOURCE, "detail-type": "Spotkeep Instance Change", "detail": detail}
    by_event: dict[str, dict[str, int]] = {}

    def happens(what: str, act: Callable[[], object]) -> None:
        plane.service.seconds += 60
        act()
        by_event[what] = dict(plane.calls_of(lambda: plane.events_come([event])))

    happens("the world begins", lambda: [instances.get_capacity(fleet) for _ in range(nodes)])
    happens("an event that says nothing new", lambda: None)
    happens("a node leaves on a notice", lambda: instances.be_taken(instances.live[-1], notice=True))
    happens("a node comes", lambda: instances.get_capacity(fleet))
    happens("a node is lost without a notice", lambda: instances.be_taken(instances.live[0], notice=False))
    counts = {what: sum(made.values()) for what, made in by_event.items()}
    most = max(counts.values())
    return Measured(
        figures={"nodes": nodes, "by_event": by_event, "calls": counts, "most": most},
        kept=most <= MOST_CALLS_A_NODE_EVENT,
        target=f"an event of one of {nodes} nodes: at most {MOST_CALLS_A_NODE_EVENT} AWS calls",
    )


def _bare_calls(plane: MeasuredPlane) -> Counter[str]:
    """Return the calls that every controller needs, which read a job's owner and describe the job."""

    def bare() -> None:
        plane.table.runs.get("digits")
        plane.controller.training_jobs.observe("digits-1")

    return plane.calls_of(bare)


def reconciled(*, runs: int, pools: int = 0, unseen: bool = False, followed: bool = False) -> Measured:
    """Reconcile runs in flight, within one invocation's limits under a slow SageMaker.

    Args:
        runs: Number of runs.
        pools: Number of warm pools that wait beside them.
        followed: True when all runs train, and their metrics are followed.
        unseen: True when all pools have ended before the first pass, and no user was notified.
    """
    plane = MeasuredPlane()
    for number in range(runs):
        plane.launched(f"run-{number:04d}", **({"metrics": ["loss"]} if followed else {}))
    jobs = list(plane.service.jobs.values())
    for number, job in enumerate(jobs):
        if number % 2 or followed:
            plane.service.gets_capacity(job)
    # Each of another size, or the next job would take the last one's pool.
    pooled = [plane.trains_before_a_pool(f"warm-{number:04d}", volume_size_gb=30 + number) for number in range(pools)]
    for job in pooled:
        plane.events_come(plane.leaves_its_pool(job))
    if unseen:
        plane.service.seconds += 3_700
    if followed:
        plane.service.seconds += METRICS_READ_EVERY.total_seconds()
    passes: list[dict[str, Any]] = []
    started = time.monotonic()
    # A first pass finds everything new; from then on one job in fifty changes between two passes.
    chance = random.Random(1)  # noqa: S311 - reproducible, not secret
    for _ in range(8):
        passes.append(_pass_over(plane))
        if not passes[-1]["left"] and len(passes) > 1 and passes[-2]["left"] == 0:
            break
        for job in chance.sample(jobs, max(1, runs // 50)):
            if job.secondary == "Training":
                plane.service.is_interrupted(job)
        plane.service.seconds += SWEEP_INTERVAL_SECONDS
    limit = TIMEOUT_SECONDS["controller"]
    last = passes[-1]
    kept = last["left"] == 0 and all(each["seconds"] < limit for each in passes)
    which = "that ended unseen" if unseen else "that wait"
    each = ", each followed for its metrics," if followed else ""
    return Measured(
        figures={
            "runs": runs,
            "pools": pools,
            "unseen": unseen,
            "followed": followed,
            "passes": passes,
            "wall_s": round(time.monotonic() - started, 1),
        },
        kept=kept,
        target=f"{runs:,} runs in flight{each} and {pools:,} warm pools {which} reconciled within one invocation of "
        f"{limit} s at {SAGEMAKER_CALLS_A_SECOND} SageMaker calls a second",
    )


def orphans(*, runs: int, pools: int = 0) -> Measured:
    """Measure a pass over orphans in an account in order, and in one where much is not, under a slow SageMaker.

    Args:
        runs: Number of runs in flight.
        pools: Number of warm pools that wait.
    """
    plane = MeasuredPlane()
    service = plane.service
    for number in range(runs):
        job = service.jobs[plane.launched(f"run-{number:04d}")]
        service.objects.written[f"runs/{job.run}/checkpoints/step-1/manifest.json"] = service.now()
    pooled = [plane.trains_before_a_pool(f"warm-{number:04d}", volume_size_gb=30 + number) for number in range(pools)]
    for job in pooled:
        plane.events_come(plane.leaves_its_pool(job))
        job.keep_alive = 1_000_000  # As if each had just been left: the model's launches take time.
    _pass_over(plane)
    in_order = _passed_over_orphans(plane)
    for number in range(ORPHANED):
        service.is_made_by_hand(
            f"lost-{number}", tags={DEPLOYMENT_TAG: "spotkeep"}, environment={RUN_VARIABLE: f"lost{number}"}
        )
        service.objects.written[f"runs/gone-{number}/checkpoints/step-1/manifest.json"] = NOON - timedelta(days=3)
    service.seconds += 2 * 3_600
    much = _passed_over_orphans(plane)
    limit = TIMEOUT_SECONDS["controller"]
    return Measured(
        figures={"runs": runs, "pools": pools, "in_order": in_order, "orphaned": ORPHANED, "much_orphaned": much},
        kept=in_order["seconds"] < limit / 2 and much["seconds"] < limit,
        target=f"a pass over orphans beside {runs:,} runs in flight and {pools:,} warm pools: half an invocation of "
        f"{limit} s when nothing is orphaned, one when {ORPHANED} jobs and {ORPHANED} prefixes are",
    )


def _passed_over_orphans(plane: MeasuredPlane) -> dict[str, Any]:
    before = Counter(plane.service.calls)
    report = plane.pass_over_orphans()
    assert report is not None
    made = Counter(plane.service.calls) - before
    return {
        "found": sum(each.finding.wrong for each in report.handled) + report.left_out,
        "removed": report.count(OrphanOutcome.REMOVED),
        "unreadable": len(report.unreadable),
        "seconds": round(_seconds_of(made), 1),
        "calls": dict(made),
    }


def _seconds_of(made: Counter[str]) -> float:
    """Return how long calls take on the simulated account."""
    asked = sum(count for name, count in made.items() if SERVICES[name] == "sagemaker")
    return asked / SAGEMAKER_CALLS_A_SECOND + (sum(made.values()) - asked) * OTHER_CALL_SECONDS


def _pass_over(plane: MeasuredPlane) -> dict[str, Any]:
    service = plane.service
    before = Counter(service.calls)

    def elapsed() -> float:
        return _seconds_of(Counter(service.calls) - before)

    limit = TIMEOUT_SECONDS["controller"]
    report = FullPass(plane.controller).run(
        seconds_left=lambda: limit - elapsed() - 30, may_send=lambda: limit - elapsed() > 5
    )
    made = Counter(service.calls) - before
    return {
        "reconciled": report.runs,
        "pools": report.pools,
        "left": report.left,
        "changes": report.changes,
        "seconds": round(elapsed(), 1),
        "calls": dict(made),
        "failures": len(report.failures),
    }


def sent(*, notifications: int, failing: float) -> Measured:
    """Return notifications that all go out, each once, although some sends fail.

    Args:
        notifications: Number of notifications.
        failing: Which part of all sends.
    """
    plane = MeasuredPlane()
    service = plane.service
    chance = random.Random(1)  # noqa: S311 - reproducible, not secret
    failed = 0

    def fail_now_and_then(_notification_id: str) -> None:
        nonlocal failed
        if chance.random() < failing:
            failed += 1
            raise client_error("Publish", "Throttled")

    service.before_publish = fail_now_and_then
    ids = _notifications_of_an_ended_run(plane, notifications)
    started = time.monotonic()
    passes = 0
    while any(plane.table.notifications.unsent(limit=1)) and passes < 100:
        _pass_over(plane)
        passes += 1
        service.seconds += SWEEP_INTERVAL_SECONDS
    doubled = sum(times > 1 for times in service.published.values())
    lost = sum(service.published[notification_id] == 0 for notification_id in ids)
    return Measured(
        figures={
            "notifications": notifications,
            "sends_that_failed": failed,
            "lost": lost,
            "doubled": doubled,
            "passes": passes,
            "wall_s": round(time.monotonic() - started, 1),
        },
        kept=not lost and not doubled,
        target=f"{notifications:,} notifications with {failing:.0%} failing sends: none lost, none doubled",
    )


def _notifications_of_an_ended_run(plane: MeasuredPlane, notifications: int) -> list[str]:
    """Write so many notifications of one run in transactions of the run, as the controller does. Return their ids."""
    plane.launched("digits")
    run, attempt = plane.table.runs.get("digits"), plane.table.runs.attempt("digits", 1)
    assert run is not None
    assert attempt is not None
    written = [_notification(number) for number in range(notifications)]
    for first in range(0, notifications, _IN_A_TRANSACTION):
        last = first + _IN_A_TRANSACTION >= notifications
        ending = Ending(at=NOON, reason=EndReason.STOPPED_BY_USER)
        change = RunChange(
            run=with_changes(run, state=RunState.STOPPED, ending=ending) if last else run,
            attempt=attempt,
            notifications=tuple(written[first : first + _IN_A_TRANSACTION]),
        )
        run = plane.table.runs.commit(change)
    return [notification.notification_id for notification in written]


def _notification(number: int) -> Notification:
    at = NOON - STALE_AFTER + timedelta(milliseconds=number)
    return Notification(
        notification_id=f"digits/completed/1-{number + 1}",
        subject_id="digits",
        kind=NotificationKind.COMPLETED,
        nth=number + 1,
        subject="It is done",
        body="It is done.\n",
        attributes={"status": "completed"},
        happened_at=at,
        created_at=at,
    )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep back the output of the functions."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
