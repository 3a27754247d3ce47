"""Which checkpoint files SageMaker has already copied to S3.

SageMaker copies the checkpoint directory to S3 while the job trains, and mirrors deletions. Beside a file `f` it keeps
a marker `f.sagemaker-uploading` while it copies it and `f.sagemaker-uploaded` afterwards (users see them; AWS does not
document them). So an old checkpoint may go only after newer ones have arrived; and because the markers are not
promised, a checkpoint also counts as arrived when it has been lying there, without any marker, for a long while.
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


@dataclass(frozen=True)
class UploadWatch:
    """Tells whether a checkpoint has reached a place that outlives this machine.

    Attributes:
        platform_copies: Whether SageMaker copies the directory. Elsewhere a checkpoint on the disk is all there is.
        unmarked_grace_seconds: After how long a checkpoint without any marker counts as copied.
    """

    platform_copies: bool
    unmarked_grace_seconds: float = _UNMARKED_GRACE_SECONDS

    @classmethod
    def for_this_job(cls, environment: Mapping[str, str] | None = None) -> UploadWatch:
        """Look at the environment: SageMaker names the job in TRAINING_JOB_NAME."""
        environment = os.environ if environment is None else environment
        return cls(platform_copies=bool(environment.get("TRAINING_JOB_NAME")))

    def is_durable(self, checkpoint: Path, storage: LocalStorage) -> bool:
        """Say whether this checkpoint, its manifest and every data file, has been copied."""
        if not self.platform_copies:
            return True
        names = set(storage.names(checkpoint))
        markers = {name for name in names if name.endswith((UPLOADING_SUFFIX, UPLOADED_SUFFIX))}
        if not markers:
            manifest = storage.fingerprint(checkpoint / MANIFEST_NAME)
            return manifest is not None and time.time() - manifest[2] / 1e9 > self.unmarked_grace_seconds
        return all(name + UPLOADED_SUFFIX in names and name + UPLOADING_SUFFIX not in names for name in names - markers)
