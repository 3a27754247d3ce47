"""The launcher at its URL: requests are signed, repeats are safe, what AWS says is in words for people."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from spotkeep_cli.aws.calls import Connection
from spotkeep_cli.aws.connection_options import ConnectionOptions
from spotkeep_cli.aws.deployment import DeploymentClient
from spotkeep_cli.aws.launcher_calls import LauncherUrl
from spotkeep_cli.errors import CommandLineError, LauncherError, NoConnectionError
from tests.spotkeep_cli.conftest import CONNECTION

KEY = Credentials("AKIAIOSFODNN7EXAMPLE", "secret", "token")
LAUNCH = {"name": "digits", "token": "t-1"}


@dataclass
class Answer:
    status: int = 200
    document: Any = field(default_factory=lambda: {"ok": True})
    headers: Mapping[str, str] = field(default_factory=dict)


class Front:
    """Lambda's front end of a function URL: gives the answers that a test queued, and keeps what it was sent."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        front = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                front.requests.append((self.path, {name.lower(): text for name, text in self.headers.items()}, body))
                answer = front.answers.pop(0)
                content = (
                    answer.document if isinstance(answer.document, bytes) else json.dumps(answer.document).encode()
                )
                self.send_response(answer.status)
                for name, text in {**answer.headers, "content-length": str(len(content))}.items():
                    self.send_header(name, text)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/_aws/lambda-url/abc/"


@pytest.fixture
def front() -> Iterator[Front]:
    front = Front()
    yield front
    front.server.shutdown()
    front.server.server_close()


def deployment_at(url: str, *, credentials: Credentials | None = KEY) -> DeploymentClient:
    connection = Connection.model_validate(CONNECTION.model_dump() | {"launcher_url": url})

    def no_client(*_arguments: object, **_further: object) -> None:
        raise AssertionError("invoked directly although there is a URL")

    where = LauncherUrl(url=url, region="eu-central-1", credentials=lambda: credentials, proxies={})
    return DeploymentClient(
        connection=connection, client=no_client, options=ConnectionOptions(), launcher_url=where, sleep=lambda _: None
    )


def test_a_request_is_signed_for_lambda_in_the_region_over_body_host_and_path(front: Front) -> None:
    front.answers = [Answer()]
    assert deployment_at(front.url).invoke_launcher(LAUNCH) == {"ok": True}
    [(path, headers, body)] = front.requests
    assert (path, json.loads(body), headers["content-type"]) == ("/_aws/lambda-url/abc/", LAUNCH, "application/json")
    assert headers["x-amz-security-token"] == "token"
    assert f"Credential={KEY.access_key}/{headers['x-amz-date'][:8]}/eu-central-1/lambda/" in headers["authorization"]
    # As AWS would: the signature, computed again from what arrived.
    again = AWSRequest("POST", front.url, headers={"content-type": headers["content-type"]}, data=body)
    again.context["timestamp"] = headers["x-amz-date"]
    again.headers["X-Amz-Date"] = headers["x-amz-date"]
    again.headers["X-Amz-Security-Token"] = headers["x-amz-security-token"]
    signer = SigV4Auth(KEY, "lambda", "eu-central-1")
    signature = signer.signature(signer.string_to_sign(again, signer.canonical_request(again)), again)
    assert headers["authorization"].endswith(f"Signature={signature}")


def test_a_refusal_of_the_launcher_is_its_answer_and_what_is_no_object_is_none(front: Front) -> None:
    refused = {"ok": False, "error": "refused", "problems": [], "warnings": []}
    front.answers = [Answer(400, refused), Answer(200, b"[]")]
    assert deployment_at(front.url).invoke_launcher(LAUNCH) == refused
    with pytest.raises(LauncherError):
        deployment_at(front.url).invoke_launcher(LAUNCH)


@pytest.mark.parametrize(
    "trouble",
    [
        Answer(429, {"Reason": "ReservedFunctionConcurrentInvocationLimitExceeded", "message": "Rate Exceeded."}),
        Answer(500, {}),
        Answer(503, b"<html>"),
    ],
    ids=lambda trouble: f"{trouble.status}-{len(str(trouble.document))}",
)
def test_a_busy_aws_is_asked_again_with_the_same_token(front: Front, trouble: Answer) -> None:
    front.answers = [trouble, trouble, Answer()]
    assert deployment_at(front.url).invoke_launcher(LAUNCH) == {"ok": True}
    assert len({body for _, _, body in front.requests}) == 1
    front.answers = [trouble] * 9
    with pytest.raises(CommandLineError):
        deployment_at(front.url).invoke_launcher(LAUNCH)
    assert 1 < 9 - len(front.answers) < 9


@pytest.mark.parametrize(
    ("answer", "says", "hint"),
    [
        (Answer(403, {"Message": "Forbidden"}), "AccessDeniedException: Forbidden", "managed policy of users"),
        (
            Answer(403, {"message": "expired"}, {"x-amzn-ErrorType": "ExpiredTokenException:http://x"}),
            "ExpiredTokenException: expired",
            "sign in again",
        ),
        (Answer(413, {"message": "too large"}), "RequestTooLargeException", "6 MB"),
        (Answer(404, {}), "HTTP status 404", "try again"),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Answer) else "",
)
def test_what_aws_refuses_is_said_once_with_what_to_do(front: Front, answer: Answer, says: str, hint: str) -> None:
    front.answers = [answer]
    with pytest.raises(NoConnectionError) as failure:
        deployment_at(front.url).invoke_launcher(LAUNCH)
    assert says in failure.value.message
    assert hint in (failure.value.hint or "")


def test_a_launcher_that_broke_says_how_to_ask_again_and_where_its_log_is(front: Front) -> None:
    front.answers = [Answer(502, {"message": "Internal Server Error"})] * 9
    with pytest.raises(LauncherError) as failure:
        deployment_at(front.url).invoke_launcher(LAUNCH)
    assert failure.value.message == "spotkeep-launcher failed: Internal Server Error"
    assert "--set token=t-1" in (failure.value.hint or "")
    assert "/aws/lambda/spotkeep-launcher" in (failure.value.hint or "")


def test_no_server_at_the_url_is_no_connection() -> None:
    closed = Front()
    closed.server.shutdown()
    closed.server.server_close()
    with pytest.raises(NoConnectionError, match="no connection"):
        deployment_at(closed.url).invoke_launcher(LAUNCH)


def test_without_credentials_nothing_is_sent(front: Front) -> None:
    with pytest.raises(NoConnectionError, match="no usable AWS credentials"):
        deployment_at(front.url, credentials=None).invoke_launcher(LAUNCH)
    assert front.requests == []


@pytest.mark.parametrize("url", ["http://example.com/", "ftp://x", "https://a b/", "http://127.0.0.1.example.com:1/"])
def test_a_launcher_is_called_over_tls_or_on_this_machine(url: str) -> None:
    with pytest.raises(ValueError, match="launcher_url"):
        deployment_at(url)
