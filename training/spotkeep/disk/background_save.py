"""One save at a time, off the training's thread: the copy holds the training up, the disk does not."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import Callable

from spotkeep.state.encoding import EncodedState

from .checkpoint_directory import CheckpointDirectory
from .manifest import Progress
from .staged_state import StagedState

_logger = logging.getLogger("spotkeep")


@dataclass(frozen=True)
class SaveOutcome:
    """How a save ended.

    Attributes:
        step: Completed steps that it holds.
        reason: Why it was made.
        seconds: From its start until it was durable, or had failed.
        size_bytes: How large it is; 0 when it failed.
        problem: What went wrong, None when it is durable.
    """

    step: int
    reason: str
    seconds: float
    size_bytes: int = 0
    problem: BaseException | None = None


class BackgroundSaver:
    """Copies a state, and writes the copy while the training goes on.

    Args:
        directory: Where checkpoints go.
        tidy: Called after each durable checkpoint, in the writing thread.
    """

    def __init__(self, directory: CheckpointDirectory, *, tidy: Callable[[], None]) -> None:
        self._directory = directory
        self._tidy = tidy
        self._staged = StagedState()
        self._thread: threading.Thread | None = None
        self._decided = threading.Event()
        self._decided.set()
        self._outcome: SaveOutcome | None = None

    @property
    def saving(self) -> bool:
        """Whether a save is neither durable nor failed yet."""
        return not self._decided.is_set()

    def start(self, encoded: EncodedState, *, step: int, reason: str, progress: Progress) -> None:
        """Begin a save. Returns when the state may change again. The one before is over and its outcome collected.

        Where the system starts no more threads (a limit on processes), the save is over when this returns.

        Raises:
            MemoryError: If there is no memory for a copy of the state.
        """
        started = time.monotonic()
        document = encoded.document
        images = self._staged.arrange(encoded.blobs)
        self._decided.clear()

        def write() -> None:
            size, problem = 0, None
            try:
                size = self._directory.write_images(
                    images, document, step=step, progress=progress, wait=self._staged.wait
                )
            except BaseException as error:  # noqa: BLE001 - the training's thread gets it with the outcome
                problem = error
            seconds = time.monotonic() - started
            self._outcome = SaveOutcome(step=step, reason=reason, seconds=seconds, size_bytes=size, problem=problem)
            self._decided.set()
            if problem is None:
                self._tidy()

        # A thread of each save's own: nothing is left behind between saves, or when the script forgets to say goodbye.
        thread = threading.Thread(target=write, name=f"spotkeep-save-{step}", daemon=True)
        self._thread = None
        try:
            try:
                thread.start()
                self._thread = thread
            except RuntimeError as error:
                _logger.warning("the training waits while the checkpoint of step %d is written: %s", step, error)
            self._staged.copy(encoded.blobs, images)
        except BaseException:
            self._staged.abandon()
            if thread.ident is not None:
                thread.join()
            self._outcome = None
            self._decided.set()
            raise
        if self._thread is None:
            write()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until a save that is running is durable or has failed. Says whether it is; true when none is running."""
        return self._decided.wait(seconds)

    def wait_until_idle(self, seconds: float | None = None) -> bool:
        """Wait until older checkpoints are tidied up too. Says whether nothing is running any more."""
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                return False
            self._thread = None
        return True

    def collect(self) -> SaveOutcome | None:
        """Give the outcome of the save that has ended, once; None when there is none to give."""
        if not self._decided.is_set():
            return None
        outcome, self._outcome = self._outcome, None
        return outcome
