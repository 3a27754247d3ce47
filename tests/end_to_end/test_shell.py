"""`spotkeep shell` on the deployed app, up to the plugin, which is a stand-in here: a session in a training job.

`test_drill` opens one on an instance.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spotkeep_jobs.record.states import RunState
from spotkeep_local.control import permissions
from tests.permissions.control import missed, withhold
from tests.permissions.withheld import WithheldGrant

if TYPE_CHECKING:
    from conftest import DeployedApp

pytestmark = pytest.mark.long

_PLUGIN = """\
#!/bin/sh
if [ "$1" = --version ]; then echo 1.2.764.0; exit; fi
session=$AWS_SSM_START_SESSION_RESPONSE
printf '{"variable": "%s", "operation": "%s", "parameters": %s, "session": %s}\\n' "$1" "$3" "$5" "$session"
"""


def make_plugin(folder: Path) -> Path:
    """Make a `session-manager-plugin` that prints what it was called with, alone in its folder."""
    program = folder / "bin" / "session-manager-plugin"
    program.parent.mkdir()
    program.write_text(_PLUGIN)
    program.chmod(0o755)
    return program


def shell(app: DeployedApp, plugin: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).parent / "spotkeep"), "--local", "shell", *arguments],
        env={
            **os.environ,
            "PATH": f"{plugin.parent}:{os.environ['PATH']}",
            "SPOTKEEP_LOCAL_STATE": str(app.state_dir),
            "NO_COLOR": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )


def opened(ended: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return dict(json.loads(ended.stdout.splitlines()[0]))


def opens(app: DeployedApp, run: str) -> bool:
    """Ask the launcher for a shell that runs a command; say whether one was opened."""
    payload = json.dumps({"action": "shell", "run": run, "command": "ls"}).encode()
    answer = app.client("lambda").invoke(FunctionName=app.connection["launcher_function"], Payload=payload)
    return "FunctionError" not in answer and bool(json.loads(answer["Payload"].read())["ok"])


def each_grant_is_missed(app: DeployedApp, run: str) -> None:
    """Take what a shell in a training job needs away: no shell opens before each of it was missed and given back."""
    granted = {
        WithheldGrant(identity=identity.name, statement=statement, action=called.action)
        for identity in permissions(app.local)
        for called in identity.granted
        for statement in called.statements
        if called.action == "ssm:StartSession" or called.action.startswith("ssmmessages:")
    }
    channels = ("CreateControlChannel", "CreateDataChannel", "OpenControlChannel", "OpenDataChannel")
    assert {grant.action for grant in granted} == {"ssm:StartSession", *(f"ssmmessages:{name}" for name in channels)}
    in_training_jobs = {grant for grant in granted if "InstanceRole" not in grant.identity}
    before = len(missed(app.local))
    try:
        withhold(app.local, in_training_jobs)
        tries = 1
        while not opens(app, run):
            tries += 1
            assert tries <= len(in_training_jobs) + 1
    finally:
        withhold(app.local, ())
    found = {each.grant for each in missed(app.local)[before:]}
    assert {grant.action for grant in found} == {grant.action for grant in granted}
    assert len(found) == tries - 1 >= len(channels) + 2, "the document of commands and the target are two"


def test_a_shell_in_a_training_job_that_asked_for_it(withholding_app: DeployedApp, tmp_path: Path) -> None:
    app, plugin = withholding_app, make_plugin(tmp_path)
    run = app.launch(**app.counting("20 --hold-at 10", debug=True))["run"]
    app.wait_until(run, lambda run_item: run_item.state is RunState.TRAINING)
    found = opened(shell(app, plugin, run))
    target = f"sagemaker-training-job:{run}-1_algo-1"
    assert (found["operation"], found["parameters"]["Target"]) == ("StartSession", target)
    assert "DocumentName" not in found["parameters"]
    assert found["session"]["StreamUrl"].endswith(found["session"]["SessionId"])
    assert found["session"]["TokenValue"]
    command = opened(shell(app, plugin, run, "--", "ls", "/opt/ml"))["parameters"]
    assert command["Parameters"] == {"command": ["ls /opt/ml"]}
    each_grant_is_missed(app, run)
    app.invoke("launcher", {"action": "stop", "run": run})
    app.wait_until_ended(run)
    over = shell(app, plugin, run)
    assert over.returncode == 3
    assert "has ended" in over.stderr
