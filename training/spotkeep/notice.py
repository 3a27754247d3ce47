"""The interruption notice: how a script learns that its machine will soon be gone.

It arrives in two ways, and either is enough. SIGTERM sets a flag (in the main thread, where Python delivers signals).
`spotkeep run` also writes a notice file, which every process of the job sees, whatever lies between it and the signal:
a shell that does not pass it on, a launcher with many workers, a thread.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Callable, Optional, Union

NOTICE_FILE_VARIABLE = "SPOTKEEP_NOTICE_FILE"
NOTICE_SECONDS_VARIABLE = "SPOTKEEP_NOTICE_SECONDS"
_DEFAULT_NOTICE_SECONDS = 120.0

_Handler = Union[Callable[[int, Optional[FrameType]], Any], int, None]


@dataclass(frozen=True)
class Notice:
    """A warning that this machine will be taken away.

    Attributes:
        source: Who said so, for example `SIGTERM`.
        deadline: When it ends, seconds since the epoch.
    """

    source: str
    deadline: float

    @property
    def seconds_left(self) -> float:
        """Seconds until the machine is gone; never negative."""
        return max(0.0, self.deadline - time.time())


class NoticeWatch:
    """Watches for a notice while it is started. Safe to start in any thread; signals reach only the main one."""

    def __init__(self) -> None:
        self._notice: Notice | None = None
        self._previous: _Handler = None
        self._installed: _Handler = None
        path = os.environ.get(NOTICE_FILE_VARIABLE)
        self._file = Path(path) if path else None

    def start(self) -> None:
        """Take over SIGTERM. A handler that was there before is still called."""
        if threading.current_thread() is threading.main_thread() and self._installed is None:
            self._installed = self._on_signal
            self._previous = signal.signal(signal.SIGTERM, self._on_signal)

    def stop(self) -> None:
        """Give SIGTERM back, unless somebody else has taken it meanwhile."""
        if self._installed is not None and threading.current_thread() is threading.main_thread():
            if signal.getsignal(signal.SIGTERM) == self._installed:
                signal.signal(signal.SIGTERM, self._previous if self._previous is not None else signal.SIG_DFL)
            self._installed = None

    def notice(self) -> Notice | None:
        """Give the notice, once there is one."""
        if self._notice is None and self._file is not None and self._file.exists():
            self._notice = read_notice(self._file)
        return self._notice

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        # Nothing but a flag: the handler may interrupt anything, a print in the middle included.
        if self._notice is None:
            self._notice = Notice(source="SIGTERM", deadline=time.time() + notice_seconds())
        if callable(self._previous):
            self._previous(signum, frame)


def notice_seconds() -> float:
    """Give how long a notice lasts, in seconds: SPOTKEEP_NOTICE_SECONDS, or SageMaker's 120."""
    try:
        return max(0.0, float(os.environ.get(NOTICE_SECONDS_VARIABLE, _DEFAULT_NOTICE_SECONDS)))
    except ValueError:
        return _DEFAULT_NOTICE_SECONDS


def write_notice(path: Path, notice: Notice) -> None:
    """Leave a notice for every process of the job, at once and whole."""
    draft = path.with_name(path.name + ".draft")
    draft.write_text(json.dumps({"source": notice.source, "deadline": notice.deadline}), encoding="utf-8")
    draft.replace(path)


def read_notice(path: Path) -> Notice:
    """Read what `write_notice` left; a file that cannot be read is still a notice."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return Notice(source=str(document["source"]), deadline=float(document["deadline"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Notice(source=path.name, deadline=time.time() + notice_seconds())
