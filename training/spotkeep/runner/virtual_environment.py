"""The virtual environment with a script's packages, on top of the image's Python, which stays unchanged.

It has no pip of its own. A `.pth` file shows it the packages of the image, so these are not installed again. That works
where the image's Python is itself a virtual environment, or conda's. There `--system-site-packages` would show the
packages of the Python below.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from spotkeep.errors import InstallError

_MARK = "spotkeep-environment.json"
_PTH = "spotkeep-image.pth"
_BUILT_ANEW = frozenset({"pyvenv.cfg", "lib64", _MARK, "bin/python", "bin/python3"})
"""The files that belong to the image's Python, and the mark of a complete environment."""
_FORMAT = 1
_DESCRIBE = """
import importlib.metadata, importlib.util, json, os, sys, sysconfig
folders = [entry for entry in sys.path if os.path.basename(entry) in ("site-packages", "dist-packages")]
print(json.dumps({
    "version": sys.version.split()[0],
    "platform": sysconfig.get_platform(),
    "prefix": sys.prefix,
    "folders": [folder for folder in folders if os.path.isdir(folder)],
    "packages": sorted({f"{each.metadata['Name']}=={each.version}" for each in importlib.metadata.distributions()}),
    "pip": importlib.util.find_spec("pip") is not None,
}))
"""


@dataclass(frozen=True)
class ImagePython:
    """The Python of an image, and the packages that are installed for it.

    Attributes:
        executable: The interpreter.
        version: A version such as `3.12.4`.
        platform: A platform such as `linux-x86_64`.
        prefix: The directory in which it is installed.
        folders: The directories of its packages.
        packages: Their names and versions, such as `numpy==2.1.0`.
        pip: True if pip is among them.
    """

    executable: str
    version: str
    platform: str
    prefix: str
    folders: tuple[str, ...]
    packages: tuple[str, ...]
    pip: bool


def describe_image(environment: Mapping[str, str]) -> ImagePython:
    """Ask the image's Python for its version and packages. It is the command's `python`, else `python3`.

    Raises:
        InstallError: If there is none, or it does not answer.
    """
    path = environment.get("PATH")
    executable = shutil.which("python", path=path) or shutil.which("python3", path=path)
    if executable is None:
        raise InstallError("there is no python on PATH to install for: use an image that has one, or install: none")
    done = subprocess.run(
        [executable, "-c", _DESCRIBE], env=dict(environment), capture_output=True, text=True, check=False
    )
    try:
        found = json.loads(done.stdout)
        return ImagePython(
            executable=executable,
            version=found["version"],
            platform=found["platform"],
            prefix=found["prefix"],
            folders=tuple(found["folders"]),
            packages=tuple(found["packages"]),
            pip=found["pip"],
        )
    except (ValueError, KeyError, TypeError) as error:
        said = done.stderr.strip()[-500:]
        raise InstallError(
            f"{executable} does not say what it has installed; Python 3.9 or later does: {said}"
        ) from error


class VirtualEnvironment:
    """The virtual environment at one place.

    Args:
        directory: The environment's directory, which may not exist yet. Scripts in it name this path.
        image: The Python below it.
    """

    def __init__(self, directory: Path, *, image: ImagePython) -> None:
        self.directory = directory
        self._image = image

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.directory / "bin" / "python"

    def key(self, text: str, *, pin: str | None) -> str:
        """Give the hash of everything that decides the environment's content.

        Args:
            text: The requirements.
            pin: The pin of the source, where the text names files of it.
        """
        image = self._image
        decisive = [
            _FORMAT,
            text,
            pin,
            image.version,
            image.platform,
            image.prefix,
            image.packages,
            str(self.directory),
        ]
        return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()

    def is_complete(self, key: str) -> bool:
        """Tell if the whole environment of this key is there."""
        try:
            found = json.loads((self.directory / _MARK).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return found == {"key": key} and self.python.exists()

    def create(self) -> None:
        """Make it anew, with nothing in it.

        Raises:
            InstallError: If the image's Python cannot make one.
        """
        self.clear()
        self.lay_under()

    def clear(self) -> None:
        """Leave an empty directory."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir()

    def lay_under(self) -> None:
        """Make the files that belong to the image's Python, beside the files in the directory.

        Raises:
            InstallError: If the image's Python cannot make one.
        """
        command = [self._image.executable, "-m", "venv", "--without-pip", str(self.directory)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        major, minor = self._image.version.split(".")[:2]
        packages = self.directory / "lib" / f"python{major}.{minor}" / "site-packages"
        if done.returncode or not packages.is_dir():
            said = (done.stderr.strip() or done.stdout.strip())[-500:]
            raise InstallError(
                f"{self._image.executable} cannot make a virtual environment in {self.directory}: {said}; use an image "
                "whose Python has the module venv, or give install: none"
            )
        # `addsitedir` heeds the .pth files there as well, which a folder that is merely named would not get.
        lines = [f"import site; site.addsitedir({folder!r})\n" for folder in self._image.folders]
        (packages / _PTH).write_text("".join(lines), encoding="utf-8")

    def mark_complete(self, key: str) -> None:
        """Mark the environment as complete. The mark is written last."""
        (self.directory / _MARK).write_text(json.dumps({"key": key}), encoding="utf-8")

    def activated(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Give the environment of a command that finds this Python and its packages before the image's."""
        path = [str(self.directory / "bin"), *filter(None, [environment.get("PATH")])]
        kept = {name: value for name, value in environment.items() if name != "PYTHONHOME"}
        return {**kept, "PATH": os.pathsep.join(path), "VIRTUAL_ENV": str(self.directory)}


def pack(directory: Path, tar: tarfile.TarFile, *, go_on: Callable[[], None]) -> None:
    """Write the installed files into an archive. `lay_under` makes the rest again around them.

    Args:
        directory: The directory of the environment.
        tar: The archive, open for writing.
        go_on: Called before each file. Raises to leave.

    Raises:
        OSError: If the disk refuses.
    """
    for path in installed_paths(directory):
        go_on()
        tar.add(path, arcname=str(path.relative_to(directory)), recursive=False)


def installed_paths(directory: Path) -> Iterator[Path]:
    """Give the installed paths, a directory before its content. Byte code is left out, for Python makes it again."""
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if name in _BUILT_ANEW or name.startswith("bin/python3.") or "__pycache__" in path.parts:
            continue
        yield path
