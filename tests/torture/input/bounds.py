"""Feeds a parser what strangers write: no crash, bounded time, bounded memory.

A short form runs with the other tests; `make torture-input` feeds each parser 100,000 inputs.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TypeVar

from hypothesis import HealthCheck, settings

SECONDS_FOR_ONE_INPUT = 5.0
"""Of processor time: far above what any input takes, so that only one that never ends is found."""
MEBIBYTES_FOR_ONE_INPUT = 256
"""Of address space beside what the process already has. A function has 512 MB of memory in all."""

INPUTS = int(os.environ.get("SPOTKEEP_TORTURE_INPUTS", "100"))
"""How many inputs each parser is fed."""

_Test = TypeVar("_Test", bound=Callable[..., object])


class TooSlowError(AssertionError):
    """A parser has worked on one input for longer than SECONDS_FOR_ONE_INPUT."""


def fed_by_strangers(*, share: float = 1.0) -> Callable[[_Test], _Test]:
    """Give a Hypothesis test its number of inputs. It stands above `@given`.

    Args:
        share: Of the parser's inputs, where several tests feed one parser.
    """
    return settings(
        max_examples=round(INPUTS * share),
        deadline=None,
        # A hundred thousand inputs of one parser are not kept on disk, and are seldom small.
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )


@contextmanager
def bounded() -> Iterator[None]:
    """Hold what happens inside to one input's time and memory. Works in the main thread alone.

    Raises:
        TooSlowError: It took longer.
        MemoryError: It wanted more.
    """
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space_bytes() + MEBIBYTES_FOR_ONE_INPUT * 2**20, hard))
    handler = signal.signal(signal.SIGPROF, _too_slow)
    # Hypothesis keeps what it has tried: collecting that garbage is no part of one input.
    gc.disable()
    signal.setitimer(signal.ITIMER_PROF, SECONDS_FOR_ONE_INPUT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        gc.enable()
        signal.signal(signal.SIGPROF, handler)
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))


def _too_slow(signum: int, frame: FrameType | None) -> None:
    del signum, frame
    raise TooSlowError(f"one input has taken {SECONDS_FOR_ONE_INPUT:.0f} s")


def _address_space_bytes() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    return int(pages) * resource.getpagesize()
