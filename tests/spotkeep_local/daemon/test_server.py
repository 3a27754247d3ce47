"""The daemon: what its functions see, and where it must not reach."""

import io
import json
import socket
import threading
import zipfile
from pathlib import Path

from spotkeep_local import lifecycle
from spotkeep_local.daemon.server import server_environment
from spotkeep_local.daemon.state_directory import StateDirectory
from spotkeep_local.options import ServerOptions

_CODE = """\
import importlib.util, os

def handler(event, context):
    names = ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_PROFILE", "HOME", "TMPDIR")
    found = [name for name in event["packages"] if importlib.util.find_spec(name) is not None]
    return {"environment": {name: os.environ.get(name) for name in names}, "found": found}
"""


def test_a_function_reaches_the_local_aws_by_itself_and_sees_only_what_it_brings(local_aws: lifecycle.LocalAws) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as writer:
        writer.writestr("handler.py", _CODE)
    client = local_aws.session().client("lambda")
    client.create_function(
        FunctionName="looks-around",
        Runtime="python3.13",
        Role="arn:aws:iam::000000000000:role/any",
        Handler="handler.handler",
        Code={"ZipFile": buffer.getvalue()},
        Timeout=30,
    )
    payload = {"packages": ["json", "boto3", "pip", "pydantic", "spotkeep_jobs"]}
    answer = client.invoke(FunctionName="looks-around", Payload=json.dumps(payload).encode())
    seen = json.load(answer["Payload"])
    assert seen["found"] == ["json"]
    environment = seen["environment"]
    assert environment["AWS_ENDPOINT_URL"] == local_aws.endpoint_url
    assert environment["AWS_REGION"] == "us-east-1"
    assert environment["AWS_PROFILE"] is None
    assert Path(environment["HOME"]).is_relative_to(local_aws.state_dir)
    assert Path(environment["TMPDIR"]).is_relative_to(local_aws.state_dir)


def test_an_event_of_aws_cannot_be_forged_from_outside(local_aws: lifecycle.LocalAws) -> None:
    entry = {"Source": "aws.sagemaker", "DetailType": "T", "Detail": "{}"}
    answer = local_aws.session().client("events").put_events(Entries=[entry])
    assert answer["Entries"][0]["ErrorCode"] == "NotAuthorizedForSourceException"


def test_it_listens_on_one_loopback_address_only(local_aws: lifecycle.LocalAws) -> None:
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", local_aws.port)) == 0
    # A server that listens on every interface answers on every loopback address too.
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.2", local_aws.port)) != 0


def test_it_opens_no_connection_that_leaves_the_machine(local_aws: lifecycle.LocalAws) -> None:
    sns = local_aws.session().client("sns")
    topic = sns.create_topic(Name="outward")["TopicArn"]
    # 192.0.2.0/24 is reserved for documentation: nothing answers there.
    sns.subscribe(TopicArn=topic, Protocol="http", Endpoint="http://192.0.2.1/hook")
    sns.publish(TopicArn=topic, Message="hello")
    log, between = StateDirectory(local_aws.state_dir).log, threading.Event()
    while "refused a connection to 192.0.2.1" not in log.read_text():
        between.wait(0.02)
    sns.delete_topic(TopicArn=topic)


def test_it_writes_below_its_state_directory_and_nothing_of_the_callers_aws_or_network_gets_in(tmp_path: Path) -> None:
    inherited = {
        "AWS_PROFILE": "production",
        "AWS_SESSION_TOKEN": "secret",
        "HOME": "/home/me",
        "HTTPS_PROXY": "http://proxy",
        "DOCKER_HOST": "unix:///var/run/docker.sock",
        "PYTHONPATH": "/somewhere",
        "TZ": "Europe/Berlin",
    }
    environment = server_environment(StateDirectory(tmp_path), port=1, options=ServerOptions(), inherited=inherited)
    places = ("HOME", "TMPDIR", "STATE_DIR", "S3_DATA_DIR", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")
    assert all(Path(environment[name]).is_relative_to(tmp_path) for name in places)
    assert environment["TZ"] == "Europe/Berlin"
    assert environment["DOCKER_HOST"] != inherited["DOCKER_HOST"]
    assert not {"AWS_PROFILE", "AWS_SESSION_TOKEN", "HTTPS_PROXY", "PYTHONPATH"} & environment.keys()
