"""Runs a rehearsal from an empty machine to a verdict, telling an observer what it does.

The order is the user's own: a local AWS, `cdk bootstrap`, `cdk deploy`, a subscriber, two launches (the run that will
lose its capacity and the same job left alone), the training, the notifications, the bill. What happened is gathered as
evidence and judged by :func:`spotkeep_rehearsal.verdict.judge`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from spotkeep_jobs.aws.training_logs import CloudWatchJobLogs
from spotkeep_jobs.facts.job_events import MARKER
from spotkeep_local.capacity import CapacityScript, EventFaults, Interruption
from spotkeep_local.control import LocalControl
from spotkeep_local.lifecycle import LocalAws
from spotkeep_local.training.facts import JobFacts, ProcessLifetime
from spotkeep_rehearsal.earlier_rehearsal import replace_earlier
from spotkeep_rehearsal.errors import RehearsalTimeoutError
from spotkeep_rehearsal.evidence import RunEvidence
from spotkeep_rehearsal.gathering import events_of, gather_evidence
from spotkeep_rehearsal.model_comparison import compare_models
from spotkeep_rehearsal.rehearsed_runs import Runs, collect_notifications, head_of, none_left_behind
from spotkeep_rehearsal.report import Report
from spotkeep_rehearsal.staging import Observer, Stage, Staging
from spotkeep_rehearsal.subscriber import Subscriber
from spotkeep_rehearsal.verdict import judge

_POLL_SECONDS = 0.2


class LogLine(Protocol):
    """A line of a job's log."""

    @property
    def text(self) -> str:
        """The line without its end."""


class JobLog(Protocol):
    """The log of a training job, read forward."""

    def read(self) -> Sequence[LogLine]:
        """The lines that came since the last read."""


class Deployment(Protocol):
    """The deployed app, as a user of it sees it."""

    @property
    def runs(self) -> Runs:
        """The run table."""

    @property
    def notification_topic_arn(self) -> str:
        """Where notifications are published."""

    def job_log(self, job_name: str) -> JobLog:
        """The log of a training job."""

    def launch(self, *, run: str) -> None:
        """Launch the rehearsed job as a run of this id, the way a user would; raises when it is refused."""

    def stop(self, *, run: str) -> None:
        """Ask a run to end, the way a user would."""


@dataclass(frozen=True, kw_only=True)
class RehearsalPlan:
    """What to rehearse.

    Attributes:
        project_dir: The checkout whose app is deployed.
        state_dir: Where the local AWS lives; it is started there unless it already runs.
        deployment: The name it is deployed under.
        name: The job's name; run ids are made from it.
        interruptions: When the run loses its capacity.
        event_faults: What goes wrong with the state-change events on their way.
        timeout_seconds: The longest the two runs may take.
        deploy: Deploy the app first. Otherwise what was deployed there before is rehearsed.
        keep_running: Leave the local AWS up afterwards, even if the rehearsal started it.
    """

    project_dir: Path
    state_dir: Path
    name: str
    deployment: str = "spotkeep"
    interruptions: Sequence[Interruption]
    event_faults: EventFaults = field(default_factory=lambda: EventFaults(duplicate=True, shuffle=True))
    timeout_seconds: float = 900.0
    deploy: bool = True
    keep_running: bool = False


def rehearse(plan: RehearsalPlan, *, connect: Callable[[LocalAws], Deployment], observer: Observer) -> Report:
    """Deploy, launch, interrupt and judge.

    Args:
        plan: What to rehearse.
        connect: Finds the deployed app on the local AWS.
        observer: Is told what goes on.

    Returns:
        The report, with its verdict.

    Raises:
        RehearsalTimeoutError: The runs did not end in time, so there is no verdict. They are stopped.
        spotkeep_local.errors.LocalAwsError: The local AWS or the CDK CLI failed.
    """
    return _Rehearsal(plan, observer=observer).run(connect)


class _Rehearsal:
    def __init__(self, plan: RehearsalPlan, *, observer: Observer) -> None:
        self._plan, self._observer = plan, observer
        self._staging = Staging(
            project_dir=plan.project_dir,
            state_dir=plan.state_dir,
            deployment=plan.deployment,
            keep_running=plan.keep_running,
            observer=observer,
        )
        stamp = time.strftime("%m%d-%H%M%S")
        self._run = f"{plan.name[:28].rstrip('-')}-{stamp}"
        self._reference = f"{self._run}-untouched"

    def run(self, connect: Callable[[LocalAws], Deployment]) -> Report:
        started = time.monotonic()
        with self._staging.local_aws() as local:
            if self._plan.deploy:
                self._staging.deploy(local)
            deployment = connect(local)
            session, control = local.session(), LocalControl(local)
            subscriber = Subscriber.subscribe(
                sns=session.client("sns"),
                sqs=session.client("sqs"),
                topic_arn=deployment.notification_topic_arn,
                queue_name=f"{self._run}-notifications",
            )
            names = (self._run, self._reference)
            replace_earlier(local, deployment.runs, names=names)
            unfinished = none_left_behind(deployment, names, stage=Stage.TRAINING, observer=self._observer)
            with contextlib.closing(subscriber), self._faulty_events(control), unfinished:
                self._launch(deployment, control)
                self._train(deployment, control)
                with self._staging.stage(Stage.NOTIFICATIONS) as outcome:
                    notifications = collect_notifications(subscriber, names, observer=self._observer)
                    outcome.append(f"{len(notifications)} received")
            logs = CloudWatchJobLogs(session.client("logs"))
            run, reference = (
                self._evidence(name, deployment.runs, logs, control, session.client("s3")) for name in names
            )
            heads = {name: head_of(deployment.runs, name) for name in names}
            compared = compare_models(run, reference, heads=heads, s3=session.client("s3"))
        seconds = {**self._staging.seconds, "total": time.monotonic() - started}
        return Report(
            verdict=judge(
                planned_interruptions=len(self._plan.interruptions),
                run=run,
                reference=reference,
                notifications=notifications,
                compared=compared,
            ),
            run=run,
            reference=reference,
            notifications=notifications,
            compared=compared,
            head=heads[self._run],
            seconds=seconds,
        )

    @contextlib.contextmanager
    def _faulty_events(self, control: LocalControl) -> Iterator[None]:
        control.event_faults(self._plan.event_faults)
        try:
            yield
        finally:
            control.event_faults(EventFaults())

    def _launch(self, deployment: Deployment, control: LocalControl) -> None:
        with self._staging.stage(Stage.LAUNCH) as outcome:
            control.script_capacity(run=self._run, script=CapacityScript(interruptions=tuple(self._plan.interruptions)))
            for name in (self._run, self._reference):
                deployment.launch(run=name)
            outcome.append(f"{self._run}, and {self._reference} to compare with")

    def _train(self, deployment: Deployment, control: LocalControl) -> None:
        runs = deployment.runs
        log = deployment.job_log(head_of(runs, self._run).job_name)
        deadline = time.monotonic() + self._plan.timeout_seconds
        with self._staging.stage(Stage.TRAINING) as outcome:
            watch = _Watch(self._observer)
            while True:
                heads = {name: head_of(runs, name) for name in (self._run, self._reference)}
                for line in log.read():
                    if MARKER not in line.text:
                        self._observer.job_said(line.text)
                watch.look(control.job_facts(heads[self._run].job_name))
                if all(head.state.ended for head in heads.values()):
                    break
                if time.monotonic() > deadline:
                    raise RehearsalTimeoutError(
                        seconds=self._plan.timeout_seconds,
                        states={name: head.state.value for name, head in heads.items()},
                    )
                time.sleep(_POLL_SECONDS)
            outcome.append(heads[self._run].state.value.lower())

    def _evidence(self, name: str, runs: Runs, logs: CloudWatchJobLogs, control: LocalControl, s3: Any) -> RunEvidence:
        attempts = runs.attempts(name)
        return gather_evidence(
            run=head_of(runs, name),
            attempts=attempts,
            events=events_of(attempts, logs),
            witness=control,
            s3=s3,
        )


class _Watch:
    """Turns what a job's processes go through into progress and notes for the observer."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._losses_told, self._resumes_told = 0, 0

    def look(self, facts: JobFacts) -> None:
        """Tell what is new since the last look."""
        lives = facts.lifetimes
        losses = [life for life in lives if life.interrupted and life.ended_at is not None]
        for life in losses[self._losses_told :]:
            self._observer.stage_note(Stage.TRAINING, _loss(life))
        self._losses_told = len(losses)
        for life in lives[max(1, self._resumes_told) :]:
            if life.resumed_step is None:
                break
            self._observer.stage_note(Stage.TRAINING, f"resumed from step {life.resumed_step} on new capacity")
            self._resumes_told = lives.index(life) + 1
        if lives:
            current = lives[-1]
            self._observer.stage_progress(
                Stage.TRAINING,
                done=current.last_step_seen or current.resumed_step or 0,
                total=current.total_steps,
                text=facts.secondary_status.lower(),
            )


def _loss(life: ProcessLifetime) -> str:
    where = "before its first step" if life.last_step_seen is None else f"at step {life.last_step_seen}"
    how = "after a notice (SIGTERM)" if life.notice else "without notice (SIGKILL)"
    return f"capacity taken {where}, {how}; waiting for new"
