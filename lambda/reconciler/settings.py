"""The reconciler's settings, read once from the environment that its constructs set."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field, Json

from spotkeep_jobs.functions.tracking_functions import TrackingSettings


class ReconcilerSettings(TrackingSettings):
    """What a sweep needs to know beside what those who follow jobs do."""

    checkpoint_bucket: str
    isolated_teams: Json[tuple[str, ...]] = ()
    """Teams whose runs are stored apart."""
    orphans: Literal["remove", "report"] = "remove"
    """Whether what belongs to no live run is removed by rule, or only reported."""
    orphaned_checkpoints_days: Annotated[int, Field(gt=0)] | None = None
    """How long after its last use what is stored for a run that is in the table no more is removed; None for never."""

    @property
    def orphaned_checkpoints_after(self) -> timedelta | None:
        """The same as a duration."""
        days = self.orphaned_checkpoints_days
        return None if days is None else timedelta(days=days)
