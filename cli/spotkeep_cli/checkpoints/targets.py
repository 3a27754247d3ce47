"""What a person means by TARGET and STEP: a directory or a run, a number or the newest."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from spotkeep.disk.manifest import MANIFEST_NAME
from spotkeep_cli.checkpoints.places import LocalPlace, StoredPlace
from spotkeep_cli.errors import CheckpointNotFoundError, UsageError
from spotkeep_cli.run_names import find_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spotkeep_cli.checkpoints.places import CheckpointPlace, ShowProgress
    from spotkeep_cli.seams import Invocation

_STEP = re.compile(r"(?:step-)?([0-9]{1,18})")


def place_of(target: str, *, invocation: Invocation, show_progress: ShowProgress) -> CheckpointPlace:
    """The place a TARGET names: a directory where there is one of that name, else a run.

    Raises:
        CheckpointNotFoundError: There is no such directory, or it is a single checkpoint.
        RunNotFoundError: No run has that name.
        NoConnectionError: The run's deployment cannot be reached.
    """
    path = Path(target).expanduser()
    if path.is_dir():
        if (path / MANIFEST_NAME).exists():
            raise CheckpointNotFoundError(
                f"{target} is one checkpoint, not a directory of them", hint=f"name the directory above: {path.parent}"
            )
        return LocalPlace(path, target=target)
    if "/" in target or target.startswith((".", "~")):
        raise CheckpointNotFoundError(f"there is no directory {target}", hint="name a directory, or a run's id")
    deployment = invocation.deployment()
    run = find_run(deployment.runs, target, command=invocation.options.command)
    objects = deployment.stored_objects(run.checkpoint_uri)
    return StoredPlace(objects, target=run.run, label=run.checkpoint_uri, show_progress=show_progress)


def finished_steps(place: CheckpointPlace) -> list[int]:
    """The steps that have a manifest, newest first: those that a resume looks at."""
    return [step for step in place.steps() if MANIFEST_NAME in place.files(step)]


def step_of(place: CheckpointPlace, text: str | None) -> int:
    """The step a STEP names: `100`, `step-100`, or the newest one without it.

    Raises:
        UsageError: It is no step.
        CheckpointNotFoundError: There is no checkpoint of it; names those there are.
    """
    steps = place.steps()
    if text is None:
        finished = finished_steps(place)
        if not finished:
            raise CheckpointNotFoundError(f"no checkpoints in {place.label}", hint="has the training saved yet?")
        return finished[0]
    match = _STEP.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a step", hint="name it by its number: 100, or step-100")
    step = int(match.group(1))
    if step not in steps:
        raise CheckpointNotFoundError(f"no checkpoint of step {step} in {place.label}", hint=_those_there_are(steps))
    return step


def _those_there_are(steps: Sequence[int]) -> str:
    if not steps:
        return "has the training saved yet?"
    shown = ", ".join(map(str, steps[:5]))
    return f"there are {shown}{', ...' if len(steps) > 5 else ''}"
