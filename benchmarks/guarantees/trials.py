"""The trials of one library. It is killed, its files are damaged and replaced, and its ranks change."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.guarantees.host import Attempt, Host

_WAIT_SECONDS = 60.0
_ADDED = 2.0**19


def kill(host: Host, folder: Path, *, kills: int, chance: random.Random) -> dict[str, int]:
    """Kill a training that saves each step, and restore, again and again in one folder.

    Returns:
        How often which of these came. `newest`: at least the last step that was called saved came back. `lost`: an
        older one came. `mixed`: values of two steps. `error`: none came, and the newest is removed by hand to go on.
    """
    found: Counter[str] = Counter()
    for _ in range(kills):
        attempt = host.start(folder, "train", steps=10**6)
        _wait_until(partial(_has_saved, attempt, 1))
        time.sleep(chance.random() * 0.15)
        with suppress(ProcessLookupError):
            os.kill(attempt.pids[0], signal.SIGKILL)
        saved = max(attempt.saved(), default=0)
        attempt.answers()
        [answer] = host.run(folder, "restore")
        kind = "error" if "error" in answer else _kind(answer, saved)
        found[kind] += 1
        if kind == "error":
            _remove_newest(folder)
    return dict(found)


def flip(host: Host, folder: Path, *, flips: int, chance: random.Random) -> dict[str, int]:
    """Flip one bit of a checkpoint's files, and restore.

    Returns:
        How often which of these came. `error`: the restore ends with an error. `older`: an older checkpoint came.
        `taken`: wrong values came without a word. `no effect`: the bit was of no use.
    """
    host.run(folder, "train", steps=2)
    found: Counter[str] = Counter()
    for _ in range(flips):
        with _copy(folder) as copy:
            files = [path for path in _newest_of(copy) if path.stat().st_size]
            [path] = chance.choices(files, [each.stat().st_size for each in files])
            _flip_bit(path, chance.randrange(path.stat().st_size * 8))
            [answer] = host.run(copy, "restore")
        if "error" in answer:
            found["error"] += 1
        elif answer["values"] != [answer["step"]]:
            found["taken"] += 1
        else:
            found["no effect" if answer["step"] == 2 else "older"] += 1
    return dict(found)


def change_ranks(host: Host, folder: Path, *, saved_by: int, restored_by: int) -> str:
    """Save an array that is divided among some ranks, and restore it with others. Gives "equal" or the error."""
    for answer in host.run(folder, "train", steps=2, ranks=saved_by):
        if "error" in answer:
            return f"not saved: {answer['error']}"
    for answer in host.run(folder, "restore", ranks=restored_by):
        if "error" in answer:
            return f"not restored: {answer['error']}"
        if answer["step"] != 2 or answer["values"] != [2.0]:
            return f"step {answer['step']} with {answer['values']}"
    return "equal"


def replace(host: Host, folder: Path, *, times: int, chance: random.Random) -> dict[str, int]:
    """Suspend a training that saves each step, let another process go on from its newest checkpoint, and resume it.

    So a machine goes on that AWS has replaced. The second process has the next attempt of the run, where a library
    knows attempts.

    Returns:
        How often which of these came at the end. `later`: the newest checkpoint of the second process. `earlier`: one
        that the first process saved after it was replaced. `mixed`: values of both. `error`: none.
    """
    found: Counter[str] = Counter()
    scratch = folder / "other"
    scratch.mkdir()
    with closing(Host(host.name, scratch)) as other:
        for number in range(times):
            place = folder / str(number)
            place.mkdir()
            first = host.start(place, "train", steps=10**6, attempt=1)
            _wait_until(partial(_has_saved, first, 1))
            time.sleep(chance.random() * 0.15)
            os.kill(first.pids[0], signal.SIGSTOP)
            steps = max(first.saved()) + 4
            second = other.start(place, "train", steps=steps, attempt=2, added=_ADDED)
            second.answers()
            saved = max(second.saved(), default=0)
            os.kill(first.pids[0], signal.SIGCONT)
            _wait_until(partial(_has_saved, first, steps + 2))
            with suppress(ProcessLookupError):
                os.kill(first.pids[0], signal.SIGKILL)
            first.answers()
            [answer] = other.run(place, "restore", attempt=3)
            found[_whose(answer, saved)] += 1
    return dict(found)


def _whose(answer: dict[str, Any], saved: int) -> str:
    if "error" in answer:
        return "error"
    if answer["values"] == [answer["step"] + _ADDED]:
        return "later" if answer["step"] >= saved else "lost"
    return "earlier" if answer["values"] == [answer["step"]] else "mixed"


def _has_saved(attempt: Attempt, step: int) -> bool:
    """Say if an attempt has saved more than this step, or has ended."""
    return attempt.ended() or max(attempt.saved(), default=0) > step


def _wait_until(is_so: Callable[[], bool]) -> None:
    limit = time.monotonic() + _WAIT_SECONDS
    while not is_so() and time.monotonic() < limit:
        time.sleep(0.002)


def share_writing(host: Host, folder: Path, *, ranks: int) -> list[int] | str:
    """Save arrays that are equal on all ranks, 48 MiB. Gives the bytes that each rank has written, in two saves."""
    answers = host.run(folder, "train", steps=2, ranks=ranks, divided=False, larger=8)
    problems = [answer["error"] for answer in answers if "error" in answer]
    return problems[0] if problems else [answer["written"] for answer in answers]


def _kind(answer: dict[str, Any], saved: int) -> str:
    if answer["values"] != [answer["step"]]:
        return "mixed"
    return "newest" if answer["step"] >= saved else "lost"


def _newest_of(folder: Path) -> list[Path]:
    """Give the files of the newest checkpoint, or all where they lie side by side."""
    numbered = sorted((path for path in folder.iterdir() if path.is_dir()), key=_number)
    files = (numbered[-1] if numbered else folder).rglob("*")
    return sorted(path for path in files if path.is_file())


def _number(path: Path) -> int:
    digits = "".join(letter for letter in path.name if letter.isdigit())
    return int(digits or 0)


def _remove_newest(folder: Path) -> None:
    numbered = sorted((path for path in folder.iterdir() if path.is_dir()), key=_number)
    if numbered:
        shutil.rmtree(numbered[-1])


@contextmanager
def _copy(folder: Path) -> Iterator[Path]:
    copy = folder.parent / f"{folder.name}-copy"
    shutil.copytree(folder, copy)
    try:
        yield copy
    finally:
        shutil.rmtree(copy)


def _flip_bit(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        [byte] = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ (1 << bit % 8)]))
