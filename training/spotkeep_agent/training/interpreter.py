"""Which Python a command means by `python` and `python3`: that of the image's framework, where it has one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from spotkeep_fleet.shells import FRAMEWORKS


def search_path(inherited: str, *, root: Path, own: Path) -> str:
    """Give the training's PATH, on which there is a `python`.

    Args:
        inherited: The agent's own.
        root: `/`, or below which this instance's files are.
        own: A directory of the agent's. Where the image has `python3` alone, as Amazon Linux 2023, it gets a `python`.
    """
    for framework in FRAMEWORKS:
        commands = root / framework / "bin"
        if os.access(commands / "python", os.X_OK):
            return os.pathsep.join([str(commands), inherited])
    python3 = shutil.which("python3", path=inherited)
    if python3 is None or shutil.which("python", path=inherited) is not None:
        return inherited
    own.mkdir(parents=True, exist_ok=True)
    link = own / "python"
    link.unlink(missing_ok=True)
    link.symlink_to(python3)
    return os.pathsep.join([inherited, str(own)])
