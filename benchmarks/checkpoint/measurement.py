"""Times saves and restores inside a training, all contenders in turn, in one process.

There is one process, because then every contender meets the same memory, the same disk and the same drift of the
machine. The order changes from round to round. The extra time of a save is a difference. The first time is that of the
training steps from the call until the checkpoint is durable (two steps at least). The second is the time that as many
steps take before and after it.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.checkpoint.contenders import BASELINE, OURS, Contender
from benchmarks.checkpoint.machine import Machine, cached_share, drop_from_cache, read_into_cache
from benchmarks.checkpoint.workload import Workload
from benchmarks.paired import Seconds
from spotkeep import Checkpointer
from spotkeep.disk.late_copy import LateCopy
from spotkeep.disk.shared_work import memory_threads
from spotkeep.schedule.late_copying import COMPARED_SAVES, TRIED_SAVES

_QUIET_STEPS = 4
_FEWEST_STEPS = 2
_LONGEST_SAVE_SECONDS = 120


@dataclass(frozen=True, kw_only=True)
class Save:
    """The cost of one save.

    Attributes:
        extra: Seconds that the training took longer.
        call: Seconds that the training stood still, in the call and before the next step of the optimizer.
        durable: Seconds from the call until the checkpoint was durable.
    """

    extra: float
    call: float
    durable: float


@dataclass
class Rounds:
    """Seconds of each round, by the name of the measured thing."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        """Take one figure."""
        self.seconds.setdefault(name, []).append(value)

    def __getitem__(self, name: str) -> Seconds:
        return Seconds(rounds=tuple(self.seconds[name]))

    def to_document(self) -> dict[str, Any]:
        """Return the figures as JSON."""
        return {name: self[name].to_document() for name in self.seconds}


class _Waits:
    """Takes the time for which the steps of an optimizer wait until a state is copied."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._thread = threading.get_ident()
        self._finish = LateCopy.finish
        measured = self

        def finish(copy: LateCopy) -> None:
            started = time.perf_counter()
            measured._finish(copy)
            if threading.get_ident() == measured._thread:
                measured.seconds += time.perf_counter() - started

        LateCopy.finish = finish  # type: ignore[assignment, method-assign]

    def stop(self) -> None:
        """Take no more time."""
        LateCopy.finish = self._finish  # type: ignore[method-assign]


class _BareWrite:
    """Bare writes beside the training, without copy or checksums."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._writer = ThreadPoolExecutor(max_workers=1)

    def save(self) -> None:
        started = time.perf_counter()
        self._durable_at = self._writer.submit(lambda: started + self._machine.write())

    def durable_at(self) -> float | None:
        return self._durable_at.result() if self._durable_at.done() else None

    def clear(self) -> None:
        self._writer.shutdown()

    def close(self) -> None:
        """Do nothing more than `clear` has done."""


class Course:
    """The training with one size of state, and the contenders that take turns in it.

    Args:
        workload: The training.
        contenders: The contenders by name, with the library as `contenders.OURS`.
        machine: The limits of the machine.
        advance: Called after each measurement.
    """

    def __init__(
        self,
        workload: Workload,
        contenders: dict[str, Contender],
        machine: Machine,
        *,
        advance: Callable[[], None],
    ) -> None:
        self._workload = workload
        self._contenders = dict(contenders)
        self._machine = machine
        self._advance = advance
        self.saves = {name: Rounds() for name in contenders}
        self.limits = Rounds()
        self.restores = Rounds()
        self.cached_share_when_cold = 0.0
        self.left_out: dict[str, str] = {}

    def warm_up(self) -> None:
        """Let every contender save uncounted, as in a training that has run for a while.

        The library's first saves are compared with the state or try both ways to copy it, and so are no measure of the
        later ones.
        """
        for name in list(self._contenders):
            for _ in range(2 + (COMPARED_SAVES + 2 * TRIED_SAVES) * (name == OURS)):
                self._try_save(name)
            self._advance()
        self._measure_limits(Rounds())

    def measure_saves(self, number: int) -> None:
        """Make one round, with each contender once and then the machine."""
        names = list(self._contenders)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            save = self._try_save(name)
            if save is not None:
                for figure in ("extra", "call", "durable"):
                    self.saves[name].add(figure, getattr(save, figure))
            self._advance()
        self._measure_limits(self.limits)
        self._advance()

    def measure_restores(self, directory: Path) -> None:
        """Make one round, with the library's newest checkpoint from page cache and disk, beside plain reads.

        Args:
            directory: The directory of the library's checkpoints.
        """
        newest = max(directory.glob("step-*"), key=lambda path: int(path.name.rpartition("-")[2]))
        files = [path for path in newest.iterdir() if path.is_file()]
        # Nothing but these files, so that a large processor cache has them as it has the machine's file below.
        for path in files:
            read_into_cache(path)
        self.restores.add("warm", self._restore(directory))
        self.limits.add("read_warm", self._machine.read_warm())
        self.limits.add("read_warm_all_processors", self._machine.read_warm(streams=memory_threads()))
        for path in files:
            drop_from_cache(path)
        self.cached_share_when_cold = max(self.cached_share_when_cold, *(cached_share(path) for path in files))
        self.restores.add("cold", self._restore(directory))
        self.limits.add("direct_read", self._machine.read_direct())
        self._advance()

    def _try_save(self, name: str) -> Save | None:
        """Measure one save. A contender that fails is left out from then on, but for those that every ratio needs."""
        if name not in self._contenders:
            return None
        try:
            return self._measure_save(self._contenders[name])
        except Exception as error:
            if name in (OURS, BASELINE):
                raise
            self.left_out[name] = f"{type(error).__name__}: {error}"
            self._contenders.pop(name).clear()
            del self.saves[name]
            return None

    def _measure_save(self, contender: Contender) -> Save:
        quiet = [self._timed_step() for _ in range(_QUIET_STEPS)]
        started = time.perf_counter()
        contender.save()
        returned = time.perf_counter()
        steps = 0
        # A late copy is waited for in a step, when the optimizer is about to change the state.
        waits = _Waits()
        while steps < _FEWEST_STEPS or contender.durable_at() is None:
            self._workload.take_step()
            steps += 1
            if time.perf_counter() - started > _LONGEST_SAVE_SECONDS:
                raise TimeoutError(f"a save was not durable after {_LONGEST_SAVE_SECONDS} s")
        ended = time.perf_counter()
        waits.stop()
        durable_at = contender.durable_at()
        if durable_at is None:
            raise AssertionError("a checkpoint that was durable is not any more")
        quiet += [self._timed_step() for _ in range(_QUIET_STEPS)]
        contender.clear()
        return Save(
            extra=ended - started - steps * statistics.median(quiet),
            call=returned - started + waits.seconds,
            durable=durable_at - started,
        )

    def _timed_step(self) -> float:
        started = time.perf_counter()
        self._workload.take_step()
        return time.perf_counter() - started

    def _measure_limits(self, limits: Rounds) -> None:
        sources = {tensor.data_ptr(): tensor.nbytes for tensor in self._workload.flat_state.values()}
        limits.add("warm_copy", self._machine.copy(sources))
        limits.add("warm_copy_all_processors", self._machine.copy(sources, streams=memory_threads()))
        limits.add("direct_write", self._machine.write())
        os.sync()
        # What of a save the training meets when nothing is copied.
        limits.add("extra_of_a_bare_write", self._measure_save(_BareWrite(self._machine)).extra)
        os.sync()

    def _restore(self, directory: Path) -> float:
        checkpointer = Checkpointer(self._workload.live, directory=directory)
        started = time.perf_counter()
        step = checkpointer.restore()
        seconds = time.perf_counter() - started
        if not step:
            raise AssertionError(f"{OURS} restored nothing")
        return seconds
