"""Unmodified clients drive the training API through the daemon: boto3, the AWS CLI, the SageMaker Python SDK."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from spotkeep_local.capacity import CapacityScript, Interruption
from spotkeep_local.control import LocalControl
from spotkeep_local.isolation import Isolation
from spotkeep_local.training.errors import JobFailedError
from spotkeep_local.training.job_host import resolve_isolation
from tests.models.granted import make_queue, make_role

ROLE = "arn:aws:iam::000000000000:role/training-role"


@pytest.fixture
def bucket(local_aws):
    make_role(local_aws, ROLE.rpartition("/")[2], service="sagemaker.amazonaws.com")
    name = f"clients-{uuid.uuid4().hex[:12]}"
    s3 = local_aws.session().client("s3")
    s3.create_bucket(Bucket=name)
    s3.put_object(Bucket=name, Key="code/train.py", Body=b"print('hello from the job')")
    return name


def request(bucket: str, name: str) -> dict[str, object]:
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/code/"}
    return {
        "TrainingJobName": name,
        "AlgorithmSpecification": {
            "TrainingImage": "image",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["python3", "/opt/ml/input/data/code/train.py"],
        },
        "RoleArn": ROLE,
        "InputDataConfig": [{"ChannelName": "code", "DataSource": {"S3DataSource": source}}],
        "OutputDataConfig": {"S3OutputPath": f"s3://{bucket}/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 10},
        "EnableManagedSpotTraining": True,
        "StoppingCondition": {"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 1200},
    }


@pytest.mark.long
def test_boto3(local_aws, bucket):
    sagemaker = local_aws.session().client("sagemaker")
    name = f"boto3-{uuid.uuid4().hex[:8]}"
    arn = sagemaker.create_training_job(**request(bucket, name))["TrainingJobArn"]
    waiter = sagemaker.get_waiter("training_job_completed_or_stopped")
    waiter.wait(TrainingJobName=name, WaiterConfig={"Delay": 0, "MaxAttempts": 100_000})
    described = sagemaker.describe_training_job(TrainingJobName=name)
    assert described["TrainingJobArn"] == arn
    assert described["TrainingEndTime"] >= described["CreationTime"]
    pages = sagemaker.get_paginator("list_training_jobs").paginate(NameContains=name)
    assert [job["TrainingJobName"] for page in pages for job in page["TrainingJobSummaries"]] == [name]
    with pytest.raises(sagemaker.exceptions.ResourceInUse):
        sagemaker.create_training_job(**request(bucket, name))
    with pytest.raises(ClientError, match="Requested resource not found"):
        sagemaker.describe_training_job(TrainingJobName="no-job")


def test_the_control_client_scripts_capacity_and_reads_the_facts(local_aws, bucket):
    control = LocalControl(local_aws)
    sagemaker = local_aws.session().client("sagemaker")
    run = f"control-{uuid.uuid4().hex[:8]}"
    moment = Interruption(at_seconds=0.0, notice=False, capacity_returns_after_seconds=0.0)
    assert control.script_capacity(run=run, script=CapacityScript(interruptions=(moment,))) == []
    sagemaker.create_training_job(**request(bucket, f"{run}-1"))
    waiter = sagemaker.get_waiter("training_job_completed_or_stopped")
    waiter.wait(TrainingJobName=f"{run}-1", WaiterConfig={"Delay": 0, "MaxAttempts": 100_000})
    facts = control.job_facts(f"{run}-1")
    assert facts.status == "Completed"
    assert [life.interrupted for life in facts.lifetimes] == [True, False]


def test_events_reach_a_rule_on_the_default_bus(local_aws, bucket):
    session = local_aws.session()
    events, queues, sagemaker = session.client("events"), session.client("sqs"), session.client("sagemaker")
    name = f"events-{uuid.uuid4().hex[:8]}"
    queue, arn = make_queue(session, name, service="events.amazonaws.com")
    pattern = {
        "source": ["aws.sagemaker"],
        "detail-type": ["SageMaker Training Job State Change"],
        "detail": {"TrainingJobName": [name], "TrainingJobStatus": ["Completed"]},
    }
    events.put_rule(Name=name, EventPattern=json.dumps(pattern))
    events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": arn}])
    sagemaker.create_training_job(**request(bucket, name))
    messages = []
    while not messages:
        messages = queues.receive_message(QueueUrl=queue, WaitTimeSeconds=5).get("Messages", [])
    event = json.loads(messages[0]["Body"])
    assert event["source"] == "aws.sagemaker"
    assert event["detail"]["SecondaryStatus"] == "Completed"
    assert event["resources"] == [event["detail"]["TrainingJobArn"]]


@pytest.mark.long
def test_the_aws_command_line(local_aws, bucket, tmp_path):
    name = f"cli-{uuid.uuid4().hex[:8]}"
    document = tmp_path / "job.json"
    document.write_text(json.dumps(request(bucket, name)))

    def aws(*arguments: str) -> dict[str, object]:
        done = subprocess.run(
            [Path(sys.prefix) / "bin" / "aws", "sagemaker", *arguments, "--output", "json"],
            env=os.environ | local_aws.environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(done.stdout or "{}")

    assert "TrainingJobArn" in aws("create-training-job", "--cli-input-json", f"file://{document}")
    sagemaker = local_aws.session().client("sagemaker")
    waiter = sagemaker.get_waiter("training_job_completed_or_stopped")
    waiter.wait(TrainingJobName=name, WaiterConfig={"Delay": 0, "MaxAttempts": 100_000})
    described = aws("describe-training-job", "--training-job-name", name)
    assert described["TrainingJobStatus"] == "Completed"
    listed = aws("list-training-jobs", "--name-contains", name)
    assert [job["TrainingJobName"] for job in listed["TrainingJobSummaries"]] == [name]


SDK_PROGRAM = """
import logging, sys

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
from sagemaker.core.helper.session_helper import Session
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import CheckpointConfig, Compute, OutputDataConfig, SourceCode, StoppingCondition

bucket, source, role = sys.argv[1:]
trainer = ModelTrainer(
    sagemaker_session=Session(default_bucket=bucket),
    training_image="000000000000.dkr.ecr.us-east-1.amazonaws.com/any:1",
    source_code=SourceCode(source_dir=source, entry_script="train.py"),
    role=role,
    base_job_name="sdk",
    compute=Compute(instance_type="ml.m5.large", instance_count=1, enable_managed_spot_training=True),
    stopping_condition=StoppingCondition(max_runtime_in_seconds=600, max_wait_time_in_seconds=1200),
    checkpoint_config=CheckpointConfig(s3_uri=f"s3://{bucket}/checkpoints"),
    output_data_config=OutputDataConfig(s3_output_path=f"s3://{bucket}/out"),
    hyperparameters={"rate": 0.1},
)
trainer.train(wait=True, logs=True)
"""


def private_opt_ml() -> bool:
    try:
        return resolve_isolation(Isolation.AUTO) is Isolation.NAMESPACE
    except JobFailedError:
        return False


@pytest.mark.long
@pytest.mark.skipif(not private_opt_ml(), reason="the SDK's driver scripts name /opt/ml; no private one here")
def test_the_sagemaker_python_sdk_trains_waits_and_shows_the_logs(local_aws, bucket, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "train.py").write_text(
        "import json, os, pathlib\n"
        "print('rate is', json.loads(os.environ['SM_HPS'])['rate'])\n"
        "pathlib.Path(os.environ['SM_MODEL_DIR'], 'weights').write_text('trained')\n"
    )
    settings = tmp_path / "sagemaker.yaml"
    settings.write_text("SchemaVersion: '1.0'\nSageMaker:\n  PythonSDK:\n    Modules:\n      TelemetryOptOut: true\n")
    done = subprocess.run(
        [sys.executable, "-c", SDK_PROGRAM, bucket, str(source), execution_role(local_aws)],
        env=os.environ
        | local_aws.environment()
        | {"SAGEMAKER_USER_CONFIG_OVERRIDE": str(settings), "HOME": str(tmp_path), "COLUMNS": "500"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rate is 0.1" in done.stdout + done.stderr
    assert "Final Resource Status: " in done.stdout + done.stderr
    s3 = local_aws.session().client("s3")
    keys = [entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket, Prefix="out/")["Contents"]]
    assert any(key.endswith("/output/model.tar.gz") for key in keys)


def execution_role(local_aws) -> str:
    """The SDK asks IAM whether the role may do what training needs, before it starts anything."""
    iam = local_aws.session().client("iam")
    name = f"sdk-{uuid.uuid4().hex[:8]}"
    trust = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
    everything = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    version = "2012-10-17"
    role = iam.create_role(
        RoleName=name, AssumeRolePolicyDocument=json.dumps({"Version": version, "Statement": [trust]})
    )
    iam.put_role_policy(
        RoleName=name,
        PolicyName="all",
        PolicyDocument=json.dumps({"Version": version, "Statement": [everything]}),
    )
    return str(role["Role"]["Arn"])
