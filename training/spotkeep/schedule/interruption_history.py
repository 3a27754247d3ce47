"""The expected time to the next interruption, first a default, then corrected by the run's own history.

A run has many processes. Each leaves a line in a small file beside the checkpoints. The line holds the time of its
start, the last time it was seen, and the kind of its end. A process without an end was taken away without a notice in
time. The default counts as one interruption. After a few, the run's own history weighs more.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from spotkeep.disk.storage import LocalStorage

from .save_schedule import InterruptionOutlook

HISTORY_NAME = "interruptions.json"
MAX_HISTORY_BYTES = 65_536
_REMEMBERED = 64
_LONGEST_SECONDS = 28 * 86_400.0

_logger = logging.getLogger("spotkeep")

NOTICED, LEFT = "noticed", "left"
"""The kinds of a process's end. One is a save in time after a notice.

The other is any end of its own accord, done or with an error.
"""


@dataclass(frozen=True)
class ProcessLife:
    """One process of a run.

    Attributes:
        began: Start of its training, in seconds since the epoch.
        seen: The last time at which it was known to be alive, in seconds since the epoch.
        ending: `noticed`, `left`, or None when it never said, because it was taken away or is still there.
    """

    began: float
    seen: float
    ending: str | None = None

    @property
    def seconds(self) -> float:
        """The length of its life in seconds."""
        return self.seen - self.began


class InterruptionHistory:
    """The file that the lives of a run are kept in.

    Args:
        directory: The directory of checkpoints.
        storage: The file operations.
    """

    def __init__(self, directory: Path, *, storage: LocalStorage | None = None) -> None:
        self._directory = directory
        self._storage = storage or LocalStorage()
        self._lives: tuple[ProcessLife, ...] = ()

    def begin(self) -> tuple[ProcessLife, ...]:
        """Begin a life. Gives those before it."""
        try:
            before = parse_history(
                bytes(self._storage.read(self._directory / HISTORY_NAME, max_bytes=MAX_HISTORY_BYTES))
            )
        except (OSError, ValueError):
            before = ()
        now = time.time()
        self._write((*before, ProcessLife(began=now, seen=now)))
        return before

    def seen(self, ending: str | None = None) -> None:
        """Note that this life is still there, or how it ended."""
        if self._lives:
            life = self._lives[-1]
            self._write((*self._lives[:-1], replace(life, seen=max(time.time(), life.began), ending=ending)))

    def _write(self, lives: tuple[ProcessLife, ...]) -> None:
        self._lives = lives
        draft = self._directory / (HISTORY_NAME + ".draft")
        try:
            self._storage.make_directory(self._directory)
            self._storage.remove_file(draft)
            self._storage.write(draft, history_bytes(lives))
            self._storage.rename(draft, self._directory / HISTORY_NAME)
        except OSError as error:
            # An expectation is not worth ending a training for, and the saves report a full disk.
            _logger.debug("the history of interruptions could not be written: %s", error)


def expect(prior: InterruptionOutlook, lives: Sequence[ProcessLife]) -> InterruptionOutlook:
    """Correct an expectation by the run's history.

    The prior counts as one interruption after its mean time, noticed with its chance. The result is the mean of a gamma
    and of a beta distribution that are updated.

    Args:
        prior: The expectation before the first process.
        lives: The processes of the run before this one.
    """
    interruptions = 1 + sum(life.ending != LEFT for life in lives)
    noticed = prior.notice_chance + sum(life.ending == NOTICED for life in lives)
    seconds = prior.mean_seconds_between + sum(life.seconds for life in lives)
    return InterruptionOutlook(mean_seconds_between=seconds / interruptions, notice_chance=noticed / interruptions)


def history_bytes(lives: Sequence[ProcessLife]) -> bytes:
    """Format the newest lives as the file they are kept in."""
    document = {"lives": [asdict(life) for life in lives[-_REMEMBERED:]]}
    return json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"


def parse_history(raw: bytes) -> tuple[ProcessLife, ...]:
    """Read lives from the bytes of their file. Malformed lines are passed over, because it is only an expectation."""
    try:
        lives = json.loads(raw)["lives"]
        found = [life for life in map(_life, lives[-_REMEMBERED:]) if life is not None]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    return tuple(found)


def _life(document: object) -> ProcessLife | None:
    if not isinstance(document, dict):
        return None
    began, seen, ending = document.get("began"), document.get("seen"), document.get("ending")
    if not isinstance(began, (int, float)) or not isinstance(seen, (int, float)):
        return None
    # Not a number is in no order either.
    if ending not in (None, NOTICED, LEFT) or not 0 <= seen - began <= _LONGEST_SECONDS:
        return None
    return ProcessLife(began=began, seen=seen, ending=ending)
