"""Frameworks stay offline, send no telemetry, and write nothing outside the test's own directory."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterable

import pytest

# While this file is imported: the frameworks look at their environment when they are imported.
_HOME = tempfile.TemporaryDirectory(prefix="frameworks-")
os.environ.update(
    HF_HOME=_HOME.name,
    HF_HUB_OFFLINE="1",
    HF_HUB_DISABLE_TELEMETRY="1",
    JAX_COMPILATION_CACHE_DIR=_HOME.name,
    JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
    JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES="-1",
    KERAS_HOME=_HOME.name,
    TF_CPP_MIN_LOG_LEVEL="2",
    TRANSFORMERS_VERBOSITY="error",
    # The models train for milliseconds: to make them faster takes longer than they do.
    XLA_FLAGS="--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
)
os.environ.setdefault("KERAS_BACKEND", "torch")  # each target of make with Keras names its own


@pytest.fixture
def a_few_of() -> Callable[[Iterable[int], int], list[int]]:
    """Draws a few of the steps after which a training is interrupted, others in each run of the tests.

    With SPOTKEEP_EXPLORE=all it gives all of them. A test that fails shows what was drawn.
    """

    def draw(steps: Iterable[int], count: int) -> list[int]:
        every = list(steps)
        if os.environ.get("SPOTKEEP_EXPLORE") == "all":
            return every
        drawn = sorted(random.SystemRandom().sample(every, count))  # frameworks are given seeds in these tests
        print(f"of the steps {every} these were drawn: {drawn}")
        return drawn

    return draw
