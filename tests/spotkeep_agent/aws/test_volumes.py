"""Calls to EC2 are those that botocore would send, and answers are read as EC2 documents them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import botocore.session
import pytest
from botocore.serialize import create_serializer

from spotkeep_agent.aws.calls import AwsCalls
from spotkeep_agent.aws.volumes import RunVolumes
from spotkeep_agent.ebs import EbsAttachment, EbsSnapshot, EbsVolume
from spotkeep_agent.errors import AwsCallRefusedError, AwsUnavailableError
from spotkeep_fleet.instance_job import VolumeSpec

MODEL = botocore.session.get_session().get_service_model("ec2")
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_ENDPOINT_URL": "http://ec2.local"}
TAGS = [
    {"Key": "Name", "Value": "run-3"},
    {"Key": "spotkeep:deployment", "Value": "spotkeep"},
    {"Key": "spotkeep:operation", "Value": "3"},
    {"Key": "spotkeep:run", "Value": "run"},
]
USERS_TAGS = [{"Key": "Name", "Value": "mine"}, *TAGS[1:], {"Key": "team", "Value": "vision"}]


class Wire:
    """Answers what a test sets, and keeps what was sent."""

    def __init__(self, *answers: tuple[int, str] | OSError) -> None:
        self.answers = list(answers)
        self.sent: list[dict[str, str]] = []
        self.calls = AwsCalls(
            region="us-east-1", environment=ENVIRONMENT, transport=self._transport, sleep=lambda seconds: None
        )
        self.volumes = RunVolumes(self.calls, deployment="spotkeep", run="run", instance="i-1")

    def _transport(self, method: str, url: str, **request: Any) -> tuple[int, dict[str, str], bytes]:
        assert (method, url) == ("POST", "http://ec2.local/")
        self.sent.append(dict(parse_qsl(request["body"].decode(), keep_blank_values=True)))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, OSError):
            raise answer
        return (
            answer[0],
            {},
            f'<Response xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">{answer[1]}</Response>'.encode(),
        )


def refusal(code: str, message: str = "no", status: int = 400) -> tuple[int, str]:
    return status, f"<Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>"


SPEC = VolumeSpec(size_gb=8, type="gp3", throughput_mib_s=250, initialization_rate_mib_s=200, kms_key_id="key")


@pytest.mark.parametrize(
    ("call", "action", "parameters"),
    [
        (
            lambda volumes: volumes.create_volume(SPEC, zone="us-east-1a", operation=3, size_gb=9, snapshot="snap-1"),
            "CreateVolume",
            {
                "AvailabilityZone": "us-east-1a",
                "VolumeType": "gp3",
                "Size": 9,
                "Encrypted": True,
                "Throughput": 250,
                "KmsKeyId": "key",
                "SnapshotId": "snap-1",
                "VolumeInitializationRate": 200,
                "ClientToken": "run-3",
                "TagSpecifications": [{"ResourceType": "volume", "Tags": TAGS}],
            },
        ),
        (
            lambda volumes: volumes.create_snapshot("vol-1", operation=3),
            "CreateSnapshot",
            {
                "VolumeId": "vol-1",
                "Description": "Spotkeep: run moves to another zone",
                "TagSpecifications": [{"ResourceType": "snapshot", "Tags": TAGS}],
            },
        ),
        (
            lambda volumes: volumes.create_snapshot("vol-1", operation=3, tags={"team": "vision", "Name": "mine"}),
            "CreateSnapshot",
            {
                "VolumeId": "vol-1",
                "Description": "Spotkeep: run moves to another zone",
                "TagSpecifications": [{"ResourceType": "snapshot", "Tags": USERS_TAGS}],
            },
        ),
        (
            lambda volumes: volumes.create_volume(
                VolumeSpec(size_gb=8, tags={"team": "vision", "Name": "mine"}),
                zone="us-east-1a",
                operation=3,
                size_gb=8,
                snapshot=None,
            ),
            "CreateVolume",
            {
                "AvailabilityZone": "us-east-1a",
                "VolumeType": "gp3",
                "Size": 8,
                "Encrypted": True,
                "ClientToken": "run-3",
                "TagSpecifications": [{"ResourceType": "volume", "Tags": USERS_TAGS}],
            },
        ),
        (
            lambda volumes: volumes.attach("vol-1"),
            "AttachVolume",
            {"VolumeId": "vol-1", "InstanceId": "i-1", "Device": "/dev/sdf"},
        ),
        (
            lambda volumes: volumes.detach("vol-1", instance="i-2", force=True),
            "DetachVolume",
            {"VolumeId": "vol-1", "InstanceId": "i-2", "Force": True},
        ),
        (
            lambda volumes: volumes.snapshots(id_=None, operation=3),
            "DescribeSnapshots",
            {
                "Filters": [
                    {"Name": f"tag:{tag['Key']}", "Values": [tag["Value"]]} for tag in (TAGS[1], TAGS[3], TAGS[2])
                ]
            },
        ),
        (
            lambda volumes: volumes.instances(("i-1", "i-2")),
            "DescribeInstances",
            {"Filters": [{"Name": "instance-id", "Values": ["i-1", "i-2"]}]},
        ),
        (lambda volumes: volumes.delete_snapshot("snap-1"), "DeleteSnapshot", {"SnapshotId": "snap-1"}),
    ],
)
def test_a_call_is_the_one_that_botocore_sends(
    call: Callable[[RunVolumes], object], action: str, parameters: dict[str, Any]
) -> None:
    wire = Wire((200, "<volumeId>vol-9</volumeId><snapshotId>snap-9</snapshotId>"))
    call(wire.volumes)
    model = MODEL.operation_model(action)
    theirs = create_serializer("ec2").serialize_to_request(parameters, model)["body"]
    assert wire.sent == [{name: str(value) for name, value in theirs.items()}]


def test_volumes_are_read_as_ec2_shows_them() -> None:
    wire = Wire(
        (
            200,
            """<volumeSet><item><volumeId>vol-1</volumeId><size>80</size><snapshotId/>
            <availabilityZone>us-east-1a</availabilityZone><status>in-use</status>
            <attachmentSet><item><volumeId>vol-1</volumeId><instanceId>i-1</instanceId><status>busy</status></item>
            </attachmentSet><tagSet><item><key>spotkeep:operation</key><value>4</value></item></tagSet>
            <multiAttachEnabled>false</multiAttachEnabled></item></volumeSet><nextToken>more</nextToken>""",
        ),
        (
            200,
            """<volumeSet><item><volumeId>vol-2</volumeId><size>8</size><snapshotId>snap-1</snapshotId>
            <availabilityZone>us-east-1b</availabilityZone><status>available</status></item></volumeSet>""",
        ),
    )
    assert wire.volumes.volumes(["vol-1"]) == (
        EbsVolume("vol-1", "us-east-1a", "in-use", 80, (EbsAttachment("i-1", "busy"),), operation=4),
        EbsVolume("vol-2", "us-east-1b", "available", 8, snapshot="snap-1"),
    )
    assert wire.sent[1]["NextToken"] == "more"


def test_a_volume_without_the_tag_is_asked_for_by_its_id() -> None:
    wire = Wire((200, "<volumeSet/>"))
    assert wire.volumes.volumes(["vol-7"]) == ()
    assert wire.sent[1]["Filter.1.Name"] == "volume-id"
    assert wire.sent[1]["Filter.1.Value.1"] == "vol-7"


def test_a_snapshot_is_read_with_its_progress_and_with_what_it_holds_once_ec2_says_so() -> None:
    wire = Wire(
        (
            200,
            """<snapshotSet><item><snapshotId>snap-1</snapshotId><status>pending</status><volumeId>vol-1</volumeId>
            <volumeSize>8</volumeSize><progress>37%</progress></item>
            <item><snapshotId>snap-2</snapshotId><status>completed</status><volumeId>vol-1</volumeId>
            <volumeSize>8</volumeSize><fullSnapshotSizeInBytes>524288</fullSnapshotSizeInBytes></item></snapshotSet>""",
        )
    )
    made, whole = wire.volumes.snapshots(id_="snap-1", operation=None)
    assert made == EbsSnapshot("snap-1", "pending", "vol-1", 8, None, "37%")
    assert (whole.size_gb, whole.full_bytes) == (8, 524_288)


def test_a_device_name_that_is_taken_makes_room_for_the_next() -> None:
    wire = Wire(refusal("InvalidParameterValue", "/dev/sdf is already in use"), (200, ""))
    wire.volumes.attach("vol-1")
    assert [sent["Device"] for sent in wire.sent] == ["/dev/sdf", "/dev/sdg"]


def test_throttled_calls_are_sent_again() -> None:
    wire = Wire(
        refusal("RequestLimitExceeded", status=503),
        refusal("EC2ThrottledException", status=400),
        (200, "<snapshotId>snap-1</snapshotId>"),
    )
    assert wire.volumes.create_snapshot("vol-1", operation=1) == "snap-1"
    assert wire.calls.counted == {"ec2:CreateSnapshot": 3}


def test_throttled_calls_of_the_json_protocol_are_sent_again() -> None:
    answers = iter([(400, {}, b'{"__type": "x#ThrottlingException"}'), (200, {}, b'{"Item": {}}')])
    calls = AwsCalls(
        region="us-east-1",
        environment=ENVIRONMENT,
        transport=lambda *_, **__: next(answers),
        sleep=lambda seconds: None,
    )
    assert calls.json("dynamodb", "DynamoDB_20120810.GetItem", {}, version="1.0") == {"Item": {}}


@pytest.mark.parametrize("answer", [(500, "fault"), OSError("connection cut")])
def test_a_snapshot_whose_answer_is_lost_is_not_asked_for_twice(answer: Any) -> None:
    """It has no idempotency token; the protocol looks for it by its tag."""
    wire = Wire(answer)
    with pytest.raises(AwsUnavailableError):
        wire.volumes.create_snapshot("vol-1", operation=1)
    assert len(wire.sent) == 1


def test_a_volume_whose_answer_is_lost_is_asked_for_again_with_the_same_token() -> None:
    wire = Wire(OSError("connection cut"), (200, "<volumeId>vol-1</volumeId>"))
    wire.volumes.create_volume(VolumeSpec(size_gb=8), zone="a", operation=7, size_gb=8, snapshot=None)
    assert [sent["ClientToken"] for sent in wire.sent] == ["run-7", "run-7"]


def test_a_refusal_is_reported_with_its_code() -> None:
    wire = Wire(refusal("VolumeInUse", "vol-1 is already attached"))
    with pytest.raises(AwsCallRefusedError, match="vol-1 is already attached") as caught:
        wire.volumes.attach("vol-1")
    assert caught.value.code == "VolumeInUse"


@pytest.mark.parametrize("code", ["InvalidVolume.NotFound", "IncorrectState"])
def test_letting_go_of_what_is_gone_is_fine(code: str) -> None:
    Wire(refusal(code)).volumes.detach("vol-1", instance="i-1", force=False)


def test_no_server_answers() -> None:
    wire = Wire(OSError("timed out"))
    with pytest.raises(AwsUnavailableError, match="timed out"):
        wire.volumes.volumes([])
