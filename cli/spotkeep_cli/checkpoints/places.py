"""The places of checkpoints, which are a directory of this machine or a run's prefix in S3.

Both are read in the same way. Checkpoints in S3 are fetched first into a new temporary directory. Only names of a
checkpoint and only the requested steps are fetched, and only where there is room for them.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.inspection import InspectedCheckpoint, checked_manifest
from spotkeep.disk.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES
from spotkeep.disk.upload_markers import UPLOADED_SUFFIX, UPLOADING_SUFFIX
from spotkeep.disk.writers import MAX_NOTE_BYTES, Writers, folder_name, parse_folder, parse_note_name
from spotkeep.errors import DamagedCheckpointError
from spotkeep_cli.errors import CheckpointNotFoundError, CommandLineError, UsageError
from spotkeep_cli.run_names import find_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from spotkeep.disk.manifest import Manifest
    from spotkeep_cli.aws.stored_objects import StoredObjects
    from spotkeep_cli.seams import Invocation

    ShowProgress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]

_OF_A_TRAINING = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63})/step-[0-9]+(?:-[0-9.]+)?/manifest\.json")
_FILE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_MARKER_SUFFIXES = (UPLOADING_SUFFIX, UPLOADED_SUFFIX)


class LocalPlace:
    """A directory of checkpoints.

    Args:
        path: The directory.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folders: dict[int, str] = {}
        self.unread: list[str] = []

    @property
    def label(self) -> str:
        """The directory."""
        return str(self._path)

    def steps(self) -> list[int]:
        """Return the steps that anything was written of, newest first."""
        with os.scandir(self._path) as found:
            names = [entry.name for entry in found if entry.is_dir(follow_symlinks=False)]
        writers = CheckpointDirectory(self._path).writer_notes.writers()
        self._folders = writers.chosen(names, is_whole=lambda name: (self._path / name / MANIFEST_NAME).exists())
        self.unread = writers.unread(names)
        return list(self._folders)

    def name(self, step: int) -> str:
        """Return the name of a checkpoint's folder."""
        if step not in self._folders:
            self.steps()
        return self._folders.get(step, folder_name(step, None))

    def trainings(self) -> list[str]:
        """Return the names of the folders in it that hold checkpoints of other trainings of the script."""
        with os.scandir(self._path) as found:
            folders = [entry.name for entry in found if entry.is_dir(follow_symlinks=False)]
        return sorted(name for name in folders if parse_folder(name) is None and self._has_steps(name))

    def _has_steps(self, folder: str) -> bool:
        try:
            return bool(LocalPlace(self._path / folder).steps())
        except OSError:  # it is closed to who asks, and no checkpoint can be read in there
            return False

    def files(self, step: int) -> dict[str, int | None]:
        """Return the names in one checkpoint and their sizes. The size is None for anything but a plain file."""
        with os.scandir(self._path / self.name(step)) as found:
            states = {entry.name: entry.stat(follow_symlinks=False) for entry in found}
        return {name: state.st_size if stat.S_ISREG(state.st_mode) else None for name, state in states.items()}

    def manifest(self, step: int) -> Manifest:
        """Return the manifest of a checkpoint.

        Raises:
            DamagedCheckpointError: If it has no sound manifest.
            NewerFormatError: If a newer library wrote it.
        """
        with InspectedCheckpoint(self._path, step) as checkpoint:
            return checkpoint.manifest

    def opened(self, step: int, *, with_data: bool, keep_in: Path | None = None) -> InspectedCheckpoint:
        """Open one checkpoint, to be read. Without data only its manifest need be at hand.

        Args:
            step: Its step.
            with_data: False where its data are not needed.
            keep_in: A directory that gets a copy of it. None for no copy.

        Raises:
            DamagedCheckpointError: If it has no sound manifest.
            NewerFormatError: If a newer library wrote it.
        """
        del with_data  # it is all here
        if keep_in is not None:
            shutil.copytree(self._path / self.name(step), keep_in / self.name(step))
        return InspectedCheckpoint(self._path, step)


class StoredPlace:
    """A run's checkpoints in S3.

    Args:
        objects: The objects below the run's checkpoint prefix.
        label: The prefix.
        show_progress: Shows the progress of a download.
    """

    def __init__(self, objects: StoredObjects, *, label: str, show_progress: ShowProgress) -> None:
        self.label = label
        self._objects = objects
        self._show_progress = show_progress
        files: dict[str, dict[str, int | None]] = {}
        self._trainings: set[str] = set()
        notes: list[str] = []
        for found in objects.list():
            directory, _, name = found.key.partition("/")
            # What has no such name is a marker or a stranger; its key could lead anywhere.
            if parse_folder(directory) and _FILE_NAME.fullmatch(name) and not name.endswith(_MARKER_SUFFIXES):
                files.setdefault(directory, {})[name] = found.size
            elif parse_note_name(found.key):
                notes.append(found.key)
            elif other := _OF_A_TRAINING.fullmatch(found.key):
                self._trainings.add(other.group(1))
        writers = Writers().joined(filter(None, map(self._note, notes)), names=files)
        self._folders = writers.chosen(files, is_whole=lambda name: MANIFEST_NAME in files[name])
        self._files = {step: files[name] for step, name in self._folders.items()}
        self.unread = writers.unread(files)

    def name(self, step: int) -> str:
        """Return the name of a checkpoint's folder."""
        return self._folders.get(step, folder_name(step, None))

    def steps(self) -> list[int]:
        """Return the steps that anything was written of, newest first."""
        return list(self._files)

    def trainings(self) -> list[str]:
        """Return the names of the folders in it that hold checkpoints of other trainings of the script."""
        return sorted(self._trainings)

    def files(self, step: int) -> dict[str, int | None]:
        """Return the names in one checkpoint and their sizes. The size is None for anything but a plain file."""
        return dict(self._files[step])

    def manifest(self, step: int) -> Manifest:
        """Return the manifest of a checkpoint."""
        self._check_manifest_size(step)
        raw = self._objects.read(f"{self.name(step)}/{MANIFEST_NAME}", max_bytes=MAX_MANIFEST_BYTES)
        return checked_manifest(raw, step=step, folder=self.name(step))

    @contextmanager
    def opened(self, step: int, *, with_data: bool, keep_in: Path | None = None) -> Iterator[InspectedCheckpoint]:
        """Open one checkpoint.

        Args:
            step: Its step.
            with_data: True to fetch its data, too.
            keep_in: A directory that keeps the fetched checkpoint if the block ends well. None to remove it.

        Raises:
            CommandLineError: If there is no room for it here.
        """
        self._check_manifest_size(step)
        wanted = {name: size or 0 for name, size in self._files[step].items() if with_data or name == MANIFEST_NAME}
        with tempfile.TemporaryDirectory(prefix="spotkeep-", dir=keep_in) as folder:
            _check_room(Path(folder), sum(wanted.values()))
            target = Path(folder) / self.name(step)
            target.mkdir()
            with self._show_progress(f"downloading step {step}", sum(wanted.values())) as on_bytes:
                for name in sorted(wanted):
                    self._objects.download(f"{self.name(step)}/{name}", target / name, on_bytes=on_bytes)
            with InspectedCheckpoint(Path(folder), step) as checkpoint:
                yield checkpoint
            if keep_in is not None:
                target.rename(keep_in / target.name)

    def _note(self, name: str) -> Writers | None:
        try:
            return Writers.parse(self._objects.read(name, max_bytes=MAX_NOTE_BYTES))
        except ValueError:
            return None  # later notes repeat it

    def _check_manifest_size(self, step: int) -> None:
        name, size = f"{self.name(step)}/{MANIFEST_NAME}", self._files[step].get(MANIFEST_NAME)
        if size is None:
            raise DamagedCheckpointError(name, "missing: it was never written or copied whole")
        if size > MAX_MANIFEST_BYTES:
            raise DamagedCheckpointError(name, f"{size:,} bytes, more than the {MAX_MANIFEST_BYTES:,} allowed")


def _check_room(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise CommandLineError(
            f"the checkpoint has {size:,} bytes, and {folder.parent} has room for {free:,}",
            hint="name a directory with more room: TMPDIR=/path spotkeep ...",
        )


CheckpointPlace: TypeAlias = LocalPlace | StoredPlace
"""The checkpoints of one run, wherever they are."""
_STEP = re.compile(r"(?:step-)?([0-9]{1,18})")


def place_of(target: str, *, invocation: Invocation, show_progress: ShowProgress) -> CheckpointPlace:
    """Return the place of a TARGET, which is a directory of that name if there is one, else a run.

    `RUN:TRAINING` is one training of a run whose script has several.

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
        return LocalPlace(path)
    target, _, training = target.partition(":")
    if "/" in target or target.startswith((".", "~")):
        raise CheckpointNotFoundError(f"there is no directory {target}", hint="name a directory, or a run's id")
    deployment = invocation.deployment()
    run = find_run(deployment.table, target, command=invocation.options.command)
    if not run.checkpoint_uri:
        raise CheckpointNotFoundError(f"{run.run} has no checkpoint prefix: another client created its job without one")
    uri = f"{run.checkpoint_uri.rstrip('/')}/{training}/" if training else run.checkpoint_uri
    return StoredPlace(deployment.stored_objects(uri), label=uri, show_progress=show_progress)


def finished_steps(place: CheckpointPlace) -> list[int]:
    """Return the steps that have a manifest, newest first. A resume tries these."""
    return [step for step in place.steps() if MANIFEST_NAME in place.files(step)]


def step_of(place: CheckpointPlace, text: str | None) -> int:
    """Return the step of a STEP argument, such as `100` or `step-100`. Without one, return the newest step.

    Raises:
        UsageError: The argument is no step.
        CheckpointNotFoundError: There is no checkpoint of the step. The error names the existing steps.
    """
    steps = place.steps()
    if text is None:
        finished = finished_steps(place)
        if not finished:
            others = place.trainings()
            raise CheckpointNotFoundError(
                f"no checkpoints in {place.label}",
                hint=f"its trainings are {', '.join(others)}: name one of them"
                if others
                else "has the training saved yet?",
            )
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
