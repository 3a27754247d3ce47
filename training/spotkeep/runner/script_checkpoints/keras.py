"""Keras' `BackupAndRestore`, which writes weights with their epoch. A second pair replaces both."""

from __future__ import annotations

from . import files
from .folder import Folder
from .reading import json_object

BACKUP, EPOCH = "latest.weights.h5", "training_metadata.json"
_SECOND = ".bkp"


def backup_problem(folder: Folder) -> str | None:
    """Say why a backup is not whole, apart from its weights themselves. None also without a backup."""
    if EPOCH not in folder.files:
        return None
    if BACKUP not in folder.files:
        return f"{BACKUP} is missing beside it"  # Keras would go on in that epoch with new weights
    return f"{EPOCH} beside it is not whole" if json_object(folder.path / EPOCH) is None else None


def take_second_backup(folder: Folder) -> None:
    """Put the second pair in the place of the first, if it is whole and the first is gone.

    Keras takes it only when loading the first fails, and not when that is missing.

    Raises:
        OSError: If it cannot be read or moved.
    """
    weights, epoch = folder.path / (BACKUP + _SECOND), folder.path / (EPOCH + _SECOND)
    if (folder.path / BACKUP).exists() or not {weights.name, epoch.name} <= folder.files:
        return
    if json_object(epoch) is not None and files.problem_of(weights, name=BACKUP) is None:
        # The weights last: without them an interruption in between leaves nothing that Keras would take.
        epoch.replace(folder.path / EPOCH)
        weights.replace(folder.path / BACKUP)
