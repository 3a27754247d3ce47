"""The first step after `make` makes the others work, and rehearsals at one time write to a directory each."""

from pathlib import Path

import pytest

from spotkeep_cli.rehearsal.command import activation, own_directory


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A checkout after `make setup`."""
    programs = tmp_path / "a clone" / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("spotkeep", "activate"):
        (programs / name).touch(mode=0o755)
    return tmp_path / "a clone"


@pytest.mark.parametrize(
    "environment",
    [{"MAKELEVEL": "1", "PATH": "{programs}:/usr/bin"}, {"PATH": "/nowhere"}],
    ids=["after make", "named by its path"],
)
def test_in_a_clone_the_environment_is_activated_first(clone: Path, environment: dict[str, str]) -> None:
    found = {name: value.format(programs=clone / ".venv/bin") for name, value in environment.items()}
    [step] = activation(environment=found, prefix=clone / ".venv", directory=clone)
    assert step.command == "source .venv/bin/activate"


def test_from_another_folder_the_whole_path_is_given(clone: Path, tmp_path: Path) -> None:
    [step] = activation(environment={"PATH": "/nowhere"}, prefix=clone / ".venv", directory=tmp_path / "project")
    assert step.command == f"source '{clone}/.venv/bin/activate'"


def test_nothing_is_said_where_the_shell_finds_spotkeep(clone: Path, tmp_path: Path) -> None:
    prefix = clone / ".venv"
    linked = tmp_path / "bin"
    linked.mkdir()
    (linked / "spotkeep").symlink_to(prefix / "bin" / "spotkeep")
    for environment in (
        {"VIRTUAL_ENV": str(prefix), "MAKELEVEL": "1"},
        {"PATH": f"{prefix}/bin:/nowhere"},
        {"PATH": str(linked)},
    ):
        assert activation(environment=environment, prefix=prefix, directory=clone) == []


def test_nothing_is_said_where_there_is_nothing_to_activate(tmp_path: Path) -> None:
    assert activation(environment={"PATH": "/nowhere"}, prefix=tmp_path, directory=tmp_path) == []


def test_rehearsals_at_one_time_have_a_directory_each_and_the_next_one_has_the_usual_one(tmp_path: Path) -> None:
    usual = tmp_path / "rehearsal"
    with own_directory(usual) as first, own_directory(usual) as second, own_directory(usual) as third:
        assert (first, second, third) == (usual, usual / "2", usual / "3")
    with own_directory(usual) as again:
        assert again == usual
