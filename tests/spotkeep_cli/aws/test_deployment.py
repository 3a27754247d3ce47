"""The real adapter against clients that fail the way AWS does: repeats are safe, words are for people."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, ReadTimeoutError
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_cli.aws.calls import translated_aws_errors
from spotkeep_cli.aws.connection import connect
from spotkeep_cli.aws.connection_options import ConnectionOptions
from spotkeep_cli.aws.deployment import DeploymentClient
from spotkeep_cli.aws.job_log import AttemptLog
from spotkeep_cli.errors import LauncherError, NoConnectionError
from tests.models.logs import Logs
from tests.spotkeep_cli.conftest import CONNECTION

OPTIONS = ConnectionOptions()


def client_error(code: str, status: int = 400) -> ClientError:
    response: Any = {"Error": {"Code": code, "Message": "its words"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "Invoke")


def answer(document: object, *, failed: bool = False) -> dict[str, Any]:
    more = {"FunctionError": "Unhandled"} if failed else {}
    return {"Payload": io.BytesIO(json.dumps(document).encode()), **more}


class FlakyLambda:
    """Gives what the test queued: answers, or errors to raise."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = list(outcomes)
        self.payloads: list[bytes] = []

    def invoke(self, *, FunctionName: str, Payload: bytes) -> Any:  # noqa: N803 -- boto3's names
        self.payloads.append(Payload)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def deployment(client: Any) -> DeploymentClient:
    return DeploymentClient(
        connection=CONNECTION, client=lambda *_args, **_kwargs: client, options=OPTIONS, sleep=lambda _: None
    )


LOST = ReadTimeoutError(endpoint_url="https://lambda")
UNFINISHED = {"errorType": "LaunchUnfinishedError", "errorMessage": "launching run 'x' is not finished"}


@pytest.mark.parametrize(
    "trouble",
    [
        LOST,
        EndpointConnectionError(endpoint_url="https://lambda"),
        client_error("TooManyRequestsException", 429),
        client_error("ServiceException", 500),
    ],
    ids=lambda trouble: type(trouble).__name__,
)
def test_a_lost_launch_is_repeated_with_the_same_token(trouble: Exception) -> None:
    client = FlakyLambda(trouble, answer(UNFINISHED, failed=True), answer({"ok": True}))
    assert deployment(client).invoke_launcher({"name": "digits", "token": "t"}) == {"ok": True}
    assert len(client.payloads) == 3
    assert len(set(client.payloads)) == 1


def test_a_launch_that_stays_lost_says_how_to_ask_again() -> None:
    client = FlakyLambda(*[LOST] * 9)
    with pytest.raises(NoConnectionError) as failure:
        deployment(client).invoke_launcher({"name": "digits", "token": "t-1"})
    assert "--set token=t-1" in failure.value.hint
    assert 1 < len(client.payloads) < 9


def test_a_launcher_that_broke_is_reported_in_one_line() -> None:
    broken = {"errorType": "KeyError", "errorMessage": "'x'\nand more"}
    client = FlakyLambda(answer(broken, failed=True))
    with pytest.raises(LauncherError) as failure:
        deployment(client).invoke_launcher({"name": "digits"})
    assert failure.value.message == "spotkeep-launcher failed with KeyError: 'x'"
    assert "/aws/lambda/spotkeep-launcher" in failure.value.hint
    assert len(client.payloads) == 1


@given(st.binary(max_size=64) | st.sampled_from([b"[]", b"null", b'"text"']), st.booleans())
def test_whatever_the_function_answers_it_is_an_object_or_a_launcher_error(body: bytes, failed: bool) -> None:
    raw = {"Payload": io.BytesIO(body), **({"FunctionError": "Unhandled"} if failed else {})}
    try:
        found = deployment(FlakyLambda(raw)).invoke_launcher({"action": "validate"})
    except LauncherError:
        return
    assert isinstance(found, dict)


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (client_error("AccessDeniedException"), "managed policy"),
        (client_error("ExpiredTokenException"), "sign in again"),
        (client_error("ThrottlingException"), "try again in a moment"),
        (client_error("ResourceNotFoundException"), "deploy it again"),
        (NoCredentialsError(), "aws configure"),
        (EndpointConnectionError(endpoint_url="https://x"), "network"),
    ],
)
def test_every_trouble_has_a_hint(error: Exception, hint: str) -> None:
    with pytest.raises(NoConnectionError) as failure, translated_aws_errors("reading the run table", options=OPTIONS):
        raise error
    assert failure.value.message.startswith("reading the run table: ")
    assert hint in failure.value.hint


def test_aws_out_of_reach_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    # No server listens on port 1: what a laptop without a network sees.
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(NoConnectionError) as failure:
        connect(ConnectionOptions(region="eu-central-1"))
    assert failure.value.message.startswith("reading the parameter /spotkeep/connection: no connection")
    assert "\n" not in failure.value.message


def test_a_log_is_read_once_whole_and_in_order_over_restarts() -> None:
    logs = Logs(page=2)
    log = AttemptLog(logs, job_names=["digits-1"], options=OPTIONS)  # type: ignore[arg-type]
    assert log.read() == []
    logs.streams["digits-1/algo-1-100"] = [(1_000 * n, f"first {n}\n") for n in range(5)]
    logs.streams["digits-10/algo-1-100"] = [(0, "another job\n")]
    assert [line.text for line in log.read()] == [f"first {n}" for n in range(5)]
    assert log.read() == []
    logs.streams["digits-1/algo-1-200"] = [(9_000, "second")]
    logs.streams["digits-1/algo-1-100"].append((5_000, "first 5"))
    assert [(line.stream, line.text) for line in log.read()] == [("algo-1", "first 5"), ("algo-1", "second")]


def test_an_answer_without_an_end_is_not_read_to_it() -> None:
    with Path("/dev/zero").open("rb") as endless, pytest.raises(LauncherError, match="more than 8,388,608 bytes"):
        deployment(FlakyLambda({"Payload": endless})).invoke_launcher({"action": "validate"})
