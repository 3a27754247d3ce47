"""Notices that end this instance's work, such as EC2's, SIGTERM and a rebalance recommendation, and their time.

Only the metadata service says that EC2 takes the capacity. SIGTERM says that systemd stops the agent, for a person or
because the machine shuts down.

Saving has the first part of the time, S3 the next. The release of the volume has its time in any case. The volume
survives the instance, so a checkpoint on it is safe once it is unmounted. An unmount that comes too late is a crash of
the file system, which costs the next instance a check, and no data.
"""

from __future__ import annotations

import queue
import signal
import threading
import time
from dataclasses import dataclass
from types import FrameType
from typing import Callable

from spotkeep.notices.instance_metadata import (
    InstanceMetadataService,
    MetadataUnavailableError,
    SpotAction,
    poll_metadata,
)
from spotkeep.notices.notice import Notice, notice_seconds

_SPARE_SECONDS = 3.0
_LET_GO_SECONDS = 12.0
_SAVE_SHARE = 0.7


@dataclass(frozen=True)
class NoticeBox:
    """The end of each part, in seconds from the moment the agent saw the notice.

    Attributes:
        save: End of the training's save and exit, after which it is killed.
        copy: End of the copy of the newest checkpoint to S3.
        let_go: End of unmounting, detaching and giving the lease back.
    """

    save: float
    copy: float
    let_go: float


def divide(seconds: float) -> NoticeBox:
    """Divide the time that a notice leaves.

    Args:
        seconds: Seconds until the machine is gone.
    """
    let_go = max(seconds - min(_SPARE_SECONDS, seconds * 0.05), 0.0)
    copy = max(let_go - min(_LET_GO_SECONDS, let_go * 0.2), 0.0)
    return NoticeBox(save=copy * _SAVE_SHARE, copy=copy, let_go=let_go)


_POLL_SECONDS = (
    5.0  # as AWS advises; also while the metadata are silent, for a notice may be in them when they are back
)


class NoticeBoard:
    """The notice that ends first. One thread asks the metadata service, and another waits for SIGTERM.

    Args:
        metadata: The metadata of this instance.
        time_scale: The factor by which it asks more often than AWS advises.

    Attributes:
        notice: The reason to leave that ends first, or None to stay.
        from_ec2: True when the metadata service has given a notice.
        taken_at: The time at which EC2 takes this instance, in seconds since the epoch, or None before it announces
            one.
        signalled: Set with the first SIGTERM.
        rebalance_recommended: True when EC2 has recommended a rebalance.
    """

    def __init__(self, metadata: InstanceMetadataService, *, time_scale: float = 1.0) -> None:
        self._metadata = metadata
        self._pause_seconds = _POLL_SECONDS / time_scale
        self._rebalance: str | None = None
        self.rebalance_recommended = False
        self._on_first: list[Callable[[], None]] = []
        self._lock = threading.RLock()
        self._signals: queue.SimpleQueue[float] = queue.SimpleQueue()
        self.seen = threading.Event()
        self.notice: Notice | None = None
        self.from_ec2 = False
        self.taken_at: float | None = None
        self.signalled = threading.Event()

    def start(self) -> None:
        """Begin to listen."""
        signal.signal(signal.SIGTERM, self._on_signal)
        for target in (self._poll, self._take_signal):
            threading.Thread(target=target, name="notices", daemon=True).start()

    def follow_rebalance(self, mode: str) -> None:
        """Set the reaction to a rebalance recommendation, `leave` or a value with which this board ignores it."""
        self._rebalance = mode
        if self.rebalance_recommended:
            self._on_rebalance()

    def post(self, notice: Notice) -> None:
        """Take a notice. Of several, the one that ends first counts."""
        with self._lock:
            if self.notice is None or notice.deadline < self.notice.deadline:
                self.notice = notice
                if not self.seen.is_set():
                    self.seen.set()
                    for tell in self._on_first:
                        tell()

    def when_seen(self, tell: Callable[[], None]) -> None:
        """Have something done when the first notice comes, in the thread that brings it. Now, if it is there."""
        with self._lock:
            self._on_first.append(tell)
            if self.seen.is_set():
                tell()

    def why(self) -> str | None:
        """Say why to leave, None to stay."""
        if self.notice is None:
            return None
        return f"notice: {self.notice.source}" if self.from_ec2 else f"{self.notice.source}, and no notice of EC2's"

    def confirm(self) -> bool:
        """Ask the metadata service now. Return True when EC2 takes this instance, or the service cannot be asked."""
        try:
            action = self._metadata.spot_action()
        except MetadataUnavailableError:
            return True
        if action is not None:
            self._on_action(action)
        return self.from_ec2

    def _poll(self) -> None:
        poll_metadata(
            self._metadata,
            stopping=threading.Event(),
            on_action=self._on_action,
            on_rebalance=self._on_rebalance,
            pause_seconds=self._pause_seconds,
            longest_pause_seconds=self._pause_seconds,
        )

    def _on_action(self, action: SpotAction) -> None:
        seconds = notice_seconds() if action.seconds_left is None else action.seconds_left
        self.from_ec2, self.taken_at = True, time.time() + seconds
        self.post(Notice(source=f"EC2 {action.action}", deadline=self.taken_at))

    def _on_rebalance(self) -> None:
        self.rebalance_recommended = True
        if self._rebalance == "leave":
            self.from_ec2 = True
            self.post(Notice(source="EC2 rebalance", deadline=time.time() + notice_seconds()))

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        # It may interrupt the holder of any lock, an Event's too; SimpleQueue.put needs none that Python holds.
        del signum, frame
        self._signals.put(time.time() + notice_seconds())

    def _take_signal(self) -> None:
        deadline = self._signals.get()
        self.signalled.set()
        self.post(Notice(source="SIGTERM", deadline=deadline))
