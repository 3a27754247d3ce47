"""What can keep a rehearsal from reaching a verdict.

::

    RehearsalError
    ├── RehearsalTimeoutError  the runs did not end in time
    └── LaunchRefusedError     the launcher took the job document for wrong
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class RehearsalError(Exception):
    """A rehearsal could not come to a verdict."""


class RehearsalTimeoutError(RehearsalError):
    """The rehearsed runs did not end within the time given."""

    def __init__(self, *, seconds: float, states: Mapping[str, str]) -> None:
        """Say where each run stood when the time was over."""
        where = ", ".join(f"{run} is {state}" for run, state in states.items())
        super().__init__(
            f"the runs did not end within {seconds:g} s: {where}. Give it longer with --timeout, or make the job"
            " shorter with --set"
        )


class LaunchRefusedError(RehearsalError):
    """The launcher refused the job; nothing was launched."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        """Keep the launcher's answer with all its problems."""
        problems = answer.get("problems") or [{"field": "?", "problem": answer.get("error", "no reason given")}]
        super().__init__("; ".join(f"{problem['field']}: {problem['problem']}" for problem in problems))
        self.answer = answer
