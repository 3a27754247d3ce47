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

SEAMS = Path(__file__).parents[3] / "local/spotkeep_local/ministack"
SCRIPT = """
import asyncio, importlib, json, sys
from spotkeep_local.ministack import application, cloudformation, ec2 as our_ec2
from spotkeep_local.errors import IncompatibleMinistackError
from ministack.services import ec2
from ministack.services.cloudformation import stacks

application.check()
application.EXPECTED_VERSION = "9"
try:
    application.check()
except IncompatibleMinistackError as error:
    refusal = str(error)
used = json.loads(sys.argv[1])
gone = [f"{module}.{name}" for module, name in used if not hasattr(importlib.import_module(module), name)]

prepared = []
async def theirs(*request): return "answered"
application.replace_handler("cloudformation", theirs)
application.on_first_request("cloudformation", lambda: prepared.append("prepared"))
answers = [asyncio.run(application.handler_of("cloudformation")("GET", "/", {}, b"", {})) for _ in range(2)]

types = ["AWS::Test::Thing", "AWS::Test::Other"]
for name in types:
    cloudformation.add_resource_type(name, create=None, update=None, delete=None)
may_block = [name for name in (*types, "AWS::S3::Bucket") if stacks._runs_on_worker_thread(name)]

ec2._create_launch_template({"LaunchTemplateName": ["t"], "LaunchTemplateData.ImageId": ["ami-1"]})
named = [our_ec2.launch_template(template_id=None, name=name) for name in ("t", "other")]
found = {"refusal": refusal, "gone": gone, "prepared": prepared, "answers": answers, "may_block": may_block}
print(json.dumps({**found, "named": [template and template["LaunchTemplateName"] for template in named]}))
"""


def names_used() -> list[tuple[str, str]]:
    """The names of ministack's that our package uses, each with its module."""
    return [name for seams in sorted(SEAMS.glob("*.py")) for name in names_used_in(ast.parse(seams.read_text()))]


def names_used_in(tree: ast.Module) -> list[tuple[str, str]]:
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


def test_what_is_slow_is_done_before_the_first_request_and_once(found: dict[str, Any]) -> None:
    assert (found["prepared"], found["answers"]) == (["prepared"], ["answered", "answered"])


def test_making_a_type_of_resource_that_we_add_may_block(found: dict[str, Any]) -> None:
    assert found["may_block"] == ["AWS::Test::Thing", "AWS::Test::Other"]


def test_a_launch_template_is_found_by_its_name(found: dict[str, Any]) -> None:
    assert found["named"] == ["t", None]
