"""Requests are signed as botocore signs them; the fetched agent is the deployed one, or nothing starts."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import quote

import pytest
from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotocoreCredentials
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_fleet import signed_fetch
from spotkeep_fleet.signed_fetch import Credentials, FetchError, fetch, find_credentials, object_url, signed_headers

KEYS = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_characters="?#"), min_size=1, max_size=30)


@given(
    key=KEYS,
    query=st.dictionaries(KEYS, KEYS, max_size=3),
    token=st.none() | st.just("a/session+token=="),
    body=st.binary(max_size=40),
    service=st.sampled_from(["s3", "ec2", "dynamodb"]),
)
def test_a_signature_is_the_one_of_botocore(
    key: str, query: dict[str, str], token: str | None, body: bytes, service: str
) -> None:
    path = quote(key, safe="-_.~") if service == "s3" else ""
    pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in query.items())
    url = f"https://host.example/{path}" + ("?" + "&".join(f"{name}={value}" for name, value in pairs) if pairs else "")
    at = datetime(2026, 11, 22, 1, 2, 3, tzinfo=UTC)
    signer = auth.S3SigV4Auth if service == "s3" else auth.SigV4Auth
    theirs = AWSRequest(method="PUT", url=url, data=body, headers={"x-amz-meta-step": "7"})
    with mock.patch("botocore.auth.get_current_datetime", return_value=at.replace(tzinfo=None)):
        signer(BotocoreCredentials("AKID", "secret", token), service, "us-east-1").add_auth(theirs)
    ours = signed_headers(
        method="PUT",
        url=url,
        region="us-east-1",
        service=service,
        headers={"x-amz-meta-step": "7"},
        body=body,
        credentials=Credentials("AKID", "secret", token),
        at=at.timestamp(),
    )
    assert ours["authorization"].replace(", ", ",") == theirs.headers["Authorization"].replace(", ", ",")


def test_the_address_of_an_object() -> None:
    def url(bucket: str, key: str, region: str = "eu-west-1", **environment: str) -> str:
        return object_url(bucket, key, region=region, environment=environment)

    assert url("b", "a b/c+d") == "https://b.s3.eu-west-1.amazonaws.com/a%20b/c%2Bd"
    assert url("b.c", "k") == "https://s3.eu-west-1.amazonaws.com/b.c/k"
    assert url("b", "k", region="cn-north-1") == "https://b.s3.cn-north-1.amazonaws.com.cn/k"
    assert url("b", "k", AWS_ENDPOINT_URL="http://127.0.0.1:1/") == "http://127.0.0.1:1/b/k"


class Server(ThreadingHTTPServer):
    """Metadata and S3 in one; `answers` says what each path answers next, the last answer stays."""

    answers: dict[str, list[tuple[int, bytes]]]
    asked: list[tuple[str, str, dict[str, str]]]


class _Handler(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        server: Any = self.server
        server.asked.append((self.command, self.path, dict(self.headers.items())))
        answers = server.answers.get(self.path, [(404, b"")])
        status, body = answers.pop(0) if len(answers) > 1 else answers[0]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = _answer  # noqa: N815

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), _Handler)
    server.answers, server.asked = {}, []
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def environment_of(server: Server) -> dict[str, str]:
    url = f"http://127.0.0.1:{server.server_address[1]}"
    return {"AWS_ENDPOINT_URL": url, "AWS_EC2_METADATA_SERVICE_ENDPOINT": url}


CREDENTIALS = b"""{"AccessKeyId": "AKID", "SecretAccessKey": "s", "Token": "t", "Expiration": "2026-11-22T07:00:00Z"}"""
ROLE = "/latest/meta-data/iam/security-credentials/"


def with_role(server: Server) -> None:
    server.answers["/latest/api/token"] = [(200, b"token")]
    server.answers[ROLE] = [(200, b"the-role")]
    server.answers[f"{ROLE}the-role"] = [(200, CREDENTIALS)]


def test_credentials_are_those_of_the_role(server: Server) -> None:
    with_role(server)
    found = find_credentials(environment_of(server))
    assert found == Credentials("AKID", "s", "t", datetime(2026, 11, 22, 7, tzinfo=UTC).timestamp())
    assert [method for method, _, _ in server.asked] == ["PUT", "GET", "GET"]
    assert server.asked[1][2]["X-aws-ec2-metadata-token"] == "token"


def test_metadata_that_refuse_are_no_credentials(server: Server) -> None:
    with_role(server)
    server.answers[ROLE] = [(401, b"")]
    with pytest.raises(FetchError, match="answered 401"):
        find_credentials(environment_of(server))


def test_what_is_fetched_is_what_was_deployed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with_role(server)
    server.answers["/bucket/key.pyz"] = [(503, b"SlowDown"), (200, b"the agent")]
    digest = hashlib.sha256(b"the agent").hexdigest()
    environment = environment_of(server)
    assert fetch("s3://bucket/key.pyz", sha256=digest, region="us-east-1", environment=environment) == b"the agent"


def test_an_answer_without_end_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signed_fetch, "_MOST_BYTES", 4)
    with_role(server)
    with pytest.raises(FetchError, match="answers 5 bytes, not at most 4"):
        find_credentials(environment_of(server))


def test_the_file_runs_by_itself_and_becomes_the_agent(server: Server, tmp_path: Path) -> None:
    with_role(server)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("__main__.py", "import sys, spotkeep; print(sys.argv[1:], spotkeep.__file__); sys.exit(3)")
        archive.writestr("spotkeep/__init__.py", "")
        archive.writestr("spotkeep/other.py", "")
    server.answers["/bucket/key.pyz"] = [(200, packed.getvalue())]
    digest = hashlib.sha256(packed.getvalue()).hexdigest()
    folder = tmp_path / digest
    command = [sys.executable, "-I", "-S", signed_fetch.__file__, "s3://bucket/key.pyz", digest, "us-east-1", folder]
    for _ in range(2):
        # The second start, after a crash of the agent, fetches nothing.
        done = subprocess.run(command, env=environment_of(server), check=False, capture_output=True, text=True)
        assert done.returncode == 3, done.stderr
        assert done.stdout.strip() == f"['agent'] {folder}/spotkeep/__init__.py"
    assert [path for _, path, _ in server.asked].count("/bucket/key.pyz") == 1
    deadline = time.monotonic() + 120
    while not list(folder.glob("spotkeep/__pycache__/other.*.pyc")):
        assert time.monotonic() < deadline, "what the training needs is not compiled"
        time.sleep(0.05)


def test_what_cannot_be_fetched_is_reported_and_starts_nothing(server: Server, tmp_path: Path) -> None:
    with_role(server)
    server.answers["/bucket/key.pyz"] = [(200, b"something else")]
    folder = tmp_path / "agent"
    command = [sys.executable, "-I", "-S", signed_fetch.__file__, "s3://bucket/key.pyz", "0" * 64, "us-east-1", folder]
    done = subprocess.run(command, env=environment_of(server), check=False, capture_output=True, text=True)
    assert done.returncode == 3, "started again, it would fetch the same; the next instance may have more luck"
    assert done.stderr.startswith("spotkeep: s3://bucket/key.pyz is not what was deployed")
    assert not folder.exists()
