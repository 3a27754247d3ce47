"""Two ranks of one training, forked from a process that has imported what takes seconds."""

from __future__ import annotations

import os
import socket
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn


def run_forked_ranks(rank: Callable[[], None]) -> NoReturn:
    """Run both ranks and exit: 0 where both end well. They find in their environment what torchrun would put there.

    Args:
        rank: What each of them runs.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pids = [_fork(rank, number, port) for number in (0, 1)]
    statuses = [os.waitpid(pid, 0)[1] for pid in pids]
    sys.exit(1 if any(statuses) else 0)


def _fork(rank: Callable[[], None], number: int, port: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.environ.update(
        RANK=str(number), LOCAL_RANK=str(number), GROUP_RANK="0", WORLD_SIZE="2", LOCAL_WORLD_SIZE="2",
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_RUN_ID="none",
    )  # fmt: skip
    code = 1
    try:
        rank()
        code = 0
    except BaseException:  # noqa: BLE001 - a process ends here
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
