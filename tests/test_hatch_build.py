"""What is compiled: in every wheel, of the same bytes wherever it is built, and in this checkout as its source says."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LEFT_OUT = ("examples/", "findings/", "tests/")
"""Folders that no wheel needs."""
PAGES = "spotkeep_constructs/files/docs/"
LIBRARIES = [f"spotkeep/native/copy_and_add-linux-{architecture}.so" for architecture in ("aarch64", "x86_64")]


@pytest.mark.long
def test_a_wheel_holds_the_libraries_that_this_checkout_has(tmp_path: Path) -> None:
    checkout, wheels = tmp_path / "elsewhere", tmp_path / "wheels"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in listed.strip("\0").split("\0"):
        if not name.startswith(LEFT_OUT):
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, checkout / name)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    ended = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    (wheel,) = wheels.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        assert sorted(name for name in archive.namelist() if name.endswith(".so")) == LIBRARIES
        for name in LIBRARIES:
            assert archive.read(name) == (ROOT / "training" / name).read_bytes(), "run: make setup"
        pages = {name.rpartition("/")[2] for name in archive.namelist() if name.startswith(PAGES)}
        assert pages == {path.name for path in (ROOT / "docs").glob("*.md")}
