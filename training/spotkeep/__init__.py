"""Keep a training's state through the loss of its machine.

A training script imports `Checkpointer`; a job is started by `python3 spotkeep.pyz run -- <command>`. Only the standard
library is needed: NumPy and torch are used when the script already uses them.
"""

from __future__ import annotations

from .checkpointer import EXIT_INTERRUPTED, Checkpointer, Epoch
from .disk.retention import Best
from .errors import (
    CheckpointError,
    DamagedCheckpointError,
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
from .loops.resumable_training import ResumableLoader, ResumableTraining
from .schedule.save_schedule import InterruptionOutlook
from .state.random_states import RandomStates
from .version import __version__

__all__ = [
    "EXIT_INTERRUPTED",
    "Best",
    "CheckpointError",
    "Checkpointer",
    "DamagedCheckpointError",
    "Epoch",
    "InterruptionOutlook",
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
