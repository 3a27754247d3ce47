"""The host of a job, which is a process group of this machine with its own `/opt/ml`."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from spotkeep_local.hosts.host import Host, HostRefusedError, process_group
from spotkeep_local.hosts.host_platform import job_isolation
from spotkeep_local.hosts.isolation import Isolation
from spotkeep_local.training.errors import JobFailedError
from spotkeep_local.training.opt_ml import BASE, OptMl, relocate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_LONGEST_FOR_SOCKETS = 64
"""A Unix socket's path has 104 bytes. Python's multiprocessing adds up to 40 to the temporary directory's."""


def resolve_isolation(wanted: Isolation) -> Isolation:
    """Return the meaning of `wanted` on this machine, which is `namespace` or `relocated`.

    Raises:
        JobFailedError: A namespace is demanded and the machine refuses it. Gives the reason.
    """
    try:
        return job_isolation(wanted)
    except HostRefusedError as error:
        raise JobFailedError(f"InternalServerError: {error}") from error


def start_host(
    *,
    folder: Path,
    command: Sequence[str],
    environment: Mapping[str, str],
    own_image: bool,
    isolation: Isolation,
    on_line: Callable[[str], None],
    on_exit: Callable[[int], None],
) -> Host:
    """Start a job's process on a host. The callbacks run once `watch` of the returned host is called.

    Args:
        folder: The host's own directory. Holds `ml`, which the job sees as `/opt/ml`, and `home`. A host that may be
            kept has `image` too.
        command: Entry point and arguments, as in the request.
        environment: All of the job's environment. Nothing of this process leaks into it.
        own_image: True where the host has an image of its own, the byte code of all modules that the job imports. The
            host's first job makes it and its next one finds it. Otherwise the host shares this machine's.
        isolation: `namespace` or `relocated`.
        on_line: Called in a thread of its own with each line that the job prints.
        on_exit: Called once, after the last line, with the exit code as a shell sees it.
    """
    opt_ml = OptMl(folder / "ml")
    home, temporary = folder / "home", folder / "tmp"
    home.mkdir(parents=True, exist_ok=True)
    temporary.mkdir(exist_ok=True)
    way = _short_way_to(temporary)
    of_the_host = {"HOME": str(home), "TMPDIR": str(way or temporary)}
    if own_image:
        of_the_host["PYTHONPYCACHEPREFIX"] = str(folder / "image" / "bytecode")
    environment = of_the_host | dict(environment)
    if isolation is Isolation.RELOCATED:
        command = [relocate(part, opt_ml.root) for part in command]
        environment = {name: relocate(value, opt_ml.root) for name, value in environment.items()}
        environment["SAGEMAKER_BASE_DIR"] = str(opt_ml.root)
    codes: list[int] = []

    def end(code: int) -> None:
        if way is not None:
            shutil.rmtree(way.parent, ignore_errors=True)
        # Without one the program was killed with the command, or refused before it started it.
        on_exit(codes[0] if codes else code)

    group = process_group(
        command=command,
        working_directory=home,
        mounts={BASE: str(opt_ml.root)} if isolation is Isolation.NAMESPACE else None,
        confined=isolation is Isolation.NAMESPACE,
    )
    return Host(
        group,
        folder=folder,
        environment=environment,
        on_line=on_line,
        on_command_end=codes.append,
        on_end=end,
    )


def _short_way_to(directory: Path) -> Path | None:
    """Return a link to a directory whose own path is too long for Unix sockets in it, as data loaders make them.

    The link lies with this process's temporary files. Where their path is too long as well, it lies in `/tmp`. The link
    has to be short, and the files themselves stay in the directory.

    Returns:
        The link, alone in a directory of its own. None where none is needed.
    """
    if len(os.fsencode(directory)) <= _LONGEST_FOR_SOCKETS:
        return None
    for place in (tempfile.gettempdir(), "/tmp"):  # noqa: S108 - mkdtemp's own, private directory in it
        way = Path(tempfile.mkdtemp(prefix="job-", dir=place)) / "tmp"
        if len(os.fsencode(way)) <= _LONGEST_FOR_SOCKETS:
            way.symlink_to(directory)
            return way
        way.parent.rmdir()
    return None
