"""The kinds of trial. Each ruins a training in one way, resumes it, and gives what was found.

What every trial demands: whatever is restored is bit for bit the state of the step it says; no step is lost that the
library had called durable; the end is bit for bit the end of an uninterrupted training.
"""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path

from tests.torture.checkpoint import interposition
from tests.torture.checkpoint.attempt import Size, TrainingAttempt, run, run_here
from tests.torture.checkpoint.crash_disk import CrashDisk, DiskCall
from tests.torture.checkpoint.interposition import DiskFault
from tests.torture.checkpoint.training import CHECKPOINTS, reference_digests
from tests.torture.stages import Done

EXIT_INTERRUPTED = 75
_KILLED = -signal.SIGKILL

SMALL = Size(total_steps=8, every_steps=2, state_bytes=96 * 1024)
"""For trials at each call: few calls, and a state of several blocks."""
LARGE = Size(total_steps=60, every_steps=3, state_bytes=4 * 2**20)
"""For kills at random moments: a save takes long enough to be hit."""


@dataclass(frozen=True, kw_only=True)
class TrialFindings:
    """What one trial, or several, found.

    Attributes:
        trials: How many.
        kills: Processes ended by SIGKILL.
        corrupt: Restored states that are not the state of their step.
        lost: Steps lost that had been called durable.
        wrong_ends: Trainings that did not end where an uninterrupted one ends.
        unsaid: Damages that were not noticed, not reported, or reported of another checkpoint.
        late: Finished steps lost after a notice, the most of any trial.
        problems: One sentence for each thing that must not be.
        figures: Other counts, added up by name.
    """

    trials: int = 0
    kills: int = 0
    corrupt: int = 0
    lost: int = 0
    wrong_ends: int = 0
    unsaid: int = 0
    late: int = 0
    problems: tuple[str, ...] = ()
    figures: dict[str, int] = field(default_factory=dict)

    def __add__(self, other: TrialFindings) -> TrialFindings:
        return TrialFindings(
            trials=self.trials + other.trials,
            kills=self.kills + other.kills,
            corrupt=self.corrupt + other.corrupt,
            lost=self.lost + other.lost,
            wrong_ends=self.wrong_ends + other.wrong_ends,
            unsaid=self.unsaid + other.unsaid,
            late=max(self.late, other.late),
            problems=self.problems + other.problems,
            figures=dict(Counter(self.figures) + Counter(other.figures)),
        )


class TrialJudge:
    """Compares attempts on one checkpoint prefix with an uninterrupted training.

    Args:
        size: The training.
        title: Says which trial it is, for its problems.
    """

    def __init__(self, size: Size, title: str) -> None:
        self.size = size
        self._title = title
        self._reference = _reference(size.total_steps, size.state_bytes)
        self._durable = 0
        self._found = TrialFindings(trials=1)

    @property
    def found(self) -> TrialFindings:
        """What was found so far."""
        return self._found

    def expect_durable(self, step: int) -> None:
        """Demand that what is restored from now on is not older than this step."""
        self._durable = max(self._durable, step)

    def forgive(self) -> None:
        """Demand nothing of what is restored next but that it is right: what was durable has been damaged."""
        self._durable = 0

    def see(self, attempt: TrainingAttempt, *, exit_codes: tuple[int, ...]) -> None:
        """Judge one attempt on the prefix, in the order in which they ran."""
        if attempt.exit_code not in exit_codes:
            last_words = attempt.errors.strip().splitlines()[-1:] or ["no word"]
            self.note(f"ended with {attempt.exit_code}: {last_words[0]}")
        if attempt.restored is not None:
            step, digest = attempt.restored
            if digest != self._reference[step]:
                self.note(f"what was restored is not the state of step {step}", corrupt=1)
            if step < self._durable:
                self.note(f"step {step} was restored after {self._durable} was durable", lost=self._durable - step)
            self.expect_durable(step)
        self.expect_durable(attempt.durable)
        if attempt.exit_code == _KILLED:
            self._found += TrialFindings(kills=1)

    def see_the_end(self, attempt: TrainingAttempt) -> None:
        """Judge an attempt that must come to the end, and end right."""
        self.see(attempt, exit_codes=(0,))
        if attempt.finished != (self.size.total_steps, self._reference[-1]):
            self.note("the end is not the end of an uninterrupted training", wrong_ends=1)

    def note(self, problem: str, **counts: int) -> None:
        """Note something that must not be."""
        self._found += TrialFindings(problems=(f"{self._title}: {problem}",), **counts)  # type: ignore[arg-type]

    def count(self, **figures: int) -> None:
        """Count something for the report."""
        self._found += TrialFindings(figures=figures)


class Recording:
    """The calls of one training, which trials then break one by one.

    Args:
        scratch: An empty directory.
        size: The training.
        fault: What goes wrong meanwhile, if anything.

    Raises:
        ValueError: The record does not lead to the directory that the training left: a call went around it.
    """

    def __init__(self, scratch: Path, *, size: Size = SMALL, fault: DiskFault | None = None) -> None:
        self.size = size
        record = scratch / "record.jsonl"
        directory = scratch / "recorded"
        directory.mkdir(parents=True)
        self.attempt = run(directory, size=size, fault=fault, record=record)
        self.calls: list[DiskCall] = [json.loads(line) for line in record.read_text().splitlines()]
        self.changes = [str(call.get("name", call["call"])) for call in self.calls if _is_counted(call)]
        disk = CrashDisk()
        disk.follow(self.calls)
        disk.leave_everything(scratch / "replayed")
        if contents(scratch / "replayed") != contents(directory):
            raise ValueError("replaying the recorded calls does not give what the training left: a call was missed")

    def faults(self) -> list[DiskFault]:
        """Return every fault that makes sense, at every call."""
        return [
            DiskFault(kind=kind, call=number)
            for number, call in enumerate(self.changes)
            for kind in interposition.OF_ONE_PROCESS
            if interposition.applies(kind, call)
        ]


def kill_at_random_moments(done: Done, *, kills: int, chance: random.Random) -> TrialFindings:
    """Kill trainings again and again at random moments, until so many processes have died, and let each finish."""
    with scratch_directory() as scratch:
        duration = _duration(scratch / "undisturbed", LARGE)
    seeds = iter(range(10**9))
    lock = threading.Lock()
    left = kills

    def attempts_on_one_prefix(seed: int) -> TrialFindings:
        nonlocal left
        chance_here = random.Random(seed)  # noqa: S311 - reproducible, not secret
        judge = TrialJudge(LARGE, f"random kills, seed {seed}")
        with scratch_directory() as directory:
            while True:
                with lock:
                    alive = left > 0
                    left -= alive
                if not alive:
                    judge.see_the_end(run(directory, size=LARGE))
                    break
                attempt = run(
                    directory, size=LARGE, disturb=_kill_after(chance_here.uniform(0, duration * 0.8), chance_here)
                )
                if attempt.exit_code != _KILLED:
                    with lock:
                        left += 1
                    judge.see_the_end(attempt)
                    break
                judge.see(attempt, exit_codes=(_KILLED,))
                done(1)
        return judge.found

    total = TrialFindings()
    first = chance.randrange(10**6)
    with _at_once() as pool:
        while left > 0:
            total = sum(pool.map(attempts_on_one_prefix, [first + next(seeds) for _ in range(_workers())]), total)
    return total


def break_calls(done: Done, *, recording: Recording, faults: list[DiskFault]) -> TrialFindings:
    """Put one fault at one call of a training, each in a process of its own, then resume it in another."""

    def trial(fault: DiskFault) -> TrialFindings:
        judge = TrialJudge(recording.size, f"{fault.kind} at call {fault.call} ({recording.changes[fault.call]})")
        with scratch_directory() as directory:
            broken = run(directory, size=recording.size, fault=fault)
            if fault.kind.startswith("kill"):
                judge.see(broken, exit_codes=(_KILLED,))
            else:
                # A disk that refuses does not end a training, and does not change it.
                judge.see_the_end(broken)
            if fault.kind == "no-rename":
                judge.forgive()
            judge.see_the_end(run(directory, size=recording.size))
        judge.count(**{fault.kind: 1})
        done(1)
        return judge.found

    with _at_once() as pool:
        return sum(pool.map(trial, faults), TrialFindings())


def lose_writes(done: Done, *, recording: Recording, trials: int, chance: random.Random) -> TrialFindings:
    """Cut the power after some of the recorded calls; resume from each thing that the disk may then hold.

    Every call gets its turn before any gets a second one. In a third of the trials everything unsafe is lost, in a
    third nearly everything is there, in a third each part decides for itself.
    """
    points = list(range(len(recording.calls) + 1))
    order = [point for _ in range(-(-trials // len(points))) for point in chance.sample(points, len(points))]
    plan = [(point, chance.randrange(2**32), number % 3) for number, point in enumerate(order[:trials])]
    with _resuming() as pool:
        return _gather(
            [pool.submit(_lose_writes_once, recording.calls, recording.size, *trial) for trial in plan], done
        )


def fail_syncs(done: Done, *, recording: Recording, trials: int, chance: random.Random) -> TrialFindings:
    """Let one fsync fail, then cut the power whenever the library calls something durable: it must be there.

    A kernel may drop what it could not write and report the error once, so a later fsync proves nothing.
    """
    syncs = [number for number, call in enumerate(recording.changes) if call in ("fsync", "fdatasync")]
    found = TrialFindings()
    for number in chance.sample(syncs, min(trials, len(syncs))):
        fault = DiskFault(kind="eio", call=number)
        with scratch_directory() as scratch:
            failed = Recording(scratch, size=recording.size, fault=fault)
        title = f"the fsync at call {number} fails and the power is cut when a checkpoint is called durable"
        judge = TrialJudge(recording.size, title)
        judge.see_the_end(failed.attempt)
        trial = judge.found
        for point, call in enumerate(failed.calls):
            if call["call"] == "announce":
                trial += _lose_writes_once(failed.calls, recording.size, point + 1, 0, 0)
        found += replace(trial, trials=1)
        done(1)
    return found


def flip_bits(done: Done, *, recording: Recording, trials: int, chance: random.Random) -> TrialFindings:
    """Flip one bit of one file of the newest checkpoint; it must be noticed, reported, and the older one taken."""
    with scratch_directory() as scratch, _resuming() as pool:
        run(scratch, size=recording.size)
        files = contents(scratch / CHECKPOINTS)
        newest = f"step-{recording.size.total_steps}/"
        names = sorted(name for name in files if name.startswith(newest))
        plan = []
        for number in range(trials):
            name = names[number % len(names)]
            plan.append((name, chance.randrange(len(files[name]) * 8)))
        return _gather([pool.submit(_flip_once, files, recording.size, *trial) for trial in plan], done)


def give_notices(done: Done, *, trials: int, chance: random.Random) -> TrialFindings:
    """Give a notice at a random moment of a training that saves at nothing else: at most one step may be lost."""
    size = Size(total_steps=LARGE.total_steps, every_steps=10**6, state_bytes=LARGE.state_bytes)
    with scratch_directory() as scratch:
        duration = _duration(scratch / "undisturbed", size)
    plan = [(number, chance.uniform(0, duration)) for number in range(trials)]

    def trial(planned: tuple[int, float]) -> TrialFindings:
        number, moment = planned
        by_signal = number % 2 == 0
        judge = TrialJudge(size, f"notice {number} ({'SIGTERM' if by_signal else 'file'} after {moment:.3f} s)")
        with scratch_directory() as scratch:
            notice_file = scratch / "notice"
            directory = scratch / "checkpoints"

            def disturb(process: subprocess.Popen[str], begun: threading.Event) -> None:
                begun.wait()
                time.sleep(moment)
                if by_signal:
                    process.send_signal(signal.SIGTERM)
                else:
                    draft = scratch / "notice.draft"
                    draft.write_text(json.dumps({"source": "torture", "deadline": time.time() + 120}))
                    draft.rename(notice_file)

            noticed = run(directory, size=size, notice_file=notice_file, disturb=disturb)
            # Who gets it in the last step finishes; who gets it after that is killed by it like any other process.
            judge.see(
                noticed, exit_codes=(EXIT_INTERRUPTED, 0, -signal.SIGTERM) if by_signal else (EXIT_INTERRUPTED, 0)
            )
            resumed = run(directory, size=size)
            judge.see_the_end(resumed)
            step = resumed.restored[0] if resumed.restored is not None else 0
            if noticed.completed - step > 1:
                judge.note(f"{noticed.completed - step} finished steps were lost", late=noticed.completed - step)
            elif noticed.completed - step == 1:
                judge.count(steps_lost=1)
            judge.count(**{"interrupted" if noticed.exit_code == EXIT_INTERRUPTED else "too late to interrupt": 1})
        done(1)
        return judge.found

    with _at_once() as pool:
        return sum(pool.map(trial, plan), TrialFindings())


def contents(directory: Path) -> dict[str, bytes]:
    """Read every file below a directory, by its name in it."""
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Give an empty directory that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="spotkeep-torture-", ignore_cleanup_errors=True) as path:
        yield Path(path)


def _lose_writes_once(calls: list[DiskCall], size: Size, point: int, seed: int, kind: int) -> TrialFindings:
    chance = random.Random(seed)  # noqa: S311 - reproducible, not secret
    likely = (0.0, 0.9, 0.5)[kind]
    judge = TrialJudge(size, f"power lost after call {point} of the record, seed {seed}, {likely:.0%} survive")
    disk = CrashDisk()
    disk.follow(calls[:point])
    judge.expect_durable(disk.announced)
    with scratch_directory() as directory:
        disk.leave(directory, survives=lambda: chance.random() < likely, chance=chance)
        judge.see_the_end(run_here(directory, size=size))
    return judge.found


def _flip_once(files: dict[str, bytes], size: Size, name: str, bit: int) -> TrialFindings:
    judge = TrialJudge(size, f"bit {bit} of {name} flipped")
    step = size.total_steps
    with scratch_directory() as directory:
        checkpoints = directory / CHECKPOINTS
        for other, raw in files.items():
            (checkpoints / other).parent.mkdir(parents=True, exist_ok=True)
            (checkpoints / other).write_bytes(raw)
        flipped = bytearray(files[name])
        flipped[bit // 8] ^= 1 << bit % 8
        (checkpoints / name).write_bytes(flipped)
        attempt = run_here(directory, size=size)
        judge.see_the_end(attempt)
        if attempt.restored is None or attempt.restored[0] != step - size.every_steps:
            judge.note(f"{attempt.restored and attempt.restored[0]} was restored", unsaid=1)
        if attempt.fallbacks != ((step, name),):
            judge.note(f"what was reported: {attempt.fallbacks}", unsaid=1)
    judge.count(**{name.partition("/")[2]: 1})
    return judge.found


def _kill_after(seconds: float, chance: random.Random) -> Callable[[subprocess.Popen[str], threading.Event], None]:
    # Some die before the training begins: while Python starts, or while the state is restored.
    waits = chance.random() < 0.85

    def disturb(process: subprocess.Popen[str], begun: threading.Event) -> None:
        if waits:
            begun.wait()
        time.sleep(seconds)
        process.kill()

    return disturb


def _duration(directory: Path, size: Size) -> float:
    return run(directory, size=size).training_seconds or 0.0


def _gather(futures: list[Future[TrialFindings]], done: Done) -> TrialFindings:
    total = TrialFindings()
    for future in futures:
        total += future.result()
        done(1)
    return total


@contextmanager
def _at_once() -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(_workers())
    try:
        yield pool
    finally:
        # After an interrupt, what has not begun must not.
        pool.shutdown(cancel_futures=True)


@contextmanager
def _resuming() -> Iterator[ProcessPoolExecutor]:
    pool = ProcessPoolExecutor(_workers(), mp_context=get_context("spawn"))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _workers() -> int:
    return min(os.cpu_count() or 1, 8)


def _is_counted(call: DiskCall) -> bool:
    if call["call"] == "open":
        return bool(call["changes"])
    return call["call"] not in ("close", "announce")


@functools.cache
def _reference(total_steps: int, state_bytes: int) -> list[str]:
    return reference_digests(total_steps=total_steps, state_bytes=state_bytes)
