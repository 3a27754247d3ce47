"""Rehearses a warm pool from an empty machine to a verdict: job, pool, next job, extension, reminder, expiry.

The app, its functions and its schedules are the ones AWS would see. Time runs faster: periods that are half an hour
where people work are divided by a factor, in the job, in the deployment's settings and in the extension alike, so that
nothing but the figures differs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from spotkeep_jobs.aws.training_logs import CloudWatchJobLogs
from spotkeep_jobs.facts.job_events import JobEventKind
from spotkeep_jobs.facts.record import Attempt, Pool, Run
from spotkeep_jobs.facts.states import NotificationKind, PoolState, RunState
from spotkeep_local.control import LocalControl
from spotkeep_local.lifecycle import LocalAws
from spotkeep_rehearsal.earlier_rehearsal import replace_earlier
from spotkeep_rehearsal.errors import RehearsalTimeoutError, RehearsedRunFailedError
from spotkeep_rehearsal.evidence import Check, ReceivedNotification
from spotkeep_rehearsal.gathering import events_of
from spotkeep_rehearsal.pool_verdict import JobStart, PoolEvidence, judge_pool
from spotkeep_rehearsal.report_file import WrittenReport
from spotkeep_rehearsal.staging import Observer, Stage, Staging
from spotkeep_rehearsal.subscriber import Subscriber

KEEP_ALIVE_SECONDS = 1800
EXTENSION_SECONDS = 600
REMINDER_LEAD_SECONDS = 600
"""What people would choose, before time runs faster."""

_POLL_SECONDS = 0.2
_QUIET_SECONDS = 3.0


class Runs(Protocol):
    """The run table, as far as this rehearsal reads it."""

    def get(self, run: str) -> Run | None:
        """The head of a run."""

    def attempts(self, run: str) -> Sequence[Attempt]:
        """Every attempt of a run, first to last."""

    def pool(self, run: str, attempt: int) -> Pool | None:
        """The warm pool that an attempt's job left."""


class Deployment(Protocol):
    """The deployed app, as a user of it sees it."""

    @property
    def runs(self) -> Runs:
        """The run table."""

    @property
    def notification_topic_arn(self) -> str:
        """Where notifications are published."""

    def launch(self, *, run: str, keep_alive_seconds: int) -> None:
        """Launch the rehearsed job on demand, as a run of this id, with a warm pool for so long."""

    def extend_pool(self, *, run: str, seconds: int) -> None:
        """Keep a run's pool longer."""

    def stop_pool(self, *, run: str) -> None:
        """End a run's pool."""


@dataclass(frozen=True, kw_only=True)
class PoolRehearsalPlan:
    """What to rehearse.

    Attributes:
        project_dir: The checkout whose app is deployed.
        state_dir: Where the local AWS lives; it is started there unless it already runs.
        deployment: The name it is deployed under.
        name: The job's name; run ids are made from it.
        faster: By how much every period is divided.
        timeout_seconds: The longest each stage may take, over the periods it waits for.
        keep_running: Leave the local AWS up afterwards, even if the rehearsal started it.
    """

    project_dir: Path
    state_dir: Path
    name: str
    deployment: str = "spotkeep"
    faster: float = 40.0
    timeout_seconds: float = 300.0
    keep_running: bool = False

    def real(self, seconds: float) -> int:
        """A period on this machine's clock: whole seconds, as SageMaker takes them."""
        return max(1, round(seconds / self.faster))


@dataclass(frozen=True, kw_only=True)
class PoolReport(WrittenReport):
    """Everything a rehearsal of a warm pool found.

    Attributes:
        checks: What was judged.
        evidence: What it was judged by.
        faster: By how much time ran faster.
        seconds: Wall-clock seconds by stage.
    """

    checks: Sequence[Check]
    evidence: PoolEvidence
    faster: float
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether every check did."""
        return all(check.passed for check in self.checks)

    def to_document(self) -> dict[str, Any]:
        """Return the report as the JSON document that programs read."""
        evidence = self.evidence
        return {
            "verdict": "pass" if self.passed else "fail",
            "checks": [asdict(check) for check in self.checks],
            "faster": self.faster,
            "start_seconds": {"new_host": evidence.first.seconds, "kept_host": evidence.second.seconds},
            "jobs": [asdict(evidence.first), asdict(evidence.second)],
            "pools": [pool.model_dump(mode="json") for pool in (evidence.first_pool, evidence.second_pool)],
            "costs": [
                head.cost.model_dump(mode="json") if head.cost else None
                for head in (evidence.first_head, evidence.second_head)
            ],
            "extended_seconds": evidence.extended_seconds,
            "notifications": [asdict(notification) for notification in evidence.notifications],
            "seconds": {stage: round(seconds, 3) for stage, seconds in self.seconds.items()},
        }


def rehearse_pool(
    plan: PoolRehearsalPlan, *, connect: Callable[[LocalAws], Deployment], observer: Observer
) -> PoolReport:
    """Deploy, run a job, reuse its pool, extend that, be reminded, see it expire, and judge.

    Args:
        plan: What to rehearse.
        connect: Finds the deployed app on the local AWS.
        observer: Is told what goes on.

    Raises:
        RehearsalTimeoutError: Something did not happen in time, so there is no verdict.
        spotkeep_local.errors.LocalAwsError: The local AWS or the CDK CLI failed.
    """
    return _PoolRehearsal(plan, observer=observer).run(connect)


class _PoolRehearsal:
    def __init__(self, plan: PoolRehearsalPlan, *, observer: Observer) -> None:
        self._plan, self._observer = plan, observer
        self._staging = Staging(
            project_dir=plan.project_dir,
            state_dir=plan.state_dir,
            deployment=plan.deployment,
            keep_running=plan.keep_running,
            observer=observer,
            settings={"pool_reminder_seconds": str(plan.real(REMINDER_LEAD_SECONDS))},
        )
        stamp = time.strftime("%m%d-%H%M%S")
        self._first, self._second = (f"{plan.name[:28].rstrip('-')}-{stamp}-{nth}" for nth in ("first", "next"))
        self._notifications: list[ReceivedNotification] = []

    def run(self, connect: Callable[[LocalAws], Deployment]) -> PoolReport:
        started = time.monotonic()
        with self._staging.local_aws() as local:
            self._staging.deploy(local)
            deployment = connect(local)
            replace_earlier(local, deployment.runs, names=(self._first, self._second))
            session, control = local.session(), LocalControl(local)
            logs = CloudWatchJobLogs(session.client("logs"))
            subscriber = Subscriber.subscribe(
                sns=session.client("sns"),
                sqs=session.client("sqs"),
                topic_arn=deployment.notification_topic_arn,
                queue_name=f"{self._first}-notifications",
            )
            with contextlib.closing(subscriber), self._no_pool_left_behind(deployment):
                first = self._job(Stage.FIRST_JOB, self._first, deployment, logs, control, subscriber)
                second = self._job(Stage.NEXT_JOB, self._second, deployment, logs, control, subscriber)
                moved = self._extend(deployment)
                self._await_notification(Stage.REMINDER, NotificationKind.POOL_EXPIRING, subscriber)
                self._await_notification(Stage.EXPIRY, NotificationKind.POOL_EXPIRED, subscriber)
                self._listen(subscriber, seconds=_QUIET_SECONDS)
            evidence = PoolEvidence(
                first=first,
                second=second,
                first_pool=self._pool(deployment, self._first),
                second_pool=self._pool(deployment, self._second),
                first_head=self._head(deployment, self._first),
                second_head=self._head(deployment, self._second),
                extended_seconds=moved,
                asked_seconds=float(self._plan.real(EXTENSION_SECONDS)),
                notifications=self._notifications,
            )
        seconds = {**self._staging.seconds, "total": time.monotonic() - started}
        return PoolReport(checks=judge_pool(evidence), evidence=evidence, faster=self._plan.faster, seconds=seconds)

    @contextlib.contextmanager
    def _no_pool_left_behind(self, deployment: Deployment) -> Iterator[None]:
        """Ends the pools of a rehearsal that ends early."""
        try:
            yield
        except BaseException:
            for run in (self._first, self._second):
                with contextlib.suppress(Exception):  # What ended the rehearsal is what its user must hear of.
                    deployment.stop_pool(run=run)
            raise

    def _job(
        self,
        stage: Stage,
        run: str,
        deployment: Deployment,
        logs: CloudWatchJobLogs,
        control: LocalControl,
        subscriber: Subscriber,
    ) -> JobStart:
        """Run the job once, until its end is told and its pool is recorded."""
        with self._staging.stage(stage) as outcome:
            deployment.launch(run=run, keep_alive_seconds=self._plan.real(KEEP_ALIVE_SECONDS))
            self._until(lambda: self._head(deployment, run).state.ended, what=run, deployment=deployment)
            head = self._head(deployment, run)
            if head.state is RunState.FAILED:
                raise RehearsedRunFailedError(run=run, failure=head.failure_reason or "")
            attempt = deployment.runs.attempts(run)[-1]
            resumed = [event.at for event in events_of([attempt], logs) if event.kind is JobEventKind.RESUME]
            if not resumed:
                raise RehearsalTimeoutError(seconds=0, states={run: "its script never reported a step"})
            start = JobStart(
                run=run,
                job_name=attempt.job_name,
                took_over=control.job_facts(attempt.job_name).took_over,
                seconds=round(resumed[0] - attempt.created_at.timestamp(), 3),
            )
            self._until(lambda: self._told(run, "completed", subscriber), what=run, deployment=deployment)
            where = f"on the host of {start.took_over}" if start.took_over else "on a new host"
            outcome.append(f"{run} started in {start.seconds:.1f} s, {where}")
        return start

    def _extend(self, deployment: Deployment) -> float:
        """Keep the second pool longer; by how much its expiry moved."""
        with self._staging.stage(Stage.EXTENSION) as outcome:
            before = self._pool(deployment, self._second).kept_until
            deployment.extend_pool(run=self._second, seconds=self._plan.real(EXTENSION_SECONDS))
            after = self._pool(deployment, self._second).kept_until
            outcome.append(f"kept until {after:%H:%M:%S} UTC instead of {before:%H:%M:%S}")
        return (after - before).total_seconds()

    def _await_notification(self, stage: Stage, kind: NotificationKind, subscriber: Subscriber) -> None:
        """Wait for a notification about the second pool, which a schedule of the app's own brings."""
        with self._staging.stage(stage) as outcome:
            deadline = time.monotonic() + self._plan.timeout_seconds + self._plan.real(2 * KEEP_ALIVE_SECONDS)
            while not self._told(self._second, kind, subscriber):
                if time.monotonic() > deadline:
                    raise RehearsalTimeoutError(
                        seconds=self._plan.timeout_seconds, states={self._second: f"no notification {kind.value}"}
                    )
            outcome.append("told")

    def _until(self, happened: Callable[[], bool], *, what: str, deployment: Deployment) -> None:
        deadline = time.monotonic() + self._plan.timeout_seconds
        while not happened():
            if time.monotonic() > deadline:
                state = self._head(deployment, what).state.value
                raise RehearsalTimeoutError(seconds=self._plan.timeout_seconds, states={what: state})
            time.sleep(_POLL_SECONDS)

    def _told(self, run: str, status: str, subscriber: Subscriber) -> bool:
        self._listen(subscriber, seconds=0.0)
        return any(notification.run == run and notification.status == status for notification in self._notifications)

    def _listen(self, subscriber: Subscriber, *, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            for notification in subscriber.receive(wait_seconds=1):
                if notification.run in (self._first, self._second):
                    self._notifications.append(notification)
                    self._observer.notification_received(notification)
            if time.monotonic() >= until:
                return

    def _pool(self, deployment: Deployment, run: str) -> Pool:
        pool = deployment.runs.pool(run, 1)
        if pool is None or pool.state is PoolState.NOT_KEPT:
            raise RehearsalTimeoutError(seconds=0, states={run: "its job left no warm pool"})
        return pool

    def _head(self, deployment: Deployment, run: str) -> Run:
        head = deployment.runs.get(run)
        if head is None:
            raise KeyError(f"run {run} was launched and is not in the run table")
        return head
