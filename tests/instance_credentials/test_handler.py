"""What an instance gets, and what others get. STS and EC2 are models; the proof is what the agent signs."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from instance_credentials import handler as entry
from instance_credentials.decisions import InstanceDescription
from instance_credentials.handler import Boto3Aws
from spotkeep_agent.aws.calls import AwsCalls
from spotkeep_agent.aws.run_credentials import RunCredentials
from spotkeep_fleet.run_session import PROOF_BODY, RunSession
from spotkeep_fleet.signed_fetch import Credentials, FetchError
from spotkeep_jobs.errors import AwsBusyError, AwsRefusedError
from tests.models.functions import Context

FUNCTION = "spotkeep-instance_credentials"
ROLE = "arn:aws:iam::123456789012:role/InstanceRole"
INSTANCE, OTHER = "i-0aaaaaaaaaaaaaaa1", "i-0bbbbbbbbbbbbbbb2"
KEYS = {"ASIAOURS": INSTANCE, "ASIATHEIRS": OTHER}
GIVEN = {"AccessKeyId": "ASIARUN", "SecretAccessKey": "s", "Token": "t", "Expiration": "2026-11-23T10:00:00Z"}


def tags(run: str) -> dict[str, str]:
    return {
        "spotkeep:deployment": "spotkeep",
        "spotkeep:run": run,
        "spotkeep:attempt": "1",
        "spotkeep:checkpoints": f"runs/{run}/checkpoints",
    }


SESSION = boto3.Session(aws_access_key_id="x", aws_secret_access_key="x", region_name="us-east-1")
"""Shared, for it keeps the models of the services that it has read."""


@dataclass
class Model:
    """STS and EC2 of an account with two instances of two runs."""

    instances: dict[str, InstanceDescription] = field(
        default_factory=lambda: {
            INSTANCE: InstanceDescription(instance=INSTANCE, state="running", tags=tags("ours")),
            OTHER: InstanceDescription(instance=OTHER, state="running", tags=tags("theirs")),
        }
    )
    principals: dict[str, str] = field(
        default_factory=lambda: {
            key: f"arn:aws:sts::123456789012:assumed-role/InstanceRole/{instance}" for key, instance in KEYS.items()
        }
    )
    assumed: list[RunSession] = field(default_factory=list)
    trouble: Exception | None = None

    def caller(self, headers: Mapping[str, str]) -> str | None:
        found = re.search(r"Credential=([A-Z0-9]+)/", headers["authorization"])
        assert found is not None
        return self.principals.get(found[1])

    def instance(self, instance: str) -> InstanceDescription | None:
        if self.trouble is not None:
            raise self.trouble
        return self.instances.get(instance)

    def assume(self, session: RunSession) -> dict[str, str]:
        self.assumed.append(session)
        return GIVEN


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Model:
    model = Model()
    monkeypatch.setattr(entry, "_production_aws", lambda: model)
    monkeypatch.setenv("SPOTKEEP_INSTANCE_ROLE_ARN", ROLE)
    monkeypatch.setenv("SPOTKEEP_DEPLOYMENT", "spotkeep")
    monkeypatch.setenv("SPOTKEEP_RUN_ROLE_ARN", "arn:aws:iam::123456789012:role/Run")
    return model


def call(event: object) -> dict[str, Any]:
    answer: dict[str, Any] = entry.handler(event, Context(function_name=FUNCTION))
    return answer


def proof(key: str = "ASIAOURS", *, function: str = FUNCTION) -> dict[str, Any]:
    """What the agent of an instance sends."""
    sent: list[dict[str, Any]] = []

    def transport(*_: object, body: bytes, **__: object) -> tuple[int, dict[str, str], bytes]:
        sent.append(json.loads(body))
        return 200, {}, json.dumps({"ok": True, "credentials": GIVEN}).encode()

    environment = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t"}
    calls = AwsCalls(region="us-east-1", environment=environment, transport=transport)
    RunCredentials(calls, function=function).fetch()
    return sent[0]


def test_an_instance_gets_the_credentials_of_its_run(aws: Model) -> None:
    assert call(proof()) == {"ok": True, "credentials": GIVEN}
    [session] = aws.assumed
    assert session.tags() == {
        "run": "ours",
        "attempt": "1",
        "instance": INSTANCE,
        "runs": "runs",
        "checkpoints": "runs/ours/checkpoints",
    }


@pytest.mark.parametrize(
    "event",
    [
        None,
        [],
        "x",
        {},
        {"headers": None},
        {"headers": {}},
        {"instance": OTHER, "run": "theirs"},
        {"requestContext": {"authorizer": {"iam": {"userArn": f"{ROLE}/{OTHER}"}}}},
    ],
)
def test_what_proves_nothing_gives_nothing(aws: Model, event: object) -> None:
    assert call(event)["error"] == "no-proof"
    assert not aws.assumed


def test_what_the_caller_says_beside_its_proof_is_not_heard(aws: Model) -> None:
    assert call({**proof(), "instance": OTHER, "run": "theirs", "requestContext": {"authorizer": {}}})["ok"]
    assert [session.run for session in aws.assumed] == ["ours"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("authorization", ""),
        ("authorization", "AWS4-HMAC-SHA256 Credential=x"),
        ("authorization", "AWS AKIA:signature"),
        ("x-amz-date", "20261123T090000Z\r\nX-Other: 1"),
        ("x-amz-security-token", "t" * 5000),
        ("x-amz-security-token", "\N{SNOWMAN}"),
        ("content-type", "application/json"),
    ],
)
def test_a_proof_that_is_no_signed_request_goes_nowhere(aws: Model, name: str, value: str) -> None:
    event = proof()
    event["headers"][name] = value
    assert call(event)["error"] == "no-proof"
    assert not aws.assumed


@pytest.mark.parametrize("name", ["x-spotkeep-audience", "host", "content-type"])
def test_each_part_of_a_proof_is_signed(aws: Model, name: str) -> None:
    event = proof()
    authorization = event["headers"]["authorization"]
    event["headers"]["authorization"] = authorization.replace(f"{name};", "").replace(f";{name}", "")
    assert name in call(event)["problem"]


def test_what_was_signed_for_another_service_is_refused(aws: Model) -> None:
    """Such as a server that logs its clients in by the same means: it could send on what they signed for it."""
    assert call(proof(function="vault.example.com"))["error"] == "foreign-proof"
    assert not aws.assumed


def test_a_proof_that_sts_refuses_gives_nothing(aws: Model) -> None:
    assert call(proof("ASIAUNKNOWN"))["error"] == "no-proof"


def test_another_role_gets_nothing(aws: Model) -> None:
    aws.principals["ASIAOURS"] = f"arn:aws:sts::123456789012:assumed-role/ExecutionRole/{INSTANCE}"
    assert call(proof())["error"] == "no-instance"
    assert not aws.assumed


def test_another_deployments_instance_and_a_terminated_one_get_nothing(aws: Model) -> None:
    aws.instances[INSTANCE] = InstanceDescription(instance=INSTANCE, state="terminated", tags=tags("ours"))
    assert call(proof())["error"] == "not-running"
    lab = {**tags("ours"), "spotkeep:deployment": "lab"}
    aws.instances[INSTANCE] = InstanceDescription(instance=INSTANCE, state="running", tags=lab)
    assert call(proof())["error"] == "foreign-instance"
    del aws.instances[INSTANCE]
    assert call(proof())["error"] == "unknown-instance"
    assert not aws.assumed


def test_while_aws_is_busy_asking_again_may_help(aws: Model) -> None:
    aws.trouble = AwsBusyError(operation="DescribeInstances", code="RequestLimitExceeded", reason="slow down")
    assert call(proof())["error"] == "busy"


def test_a_missing_permission_is_raised_and_rings_the_alarm(aws: Model) -> None:
    aws.trouble = AwsRefusedError(operation="DescribeInstances", code="UnauthorizedOperation", reason="no")
    with pytest.raises(AwsRefusedError):
        call(proof())


def test_no_log_holds_credentials_or_a_proof(aws: Model, capsys: pytest.CaptureFixture[str]) -> None:
    event = proof()
    call(event)
    call({**event, "headers": {**event["headers"], "content-type": "x"}})
    said = capsys.readouterr()
    for secret in ("ASIARUN", "ASIAOURS", "Signature"):
        assert secret not in said.out + said.err


class TestAdapter:
    """What goes to STS and EC2."""

    @pytest.fixture
    def sts(self) -> Iterator[tuple[str, list[tuple[str, dict[str, str], bytes]], list[tuple[int, bytes]]]]:
        received: list[tuple[str, dict[str, str], bytes]] = []
        answers: list[tuple[int, bytes]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                received.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
                status, answer = answers.pop(0)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        server = HTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", received, answers
        server.shutdown()
        thread.join()
        server.server_close()

    def over(self, endpoint: str = "http://127.0.0.1:9") -> tuple[Boto3Aws, Any, Any]:
        ec2, client = SESSION.client("ec2"), SESSION.client("sts", endpoint_url=endpoint)
        return Boto3Aws(ec2=ec2, sts=client, run_role_arn="arn:aws:iam::1:role/run"), ec2, client

    def test_the_address_and_the_body_are_ours_and_the_headers_those_of_the_proof(self, sts: Any) -> None:
        endpoint, received, answers = sts
        answers.append((200, b'<R xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><X><Arn>arn:x</Arn></X></R>'))
        headers = proof()["headers"]
        assert self.over(endpoint)[0].caller(headers) == "arn:x"
        [(path, sent, body)] = received
        assert (path, body) == ("/", PROOF_BODY)
        assert {name: sent[name] for name in headers} == headers
        assert set(sent) - set(headers) == {"host", "content-length", "accept-encoding"}

    def test_sts_refuses_or_is_busy(self, sts: Any) -> None:
        endpoint, _, answers = sts
        aws = self.over(endpoint)[0]
        answers += [(403, b"<E/>"), (200, b"<R/>"), (503, b""), (429, b""), (200, b"{")]
        assert aws.caller({}) is None
        assert aws.caller({}) is None
        for _ in range(3):
            with pytest.raises(AwsBusyError):
                aws.caller({})
        with pytest.raises(AwsBusyError):
            self.over()[0].caller({})

    def test_a_session_is_named_after_the_instance_and_lasts_an_hour(self) -> None:
        aws, _, client = self.over()
        session = RunSession("ours", "1", INSTANCE, "runs", "runs/ours/checkpoints")
        ends = datetime(2026, 11, 23, 10, tzinfo=UTC)
        given = {"AccessKeyId": "ASIARUNASIARUN00", "SecretAccessKey": "s", "SessionToken": "t", "Expiration": ends}
        asked = {
            "RoleArn": "arn:aws:iam::1:role/run",
            "RoleSessionName": INSTANCE,
            "DurationSeconds": 3600,
            "Tags": [{"Key": name, "Value": value} for name, value in session.tags().items()],
        }
        with Stubber(client) as stub:
            stub.add_response("assume_role", {"Credentials": given}, asked)
            assert aws.assume(session)["Expiration"] == "2026-11-23T10:00:00Z"
            stub.add_client_error("assume_role", "AccessDenied", http_status_code=403)
            with pytest.raises(AwsRefusedError):
                aws.assume(session)

    def test_an_instance_is_described_or_not_known(self) -> None:
        aws, ec2, _ = self.over()
        found = {
            "InstanceId": INSTANCE,
            "State": {"Name": "running"},
            "Tags": [{"Key": "spotkeep:run", "Value": "ours"}],
        }
        with Stubber(ec2) as stub:
            stub.add_response("describe_instances", {"Reservations": [{"Instances": [found]}]})
            assert aws.instance(INSTANCE) == InstanceDescription(
                instance=INSTANCE, state="running", tags={"spotkeep:run": "ours"}
            )
            stub.add_response("describe_instances", {"Reservations": []})
            assert aws.instance(INSTANCE) is None
            stub.add_client_error("describe_instances", "InvalidInstanceID.NotFound")
            assert aws.instance(INSTANCE) is None
            stub.add_client_error("describe_instances", "RequestLimitExceeded", http_status_code=503)
            with pytest.raises(AwsBusyError):
                aws.instance(INSTANCE)


def test_the_agent_takes_a_refusal_and_an_answer_without_credentials_for_what_they_are() -> None:
    answers = iter(
        [
            (200, {}, b'{"ok": false, "error": "not-running", "problem": "i-1 is terminated"}'),
            (200, {}, b'{"ok": true}'),
            (200, {"x-amz-function-error": "Unhandled"}, b'{"errorMessage": "no"}'),
            (200, {}, b"[]"),
        ]
    )
    environment = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_SESSION_TOKEN": "x"}
    calls = AwsCalls(region="us-east-1", environment=environment, transport=lambda *_, **__: next(answers))
    asking = RunCredentials(calls, function=FUNCTION)
    for problem in ("i-1 is terminated", "no credentials", "failed", "no JSON object"):
        with pytest.raises(FetchError, match=problem):
            asking.fetch()


def test_credentials_are_read_as_the_metadata_service_writes_them() -> None:
    environment = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_SESSION_TOKEN": "x"}
    body = json.dumps({"ok": True, "credentials": GIVEN}).encode()
    calls = AwsCalls(region="us-east-1", environment=environment, transport=lambda *_, **__: (200, {}, body))
    assert RunCredentials(calls, function=FUNCTION).fetch() == Credentials("ASIARUN", "s", "t", 1795428000.0)
