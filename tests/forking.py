"""Scripts of the tests, and processes that begin with what such a script has imported: a framework takes seconds."""

from __future__ import annotations

import gc
import os
import socket
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

_ROOT = Path(__file__).parents[1]


def environment_of_script(**variables: str) -> dict[str, str]:
    """Return the environment of a script that finds the library and these tests.

    Before what is installed: what the SageMaker SDK needs brings a package named `tests`.
    """
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(_ROOT), str(_ROOT / "training"))), **variables}


def say(line: str) -> None:
    """Print a line in one piece, and now: ranks share an output, and `print` may write the line's end by itself."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def fork(act: Callable[[], object]) -> int:
    """Do something in a process of its own, and return its number.

    It ends with 0, with what a SystemExit asks for, or with 1 after any other error, which it prints.
    """
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        act()
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:  # noqa: BLE001 - a process ends here
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def exit_code_of(pid: int) -> int:
    """Wait for a process to end; return its exit code, or the negative number of the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run_on_ranks(count: int, act: Callable[[], object]) -> list[int]:
    """Do something on ranks that are forked from this process, in the environment of torchrun; return their codes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # A rank that looks for garbage in what is imported would copy the memory that it shares with the others.
    gc.freeze()
    pids = [fork(partial(_act_as_rank, rank, count, port, act)) for rank in range(count)]
    return [exit_code_of(pid) for pid in pids]


def end_with_two_ranks(act: Callable[[], object]) -> NoReturn:
    """Do something on two ranks, forked from this process, whose environment is that of torchrun; then end."""
    sys.exit(any(run_on_ranks(2, act)))


def _act_as_rank(rank: int, count: int, port: int, act: Callable[[], object]) -> None:
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), GROUP_RANK="0", WORLD_SIZE=str(count), LOCAL_WORLD_SIZE=str(count),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_RUN_ID="ranks",
    )  # fmt: skip
    act()
