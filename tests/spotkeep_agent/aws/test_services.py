"""The other services, against the local AWS: the record, objects, logs, events, each checked with boto3."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spotkeep.errors import RemoteError
from spotkeep_agent.aws.calls import AwsCalls
from spotkeep_agent.aws.event_bus import EventBus
from spotkeep_agent.aws.fleet_records import FleetRecords, RecordChangedError
from spotkeep_agent.aws.log_stream import LogStream
from spotkeep_agent.aws.object_store import objects_of
from spotkeep_fleet.record import encode, new_record
from tests.models.granted import make_queue
from tests.models.run_table import make_run_table
from tests.spotkeep_agent.conftest import copies_of

REGION = "us-east-1"


@pytest.fixture
def calls(local_aws: Any) -> AwsCalls:
    return AwsCalls(region=REGION, environment=local_aws.environment())


@pytest.fixture
def table(local_aws: Any) -> Iterator[str]:
    name = f"runs-{uuid.uuid4().hex[:8]}"
    dynamodb = local_aws.session().client("dynamodb")
    make_run_table(dynamodb, name)
    yield name
    dynamodb.delete_table(TableName=name)


@pytest.fixture
def bucket(local_aws: Any) -> str:
    name = f"bucket-{uuid.uuid4().hex[:8]}"
    local_aws.session().client("s3").create_bucket(Bucket=name)
    return name


def test_of_two_writers_one_is_refused(calls: AwsCalls, local_aws: Any, table: str) -> None:
    records = FleetRecords(calls, table=table, run="r")
    assert records.read() is None
    first = new_record(run="r")
    local_aws.session().client("dynamodb").put_item(
        TableName=table,
        Item={"pk": {"S": "fleet#r"}, "sk": {"S": "fleet"}, "version": {"N": "0"}, "record": {"S": encode(first)}},
    )
    found = records.read()
    assert found == first
    records.write(replace(first, operations=1))
    with pytest.raises(RecordChangedError):
        records.write(replace(first, operations=2))
    assert records.read() == replace(first, operations=1, version=1)


def test_objects_are_written_listed_read_and_deleted(calls: AwsCalls, local_aws: Any, bucket: str) -> None:
    objects = objects_of(calls, bucket)
    for number in range(3):
        objects.write(f"a b/{number}+é", b"x" * number, labels={"spotkeep-content": "ab"})
    assert [(found.key, found.size) for found in objects.listing("a b/")] == [(f"a b/{n}+é", n) for n in range(3)]
    found = objects.head("a b/2+é")
    assert (found.size, found.labels) == (2, {"spotkeep-content": "ab"})
    assert objects.head("a b/9") is None
    objects.write("digits", b"0123456789", labels={})
    assert objects.read("digits", start=2, size=3) == b"234"
    assert local_aws.session().client("s3").get_object(Bucket=bucket, Key="digits")["Body"].read() == b"0123456789"
    objects.delete("digits")
    with pytest.raises(RemoteError) as caught:
        objects.read("digits", start=0, size=1)
    assert caught.value.missing


def test_a_large_object_goes_in_parts(calls: AwsCalls, bucket: str) -> None:
    objects = objects_of(calls, bucket)
    upload = objects.begin_upload("big", labels={"spotkeep-content": "cd"})
    pieces = [os.urandom(5 * 2**20), b"the rest"]
    parts = [objects.write_part("big", upload, number=n, raw=piece) for n, piece in enumerate(pieces, start=1)]
    assert objects.unfinished_uploads("") == [("big", upload)]
    assert [part.size for part in objects.parts("big", upload)] == [len(piece) for piece in pieces]
    objects.finish_upload("big", upload, parts)
    assert objects.read("big", start=5 * 2**20 - 1, size=100) == pieces[0][-1:] + pieces[1]
    assert objects.parts("big", "no-such-upload") == []


def test_a_log_arrives_and_a_missing_stream_is_made(calls: AwsCalls, local_aws: Any) -> None:
    logs = local_aws.session().client("logs")
    group = f"/spotkeep/{uuid.uuid4().hex[:8]}"
    logs.create_log_group(logGroupName=group)
    stream = LogStream(calls, group=group, stream="run-1/algo-1-ec2", seconds=3600)
    for number in range(3):
        stream.add(f"line {number}")
    stream.close()
    events = logs.get_log_events(logGroupName=group, logStreamName="run-1/algo-1-ec2", startFromHead=True)["events"]
    assert [event["message"] for event in events] == ["line 0", "line 1", "line 2"]


def test_a_log_that_cloudwatch_does_not_take_holds_nothing_up(calls: AwsCalls) -> None:
    stream = LogStream(calls, group="/no/such/group", stream="s", seconds=3600)
    stream.add("lost")
    stream.close()


def test_an_event_reaches_the_bus(calls: AwsCalls, local_aws: Any) -> None:
    events, queues = local_aws.session().client("events"), local_aws.session().client("sqs")
    name = f"agent-{uuid.uuid4().hex[:8]}"
    url, arn = make_queue(local_aws.session(), name, service="events.amazonaws.com")
    events.put_rule(Name=name, EventPattern=json.dumps({"source": ["spotkeep.agent"], "detail": {"run": [name]}}))
    events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": arn}])
    EventBus(calls, bus="default", about={"run": name}).put("finished", exit_code=0)
    found = queues.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"]
    assert '"exit_code": 0' in found[0]["Body"] or '"exit_code":0' in found[0]["Body"]


def test_the_newer_of_volume_and_s3_is_restored(calls: AwsCalls, bucket: str, tmp_path: Path) -> None:
    """Without boto3: the second tier stands on the agent's own requests."""
    from spotkeep import Checkpointer

    def save(directory: Path, steps: int) -> None:
        with Checkpointer({"weights": list(range(100))}, directory / "checkpoints", every_steps=1) as checkpointer:
            for _ in checkpointer.steps(steps):
                pass

    uploaded: list[int] = []
    first, second = tmp_path / "first", tmp_path / "second"
    save(first, 2)
    copies = copies_of(first, calls, f"s3://{bucket}/run", on_uploaded=uploaded.append)
    assert not copies.has_any()
    copies.start()
    assert copies.finish(lambda: 30.0, exit_code=0, goes_on=True)
    assert uploaded == [2]
    second.mkdir()
    lost = copies_of(second, calls, f"s3://{bucket}/run", on_uploaded=uploaded.append)
    assert lost.has_any()
    assert lost.restore_newer(known_uploaded=None) == 2
    assert lost.newest_here() == 2
    before = sum(calls.counted.values())
    assert lost.restore_newer(known_uploaded=2) is None
    assert sum(calls.counted.values()) == before, "S3 was asked for nothing"
    save(second, 5)
    assert lost.restore_newer(known_uploaded=None) is None
