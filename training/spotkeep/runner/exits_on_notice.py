"""The meaning of a command's exit code 0 after a notice, which is either done or interrupted.

Some libraries exit with 0 when they are interrupted. Lightning's Trainer ends with 0 on SIGTERM and saves nothing.
Hugging Face's (`enable_jit_checkpoint`) saves and ends with 0. A script with a handler that calls `sys.exit(0)` does
the same. None of them is done. The command is done when a training says so (`notices.notice`), and when a start of
it ends with 0 without a notice.

A command that is done each time a notice comes must come to an end, too. So the third exit of this kind in a row counts
as the end. The runner keeps their number in a file beside the checkpoints, which go wherever the run goes. The file is
there only between two starts, so a script that lists its checkpoints does not meet it. Any other end of a start removes
it.
"""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from spotkeep.notices.notice import EXIT_INTERRUPTED

EXITS_NAME = "exits-on-notice.json"
MOST_IN_A_ROW = 3
_MAX_BYTES = 4096
_MOST_COUNTED = 1000


@dataclass(frozen=True)
class CommandEnding:
    """The meaning of a command's end.

    Attributes:
        exit_code: The job's exit code.
        exits_in_a_row: Number of exits in a row with code 0 on a notice, without a message that the training is done. 0
            where the command ended in another way.
    """

    exit_code: int
    exits_in_a_row: int = 0


def ending_of_exit_0(*, noticed: bool, left: bool, done: bool, exits_before: int) -> CommandEnding:
    """Decide the meaning of exit code 0. Pure.

    Args:
        noticed: True if a notice had come when the command ended.
        left: True if the library has left because of the notice, and something between turned its exit code 75 into 0.
        done: True if all trainings have said that they are done.
        exits_before: Number of such exits in a row before this one.
    """
    if not noticed or (done and not left):
        return CommandEnding(0)
    if left:
        return CommandEnding(EXIT_INTERRUPTED)
    in_a_row = exits_before + 1
    return CommandEnding(0 if in_a_row >= MOST_IN_A_ROW else EXIT_INTERRUPTED, in_a_row)


def take_count(checkpoints: Path, name: str, *, launch: str | None) -> int:
    """Read a count of this job before this start, and remove its file.

    Args:
        checkpoints: The directory that the platform keeps.
        name: The name of the file, `EXITS_NAME` for the exits in a row.
        launch: The id of this job's launch. A count of another launch is 0. That launch was stopped or reached its
            limits, and a stop is a notice, too.
    """
    path = checkpoints / name
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(_MAX_BYTES))
        count = document["count"] if document["launch"] == launch else 0
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        count = 0
    with contextlib.suppress(OSError):
        path.unlink()
    return count if isinstance(count, int) and 0 < count <= _MOST_COUNTED else 0


def keep_count(checkpoints: Path, name: str, count: int, *, launch: str | None) -> None:
    """Keep a count of this job for its next start. Where that cannot be, it is said, and the next start counts anew."""
    path = checkpoints / name
    draft = path.with_name(path.name + ".draft")
    try:
        draft.write_text(json.dumps({"count": count, "launch": launch}) + "\n", encoding="ascii")
        draft.replace(path)
    except OSError as error:
        sys.stderr.write(f"spotkeep: {name} cannot be kept, so the next start counts anew: {error}\n")
