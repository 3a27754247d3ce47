"""Uploads one checkpoint at a time, beside the training. The newest is next, or on a notice one that can arrive.

Each rank of a training has such uploads of its own files. All ranks leave out the same checkpoints, see `upload_share`.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Callable

from spotkeep.disk.retention import Retention
from spotkeep.errors import CheckpointError, RemoteError, UsageError

from .remote_checkpoints import RemoteCheckpoints, Upload
from .transfer import Pace, TransferCancelledError
from .upload_share import UploadNote, UploadQueue

PACE_VARIABLE = "SPOTKEEP_UPLOAD_MB_PER_SECOND"

_POLL_SECONDS = 0.2
_FIRST_PAUSE_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 300.0
_ATTEMPTS_AT_THE_END = 3

_logger = logging.getLogger("spotkeep")


@dataclass(frozen=True)
class UploadOutcome:
    """The result of an upload.

    Attributes:
        step: Number of completed steps of the checkpoint.
        seconds: Duration of the upload.
        size_bytes: Size of the checkpoint.
        problem: The error that ended it. None when the whole checkpoint is in S3.
    """

    step: int
    seconds: float
    size_bytes: int
    problem: Exception | None = None


class BackgroundUpload:
    """Uploads checkpoints while the training goes on.

    A newer checkpoint supersedes one that waits. It does not supersede a running upload, or a slow network would never
    finish one. A failed upload is tried again, at ever longer intervals, until a newer one takes its place. When
    nothing else waits, superseded checkpoints follow that the retention keeps for their step or as the best.

    Args:
        remote: The checkpoints in S3.
        retention: The rule for old checkpoints there, or None while it is not known, and nothing is removed.
        pace: The limit on the speed of uploads.
        on_outcome: Called with the result of each upload, in the uploading thread.
    """

    def __init__(
        self,
        remote: RemoteCheckpoints,
        *,
        retention: Retention | None,
        pace: Pace,
        on_outcome: Callable[[UploadOutcome], None],
    ) -> None:
        self._remote = remote
        self._retention = retention
        self._pace = pace
        self._on_outcome = on_outcome
        self._changed = threading.Condition()
        self._queue = UploadQueue()
        self._running: Upload | None = None
        self._thread: threading.Thread | None = None
        self._superseded: int | None = None
        self._newest_only = False
        self._stopped = False
        self._failures = 0

    def keep(self, retention: Retention) -> None:
        """Set the rule for the checkpoints that stay there from now on."""
        self._retention = retention

    def note(self) -> UploadNote:
        """Give the news of this rank for the round of a save."""
        with self._changed:
            return self._queue.note()

    def offer(self, step: int) -> None:
        """Upload this checkpoint next. It is durable on this machine."""
        share = self._remote.share
        with self._changed:
            notes = [self.note()] if share.is_alone else [UploadNote.from_message(note) for note in share.notes()]
            for old, problem in self._queue.add(step, notes).items():
                if self._running is not None and self._running.step == old and not share.is_alone:
                    self._running.cancelled.set()
                if problem:
                    _logger.warning("the checkpoint of step %d is left out for a newer one: %s", old, problem)
            self._failures = 0
            self._start()
            self._changed.notify_all()

    def finish(self, seconds_left: Callable[[], float], *, newest_only: bool | None = None) -> bool:
        """Wait until everything has arrived. Gives True if it has.

        Without a time limit it gives up when several attempts in a row have failed. A limit, once there is one, lifts
        the pace, because the training does not need the network any more. Of two checkpoints it then uploads the one
        that can still arrive.

        Args:
            seconds_left: Gives the longest wait in seconds. It is asked again and again, because a notice may come
                meanwhile.
            newest_only: True to leave superseded checkpoints out that the retention keeps. None means True when there
                is a limit.
        """
        chosen = False
        while True:
            seconds = seconds_left()
            with self._changed:
                if self._idle:
                    return True
                if seconds <= 0 or (math.isinf(seconds) and self._failures >= _ATTEMPTS_AT_THE_END):
                    return False
                if not self._start():
                    return False
                if not chosen and math.isfinite(seconds):
                    chosen = True
                    self._pace.lift()
                    self._newest_only = newest_only is not False
                    self._choose(seconds)
                    self._changed.notify_all()
                self._changed.wait(min(_POLL_SECONDS, seconds))

    def go_on(self) -> None:
        """Upload again after a `stop`."""
        if self._stopped:
            if self._thread is not None:
                self._thread.join()
            self._thread = None
            self._stopped = False

    def stop(self) -> None:
        """Begin nothing more, and break off the running upload."""
        with self._changed:
            self._stopped = True
            self._queue.waiting.clear()
            if self._running is not None:
                self._running.cancelled.set()
            self._changed.notify_all()

    @property
    def _idle(self) -> bool:
        return not self._queue.waiting and self._running is None

    def _start(self) -> bool:
        """Start the thread, unless there is one. Gives False when the system can start no more threads just now."""
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="spotkeep-upload", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                _logger.warning("the checkpoint of step %d is not being uploaded: %s", self._queue.waiting[0], error)
                return False
            self._thread = thread
        return True

    def _choose(self, seconds: float) -> None:
        """Break the running upload off if the waiting one can arrive in time without it, and only then."""
        if self._newest_only and self._superseded is not None:
            if self._superseded in self._queue.waiting:
                self._queue.waiting.remove(self._superseded)
            if self._running is not None and self._running.step == self._superseded:
                self._running.cancelled.set()
                return
        if self._running is None or not self._queue.waiting:
            return
        try:
            waiting_bytes = self._remote.size(self._queue.waiting[-1])
        except CheckpointError:
            return
        # With a limit this is the limit: then the choice is a cautious one.
        rate = self._pace.measured_bytes_per_second
        left_bytes = self._running.total_bytes - self._running.done_bytes
        if switch_pays(running_bytes=left_bytes, waiting_bytes=waiting_bytes, bytes_per_second=rate, seconds=seconds):
            self._running.cancelled.set()

    def _work(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped or self._queue.waiting)
                if self._stopped:
                    return
                step = self._queue.waiting.pop(0)
                try:
                    self._running = self._remote.open(step, whole=step in self._queue.whole)
                except CheckpointError as error:
                    # Not there any more, or damaged: nothing that trying again would change.
                    _logger.warning("the checkpoint of step %d cannot be uploaded: %s", step, error)
                    self._changed.notify_all()
                    continue
                upload = self._running
            outcome = self._upload(upload)
            missing = self._prune() if outcome is not None and outcome.problem is None else None
            with self._changed:
                self._running = None
                if missing is not None and not (self._queue.waiting or self._stopped or self._newest_only):
                    self._superseded = missing
                    self._queue.take_back(missing)
                failed = outcome is not None and outcome.problem is not None
                self._failures = self._failures + 1 if failed else 0
                self._queue.failed.pop(step, None)
                if outcome is not None and outcome.problem is not None and self._is_tried_again(step):
                    self._queue.try_again(step, str(outcome.problem))
                self._changed.notify_all()
                if failed:
                    # What needs it sooner (a newer checkpoint, a notice) changes something.
                    self._changed.wait(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                else:
                    pause = _FIRST_PAUSE_SECONDS

    def _is_tried_again(self, step: int) -> bool:
        """Say if a failed upload is tried again. Of several ranks a save decides that a newer one takes its place."""
        if self._stopped or step in self._queue.left_out:
            return False
        return not self._queue.waiting or not self._remote.share.is_alone

    def _upload(self, upload: Upload) -> UploadOutcome | None:
        began = time.monotonic()
        problem: Exception | None = None
        try:
            self._remote.send(upload, pace=self._pace)
        except TransferCancelledError:
            return None
        except Exception as error:  # noqa: BLE001 - whatever it is, it is reported, and the training goes on
            problem = error
        finally:
            upload.close()
            seconds = time.monotonic() - began
            self._pace.measure(upload.sent_bytes, seconds)
        outcome = UploadOutcome(step=upload.step, seconds=seconds, size_bytes=upload.total_bytes, problem=problem)
        # Standard output may be gone; the uploads go on.
        with contextlib.suppress(OSError, ValueError):
            self._on_outcome(outcome)
        return outcome

    def _prune(self) -> int | None:
        """Remove the checkpoints that need not stay, as rank 0. Gives a step that is to stay and is not there."""
        if self._retention is None:
            return None
        share = self._remote.share
        if not share.is_first and not self._queue.left_out:
            return None
        try:
            if share.is_first:
                # Other ranks may have begun those already.
                others = () if share.is_alone else self._remote.missing(self._retention)
                self._remote.prune(self._retention, uploading=others)
            missing = self._remote.missing(self._retention)
        except RemoteError as error:
            _logger.warning("old checkpoints in S3 could not be removed: %s", error)
            return None
        # The other ranks have left out the same, and come to it at the same time. Of a checkpoint from before this
        # process they know nothing, so that rank 0 uploads all of it.
        alone = share.is_alone or (share.is_first and share.disk_has_all)
        return next((step for step in missing if alone or step in self._queue.left_out), None)


def switch_pays(*, running_bytes: int, waiting_bytes: int, bytes_per_second: float | None, seconds: float) -> bool:
    """Tell if an upload should be broken off for a newer one, because only the newer one alone can arrive in time.

    Args:
        running_bytes: Bytes that the running upload has still to send.
        waiting_bytes: The size of the newer checkpoint in bytes.
        bytes_per_second: The measured speed. None without a measurement.
        seconds: The time left.
    """
    if not bytes_per_second:
        return False
    reach = bytes_per_second * seconds
    return running_bytes + waiting_bytes > reach >= waiting_bytes


def upload_pace(environment: Mapping[str, str] | None = None) -> Pace:
    """Give the pace that SPOTKEEP_UPLOAD_MB_PER_SECOND asks for (megabytes of 1,000,000 bytes).

    Raises:
        UsageError: If it is no number above zero.
    """
    text = (os.environ if environment is None else environment).get(PACE_VARIABLE, "")
    try:
        rate = float(text) if text else None
    except ValueError:
        rate = math.nan
    if rate is not None and not 0 < rate < math.inf:
        raise UsageError(f"{PACE_VARIABLE} is {text!r}; set it to a number above zero")
    return Pace(None if rate is None else rate * 1e6)
