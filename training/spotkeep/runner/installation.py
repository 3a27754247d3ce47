"""Installs what a script needs, before it starts, and runs what sets its machine up."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spotkeep import events
from spotkeep.errors import InstallError, JobError, SpotkeepError

from .environment_cache import EnvironmentCache
from .failure import failure_text
from .layout import JobLayout
from .requirements import NONE, Requirements, find_requirements
from .source import GIT_COMMIT_VARIABLE, SHA256_VARIABLE
from .supervision import Supervisor
from .virtual_environment import VirtualEnvironment, describe_image


@dataclass(frozen=True)
class Preparation:
    """What is done on a machine before the command.

    Attributes:
        install: `auto`, `none`, or the path of a requirements file in the source.
        requirements: Listed in the job file; they go before `install`.
        setup: A command that is run once a machine, after the installation; empty for none.
        environments: `s3://bucket/prefix/` where what is installed is kept for the machine on which the job comes back;
            None on an instance, whose volume keeps it.
    """

    install: str = NONE
    requirements: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    environments: str | None = None


def prepare_machine(
    preparation: Preparation,
    *,
    layout: JobLayout,
    source: Path | None,
    environment: Mapping[str, str],
    supervisor: Supervisor,
    scratch: Path,
    first_host: bool,
) -> dict[str, str]:
    """Install and set up. An interruption notice cuts both short: the caller asks the supervisor.

    Args:
        preparation: What is done.
        layout: Where things are.
        source: The unpacked source; None where the image holds it.
        environment: The command's, so far.
        supervisor: Runs what is run.
        scratch: For files that are not needed afterwards.
        first_host: Whether this host writes what all hosts of the job fetch.

    Returns:
        The command's environment.

    Raises:
        InstallError: If something cannot be installed, or the command that sets up fails; says with what last words.
    """
    prepared = dict(environment)
    wanted = find_requirements(preparation.install, listed=preparation.requirements, source=source)
    try:
        if wanted is not None:
            cache = _cache(preparation, environment, supervisor)
            prepared = _installed(wanted, layout, source, prepared, supervisor, scratch, cache, keeps=first_host)
        if preparation.setup and not supervisor.announced:
            _set_up(preparation.setup, source, prepared, supervisor)
    except OSError as error:
        raise InstallError(f"what the script needs cannot be installed: {error}") from error
    return prepared


def _installed(
    wanted: Requirements,
    layout: JobLayout,
    source: Path | None,
    environment: dict[str, str],
    supervisor: Supervisor,
    scratch: Path,
    cache: EnvironmentCache | None,
    *,
    keeps: bool,
) -> dict[str, str]:
    begun = time.monotonic()
    image = describe_image(environment)
    virtual = VirtualEnvironment(layout.environment, image=image)
    pin = environment.get(SHA256_VARIABLE) or environment.get(GIT_COMMIT_VARIABLE)
    key = virtual.key(wanted.text, pin=pin if wanted.reads_other_files else None)
    # What is on this machine, or on the volume that came to it. Files without a pin may have changed since.
    kept = virtual.is_complete(key) and (pin is not None or not wanted.reads_other_files)
    events.emit("installing", what=wanted.named)
    fetched = not kept and cache is not None and _fetched(cache, key, virtual)
    if not (kept or fetched):
        if not image.pip:
            raise InstallError(
                f"{wanted.named} asks for packages, and {image.executable} has no pip to install them: use an image "
                "with pip, or give install: none if the image has all that the script needs"
            )
        virtual.create()
        _run_pip(wanted, virtual, source, environment, supervisor, scratch)
        if supervisor.announced:
            return environment
    virtual.mark_complete(key)
    events.emit(
        "installed",
        what=wanted.named,
        seconds=round(time.monotonic() - begun, 3),
        reason="kept on this machine" if kept else "from the cache" if fetched else "by pip",
    )
    if cache is not None and keeps and not (kept or fetched):
        _keep(cache, key, virtual)
    return virtual.activated(environment)


def _cache(preparation: Preparation, environment: Mapping[str, str], supervisor: Supervisor) -> EnvironmentCache | None:
    launch = environment.get(events.LAUNCH_VARIABLE)
    if preparation.environments is None or not launch:
        return None
    try:
        return EnvironmentCache(preparation.environments, secret=launch, cut_short=lambda: supervisor.announced)
    except SpotkeepError as error:
        events.emit("environment-not-cached", problem=str(error))
        return None


def _fetched(cache: EnvironmentCache, key: str, virtual: VirtualEnvironment) -> bool:
    """Take what the cache has. Whatever is wrong with it costs an installation, and ends nothing."""
    virtual.clear()
    try:
        if not cache.fetch(key, virtual.directory):
            return False
        virtual.lay_under()
    except (SpotkeepError, OSError) as error:
        events.emit("environment-not-cached", problem=str(error))
        return False
    return True


def _keep(cache: EnvironmentCache, key: str, virtual: VirtualEnvironment) -> None:
    begun = time.monotonic()
    try:
        size = cache.keep(key, virtual.directory)
    except (SpotkeepError, OSError) as error:
        events.emit("environment-not-cached", problem=str(error))
        return
    events.emit("environment-cached", seconds=round(time.monotonic() - begun, 3), bytes=size)


def _run_pip(
    wanted: Requirements,
    virtual: VirtualEnvironment,
    source: Path | None,
    environment: Mapping[str, str],
    supervisor: Supervisor,
    scratch: Path,
) -> None:
    file = wanted.file or scratch / "requirements.txt"
    if wanted.file is None:
        file.write_text(wanted.text, encoding="utf-8")
    # Hashes need no option: pip demands one of every requirement as soon as one has one.
    outcome = supervisor.run(
        [
            str(virtual.python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--no-compile",
            "--no-warn-script-location", "--progress-bar", "off", "-r", str(file),
        ],
        environment={**virtual.activated(environment), "PIP_USER": "0"},
        directory=source,
    )  # fmt: skip
    if outcome.exit_code and not supervisor.announced:
        raise InstallError(
            failure_text(
                command=[
                    "pip",
                    "install",
                    *(wanted.text.splitlines() if wanted.file is None else ("-r", wanted.named)),
                ],
                exit_code=outcome.exit_code,
                stderr_tail=outcome.stderr_tail,
                memory_kills=outcome.memory_kills,
            )
        )


def _set_up(
    command: tuple[str, ...], source: Path | None, environment: Mapping[str, str], supervisor: Supervisor
) -> None:
    """Run the command unless this machine has: where temporary files are is no part of a volume that moves."""
    run = environment.get("SPOTKEEP_RUN", "")
    name = hashlib.sha256(repr((command, run, str(source))).encode()).hexdigest()[:32]
    mark = Path(tempfile.gettempdir()) / f"spotkeep-setup-{name}"
    if mark.exists():
        return
    begun = time.monotonic()
    try:
        outcome = supervisor.run(command, environment=environment, directory=source)
    except JobError as error:
        raise InstallError(f"setup: {error}") from error
    if supervisor.announced:
        return
    if outcome.exit_code:
        raise InstallError(
            "setup: "
            + failure_text(
                command=command,
                exit_code=outcome.exit_code,
                stderr_tail=outcome.stderr_tail,
                memory_kills=outcome.memory_kills,
            )
        )
    os.close(os.open(mark, os.O_CREAT | os.O_WRONLY, 0o600))
    events.emit("set-up", seconds=round(time.monotonic() - begun, 3))
