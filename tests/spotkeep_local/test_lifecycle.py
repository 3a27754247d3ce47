"""Starting, finding and stopping the local AWS, whatever state the last one left things in."""

import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import EndpointConnectionError

from spotkeep_local import lifecycle
from spotkeep_local.daemon.state_directory import ServerRecord, StateDirectory
from spotkeep_local.errors import PersistenceError, PortInUseError, RunningElsewhereError, StartError
from spotkeep_local.hosts import process_identity
from spotkeep_local.options import ServerOptions
from tests.discarding import discard
from tests.models.granted import make_queue
from tests.spotkeep_local.test_function_urls import address_of, call, credentials_of, deploy_echo

pytestmark = pytest.mark.long

FAST = ServerOptions.fast()


@pytest.fixture
def state_dir(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "local"
    yield path
    if (left := lifecycle.status(path)) is not None:
        discard(left)


def start(state_dir: Path) -> lifecycle.LocalAws:
    return lifecycle.start(state_dir, port=lifecycle.free_port(), options=FAST)


def end(local: lifecycle.LocalAws, how: signal.Signals) -> None:
    """Send a signal to the server and wait until it is gone."""
    started = process_identity.start_time(local.pid)
    os.kill(local.pid, how)
    gone = threading.Event()
    while process_identity.is_same_process(local.pid, started):
        gone.wait(0.01)


@pytest.fixture
def another_program() -> Iterator[int]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def test_two_starts_at_once_give_one_server_which_outlives_its_starter_and_is_stopped(
    state_dir: Path, old_record: subprocess.Popen[bytes]
) -> None:
    """It harms no process that an old record names, and keeps no temporary files of the server before."""
    directory = StateDirectory(state_dir)
    (directory.temporary / "unpacked").mkdir()
    assert lifecycle.status(state_dir) is None
    script = (
        "import sys; from pathlib import Path; from spotkeep_local import lifecycle;"
        "from spotkeep_local.options import ServerOptions;"
        "print(lifecycle.start(Path(sys.argv[1]), options=ServerOptions.fast()).pid)"
    )
    starters = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(state_dir)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for _ in range(2)
    ]
    pids = {starter.communicate()[0].strip() for starter in starters}
    local = lifecycle.status(state_dir)
    assert local is not None
    assert pids == {str(local.pid)}
    assert old_record.poll() is None
    assert not (directory.temporary / "unpacked").exists()
    waiting = threading.Event()
    while directory.discarded.exists():
        waiting.wait(0.01)

    assert lifecycle.stop(state_dir)
    assert lifecycle.status(state_dir) is None
    assert process_identity.start_time(local.pid) is None
    assert not lifecycle.stop(state_dir), "there is nothing left to stop"


@pytest.fixture
def old_record(state_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has the number of an earlier server, as the record in the state directory says."""
    directory = StateDirectory(state_dir)
    directory.create()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander:
        ServerRecord(
            pid=bystander.pid,
            process_started="long ago",
            nonce="n",
            port=lifecycle.free_port(),
            region="us-east-1",
            account_id="000000000000",
        ).write(directory.record)
        yield bystander
        bystander.kill()


def test_a_running_server_says_what_other_programs_need_to_know(local_aws: lifecycle.LocalAws) -> None:
    record = json.loads((local_aws.state_dir / "local.json").read_text())
    found = (record["pid"], record["port"], record["endpoint"])
    assert found == (local_aws.pid, local_aws.port, local_aws.endpoint_url)


def test_a_second_start_finds_the_first_and_is_refused_on_another_port(
    local_aws: lifecycle.LocalAws, another_program: int
) -> None:
    assert lifecycle.start(local_aws.state_dir) == local_aws
    assert lifecycle.start(local_aws.state_dir, port=local_aws.port) == local_aws
    with pytest.raises(RunningElsewhereError, match=rf"on port {local_aws.port} and not on {another_program}"):
        lifecycle.start(local_aws.state_dir, port=another_program)


def test_a_port_in_use_is_named_with_what_to_do(state_dir: Path, another_program: int) -> None:
    with pytest.raises(PortInUseError, match=rf"port {another_program} .* in use by another program; .*name"):
        lifecycle.start(state_dir, port=another_program, options=FAST)
    assert lifecycle.status(state_dir) is None


def test_without_a_port_it_takes_the_usual_one_or_else_a_free_one(
    state_dir: Path, another_program: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = lifecycle.free_port()
    for preferred, taken in ((usual, True), (another_program, False)):
        monkeypatch.setattr(lifecycle, "DEFAULT_PORT", preferred)
        with lifecycle._listen(StateDirectory(state_dir), None) as listening:
            assert (listening.getsockname()[1] == preferred) == taken


def test_another_server_on_the_recorded_port_is_not_taken_for_ours(
    local_aws: lifecycle.LocalAws, state_dir: Path
) -> None:
    directory = StateDirectory(state_dir)
    directory.create()
    record = ServerRecord.read(StateDirectory(local_aws.state_dir).record)
    assert record is not None
    ServerRecord(**{**vars(record), "pid": 0, "nonce": "mine"}).write(directory.record)
    assert lifecycle.status(state_dir) is None


def test_its_byte_code_is_kept_even_where_the_image_forbids_it(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environments: list[dict[str, str]] = []

    def popen(*_arguments: Any, env: dict[str, str], **_options: Any) -> None:
        environments.append(env)
        raise OSError("it is not started here")

    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(
        lifecycle, "subprocess", SimpleNamespace(Popen=popen, DEVNULL=subprocess.DEVNULL, STDOUT=subprocess.STDOUT)
    )
    with pytest.raises(OSError, match="not started here"):
        start(state_dir)
    assert [{"PATH", "PYTHONDONTWRITEBYTECODE"} & environment.keys() for environment in environments] == [{"PATH"}]


def test_a_state_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PersistenceError, match=r"cannot keep its state in .*file/local"):
        lifecycle.start(tmp_path / "file" / "local")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state of a server that was used, and ended by Ctrl-C."""
    state_dir = tmp_path_factory.mktemp("used") / "local"
    local = start(state_dir)
    session = local.session()
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
    session.client("sqs").send_message(QueueUrl=queue, MessageBody="sent before")
    layer = session.client("lambda").publish_layer_version(
        LayerName="layer", Content={"ZipFile": archive("python/brought.py", "WORD = 'brought'")}
    )
    session.client("lambda").create_function(
        FunctionName="layered",
        Runtime="python3.13",
        Role="arn:aws:iam::000000000000:role/any",
        Handler="index.handler",
        Code={"ZipFile": archive("index.py", "import brought\ndef handler(event, context): return brought.WORD")},
        Layers=[layer["LayerVersionArn"]],
    )
    events = session.client("events")
    events.put_rule(Name="jobs", EventPattern=json.dumps({"source": ["aws.sagemaker"]}))
    events.put_targets(Rule="jobs", Targets=[{"Id": "queue", "Arn": queue_arn}])
    session.client("ec2").create_volume(AvailabilityZone="us-east-1a", Size=1)
    deploy_echo(local)
    session.client("dynamodb").put_item(TableName="runs", Item={"pk": {"S": "the-last-write"}})
    end(local, signal.SIGINT)
    assert "__bytes__" not in (state_dir / "services/lambda.json").read_text(), "an archive as text"
    return state_dir


def archive(name: str, text: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as writer:
        writer.writestr(name, text)
    return buffer.getvalue()


def test_what_was_there_is_there_after_a_restart_on_another_port(
    kept: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old port may be taken, or the state a copy: events must not wait in a queue that is not read."""
    shutil.copytree(kept, state_dir)
    monkeypatch.setattr(lifecycle, "_QUICK_START_SECONDS", 0)
    said: list[str] = []
    local = lifecycle.start(state_dir, port=lifecycle.free_port(), options=FAST, on_waiting=said.append)
    files = [path for path in StateDirectory(kept).objects.rglob("*") if path.is_file()]
    assert said == [f"restores what it kept: {len(files)} files of S3, 0 MB of everything else"]
    session = local.session()
    assert session.client("dynamodb").get_item(TableName="runs", Key={"pk": {"S": "the-last-write"}})["Item"]
    s3 = session.client("s3")
    versions = s3.list_object_versions(Bucket="checkpoints")["Versions"]
    bodies = [
        s3.get_object(Bucket="checkpoints", Key=version["Key"], VersionId=version["VersionId"])["Body"].read()
        for version in versions
    ]
    assert sorted(bodies) == [b"first", b"second"]
    assert json.load(session.client("lambda").invoke(FunctionName="layered")["Payload"]) == "brought"
    assert [rule["Name"] for rule in session.client("events").list_rules()["Rules"]] == ["jobs"]
    assert [volume["Size"] for volume in session.client("ec2").describe_volumes()["Volumes"]] == [1]
    stack = session.client("cloudformation").describe_stacks(StackName="echo")["Stacks"][0]
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    url = local.on_this_port(address_of(local))
    assert url.startswith(f"{local.endpoint_url}/_aws/lambda-url/")
    assert call(url, credentials=credentials_of(local, session_name="ada"))["rawPath"] == "/"
    sqs = session.client("sqs")
    queue = sqs.get_queue_url(QueueName="notices")["QueueUrl"]
    # ministack looks for the queue of an event source mapping at this address, and nowhere else.
    assert queue == f"{local.endpoint_url}/{local.account_id}/notices"
    assert sqs.list_queues()["QueueUrls"] == [queue]
    assert sqs.receive_message(QueueUrl=queue)["Messages"][0]["Body"] == "sent before"
    (topic,) = session.client("sns").list_topics()["Topics"]
    session.client("sns").publish(TopicArn=topic["TopicArn"], Message="still subscribed")
    (received,) = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=10)["Messages"]
    assert json.loads(received["Body"])["Message"] == "still subscribed"


def test_a_start_that_fails_shows_why_and_loses_nothing(kept: Path, state_dir: Path) -> None:
    shutil.copytree(kept, state_dir)
    file = StateDirectory(state_dir).ec2 / "resources.json"
    file.write_text("{")
    before = saved(state_dir)
    with pytest.raises(StartError, match="it ended while it started") as failure:
        start(state_dir)
    assert "resources.json is damaged" in failure.value.log_tail[-1]
    assert lifecycle.status(state_dir) is None
    assert saved(state_dir) == before


def saved(state_dir: Path) -> dict[Path, bytes]:
    """What the next server reads."""
    directory = StateDirectory(state_dir)
    assert not directory.unsaved.exists(), "it would be taken for that of a server that was killed"
    folders = (directory.services, directory.objects, directory.ec2)
    return {path: path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}


def test_a_server_that_does_not_answer_is_replaced_by_one_that_begins_empty_and_says_so(
    kept: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed: what it had saved before is older than what it kept, and is not shown instead."""
    shutil.copytree(kept, state_dir)
    stuck = start(state_dir)
    monkeypatch.setattr(lifecycle, "_STOP_MARGIN_SECONDS", 5.0)
    os.kill(stuck.pid, signal.SIGSTOP)
    said: list[str] = []
    again = lifecycle.start(state_dir, options=FAST, on_waiting=said.append)
    assert process_identity.start_time(stuck.pid) is None
    assert (again.port, again.pid == stuck.pid) == (stuck.port, False)
    assert [line for line in said if "killed" in line and "gone" in line]
    assert again.session().client("s3").list_buckets()["Buckets"] == []
    assert again.session().client("ec2").describe_volumes()["Volumes"] == []
    assert again.access_key == stuck.access_key, "what a shell exported still works"


def test_every_client_calls_it_in_its_environment_and_nothing_else(
    local_aws: lifecycle.LocalAws, tmp_path: Path
) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **local_aws.environment()}
    script = "import boto3; print(boto3.client('sts').get_caller_identity()['Account'])"
    answer = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == local_aws.account_id


def test_a_session_ignores_the_processes_environment(
    local_aws: lifecycle.LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "default")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert "Buckets" in local_aws.session().resource("s3").meta.client.list_buckets()
    monkeypatch.setenv("AWS_ENDPOINT_URL", local_aws.endpoint_url)
    gone = replace(local_aws, endpoint_url=f"http://127.0.0.1:{lifecycle.free_port()}")
    once = Config(retries={"total_max_attempts": 1})
    with pytest.raises(EndpointConnectionError):
        gone.session().client("sts", config=once).get_caller_identity()
