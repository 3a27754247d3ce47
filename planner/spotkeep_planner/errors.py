"""Every error of the planner, in one tree.

```
PlannerError
├── PlanError              a job that cannot be planned as it is described
├── TraceError             capacity data that cannot be used. Carries every problem with its line
├── HistoryError           a source of history did not answer, or answered something that cannot be used
└── DecisionTableError     a stored policy that cannot be read
```
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class PlannerError(Exception):
    """The root of every error the planner raises on purpose."""


class PlanError(PlannerError, ValueError):
    """A job that cannot be planned.

    For example, a duration is none, or the deadline comes before any work could be done.
    """


@dataclass(frozen=True, kw_only=True)
class TraceProblem:
    """One fault in a file of capacity data.

    Attributes:
        line: The line, from 1. None where the file as a whole is meant.
        reason: The fault, the text that was found, and the remedy.
    """

    line: int | None
    reason: str


class TraceError(PlannerError, ValueError):
    """Capacity data that cannot be used.

    Attributes:
        source: Its file or service.
        problems: Everything that is wrong, in the order of the file.
    """

    SHOWN = 5

    def __init__(self, source: str, problems: Sequence[TraceProblem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        lines = [
            f"{source}:{problem.line}: {problem.reason}" if problem.line is not None else f"{source}: {problem.reason}"
            for problem in self.problems[: self.SHOWN]
        ]
        if len(self.problems) > self.SHOWN:
            lines.append(f"{source}: and {len(self.problems) - self.SHOWN} more problems")
        super().__init__("\n".join(lines))

    @classmethod
    def of(cls, source: str, reason: str, *, line: int | None = None) -> TraceError:
        """Return the error for one problem.

        Args:
            source: Its file or service.
            reason: The fault, the text that was found, and the remedy.
            line: The line, from 1. None where the file as a whole is meant.
        """
        return cls(source, [TraceProblem(line=line, reason=reason)])


class HistoryError(PlannerError):
    """A source of capacity history did not answer, or answered something that cannot be used."""


class DecisionTableError(PlannerError, ValueError):
    """A stored decision table that is damaged, or of a version this code does not know."""
