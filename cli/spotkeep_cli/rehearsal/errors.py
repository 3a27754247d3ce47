"""What can keep a rehearsal from reaching a verdict."""

from __future__ import annotations

from collections.abc import Mapping

from spotkeep_cli.errors import RehearsalNotJudgedError

SCRIPT_FAILED_HINT = "run the script by itself first, and mend what it says"


class RehearsalTimeoutError(RehearsalNotJudgedError):
    """Something that was to happen to the rehearsed runs did not happen within the time given."""

    def __init__(self, *, seconds: float, states: Mapping[str, str]) -> None:
        """Say where each run stood when the time was over."""
        where = ", ".join(f"{run} is {state.lower()}" for run, state in states.items())
        super().__init__(
            f"the runs did not end within {seconds:g} s: {where}",
            hint="give it longer with --timeout, or make the job shorter with --set",
        )


class RehearsedRunFailedError(RehearsalNotJudgedError):
    """A run failed that was to leave something to judge.

    Attributes:
        failure: Why, in the words of its record.
    """

    def __init__(self, *, run: str, failure: str) -> None:
        super().__init__(f"{run} failed: {failure}", hint=SCRIPT_FAILED_HINT)
        self.failure = failure
