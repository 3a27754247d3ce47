"""The caller's world, in which a rehearsed command runs. Pure but for looking up programs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_ENVIRONMENTS = (".venv", "venv")
_PYTHON = re.compile(r"python[\d.]*")
_MOST_FIRST_LINE_BYTES = 1_024
_LONGEST_QUESTION_SECONDS = 30.0
_QUESTION = "import importlib.util, sys; print(sys.executable, importlib.util.find_spec('spotkeep') is not None)"


def caller_environment(
    environment: Mapping[str, str], *, folder: Path, prefix: Path = Path(sys.prefix)
) -> dict[str, str]:
    """Return the environment of the caller's own shell.

    uvx puts the environment that Spotkeep runs in first on PATH, and so does each tool that uvx runs. The command is
    not to run in one of these. The active virtual environment comes first, or the one in the folder. An environment on
    PATH that is not active stays there. Many images of containers set PATH alone.

    Args:
        environment: The environment of this process.
        folder: The caller's folder.
        prefix: The environment that Spotkeep runs in.
    """
    caller = dict(environment)
    active = caller.get("VIRTUAL_ENV")
    own = _same(prefix, active) and _is_of_a_tool(prefix)
    if own or (active is not None and _is_ephemeral(active)):
        active = caller.pop("VIRTUAL_ENV", None) and None
    path = [entry for entry in caller.get("PATH", os.defpath).split(os.pathsep) if entry and not _is_ephemeral(entry)]
    if _is_of_a_tool(prefix):
        path = [entry for entry in path if not _same(prefix / "bin", entry)]
    first = next((folder / name for name in _ENVIRONMENTS if (folder / name / "pyvenv.cfg").is_file()), None)
    if active is None and first is not None:
        active = caller["VIRTUAL_ENV"] = str(first)
    if active is not None:
        programs = str(Path(active) / "bin")
        path = [programs, *(entry for entry in path if entry != programs)]
    caller["PATH"] = os.pathsep.join(path)
    caller.pop("__PYVENV_LAUNCHER__", None)
    return caller


def _is_of_a_tool(prefix: Path) -> bool:
    """Return True for an environment that uv or pipx made for this program."""
    parts = set(prefix.parts)
    return _is_ephemeral(prefix) or "pipx" in parts or {"uv", "tools"} <= parts


def _is_ephemeral(path: str | Path) -> bool:
    """Return True for a path in an environment that uvx made in its cache."""
    return any(part.startswith(("archive-v", "environments-v")) for part in Path(path).parts)


def _same(one: Path, other: str | None) -> bool:
    if not other:
        return False
    # A virtual environment's Python is a link to another, so the folder is compared and not the program.
    return os.path.realpath(one) == os.path.realpath(other)


def interpreter_of(words: Sequence[str], *, path: str, folder: Path) -> str | None:
    """Return the Python that a command runs with. None where none is found.

    Args:
        words: The command.
        path: The PATH of the command.
        folder: The directory in which it runs.
    """
    for word in words:
        name = Path(word).name
        found = shutil.which(str(folder / word) if os.sep in word else word, path=path)
        if found is None:
            continue
        if _PYTHON.fullmatch(name):
            return found
        if (python := _first_line(found)) is not None:
            return python if os.sep in python else shutil.which(python, path=path)
    return shutil.which("python3", path=path) or shutil.which("python", path=path)


def _first_line(program: str) -> str | None:
    """Return the Python in the first line of a program such as torchrun."""
    try:
        with open(program, "rb") as file:  # noqa: PTH123 - it has a bound
            line = file.readline(_MOST_FIRST_LINE_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return None
    words = shlex.split(line[2:]) if line.startswith("#!") and "'" not in line else []
    python = [word for word in words if _PYTHON.fullmatch(Path(word).name)]
    return python[0] if python else None


def asked_of(interpreter: str, *, environment: Mapping[str, str], folder: Path) -> tuple[str, bool]:
    """Return the path of the Python behind a program, and True if `import spotkeep` works in it.

    A program such as pyenv's shim starts another one, and needs the caller's environment for that.
    """
    try:
        asked = subprocess.run(
            [interpreter, "-c", _QUESTION],
            env=dict(environment),
            cwd=folder,
            capture_output=True,
            timeout=_LONGEST_QUESTION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return interpreter, False
    path, _, found = asked.stdout.decode("utf-8", "replace").strip().rpartition(" ")
    return (path, found == "True") if path else (interpreter, False)


def rewritten(text: str, places: Mapping[str, str]) -> str:
    """Return a text in which paths stand for others.

    Args:
        text: An argument, or the value of a variable.
        places: The new path, by the old one.
    """
    for old in sorted(places, key=len, reverse=True):
        text = re.sub(rf"(?<![\w/.-]){re.escape(old)}(?![\w.-])", lambda _, new=places[old]: new, text)  # type: ignore[misc]
    return text


def absolute_paths(words: Sequence[str]) -> list[str]:
    """Return the absolute paths in a command's arguments, `--output=/data/out` among them."""
    found = (word.rpartition("=")[2] if word.startswith("-") or "=" in word else word for word in words[1:])
    return [os.path.normpath(word) for word in found if word.startswith("/") and "\n" not in word]
