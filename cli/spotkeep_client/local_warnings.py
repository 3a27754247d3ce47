"""What only this machine knows of a job, as Python's own warnings."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from spotkeep_jobs.errors import Problem


def warn_of(problems: Iterable[Problem], *, inside: int = 1) -> None:
    """Warn the caller of `launch` or `resume`: of a branch, which moves; of files that stay behind.

    Args:
        problems: A warning each.
        inside: How many functions of ours the caller's line is away: 1 in the one that they call.
    """
    for problem in problems:
        warnings.warn(str(problem), UserWarning, stacklevel=inside + 2)
