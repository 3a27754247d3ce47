"""Whether checkpoints are whole, and which of them a resume would take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spotkeep.errors import DamagedCheckpointError, NewerFormatError
from spotkeep_cli.checkpoints.listing import Look

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from spotkeep_cli.checkpoints.places import CheckpointPlace

    ShowProgress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What was found out about one checkpoint, every byte of which was read.

    Attributes:
        step: Completed steps.
        look: `whole`, `damaged` or `newer format`.
        size: Bytes of its data files, as the manifest says.
        damage: All that is wrong with it.
        problem: Why a newer format cannot be read.
    """

    step: int
    look: Look
    size: int = 0
    damage: tuple[DamagedCheckpointError, ...] = ()
    problem: str = ""

    def as_document(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "step": self.step,
            "state": self.look.value,
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


def verify(place: CheckpointPlace, step: int, *, show_progress: ShowProgress) -> Verdict:
    """Read every byte of one checkpoint."""
    try:
        with place.opened(step, with_data=True) as checkpoint:
            size = sum(file.size for file in checkpoint.manifest.files)
            with show_progress(f"verifying step {step}", size) as on_bytes:
                damage = tuple(checkpoint.damage(on_bytes))
    except DamagedCheckpointError as error:
        return Verdict(step=step, look=Look.DAMAGED, damage=(error,))
    except NewerFormatError as error:
        return Verdict(step=step, look=Look.NEWER, problem=str(error))
    return Verdict(step=step, look=Look.DAMAGED if damage else Look.WHOLE, size=size, damage=damage)


def taken_by_a_resume(verdicts: Sequence[Verdict], steps: Sequence[int]) -> Verdict | None:
    """Which checkpoint a resume takes, or stops at (a newer format is no damage: falling back would lose work).

    Args:
        verdicts: What was found out.
        steps: All steps that have a manifest, newest first.

    Returns:
        The verdict on it, or None where the verdicts do not reach far enough, or none is good.
    """
    known = {verdict.step: verdict for verdict in verdicts}
    for step in steps:
        verdict = known.get(step)
        if verdict is None or verdict.look is not Look.DAMAGED:
            return verdict
    return None
