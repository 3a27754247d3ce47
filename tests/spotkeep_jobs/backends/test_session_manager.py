"""Systems Manager's seam on a real client: a session is read, errors are distinguished."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest
from botocore.config import Config
from botocore.stub import Stubber

from spotkeep_jobs.backends.session_manager import NOT_CONNECTED, SessionManager
from spotkeep_jobs.errors import AwsBusyError, AwsRefusedError

ASKED = {"Target": "i-1", "Reason": "spotkeep shell first"}


@pytest.fixture
def ssm() -> Iterator[Stubber]:
    client = boto3.client("ssm", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    with Stubber(client) as stubbed:
        yield stubbed


def test_a_session_is_started_and_its_token_is_not_shown(ssm: Stubber) -> None:
    answer = {"SessionId": "s-1", "TokenValue": "let-me-in", "StreamUrl": "wss://somewhere"}
    ssm.add_response("start_session", answer, ASKED)
    session = SessionManager(lambda: ssm.client).start(ASKED)
    assert (session.id, session.token, session.stream_url) == ("s-1", "let-me-in", "wss://somewhere")
    assert "let-me-in" not in repr(session)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (NOT_CONNECTED, AwsRefusedError),
        ("AccessDeniedException", AwsRefusedError),
        ("ThrottlingException", AwsBusyError),
    ],
)
def test_what_calling_again_does_not_mend_is_refused(ssm: Stubber, code: str, kind: type[Exception]) -> None:
    ssm.add_client_error("start_session", service_error_code=code, service_message="why", http_status_code=400)
    with pytest.raises(kind, match=f"StartSession failed with {code}: why"):
        SessionManager(lambda: ssm.client).start(ASKED)


def test_a_lost_connection_is_worth_a_second_try() -> None:
    nowhere = boto3.client(
        "ssm", region_name="us-east-1", endpoint_url="http://127.0.0.1:1", aws_access_key_id="a",
        aws_secret_access_key="b", config=Config(retries={"total_max_attempts": 1}),
    )  # fmt: skip
    with pytest.raises(AwsBusyError, match="EndpointConnectionError"):
        SessionManager(lambda: nowhere).start(ASKED)
