"""The daemon: what it keeps over a hard kill, what its functions see, and where it must not reach."""

import io
import json
import os
import signal
import socket
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from spotkeep_local import lifecycle, process_identity
from spotkeep_local.daemon.server import server_environment
from spotkeep_local.daemon.state_directory import StateDirectory
from spotkeep_local.options import ServerOptions
from tests.discarding import discard
from tests.models.granted import make_queue

ROLE = "arn:aws:iam::000000000000:role/any"
TEMPLATE = {
    "Resources": {
        "Parameter": {
            "Type": "AWS::SSM::Parameter",
            "Properties": {"Name": "/stack/parameter", "Type": "String", "Value": "from the stack"},
        }
    }
}


def archive(**files: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as writer:
        for name, text in files.items():
            writer.writestr(name.replace("__", "/") + ".py", text)
    return buffer.getvalue()


def create_function(local: lifecycle.LocalAws, name: str, source: str, **settings: Any) -> None:
    client = local.session().client("lambda")
    client.create_function(
        FunctionName=name,
        Runtime="python3.13",
        Role=ROLE,
        Handler="handler.handler",
        Code={"ZipFile": archive(handler=source)},
        Timeout=30,
        **settings,
    )


def invoke(local: lifecycle.LocalAws, name: str) -> Any:
    answer = local.session().client("lambda").invoke(FunctionName=name, Payload=b"{}")
    body = json.load(answer["Payload"])
    assert "FunctionError" not in answer, body
    return body


def eventually(condition: Callable[[], bool]) -> bool:
    """Wait for something that happens in another process; the suite's time limit is the bound."""
    between = threading.Event()
    while not condition():
        between.wait(0.02)
    return True


@pytest.fixture
def own_local_aws(tmp_path: Path) -> Iterator[lifecycle.LocalAws]:
    """A server that a test may kill."""
    yield lifecycle.start(tmp_path / "local", port=lifecycle.free_port(), options=ServerOptions.fast())
    if (left := lifecycle.status(tmp_path / "local")) is not None:
        discard(left)


@pytest.mark.long
def test_what_was_there_is_there_after_a_restart(own_local_aws: lifecycle.LocalAws) -> None:
    session = own_local_aws.session()
    session.client("dynamodb").create_table(
        TableName="runs",
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    s3 = session.client("s3")
    s3.create_bucket(Bucket="checkpoints")
    s3.put_bucket_versioning(Bucket="checkpoints", VersioningConfiguration={"Status": "Enabled"})
    for body in (b"first", b"second"):
        s3.put_object(Bucket="checkpoints", Key="runs/a/step-1/data", Body=body)
    queue, queue_arn = make_queue(session, "notices", service="sns.amazonaws.com")
    topic = session.client("sns").create_topic(Name="notices")["TopicArn"]
    session.client("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue_arn)
    create_function(own_local_aws, "tracker", "def handler(event, context): return 'alive'")
    layer = session.client("lambda").publish_layer_version(
        LayerName="layer", Content={"ZipFile": archive(python__brought="WORD = 'brought'")}
    )
    source = "import brought\ndef handler(event, context): return brought.WORD"
    create_function(own_local_aws, "layered", source, Layers=[layer["LayerVersionArn"]])
    events = session.client("events")
    events.put_rule(Name="jobs", EventPattern=json.dumps({"source": ["aws.sagemaker"]}))
    events.put_targets(Rule="jobs", Targets=[{"Id": "queue", "Arn": queue_arn}])
    cloudformation = session.client("cloudformation")
    cloudformation.create_stack(StackName="stack", TemplateBody=json.dumps(TEMPLATE))
    cloudformation.get_waiter("stack_create_complete").wait(StackName="stack", WaiterConfig={"Delay": 1})
    session.client("dynamodb").put_item(TableName="runs", Item={"pk": {"S": "the-last-write"}})

    lifecycle.stop(own_local_aws.state_dir)
    assert "__bytes__" not in (own_local_aws.state_dir / "services/lambda.json").read_text(), "an archive as text"
    again = lifecycle.start(own_local_aws.state_dir, options=ServerOptions.fast())

    assert again.endpoint_url == own_local_aws.endpoint_url
    session = again.session()
    assert session.client("dynamodb").get_item(TableName="runs", Key={"pk": {"S": "the-last-write"}})["Item"]
    s3 = session.client("s3")
    versions = s3.list_object_versions(Bucket="checkpoints")["Versions"]
    bodies = [
        s3.get_object(Bucket="checkpoints", Key=version["Key"], VersionId=version["VersionId"])["Body"].read()
        for version in versions
    ]
    assert sorted(bodies) == [b"first", b"second"]
    assert invoke(again, "tracker") == "alive"
    assert invoke(again, "layered") == "brought"
    assert [rule["Name"] for rule in session.client("events").list_rules()["Rules"]] == ["jobs"]
    assert session.client("ssm").get_parameter(Name="/stack/parameter")["Parameter"]["Value"] == "from the stack"
    stack = session.client("cloudformation").describe_stacks(StackName="stack")["Stacks"][0]
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    session.client("sns").publish(TopicArn=topic, Message="still subscribed")
    received = session.client("sqs").receive_message(QueueUrl=queue, WaitTimeSeconds=10)["Messages"]
    assert json.loads(received[0]["Body"])["Message"] == "still subscribed"


@pytest.mark.long
def test_ctrl_c_saves_too(own_local_aws: lifecycle.LocalAws) -> None:
    own_local_aws.session().client("ssm").put_parameter(Name="/p", Type="String", Value="last second")
    started = process_identity.start_time(own_local_aws.pid)
    os.kill(own_local_aws.pid, signal.SIGINT)
    assert eventually(lambda: not process_identity.is_same_process(own_local_aws.pid, started))
    again = lifecycle.start(own_local_aws.state_dir, options=ServerOptions.fast())
    assert again.session().client("ssm").get_parameter(Name="/p")["Parameter"]["Value"] == "last second"


def test_a_function_reaches_the_local_aws_by_itself(local_aws: lifecycle.LocalAws) -> None:
    create_function(
        local_aws,
        "looks-around",
        "import os\n"
        "def handler(event, context): return {name: os.environ.get(name) for name in "
        "('AWS_ENDPOINT_URL', 'AWS_REGION', 'AWS_PROFILE', 'HOME', 'TMPDIR', 'HTTPS_PROXY')}",
    )
    seen = invoke(local_aws, "looks-around")
    assert seen["AWS_ENDPOINT_URL"] == local_aws.endpoint_url
    assert seen["AWS_REGION"] == "us-east-1"
    assert seen["AWS_PROFILE"] is None
    assert Path(seen["HOME"]).is_relative_to(local_aws.state_dir)
    assert Path(seen["TMPDIR"]).is_relative_to(local_aws.state_dir)


@pytest.mark.parametrize("package", ["boto3", "pip", "pydantic", "spotkeep_jobs"])
def test_a_function_sees_only_what_it_brings(local_aws: lifecycle.LocalAws, package: str) -> None:
    name = f"wants-{package.replace('_', '-')}"
    create_function(
        local_aws,
        name,
        f"import importlib.util\ndef handler(event, context): return importlib.util.find_spec({package!r}) is not None",
    )
    assert invoke(local_aws, name) is False


def test_an_event_of_aws_cannot_be_forged_from_outside(local_aws: lifecycle.LocalAws) -> None:
    entry = {"Source": "aws.sagemaker", "DetailType": "T", "Detail": "{}"}
    answer = local_aws.session().client("events").put_events(Entries=[entry])
    assert answer["Entries"][0]["ErrorCode"] == "NotAuthorizedForSourceException"


def test_sagemaker_answers_beside_the_other_services(local_aws: lifecycle.LocalAws) -> None:
    client = local_aws.session().client("sagemaker")
    assert client.list_training_jobs(NameContains="no-job-has-this-name")["TrainingJobSummaries"] == []
    with pytest.raises(ClientError, match="not found"):
        client.describe_training_job(TrainingJobName="no-job-has-this-name")


def test_it_listens_on_one_loopback_address_only(local_aws: lifecycle.LocalAws) -> None:
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", local_aws.port)) == 0
    # A server that listens on every interface answers on every loopback address too.
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.2", local_aws.port)) != 0


def test_it_opens_no_connection_that_leaves_the_machine(own_local_aws: lifecycle.LocalAws) -> None:
    session = own_local_aws.session()
    topic = session.client("sns").create_topic(Name="outward")["TopicArn"]
    # 192.0.2.0/24 is reserved for documentation: nothing answers there.
    session.client("sns").subscribe(TopicArn=topic, Protocol="http", Endpoint="http://192.0.2.1/hook")
    session.client("sns").publish(TopicArn=topic, Message="hello")
    log = StateDirectory(own_local_aws.state_dir).log
    assert eventually(lambda: "refused a connection to 192.0.2.1" in log.read_text())


def test_everything_it_writes_is_below_its_state_directory(tmp_path: Path) -> None:
    environment = server_environment(
        StateDirectory(tmp_path), port=4566, options=ServerOptions(), inherited={"HOME": "/home/me", "PATH": "/bin"}
    )
    places = ("HOME", "TMPDIR", "STATE_DIR", "S3_DATA_DIR", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")
    assert all(Path(environment[name]).is_relative_to(tmp_path) for name in places)


def test_nothing_of_the_callers_aws_or_network_settings_gets_in(tmp_path: Path) -> None:
    inherited = {
        "AWS_PROFILE": "production",
        "AWS_SESSION_TOKEN": "secret",
        "HTTPS_PROXY": "http://proxy",
        "DOCKER_HOST": "unix:///var/run/docker.sock",
        "PYTHONPATH": "/somewhere",
        "TZ": "Europe/Berlin",
    }
    environment = server_environment(StateDirectory(tmp_path), port=1, options=ServerOptions(), inherited=inherited)
    assert environment["TZ"] == "Europe/Berlin"
    assert environment["DOCKER_HOST"] != inherited["DOCKER_HOST"]
    assert not {"AWS_PROFILE", "AWS_SESSION_TOKEN", "HTTPS_PROXY", "PYTHONPATH"} & environment.keys()
