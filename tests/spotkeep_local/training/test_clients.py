"""Unmodified clients drive the training API through the daemon: boto3 and the AWS CLI.

The SageMaker Python SDK does in `batch/test_clients.py` and `tests/end_to_end/test_sdk_trainer.py`.
"""

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
            "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/image:1",
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


def wait_for_the_end(sagemaker, name):
    waiter = sagemaker.get_waiter("training_job_completed_or_stopped")
    waiter.wait(TrainingJobName=name, WaiterConfig={"Delay": 0, "MaxAttempts": 100_000})


def test_boto3_and_the_control_client(local_aws, bucket):
    """A job whose capacity is scripted, and whose end is an event on the default bus."""
    session, control = local_aws.session(), LocalControl(local_aws)
    events, queues, sagemaker = session.client("events"), session.client("sqs"), session.client("sagemaker")
    run = f"boto3-{uuid.uuid4().hex[:8]}"
    name = f"{run}-1"
    queue, queue_arn = make_queue(session, name, service="events.amazonaws.com")
    pattern = {
        "source": ["aws.sagemaker"],
        "detail-type": ["SageMaker Training Job State Change"],
        "detail": {"TrainingJobName": [name], "TrainingJobStatus": ["Completed"]},
    }
    events.put_rule(Name=name, EventPattern=json.dumps(pattern))
    events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": queue_arn}])
    moment = Interruption(at_seconds=0.0, notice=False, capacity_returns_after_seconds=0.0)
    assert control.script_capacity(run=run, script=CapacityScript(interruptions=(moment,))) == []

    arn = sagemaker.create_training_job(**request(bucket, name))["TrainingJobArn"]
    wait_for_the_end(sagemaker, name)
    described = sagemaker.describe_training_job(TrainingJobName=name)
    assert described["TrainingJobArn"] == arn
    assert described["TrainingEndTime"] >= described["CreationTime"]
    pages = sagemaker.get_paginator("list_training_jobs").paginate(NameContains=name)
    assert [job["TrainingJobName"] for page in pages for job in page["TrainingJobSummaries"]] == [name]
    with pytest.raises(sagemaker.exceptions.ResourceInUse):
        sagemaker.create_training_job(**request(bucket, name))
    with pytest.raises(ClientError, match="Requested resource not found"):
        sagemaker.describe_training_job(TrainingJobName="no-job")
    facts = control.job_facts(name)
    assert facts.status == "Completed"
    assert [life.interrupted for life in facts.lifetimes] == [True, False]
    messages = []
    while not messages:
        messages = queues.receive_message(QueueUrl=queue, WaitTimeSeconds=5).get("Messages", [])
    event = json.loads(messages[0]["Body"])
    assert event["source"] == "aws.sagemaker"
    assert event["detail"]["SecondaryStatus"] == "Completed"
    assert event["resources"] == [arn]


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
    wait_for_the_end(local_aws.session().client("sagemaker"), name)
    described = aws("describe-training-job", "--training-job-name", name)
    assert described["TrainingJobStatus"] == "Completed"
