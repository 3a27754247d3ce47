"""Gathers the evidence of a run from the local training service, the job's log and S3.

A fair verdict depends on the source of each fact. The service saw the process end, so time and reason of an end are the
service's. The step that it had reached is the script's. The durable step is read from the files in S3.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from spotkeep.disk.writers import NOTE_PREFIX
from spotkeep.runner.exits_on_notice import EXITS_NAME
from spotkeep_cli.rehearsal.evidence import ProcessEnding, RehearsedHost, RehearsedProcess, RunEvidence
from spotkeep_cli.rehearsal.model_comparison import model_files_of
from spotkeep_jobs.backends.sagemaker.training_job import launch_id_of
from spotkeep_jobs.progress.job_events import JobEvent, JobEventKind, lines_of, parse_line
from spotkeep_jobs.record.record import Attempt
from spotkeep_jobs.record.states import RunState
from spotkeep_local.training.job import ProcessLifetime

if TYPE_CHECKING:
    from spotkeep_cli.rehearsal.engine import Rehearsal
    from spotkeep_jobs.progress.training_logs import JobLogs

UPLOAD_LAG_SECONDS = 2.0
"""Seconds a checkpoint file may take to reach S3 in a rehearsal before its loss counts as the script's."""

_NO_CHECKPOINTS = ("tensorboard/", EXITS_NAME, NOTE_PREFIX)
"""Other things among the checkpoints, such as a folder for drawings, the runner's own file and notes of writers."""
_FOLDER = re.compile(r"step-0*(\d+)")
_MANIFEST = re.compile(r"(?:.*/)?step-0*(\d+)(?:-[\d.]+)?/manifest\.json")


def evidence_of_run(rehearsal: Rehearsal, name: str, *, lives: Iterable[RehearsedProcess] | None = None) -> RunEvidence:
    """Put together the outcome of an ended run.

    Args:
        rehearsal: The rehearsal.
        name: The run.
        lives: The lives of its training process, oldest first. None for those of its jobs on SageMaker.
    """
    run, attempts = rehearsal.run(name), rehearsal.deployment.table.runs.attempts(name)
    shared_network = stood_still = None
    if lives is None:
        logged = events_of(attempts, rehearsal.logs)
        facts = [rehearsal.control.job_facts(attempt.job_name) for attempt in attempts]
        lives = process_lives((life for job in facts for life in job.lifetimes), logged)
        shared_network = next((job.shared_network for job in facts if job.shared_network), None)
        if run.state is RunState.STOPPED:
            stood_still = next((seconds for each in logged if (seconds := standstill_seconds(each)) is not None), None)
    return RunEvidence(
        run=name,
        state=run.state.value,
        failure=run.failure_reason,
        attempts=len(attempts),
        lives=tuple(lives),
        model_files=model_files_of(run.output_uri, rehearsal.s3),
        shared_network=shared_network,
        stood_still_seconds=stood_still,
    )


def standstill_seconds(event: JobEvent) -> float | None:
    """Return the time without life, in seconds, of a command that hangs and that nothing ends. None for other events.

    Args:
        event: An event of the job. Where the job file asks for a new start, the runner ends the command itself.
    """
    if event.kind is not JobEventKind.STUCK or "at_most" in event.fields:
        return None
    seconds = event.fields.get("seconds")
    return float(seconds) if isinstance(seconds, int | float) else 0.0


def events_of(attempts: Iterable[Attempt], logs: JobLogs) -> list[JobEvent]:
    """Return the events that the jobs of a run logged, in order of time.

    Args:
        attempts: The run's attempts.
        logs: The source of their logs.
    """
    found: list[JobEvent] = []
    for attempt in attempts:
        messages: list[str] = []
        logs.read(attempt.log_names, messages.append, launch=launch_id_of(attempt) or "")
        lines = (line for message in messages for line in lines_of(message))
        found += [event for line in lines if (event := parse_line(line)) is not None]
    return sorted(found, key=lambda event: event.at)


def process_lives(lifetimes: Iterable[ProcessLifetime], events: Iterable[JobEvent]) -> list[RehearsedProcess]:
    """Join the service's facts of the processes of a run, oldest first, with their log.

    A checkpoint of which a part was lost with its machine comes back in that state. So it stays broken in the lives
    after that one.
    """
    logged, lives, broken = list(events), list[RehearsedProcess](), frozenset[PurePosixPath]()
    for lifetime in lifetimes:
        lives.append(process_life(lifetime, logged, broken=broken))
        saved = set(lives[-1].saved_steps)
        still = (folder for folder in broken if not _is_written_again(folder, saved))
        broken = frozenset({*still, *_folders(lifetime.unsent_files)})
    return lives


def process_life(
    lifetime: ProcessLifetime, events: Iterable[JobEvent], *, broken: Collection[PurePosixPath] = ()
) -> RehearsedProcess:
    """Join the service's facts of a process with the log of the process while it lived.

    Args:
        lifetime: The service's facts.
        events: The events of its run.
        broken: The folders of checkpoints that came back with a part of their files.
    """
    ended_at = lifetime.ended_at if lifetime.ended_at is not None else lifetime.started_at
    own = [event for event in events if lifetime.started_at <= event.at <= ended_at]
    saved = [(event.at, event.step) for event in own if event.kind is JobEventKind.SAVED and event.step is not None]
    steps = {step for _, step in saved}
    whole = durable_step(
        stored_files=lifetime.stored_files,
        unsent_files=lifetime.unsent_files,
        broken={folder for folder in broken if not _is_written_again(folder, steps)},
    )
    if not whole and lifetime.uploads:
        # Checkpoints of the script's own format: what it said it saved is taken for uploaded once there was time to.
        whole = max((step for at, step in saved if at <= ended_at - UPLOAD_LAG_SECONDS), default=0)
    return RehearsedProcess(
        started_at=lifetime.started_at,
        ended_at=ended_at,
        ending=_ending(lifetime),
        resumed_from_step=lifetime.resumed_step,
        last_step=lifetime.last_step_seen,
        saved_steps=tuple(step for _, step in saved),
        durable_step=whole,
        stored_files=_checkpoints(lifetime.stored_files),
        read_files=None if lifetime.read_files is None else _checkpoints(lifetime.read_files),
        uploads=lifetime.uploads,
        unsaved_files=lifetime.unsaved_files,
        put_aside=tuple(str(event.fields.get("what")) for event in own if event.kind is JobEventKind.PUT_ASIDE),
        hosts=tuple(
            RehearsedHost(name=host.name, uploads=host.uploads, not_copied=len(_checkpoints(host.unsent_files)))
            for host in lifetime.hosts
        ),
    )


def durable_step(
    *, stored_files: Iterable[str], unsent_files: Iterable[str], broken: Collection[PurePosixPath] = ()
) -> int:
    """Return the step of the newest checkpoint with every file in S3. 0 for none.

    Args:
        stored_files: Checkpoint files in S3.
        unsent_files: Checkpoint files that only the lost disk had. Their checkpoint is not whole.
        broken: The folders of other checkpoints that are not whole.
    """
    lacking = {*broken, *_folders(unsent_files)}
    whole = (name for name in stored_files if PurePosixPath(name).parent not in lacking)
    return max((step_of_manifest(name) for name in whole), default=0)


def step_of_manifest(name: str) -> int:
    """Return the step of the checkpoint that a file completes. 0 for every other file."""
    manifest = _MANIFEST.fullmatch(name)
    return int(manifest[1]) if manifest else 0


def _folders(names: Iterable[str]) -> set[PurePosixPath]:
    return {PurePosixPath(name).parent for name in names}


def _is_written_again(folder: PurePosixPath, saved_steps: Collection[int]) -> bool:
    """Return whether a process that saved these steps wrote a folder. One with a token belongs to one writer."""
    found = _FOLDER.fullmatch(folder.name)
    return found is not None and int(found[1]) in saved_steps


def _checkpoints(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if not name.startswith(_NO_CHECKPOINTS))


def _ending(lifetime: ProcessLifetime) -> ProcessEnding:
    if lifetime.interrupted:
        return ProcessEnding.NOTICE if lifetime.notice else ProcessEnding.NO_NOTICE
    return ProcessEnding.EXITED if lifetime.signal is None else ProcessEnding.STOPPED
