"""The server is killed with SIGKILL while jobs run; what it left is found, ended and finished by the next one."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from spotkeep_local import lifecycle
from spotkeep_local.control import LocalControl
from spotkeep_local.options import ServerOptions

SCRIPT = """
import json, os, pathlib, sys, time
base = pathlib.Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
saved = base / "checkpoints/step"
first = int(saved.read_text()) if saved.exists() else 0
log = open(base / "log", "a")
for step in range(first + 1, 41):
    time.sleep(0.1)
    draft = saved.with_name("draft"); draft.write_text(str(step)); draft.rename(saved)
    try:
        print("spotkeep-event: " + json.dumps({"event": "progress", "step": step}), flush=True)
    except BrokenPipeError:
        sys.stdout = log
"""


@pytest.fixture
def state_dir(tmp_path):
    yield tmp_path
    lifecycle.stop(tmp_path)


def wait_until(condition) -> None:
    give_up_at = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < give_up_at, "waited in vain"
        time.sleep(0.05)


def is_gone(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc").exists(), reason="looks at processes through /proc")
def test_a_job_outlives_the_server(state_dir):
    local = lifecycle.start(state_dir, port=lifecycle.free_port(), options=ServerOptions.fast())
    s3, sagemaker = local.session().client("s3"), local.session().client("sagemaker")
    s3.create_bucket(Bucket="crash-bucket")
    s3.put_object(Bucket="crash-bucket", Key="code/train.py", Body=SCRIPT.encode())
    source = {"S3DataType": "S3Prefix", "S3Uri": "s3://crash-bucket/code/"}
    sagemaker.create_training_job(
        TrainingJobName="crash-1",
        AlgorithmSpecification={
            "TrainingImage": "image",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["python3", "/opt/ml/input/data/code/train.py"],
        },
        RoleArn="arn:aws:iam::000000000000:role/training-role",
        InputDataConfig=[{"ChannelName": "code", "DataSource": {"S3DataSource": source}}],
        OutputDataConfig={"S3OutputPath": "s3://crash-bucket/out"},
        CheckpointConfig={"S3Uri": "s3://crash-bucket/checkpoints"},
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 10},
        EnableManagedSpotTraining=True,
        StoppingCondition={"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 1200},
    )
    control = LocalControl(local)
    wait_until(lambda: s3.list_objects_v2(Bucket="crash-bucket", Prefix="checkpoints/step")["KeyCount"])
    wait_until(lambda: (control.job_facts("crash-1").lifetimes[0].last_step_seen or 0) >= 10)
    orphan = control.job_facts("crash-1").lifetimes[0].pid

    os.kill(local.pid, signal.SIGKILL)
    wait_until(lambda: is_gone(local.pid))
    again = lifecycle.start(state_dir, options=ServerOptions.fast())
    control = LocalControl(again)
    wait_until(lambda: len(control.job_facts("crash-1").lifetimes) == 2)
    assert is_gone(orphan)

    sagemaker = again.session().client("sagemaker")
    wait_until(lambda: sagemaker.describe_training_job(TrainingJobName="crash-1")["TrainingJobStatus"] == "Completed")
    first, second = control.job_facts("crash-1").lifetimes
    assert first.interrupted
    assert second.restored_files > 0
    path = sagemaker.describe_training_job(TrainingJobName="crash-1")["SecondaryStatusTransitions"]
    assert "Interrupted" in [transition["Status"] for transition in path]
