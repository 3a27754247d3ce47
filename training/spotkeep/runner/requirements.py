"""What a script needs beside its image: found in the source, or listed in the job file. Installs nothing."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spotkeep.errors import InstallError
from spotkeep_fleet.training_spec import NO_INSTALLATION

AUTO = "auto"

_FILE = "requirements.txt"
_PROJECT = "pyproject.toml"
_MAX_BYTES = 2**20
_OTHER_FILES = re.compile(r"^\s*(-(?!-hash)|[./~])|file:|@\s*[./]", re.MULTILINE)
"""An option (`-r`, `-c`, `-e`, `--find-links`), or a path: what is installed is not in the text alone."""


@dataclass(frozen=True)
class Requirements:
    """What pip is to install.

    Attributes:
        named: Where it was found, for people: a file of the source, or the job file.
        text: As a requirements file has it.
        file: That file; None where the text is in no file yet.
    """

    named: str
    text: str
    file: Path | None = None

    @property
    def reads_other_files(self) -> bool:
        """Whether the text names files, of which it does not say what is in them."""
        return _OTHER_FILES.search(self.text) is not None


def find_requirements(install: str, *, listed: tuple[str, ...], source: Path | None) -> Requirements | None:
    """Find what a job asks for.

    Args:
        install: `auto`: `requirements.txt` at the source's root, else the dependencies in `pyproject.toml` there;
            `none`; or the path of a requirements file in the source.
        listed: The requirements themselves; they go before `install`.
        source: The unpacked source; None of a job whose image holds it.

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
    if (source / _FILE).is_file():
        return _from_file(source / _FILE, named=_FILE)
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
    """Give what the table `[project]` says. The project itself is not built: the script runs in its source.

    Raises:
        InstallError: If there is something to install, and it cannot be known without a build.
    """
    project = _toml(_text_of(path)).get("project")
    if not isinstance(project, Mapping):
        return None
    if "dependencies" in (project.get("dynamic") or ()):
        raise InstallError(
            f"the dependencies in {_PROJECT} are dynamic: write them into {_FILE}, or give install: none"
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
        f"{_PROJECT} cannot be read: this Python has neither tomllib nor pip; write the dependencies into {_FILE}, or "
        "give install: none"
    )


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            raise InstallError(
                f"{path.name} has more than {_MAX_BYTES:,} bytes: name the packages that the script imports"
            )
        return raw.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise InstallError(f"{path.name} cannot be read: {error}; save it as UTF-8 text") from error
