"""Starting, finding and stopping the local AWS, whatever state the last one left things in."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import EndpointConnectionError

from spotkeep_local import lifecycle, process_identity
from spotkeep_local.daemon.record import ServerRecord
from spotkeep_local.daemon.state_directory import StateDirectory
from spotkeep_local.errors import PersistenceError, PortInUseError, RunningElsewhereError, StartError
from spotkeep_local.options import ServerOptions
from tests.discarding import discard

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


def kill(local: lifecycle.LocalAws) -> None:
    """End the server the hard way and wait until it is gone."""
    started = process_identity.start_time(local.pid)
    os.kill(local.pid, signal.SIGKILL)
    gone = threading.Event()
    while process_identity.is_same_process(local.pid, started):
        gone.wait(0.01)


@pytest.fixture
def another_program() -> Iterator[int]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def test_a_started_server_is_found_used_and_stopped(state_dir: Path) -> None:
    assert lifecycle.status(state_dir) is None
    local = start(state_dir)
    assert lifecycle.status(state_dir) == local
    assert local.session().client("sts").get_caller_identity()["Account"] == local.account_id
    assert lifecycle.stop(state_dir)
    assert lifecycle.status(state_dir) is None
    assert process_identity.start_time(local.pid) is None
    assert not lifecycle.stop(state_dir), "there is nothing left to stop"


def test_it_says_what_other_programs_need_to_know(local_aws: lifecycle.LocalAws) -> None:
    record = json.loads((local_aws.state_dir / "local.json").read_text())
    found = (record["pid"], record["port"], record["endpoint"])
    assert found == (local_aws.pid, local_aws.port, local_aws.endpoint_url)


def test_a_second_start_finds_the_first(local_aws: lifecycle.LocalAws) -> None:
    assert lifecycle.start(local_aws.state_dir) == local_aws
    assert lifecycle.start(local_aws.state_dir, port=local_aws.port) == local_aws


def test_a_second_start_on_another_port_is_refused(local_aws: lifecycle.LocalAws, another_program: int) -> None:
    with pytest.raises(RunningElsewhereError, match=rf"on port {local_aws.port} and not on {another_program}"):
        lifecycle.start(local_aws.state_dir, port=another_program)


def test_two_starts_at_once_give_one_server_which_outlives_its_starter(state_dir: Path) -> None:
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


def test_on_another_port_its_queues_still_lead_to_its_functions(state_dir: Path) -> None:
    """The old port may be taken, or the state a copy: events must not wait in a queue that is not read."""
    first = start(state_dir)
    sqs = first.session().client("sqs")
    address = sqs.create_queue(QueueName="events")["QueueUrl"]
    sqs.send_message(QueueUrl=address, MessageBody="sent before")
    lifecycle.stop(state_dir)
    second = start(state_dir)
    assert second.port != first.port
    sqs = second.session().client("sqs")
    found = sqs.get_queue_url(QueueName="events")["QueueUrl"]
    # ministack looks for the queue of an event source mapping at this address, and nowhere else.
    assert found == f"{second.endpoint_url}/{second.account_id}/events"
    assert sqs.list_queues()["QueueUrls"] == [found]
    (message,) = sqs.receive_message(QueueUrl=found)["Messages"]
    assert message["Body"] == "sent before"


def test_an_address_that_an_earlier_server_gave_out_answers_on_this_port(local_aws: lifecycle.LocalAws) -> None:
    given_out = "http://127.0.0.1:1/_aws/lambda-url/abc/"
    assert local_aws.on_this_port(given_out) == f"{local_aws.endpoint_url}/_aws/lambda-url/abc/"


def test_a_record_that_names_another_process_harms_it_not(state_dir: Path) -> None:
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
        assert lifecycle.status(state_dir) is None
        local = start(state_dir)
        assert local.pid != bystander.pid
        assert bystander.poll() is None
        bystander.kill()


def test_another_server_on_the_recorded_port_is_not_taken_for_ours(
    local_aws: lifecycle.LocalAws, state_dir: Path
) -> None:
    directory = StateDirectory(state_dir)
    directory.create()
    record = ServerRecord.read(StateDirectory(local_aws.state_dir).record)
    assert record is not None
    ServerRecord(**{**vars(record), "pid": 0, "nonce": "mine"}).write(directory.record)
    assert lifecycle.status(state_dir) is None


def test_a_start_that_takes_long_says_what_it_restores_and_waits_for_no_temporary_files(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "_QUICK_START_SECONDS", 0)
    directory = StateDirectory(state_dir)
    directory.create()
    (directory.temporary / "unpacked").mkdir()
    (directory.objects / "bucket").mkdir()
    (directory.objects / "bucket" / "key").touch()
    said: list[str] = []
    lifecycle.start(state_dir, port=lifecycle.free_port(), options=FAST, on_waiting=said.append)
    assert said == ["restores what it kept: 1 files of S3, 0 MB of everything else"]
    assert not (directory.temporary / "unpacked").exists()
    waiting = threading.Event()
    while directory.discarded.exists():
        waiting.wait(0.01)


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


def test_a_start_that_fails_shows_why_and_loses_nothing(state_dir: Path) -> None:
    start(state_dir).session().client("s3").create_bucket(Bucket="kept")
    lifecycle.stop(state_dir)
    file = StateDirectory(state_dir).ec2 / "resources.json"
    saved = file.read_text()
    file.write_text("{")
    with pytest.raises(StartError, match="it ended while it started") as failure:
        start(state_dir)
    assert "resources.json is damaged" in failure.value.log_tail[-1]
    assert lifecycle.status(state_dir) is None
    file.write_text(saved)
    assert [bucket["Name"] for bucket in start(state_dir).session().client("s3").list_buckets()["Buckets"]] == ["kept"]


def test_a_state_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PersistenceError, match=r"cannot keep its state in .*file/local"):
        lifecycle.start(tmp_path / "file" / "local")


def test_a_server_that_does_not_answer_is_replaced(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = start(state_dir)
    monkeypatch.setattr(lifecycle, "_HEALTH_TIMEOUT_SECONDS", 2.0)
    monkeypatch.setattr(lifecycle, "_STOP_MARGIN_SECONDS", 0.5)
    os.kill(stuck.pid, signal.SIGSTOP)
    assert lifecycle.start(state_dir, options=FAST).pid != stuck.pid
    assert process_identity.start_time(stuck.pid) is None


def test_after_a_kill_it_begins_empty_on_the_same_port_and_says_so(state_dir: Path) -> None:
    local = start(state_dir)
    local.session().client("s3").create_bucket(Bucket="kept")
    lifecycle.stop(state_dir)
    local = start(state_dir)
    s3 = local.session().client("s3")
    assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == ["kept"]
    s3.put_object(Bucket="kept", Key="newer-than-the-rest", Body=b"")
    kill(local)
    assert lifecycle.status(state_dir) is None
    said: list[str] = []
    again = lifecycle.start(state_dir, options=FAST, on_waiting=said.append)
    assert (again.port, again.pid == local.pid) == (local.port, False)
    assert [line for line in said if "killed" in line and "gone" in line]
    assert again.session().client("s3").list_buckets()["Buckets"] == []
    assert again.access_key == local.access_key, "what a shell exported still works"


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
