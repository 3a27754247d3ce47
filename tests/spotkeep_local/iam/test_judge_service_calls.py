"""What services do by themselves on the local AWS is judged: without the policy that AWS asks for, nothing happens."""

from __future__ import annotations

import io
import json
import sys
import time
import uuid
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from tests.models.granted import make_queue, make_role

if TYPE_CHECKING:
    from spotkeep_local.lifecycle import LocalAws

QUIET_SECONDS = 1
EVENTS, SNS = "events.amazonaws.com", "sns.amazonaws.com"


@pytest.fixture
def name() -> str:
    return f"services-{uuid.uuid4().hex[:10]}"


def queue(local_aws: LocalAws, name: str, *, service: str | None) -> tuple[str, str]:
    """A queue that a service may deliver to, or none may."""
    if service is not None:
        return make_queue(local_aws.session(), name, service=service)
    sqs = local_aws.session().client("sqs")
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    return url, sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]


def received(local_aws: LocalAws, url: str) -> int:
    """How many messages come, after a while in which nothing happens."""
    answer = local_aws.session().client("sqs").receive_message(QueueUrl=url, WaitTimeSeconds=QUIET_SECONDS)
    return len(answer.get("Messages", []))


@pytest.mark.parametrize(("service", "comes"), [(EVENTS, 1), (None, 0)])
def test_a_rule_delivers_to_a_queue_whose_policy_lets_eventbridge(
    local_aws: LocalAws, name: str, service: str | None, comes: int
) -> None:
    url, arn = queue(local_aws, name, service=service)
    events = local_aws.session().client("events")
    events.put_rule(Name=name, EventPattern=json.dumps({"source": [name]}))
    events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": arn}])
    events.put_events(Entries=[{"Source": name, "DetailType": "t", "Detail": "{}"}])
    assert received(local_aws, url) == comes


@pytest.mark.parametrize(("service", "comes"), [(SNS, 1), (None, 0)])
def test_a_topic_delivers_to_a_queue_whose_policy_lets_sns(
    local_aws: LocalAws, name: str, service: str | None, comes: int
) -> None:
    url, arn = queue(local_aws, name, service=service)
    sns = local_aws.session().client("sns")
    topic = sns.create_topic(Name=name)["TopicArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    sns.publish(TopicArn=topic, Message="m")
    assert received(local_aws, url) == comes


@pytest.mark.long
@pytest.mark.parametrize(("actions", "comes"), [(("sqs:SendMessage",), 1), (("sqs:ReceiveMessage",), 0)])
def test_a_schedule_acts_in_its_role(local_aws: LocalAws, name: str, actions: tuple[str, ...], comes: int) -> None:
    url, arn = queue(local_aws, name, service=None)
    role = make_role(local_aws, name, actions=actions, service="scheduler.amazonaws.com")
    local_aws.session().client("scheduler").create_schedule(
        Name=name,
        ScheduleExpression="at(2020-01-01T00:00:00)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": arn, "RoleArn": role},
    )
    # Scheduler looks every second at what is due; on a busy machine it takes longer.
    until = time.monotonic() + (60 if comes else 4) * QUIET_SECONDS
    found = 0
    while not found and time.monotonic() < until:
        found = received(local_aws, url)
    assert found == comes


NOTHING = "def handler(event, context):\n    print('ran')\n"
PROVIDER = """
import json, urllib.request
def handler(event, context):
    names = ("StackId", "RequestId", "LogicalResourceId")
    answer = {"Status": "SUCCESS", "PhysicalResourceId": "made", **{name: event[name] for name in names}}
    request = urllib.request.Request(event["ResponseURL"], json.dumps(answer).encode(), method="PUT")
    urllib.request.urlopen(request)
"""


def function(local_aws: LocalAws, name: str, *, actions: tuple[str, ...], source: str = NOTHING) -> str:
    """A function, in a role that may do this."""
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("index.py", source)
    answer: dict[str, Any] = (
        local_aws.session()
        .client("lambda")
        .create_function(
            FunctionName=name,
            Runtime=f"python3.{sys.version_info.minor}",
            Role=make_role(local_aws, name, actions=actions, service="lambda.amazonaws.com"),
            Handler="index.handler",
            Code={"ZipFile": package.getvalue()},
        )
    )
    return str(answer["FunctionArn"])


@pytest.mark.parametrize(("actions", "writes"), [(("logs:*",), True), (("s3:*",), False)])
def test_a_function_logs_in_its_role(local_aws: LocalAws, name: str, actions: tuple[str, ...], *, writes: bool) -> None:
    function(local_aws, name, actions=actions)
    logs = local_aws.session().client("logs")
    lines: list[Any] = []
    # Ministack waits a moment for the lines of an invocation. Those that come later are with the next one's.
    for _ in range(5):
        local_aws.session().client("lambda").invoke(FunctionName=name)
        for group in logs.describe_log_groups(logGroupNamePrefix=f"/aws/lambda/{name}")["logGroups"]:
            lines += logs.filter_log_events(logGroupName=group["logGroupName"])["events"]
    assert any("ran" in line["message"] for line in lines) is writes


@pytest.mark.parametrize(
    ("actions", "service", "ends"),
    [
        (("lambda:InvokeFunction",), "cloudformation.amazonaws.com", "CREATE_COMPLETE"),
        (("lambda:GetFunction",), "cloudformation.amazonaws.com", "ROLLBACK_COMPLETE"),
        (("lambda:InvokeFunction",), "lambda.amazonaws.com", "ROLLBACK_COMPLETE"),
    ],
)
def test_cloudformation_invokes_the_function_of_a_custom_resource_in_the_role_of_the_stack(
    local_aws: LocalAws, name: str, actions: tuple[str, ...], service: str, ends: str
) -> None:
    provider = function(local_aws, name, actions=("logs:*",), source=PROVIDER)
    role = make_role(local_aws, f"{name}-stack", actions=actions, service=service)
    resource = {"Type": "Custom::Thing", "Properties": {"ServiceToken": provider, "ServiceTimeout": 600}}
    cloudformation = local_aws.session().client("cloudformation")
    cloudformation.create_stack(
        StackName=name, TemplateBody=json.dumps({"Resources": {"Thing": resource}}), RoleARN=role
    )
    while (stack := cloudformation.describe_stacks(StackName=name)["Stacks"][0])["StackStatus"].endswith("PROGRESS"):
        time.sleep(0.05)
    assert stack["StackStatus"] == ends
    reasons = [
        each.get("ResourceStatusReason", "")
        for each in cloudformation.describe_stack_events(StackName=name)["StackEvents"]
    ]
    assert any("lambda:InvokeFunction" in reason for reason in reasons) is (ends == "ROLLBACK_COMPLETE")


def test_a_job_reads_its_channel_in_its_role(local_aws: LocalAws, name: str) -> None:
    session = local_aws.session()
    session.client("s3").create_bucket(Bucket=name)
    session.client("s3").put_object(Bucket=name, Key="code/train.py", Body=b"pass")
    request: dict[str, Any] = {
        "TrainingJobName": name,
        "AlgorithmSpecification": {
            "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/image:1",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["python3", "/opt/ml/input/data/code/train.py"],
        },
        "RoleArn": make_role(local_aws, name, actions=("logs:*",), service="sagemaker.amazonaws.com"),
        "InputDataConfig": [
            {
                "ChannelName": "code",
                "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{name}/code/"}},
            }
        ],
        "OutputDataConfig": {"S3OutputPath": f"s3://{name}/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 10},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
    }
    with pytest.raises(ClientError, match='has "s3:ListBucket" permissions on bucket'):
        session.client("sagemaker").create_training_job(**request)
