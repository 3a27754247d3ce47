"""What the service remembers across its own death: one JSON file a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotkeep_local import journal
from spotkeep_local.training.job import TrainingJob, from_document, to_document

if TYPE_CHECKING:
    from pathlib import Path


class Journal(journal.Journal[TrainingJob]):
    """Jobs on disk, oldest first.

    Args:
        folder: Where the files are; made when it is not there.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(
            folder,
            kind="a training job",
            name_of=lambda job: job.name,
            to_document=to_document,
            from_document=from_document,
            order=lambda job: job.created_at,
        )
