"""The program in place of `mount`, on a host without mounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotkeep_local.hosts.mount import main

SOURCE = "fs-0fedcba9876543210.efs.us-east-1.amazonaws.com:"


def mounted(folder: Path, path: str) -> tuple[int, Path]:
    point = folder / "point"
    point.mkdir()
    folder.joinpath("file-systems").mkdir(exist_ok=True)
    return main([str(folder / "file-systems"), "-t", "nfs4", "-o", "rw", f"{SOURCE}{path}", str(point)]), point


@pytest.fixture(autouse=True)
def relocated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOTKEEP_LOCAL_INSTANCE_ROOT", str(tmp_path))


def test_the_root_of_a_new_efs_is_there_and_another_directory_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """EFS makes the root alone."""
    code, point = mounted(tmp_path, "/")
    assert (code, list(point.resolve().iterdir())) == (0, [])
    point.unlink()
    assert mounted(tmp_path, "/runs")[0] != 0
    assert "No such file or directory" in capsys.readouterr().err
