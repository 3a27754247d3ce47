"""What is compiled: in every wheel, of the same bytes wherever it is built, and in this checkout as its source says."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ("training", "lambda", "cli", "local", "planner")
LIBRARIES = [f"spotkeep/native/copy_and_add-linux-{architecture}.so" for architecture in ("aarch64", "x86_64")]


@pytest.mark.long
def test_a_wheel_holds_the_libraries_that_this_checkout_has(tmp_path: Path) -> None:
    checkout, wheels = tmp_path / "elsewhere", tmp_path / "wheels"
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "NOTICE", ".gitignore"):
        checkout.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, checkout)
    for name in SOURCES:
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    ended = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    (wheel,) = wheels.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        assert sorted(name for name in archive.namelist() if name.endswith(".so")) == LIBRARIES
        for name in LIBRARIES:
            assert archive.read(name) == (ROOT / "training" / name).read_bytes(), "run: make setup"
