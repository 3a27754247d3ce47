"""The public surface: what a training script may rely on."""

from __future__ import annotations

import inspect
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import spotkeep
from spotkeep import errors

ROOT = Path(__file__).parents[2]


def test_the_exported_names_are_these_and_all_exist():
    assert set(spotkeep.__all__) == {
        *("Checkpointer", "Epoch", "EXIT_INTERRUPTED", "__version__"),
        *("report_progress", "report_resumed", "report_saved"),
        *("SpotkeepError", "UsageError", "CheckpointError", "StateError", "StateMismatchError"),
        *(
            "DamagedCheckpointError",
            "MissingCheckpointError",
            "MissingLibraryError",
            "MixedStateError",
            "RandomStates",
            "ResumableLoader",
            "ResumableTraining",
            "NewerFormatError",
            "RemoteError",
            "SaveError",
        ),
        *("OtherRankError", "RankLostError", "WorldSizeError"),
        *("Best", "GlobalBatches", "InterruptionOutlook"),
    }
    assert all(hasattr(spotkeep, name) for name in spotkeep.__all__)


def test_the_version_is_that_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert spotkeep.__version__ == project["version"]


@pytest.mark.parametrize(
    ("module", "packages"), [("spotkeep", ["spotkeep"]), ("spotkeep.__main__", ["spotkeep", "spotkeep_fleet"])]
)
def test_importing_it_imports_the_standard_library_and_nothing_else_of_ours(module, packages):
    """A job's entry point reads the training spec, which the launcher has written."""
    program = (
        f"import sys; sys.path.insert(0, sys.argv[1]); import {module}; "
        "outside = {name.split('.')[0] for name in sys.modules} - set(sys.stdlib_module_names) - {'__main__'}; "
        "print(*sorted(outside))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(ROOT / "training")], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == packages


def test_the_error_tree_in_the_docstring_is_the_tree_of_the_classes():
    drawn = [line.lstrip("│├└─ ").split()[0] for line in (errors.__doc__ or "").split("```")[1].strip().splitlines()]
    defined = [name for name, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__]
    assert sorted(drawn) == sorted(defined)
    assert all(issubclass(getattr(errors, name), errors.SpotkeepError) for name in defined)
