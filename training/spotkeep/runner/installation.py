"""Installs the script's requirements before the script starts, and runs the command that sets up its machine."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spotkeep import events
from spotkeep.errors import InstallError, JobError, SpotkeepError
from spotkeep_fleet.training_spec import NO_INSTALLATION, TrainingSpec

from .environment_caches import EnvironmentCache, WarmPoolCache
from .failure import failure_text
from .layout import JobLayout
from .supervision import Supervisor
from .virtual_environment import VirtualEnvironment, describe_image

_S3 = "S3"
_WARM_POOL = "the warm pool's cache"
_PIP_SETTINGS = "PIP_"
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@")
AUTO = "auto"

_REQUIREMENTS = "requirements.txt"
_PROJECT = "pyproject.toml"
_MAX_TEXT_BYTES = 2**20
_OTHER_FILES = re.compile(r"^\s*(-(?!-hash)|[./~])|file:|@\s*[./]", re.MULTILINE)
"""An option (`-r`, `-c`, `-e`, `--find-links`) or a path. With one, the text alone does not fix the packages."""


@dataclass(frozen=True)
class Requirements:
    """Requirements for pip to install.

    Attributes:
        named: The place where it was found, for people, which is a file of the source or the job file.
        text: The requirements in the form of a requirements file.
        file: Path of that file. None where the text is in no file yet.
    """

    named: str
    text: str
    file: Path | None = None

    @property
    def reads_other_files(self) -> bool:
        """True where the text names other files. Their content is not in the text."""
        return _OTHER_FILES.search(self.text) is not None


@dataclass(frozen=True)
class _Place:
    """A place where installed environments are kept.

    Attributes:
        name: The place's name in events.
        cache: The cache of environments there.
        key: The key of the wanted environment, if it is there.
        reason: The reason in the event of an installation that was taken from there.
    """

    name: str
    cache: EnvironmentCache | WarmPoolCache
    key: str
    reason: str


def prepare_machine(
    spec: TrainingSpec,
    *,
    layout: JobLayout,
    source: Path | None,
    environment: Mapping[str, str],
    supervisor: Supervisor,
    scratch: Path,
    first_host: bool,
) -> dict[str, str]:
    """Install and set up.

    An interruption notice cuts both short. The caller asks the supervisor for it.

    Args:
        spec: The training's spec, with its requirements and its setup command.
        layout: The job's directories.
        source: The unpacked source, or None where the image holds it.
        environment: The command's environment so far.
        supervisor: Runs pip and the setup command.
        scratch: Directory for files that are not needed afterwards.
        first_host: True if this host writes the environment that all hosts of the job fetch.

    Returns:
        The command's environment.

    Raises:
        InstallError: If a requirement cannot be installed, or the setup command fails. The message holds the last
            output.
    """
    prepared = dict(environment)
    wanted = find_requirements(spec.install, listed=spec.requirements, source=source)
    try:
        if wanted is not None:
            prepared = _installed(wanted, layout, source, prepared, supervisor, scratch, spec, first_host=first_host)
        if spec.setup and not supervisor.announced:
            _set_up(spec.setup, source, prepared, supervisor)
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
    spec: TrainingSpec,
    *,
    first_host: bool,
) -> dict[str, str]:
    begun = time.monotonic()
    image = describe_image(environment)
    virtual = VirtualEnvironment(layout.environment, image=image)
    pin = None if spec.source is None else spec.source.pin
    key = virtual.key(wanted.text, pin=pin if wanted.reads_other_files else None)
    # What is on this machine, or on the volume that came to it. Files without a pin may have changed since.
    pinned = pin is not None or not wanted.reads_other_files
    kept = virtual.is_complete(key) and pinned
    pool = _on_this_host(key, layout, environment, supervisor) if pinned else None
    s3 = _in_s3(key, spec, environment, supervisor)
    events.emit("installing", what=wanted.named)
    places = [] if kept else [place for place in (pool, s3) if place is not None]
    found = next((place for place in places if _fetched(place, virtual)), None)
    by_pip = not (kept or found)
    if by_pip:
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
        reason="by pip" if by_pip else found.reason if found else "kept on this machine",
    )
    if s3 is not None and first_host and by_pip:
        _keep(s3, virtual)
    if pool is not None and spec.warm_pool and found is not pool:
        _keep(pool, virtual)
    return virtual.activated(environment)


def _on_this_host(key: str, layout: JobLayout, environment: Mapping[str, str], supervisor: Supervisor) -> _Place:
    cache = WarmPoolCache(layout.kept_environments, cut_short=lambda: supervisor.announced)
    return _Place(_WARM_POOL, cache, _key_for_any_job(key, environment), reason=f"from {_WARM_POOL}")


def _in_s3(key: str, spec: TrainingSpec, environment: Mapping[str, str], supervisor: Supervisor) -> _Place | None:
    launch = environment.get(events.LAUNCH_VARIABLE)
    if spec.environments is None or not launch:
        return None
    try:
        cache = EnvironmentCache(spec.environments, secret=launch, cut_short=lambda: supervisor.announced)
    except SpotkeepError as error:
        events.emit("environment-not-cached", what=_S3, problem=str(error))
        return None
    return _Place(_S3, cache, key, reason="from the cache")


def _key_for_any_job(key: str, environment: Mapping[str, str]) -> str:
    """Give the key that is the same for jobs of other runs. pip's settings count, too, but not its passwords."""
    settings = {name: value for name, value in environment.items() if name.startswith(_PIP_SETTINGS)}
    decisive = {name: _CREDENTIALS.sub("", value) for name, value in settings.items()}
    return hashlib.sha256(json.dumps([key, decisive], sort_keys=True).encode()).hexdigest()


def _fetched(place: _Place, virtual: VirtualEnvironment) -> bool:
    """Take the environment from a cache. Any error there costs an installation, and ends nothing."""
    virtual.clear()
    try:
        if not place.cache.fetch(place.key, virtual.directory):
            return False
        virtual.lay_under()
    except (SpotkeepError, OSError) as error:
        events.emit("environment-not-cached", what=place.name, problem=str(error), reason="installed anew")
        return False
    return True


def _keep(place: _Place, virtual: VirtualEnvironment) -> None:
    begun = time.monotonic()
    try:
        size = place.cache.keep(place.key, virtual.directory)
    except (SpotkeepError, OSError) as error:
        events.emit("environment-not-cached", what=place.name, problem=str(error))
        return
    events.emit("environment-cached", what=place.name, seconds=round(time.monotonic() - begun, 3), bytes=size)


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
    command: tuple[str, ...] | str, source: Path | None, environment: Mapping[str, str], supervisor: Supervisor
) -> None:
    """Run the setup command unless this machine has run it.

    The mark lies with temporary files, on no volume that moves.
    """
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


def find_requirements(install: str, *, listed: tuple[str, ...], source: Path | None) -> Requirements | None:
    """Find the requirements of a job.

    Args:
        install: `auto` means `requirements.txt` at the source's root, else the dependencies in `pyproject.toml` there.
            Other values are `none`, and the path of a requirements file in the source.
        listed: The requirements themselves. They take the place of `install`.
        source: The unpacked source. None where the image holds it.

    Returns:
        None where nothing is to be installed.

    Raises:
        InstallError: If a file cannot be read, or is none of the source.
    """
    if listed:
        return Requirements(named="the job file", text="\n".join(listed) + "\n")
    if install == NO_INSTALLATION or (install == AUTO and source is None):
        return None
    if source is None:
        raise InstallError(
            f"install names the file {install!r}, and the job has no source; give a list of requirements"
        )
    if install != AUTO:
        return _from_file(_inside(source, install), named=install)
    if (source / _REQUIREMENTS).is_file():
        return _from_file(source / _REQUIREMENTS, named=_REQUIREMENTS)
    if (source / _PROJECT).is_file():
        return _from_project(source / _PROJECT)
    return None


def _inside(source: Path, name: str) -> Path:
    path = (source / name).resolve()
    if source.resolve() not in path.parents or not path.is_file():
        raise InstallError(
            f"install names {name!r}, which is no file of the source: give a path from the source's root"
        )
    return path


def _from_file(path: Path, *, named: str) -> Requirements | None:
    text = _text_of(path)
    lines = (line.strip() for line in text.splitlines())
    return Requirements(named=named, text=text, file=path) if any(line and line[0] != "#" for line in lines) else None


def _from_project(path: Path) -> Requirements | None:
    """Give the dependencies in the table `[project]`.

    The project itself is not built, for the script runs in its source.

    Raises:
        InstallError: If there are dependencies that cannot be known without a build.
    """
    project = _toml(_text_of(path)).get("project")
    if not isinstance(project, Mapping):
        return None
    if "dependencies" in (project.get("dynamic") or ()):
        raise InstallError(
            f"the dependencies in {_PROJECT} are dynamic: write them into {_REQUIREMENTS}, or give install: none"
        )
    listed = project.get("dependencies") or []
    if not isinstance(listed, list) or not all(isinstance(each, str) and "\n" not in each for each in listed):
        raise InstallError(f"the dependencies in {_PROJECT} are no list of texts; correct them, or give install: none")
    return Requirements(named=_PROJECT, text="\n".join(listed) + "\n") if listed else None


def _toml(text: str) -> dict[str, Any]:
    for name in ("tomllib", "pip._vendor.tomli"):
        try:
            reader = importlib.import_module(name)
        except ImportError:
            continue  # Python has tomllib from 3.11 on; pip brings a reader for those before
        try:
            document: dict[str, Any] = reader.loads(text)
        except (ValueError, RecursionError) as error:
            raise InstallError(f"{_PROJECT} cannot be read: {error}; correct it, or give install: none") from error
        return document
    raise InstallError(
        f"{_PROJECT} cannot be read: this Python has neither tomllib nor pip; write the dependencies into "
        f"{_REQUIREMENTS}, or give install: none"
    )


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_TEXT_BYTES + 1)
        if len(raw) > _MAX_TEXT_BYTES:
            raise InstallError(
                f"{path.name} has more than {_MAX_TEXT_BYTES:,} bytes: name the packages that the script imports"
            )
        return raw.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise InstallError(f"{path.name} cannot be read: {error}; save it as UTF-8 text") from error
