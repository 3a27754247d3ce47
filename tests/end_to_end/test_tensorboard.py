"""TensorBoard's folder is in S3 while the job trains, on both backends, and a run that is stopped keeps it."""

from __future__ import annotations

from typing import Any

import pytest

from spotkeep_jobs.record.states import EndReason

from .conftest import DeployedApp, OnEc2, until

pytestmark = pytest.mark.long

_WRITES = """\
import os, pathlib, time
from spotkeep import Checkpointer

folder = pathlib.Path(os.environ["TENSORBOARD_LOGGING_DIR"])
folder.mkdir(parents=True, exist_ok=True)
done = {"count": 0}
with (folder / f"events.out.tfevents.{os.getpid()}.host").open("ab", buffering=0) as events:
    with Checkpointer({"done": done}, every_steps=5) as checkpointer:
        resumed = checkpointer.step > 0
        for step in checkpointer.steps(20):
            events.write(f"step {step};".encode())
            if step == 10 and not resumed:
                time.sleep(600)
            done["count"] += 1
"""


def written(app: DeployedApp, run: str) -> list[bytes]:
    """Return the event files of a run that are in S3."""
    s3, bucket = app.client("s3"), app.connection["checkpoint_bucket"]
    listed = s3.list_objects_v2(Bucket=bucket, Prefix=f"runs/{run}/checkpoints/tensorboard/").get("Contents", [])
    keys = [each["Key"] for each in listed if not each["Key"].endswith((".sagemaker-uploading", ".sagemaker-uploaded"))]
    return [s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys]


def wait_for_step_10(app: DeployedApp, run: str) -> None:
    until(lambda: any(b"step 10;" in each for each in written(app, run)), lambda: "step 10 in S3")


def document(app: DeployedApp, **fields: Any) -> dict[str, Any]:
    counting = app.counting("20", files={"events.py": _WRITES}, **fields)
    return {**counting, "command": "python3 events.py"}


def test_a_managed_spot_job_that_is_stopped_saves_and_goes_on_in_the_same_folder(deployed_app: DeployedApp) -> None:
    job = document(deployed_app)
    deployed_app.launch(**job)
    wait_for_step_10(deployed_app, job["run"])
    assert not deployed_app.run(job["run"]).state.ended
    deployed_app.invoke("launcher", {"action": "stop", "run": job["run"]})
    assert deployed_app.wait_until_ended(job["run"], passes=True).end_reason is EndReason.STOPPED_BY_USER
    assert deployed_app.invoke("launcher", {"action": "resume", "run": job["run"]})["attempt"] == 2
    deployed_app.wait_until(job["run"], lambda run_item: run_item.attempt == 2 and run_item.state.ended)
    [second] = deployed_app.control.job_facts(f"{job['run']}-2").lifetimes
    assert second.resumed_step == 10, "it saved when it was stopped"
    files = written(deployed_app, job["run"])
    assert len(files) == 2
    assert any(each.endswith(b"step 19;") for each in files)


def test_a_run_on_an_instance_that_is_stopped_saves_first(on_ec2: OnEc2) -> None:
    job = document(on_ec2.app, backend="ec2", instance_types=["m5.large"], volume={"size_gb": 1, "when_done": "delete"})
    on_ec2.app.launch(**job)
    wait_for_step_10(on_ec2.app, job["run"])
    on_ec2.app.invoke("launcher", {"action": "stop", "run": job["run"]})
    assert on_ec2.app.wait_until_ended(job["run"], passes=True).end_reason is EndReason.STOPPED_BY_USER
    assert "left: the run is asked to stop" in on_ec2.said(job["run"])
    assert on_ec2.live_fleets() == []
