"""The contract with ministack's internals: it fails here, and says what moved, the day one of them does.

What each seam does is shown where a local AWS runs: its services answer, functions and stacks act as AWS's do.
"""

from __future__ import annotations

import ast
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SEAMS = Path(__file__).parents[2] / "local/spotkeep_local/ministack_seams.py"
SCRIPT = """
import importlib, json, sys
from spotkeep_local import ministack_seams as seams
from spotkeep_local.errors import IncompatibleMinistackError

seams.check()
seams.EXPECTED_VERSION = "9"
try:
    seams.check()
except IncompatibleMinistackError as error:
    refusal = str(error)
used = json.loads(sys.argv[1])
gone = [f"{module}.{name}" for module, name in used if not hasattr(importlib.import_module(module), name)]
print(json.dumps({"refusal": refusal, "gone": gone}))
"""


def names_used() -> list[tuple[str, str]]:
    """The names of ministack's that `ministack_seams` uses, each with its module."""
    tree = ast.parse(SEAMS.read_text())
    modules = {
        name.asname or name.name: f"{imported.module}.{name.name}"
        for imported in ast.walk(tree)
        if isinstance(imported, ast.ImportFrom) and (imported.module or "").startswith("ministack")
        for name in imported.names
    }
    return [
        (modules[used.value.id], used.attr)
        for used in ast.walk(tree)
        if isinstance(used, ast.Attribute) and isinstance(used.value, ast.Name) and used.value.id in modules
    ]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process of its own finds: importing ministack reads the environment and configures logging."""
    state_dir = tmp_path_factory.mktemp("ministack")
    environment = {
        "PERSIST_STATE": "1",
        "STATE_DIR": str(state_dir),
        "S3_DATA_DIR": str(state_dir / "objects"),
        "DOCKER_HOST": f"unix://{state_dir}/none",
        "TMPDIR": str(state_dir),
        "LOG_LEVEL": "ERROR",
    }
    command = [sys.executable, "-c", SCRIPT, json.dumps(names_used())]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_the_installed_ministack_is_the_one_we_extend_and_another_is_refused(found: dict[str, Any]) -> None:
    installed = importlib.metadata.version("ministack")
    assert f"but the version is {installed}. Install ministack==9 (`make setup`), or adapt" in found["refusal"]


def test_each_name_of_ministack_that_is_used_is_there(found: dict[str, Any]) -> None:
    """A name that is replaced and was not there before would change nothing, in silence."""
    assert len(names_used()) > 30
    assert found["gone"] == []
