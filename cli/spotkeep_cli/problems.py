"""What is wrong with a job document, with the line it stands on: the launcher's problems, located in the job file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spotkeep_jobs.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, kw_only=True)
class LocatedProblem(Problem):
    """A problem and where it stands.

    Attributes:
        line: Its line in the job file, from 1; None where `--set` gave it or it is missing.
        overridden: Whether `--set` gave it.
    """

    line: int | None = None
    overridden: bool = False

    def as_document(self) -> dict[str, Any]:
        """The problem as `--json` gives it."""
        return {**super().as_document(), "line": self.line}


def problems_from_answer(entries: Iterable[Mapping[str, Any] | str]) -> list[Problem]:
    """The `problems` or `warnings` of a launcher answer; a warning may be a bare sentence."""
    return [
        Problem(field="", found="", problem=entry, fix="")
        if isinstance(entry, str)
        else Problem(**{name: str(entry.get(name) or "") for name in ("field", "found", "problem", "fix")})
        for entry in entries
    ]
