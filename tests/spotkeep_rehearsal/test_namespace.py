"""The mounts of a rehearsed machine are seen by its command alone, and every write goes to a layer of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spotkeep_rehearsal import namespace


def enter(
    tmp_path: Path, code: str, *, binds: list[list[str]] | None = None, emptied: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    for name in ("lower", "upper", "work"):
        (tmp_path / name).mkdir(exist_ok=True)
    overlay = {name: str(tmp_path / name) for name in ("lower", "upper", "work")}
    specification = {
        "binds": binds or [],
        "overlay": overlay,
        "emptied": list(emptied),
        "directory": str(tmp_path / "lower"),
    }
    ended = subprocess.run(
        [sys.executable, "-I", "-S", namespace.__file__, json.dumps(specification), "--", sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode == namespace.FAILED and not binds:
        pytest.skip(f"this machine allows no mounts: {ended.stderr}")
    return ended


def test_a_write_and_a_removal_go_to_the_layer_and_nothing_is_mounted_here(tmp_path: Path) -> None:
    (tmp_path / "lower").mkdir()
    (tmp_path / "lower" / "old").write_text("old", encoding="ascii")
    ended = enter(tmp_path, "import os; print(open('old').read()); os.remove('old'); open('new', 'w').write('new')")
    assert (ended.returncode, ended.stdout) == (0, "old\n"), ended.stderr
    assert [path.name for path in (tmp_path / "lower").iterdir()] == ["old"]
    assert (tmp_path / "upper" / "new").read_text(encoding="ascii") == "new"
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text(encoding="utf-8")


def test_what_is_emptied_is_an_own_folder_also_where_a_link_led_elsewhere(tmp_path: Path) -> None:
    outside, lower = tmp_path / "outside", tmp_path / "lower"
    for path in (outside, lower / "old"):
        path.mkdir(parents=True)
        (path / "kept").touch()
    (lower / "link").symlink_to(outside)
    (lower / "file").touch()
    code = "import os; print(os.listdir('old'), os.listdir('link'), os.path.exists('file')); open('link/new', 'w')"
    ended = enter(tmp_path, code, emptied=("old", "link", "file", "absent"))
    assert (ended.returncode, ended.stdout) == (0, "[] [] False\n"), ended.stderr
    assert [path.name for path in outside.iterdir()] == ["kept"]
    assert (lower / "old" / "kept").exists()


def test_mounts_that_are_not_possible_end_with_a_code_of_their_own(tmp_path: Path) -> None:
    ended = enter(tmp_path, "", binds=[[str(tmp_path / "nowhere"), "/no-such-folder-at-all/here"]])
    assert ended.returncode == namespace.FAILED
    assert "no mounts of its own" in ended.stderr
