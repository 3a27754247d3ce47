"""Nothing is written outside the checkout: temporary files, caches and homes of all that starts lie in `.spotkeep`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STATE = ROOT / ".spotkeep"
BIN = Path(sys.prefix) / "bin"
NPM = 'node "$(dirname "$(readlink .venv/bin/node)")/../lib/node_modules/npm/bin/npm-cli.js"'
COMPILE_CACHE = "const m = require('module'); m.enableCompileCache(); console.log(m.getCompileCacheDir())"

sockets_need_a_shorter_path = pytest.mark.skipif(
    not Path(tempfile.gettempdir()).is_relative_to(STATE),
    reason="torch is installed, and the checkout's path is too long for the Unix sockets of its workers",
)


@sockets_need_a_shorter_path
def test_temporary_files_of_the_tests(tmp_path: Path) -> None:
    assert tmp_path.is_relative_to(STATE)
    assert Path(tempfile.gettempdir()).is_relative_to(STATE)


@sockets_need_a_shorter_path
@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "-c", "import tempfile; print(tempfile.gettempdir())"],
        [str(BIN / "node"), "-p", "os.tmpdir()"],
        [sys.executable, "-c", "import pathlib; print(pathlib.Path.home())"],
        [str(BIN / "node"), "-p", "os.homedir()"],
    ],
    ids=["of Python", "of Node", "in Python's home", "in Node's home"],
)
def test_files_of_what_the_tests_start(command: list[str]) -> None:
    said = subprocess.run(command, check=True, capture_output=True, text=True)
    assert Path(said.stdout.strip()).is_relative_to(STATE)


@sockets_need_a_shorter_path
def test_git_takes_none_of_them_for_a_part_of_the_repository(tmp_path: Path) -> None:
    found = subprocess.run(["git", "rev-parse"], cwd=tmp_path, capture_output=True, check=False)
    assert found.returncode == 128


@pytest.mark.skipif(shutil.which("make") is None, reason="no make on this machine")
@pytest.mark.parametrize(
    "command",
    [
        """python -c 'import tempfile; print(tempfile.mkdtemp())'""",
        """node -p 'fs.mkdtempSync(path.join(os.tmpdir(), "node-"))'""",
        f'node -e "{COMPILE_CACHE}"',
        "uv cache dir",
        "python -m pip --disable-pip-version-check cache dir",
        f"{NPM} config get cache",
    ],
    ids=["Python", "Node", "Node's compiled code", "uv", "pip", "npm"],
)
def test_make_has_every_tool_write_inside_the_checkout(command: str, tmp_path: Path) -> None:
    (STATE / "tmp").mkdir(exist_ok=True)
    bare = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    rule = f"probe:\n\t@{command.replace('$', '$$')}\n"
    said = subprocess.run(
        ["make", "-s", "-f", "Makefile", "-f", "-", "probe"],
        cwd=ROOT,
        env=bare,
        input=rule,
        check=True,
        capture_output=True,
        text=True,
    )
    place = Path(said.stdout.strip())
    assert place.is_relative_to(STATE)
    assert list(tmp_path.iterdir()) == []
    if place.is_relative_to(STATE / "tmp"):
        place.rmdir()
