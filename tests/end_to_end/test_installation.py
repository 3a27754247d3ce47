"""A script that needs what its image lacks: installed by pip, and after an interruption by nothing but the cache."""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from spotkeep.events import EVENT_PREFIX
from spotkeep_jobs.record.states import RunState
from spotkeep_local.capacity import CapacityScript, Interruption
from spotkeep_local.hosts.host_platform import job_isolation
from spotkeep_local.isolation import Isolation

if TYPE_CHECKING:
    from conftest import DeployedApp, OnEc2

pytestmark = pytest.mark.long

QUICK_PIP = {"PIP_NO_WARN_CONFLICTS": "1"}
"""With all that the tests of the frameworks need beside it, pip reads for seconds whether it fits together."""


def wheel() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        packed.writestr("needed.py", "import count  # the script itself\n")
        info = "needed-1.0.dist-info"
        packed.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: needed\nVersion: 1.0\n")
        packed.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        packed.writestr(f"{info}/RECORD", "")
    return content.getvalue()


def installed(app: DeployedApp, job_name: str) -> list[dict[str, Any]]:
    found = app.client("logs").filter_log_events(
        logGroupName="/aws/sagemaker/TrainingJobs", filterPattern='"installed"'
    )
    # ministack gives the events of all streams, whatever prefix is asked for.
    lines = (event["message"] for event in found["events"] if event["logStreamName"].startswith(f"{job_name}/"))
    return [json.loads(line.removeprefix(EVENT_PREFIX)) for line in lines if line.startswith(EVENT_PREFIX)]


@pytest.mark.skipif(
    job_isolation(Isolation.AUTO) is not Isolation.NAMESPACE,
    reason="each host has another path for the environment on this machine, and installs anew",
)
def test_a_job_that_comes_back_has_what_it_needs_without_pip(deployed_app: DeployedApp) -> None:
    job = deployed_app.counting(
        "40",
        files={
            "requirements.txt": "--no-index\n--find-links wheels\nneeded==1.0\n",
            "wheels/needed-1.0-py3-none-any.whl": wheel(),
        },
        environment=QUICK_PIP,
    )
    job["command"] = ["python", "-c", "import sys; sys.argv[1:] = ['40']; import needed"]
    deployed_app.control.script_capacity(
        run=job["run"], script=CapacityScript(interruptions=(Interruption(at_step=10, notice=True, notice_seconds=5),))
    )
    launched = deployed_app.launch(**job)
    ended = deployed_app.wait_until_ended(job["run"])
    assert ended.state is RunState.COMPLETED, ended.failure_reason
    assert launched["run"] == job["run"]
    reasons = [event["reason"] for event in installed(deployed_app, f"{job['run']}-1")]
    assert reasons == ["by pip", "from the cache"]


@pytest.mark.skipif(
    job_isolation(Isolation.AUTO) is not Isolation.NAMESPACE,
    reason="each host has another path for the environment on this machine, and installs anew",
)
def test_the_next_run_on_a_warm_pool_has_what_it_needs_without_pip(deployed_app: DeployedApp) -> None:
    files = {
        "requirements.txt": "--no-index\n--find-links wheels\nneeded==1.0\n",
        "wheels/needed-1.0-py3-none-any.whl": wheel(),
    }
    reasons = {}
    # The first leaves its host to the second, which leaves none.
    for keep_alive in (600, 0):
        job = deployed_app.counting(
            "5", files=files, capacity="on-demand", keep_alive=keep_alive, environment=QUICK_PIP
        )
        job["command"] = ["python", "-c", "import sys; sys.argv[1:] = ['5']; import needed"]
        deployed_app.launch(**job)
        ended = deployed_app.wait_until_ended(job["run"])
        assert ended.state is RunState.COMPLETED, ended.failure_reason
        reasons[keep_alive] = [event["reason"] for event in installed(deployed_app, f"{job['run']}-1")]
    assert reasons == {600: ["by pip"], 0: ["from the warm pool's cache"]}


@pytest.mark.skipif(
    job_isolation(Isolation.AUTO) is not Isolation.NAMESPACE,
    reason="each host has another path for the environment on this machine, and installs anew",
)
def test_an_instance_that_takes_a_run_over_has_what_it_needs_on_the_volume_and_is_set_up_itself(on_ec2: OnEc2) -> None:
    run = on_ec2.launch(
        "60",
        files={
            "requirements.txt": "--no-index\n--find-links wheels\nneeded==1.0\n",
            "wheels/needed-1.0-py3-none-any.whl": wheel(),
        },
        setup=["python3", "-c", "import importlib.util as u; print('finds', u.find_spec('needed') is not None)"],
        environment=QUICK_PIP,
    )
    on_ec2.wait_for(run, '"event":"saved"')
    [first] = [each["InstanceId"] for each in on_ec2.instances(run) if each["State"]["Name"] == "running"]
    on_ec2.control.interrupt(first)
    assert on_ec2.app.wait_until_ended(run).state is RunState.COMPLETED
    lines = on_ec2.said(run).splitlines()
    reasons = [json.loads(line[line.index("{") :])["reason"] for line in lines if '"event":"installed"' in line]
    assert sorted(reasons) == ["by pip", "kept on this machine"]
    assert sum("finds True" in line for line in lines) == 2
