"""What only this machine knows of a job, as Python's own warnings."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from spotkeep_jobs.errors import Problem


def warn_of(problems: Iterable[Problem]) -> None:
    """Warn the caller of `launch` or `resume`: of a branch, which moves; of files that stay behind.

    Args:
        problems: A warning each.
    """
    for problem in problems:
        warnings.warn(str(problem), UserWarning, stacklevel=3)
