"""The facts about a checkpoint that need no reading of its data.

They come from its manifest and the sizes of its files.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from spotkeep.disk.manifest import MANIFEST_NAME
from spotkeep.disk.upload_markers import UPLOADED_SUFFIX, UPLOADING_SUFFIX
from spotkeep.errors import DamagedCheckpointError, NewerFormatError
from spotkeep_cli.errors import CommandLineError, DamagedCheckpointsError, UsageError
from spotkeep_cli.rendering.printable import printable_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from spotkeep.disk.manifest import Manifest
    from spotkeep_cli.checkpoints.places import CheckpointPlace, ShowProgress


class CheckpointState(StrEnum):
    """The state of a checkpoint. `SIZES_RIGHT` needs no reading of its data, and `WHOLE` says that all was verified."""

    SIZES_RIGHT = "sizes right"
    WHOLE = "whole"
    UNFINISHED = "unfinished"
    DAMAGED = "damaged"
    NEWER = "newer format"


@dataclass(frozen=True, kw_only=True)
class CheckpointSummary:
    """One checkpoint at a glance.

    Attributes:
        step: Completed steps.
        state: `sizes right`, `unfinished`, `damaged` or `newer format`.
        problem: The problem with it, or empty for none.
        size: Bytes on the disk, without the platform's markers.
        files: Number of files, without the platform's markers.
        created: The time of its writing. None where the manifest has none.
        epochs_completed: Completed epochs, where the training counts them.
        library: The library that wrote it. None where the manifest has none.
        ranks: Number of processes of a training that wrote it together.
        upload: `uploaded` or `uploading`, from the platform's markers. None without them.
    """

    step: int
    state: CheckpointState
    problem: str = ""
    size: int
    files: int
    created: datetime | None = None
    epochs_completed: int | None = None
    library: str | None = None
    ranks: int = 1
    upload: str | None = None

    def as_document(self) -> dict[str, Any]:
        """Return it as `--json` gives it."""
        return {
            "step": self.step,
            "state": self.state.value,
            "problem": self.problem or None,
            "bytes": self.size,
            "files": self.files,
            "created": self.created.isoformat() if self.created else None,
            "epochs_completed": self.epochs_completed,
            "library": self.library,
            "ranks": self.ranks,
            "upload": self.upload,
        }


def summaries(place: CheckpointPlace) -> list[CheckpointSummary]:
    """Return every checkpoint of a place, newest first."""
    found = []
    for step in place.steps():
        # What was pruned meanwhile is no longer one of them.
        with suppress(FileNotFoundError):
            found.append(_summary(place, step))
    return found


def _summary(place: CheckpointPlace, step: int) -> CheckpointSummary:
    found = place.files(step)
    own = {name: size for name, size in found.items() if not name.endswith((UPLOADING_SUFFIX, UPLOADED_SUFFIX))}
    manifest, state, problem = None, CheckpointState.SIZES_RIGHT, ""
    if MANIFEST_NAME not in own:
        state, problem = CheckpointState.UNFINISHED, "no manifest, so no reader takes it"
    else:
        try:
            manifest = place.manifest(step)
            if problem := size_problem(manifest, own, folder=place.name(step)):
                state = CheckpointState.DAMAGED
        except DamagedCheckpointError as error:
            state, problem = CheckpointState.DAMAGED, str(error)
        except NewerFormatError as error:
            state, problem = CheckpointState.NEWER, str(error)
    return CheckpointSummary(
        step=step,
        state=state,
        problem=problem,
        size=sum(size or 0 for size in own.values()),
        files=len(own),
        created=moment_of(manifest.created) if manifest else None,
        epochs_completed=manifest.epochs_completed if manifest else None,
        library=manifest.library if manifest else None,
        ranks=manifest.world_size if manifest else 1,
        upload=upload_state(found),
    )


def size_problem(manifest: Manifest, sizes: Mapping[str, int | None], *, folder: str) -> str:
    """Return the name of a data file that is missing or has another size than in the manifest. Empty when none is."""
    for file in manifest.files:
        name = f"{folder}/{file.name}"
        if file.name not in sizes:
            return f"{name}: missing"
        found = sizes[file.name]
        if found is None:
            return f"{name}: not a regular file"
        if found != file.size:
            return f"{name}: {found:,} bytes instead of {file.size:,}"
    return ""


def upload_state(names: Mapping[str, int | None]) -> str | None:
    """Return the state in the platform's marker files, `uploaded` or `uploading`. None without any."""
    if not any(name.endswith((UPLOADING_SUFFIX, UPLOADED_SUFFIX)) for name in names):
        return None
    own = [name for name in names if not name.endswith((UPLOADING_SUFFIX, UPLOADED_SUFFIX))]
    done = all(name + UPLOADED_SUFFIX in names and name + UPLOADING_SUFFIX not in names for name in own)
    return "uploaded" if done else "uploading"


def moment_of(seconds: float) -> datetime | None:
    """Return seconds since the epoch as a time. None where they are no time."""
    try:
        return datetime.fromtimestamp(seconds, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return None  # a stranger's clock


@dataclass(frozen=True, kw_only=True)
class VerifiedCheckpoint:
    """The result of a verification of one checkpoint, with every byte read.

    Attributes:
        step: Completed steps.
        state: `whole`, `damaged` or `newer format`.
        size: Bytes of its data files, according to the manifest.
        damage: All damage of it.
        problem: The reason that a newer format cannot be read.
    """

    step: int
    state: CheckpointState
    size: int = 0
    damage: tuple[DamagedCheckpointError, ...] = ()
    problem: str = ""

    def as_document(self) -> dict[str, Any]:
        """Return it as `--json` gives it."""
        return {
            "step": self.step,
            "state": self.state.value,
            "bytes": self.size,
            "damage": [
                {
                    "file": error.file,
                    "problem": error.problem,
                    "first_byte": error.offsets[0] if error.offsets else None,
                    "end_byte": error.offsets[1] if error.offsets else None,
                }
                for error in self.damage
            ],
            "problem": self.problem or None,
        }


def verify(place: CheckpointPlace, step: int, *, show_progress: ShowProgress) -> VerifiedCheckpoint:
    """Read every byte of one checkpoint."""
    try:
        with place.opened(step, with_data=True) as checkpoint:
            size = sum(file.size for file in checkpoint.manifest.files)
            with show_progress(f"verifying step {step}", size) as on_bytes:
                damage = tuple(checkpoint.damage(on_bytes))
    except DamagedCheckpointError as error:
        return VerifiedCheckpoint(step=step, state=CheckpointState.DAMAGED, damage=(error,))
    except NewerFormatError as error:
        return VerifiedCheckpoint(step=step, state=CheckpointState.NEWER, problem=str(error))
    return VerifiedCheckpoint(
        step=step, state=CheckpointState.DAMAGED if damage else CheckpointState.WHOLE, size=size, damage=damage
    )


def taken_by_a_resume(verdicts: Sequence[VerifiedCheckpoint], steps: Sequence[int]) -> VerifiedCheckpoint | None:
    """Return the verdict on the checkpoint that a resume takes, or stops at.

    A newer format is no damage. Falling back to an older checkpoint would lose work.

    Args:
        verdicts: The results of the verification.
        steps: All steps that have a manifest, newest first.

    Returns:
        The verdict on it. None where the verdicts do not reach far enough, or none is good.
    """
    known = {verdict.step: verdict for verdict in verdicts}
    for step in steps:
        verdict = known.get(step)
        if verdict is None or verdict.state is not CheckpointState.DAMAGED:
            return verdict
    return None


def damage_text(error: DamagedCheckpointError) -> str:
    """Return the file, the place in it where it is known, and the problem, on one line."""
    if error.offsets is None:
        return printable_line(f"{error.file}: {error.problem}")
    start, end = error.offsets
    return printable_line(f"{error.file}, bytes {start:,} to {end - 1:,}: {error.problem}")


@contextmanager
def translated_errors(*, verify_command: str) -> Iterator[None]:
    """Turn the library's errors into one line and a hint.

    Args:
        verify_command: A command that names all damage.

    Raises:
        DamagedCheckpointsError: If a checkpoint is damaged.
        UsageError: If it needs a newer version, or may not be read.
        CommandLineError: If there is not enough memory.
    """
    try:
        yield
    except DamagedCheckpointError as error:
        raise DamagedCheckpointsError(damage_text(error), hint=f"all that is wrong: {verify_command}") from error
    except NewerFormatError as error:
        raise UsageError(printable_line(str(error)), hint="open it with the version that wrote it") from error
    except MemoryError as error:
        raise CommandLineError(
            "this machine has not enough memory for it", hint="export it with --format safetensors, which needs little"
        ) from error
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise UsageError(f"{where}{error.strerror or error}", hint="is it there, and may you read it?") from error
