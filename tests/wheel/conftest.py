"""The built wheel, and environments with it and nothing of the checkout. They need a package index or uv's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from uv import find_uv_bin

ROOT = Path(__file__).resolve().parents[2]
UV = find_uv_bin()
WITHOUT_CHECKOUT = "/usr/bin:/bin"
"""A PATH without the checkout's environment."""

pytestmark = pytest.mark.wheel


@dataclass(frozen=True)
class Built:
    """The files of one build."""

    wheel: Path
    sdist: Path


def build(directory: Path, *, project: Path = ROOT) -> Built:
    """Build both, without isolation, as the lock has the build's own packages."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(directory)]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    [wheel], [sdist] = directory.glob("*.whl"), directory.glob("*.tar.gz")
    return Built(wheel, sdist)


@pytest.fixture(scope="session")
def elsewhere() -> Iterator[Path]:
    """A folder outside of the checkout, whose `pyproject.toml` and `cdk.json` would else be found upwards."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="spotkeep-wheel-") as folder:
        yield Path(folder).resolve()


@pytest.fixture
def folder(elsewhere: Path) -> Path:
    """An empty folder there."""
    return Path(tempfile.mkdtemp(dir=elsewhere))


@pytest.fixture(scope="session")
def built(elsewhere: Path) -> Built:
    return build(elsewhere / "dist")


@dataclass(frozen=True)
class Installed:
    """A virtual environment with the wheel in it, in a home of its own."""

    prefix: Path
    home: Path

    @property
    def python(self) -> str:
        return str(self.prefix / "bin" / "python")

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of a person who has nothing else. uv's and npm's downloads are shared."""
        ours = ("AWS_", "CDK_", "JSII_", "NODE_COMPILE", "PYTEST", "PYTHON", "SPOTKEEP_", "VIRTUAL_ENV", "XDG_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours) and name != "TMPDIR"}
        npm = Path.home() / ".npmrc"
        return {
            **kept,
            **({"npm_config_userconfig": str(npm)} if npm.exists() else {}),
            "HOME": str(self.home),
            "PATH": f"{self.prefix / 'bin'}:{WITHOUT_CHECKOUT}",
            "COLUMNS": "200",
            **more,
        }

    def run(self, *words: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
        """Run `spotkeep`."""
        return self.program("spotkeep", *words, cwd=cwd, **more)

    def program(self, name: str, *words: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment."""
        return subprocess.run(
            [str(self.prefix / "bin" / name), *words],
            cwd=cwd,
            env=self.environment(**more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def install(self, *requirements: str) -> None:
        """Add packages, of the versions that the tests of the checkout run with."""
        command = [UV, "pip", "install", "--quiet", "--python", self.python, "-c", str(ROOT / "locks" / "dev.txt")]
        subprocess.run([*command, *requirements], check=True)

    def remove(self, package: str) -> None:
        """Remove a package."""
        subprocess.run([UV, "pip", "uninstall", "--quiet", "--python", self.python, package], check=True)


def environment(folder: Path, *, python: str = sys.executable) -> Installed:
    """Make an empty environment and an empty home in a folder."""
    subprocess.run([UV, "venv", "--quiet", "--python", python, str(folder / "env")], check=True)
    (folder / "home").mkdir()
    return Installed(folder / "env", folder / "home")


Install = Callable[..., Installed]


@pytest.fixture(scope="session")
def install(built: Built, elsewhere: Path) -> Install:
    """Make environments with the wheel. Those of the same Python and extras are made once."""
    made: dict[tuple[str, str], Installed] = {}

    def make(extras: str = "", *, python: str = sys.executable) -> Installed:
        if (python, extras) not in made:
            found = environment(Path(tempfile.mkdtemp(dir=elsewhere)), python=python)
            found.install(f"spotkeep{f'[{extras}]' if extras else ''} @ {built.wheel.as_uri()}")
            made[python, extras] = found
        return made[python, extras]

    return make


def interpreter(version: str) -> str:
    """Find an installed Python of a version, or skip the test."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [
        Path(f"/usr/bin/python{version}"),
        Path(f"/usr/local/bin/python{version}"),
        *sorted(pyenv.glob(f"{version}.*/bin/python")),
        *map(Path, filter(None, [shutil.which(f"python{version}")])),
    ]
    for candidate in candidates:
        if not candidate.exists():
            continue
        asked = [str(candidate), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        said = subprocess.run(asked, capture_output=True, text=True, check=False)
        if said.stdout.strip() == version:
            return str(candidate)
    pytest.skip(f"Python {version} is not installed here (looked in /usr/bin, /usr/local/bin, pyenv and PATH)")
