"""Whether a person's shell finds `spotkeep`: after `make` in a fresh clone it does not yet."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from spotkeep_cli.terminal import NextStep

if TYPE_CHECKING:
    from collections.abc import Mapping


def activation(
    *, environment: Mapping[str, str] = os.environ, prefix: Path = Path(sys.prefix), directory: Path | None = None
) -> list[NextStep]:
    """Return the step that comes first where `spotkeep` is in a virtual environment that is not active.

    Args:
        environment: The environment of this process. Under `make`, its PATH is not that of the person's shell.
        prefix: The environment that `spotkeep` runs in.
        directory: Where the person is; the current directory by default.

    Returns:
        One step, or none where the shell finds `spotkeep`, or where how to reach it is not ours to know.
    """
    here = directory or Path.cwd()
    script = prefix / "bin" / "activate"
    found = shutil.which("spotkeep", path=environment.get("PATH", ""))
    on_path = found is not None and Path(found).resolve().parent == (prefix / "bin").resolve()
    under_make = "MAKELEVEL" in environment
    active = environment.get("VIRTUAL_ENV") == str(prefix)
    if active or (on_path and not under_make) or not script.is_file():
        return []
    from_here = script.relative_to(here) if script.is_relative_to(here) else script
    return [NextStep(command=f"source {shlex.quote(str(from_here))}", what="puts spotkeep on the PATH of this shell")]
