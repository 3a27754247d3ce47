"""Listens for what ends this instance's work: EC2's notices, SIGTERM, a rebalance recommendation."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType

from spotkeep.notices.instance_metadata import InstanceMetadata, SpotAction, poll_metadata
from spotkeep.notices.notice import Notice, notice_seconds


class NoticeBoard:
    """The first notice that came. Poll the metadata in a thread; signals are taken in the main thread.

    Args:
        metadata: Of this instance.
    """

    def __init__(self, metadata: InstanceMetadata) -> None:
        self._metadata = metadata
        self._stopping = threading.Event()
        self._rebalance: str | None = None
        self._rebalanced = False
        self.seen = threading.Event()
        self.notice: Notice | None = None

    def start(self) -> None:
        """Begin to listen."""
        signal.signal(signal.SIGTERM, self._on_signal)
        threading.Thread(target=self._poll, name="notices", daemon=True).start()

    def follow_rebalance(self, mode: str) -> None:
        """Say what a rebalance recommendation means: `leave`, or anything else to leave it to others."""
        self._rebalance = mode
        if self._rebalanced:
            self._on_rebalance()

    def stop(self) -> None:
        """Listen no more."""
        self._stopping.set()

    def post(self, notice: Notice) -> None:
        """Take a notice."""
        if self.notice is None:
            self.notice = notice
            self.seen.set()

    def why(self) -> str | None:
        """Say why to leave, None to stay."""
        return None if self.notice is None else f"notice: {self.notice.source}"

    def _poll(self) -> None:
        poll_metadata(
            self._metadata, stopping=self._stopping, on_action=self._on_action, on_rebalance=self._on_rebalance
        )

    def _on_action(self, action: SpotAction) -> None:
        seconds = notice_seconds() if action.seconds_left is None else action.seconds_left
        self.post(Notice(source=f"EC2 {action.action}", deadline=time.time() + seconds))

    def _on_rebalance(self) -> None:
        self._rebalanced = True
        if self._rebalance == "leave":
            self.post(Notice(source="EC2 rebalance", deadline=time.time() + notice_seconds()))

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        del signum, frame
        self.post(Notice(source="SIGTERM", deadline=time.time() + notice_seconds()))
