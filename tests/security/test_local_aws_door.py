"""Who attacks: a web page that a developer has open, another user of the machine, a process that knows the port, a job.

With what: requests to the local AWS's port on loopback, from a page's script with any body and `text/plain`, under a
name that was rebound to 127.0.0.1, with an invented access key, with that of another local AWS, or with that of a job.

What they would gain: a function that they create and invoke runs code as the developer (as root, where the local AWS
runs as root), and buckets, logs and parameters are read.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import shutil
import socket
import stat
import sys
import threading
import zipfile
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from spotkeep_local.access.admission import HEALTH_PATH, Refusal, Request, refusal
from spotkeep_local.daemon.state_directory import StateDirectory
from spotkeep_local.hosts.isolation import Isolation
from spotkeep_local.hosts.metadata import MetadataService
from spotkeep_local.principals import AccessKey, CredentialRegistry, PersonKeys, Principal, make_person_keys
from spotkeep_local.training.job_host import resolve_isolation, start_host
from spotkeep_local.training.job_network import HostPlace
from tests.models.granted import make_role

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from spotkeep_local.lifecycle import LocalAws

PORT = 4566
PERSON = AccessKey(
    access_key_id="AKIAPERSON",
    secret_access_key="s",
    principal=Principal(arn="arn:aws:iam::000000000000:user/administrator", user_id="U", account_id="000000000000"),
)
DEVELOPER = AccessKey(
    access_key_id="AKIADEVELOPER",
    secret_access_key="s",
    principal=Principal(arn="arn:aws:iam::000000000000:user/developer", user_id="D", account_id="000000000000"),
)


class NoSessions:
    def find(self, access_key_id: str) -> None:
        return None

    def add(self, key: AccessKey) -> None:
        pass

    def remove(self, key: AccessKey) -> None:
        pass


def ask(
    local: LocalAws, method: str, path: str, *, headers: Mapping[str, str], body: bytes = b""
) -> tuple[int, dict[str, str], bytes]:
    """One request with these headers and no others but Host, Content-Length and Accept-Encoding."""
    connection = http.client.HTTPConnection("127.0.0.1", local.port, timeout=30)
    try:
        connection.request(method, path, body=body, headers=dict(headers))
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def signed(local: LocalAws, *, key: str | None = None, token: str | None = None, **more: str) -> dict[str, str]:
    """The headers of `ListTrainingJobs`, as the SDK signs it."""
    request = AWSRequest(
        method="POST",
        url=local.endpoint_url,
        data=b"{}",
        headers={"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": "SageMaker.ListTrainingJobs"},
    )
    own = local.access_key
    credentials = Credentials(key or own.access_key_id, own.secret_access_key, token)
    SigV4Auth(credentials, "sagemaker", local.region).add_auth(request)
    return {**dict(request.headers.items()), **more}


def a_function(source: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("index.py", source)
    return buffer.getvalue()


# A web page.


def test_the_request_that_all_others_here_are_made_of_is_answered(local_aws: LocalAws) -> None:
    status, headers, _ = ask(local_aws, "POST", "/", headers=signed(local_aws), body=b"{}")
    assert status == 200
    assert not [name for name in headers if name.startswith("access-control-")]


PAGES = [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example:{port}"}]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_page_is_refused_even_with_the_right_key(local_aws: LocalAws, page: dict[str, str]) -> None:
    more = {name: value.format(port=local_aws.port) for name, value in page.items()}
    for asked in (signed(local_aws, **more), more):
        status, headers, body = ask(local_aws, "POST", "/", headers=asked, body=b"{}")
        assert status in (400, 403)
        assert b"TrainingJobSummaries" not in body
        assert not [name for name in headers if name.startswith("access-control-")]
    assert ask(local_aws, "GET", HEALTH_PATH, headers=more)[0] == 403


def test_two_hosts_are_none(local_aws: LocalAws) -> None:
    own, lines = f"127.0.0.1:{local_aws.port}", [f"{name}: {value}" for name, value in signed(local_aws).items()]
    for hosts in ((own, "evil.example"), ("evil.example", own)):
        request = "\r\n".join(["POST / HTTP/1.1", *(f"Host: {host}" for host in hosts), *lines, "Content-Length: 2"])
        with socket.create_connection(("127.0.0.1", local_aws.port), timeout=30) as connection:
            connection.sendall(f"{request}\r\n\r\n{{}}".encode())
            assert connection.recv(4096).split(b" ")[1] in (b"400", b"403")


@pytest.mark.parametrize("path", ["/2015-03-31/functions", HEALTH_PATH])
def test_a_preflight_allows_nothing(local_aws: LocalAws, path: str) -> None:
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    status, headers, body = ask(local_aws, "OPTIONS", path, headers=asked)
    assert status == 403
    assert not [name for name in headers if name.startswith("access-control-")]
    assert b"origin" not in body.lower()
    assert ask(local_aws, "OPTIONS", path, headers={})[0] == 403


def test_a_page_makes_no_function(local_aws: LocalAws) -> None:
    """The attack as it was carried out: no preflight is needed for `text/plain`, and no answer."""
    made = json.dumps({"FunctionName": "attack", "Runtime": "python3.12", "Role": "arn:aws:iam::000000000000:role/x"})
    for headers in ({"Origin": "https://evil.example"}, {"Host": f"evil.example:{local_aws.port}"}, {}):
        status, _, _ = ask(
            local_aws,
            "POST",
            "/2015-03-31/functions",
            headers={"Content-Type": "text/plain", **headers},
            body=made.encode(),
        )
        assert status == 403
    functions = local_aws.session().client("lambda").list_functions()["Functions"]
    assert "attack" not in {function["FunctionName"] for function in functions}


def test_a_websocket_is_refused(local_aws: LocalAws) -> None:
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    for host in (f"127.0.0.1:{local_aws.port}", "iot.us-east-1.amazonaws.com", f"a1.execute-api.x:{local_aws.port}"):
        more = {"Host": host, "Sec-WebSocket-Protocol": "mqtt"}
        status, _, _ = ask(local_aws, "GET", "/", headers=signed(local_aws, **upgrade, **more))
        assert status in (400, 403)


# Another process, another user, another local AWS.


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/"),
        ("GET", "/2015-03-31/functions"),
        ("POST", "/_ministack/reset"),
        ("GET", "/_localstack/health"),
        ("POST", HEALTH_PATH),
        ("GET", f"{HEALTH_PATH}/../x"),
        ("GET", "/_ministack/cfn-response/x"),
        ("PUT", "/latest/api/token"),
        ("GET", "/_aws/lambda-url/x/"),
    ],
)
def test_without_an_issued_key_nothing_is_answered(local_aws: LocalAws, method: str, path: str) -> None:
    invented = "AWS4-HMAC-SHA256 Credential=test/20261123/us-east-1/sagemaker/aws4_request, SignedHeaders=host"
    for given in ({}, {"Authorization": invented}):
        assert ask(local_aws, method, path, headers=given)[0] == 403


@pytest.mark.parametrize(
    ("service", "call", "code"),
    [
        ("sts", lambda client: client.get_caller_identity(), "InvalidClientTokenId"),
        ("dynamodb", lambda client: client.list_tables(), "UnrecognizedClientException"),
        ("s3", lambda client: client.put_object(Bucket="b", Key="k", Body=b"x" * 9_000_000), "InvalidAccessKeyId"),
        ("ec2", lambda client: client.describe_instances(), "AuthFailure"),
    ],
)
def test_the_key_of_another_state_is_refused_as_aws_refuses_it(
    local_aws: LocalAws, tmp_path: Path, service: Any, call: Any, code: str
) -> None:
    theirs = make_person_keys(tmp_path / "credentials", account_id=local_aws.account_id).administrator
    client = boto3.client(
        service,
        endpoint_url=local_aws.endpoint_url,
        region_name=local_aws.region,
        aws_access_key_id=theirs.access_key_id,
        aws_secret_access_key=theirs.secret_access_key,
        config=Config(retries={"total_max_attempts": 1}),
    )
    with pytest.raises(ClientError) as refused:
        call(client)
    assert refused.value.response["Error"]["Code"] == code


def test_the_key_is_random_and_only_its_user_can_read_it(local_aws: LocalAws, tmp_path: Path) -> None:
    own = local_aws.access_key
    others = make_person_keys(tmp_path / "credentials", account_id=local_aws.account_id)
    other = others.administrator
    assert make_person_keys(tmp_path / "credentials", account_id=local_aws.account_id) == others, "after a restart"
    assert own.access_key_id != other.access_key_id
    assert own.secret_access_key != other.secret_access_key
    assert own.access_key_id not in repr(local_aws)
    assert own.secret_access_key not in repr(local_aws)
    directory = StateDirectory(local_aws.state_dir)
    assert stat.S_IMODE(directory.root.stat().st_mode) == 0o700
    assert stat.S_IMODE(directory.credentials.stat().st_mode) == 0o600
    assert own.access_key_id not in directory.log.read_text()


def test_a_state_directory_that_others_could_enter_is_closed(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o755)
    StateDirectory(tmp_path / "state").create()
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


# Presigned addresses carry the key.


def test_a_presigned_address_works_for_who_has_it_and_for_no_page(local_aws: LocalAws) -> None:
    s3 = local_aws.session().client("s3", config=Config(signature_version="s3v4"))
    s3.create_bucket(Bucket="presigned")
    s3.put_object(Bucket="presigned", Key="k", Body=b"content")
    address = urlsplit(s3.generate_presigned_url("get_object", Params={"Bucket": "presigned", "Key": "k"}))
    path = f"{address.path}?{address.query}"
    assert ask(local_aws, "GET", path, headers={})[2] == b"content"
    assert ask(local_aws, "GET", path, headers={"Origin": "https://evil.example"})[0] == 403
    assert ask(local_aws, "GET", path, headers={"Host": "evil.example"})[0] == 403
    assert ask(local_aws, "GET", path.replace("AKIA", "AKIB"), headers={})[0] == 403
    assert ask(local_aws, "GET", address.path, headers={})[0] == 403


# What needs no key.


def test_the_health_page_tells_a_process_and_a_random_text(local_aws: LocalAws) -> None:
    status, _, body = ask(local_aws, "GET", HEALTH_PATH, headers={})
    assert status == 200
    assert set(json.loads(body)) == {"nonce", "pid"}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_page_gets_no_token_of_an_instance_s_metadata(page: dict[str, str]) -> None:
    """On a machine without namespaces it listens on loopback; under a rebound name a page may send any header."""
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    service = MetadataService(listening, read=lambda: pytest.fail("it was asked"))
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        headers |= {name: value.format(port=port) for name, value in page.items()}
        for method, path in (("PUT", "/latest/api/token"), ("GET", "/latest/meta-data/iam/security-credentials/")):
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (403, b"")
        connection.close()
    finally:
        service.close()


# A function, an instance, a job: what their keys are good for.


def test_a_function_acts_in_its_role_and_does_not_control_the_local_aws(local_aws: LocalAws) -> None:
    client = local_aws.session().client("lambda")
    source = (
        "import json, os\n"
        "def handler(event, context):\n"
        "    return {name: os.environ.get(name) for name in "
        "('AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY', 'AWS_SESSION_TOKEN')}\n"
    )
    client.create_function(
        FunctionName="inward",
        Runtime=f"python3.{sys.version_info.minor}",
        Role=make_role(local_aws, "inward-role", actions=("logs:*", "sagemaker:ListTrainingJobs")),
        Handler="index.handler",
        Code={"ZipFile": a_function(source)},
    )
    given = json.loads(client.invoke(FunctionName="inward")["Payload"].read())
    assert given["AWS_ACCESS_KEY_ID"] != local_aws.access_key.access_key_id
    session = boto3.Session(
        aws_access_key_id=given["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=given["AWS_SECRET_ACCESS_KEY"],
        aws_session_token=given["AWS_SESSION_TOKEN"],
        region_name=local_aws.region,
    )
    sts = session.client("sts", endpoint_url=local_aws.endpoint_url)
    assert sts.get_caller_identity()["Arn"] == "arn:aws:sts::000000000000:assumed-role/inward-role/inward"

    key, token = given["AWS_ACCESS_KEY_ID"], given["AWS_SESSION_TOKEN"]
    assert ask(local_aws, "POST", "/", headers=signed(local_aws, key=key, token=token), body=b"{}")[0] == 200
    for target in ("SpotkeepLocal.WarmPoolQuota", "SpotkeepLocal.Platform"):
        headers = {**signed(local_aws, key=key, token=token), "X-Amz-Target": target}
        assert ask(local_aws, "POST", "/", headers=headers, body=b'{"instances": 0}')[0] == 403
    assert ask(local_aws, "POST", "/_ministack/reset", headers=signed(local_aws, key=key, token=token))[0] == 403
    for wrong in (None, "", "guess"):
        headers = signed(local_aws, key=key, token=wrong)
        assert ask(local_aws, "POST", "/", headers=headers, body=b"{}")[0] == 403


def test_an_assumed_role_is_answered_until_it_expires(local_aws: LocalAws) -> None:
    sts = local_aws.session().client("sts")
    assumed = sts.assume_role(RoleArn=make_role(local_aws, "deploy"), RoleSessionName="cdk")["Credentials"]
    key, token = assumed["AccessKeyId"], assumed["SessionToken"]
    assert ask(local_aws, "POST", "/", headers=signed(local_aws, key=key, token=token), body=b"{}")[0] == 200
    session = AccessKey(
        access_key_id="ASIA1",
        secret_access_key="s",
        session_token="t",
        expires_at=100.0,
        principal=Principal(arn="arn:aws:sts::0:assumed-role/r/s", user_id="r:s", account_id="0"),
    )
    request = request_of(authorization="AWS4-HMAC-SHA256 Credential=ASIA1/x", **{"x-amz-security-token": "t"})
    assert refusal(request, port=PORT, find={"ASIA1": session}.get, now=99.0) is None
    assert refusal(request, port=PORT, find={"ASIA1": session}.get, now=100.0) is Refusal.EXPIRED


def test_what_a_holder_had_is_worth_nothing_when_it_is_gone() -> None:
    people = PersonKeys(administrator=PERSON, developer=DEVELOPER)
    registry = CredentialRegistry(
        account_id="000000000000", people=people, sessions=NoSessions(), role_id=lambda name: f"AROA-{name}"
    )
    one = registry.of_role("arn:aws:iam::000000000000:role/r", session="i-1", holder="i-1")
    assert registry.of_role("r", session="i-1", holder="i-1") is one
    assert one.principal.arn == "arn:aws:sts::000000000000:assumed-role/r/i-1"
    assert one.principal.user_id == "AROA-r:i-1"
    assert registry.of_role("r", session="i-2", holder="i-2").access_key_id != one.access_key_id
    registry.revoke("i-1")
    assert registry.find(one.access_key_id) is None
    assert registry.find(PERSON.access_key_id) is PERSON


# As root, where root is not needed.

CAPABILITIES = "[line.split()[1] for line in open('/proc/self/status') if line.startswith('CapEff')][0]"


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="there is nothing to give up")
def test_a_function_has_none_of_root_s_capabilities(local_aws: LocalAws) -> None:
    client = local_aws.session().client("lambda")
    client.create_function(
        FunctionName="powers",
        Runtime=f"python3.{sys.version_info.minor}",
        Role="arn:aws:iam::000000000000:role/powers",
        Handler="index.handler",
        Code={"ZipFile": a_function(f"def handler(event, context): return {CAPABILITIES}")},
    )
    assert int(json.loads(client.invoke(FunctionName="powers")["Payload"].read()), 16) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="there is nothing to give up")
def test_a_job_has_no_more_of_root_s_capabilities_than_a_container(tmp_path: Path) -> None:
    if resolve_isolation(Isolation.AUTO) is not Isolation.NAMESPACE:
        pytest.skip("this machine has no private mount namespaces")
    lines: list[str] = []
    ended = threading.Event()
    (tmp_path / "ml").mkdir()
    job = start_host(
        folder=tmp_path,
        command=[sys.executable, "-c", f"print({CAPABILITIES})"],
        environment={},
        own_image=False,
        isolation=Isolation.NAMESPACE,
        place=HostPlace(number=1),
        on_line=lines.append,
        on_exit=lambda _: ended.set(),
    )
    job.watch()
    assert ended.wait(30)
    sys_admin, sys_ptrace, sys_module = 21, 19, 16
    assert not int(lines[0], 16) & (1 << sys_admin | 1 << sys_ptrace | 1 << sys_module)


# The decision by itself.


def request_of(*, method: str = "POST", path: str = "/", query: str = "", **headers: str) -> Request:
    return Request(method=method, path=path, query=query, headers={"host": f"127.0.0.1:{PORT}", **headers})


def refusal_of(**headers: str) -> Refusal | None:
    """Decide about a request of a person, which has a key, with some of its headers changed."""
    request = request_of(**{"authorization": "AWS4-HMAC-SHA256 Credential=AKIAPERSON/x", **headers})
    return refusal(request, port=PORT, find={"AKIAPERSON": PERSON}.get, now=0.0)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_loopback_by_any_of_its_names_is_ours(host: str) -> None:
    assert refusal_of(host=f"{host}:{PORT}") is None
    assert refusal_of(host=f"{host}:{PORT + 1}") is Refusal.FOREIGN_HOST


@pytest.mark.parametrize(
    "host",
    [
        "",
        "127.0.0.1",
        f"127.0.0.2:{PORT}",
        f"0.0.0.0:{PORT}",
        f"127.0.0.1.evil.example:{PORT}",
        f"127.0.0.1:{PORT}.evil.example",
        f"bucket.localhost:{PORT}",
        "api.sagemaker.us-east-1.amazonaws.com",
    ],
)
def test_every_other_name_is_not(host: str) -> None:
    assert refusal_of(host=host) is Refusal.FOREIGN_HOST


@pytest.mark.parametrize("header", [{"origin": ""}, {"origin": "null"}, {"sec-fetch-mode": "no-cors"}])
def test_what_a_browser_adds_is_not_to_be_had_for_nothing(header: dict[str, str]) -> None:
    assert refusal_of(**header) is Refusal.BROWSER


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer AKIAPERSON", "AWS4-HMAC-SHA256", "AWS4-HMAC-SHA256 Credential=/20261123/x", "AWS test:0"],
)
def test_what_names_no_key_is_unsigned_or_unknown(authorization: str) -> None:
    assert refusal_of(authorization=authorization) in (Refusal.UNSIGNED, Refusal.UNKNOWN_KEY)


def test_a_refusal_says_how_to_get_credentials(local_aws: LocalAws) -> None:
    assert b"spotkeep local env" in ask(local_aws, "POST", "/", headers={}, body=b"{}")[2]
