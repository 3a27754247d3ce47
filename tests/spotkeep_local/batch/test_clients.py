"""Unmodified clients drive Batch through the daemon: boto3, CloudFormation, the SageMaker SDK's TrainingQueue."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from spotkeep_local.capacity import CapacityScript, EventFaults, Interruption
from spotkeep_local.control import LocalControl
from tests.models.granted import make_queue, make_role
from tests.spotkeep_local.batch.conftest import wait_until
from tests.spotkeep_local.training.conftest import RESUMING_SCRIPT

if TYPE_CHECKING:
    from pathlib import Path

    from spotkeep_local.lifecycle import LocalAws

ROLE = "arn:aws:iam::000000000000:role/training-role"
TYPE = "ml.m5.large"


@pytest.fixture
def bucket(local_aws: LocalAws) -> str:
    make_role(local_aws, ROLE.rpartition("/")[2], service="sagemaker.amazonaws.com")
    name = f"batch-{uuid.uuid4().hex[:12]}"
    local_aws.session().client("s3").create_bucket(Bucket=name)
    return name


@pytest.fixture
def client(local_aws: LocalAws) -> Any:
    return local_aws.session().client("batch")


def payload(local_aws: LocalAws, bucket: str, name: str, *, waited: Path) -> dict[str, Any]:
    script = RESUMING_SCRIPT.encode()
    local_aws.session().client("s3").put_object(Bucket=bucket, Key=f"{name}/train.py", Body=script)
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/{name}/"}
    return {
        "TrainingJobName": name,
        "AlgorithmSpecification": {
            "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/image:1",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["python3", "/opt/ml/input/data/code/train.py"],
            "ContainerArguments": ["4", "0.05", "2", str(waited)],
        },
        "RoleArn": ROLE,
        "InputDataConfig": [{"ChannelName": "code", "DataSource": {"S3DataSource": source}}],
        "OutputDataConfig": {"S3OutputPath": f"s3://{bucket}/out"},
        "CheckpointConfig": {"S3Uri": f"s3://{bucket}/{name}-checkpoints/"},
        "ResourceConfig": {"InstanceType": TYPE, "InstanceCount": 1, "VolumeSizeInGB": 10},
        "EnableManagedSpotTraining": True,
        "StoppingCondition": {"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 1200},
    }


def submit(client: Any, queue: str, request: dict[str, Any], **more: Any) -> str:
    return str(
        client.submit_service_job(
            jobName=request["TrainingJobName"],
            jobQueue=queue,
            serviceJobType="SAGEMAKER_TRAINING",
            serviceRequestPayload=json.dumps(request),
            **more,
        )["jobId"]
    )


def wait_for(client: Any, job_id: str, *statuses: str) -> dict[str, Any]:
    wait_until(lambda: client.describe_service_job(jobId=job_id)["status"] in statuses)
    described: dict[str, Any] = client.describe_service_job(jobId=job_id)
    return described


def make_fifo_queue(client: Any, limit: int) -> str:
    name = f"queue-{uuid.uuid4().hex[:8]}"
    client.create_service_environment(
        serviceEnvironmentName=name,
        serviceEnvironmentType="SAGEMAKER_TRAINING",
        capacityLimits=[{"maxCapacity": limit, "capacityUnit": "NUM_INSTANCES"}],
    )
    client.create_job_queue(
        jobQueueName=name,
        jobQueueType="SAGEMAKER_TRAINING",
        priority=1,
        serviceEnvironmentOrder=[{"order": 1, "serviceEnvironment": name}],
    )
    return name


def test_a_service_job_is_a_real_training_job(local_aws: LocalAws, client: Any, bucket: str, tmp_path: Path) -> None:
    """Its capacity is scripted by its own name, though the training job has another one; events may come twice."""
    queue, name = make_fifo_queue(client, 1), f"digits-{uuid.uuid4().hex[:8]}"
    events, queues = local_aws.session().client("events"), local_aws.session().client("sqs")
    inbox, inbox_arn = make_queue(local_aws.session(), name, service="events.amazonaws.com")
    pattern = {"source": ["aws.batch"], "detail": {"jobName": [name], "status": ["SUCCEEDED"]}}
    events.put_rule(Name=name, EventPattern=json.dumps(pattern))
    events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": inbox_arn}])
    interruption = Interruption(at_step=2, notice=False, capacity_returns_after_seconds=0.1)
    control = LocalControl(local_aws)
    control.event_faults(EventFaults(duplicate=True))
    control.batch_tags(handed_on=True)
    control.script_capacity(run=name, script=CapacityScript(interruptions=(interruption,)))
    request = payload(local_aws, bucket, f"{name}-1", waited=tmp_path / "waited")
    job = submit(client, queue, request | {"TrainingJobName": name}, tags={"a": "b"})
    try:
        ended = wait_for(client, job, "SUCCEEDED", "FAILED")
    finally:
        control.event_faults(EventFaults())
        control.batch_tags(handed_on=False)
    assert ended["status"] == "SUCCEEDED", ended["statusReason"]
    training_arn = ended["latestAttempt"]["serviceResourceId"]["value"]
    training_name = training_arn.rpartition("/")[2]
    assert training_name.startswith("AWSBatch")
    sagemaker = local_aws.session().client("sagemaker")
    assert sagemaker.describe_training_job(TrainingJobName=training_name)["TrainingJobStatus"] == "Completed"
    assert sagemaker.list_tags(ResourceArn=training_arn)["Tags"] == [{"Key": "a", "Value": "b"}]
    facts = control.job_facts(training_name)
    assert [life.interrupted for life in facts.lifetimes] == [True, False]
    messages: list[dict[str, Any]] = []
    while len(messages) < 2:
        messages += queues.receive_message(QueueUrl=inbox, WaitTimeSeconds=5).get("Messages", [])
    event = json.loads(messages[0]["Body"])
    assert (event["source"], event["detail-type"]) == ("aws.batch", "Batch Service Job State Change")
    assert event["resources"] == [ended["jobArn"]]
    client.tag_resource(resourceArn=ended["jobArn"], tags={"c": "d"})
    client.untag_resource(resourceArn=ended["jobArn"], tagKeys=["a"])
    assert client.list_tags_for_resource(resourceArn=ended["jobArn"])["tags"] == {"c": "d"}
    with pytest.raises(ClientError, match="does not exist"):
        client.describe_service_job(jobId="none")


STACK = {
    "Parameters": {"Limit": {"Type": "Number", "Default": 1}},
    "Resources": {
        "Environment": {
            "Type": "AWS::Batch::ServiceEnvironment",
            "Properties": {
                "ServiceEnvironmentType": "SAGEMAKER_TRAINING",
                "CapacityLimits": [{"CapacityUnit": TYPE, "MaxCapacity": {"Ref": "Limit"}}],
                "Tags": {"team": "a"},
            },
        },
        "Policy": {
            "Type": "AWS::Batch::SchedulingPolicy",
            "Properties": {"QuotaSharePolicy": {"IdleResourceAssignmentStrategy": "FIFO"}},
        },
        "Queue": {
            "Type": "AWS::Batch::JobQueue",
            "Properties": {
                "JobQueueType": "SAGEMAKER_TRAINING",
                "Priority": 1,
                "SchedulingPolicyArn": {"Fn::GetAtt": ["Policy", "Arn"]},
                "ServiceEnvironmentOrder": [
                    {"Order": 1, "ServiceEnvironment": {"Fn::GetAtt": ["Environment", "ServiceEnvironmentArn"]}}
                ],
            },
        },
        "Owner": {
            "Type": "AWS::Batch::QuotaShare",
            "Properties": {
                "QuotaShareName": "owner",
                "JobQueue": {"Ref": "Queue"},
                "CapacityLimits": [{"CapacityUnit": TYPE, "MaxCapacity": {"Ref": "Limit"}}],
                "ResourceSharingConfiguration": {"Strategy": "LEND"},
                "PreemptionConfiguration": {"InSharePreemption": "DISABLED"},
            },
        },
        "Borrower": {
            "Type": "AWS::Batch::QuotaShare",
            "Properties": {
                "QuotaShareName": "borrower",
                "JobQueue": {"Fn::GetAtt": ["Queue", "JobQueueArn"]},
                "CapacityLimits": [{"CapacityUnit": TYPE, "MaxCapacity": 0}],
                "ResourceSharingConfiguration": {"Strategy": "LEND_AND_BORROW", "BorrowLimit": -1},
                "PreemptionConfiguration": {"InSharePreemption": "DISABLED"},
            },
        },
    },
    "Outputs": {"Queue": {"Value": {"Ref": "Queue"}}, "Share": {"Value": {"Fn::GetAtt": ["Owner", "QuotaShareArn"]}}},
}


def test_a_stack_has_a_queue_with_shares_whose_limit_changes(local_aws: LocalAws, client: Any) -> None:
    """That lent capacity comes back to its owner: `test_service_jobs`, and `tests/end_to_end/test_queues.py`."""
    cloudformation = local_aws.session().client("cloudformation")
    stack = f"queues-{uuid.uuid4().hex[:8]}"

    def settled(status: str) -> dict[str, str]:
        def now() -> dict[str, Any]:
            described: dict[str, Any] = cloudformation.describe_stacks(StackName=stack)["Stacks"][0]
            assert "ROLLBACK" not in described["StackStatus"], cloudformation.describe_stack_events(StackName=stack)
            return described

        wait_until(lambda: now()["StackStatus"] == status)
        return {each["OutputKey"]: each["OutputValue"] for each in now()["Outputs"]}

    cloudformation.create_stack(StackName=stack, TemplateBody=json.dumps(STACK))
    outputs = settled("CREATE_COMPLETE")
    queue = outputs["Queue"]
    assert outputs["Share"] == f"{queue}/quota-share/owner"
    shares = client.list_quota_shares(jobQueue=queue)["quotaShares"]
    assert {share["quotaShareName"] for share in shares} == {"owner", "borrower"}
    cloudformation.update_stack(
        StackName=stack, UsePreviousTemplate=True, Parameters=[{"ParameterKey": "Limit", "ParameterValue": "3"}]
    )
    settled("UPDATE_COMPLETE")
    limits = client.describe_quota_share(quotaShareArn=outputs["Share"])["capacityLimits"]
    assert limits == [{"maxCapacity": 3, "capacityUnit": TYPE}]
    cloudformation.delete_stack(StackName=stack)
    wait_until(lambda: not client.describe_job_queues(jobQueues=[queue])["jobQueues"])


SDK_PROGRAM = """
import sys

from sagemaker.core.helper.session_helper import Session
from sagemaker.train import ModelTrainer
from sagemaker.train.aws_batch import training_queued_job
from sagemaker.train.aws_batch.exception import NoTrainingJob
from sagemaker.train.aws_batch.training_queue import TrainingQueue
from sagemaker.train.configs import Compute, OutputDataConfig, SourceCode, StoppingCondition

bucket, source, role, name, full = sys.argv[1:]
training_queued_job.POLL_IN_SECONDS = 0.2

def trainer(command):
    return ModelTrainer(
        sagemaker_session=Session(default_bucket=bucket),
        training_image="000000000000.dkr.ecr.us-east-1.amazonaws.com/any:1",
        source_code=SourceCode(source_dir=source, command=command),
        role=role,
        base_job_name="sdk",
        compute=Compute(instance_type="ml.m5.large", instance_count=1),
        stopping_condition=StoppingCondition(max_runtime_in_seconds=600),
        output_data_config=OutputDataConfig(s3_output_path=f"s3://{bucket}/out"),
    )

queue = TrainingQueue(name)
job = queue.submit(trainer("echo hello"), inputs=None, job_name="first", tags={"team": "a"})
waits = TrainingQueue(full).submit(trainer("echo never"), inputs=None, job_name="second")
try:
    waits.get_model_trainer()
except NoTrainingJob:
    print("second waits")
waits.update(7)
waits.terminate("not needed")
print("second ended:", waits.wait()["statusReason"])
done = job.wait(timeout=600)
print("first ended:", done["status"], done.get("statusReason"))
print("found:", queue.get_job("first").job_arn == job.job_arn)
print("failed:", [each.job_name for each in TrainingQueue(full).list_jobs(status="FAILED")])
print("image:", job.get_model_trainer().training_image)
"""


@pytest.mark.long
def test_the_sagemaker_sdk_queues_waits_lists_and_terminates(
    local_aws: LocalAws, client: Any, bucket: str, tmp_path: Path
) -> None:
    role = make_role(local_aws, f"sdk-{uuid.uuid4().hex[:8]}", service="sagemaker.amazonaws.com")
    queue, full = make_fifo_queue(client, 1), make_fifo_queue(client, 0)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "train.py").write_text("")
    settings = tmp_path / "sagemaker.yaml"
    settings.write_text("SchemaVersion: '1.0'\nSageMaker:\n  PythonSDK:\n    Modules:\n      TelemetryOptOut: true\n")
    done = subprocess.run(
        [sys.executable, "-c", SDK_PROGRAM, bucket, str(tmp_path / "source"), role, queue, full],
        env=os.environ
        | local_aws.environment()
        | {"SAGEMAKER_USER_CONFIG_OVERRIDE": str(settings), "HOME": str(tmp_path), "COLUMNS": "500"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for line in (
        "second waits",
        "second ended: not needed",
        "first ended: SUCCEEDED Received status from SageMaker: Training job completed",
        "found: True",
        "failed: ['second']",
        "image: 000000000000.dkr.ecr.us-east-1.amazonaws.com/any:1",
    ):
        assert line in done.stdout
