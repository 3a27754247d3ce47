"""Keep a training's state through the loss of its machine.

A training script imports `Checkpointer`. A job is started by `python3 spotkeep.pyz run -- <command>`. Only the standard
library is needed. NumPy and torch are used when the script already uses them.

Exported names are imported on first use. A process that only starts a training, or only moves its volume, starts
sooner.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import start  # noqa: F401 - it takes note of the working directory
from .version import __version__

if TYPE_CHECKING:
    from .checkpointer import Checkpointer, Epoch
    from .disk.retention import Best
    from .errors import (
        CheckpointError,
        DamagedCheckpointError,
        MissingCheckpointError,
        MissingLibraryError,
        MixedStateError,
        NewerFormatError,
        OtherRankError,
        RankLostError,
        RemoteError,
        SaveError,
        SpotkeepError,
        StateError,
        StateMismatchError,
        UsageError,
        WorldSizeError,
    )
    from .events import report_progress, report_resumed, report_saved
    from .loops.global_batches import GlobalBatches
    from .loops.resumable_training import ResumableLoader, ResumableTraining
    from .notices.notice import EXIT_INTERRUPTED
    from .schedule.save_schedule import InterruptionOutlook
    from .state.random_states import RandomStates

_HOMES = {
    "checkpointer": ("Checkpointer", "Epoch"),
    "disk.retention": ("Best",),
    "events": ("report_progress", "report_resumed", "report_saved"),
    "loops.global_batches": ("GlobalBatches",),
    "loops.resumable_training": ("ResumableLoader", "ResumableTraining"),
    "notices.notice": ("EXIT_INTERRUPTED",),
    "schedule.save_schedule": ("InterruptionOutlook",),
    "state.random_states": ("RandomStates",),
}

__all__ = [
    "EXIT_INTERRUPTED",
    "Best",
    "CheckpointError",
    "Checkpointer",
    "DamagedCheckpointError",
    "Epoch",
    "GlobalBatches",
    "InterruptionOutlook",
    "MissingCheckpointError",
    "MissingLibraryError",
    "MixedStateError",
    "NewerFormatError",
    "OtherRankError",
    "RandomStates",
    "RankLostError",
    "RemoteError",
    "ResumableLoader",
    "ResumableTraining",
    "SaveError",
    "SpotkeepError",
    "StateError",
    "StateMismatchError",
    "UsageError",
    "WorldSizeError",
    "__version__",
    "report_progress",
    "report_resumed",
    "report_saved",
]


def __getattr__(name: str) -> Any:
    """Import an exported name."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = next((home for home, names in _HOMES.items() if name in names), "errors")
    value = globals()[name] = getattr(importlib.import_module(f".{home}", __name__), name)
    return value


def __dir__() -> list[str]:
    """List the exported names, imported or not."""
    return sorted({*globals(), *__all__})
