"""Reports of a job's trainings, beside the notice file. They name the trainings under way and the finished ones.

A script that ends with code 0 on a notice may be done, or a library may have ended it early. Only the training knows.
Each process adds a line at the beginning of a training and after its last step. The last line counts. The runner reads
the lines when the script has ended.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_BEGUN, _DONE = "begun", "done"
_MAX_BYTES = 2**20


def trainings_file(notice_file: Path) -> Path:
    """Name the file that says which trainings of the job are under way, and which are done."""
    return notice_file.with_name(notice_file.name + ".trainings")


def note_training(notice_file: Path, *, done: bool) -> None:
    """Say that a training of this process is done, or that one has begun, or goes on.

    Raises:
        OSError: If the file cannot be written.
    """
    line = f"{os.getpid()} {_DONE if done else _BEGUN}\n".encode("ascii")
    # Many processes write: a short line that is appended stays whole.
    descriptor = os.open(trainings_file(notice_file), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def forget_trainings(notice_file: Path) -> None:
    """Remove the reports of an earlier job that had the same notice file."""
    with contextlib.suppress(OSError):
        trainings_file(notice_file).unlink()


def all_are_done(notice_file: Path) -> bool:
    """Say whether trainings have said that they are done, and none is under way. False where nothing can be read."""
    try:
        with trainings_file(notice_file).open("rb") as file:
            lines = file.read(_MAX_BYTES).splitlines()
    except OSError:
        return False
    last = dict(line.partition(b" ")[::2] for line in lines)
    return bool(last) and set(last.values()) == {_DONE.encode("ascii")}
