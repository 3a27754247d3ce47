"""After `make`, the first step is the one that makes the others work."""

from pathlib import Path

import pytest

from spotkeep_cli.shell_path import activation

CLONE = Path("/home/ada/spotkeep")
PREFIX = CLONE / ".venv"


def test_after_make_in_a_fresh_clone_the_environment_is_activated_first() -> None:
    [step] = activation(
        environment={"MAKELEVEL": "1", "PATH": f"{PREFIX}/bin:/usr/bin"}, prefix=PREFIX, directory=CLONE
    )
    assert step.command == "source .venv/bin/activate"


def test_so_it_is_where_the_command_was_named_by_its_path() -> None:
    [step] = activation(environment={"PATH": "/usr/bin"}, prefix=PREFIX, directory=CLONE)
    assert step.command == "source .venv/bin/activate"


@pytest.mark.parametrize(
    ("environment", "directory"),
    [
        pytest.param({"VIRTUAL_ENV": str(PREFIX), "MAKELEVEL": "1"}, CLONE, id="active"),
        pytest.param({"PATH": f"{PREFIX}/bin:/usr/bin"}, CLONE, id="on the PATH"),
        pytest.param({"PATH": "/usr/bin"}, Path("/home/ada/project"), id="an environment that is elsewhere"),
    ],
)
def test_nothing_is_said_where_the_shell_finds_spotkeep_or_it_lies_elsewhere(
    environment: dict[str, str], directory: Path
) -> None:
    assert activation(environment=environment, prefix=PREFIX, directory=directory) == []
