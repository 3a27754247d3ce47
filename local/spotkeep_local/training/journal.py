"""What the service remembers across its own death: one JSON file a job, replaced whole at every change."""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING

from spotkeep_local.training.job import TrainingJob, from_document, to_document

if TYPE_CHECKING:
    from pathlib import Path

_LOG = logging.getLogger(__name__)


class Journal:
    """Jobs on disk.

    Args:
        folder: Where the files are; made when it is not there.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def save(self, job: TrainingJob) -> None:
        """Writes a job. A crash leaves the old file or the new one, never half of one."""
        draft = self._folder / f"{job.name}.draft"
        draft.write_text(json.dumps(to_document(job)))
        os.replace(draft, self._folder / f"{job.name}.json")  # noqa: PTH105 - atomic, and says so

    def forget(self, name: str) -> None:
        """Removes a job."""
        (self._folder / f"{name}.json").unlink(missing_ok=True)

    def load(self) -> list[TrainingJob]:
        """Every job that can be read, oldest first; one that cannot is left where it is and logged."""
        jobs = []
        for path in self._folder.glob("*.json"):
            try:
                jobs.append(from_document(json.loads(path.read_text())))
            except (ValueError, KeyError, TypeError) as error:
                _LOG.warning("the journal of a training job cannot be read: %s: %s", path, error)
        return sorted(jobs, key=lambda job: job.created_at)
