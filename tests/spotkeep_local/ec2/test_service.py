"""The query protocol, against botocore's own serializer and parser: what a client sends is what is read, and back."""

from __future__ import annotations

import datetime as dt
from typing import Any
from urllib.parse import urlencode

import pytest
from botocore.parsers import create_parser
from botocore.serialize import create_serializer
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_local.ec2.errors import Ec2Error
from spotkeep_local.ec2.service import Ec2QueryProtocol
from spotkeep_local.service_base.aws_service import HttpRequest
from spotkeep_local.service_base.clients import service_model
from tests.models.aws_requests import CALLS

EC2 = Ec2QueryProtocol()
MODEL = service_model("ec2")  # takes longer to read than an example may last
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=12)


def sent(operation: str, request: dict[str, Any]) -> HttpRequest:
    """A request as botocore sends it."""
    serialized = create_serializer("ec2").serialize_to_request(request, MODEL.operation_model(operation))
    return HttpRequest(body=urlencode(serialized["body"]).encode())


def received(operation: str, answer: dict[str, Any]) -> dict[str, Any]:
    """What botocore reads of an answer."""
    status, headers, body = EC2.answer(operation, answer)
    shape = MODEL.operation_model(operation).output_shape
    parsed = create_parser("ec2").parse({"status_code": status, "headers": headers, "body": body}, shape)
    return {name: value for name, value in parsed.items() if name != "ResponseMetadata"}


@pytest.mark.parametrize("operation", ["AttachVolume", "CreateFleet", "CreateTags", "CreateVolume"])
def test_what_a_client_sends_is_what_is_read(operation: str) -> None:
    request = CALLS["ec2"][operation]
    assert EC2.parameters(operation, sent(operation, request)) == request


def test_times_are_read_as_epoch_seconds() -> None:
    moment = dt.datetime(2026, 11, 22, 1, 2, 3, tzinfo=dt.UTC)
    request = sent("DescribeFleetHistory", {"FleetId": "fleet-1", "StartTime": moment})
    assert EC2.parameters("DescribeFleetHistory", request)["StartTime"] == moment.timestamp()


@given(
    st.lists(
        st.fixed_dictionaries(
            {"VolumeId": TEXT, "Size": st.integers(1, 9), "Encrypted": st.booleans()},
            optional={"Tags": st.lists(st.fixed_dictionaries({"Key": TEXT, "Value": TEXT}), min_size=1, max_size=2)},
        ),
        max_size=3,
    )
)
def test_what_is_written_is_what_a_client_reads(volumes: list[dict[str, Any]]) -> None:
    assert received("DescribeVolumes", {"Volumes": volumes, "NextToken": None}) == {"Volumes": volumes}


def test_times_are_written_to_the_millisecond() -> None:
    moment = dt.datetime(2026, 11, 22, 1, 2, 3, 456000, tzinfo=dt.UTC)
    answer = received("DescribeVolumes", {"Volumes": [{"CreateTime": moment.timestamp()}]})
    assert answer["Volumes"][0]["CreateTime"] == moment


def test_what_the_model_does_not_know_is_not_written() -> None:
    with pytest.raises(KeyError):
        EC2.answer("DescribeVolumes", {"Volumes": [{"Colour": "red"}]})


def test_a_refusal_is_what_a_client_raises() -> None:
    status, headers, body = EC2.error(Ec2Error("VolumeInUse", "vol-1 <is> taken", status=400))
    shape = MODEL.operation_model("AttachVolume").output_shape
    parsed = create_parser("ec2").parse({"status_code": status, "headers": headers, "body": body}, shape)
    assert parsed["Error"] == {"Code": "VolumeInUse", "Message": "vol-1 <is> taken"}


@pytest.mark.parametrize(
    ("operation", "parameters", "code", "complaint"),
    [
        ("AttachVolume", {"VolumeId": "vol-1", "Device": "/dev/sdf"}, "MissingParameter", "InstanceId"),
        ("CreateVolume", {"Size": "big"}, "InvalidParameterValue", "Size"),
        ("CreateVolume", {"Encrypted": "maybe"}, "InvalidParameterValue", "Encrypted"),
        ("CreateVolume", {"VolumeType": "floppy"}, "InvalidParameterValue", "enum value set"),
        ("CreateVolume", {"Sise": "3"}, "UnknownParameter", "Sise"),
        ("DescribeFleets", {"FleetIds.1": "fleet-1"}, "UnknownParameter", "FleetIds.1"),
    ],
)
def test_what_breaks_the_model_is_refused(
    operation: str, parameters: dict[str, str], code: str, complaint: str
) -> None:
    form = {"Action": operation, "Version": "2016-11-15", **parameters}
    with pytest.raises(Ec2Error, match=complaint) as refused:
        EC2.parameters(operation, HttpRequest(body=urlencode(form).encode()))
    assert refused.value.code == code
