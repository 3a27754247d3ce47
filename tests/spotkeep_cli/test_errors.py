"""Exit codes are documented, each error has its own."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import spotkeep_cli
from spotkeep_cli import errors
from spotkeep_cli.errors import CommandLineError, ExitCode

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(autouse=True, scope="module")
def every_module() -> None:
    """An error is known once its module is imported."""
    for module in walk_packages(spotkeep_cli.__path__, "spotkeep_cli."):
        import_module(module.name)


def every_error(root: type[CommandLineError] = CommandLineError) -> list[type[CommandLineError]]:
    return [root, *(found for child in root.__subclasses__() for found in every_error(child))]


def test_every_exit_code_is_documented() -> None:
    text = (REPOSITORY / "docs" / "command-line.md").read_text()
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", text, flags=re.MULTILINE)}
    assert documented == {*map(int, ExitCode), 130}


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = dict(re.findall(r"(\w+Error)\s+(\d+)  ", errors.__doc__ or ""))
    public = {
        error.__name__: str(int(error.exit_code)) for error in every_error() if not error.__name__.startswith("_")
    }
    assert drawn == public


def test_an_error_that_is_not_documented_does_not_exist() -> None:
    assert {error.exit_code for error in every_error()} | {ExitCode.DONE} == set(ExitCode)
