"""An error in the form of each protocol, read back with botocore's own parsers."""

from __future__ import annotations

import pytest
from botocore.model import StructureShape
from botocore.parsers import create_parser
from botocore.retries import standard
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.temporary_errors import is_temporary
from spotkeep_local.service_base.clients import service_model
from spotkeep_local.service_base.error_answers import BUSY_ERRORS, ErrorForm, error_answer, error_form

PARSERS = {
    ErrorForm.JSON: ("json", "rest-json"),
    ErrorForm.CBOR: ("smithy-rpc-v2-cbor",),
    ErrorForm.QUERY: ("query",),
    ErrorForm.EC2: ("ec2",),
    ErrorForm.S3: ("rest-xml",),
}
NOTHING = StructureShape("Nothing", {"type": "structure", "members": {}})
# XML has no place for control characters, in AWS's errors neither.
texts = st.text(
    st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters="\ufffe\uffff"), min_size=1, max_size=300
)


@pytest.mark.parametrize("form", list(ErrorForm))
@given(message=texts)
def test_a_client_reads_what_was_written(form: ErrorForm, message: str) -> None:
    status, headers, body = error_answer(form, code="Some.Code", message=message, status=403)
    for protocol in PARSERS[form]:
        lowered = {name.lower(): value for name, value in headers.items()}
        parsed = create_parser(protocol).parse({"status_code": status, "headers": lowered, "body": body}, NOTHING)
        assert parsed["Error"]["Code"] == "Some.Code"
        assert parsed["Error"]["Message"] == message


@pytest.mark.parametrize("length", [0, 23, 24, 255, 256, 65_535, 65_536])
def test_texts_of_every_length_in_cbor(length: int) -> None:
    status, headers, body = error_answer(ErrorForm.CBOR, code="Code", message="a" * length, status=400)
    lowered = {name.lower(): value for name, value in headers.items()}
    parser = create_parser("smithy-rpc-v2-cbor")
    assert parser.parse({"status_code": status, "headers": lowered, "body": body}, NOTHING)["Error"] == {
        "Code": "Code", "Message": "a" * length
    }  # fmt: skip


@pytest.mark.parametrize(
    ("headers", "protocol", "form"),
    [
        ({}, "rest-json", ErrorForm.JSON),
        ({}, "rest-xml", ErrorForm.S3),
        ({}, None, ErrorForm.JSON),
        ({"x-amz-target": "AmazonSQS.SendMessage"}, "json", ErrorForm.JSON),
        ({"content-type": "application/x-www-form-urlencoded"}, "query", ErrorForm.QUERY),
        ({"content-type": "application/x-www-form-urlencoded"}, "json", ErrorForm.QUERY),
        ({"content-type": "application/x-www-form-urlencoded"}, None, ErrorForm.QUERY),
        ({"content-type": "application/x-www-form-urlencoded"}, "ec2", ErrorForm.EC2),
        ({"content-type": "application/x-www-form-urlencoded"}, "rest-xml", ErrorForm.S3),
        ({"smithy-protocol": "rpc-v2-cbor"}, "query", ErrorForm.CBOR),
        ({"x-amz-target": "GraniteServiceVersion20100801.PutMetricData"}, "smithy-rpc-v2-cbor", ErrorForm.JSON),
    ],
)
def test_the_form_is_the_one_of_the_request(headers: dict[str, str], protocol: str | None, form: ErrorForm) -> None:
    assert error_form(headers, protocol=protocol) is form


@pytest.mark.parametrize("service", BUSY_ERRORS)
def test_a_service_that_is_too_busy_is_asked_again(service: str) -> None:
    errors = BUSY_ERRORS[service]
    assert service_model(service).operation_names
    assert errors.throttle in standard.ThrottledRetryableChecker._THROTTLED_ERROR_CODES
    for code, status in ((errors.throttle, errors.throttle_status), (errors.server_error, 500)):
        assert is_temporary({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}})
