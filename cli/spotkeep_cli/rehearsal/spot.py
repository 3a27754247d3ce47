"""The scenario of `spotkeep rehearse`.

A managed spot job loses its capacity, and the same job is left alone.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from spotkeep_cli.rehearsal.engine import Rehearsal, Scenario
from spotkeep_cli.rehearsal.gathering import evidence_of_run, standstill_seconds
from spotkeep_cli.rehearsal.interruption_points import in_the_middle_of_copies
from spotkeep_cli.rehearsal.model_comparison import compare_models
from spotkeep_cli.rehearsal.report import InterruptionReport
from spotkeep_cli.rehearsal.verdict import judge, same_model
from spotkeep_cli.rehearsal.view import Stage
from spotkeep_cli.rendering.quantities import counted
from spotkeep_cli.terminal import NextStep
from spotkeep_jobs.document.shell_text import programs_of
from spotkeep_jobs.progress.job_events import MARKER, parse_line
from spotkeep_jobs.record.states import RunState
from spotkeep_local.capacity import CapacityScript, EventFaults, Interruption
from spotkeep_local.training.job import LocalJobFacts, ProcessLifetime
from spotkeep_rehearsal.known_of_libraries import this_machine_has_a_gpu, what_is_not_rehearsed

if TYPE_CHECKING:
    from spotkeep_cli.rehearsal.evidence import RunEvidence
    from spotkeep_jobs.record.record import Run
    from spotkeep_rehearsal.comparison import FileComparison

CHECK_AND_LAUNCH = (
    NextStep(command="spotkeep doctor {job_file}", what="check the job for AWS"),
    NextStep(command="spotkeep launch {job_file}", what="launch it, once the app is deployed"),
)


def words_of(command: Sequence[str] | str) -> Sequence[str]:
    """Return the words of a job's command. A block of lines becomes `bash -c` and its programs."""
    return ["bash", "-c", "\n".join(map(shlex.join, programs_of(command)))] if isinstance(command, str) else command


def spot_scenario(interruptions: Sequence[Interruption]) -> Scenario:
    """Return the scenario in which a run loses its capacity at these points."""
    return Scenario(
        command="rehearse",
        introduction="Rehearsing {job_file} on this machine: the real app, no account, nothing billed.\n",
        perform=partial(_perform, interruptions=interruptions),
        report_name="report.json",
        failed_hint="how to make a script resumable: spotkeep help training-scripts",
        next_steps=CHECK_AND_LAUNCH,
    )


def _perform(rehearsal: Rehearsal, *, interruptions: Sequence[Interruption]) -> InterruptionReport:
    name, planned, repeatable = rehearsal.first, len(interruptions), None
    hosts = int(rehearsal.deployment.job.get("instance_count") or 1)
    interruptions = in_the_middle_of_copies(interruptions, hosts=hosts, chance=Random(rehearsal.first))  # noqa: S311
    with rehearsal.faults(events=EventFaults(duplicate=True, shuffle=True)):
        with rehearsal.view.stage(Stage.LAUNCH) as outcome:
            rehearsal.control.script_capacity(run=rehearsal.first, script=CapacityScript(interruptions=interruptions))
            for each in (rehearsal.first, rehearsal.second):
                rehearsal.deployment.launch(run=each)
            outcome.append(f"{rehearsal.first}, and {rehearsal.second} to compare with")
        with rehearsal.view.stage(Stage.TRAINING) as outcome:
            shown = _TrainingView(rehearsal, name=rehearsal.first)
            untouched = _Standstill(rehearsal, name=rehearsal.second)

            def look(runs: Mapping[str, Run]) -> None:
                shown.show(runs)
                untouched.lines()

            ended = rehearsal.follow(rehearsal.first, rehearsal.second, meanwhile=look)
            outcome.append(ended[rehearsal.first].state.value.lower())
        reference = evidence_of_run(rehearsal, rehearsal.second)
        alone = evidence_of_run(rehearsal, rehearsal.first)
        if moved := without_steps(interruptions, run=alone, reference=reference):
            # Nothing was taken from the first run, so it has shown what a run that is left alone ends with.
            repeatable = same_model(alone, reference, _compared(rehearsal, alone, reference))
            # It may save less, or be quicker, than the one that was measured. One loss is enough to judge by.
            name, planned = rehearsal.add_run("-again"), 1
            with rehearsal.view.stage(Stage.ONCE_MORE) as outcome:
                moments = ", and again after ".join(map(_moment, moved))
                rehearsal.view.note(f"the script reports no steps: once more; the capacity goes after {moments}")
                rehearsal.control.script_capacity(run=name, script=CapacityScript(interruptions=moved))
                rehearsal.deployment.launch(run=name)
                shown = _TrainingView(rehearsal, name=name)
                ended = rehearsal.follow(name, meanwhile=shown.show)
                outcome.append(ended[name].state.value.lower())
        rehearsal.collect_endings(Stage.NOTIFICATIONS)
    run = evidence_of_run(rehearsal, name)
    return report_of_interruptions(rehearsal, run, reference, planned_interruptions=planned, repeatable=repeatable)


def without_steps(
    interruptions: Sequence[Interruption], *, run: RunEvidence, reference: RunEvidence
) -> tuple[Interruption, ...]:
    """Return the moments to take capacity away from a script that reports no steps.

    A share of the steps becomes a share of the checkpoint files that reach S3. Without such files, it becomes a share
    of the time.

    Args:
        interruptions: The planned interruptions.
        run: The run that they were planned for.
        reference: The run left alone.

    Returns:
        The moments. None where the plan has no shares, was carried out, or one of the runs did not end well.
    """
    completed = all(each.state == RunState.COMPLETED.value for each in (run, reference))
    if run.reports_steps or not completed or len(run.lives) > 1:
        return ()
    if any(each.at_fraction is None for each in interruptions):
        return ()
    uploads = sum(life.uploads for life in reference.lives)
    seconds = sum(life.ended_at - life.started_at for life in reference.lives)
    moved, before, noticed = [], 0.0, 0.0
    for each in interruptions:
        share = each.at_fraction or 0.0
        if uploads:
            # Counted anew on each capacity: else the second would come while the first takes its time.
            count = max(1, round((share - before) * uploads))
            moved.append(replace(each, at_fraction=None, at_uploads=count))
        else:
            moved.append(replace(each, at_fraction=None, at_seconds=round(share * seconds + noticed, 1)))
        before = share
        # A notice that runs out is time in which the job is said to train.
        noticed += each.notice_seconds if each.notice else 0.0
    return tuple(moved)


def report_of_interruptions(
    rehearsal: Rehearsal,
    run: RunEvidence,
    reference: RunEvidence,
    *,
    planned_interruptions: int,
    repeatable: bool | None = None,
) -> InterruptionReport:
    """Compare the models of both runs, judge, and report.

    Args:
        rehearsal: The rehearsal, whose runs have ended.
        run: The outcome of the run that lost its capacity.
        reference: The outcome of the run that was left alone.
        planned_interruptions: Number of planned losses of capacity.
        repeatable: True if two runs that were left alone ended with the same model. None where that is not known.
    """
    compared = _compared(rehearsal, run, reference)
    record = rehearsal.run(run.run)
    unseen = what_is_not_rehearsed(words_of(record.request.get("command") or ()), has_gpu=this_machine_has_a_gpu())
    remarks = [each for each in (unseen, what_hosts_do_not_show(run)) if each]
    return InterruptionReport(
        verdict=judge(
            planned_interruptions=planned_interruptions,
            run=run,
            reference=reference,
            notifications=rehearsal.notifications,
            compared=compared,
            repeatable=repeatable,
            remarks=remarks,
        ),
        run=run,
        reference=reference,
        notifications=rehearsal.notifications,
        compared=compared,
        record=record,
        metrics=rehearsal.deployment.table.runs.metrics(run.run),
    )


def what_hosts_do_not_show(run: RunEvidence) -> str | None:
    """Return the question that hosts on one network leave open. None where there is none.

    A rehearsal passes all the same. The remark stands below its verdict.
    """
    if run.shared_network is None:
        return None
    return (
        f"the hosts shared the network of this machine ({run.shared_network}): so nothing shows that the ranks find "
        "each other where the name of a container does not resolve to its address in the job"
    )


def _compared(rehearsal: Rehearsal, run: RunEvidence, reference: RunEvidence) -> tuple[FileComparison, ...]:
    records = {each.run: rehearsal.run(each.run) for each in (run, reference)}
    return compare_models(run, reference, records=records, s3=rehearsal.s3)


class _Standstill:
    """Reads the output of a run, and stops the run once the output says that its command hangs.

    A job file with `stuck` has the runner say so. Otherwise a command that hangs is waited for.

    Args:
        rehearsal: The rehearsal.
        name: The run.
    """

    def __init__(self, rehearsal: Rehearsal, *, name: str) -> None:
        self._rehearsal, self._name = rehearsal, name
        self._log = rehearsal.deployment.job_log(rehearsal.run(name).job_name)
        self._is_stopped = False

    def lines(self) -> list[str]:
        """Return the new lines."""
        lines = [line.text for line in self._log.read()]
        for event in filter(None, map(parse_line, lines)):
            if not self._is_stopped and (seconds := standstill_seconds(event)) is not None:
                self._is_stopped = True
                self._rehearsal.view.note(f"{self._name} stands still for {seconds:.0f} s, so it is stopped")
                self._rehearsal.deployment.stop(self._name)
        return lines


class _TrainingView:
    """Shows the output of a run's job and the events of its processes."""

    def __init__(self, rehearsal: Rehearsal, *, name: str) -> None:
        self._name, self._control, self._view = name, rehearsal.control, rehearsal.view
        self._output = _Standstill(rehearsal, name=name)
        self._losses_shown, self._resumes_shown = 0, 0

    def show(self, runs: Mapping[str, Run]) -> None:
        """Show the new output and events."""
        for line in self._output.lines():
            if MARKER not in line:
                self._view.job_said(line)
        self._show_processes(self._control.job_facts(runs[self._name].job_name))

    def _show_processes(self, facts: LocalJobFacts) -> None:
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


def _moment(interruption: Interruption) -> str:
    if interruption.at_uploads is None:
        return f"{interruption.at_seconds:.0f} s"
    return counted(interruption.at_uploads, "checkpoint file")


def _loss(life: ProcessLifetime) -> str:
    where = "" if life.last_step_seen is None else f" at step {life.last_step_seen}"
    how = "after a notice (SIGTERM)" if life.notice else "without notice (SIGKILL)"
    return f"capacity taken{where}, {how}; waiting for new"
