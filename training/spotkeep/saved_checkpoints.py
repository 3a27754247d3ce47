"""The checkpoints that a training has saved, on this machine and in S3, for a script that asks for them.

Each answer comes from the folder and from S3 at the moment of the question. No rank asks another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .disk.checkpoint_directory import CheckpointDirectory
from .disk.manifest import Manifest
from .disk.retention import Best, Candidate, best_step
from .errors import DamagedCheckpointError, MissingCheckpointError
from .remote.remote_checkpoints import RemoteCheckpoints


class SavedCheckpoints:
    """The checkpoints of one training, by their steps. Any thread may ask.

    Args:
        directory: The checkpoints on this machine.
        remote: Those in S3. None where the library uploads nothing.
    """

    def __init__(self, directory: CheckpointDirectory, *, remote: RemoteCheckpoints | None) -> None:
        self._directory = directory
        self._remote = remote

    def steps(self) -> list[int]:
        """List the steps with a checkpoint here or in S3, the oldest first. Nothing is verified.

        Raises:
            RemoteError: If S3 cannot be read.
        """
        return sorted({*self._directory.steps(), *([] if self._remote is None else self._remote.steps())})

    def best(self, best: Best) -> int | None:
        """Find the best checkpoint by a metric that the script has logged. None where none has that metric.

        Raises:
            RemoteError: If S3 cannot be read.
        """
        return best_step([self._candidate(step) for step in self.steps()], best)

    def metadata(self, step: int) -> Mapping[str, Any]:
        """Read the values that the script has kept beside the state of a checkpoint.

        Raises:
            MissingCheckpointError: If there is no checkpoint of this step.
            DamagedCheckpointError: If its manifest is altered, here and in S3.
            NewerFormatError: If a newer library wrote it.
            RemoteError: If S3 cannot be read.
        """
        self.require(step)
        return self._manifest(step).metadata

    def require(self, step: int) -> None:
        """Refuse a step without a checkpoint.

        Raises:
            MissingCheckpointError: Naming the steps that have one.
            RemoteError: If S3 cannot be read.
        """
        steps = self.steps()
        if step not in steps:
            raise MissingCheckpointError(step, steps=steps, place=str(self._directory.path))

    def remove(self, step: int) -> None:
        """Remove a checkpoint here and in S3.

        Raises:
            SaveError: If the disk refuses.
            RemoteError: If S3 refuses.
        """
        if self._remote is not None:
            self._remote.remove(step)
        self._directory.remove(step)

    def _candidate(self, step: int) -> Candidate:
        here = self._directory.candidate(step)
        return self._remote.candidate(step) if here.damaged and self._remote is not None else here

    def _manifest(self, step: int) -> Manifest:
        try:
            return self._directory.read_manifest(step)
        except DamagedCheckpointError:
            if self._remote is None:
                raise
            return self._remote.read_manifest(step).manifest
