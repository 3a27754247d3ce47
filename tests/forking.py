"""Scripts of the tests, and processes that begin with what such a script has imported: a framework takes seconds."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

_ROOT = Path(__file__).parents[1]
_KIND = "the kind "


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
    port = free_ports()
    # A rank that looks for garbage in what is imported would copy the memory that it shares with the others.
    gc.freeze()
    pids = [fork(partial(_act_as_rank, rank, count, port, act)) for rank in range(count)]
    return [exit_code_of(pid) for pid in pids]


def do_each_kind(act: Callable[[Path, str], object]) -> None:
    """Be a script that does several kinds of a thing in one process, which imports a framework once for all of them.

    Its words are a folder and the kinds. It prints a line with the name of each kind, and then what the kind prints. An
    error ends its kind alone.
    """
    folder, *kinds = sys.argv[1:]
    for kind in kinds:
        say(f"{_KIND}{kind}")
        place = Path(folder, kind)
        place.mkdir()
        try:
            act(place, kind)
        except BaseException:  # noqa: BLE001 - it is printed with the kind, and the next kind comes
            traceback.print_exc(file=sys.stdout)


def said_of_kinds(script: Path, folder: Path, *kinds: str) -> tuple[dict[str, list[str]], str]:
    """Run a script of `do_each_kind`; return the lines that it prints of each kind, and its standard error."""
    done = subprocess.run(
        [sys.executable, str(script), str(folder), *kinds],
        env=environment_of_script(), capture_output=True, text=True, timeout=900, check=True,
    )  # fmt: skip
    parts = [part.splitlines() for part in done.stdout.split(_KIND)[1:]]
    return {kind: lines for kind, *lines in parts}, done.stderr


def end_with_two_ranks(act: Callable[[], object]) -> NoReturn:
    """Do something on two ranks, forked from this process, whose environment is that of torchrun; then end."""
    sys.exit(any(run_on_ranks(2, act)))


def _act_as_rank(rank: int, count: int, port: int, act: Callable[[], object]) -> None:
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), GROUP_RANK="0", WORLD_SIZE=str(count), LOCAL_WORLD_SIZE=str(count),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_RUN_ID="ranks",
    )  # fmt: skip
    act()
