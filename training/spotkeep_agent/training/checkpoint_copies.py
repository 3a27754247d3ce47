"""The second tier on an instance, copies of checkpoints in S3 that come back when the volume lacks them.

So do files of the script's own among them (`script_files`).

The agent copies, not the script. So it works without boto3, and on a notice the script does not wait for the network.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Callable

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.retention import read_retention
from spotkeep.errors import CheckpointError
from spotkeep.notices.notice import EXIT_INTERRUPTED
from spotkeep.remote.background_upload import BackgroundUpload, UploadOutcome, upload_pace
from spotkeep.remote.remote_checkpoints import RemoteCheckpoints
from spotkeep.remote.s3_objects import S3Place
from spotkeep.remote.transfer import TransferCancelledError
from spotkeep_agent.as_user.files import UserFiles, UserStorage
from spotkeep_agent.aws.calls import AwsCalls
from spotkeep_agent.aws.object_store import objects_of
from spotkeep_agent.errors import InputError

from .script_files import CHECKPOINTS, SCAN_SECONDS, ScriptFiles

_logger = logging.getLogger("spotkeep.agent")


def unusable_checkpoints(steps: Sequence[int], *, why: str) -> InputError:
    """Return the error of a run that has checkpoints in S3 and can go on from none of them.

    Args:
        steps: Their steps, the newest first.
        why: The reason against the oldest of them.
    """
    some = ", ".join(map(str, steps[:5])) + (", ..." if len(steps) > 5 else "")
    return InputError(
        f"S3 has checkpoints of the steps {some}, and none of them can be used: {why.rstrip('.')}. The run does not "
        "begin anew beside them. Look with `spotkeep checkpoints verify`, put them right or remove them, then "
        "`spotkeep resume`"
    )


class CheckpointCopies:
    """Copies of a run's checkpoints in S3.

    Args:
        uri: `s3://bucket/prefix`.
        files: The checkpoints on the volume, with the rights of the user that trains.
        kept: A folder on the volume that is the agent's own.
        calls: The calls to S3.
        fetching: The calls to S3 for files that are fetched before the training starts.
        cancelled: Set it to cancel that fetching.
        break_off: The function that makes all calls to S3 fail, those under way and later ones.
        on_uploaded: Called with the step of each checkpoint that has arrived.
        scan_seconds: Seconds between two scans for files of the script's own.
    """

    def __init__(
        self,
        uri: str,
        files: UserFiles,
        *,
        kept: Path,
        calls: AwsCalls,
        fetching: AwsCalls,
        cancelled: threading.Event,
        break_off: Callable[[], None],
        on_uploaded: Callable[[int], None],
        scan_seconds: float = SCAN_SECONDS,
    ) -> None:
        self._place = place = S3Place.parse(uri)
        self._objects, self._fetching = objects_of(calls, place.bucket), objects_of(fetching, place.bucket)
        self._user_files, self._storage = files, UserStorage(files)
        self._kept, self._scan_seconds = kept, scan_seconds
        self._directory = CheckpointDirectory(files.base / CHECKPOINTS, storage=self._storage)
        self._fetched = RemoteCheckpoints(place, self._directory, objects=self._fetching, storage=self._storage)
        self._on_uploaded = on_uploaded
        self._cancelled = cancelled
        self._break_off = break_off
        self._begin(RemoteCheckpoints(place, self._directory, objects=self._objects, storage=self._storage))

    def _begin(self, remote: RemoteCheckpoints) -> None:
        """Make the uploads of one training. They share a pace, which the end of the training lifts."""
        self._remote, self._pace = remote, upload_pace()
        self._upload = BackgroundUpload(
            remote, retention=None, pace=self._pace, on_outcome=partial(self._on_outcome, remote)
        )
        self._files = ScriptFiles(
            self._place,
            self._user_files,
            kept=self._kept,
            objects=self._objects,
            fetching=self._fetching,
            pace=self._pace,
            is_replaced=self._is_replaced,
            scan_seconds=self._scan_seconds,
        )

    def newest_here(self) -> int | None:
        """Return the step of the newest whole checkpoint on the volume."""
        return next(iter(self._directory.steps()), None)

    def restore_newer(self, *, known_uploaded: int | None) -> int | None:
        """Bring a checkpoint from S3 that is newer than those on the volume. Return its step, or None without one.

        A volume that is new gets the files of the script's own, too.

        Args:
            known_uploaded: The newest step known to be in S3. When the volume has it, S3 is not asked.

        Raises:
            CheckpointError: If S3 cannot be read. Going on would lose the checkpoints there.
            InputError: If S3 has checkpoints, and neither of them nor of those on the volume one can be used.
            OSError: If the volume cannot be read or written.
        """
        try:
            self._files.restore(cancelled=self._cancelled)
        except TransferCancelledError:
            return None
        here = self.newest_here()
        if here is not None and known_uploaded is not None and here >= known_uploaded:
            return None
        # S3 may know that a checkpoint on the volume is of a writer that was replaced.
        in_s3 = self._fetched.learn_writers()
        here, why = self.newest_here(), ""
        for step in in_s3:
            if here is not None and step <= here:
                return None
            try:
                self._fetched.fetch(step, cancelled=self._cancelled)
            except TransferCancelledError:
                return None
            except CheckpointError as error:
                if getattr(error, "missing", None) is False:
                    raise
                # Damaged there: the next older one may be whole.
                _logger.warning("the checkpoint of step %d in S3 cannot be used: %s", step, error)
                why = str(error)
                continue
            return step
        if in_s3 and here is None:
            raise unusable_checkpoints(in_s3, why=why)
        return None

    def has_any(self) -> bool:
        """Return True when S3 holds a whole checkpoint, or a file of the script's own.

        Raises:
            CheckpointError: If S3 cannot be read.
        """
        return bool(self._remote.steps()) or any(True for _ in self._files.in_s3())

    def start(self) -> None:
        """Begin to copy the files that the script writes beside the checkpoints."""
        self._files.start()

    def keep(self, document: object) -> None:
        """Keep the same checkpoints in S3 as the script keeps on the volume.

        Args:
            document: The fields of its `resume` event. Before the first such event all checkpoints stay.
        """
        retention = read_retention(document)
        if retention is not None:
            self._upload.keep(retention)

    def offer(self, step: int) -> None:
        """Copy a checkpoint next that is durable on the volume."""
        self._upload.offer(step)

    def finish(self, seconds_left: Callable[[], float], *, exit_code: int | None, goes_on: bool) -> bool:
        """Wait for all copies up to a limit, the newest checkpoint first. Return True when all have arrived.

        Args:
            seconds_left: The function that gives the seconds left, called again and again.
            exit_code: The script's exit code, or None when it was killed.
            goes_on: True when the run goes on with this volume, which leaves older missing copies to the next instance.
        """
        newest = self.newest_here()
        if newest is not None:
            self._upload.offer(newest)
        done = self._upload.finish(seconds_left, newest_only=goes_on)
        done &= self._files.finish(seconds_left, left_whole=exit_code in (0, EXIT_INTERRUPTED))
        self._upload.stop()
        return done

    def stop(self) -> None:
        """Copy nothing more, and close all files of the volume, since an open file prevents unmounting."""
        self._upload.stop()
        self._break_off()
        self._files.finish(lambda: 0.0, left_whole=False)

    def _is_replaced(self) -> bool:
        """Return True when another instance writes to S3 by now. With a volume no other one can."""
        return False

    def _on_outcome(self, _: RemoteCheckpoints, outcome: UploadOutcome) -> None:
        if outcome.problem is not None:
            _logger.warning("the checkpoint of step %d has not reached S3: %s", outcome.step, outcome.problem)
            return
        self._on_uploaded(outcome.step)
