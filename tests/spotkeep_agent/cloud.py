"""A cloud for agents that run as real processes: the models of EC2 and DynamoDB, S3, logs and events, on one HTTP port.

Volumes are directories, an instance is a folder and a metadata service of its own, and its agent is the process that
`spotkeep.pyz agent` is. Faults are set from outside: what the metadata answer, which calls are throttled, what hangs.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from botocore import xform_name
from botocore.exceptions import ClientError

from spotkeep_agent.volume.machine import link_name
from spotkeep_fleet.errors import DocumentError
from spotkeep_fleet.instance_job import InstanceJob, encode_job, fleet_job_key
from spotkeep_fleet.record import FleetRecord, decode, encode, fleet_key
from spotkeep_local.ec2.errors import Ec2Error
from spotkeep_local.ec2.service import Ec2QueryProtocol
from spotkeep_local.service_base.aws_service import HttpRequest
from tests.models.dynamodb import InMemoryDynamoDb
from tests.models.ec2 import Ec2, ModelInstance, ModelSnapshot, ModelVolume
from tests.models.faults import Called, client_error
from tests.models.secrets_manager import SecretsManager

SOURCES = Path(__file__).parents[2] / "training"
DEPLOYMENT, RUN = "spotkeep", "run"
CREDENTIALS_FUNCTION = "spotkeep-instance_credentials"
REBALANCE = ("/latest/meta-data/events/recommendations/rebalance", (200, '{"noticeTime": "2026-11-22T00:00:00Z"}'))
"""Path and answer of the metadata service when EC2 recommends a rebalance."""


CLOCK_AHEAD_VARIABLE = "CLOCK_AHEAD_SECONDS"
_WITH_ANOTHER_CLOCK = f"""
import os, runpy, time
right, ahead = time.time, float(os.environ["{CLOCK_AHEAD_VARIABLE}"])
time.time = lambda: right() + ahead
runpy.run_module("spotkeep_agent", run_name="__main__", alter_sys=True)
"""
"""An agent whose wall clock is wrong. Its monotonic clock is right."""
CREDENTIALS_OF_THE_RUN = {
    "AccessKeyId": "ASIAOFTHERUN",
    "SecretAccessKey": "S",
    "Token": "T",
    "Expiration": "2036-01-01T00:00:00Z",
}


@dataclass
class Instance:
    """One instance: its folder, its metadata, its agent. Its first hour is over, unless a test says otherwise.

    Attributes:
        asked: How often each path of its metadata was asked for.
    """

    ec2: ModelInstance
    root: Path
    cloud: Cloud
    launched_at: float = field(default_factory=lambda: time.time() - 7200)
    metadata: dict[str, tuple[int, str]] = field(default_factory=dict)
    hanging: bool = False
    asked: Counter[str] = field(default_factory=Counter)
    agent: subprocess.Popen[str] | None = None
    reading: threading.Thread | None = None
    lines: list[str] = field(default_factory=list)
    said: threading.Condition = field(default_factory=threading.Condition)

    @property
    def id(self) -> str:
        return self.ec2.id

    @property
    def address(self) -> str:
        """Its private address. All addresses of 127.0.0.0/8 are this machine's."""
        return f"{self.cloud.network}.{self.id.removeprefix('i-')}"

    def start_agent(self, **environment: str) -> None:
        server = _serve(lambda request: self._answer(request))
        self._metadata_server = server
        self.agent = subprocess.Popen(
            [sys.executable, "-S", "-c", _WITH_ANOTHER_CLOCK, "agent"]
            if CLOCK_AHEAD_VARIABLE in environment
            else [sys.executable, "-S", "-m", "spotkeep_agent", "agent"],
            env={
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}",
                "PYTHONPATH": str(SOURCES),
                "PYTHONUNBUFFERED": "1",
                "HOME": str(self.root),
                "TMPDIR": str(self.root),
                "SPOTKEEP_RUN_TABLE": "runs",
                "SPOTKEEP_DEPLOYMENT": DEPLOYMENT,
                "SPOTKEEP_CREDENTIALS_FUNCTION": CREDENTIALS_FUNCTION,
                "SPOTKEEP_LOCAL_INSTANCE_ROOT": str(self.root),
                "SPOTKEEP_LINGER_SECONDS": "0",
                "SPOTKEEP_LOCAL_TIME_SCALE": "20",
                "SPOTKEEP_PROGRESS_SECONDS": "0",
                "AWS_ENDPOINT_URL": self.cloud.url,
                "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}",
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.reading = threading.Thread(target=self._read, args=(self.agent,), daemon=True)
        self.reading.start()

    def announce(self, seconds: float) -> None:
        """EC2 will take the instance in so many seconds."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds + 0.999))
        body = json.dumps({"action": "terminate", "time": at})
        self.metadata["/latest/meta-data/spot/instance-action"] = (200, body)

    def recommend_rebalance(self) -> None:
        path, answer = REBALANCE
        self.metadata[path] = answer

    def wait_for(self, text: str, *, seconds: float = 600.0) -> str:
        """Wait until a line with this text is said."""
        deadline = time.monotonic() + seconds
        with self.said:
            while True:
                for line in self.lines:
                    if text in line:
                        return line
                left = deadline - time.monotonic()
                assert left > 0, f"{self.id} never said {text!r}; it said:\n" + "\n".join(self.lines)
                self.said.wait(left)

    def finish(self, *, seconds: float = 600.0) -> int:
        """Wait for the agent's end, and for its last line."""
        assert self.agent is not None
        assert self.reading is not None
        try:
            code = self.agent.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.id} goes on:\n" + "\n".join(self.lines)) from None
        self.reading.join(60)
        assert not self.reading.is_alive(), "what it has started goes on"
        return code

    def kill_agent(self) -> None:
        """The agent alone crashes; what it started may live on."""
        assert self.agent is not None
        self.agent.kill()
        self.agent.wait()

    def power_off(self) -> None:
        """Everything of the instance ends at once, and EC2 detaches its volumes."""
        if self.agent is not None:
            _kill_everything_below(self.root)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.agent.pid, signal.SIGKILL)
            self.agent.wait()
        self.cloud.ends(self.id)

    def _read(self, agent: subprocess.Popen[str]) -> None:
        assert agent.stdout is not None
        with agent.stdout:
            for line in agent.stdout:
                with self.said:
                    self.lines.append(line.rstrip("\n"))
                    self.said.notify_all()

    def _answer(self, request: _Request) -> tuple[int, str | bytes]:
        while self.hanging:
            time.sleep(0.05)
        path = request.path
        self.asked[path] += 1
        if path in self.metadata:
            return self.metadata[path]
        if path == "/latest/api/token":
            return 200, "token"
        if request.headers.get("X-aws-ec2-metadata-token") != "token":
            return 401, ""
        document = {
            "instanceId": self.id,
            "availabilityZone": self.ec2.zone,
            "region": "us-east-1",
            "instanceType": "g5.xlarge",
            "privateIp": self.address,
            "pendingTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.launched_at)),
        }
        credentials = {"AccessKeyId": "A", "SecretAccessKey": "S", "Token": "T", "Expiration": "2036-01-01T00:00:00Z"}
        answers = {
            "/latest/dynamic/instance-identity/document": json.dumps(document),
            "/latest/meta-data/tags/instance/spotkeep:run": RUN,
            "/latest/meta-data/tags/instance/spotkeep:deployment": DEPLOYMENT,
            "/latest/meta-data/iam/security-credentials/": "role",
            "/latest/meta-data/iam/security-credentials/role": json.dumps(credentials),
        }
        return (200, answers[path]) if path in answers else (404, "")


class DirectoryEc2(Ec2):
    """EC2 whose volumes and snapshots are directories; an attached one is a device link of its instance.

    Attributes:
        release_seconds: How long a volume hangs on to an instance that let it go.
        volume_bytes: How large a volume really is; None for as large as this disk. Needs root.
    """

    page_size = 1000

    def __init__(self, called: Called, folder: Path) -> None:
        super().__init__(called)
        self.folder = folder
        self.lock = threading.RLock()
        self.release_seconds = 0.0
        self.volume_bytes: int | None = None

    def path(self, made: ModelVolume | ModelSnapshot) -> Path:
        return self.folder / made.id

    def made_volume(self, volume: ModelVolume) -> None:
        path = self.path(volume)
        path.mkdir()
        if self.volume_bytes is not None:
            options = f"size={self.volume_bytes}"
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path], check=True)
        if volume.snapshot:
            shutil.copytree(self.folder / volume.snapshot, path, dirs_exist_ok=True)

    def made_snapshot(self, snapshot: ModelSnapshot) -> None:
        shutil.copytree(self.folder / snapshot.volume, self.path(snapshot))

    def attached(self, volume: ModelVolume) -> None:
        self._link(volume).symlink_to(self.path(volume))

    def released(self, volume: ModelVolume) -> None:
        self._link(volume).unlink(missing_ok=True)

    def deleted(self, made: ModelVolume | ModelSnapshot) -> None:
        self.unmount(made)
        shutil.rmtree(self.path(made))

    def unmount(self, made: ModelVolume | ModelSnapshot) -> None:
        if self.path(made).is_mount():
            subprocess.run(["umount", "--lazy", self.path(made)], check=False)

    def detach_volume(self, *, VolumeId: str, InstanceId: str, Force: bool = False) -> dict[str, Any]:  # noqa: N803
        if Force or not self.release_seconds:
            return super().detach_volume(VolumeId=VolumeId, InstanceId=InstanceId, Force=Force)
        self.volumes[VolumeId].attachment = "detaching"
        threading.Timer(self.release_seconds, self.releases, [InstanceId]).start()
        return {}

    def releases(self, instance_id: str) -> None:
        with self.lock:
            super().releases(instance_id)

    def _link(self, volume: ModelVolume) -> Path:
        return self.folder / volume.instance / "dev/disk/by-id" / link_name(volume.id)


class Cloud:
    """Everything outside the instances.

    Args:
        folder: For all its files.

    Attributes:
        network: How all addresses of its instances begin. Nodes listen at one port, in each cloud of this machine.
        ec2: EC2.
        dynamodb: DynamoDB, with the run table.
        secrets: AWS Secrets Manager.
        throttled: How often each call is still refused as one too many.
        held: Requests to S3 that get no answer: method and a part of the address.
        refusing: S3's error code for each request that has this in its address.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.network = f"127.{random.randrange(1, 64)}.{random.randrange(256)}"  # noqa: S311 - not secret
        self.instances: dict[str, Instance] = {}
        self.objects: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.events: list[dict[str, Any]] = []
        self.logged: list[str] = []
        self.log_streams: set[str] = set()
        self.calls: Counter[str] = Counter()
        self.renewals = 0
        self.throttled: Counter[str] = Counter()
        self.held: set[tuple[str, str]] = set()
        self.refusing: dict[str, str] = {}
        self.ec2 = DirectoryEc2(self._counted, folder)
        self.dynamodb = InMemoryDynamoDb(self._counted)
        self.secrets = SecretsManager(self._counted)
        self._wire = Ec2QueryProtocol()
        self._lock = self.ec2.lock
        self._server = _serve(self._answer)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        for instance in self.instances.values():
            if instance.agent is not None and instance.agent.poll() is None:
                instance.power_off()
            elif instance.agent is not None:
                _kill_everything_below(instance.root)
        self.held.clear()
        self._server.shutdown()
        self._server.server_close()
        for volume in self.ec2.volumes.values():
            self.ec2.unmount(volume)

    @contextlib.contextmanager
    def throttling(self, action: str) -> Iterator[None]:
        """Refuse a call as one too many, again and again."""
        self.throttled[action] = 1_000_000
        yield
        del self.throttled[action]

    def add(self, zone: str, **fields: Any) -> Instance:
        """An instance that runs, without an agent yet."""
        described = ModelInstance(
            id=f"i-{len(self.instances) + 1}", fleet="", type="g5.xlarge", zone=zone, spot=True,
            launched=self.ec2.time(), tags={},
        )  # fmt: skip
        root = self.folder / described.id
        (root / "dev/disk/by-id").mkdir(parents=True)
        self.ec2.instances[described.id] = described
        instance = self.instances[described.id] = Instance(ec2=described, root=root, cloud=self, **fields)
        return instance

    def boot(
        self,
        zone: str,
        *,
        held_metadata: bool = False,
        launched_at: float | None = None,
        metadata: Mapping[str, tuple[int, str]] | None = None,
        **environment: str,
    ) -> Instance:
        instance = self.add(zone, hanging=held_metadata, metadata=dict(metadata or {}))
        if launched_at is not None:
            instance.launched_at = launched_at
        instance.start_agent(**environment)
        return instance

    def ends(self, instance: str) -> None:
        """EC2 ends an instance."""
        with self._lock:
            self.ec2.ends(instance)

    def path(self, volume: str) -> Path:
        """Where the files of a volume are."""
        return self.ec2.path(self.ec2.volumes[volume])

    @property
    def record_item(self) -> dict[str, Any]:
        """The item of the fleet record, as DynamoDB has it."""
        return self.dynamodb.items[fleet_key(RUN)]

    @property
    def record(self) -> FleetRecord:
        with self._lock:
            return decode(self.record_item["record"]["S"])

    def open(self, record: FleetRecord, *, job: InstanceJob | None = None) -> None:
        """What the launcher writes, or the controller; the job stays, unless there is another one."""
        with self._lock:
            version, text = {"N": str(record.version)}, {"S": encode(record)}
            self.dynamodb.items[fleet_key(RUN)] = {**_key(fleet_key(RUN)), "version": version, "record": text}
            if job is not None:
                self.new_job(job)

    def new_job(self, job: InstanceJob) -> None:
        """What the launcher writes for the next attempt."""
        with self._lock:
            self.dynamodb.items[fleet_job_key(RUN)] = {**_key(fleet_job_key(RUN)), "job": {"S": encode_job(job)}}

    def change(self, change: Callable[[FleetRecord], FleetRecord]) -> None:
        """What the controller does to the record."""
        with self._lock:
            self.open(change(self.record).next_version())

    # HTTP

    def _answer(self, request: _Request) -> tuple[int, str | bytes]:
        if request.path == f"/2015-03-31/functions/{CREDENTIALS_FUNCTION}/invocations":
            return self._credentials(json.loads(request.body))
        if CREDENTIALS_OF_THE_RUN["AccessKeyId"] not in request.headers["authorization"]:
            return 403, json.dumps({"__type": "AccessDenied", "message": "these are not the credentials of the run"})
        target = request.headers.get("x-amz-target", "")
        if target:
            return self._json(target.rpartition(".")[2], json.loads(request.body))
        if request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            return self._ec2(request)
        return self._s3(request)

    def _counted(self, operation: str, act: Callable[[], Any]) -> Any:
        self.calls[operation] += 1
        if self.throttled[operation] > 0:
            self.throttled[operation] -= 1
            raise client_error(operation, "ThrottlingException", "Rate exceeded")
        return act()

    def _credentials(self, event: dict[str, Any]) -> tuple[int, str]:
        with self._lock:
            try:
                return self._counted("Invoke", lambda: self._credentials_for(event))
            except ClientError:
                return 429, json.dumps({"Type": "User", "message": "Rate exceeded"})

    def _credentials_for(self, event: dict[str, Any]) -> tuple[int, str]:
        if "/sts/aws4_request" not in event["headers"]["authorization"]:
            return 200, json.dumps({"ok": False, "error": "not-running", "problem": "i-1 is shutting-down"})
        return 200, json.dumps({"ok": True, "credentials": CREDENTIALS_OF_THE_RUN})

    def _json(self, action: str, document: dict[str, Any]) -> tuple[int, str]:
        with self._lock:
            try:
                return 200, json.dumps(self._json_answer(action, document))
            except ClientError as error:
                found = error.response["Error"]
                return 400, json.dumps({"__type": f"x#{found['Code']}", "message": found["Message"]})

    def _json_answer(self, action: str, document: dict[str, Any]) -> Any:
        if action == "PutItem" and self._only_renews(document):
            self.renewals += 1
        if action in ("GetItem", "PutItem"):
            return getattr(self.dynamodb, xform_name(action))(**document) or {}
        if action == "GetSecretValue":
            return self.secrets.get_secret_value(**document)
        return self._counted(action, lambda: self._take(action, document))

    def _only_renews(self, document: dict[str, Any]) -> bool:
        """Say whether a write changes nothing but the time at which the lease ends."""
        try:
            before, after = (decode(item["record"]["S"]) for item in (self.record_item, document["Item"]))
        except DocumentError:
            return False
        if before.lease is None or after.lease is None:
            return False
        lease = replace(before.lease, expires_at=after.lease.expires_at)
        return replace(before, version=after.version, lease=lease) == after

    def _take(self, action: str, document: dict[str, Any]) -> dict[str, Any]:
        if action == "PutEvents":
            self.events += [json.loads(entry["Detail"]) for entry in document["Entries"]]
        if action == "GetAuthorizationToken":
            return {"authorizationData": [{"authorizationToken": base64.b64encode(b"AWS:secret").decode()}]}
        if action == "PutLogEvents":
            self.logged += [event["message"] for event in document["logEvents"]]
            self.log_streams.add(document["logStreamName"])
        return {}

    def _ec2(self, request: _Request) -> tuple[int, str | bytes]:
        sent = HttpRequest(body=request.body)
        action = self._wire.operation(sent)
        with self._lock:
            try:
                answer = getattr(self.ec2, xform_name(action))(**self._wire.parameters(action, sent))
                status, _, body = self._wire.answer(action, answer)
            except ClientError as error:
                found = error.response["Error"]
                status, _, body = self._wire.error(Ec2Error(found["Code"], found["Message"]))
            except Ec2Error as error:
                status, _, body = self._wire.error(error)
        return status, body

    def _s3(self, request: _Request) -> tuple[int, str | bytes]:
        bucket, _, key = request.path[1:].partition("/")
        name = f"{bucket}/{key}"
        while any(request.method == method and part in name for method, part in tuple(self.held)):
            time.sleep(0.02)
        for code in [code for part, code in tuple(self.refusing.items()) if part in name]:
            return 403, f"<Error><Code>{code}</Code></Error>"
        with self._lock:
            self.calls[f"s3:{request.method}"] += 1
            if request.method == "PUT":
                labels = {n: v for n, v in request.headers.items() if n.startswith("x-amz-meta-")}
                self.objects[name] = (request.body, labels)
                return 200, ""
            if not key:
                if "uploads" in request.query:
                    return 200, "<R/>"
                prefix = request.query.get("prefix", [""])[0]
                found = "".join(
                    f"<Contents><Key>{escape(other.partition('/')[2])}</Key><Size>{len(body)}</Size></Contents>"
                    for other, (body, _) in sorted(self.objects.items())
                    if other.startswith(f"{bucket}/{prefix}")
                )
                return 200, f"<R>{found}</R>"
            if name not in self.objects:
                return 404, "<Error><Code>NoSuchKey</Code></Error>"
            body, labels = self.objects[name]
            if request.method == "DELETE":
                del self.objects[name]
                return 204, ""
            request.answer_headers.update(labels)
            if request.method == "HEAD":
                request.answer_headers["Content-Length"] = str(len(body))
                return 200, ""
            asked = request.headers.get("range", "")
            if asked:
                first, last = (int(part) for part in asked.removeprefix("bytes=").split("-"))
                return 206, body[first : last + 1]
            return 200, body


def _key(names: tuple[str, str]) -> dict[str, Any]:
    return {"pk": {"S": names[0]}, "sk": {"S": names[1]}}


@dataclass
class _Request:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes
    answer_headers: dict[str, str] = field(default_factory=dict)


def _serve(answer: Callable[[_Request], tuple[int, str | bytes]]) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            parts = urlsplit(self.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            headers["X-aws-ec2-metadata-token"] = headers.get("x-aws-ec2-metadata-token", "")
            request = _Request(
                self.command,
                unquote(parts.path),
                parse_qs(parts.query, keep_blank_values=True),
                headers,
                self.rfile.read(int(self.headers.get("content-length") or 0)),
            )
            status, body = answer(request)
            raw = body.encode() if isinstance(body, str) else body
            with contextlib.suppress(OSError):
                self.send_response(status)
                for name, value in {"Content-Length": str(len(raw)), **request.answer_headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(raw)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _answer  # noqa: N815

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


def _kill_everything_below(root: Path) -> None:
    """Kill the processes whose environment says that they belong to an instance."""
    mark = f"SPOTKEEP_LOCAL_INSTANCE_ROOT={root}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
