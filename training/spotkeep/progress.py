"""The place that a training has reached, and the numbers that its script has logged on the way."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

from .disk.manifest import Manifest, Progress
from .errors import UsageError

MAX_METADATA_BYTES = 65_536
"""The most bytes of a script's metadata, as JSON."""


class TrainingProgress:
    """Steps, epochs and metrics of one training.

    Attributes:
        step: Completed steps.
        epochs_completed: Completed epochs. None while the training counts none.
        step_began: Start of the current step, in seconds of `time.monotonic`. None between steps.
        began_beside_save: True if a save was running when the newest step began.
    """

    def __init__(self) -> None:
        self.step = 0
        self.epochs_completed: int | None = None
        self.step_began: float | None = None
        self.began_beside_save = False
        self._unreported: dict[str, Any] = {}
        self._newest: dict[str, float] = {}
        self._measured_at: dict[str, int] = {}
        self._logged_in_step: set[str] = set()
        self._metadata: dict[str, Any] = {}

    def begin_step(self, *, saving: bool) -> None:
        """Note that a step begins.

        Args:
            saving: True while a save is running.
        """
        self.began_beside_save = saving
        self.step_began = time.monotonic()

    def end_step(self) -> float | None:
        """Count a step. Gives the seconds that it took, None for a step without a start."""
        self.step += 1
        began, self.step_began = self.step_began, None
        return None if began is None else time.monotonic() - began

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Take metrics of the current step."""
        self._unreported.update(metrics)
        numbers = _finite_numbers(metrics)
        self._newest.update(numbers)
        self._logged_in_step.update(numbers)

    def set_metadata(self, values: Mapping[str, Any]) -> None:
        """Keep values in each checkpoint from now on.

        Raises:
            UsageError: If they are no JSON values, or too many.
        """
        metadata = {**self._metadata, **values}
        try:
            size = len(json.dumps(metadata, allow_nan=False))
            same = json.loads(json.dumps(metadata)) == metadata
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(
                f"the metadata {', '.join(map(repr, values))} cannot be kept: {error}; pass texts, finite numbers, "
                "booleans, None, and lists and dictionaries of them, or put what is larger into the state"
            ) from error
        if not same:
            raise UsageError(
                f"the metadata {', '.join(map(repr, values))} would come back as other values: use lists in place of "
                "tuples, and texts as the keys of dictionaries"
            )
        if size > MAX_METADATA_BYTES:
            raise UsageError(
                f"the metadata has {size:,} bytes as JSON, more than {MAX_METADATA_BYTES:,}: put what is larger into "
                "the state of the training"
            )
        self._metadata = json.loads(json.dumps(metadata))

    def take_metrics(self) -> dict[str, Any]:
        """Give the metrics that were logged since the last call."""
        taken, self._unreported = self._unreported, {}
        return taken

    def note_measured(self) -> None:
        """Count the metrics that the script has logged as those of the step that has just ended."""
        self._measured_at.update(dict.fromkeys(self._logged_in_step, self.step))
        self._logged_in_step.clear()

    def go_on_from(self, manifest: Manifest) -> None:
        """Take the place and the metrics of a checkpoint that was restored."""
        self.step, self.epochs_completed = manifest.step, manifest.epochs_completed
        self._newest = dict(manifest.metrics)
        self._measured_at = dict(manifest.measured_at)
        self._metadata = {**manifest.metadata, **self._metadata}

    def as_saved(self, made_by: Mapping[str, str]) -> Progress:
        """Give the progress that the checkpoint of the current step holds.

        Args:
            made_by: Names and texts that describe the training.
        """
        return Progress(
            epochs_completed=self.epochs_completed,
            metrics=dict(self._newest),
            measured_at={**self._measured_at, **dict.fromkeys(self._logged_in_step, self.step)},
            made_by=made_by,
            metadata=self._metadata,
        )

    def measured(self) -> Iterator[tuple[int, dict[str, float]]]:
        """Give the newest value of each metric with the step of its measurement, in the order of the steps."""
        by_step: dict[int, dict[str, float]] = {}
        for name, step in self._measured_at.items():
            by_step.setdefault(step, {})[name] = self._newest[name]
        return iter(sorted(by_step.items()))


def _finite_numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Keep the metrics that a manifest can hold and an order can rank."""
    numbers = {}
    for name, value in metrics.items():
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            continue
        if math.isfinite(number):
            numbers[name] = number
    return numbers
