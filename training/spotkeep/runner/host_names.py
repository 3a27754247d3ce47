"""Waits until the names of all hosts of a job resolve: the platform starts hosts at different times.

Source of the bound: `_dns_lookup` in `sagemaker_pytorch_container/training.py`, of AWS's own images
(aws/sagemaker-pytorch-training-toolkit on GitHub), which waits for each name for 15 minutes.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Sequence
from typing import Callable

from spotkeep.errors import HostNameError

MAX_SECONDS = 900.0
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0


def await_host_names(
    hosts: Sequence[str],
    *,
    is_over: Callable[[], bool],
    look_up: Callable[[str], object] = socket.gethostbyname,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until every name resolves, for 15 minutes at most. Asks nothing of a job with one host.

    Args:
        hosts: The names of all hosts.
        is_over: Says whether there is no need to wait any more: a notice has come.
        look_up: Resolves a name; raises OSError where it does not resolve.
        clock: Seconds.
        sleep: Waits so many seconds.

    Raises:
        HostNameError: If a name does not resolve in time; names every such host.
    """
    missing = list(hosts) if len(hosts) > 1 else []
    deadline = clock() + MAX_SECONDS
    pause = 0.0
    while missing := [host for host in missing if not _resolves(host, look_up)]:
        if is_over():
            return
        if clock() >= deadline:
            raise HostNameError(missing, hosts=len(hosts), seconds=MAX_SECONDS)
        if not pause:
            pause = _FIRST_PAUSE_SECONDS
            sys.stderr.write(f"spotkeep: waiting until the names of all hosts resolve: {', '.join(missing)}\n")
            sys.stderr.flush()
        sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _resolves(host: str, look_up: Callable[[str], object]) -> bool:
    try:
        look_up(host)
    except (OSError, UnicodeError):  # UnicodeError: no name at all
        return False
    return True
