"""The second tier, which brings checkpoints from this machine's disk to S3. The library or the platform uploads them.

Where nothing copies the directory, the user may name a remote place. The library then uploads there and restores from
there. Under SageMaker the platform copies. Then the library only watches the platform's marker files.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import Callable

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.retention import Retention
from spotkeep.disk.storage import LocalStorage
from spotkeep.disk.upload_markers import LateUploadAlarm, UploadWatch
from spotkeep.errors import RemoteError
from spotkeep.events import TrainingEvents
from spotkeep.schedule.interruption_history import HISTORY_NAME, MAX_HISTORY_BYTES

from .background_upload import BackgroundUpload, UploadOutcome, upload_pace
from .remote_checkpoints import RemoteCheckpoints
from .s3_objects import S3Place
from .upload_share import UploadShare

URI_VARIABLE = "SPOTKEEP_CHECKPOINT_URI"
NODES_VARIABLE = "SPOTKEEP_NODES"
"""Set on the nodes of a run. Their agents copy the checkpoints to S3, and the newest one back to each node's disk."""
_CHECK_SECONDS = 30.0

_logger = logging.getLogger("spotkeep")


class SecondTier:
    """Brings checkpoints to a place that outlives this machine, or watches how the platform does.

    Args:
        directory: The checkpoints on this machine.
        remote: The checkpoints in S3, or None where the library uploads nothing.
        retention: The rule for old checkpoints there.
        events: Reports of the training.
        share: The part of this process in the uploads.
    """

    def __init__(
        self,
        directory: CheckpointDirectory,
        *,
        remote: RemoteCheckpoints | None,
        retention: Retention,
        events: TrainingEvents,
        share: UploadShare | None = None,
    ) -> None:
        self.remote = remote
        self._share = share or UploadShare()
        self._events = events
        self._directory = directory
        self._storage = LocalStorage()
        self._markers = UploadWatch.for_this_job() if self._share.is_first else UploadWatch(platform_copies=False)
        self._alarm = LateUploadAlarm()
        self._alarm_lock = threading.Lock()
        self._checked_at = float("-inf")
        self._taken: int | None = None
        self._upload = (
            None
            if remote is None
            else BackgroundUpload(remote, retention=retention, pace=upload_pace(), on_outcome=self._on_outcome)
        )
        if remote is not None:
            remote.share = self._share

    @property
    def gathers_hosts(self) -> bool:
        """True where S3 alone has the files of all ranks, because the hosts have folders of their own."""
        return self.remote is not None and not self._share.disk_has_all

    def note(self) -> object:
        """Give the news of this rank's uploads as JSON, for the round of a save."""
        return None if self._upload is None else self._upload.note().as_message()

    def give_up_other_ranks(self) -> None:
        """Wait for no file of another rank any more, because a rank is gone."""
        self._share.rank_lost.set()

    def saved(self, step: int) -> None:
        """Take a checkpoint that has become durable on this machine. Taking it twice does nothing."""
        with self._alarm_lock:
            if step == self._taken:
                return
            self._taken = step
        if self._upload is not None:
            self._upload.offer(step)
        if self._upload is not None or self._markers.platform_copies:
            with self._alarm_lock:
                self._alarm.saved(step, time.monotonic())

    def forget(self, step: int) -> None:
        """Note that a checkpoint was removed. It is taken again once it is saved again."""
        with self._alarm_lock:
            if step == self._taken:
                self._taken = None

    def warn_when_late(self) -> None:
        """Warn when a checkpoint is late. Cheap, since it checks twice a minute."""
        now = time.monotonic()
        if now - self._checked_at < _CHECK_SECONDS:
            return
        self._checked_at = now
        with self._alarm_lock:
            if self._upload is None and self._markers.platform_copies:
                for step in self._alarm.waiting:
                    if self._markers.has_arrived(self._directory.path / self._directory.name(step), self._storage):
                        self._alarm.uploaded(step, now)
                        break
            late = self._alarm.late(now)
        if late is not None:
            newest = "none" if late.uploaded_step is None else f"that of step {late.uploaded_step}"
            _logger.warning(
                "checkpoints have been waiting for %.0f s to reach S3, where %.0f s are usual at most; the newest one "
                "there is %s, the newest one on this machine that of step %d",
                late.seconds,
                late.expected_seconds,
                newest,
                late.step,
            )
            self._events.emit(
                "upload-late",
                step=late.step,
                uploaded_step=late.uploaded_step,
                seconds=round(late.seconds),
                expected_seconds=round(late.expected_seconds),
            )

    def finish(self, seconds_left: Callable[[], float]) -> bool:
        """Wait for everything that can arrive in the time that is left, and warn if something has not arrived.

        Gives True if all of this rank's own uploads have arrived.

        Args:
            seconds_left: Gives the longest wait in seconds. Asked again and again.
        """
        if self._upload is None:
            return True
        with self._alarm_lock:
            if self._alarm.waiting:
                _logger.info("waiting until the checkpoint of step %d has reached S3", self._alarm.waiting[0])
        if self._upload.finish(seconds_left):
            return True
        with self._alarm_lock:
            waiting, uploaded = self._alarm.waiting, self._alarm.uploaded_step
        step = waiting[0] if waiting else None
        newest = "none" if uploaded is None else f"that of step {uploaded}"
        problem = f"it has not arrived in time; the newest checkpoint in S3 is {newest}"
        _logger.error("the checkpoint of step %s is not in S3: %s", step, problem)
        self._events.emit("upload-failed", step=step, problem=problem)
        return False

    def go_on(self) -> None:
        """Upload again after a `stop`."""
        if self._upload is not None:
            self._upload.go_on()

    def stop(self) -> None:
        """Upload nothing more."""
        if self._upload is not None:
            self._upload.stop()

    def fetch_history(self) -> None:
        """Get the history of interruptions where this machine has none.

        Raises:
            RemoteError: If S3 cannot be read.
        """
        if self.remote is not None and HISTORY_NAME not in self._storage.names(self._directory.path):
            raw = self.remote.fetch_note(HISTORY_NAME, max_bytes=MAX_HISTORY_BYTES)
            if raw is not None:
                self._storage.make_directory(self._directory.path)
                self._storage.write(self._directory.path / HISTORY_NAME, raw)

    def send_history(self) -> None:
        """Bring the history of interruptions to S3, if there is one."""
        if (
            self.remote is None
            or not self._share.is_first
            or HISTORY_NAME not in self._storage.names(self._directory.path)
        ):
            return
        try:
            path = self._directory.path / HISTORY_NAME
            self.remote.send_note(HISTORY_NAME, bytes(self._storage.read(path, max_bytes=MAX_HISTORY_BYTES)))
        except (OSError, ValueError, RemoteError) as error:
            _logger.debug("the history of interruptions was not sent: %s", error)

    def _on_outcome(self, outcome: UploadOutcome) -> None:
        if outcome.problem is not None:
            _logger.error("the checkpoint of step %d was not uploaded: %s", outcome.step, outcome.problem)
            self._events.emit("upload-failed", step=outcome.step, problem=str(outcome.problem))
            return
        with self._alarm_lock:
            self._alarm.uploaded(outcome.step, time.monotonic())
        self.send_history()
        self._events.emit("uploaded", step=outcome.step, seconds=round(outcome.seconds, 4), bytes=outcome.size_bytes)


def agents_copy() -> bool:
    """Say whether this is a run on several instances, whose agents copy the checkpoints."""
    return bool(os.environ.get(NODES_VARIABLE))


def find_remote(uri: str | None, *, directory: CheckpointDirectory, name: str | None) -> RemoteCheckpoints | None:
    """Find the checkpoints of a training in S3. None where the training has no place there.

    Args:
        uri: The place as `s3://bucket/prefix`, or None for the one of SPOTKEEP_CHECKPOINT_URI, if it is set.
        directory: The checkpoints on this machine.
        name: Name of the training, which names its folder below that place. None for the place itself.

    Raises:
        UsageError: If the address or the pace of uploads makes no sense.
        MissingLibraryError: If boto3 is needed and not installed.
    """
    uri = uri or os.environ.get(URI_VARIABLE) or None
    if uri is None:
        return None
    upload_pace()  # a wrong one is refused before the training begins
    place = S3Place.parse(uri)
    return RemoteCheckpoints(place if name is None else place.folder(name), directory)
