"""Knows the checkpoints that have reached S3, and when a missing one deserves a warning.

SageMaker copies the checkpoint directory to S3 while the job trains, and mirrors deletions. Beside a file `f` it keeps
a marker `f.sagemaker-uploading` while it copies it and `f.sagemaker-uploaded` afterwards. Users see these markers, and
AWS does not document them. So an old checkpoint may go only after newer ones have arrived. A checkpoint also counts as
arrived after a long time if no checkpoint has any marker. Users report that the copying can stop silently. Then a
person must be warned.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .manifest import MANIFEST_NAME
from .storage import LocalStorage

UPLOADING_SUFFIX = ".sagemaker-uploading"
UPLOADED_SUFFIX = ".sagemaker-uploaded"
_UNMARKED_GRACE_SECONDS = 900.0
_LATE_SECONDS = 900.0
_LATE_FACTOR = 3.0


@dataclass(frozen=True)
class UploadWatch:
    """Knows if a checkpoint has reached a place that outlives this machine.

    Attributes:
        platform_copies: True if SageMaker copies the directory. Elsewhere only the disk has a checkpoint.
        unmarked_grace_seconds: Seconds after which a checkpoint without any marker counts as copied.
    """

    platform_copies: bool
    unmarked_grace_seconds: float = _UNMARKED_GRACE_SECONDS

    @classmethod
    def for_this_job(cls, environment: Mapping[str, str] | None = None) -> UploadWatch:
        """Read the environment, where SageMaker names the job in TRAINING_JOB_NAME."""
        environment = os.environ if environment is None else environment
        return cls(platform_copies=bool(environment.get("TRAINING_JOB_NAME")))

    def is_durable(self, checkpoint: Path, storage: LocalStorage) -> bool:
        """Say whether this checkpoint, its manifest and every data file, has been copied."""
        if not self.platform_copies:
            return True
        return self._is_safe(checkpoint, storage, manifest_here=True)

    def has_part_arrived(self, checkpoint: Path, storage: LocalStorage) -> bool:
        """Say whether this host's part of a checkpoint has been copied, when another one writes the manifest."""
        return self._is_safe(checkpoint, storage, manifest_here=False)

    def _is_safe(self, checkpoint: Path, storage: LocalStorage, *, manifest_here: bool) -> bool:
        if self.has_arrived(checkpoint, storage, manifest_here=manifest_here):
            return True
        others = (checkpoint.parent / name for name in storage.names(checkpoint.parent))
        if any(_is_marker(name) for other in others if storage.is_directory(other) for name in storage.names(other)):
            return False
        names = [MANIFEST_NAME] if manifest_here else storage.names(checkpoint)
        written = [storage.fingerprint(checkpoint / name) for name in names]
        return all(
            found is not None and time.time() - found[2] / 1e9 > self.unmarked_grace_seconds for found in written
        )

    def has_arrived(self, checkpoint: Path, storage: LocalStorage, *, manifest_here: bool = True) -> bool:
        """Tell if the markers show that every file of this checkpoint has been copied.

        Args:
            checkpoint: Its directory.
            storage: The file operations.
            manifest_here: True if the manifest must be among the files.
        """
        names = set(storage.names(checkpoint))
        files = {name for name in names if not _is_marker(name)}
        return (MANIFEST_NAME in files or not manifest_here) and all(
            name + UPLOADED_SUFFIX in names and name + UPLOADING_SUFFIX not in names for name in files
        )


@dataclass(frozen=True)
class LateUpload:
    """Checkpoints have not arrived in the expected time.

    Attributes:
        step: The step of the newest checkpoint that is durable on this machine.
        uploaded_step: The step of the newest one that has arrived. None when none has.
        seconds: The wait so far.
        expected_seconds: The longest expected wait.
    """

    step: int
    uploaded_step: int | None
    seconds: float
    expected_seconds: float


class LateUploadAlarm:
    """Decides if the last uploaded checkpoint is too old. Pure, with the time as an argument.

    An upload is late after fifteen minutes, or after three times the slowest one so far if that is longer. The alarm
    comes again whenever the delay has doubled.

    Attributes:
        uploaded_step: The step of the newest checkpoint that has arrived. None when none has.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, float] = {}
        self.uploaded_step: int | None = None
        self._slowest = 0.0
        self._tell_after = 0.0

    @property
    def waiting(self) -> tuple[int, ...]:
        """The steps that have not arrived, newest first."""
        return tuple(sorted(self._waiting, reverse=True))

    def saved(self, step: int, now: float) -> None:
        """Note that a checkpoint has become durable on this machine."""
        self._waiting.setdefault(step, now)

    def uploaded(self, step: int, now: float) -> None:
        """Note that a checkpoint has arrived. Earlier ones do not count any more."""
        began = self._waiting.get(step)
        if began is not None:
            self._slowest = max(self._slowest, now - began)
        self._waiting = {other: since for other, since in self._waiting.items() if other > step}
        self.uploaded_step = step if self.uploaded_step is None else max(step, self.uploaded_step)
        self._tell_after = 0.0

    def late(self, now: float) -> LateUpload | None:
        """Give the due alarm, if there is one."""
        if not self._waiting:
            return None
        seconds = now - min(self._waiting.values())
        expected = max(_LATE_SECONDS, _LATE_FACTOR * self._slowest)
        if seconds <= max(expected, self._tell_after):
            return None
        self._tell_after = 2 * seconds
        return LateUpload(
            step=max(self._waiting), uploaded_step=self.uploaded_step, seconds=seconds, expected_seconds=expected
        )


def _is_marker(name: str) -> bool:
    return name.endswith((UPLOADING_SUFFIX, UPLOADED_SUFFIX))
