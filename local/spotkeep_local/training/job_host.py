"""The host of a job, which is a process group of this machine with its own `/opt/ml` and environment.

The environment has SageMaker's variables, the job's own and the way to the local AWS.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from spotkeep_local.hosts.host import Host, HostRefusedError, process_group
from spotkeep_local.hosts.host_platform import job_isolation
from spotkeep_local.hosts.isolation import Isolation
from spotkeep_local.training.errors import JobFailedError
from spotkeep_local.training.job_network import CONTAINER_HOST_NAME
from spotkeep_local.training.opt_ml import BASE, OptMl, relocate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spotkeep_local.options import ServerOptions
    from spotkeep_local.principals import AccessKey
    from spotkeep_local.training.file_systems import MountedChannel
    from spotkeep_local.training.job import TrainingJob
    from spotkeep_local.training.job_network import HostPlace

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
    place: HostPlace,
    mounted: Sequence[MountedChannel] = (),
    on_line: Callable[[str], None],
    on_exit: Callable[[int], None],
) -> Host:
    """Start a job's process on a host. The callbacks run once `watch` of the returned host is called.

    Args:
        folder: The host's own directory. Holds `ml`, which the job sees as `/opt/ml`, and `home`. A host that may be
            kept has `image` too.
        command: Entry point and arguments, as in the request.
        environment: All of the job's environment, into which nothing of this process leaks.
        own_image: True where the host has an image of its own, the byte code of all modules that the job imports. The
            host's first job makes it and its next one finds it. Otherwise the host shares this machine's.
        isolation: `namespace` or `relocated`.
        place: Its place among the hosts of the job.
        mounted: The channels on file systems. A host without a namespace has links to them.
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
    environment = of_the_host | dict(place.variables) | dict(environment)
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

    mounts, read_only = None, []
    if isolation is Isolation.NAMESPACE:
        mounts = {BASE: str(opt_ml.root), **{each.path: str(each.directory) for each in mounted}}
        read_only = [each.path for each in mounted if each.read_only]
    else:
        for each in mounted:
            link = opt_ml.at(each.path)
            link.rmdir()
            link.symlink_to(each.directory)
    names = None
    if place.table is not None:
        names = folder / "hosts"
        names.write_text(place.table)
    group = process_group(
        command=command,
        working_directory=home,
        mounts=mounts,
        read_only=read_only,
        confined=isolation is Isolation.NAMESPACE,
        names=names,
        network=place.network,
        hostname=CONTAINER_HOST_NAME,
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


SESSION_NAME = "SageMaker"
"""The name of the session of its role that a training job acts in."""
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def job_path() -> str:
    """Return the PATH of a job, with the local AWS's own environment before the system's directories."""
    return path_with(Path(sys.prefix) / "bin")


def path_with(programs: Path) -> str:
    """Return a PATH with one directory before the system's directories."""
    return f"{programs}:{_SYSTEM_PATH}"


def job_environment(
    job: TrainingJob, *, endpoint_url: str, access_key: AccessKey, options: ServerOptions
) -> dict[str, str]:
    """Return all variables that do not depend on the host. The host sets HOME, TMPDIR and the place for byte code.

    `python3` is the local AWS's own interpreter, which stands for the one in the training image. Its output is
    unbuffered, as in AWS's images. Every AWS client in the job reaches the local AWS and nothing else.

    Args:
        job: The job, whose request's Environment wins over everything else here.
        endpoint_url: The address of the local AWS.
        access_key: The access key of the job's role.
        options: The options, for the region.
    """
    environment = {
        "PATH": job_path(),
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "TRAINING_JOB_NAME": job.name,
        "TRAINING_JOB_ARN": job.arn,
        "AWS_REGION": options.region,
        "AWS_DEFAULT_REGION": options.region,
        "AWS_ENDPOINT_URL": endpoint_url,
        **access_key.environment(),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    if job.capacity_script and any(item.needs_steps for item in job.capacity_script.interruptions):
        # An interruption at a step can only be on time when every step is reported.
        environment["SPOTKEEP_PROGRESS_SECONDS"] = "0"
    environment.update(job.request.get("Environment", {}))
    return environment
