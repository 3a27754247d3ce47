"""A command runs in the caller's world, however Spotkeep itself was started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from spotkeep_rehearsal.world import absolute_paths, asked_of, caller_environment, interpreter_of, rewritten


def environment_in(folder: Path, name: str) -> Path:
    (folder / name / "bin").mkdir(parents=True)
    (folder / name / "pyvenv.cfg").touch()
    return folder / name


def path_of(environment: dict[str, str]) -> list[str]:
    return environment["PATH"].split(os.pathsep)


@pytest.mark.parametrize("sets_virtual_env", [False, True])
def test_the_environment_that_uvx_puts_first_is_left_out(tmp_path: Path, sets_virtual_env: bool) -> None:
    own = environment_in(tmp_path / "uv", "archive-v0")
    given = {"PATH": f"{own}/bin:/usr/bin", "PYTHONPATH": "/mine"} | (
        {"VIRTUAL_ENV": str(own)} if sets_virtual_env else {}
    )
    found = caller_environment(given, folder=tmp_path, prefix=own)
    assert path_of(found) == ["/usr/bin"]
    assert found["PYTHONPATH"] == "/mine"
    assert "VIRTUAL_ENV" not in found


def test_environments_of_tools_that_uvx_ran_are_left_out_too(tmp_path: Path) -> None:
    other = environment_in(tmp_path / "uv" / "archive-v0", "of-another-tool")
    given = {"PATH": f"{other}/bin:/usr/bin", "VIRTUAL_ENV": str(other)}
    found = caller_environment(given, folder=tmp_path, prefix=tmp_path / "pipx" / "own")
    assert path_of(found) == ["/usr/bin"]
    assert "VIRTUAL_ENV" not in found


def test_an_active_environment_stays_first_also_where_it_has_spotkeep(tmp_path: Path) -> None:
    own = environment_in(tmp_path, "mine")
    given = {"PATH": f"/usr/bin:{own}/bin", "VIRTUAL_ENV": str(own)}
    found = caller_environment(given, folder=tmp_path, prefix=own)
    assert path_of(found) == [f"{own}/bin", "/usr/bin"]


def test_an_environment_that_path_alone_names_stays_there_also_where_it_has_spotkeep(tmp_path: Path) -> None:
    """Images of containers set PATH, and activate nothing."""
    own = environment_in(tmp_path, "mine")
    found = caller_environment({"PATH": f"{own}/bin:/usr/bin"}, folder=tmp_path, prefix=own)
    assert path_of(found) == [f"{own}/bin", "/usr/bin"]


def test_the_environment_in_the_folder_is_used_where_none_is_active(tmp_path: Path) -> None:
    project = environment_in(tmp_path, ".venv")
    found = caller_environment({"PATH": "/usr/bin"}, folder=tmp_path, prefix=Path("/usr"))
    assert path_of(found) == [f"{project}/bin", "/usr/bin"]
    assert found["VIRTUAL_ENV"] == str(project)


def test_pipx_leaves_path_as_it_is(tmp_path: Path) -> None:
    own = environment_in(tmp_path, "pipx")
    found = caller_environment({"PATH": "/home/me/.local/bin:/usr/bin"}, folder=tmp_path, prefix=own)
    assert path_of(found) == ["/home/me/.local/bin", "/usr/bin"]


def test_the_python_of_a_command_is_its_own_word_or_that_of_its_first_line(tmp_path: Path) -> None:
    launcher = tmp_path / "torchrun"
    launcher.write_text(f"#!{sys.executable}\n")
    launcher.chmod(0o755)
    assert interpreter_of([sys.executable, "train.py"], path=os.defpath, folder=tmp_path) == sys.executable
    assert interpreter_of(["torchrun", "train.py"], path=str(tmp_path), folder=tmp_path) == sys.executable
    assert interpreter_of(["bash", "run.sh"], path=str(tmp_path), folder=tmp_path) is None


def test_a_python_is_asked_for_its_place_and_for_spotkeep(tmp_path: Path) -> None:
    assert asked_of(sys.executable, environment=dict(os.environ), folder=tmp_path)[0] == sys.executable
    assert asked_of("/nowhere/python", environment={}, folder=tmp_path) == ("/nowhere/python", False)


def test_paths_are_rewritten_as_wholes_the_longest_first() -> None:
    places = {"/data/out": "/a", "/data": "/b"}
    assert rewritten("--dir=/data/out/x:/data:/data2:/my/data", places) == "--dir=/a/x:/b:/data2:/my/data"


def test_the_absolute_paths_of_a_command_are_found_in_its_options() -> None:
    assert absolute_paths(["/usr/bin/python", "t.py", "/in", "--out=/out/", "lr=/3", "a/b"]) == ["/in", "/out", "/3"]
