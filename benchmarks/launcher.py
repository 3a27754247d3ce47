"""The launcher's start against a bare boto3 client, and a warm invocation against one that only answers.

Lambda waits for the initialisation before the first request. In it a fresh interpreter imports the handler and makes
its clients. The comparison does the same for one bare ``boto3.client("sagemaker")``, which no launcher can do without.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import paired
from spotkeep_jobs.settings import LauncherSettings

TARGET_RATIO = 2.0

_BARE_CLIENT = "import boto3; boto3.client('sagemaker', region_name='us-east-1')"
_LAUNCHER = "from launcher.handler import handler"
_JOB = {"action": "validate", "name": "warm", "command": "python train.py", "token": "benchmark"}
_SETTINGS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    **LauncherSettings.variables(
        deployment="spotkeep",
        run_table="spotkeep-runs",
        checkpoint_bucket="spotkeep-checkpoints",
        execution_role_arn="arn:aws:iam::000000000000:role/spotkeep-execution",
        training_bundle_uri="s3://checkpoints/bundles/0123/spotkeep.pyz",
        training_bundle_asset_uri="s3://assets/4567.pyz",
        default_image="000000000000.dkr.ecr.us-east-1.amazonaws.com/training:latest",
        default_instance_type="ml.m5.xlarge",
        prices={},
        schedule_group="spotkeep-schedules",
        schedule_role_arn="arn:aws:iam::000000000000:role/spotkeep-schedules",
        schedule_dead_letter_arn="arn:aws:sqs:us-east-1:000000000000:spotkeep-schedules",
        schedule_function_arn="arn:aws:lambda:us-east-1:000000000000:function:spotkeep-launcher",
    ),
    "POWERTOOLS_SERVICE_NAME": "launcher",
    "POWERTOOLS_METRICS_NAMESPACE": "Spotkeep",
    # What Lambda itself sets: with it the launcher makes its clients, and loads tracing, while it initialises.
    "AWS_LAMBDA_FUNCTION_NAME": "spotkeep-launcher",
    "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
    "LAMBDA_TASK_ROOT": "/var/task",
    "AWS_XRAY_DAEMON_ADDRESS": "127.0.0.1:2000",
}


def measure_initialisation(*, project_dir: Path, rounds: int, warmups: int = 1) -> dict[str, Any]:
    """Time fresh interpreters, with the launcher ready for its first request, and with a bare client.

    Args:
        project_dir: The checkout.
        rounds: Counted rounds of each.
        warmups: Uncounted rounds before them.
    """
    environment = {**os.environ, **_SETTINGS}
    # The uncounted round writes the byte code of both. Otherwise the figure depends on the runs before it.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    launcher, bare = paired.in_turn(
        paired.process([sys.executable, "-c", _LAUNCHER], environment=environment, directory=project_dir),
        paired.process([sys.executable, "-c", _BARE_CLIENT], environment=environment, directory=project_dir),
        rounds=rounds,
        warmups=warmups,
    )
    ratio = launcher.median / bare.median
    return {
        "launcher": launcher.to_document(),
        "bare_boto3_client": bare.to_document(),
        "ratio": round(ratio, 2),
        "target_ratio": TARGET_RATIO,
        "met": ratio <= TARGET_RATIO,
    }


def measure_warm_invocation(*, client: Any, function: str, rounds: int) -> dict[str, Any]:
    """Time warm invocations that validate a job on a deployed launcher.

    Args:
        client: A boto3 Lambda client.
        function: The launcher's name.
        rounds: Counted invocations, after three uncounted ones.
    """
    durations = []
    for number in range(rounds + 3):
        started = time.perf_counter()
        answer = client.invoke(FunctionName=function, Payload=json.dumps(_JOB).encode())
        json.loads(answer["Payload"].read())
        if number >= 3:
            durations.append(time.perf_counter() - started)
    return paired.Seconds(rounds=tuple(durations)).to_document()
