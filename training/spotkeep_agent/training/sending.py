"""Sends the model and other output of a training to S3, for as long as S3 may take to be well again."""

from __future__ import annotations

import logging
import time
from typing import Callable

from spotkeep.errors import CheckpointError
from spotkeep_agent.errors import OutputNotSentError

from .supplies import is_for_good, with_hint

_SEND_SECONDS = 3600.0
"""Seconds for which the agent retries, as S3 may be out of reach or throttle at a run's end."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 5.0, 60.0

_logger = logging.getLogger("spotkeep.agent")


def send_output(
    send: Callable[[], str | None],
    *,
    what: str,
    uri: str,
    remains: str,
    may_go_on: Callable[[], bool],
    pause: Callable[[float], None],
    time_scale: float,
) -> str | None:
    """Send files again and again until they are in S3. Return their address, or None with nothing to send.

    Args:
        send: Sends them once. Raises CheckpointError or OSError.
        what: The files, for people.
        uri: The place in S3, for people.
        remains: What becomes of them otherwise, for people.
        may_go_on: Asked after a failure. True when this instance stays, and the run is still its own.
        pause: Waits so many seconds, or less when a notice comes.
        time_scale: The factor by which time passes faster than on AWS.

    Raises:
        OutputNotSentError: If S3 refuses, the time is over, or EC2 takes this instance.
    """
    ends = time.monotonic() + _SEND_SECONDS / time_scale
    seconds = _FIRST_PAUSE_SECONDS
    while True:
        sent, problem = _tried(send)
        if problem is None:
            return sent
        _logger.warning("%s could not be sent: %s", what, problem)
        if is_for_good(problem) or time.monotonic() >= ends or not may_go_on():
            raise OutputNotSentError(
                f"{what} could not be sent to {uri}: {with_hint(problem).rstrip('.')}. {remains}, and the run "
                "has not finished without it: put that right, then `spotkeep resume`"
            ) from problem
        pause(seconds / time_scale)
        seconds = min(2 * seconds, _LONGEST_PAUSE_SECONDS)


def _tried(send: Callable[[], str | None]) -> tuple[str | None, CheckpointError | OSError | None]:
    try:
        return send(), None
    except (CheckpointError, OSError) as error:
        return None, error
