"""Whether checkpoints are whole, and which of them a resume would take."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spotkeep.errors import DamagedCheckpointError, NewerFormatError
from spotkeep_cli.checkpoints.listing import CheckpointState
from spotkeep_cli.errors import CommandLineError, DamagedCheckpointsError, UsageError
from spotkeep_cli.rendering.printable import printable_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spotkeep_cli.checkpoints.places import CheckpointPlace, ShowProgress


@dataclass(frozen=True, kw_only=True)
class VerifiedCheckpoint:
    """What was found out about one checkpoint, every byte of which was read.

    Attributes:
        step: Completed steps.
        state: `whole`, `damaged` or `newer format`.
        size: Bytes of its data files, as the manifest says.
        damage: All that is wrong with it.
        problem: Why a newer format cannot be read.
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
    """Return which checkpoint a resume takes, or stop at (a newer format is no damage: falling back would lose work).

    Args:
        verdicts: What was found out.
        steps: All steps that have a manifest, newest first.

    Returns:
        The verdict on it, or None where the verdicts do not reach far enough, or none is good.
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
    """Turn what the library raises into one line and a hint.

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
