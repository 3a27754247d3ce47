"""Exports a trial, with its parameters as JSON and its checkpoint as a safetensors file."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spotkeep_cli.checkpoints.export import ExportFormat, check_target, export
from spotkeep_cli.checkpoints.listing import translated_errors
from spotkeep_cli.checkpoints.places import finished_steps, place_of
from spotkeep_cli.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from spotkeep_cli.checkpoints.places import ShowProgress
    from spotkeep_cli.seams import Invocation
    from spotkeep_jobs.record.sweep import BestTrial


CHECKPOINTS = "checkpoints"
"""The folder of an export that a `Checkpointer` restores from."""


@dataclass(frozen=True, kw_only=True)
class ExportedTrial:
    """The result of an export.

    Attributes:
        checkpoint: The name of the checkpoint's file.
        step: Its step.
        state: The names of the objects that the script saved, such as `model`.
    """

    checkpoint: str
    step: int
    state: tuple[str, ...]


def _files_of(name: str, *, folder: Path, invocation: Invocation) -> str:
    """Return the commands that fetch a run's own files."""
    run = invocation.deployment().table.runs.get(name)
    if run is None:
        return f"its record: {invocation.command(f'describe {name}')}"
    quoted = shlex.quote(str(folder))
    local = 'eval "$(spotkeep local env)"; ' if invocation.options.local else ""
    model = f"; aws s3 cp {run.output_uri} {quoted}/" if run.output_uri else ""
    return f"fetch the files that its script wrote: {local}aws s3 cp --recursive {run.checkpoint_uri} {quoted}/{model}"


def export_trial(
    trial: BestTrial, *, folder: Path, invocation: Invocation, show_progress: ShowProgress
) -> ExportedTrial:
    """Write a trial's parameters and checkpoint into a folder.

    The checkpoint is that of its best step where it is kept, or the newest. It is written twice, as a safetensors file
    for any program, and as it was saved for a `Checkpointer`.

    Args:
        trial: The trial.
        folder: The folder to write to. It is made if it is missing. Files of an earlier export are not replaced.
        invocation: The words that `spotkeep` was called with.
        show_progress: Shows a download.

    Raises:
        UsageError: It has no checkpoint of Spotkeep's format, or a file is there already.
        DamagedCheckpointsError: The checkpoint is damaged. Nothing was written.
    """
    verify = invocation.command(f"checkpoints verify {trial.run} --all")
    with translated_errors(verify_command=verify):
        place = place_of(trial.run, invocation=invocation, show_progress=show_progress)
        steps = finished_steps(place)
        if not steps:
            raise UsageError(
                f"{trial.run} has no checkpoint in Spotkeep's format",
                hint=_files_of(trial.run, folder=folder, invocation=invocation),
            )
        step = trial.step if trial.step in steps else steps[0]
        folder.mkdir(parents=True, exist_ok=True)
        target, kept = folder / f"step-{step}.safetensors", folder / CHECKPOINTS
        check_target(target, overwrite=False)
        kept.mkdir(exist_ok=True)
        with place.opened(step, with_data=True, keep_in=kept) as checkpoint:
            export(checkpoint, target, as_format=ExportFormat.SAFETENSORS, overwrite=False)
            state = tuple(dict.fromkeys(entry.name.partition(".")[0] for entry in checkpoint.entries()))
    (folder / "parameters.json").write_text(json.dumps(dict(trial.parameters), indent=2) + "\n", encoding="utf-8")
    return ExportedTrial(checkpoint=target.name, step=step, state=state)
