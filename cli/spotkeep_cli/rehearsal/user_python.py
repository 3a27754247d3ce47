"""Rehearses a script in a Python of the user's: the environment they already have stands for the one in the image."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from spotkeep_cli.errors import UsageError
from spotkeep_local.training.process_environment import path_with

if TYPE_CHECKING:
    from spotkeep_cli.launching.job_file import JobDocument


def in_python(document: JobDocument, python: Path) -> JobDocument:
    """Return a job whose `python` and `python3` are those beside an interpreter.

    Args:
        document: The job file.
        python: The interpreter, of a virtual or conda environment.

    Raises:
        UsageError: If it is no interpreter, or commands would not find it by those names.
    """
    # A virtual environment's is a link to another Python, and it is the link that knows its packages.
    path = Path(os.path.abspath(python.expanduser()))  # noqa: PTH100 - `resolve` would follow the link
    lacking = [name for name in ("python", "python3") if not os.access(path.parent / name, os.X_OK)]
    if not os.access(path, os.X_OK) or path.is_dir() or lacking:
        missing = f"no {' and no '.join(lacking)} beside it" if lacking else "it cannot be executed"
        raise UsageError(
            f"--python {python} is no Python of an environment: {missing}",
            hint=f"give the interpreter of a virtual or conda environment, for example {sys.prefix}/bin/python",
        )
    given = document.fields.get("environment")
    variables = given if isinstance(given, dict) else {}
    return document.with_fields({"environment": {**variables, "PATH": path_with(path.parent)}})
