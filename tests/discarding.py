"""Ends a local AWS whose state is not read again: to write it down takes longer than many a test."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from spotkeep_local import lifecycle

if TYPE_CHECKING:
    from spotkeep_local.lifecycle import LocalAws


def discard(local: LocalAws) -> None:
    """Kill a local AWS; what runs in it ends with it."""
    os.kill(local.pid, signal.SIGKILL)
    lifecycle.stop(local.state_dir)
