"""What is installed and set up on a machine before the command, in the rows of a plan."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spotkeep_cli.launching.preparation import PreparedJob
    from spotkeep_cli.rendering.facts import Fact


def installation_rows(request: Mapping[str, Any], *, prepared: PreparedJob) -> Iterator[Fact]:
    """Yield what is installed, where a comeback and the next job find it, and what sets a machine up.

    Args:
        request: The validated job document.
        prepared: The job with its packed source.
    """
    if request.get("command") is None:
        return  # An image's own entry point runs: nothing is done before it.
    if installed := _installed(request, prepared=prepared):
        place = "on the run's volume" if request.get("backend") == "ec2" else "in S3"
        pool = ", the next job on the warm pool in its cache" if request.get("keep_alive") else ""
        yield "installs", f"{installed}; a comeback finds it {place}{pool}"
    if setup := request.get("setup"):
        yield "set up by", f"{setup if isinstance(setup, str) else shlex.join(setup)}, once a machine"


def _installed(request: Mapping[str, Any], *, prepared: PreparedJob) -> str:
    """Return what is installed before the command; empty for nothing, or where it is not known on this machine."""
    install = request.get("install", "none")
    if not isinstance(install, str):
        return ", ".join(install)
    if install != "auto":
        return "" if install == "none" else f"what {install} asks for"
    files = {str(path) for path in prepared.archive.files} if prepared.archive else set()
    found = next((name for name in ("requirements.txt", "pyproject.toml") if name in files), None)
    return f"what {found} asks for" if found else ""
