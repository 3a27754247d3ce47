"""The scenario of `spotkeep rehearse`: a managed spot job loses its capacity, and the same job is left alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from spotkeep_cli.rehearsal.engine import Rehearsal, Scenario
from spotkeep_cli.rehearsal.gathering import events_of, gather_evidence
from spotkeep_cli.rehearsal.model_comparison import compare_models
from spotkeep_cli.rehearsal.report import InterruptionReport
from spotkeep_cli.rehearsal.report_view import spot_report
from spotkeep_cli.rehearsal.verdict import judge
from spotkeep_cli.rehearsal.view import RehearsalView, Stage
from spotkeep_cli.terminal import NextStep
from spotkeep_jobs.progress.job_events import MARKER
from spotkeep_jobs.progress.training_logs import JobLogs
from spotkeep_local.capacity import CapacityScript, EventFaults, Interruption
from spotkeep_local.control import LocalControl
from spotkeep_local.training.facts import JobFacts, ProcessLifetime

if TYPE_CHECKING:
    from spotkeep_cli.rehearsal.evidence import RunEvidence
    from spotkeep_jobs.record.record import Run

CHECK_AND_LAUNCH = (
    NextStep(command="spotkeep doctor {job_file}", what="check the job for AWS"),
    NextStep(command="spotkeep launch {job_file}", what="launch it, once the app is deployed"),
)


def spot_scenario(interruptions: Sequence[Interruption]) -> Scenario[InterruptionReport]:
    """Return the scenario in which a run loses its capacity at these points."""
    return Scenario(
        introduction="Rehearsing {job_file} on this machine: the real app, no account, nothing billed.\n",
        perform=partial(_perform, interruptions=interruptions),
        view=spot_report,
        report_name="report.json",
        failed_hint="docs/training-scripts.md shows how to make a script resumable",
        next_steps=CHECK_AND_LAUNCH,
    )


def _perform(rehearsal: Rehearsal, *, interruptions: Sequence[Interruption]) -> InterruptionReport:
    control = LocalControl(rehearsal.local)
    with _faulty_events(control):
        with rehearsal.stage(Stage.LAUNCH) as outcome:
            control.script_capacity(run=rehearsal.first, script=CapacityScript(interruptions=tuple(interruptions)))
            for name in (rehearsal.first, rehearsal.second):
                rehearsal.deployment.launch(run=name)
            outcome.append(f"{rehearsal.first}, and {rehearsal.second} to compare with")
        with rehearsal.stage(Stage.TRAINING) as outcome:
            shown = _TrainingView(rehearsal, control)
            ended = rehearsal.follow(rehearsal.first, rehearsal.second, meanwhile=shown.show)
            outcome.append(ended[rehearsal.first].state.value.lower())
        rehearsal.collect_endings(Stage.NOTIFICATIONS)
    run, reference = (_evidence(rehearsal, control, name) for name in (rehearsal.first, rehearsal.second))
    return report_of_interruptions(rehearsal, run, reference, planned_interruptions=len(interruptions))


def report_of_interruptions(
    rehearsal: Rehearsal, run: RunEvidence, reference: RunEvidence, *, planned_interruptions: int
) -> InterruptionReport:
    """Compare the models of both runs, judge, and report.

    Args:
        rehearsal: The rehearsal, whose runs have ended.
        run: What became of the run that lost its capacity.
        reference: What became of the run that was left alone.
        planned_interruptions: How many losses of capacity were planned.
    """
    records = {name: rehearsal.run(name) for name in (rehearsal.first, rehearsal.second)}
    compared = compare_models(run, reference, records=records, s3=rehearsal.session.client("s3"))
    return InterruptionReport(
        verdict=judge(
            planned_interruptions=planned_interruptions,
            run=run,
            reference=reference,
            notifications=rehearsal.notifications,
            compared=compared,
        ),
        run=run,
        reference=reference,
        notifications=rehearsal.notifications,
        compared=compared,
        record=records[rehearsal.first],
    )


@contextlib.contextmanager
def _faulty_events(control: LocalControl) -> Iterator[None]:
    """Deliver state-change events twice and out of order meanwhile."""
    control.event_faults(EventFaults(duplicate=True, shuffle=True))
    try:
        yield
    finally:
        control.event_faults(EventFaults())


def _evidence(rehearsal: Rehearsal, control: LocalControl, name: str) -> RunEvidence:
    attempts = rehearsal.deployment.runs.attempts(name)
    logs = JobLogs(rehearsal.session.client("logs"))
    return gather_evidence(
        run=rehearsal.run(name),
        attempts=attempts,
        events=events_of(attempts, logs),
        facts_of=control.job_facts,
        s3=rehearsal.session.client("s3"),
    )


class _TrainingView:
    """Shows what the interrupted run's job prints and what its processes go through."""

    def __init__(self, rehearsal: Rehearsal, control: LocalControl) -> None:
        self._name, self._control = rehearsal.first, control
        self._view: RehearsalView = rehearsal.view
        self._log = rehearsal.deployment.job_log(rehearsal.run(self._name).job_name)
        self._losses_shown, self._resumes_shown = 0, 0

    def show(self, runs: Mapping[str, Run]) -> None:
        """Show what is new."""
        for line in self._log.read():
            if MARKER not in line.text:
                self._view.job_said(line.text)
        self._show_processes(self._control.job_facts(runs[self._name].job_name))

    def _show_processes(self, facts: JobFacts) -> None:
        lives = facts.lifetimes
        losses = [life for life in lives if life.interrupted and life.ended_at is not None]
        for life in losses[self._losses_shown :]:
            self._view.note(_loss(life))
        self._losses_shown = len(losses)
        for life in lives[max(1, self._resumes_shown) :]:
            if life.resumed_step is None:
                break
            self._view.note(f"resumed from step {life.resumed_step} on new capacity")
            self._resumes_shown = lives.index(life) + 1
        if lives:
            current = lives[-1]
            self._view.progress(
                done=current.last_step_seen or current.resumed_step or 0,
                total=current.total_steps,
                text=facts.secondary_status.lower(),
            )


def _loss(life: ProcessLifetime) -> str:
    where = "before its first step" if life.last_step_seen is None else f"at step {life.last_step_seen}"
    how = "after a notice (SIGTERM)" if life.notice else "without notice (SIGKILL)"
    return f"capacity taken {where}, {how}; waiting for new"
