"""A cloud for agents that run as real processes: EC2's volumes, the record, S3, logs and events, behind one HTTP port.

Volumes are directories, an instance is a folder and a metadata service of its own, and its agent is the process that
`spotkeep.pyz agent` is. Faults are set from outside: what the metadata answer, which calls are throttled, what hangs.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

from spotkeep_agent.volume.device_links import link_name
from spotkeep_fleet.instance_job import FLEET_JOB_PARTITION_PREFIX, InstanceJob, encode_job
from spotkeep_fleet.record import FleetRecord, decode, encode

SOURCES = Path(__file__).parents[2] / "training"
DEPLOYMENT, RUN = "spotkeep", "run"
CREDENTIALS_FUNCTION = "spotkeep-instance_credentials"
REBALANCE = ("/latest/meta-data/events/recommendations/rebalance", (200, '{"noticeTime": "2026-11-22T00:00:00Z"}'))
"""Path and answer of the metadata service when EC2 recommends a rebalance."""


CREDENTIALS_OF_THE_RUN = {
    "AccessKeyId": "ASIAOFTHERUN",
    "SecretAccessKey": "S",
    "Token": "T",
    "Expiration": "2036-01-01T00:00:00Z",
}


class RefusedError(Exception):
    """An EC2 error."""

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__(code)


@dataclass
class Instance:
    """One instance: its folder, its metadata, its agent. Its first hour is over, unless a test says otherwise."""

    id: str
    zone: str
    root: Path
    cloud: Cloud
    state: str = "running"
    launched_at: float = field(default_factory=lambda: time.time() - 7200)
    metadata: dict[str, tuple[int, str]] = field(default_factory=dict)
    hanging: bool = False
    agent: subprocess.Popen[str] | None = None
    lines: list[str] = field(default_factory=list)
    said: threading.Condition = field(default_factory=threading.Condition)

    def start_agent(self, **environment: str) -> None:
        server = _serve(lambda request: self._answer(request))
        self._metadata_server = server
        self.agent = subprocess.Popen(
            [sys.executable, "-m", "spotkeep_agent", "agent"],
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
        threading.Thread(target=self._read, args=(self.agent,), daemon=True).start()

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
        assert self.agent is not None
        try:
            return self.agent.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.id} goes on:\n" + "\n".join(self.lines)) from None

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
        self.state = "terminated"
        self.cloud.detach_all(self.id)

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
        if path in self.metadata:
            return self.metadata[path]
        if path == "/latest/api/token":
            return 200, "token"
        if request.headers.get("X-aws-ec2-metadata-token") != "token":
            return 401, ""
        document = {
            "instanceId": self.id,
            "availabilityZone": self.zone,
            "region": "us-east-1",
            "instanceType": "g5.xlarge",
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


@dataclass
class _Volume:
    id: str
    zone: str
    size: int
    tags: dict[str, str]
    path: Path
    snapshot: str = ""
    instance: str = ""
    attachment: str = ""
    state: str = "available"


@dataclass
class _Snapshot:
    id: str
    volume: str
    size: int
    tags: dict[str, str]
    path: Path
    state: str = "completed"


class Cloud:
    """Everything outside the instances.

    Args:
        folder: For all its files.

    Attributes:
        throttled: How often each call is still refused as one too many.
        held: Requests to S3 that get no answer: method and a part of the address.
        refusing: What no request to S3 may have in its address.
        refused_credentials: Whether instances get no credentials of their run.
        snapshot_state: What new snapshots are.
        volume_state: What new volumes are.
        release_seconds: How long a volume hangs on to an instance that let it go.
        sticking: Whether volumes stay `busy` at an instance that is gone until they are detached by force.
        volume_bytes: How large a volume really is; None for as large as this disk. Needs root.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.instances: dict[str, Instance] = {}
        self.volumes: dict[str, _Volume] = {}
        self.snapshots: dict[str, _Snapshot] = {}
        self.objects: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.record_text = ""
        self.job: InstanceJob | None = None
        self.version = 0
        self.events: list[dict[str, Any]] = []
        self.logged: list[str] = []
        self.calls: Counter[str] = Counter()
        self.throttled: Counter[str] = Counter()
        self.held: set[tuple[str, str]] = set()
        self.refusing: set[str] = set()
        self.refused_credentials = False
        self.snapshot_state = "completed"
        self.volume_state = "available"
        self.release_seconds = 0.0
        self.sticking = False
        self.volume_bytes: int | None = None
        self._tokens: dict[str, str] = {}
        self._lock = threading.RLock()
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
        for volume in self.volumes.values():
            self._unmount(volume)

    @contextlib.contextmanager
    def throttling(self, action: str) -> Iterator[None]:
        """Refuse a call as one too many, again and again."""
        self.throttled[action] = 1_000_000
        yield
        del self.throttled[action]

    def boot(
        self,
        zone: str,
        *,
        held_metadata: bool = False,
        launched_at: float | None = None,
        metadata: Mapping[str, tuple[int, str]] | None = None,
        **environment: str,
    ) -> Instance:
        id_ = f"i-{len(self.instances) + 1}"
        root = self.folder / id_
        (root / "dev/disk/by-id").mkdir(parents=True)
        instance = self.instances[id_] = Instance(
            id=id_, zone=zone, root=root, cloud=self, hanging=held_metadata, metadata=dict(metadata or {})
        )
        if launched_at is not None:
            instance.launched_at = launched_at
        instance.start_agent(**environment)
        return instance

    @property
    def record(self) -> FleetRecord:
        with self._lock:
            return decode(self.record_text)

    def open(self, record: FleetRecord, *, job: InstanceJob | None = None) -> None:
        """What the launcher writes, or the controller; the job stays, unless there is another one."""
        with self._lock:
            self.version, self.record_text = record.version, encode(record)
            self.job = job or self.job

    def change(self, change: Callable[[FleetRecord], FleetRecord]) -> None:
        """What the controller does to the record."""
        with self._lock:
            self.open(change(self.record).next_version())

    def detach_all(self, instance: str) -> None:
        with self._lock:
            for volume in self.volumes.values():
                if volume.instance == instance and self.sticking:
                    volume.attachment = "busy"
                elif volume.instance == instance:
                    self._release(volume)

    def complete_all(self) -> None:
        """What was in the making is done."""
        with self._lock:
            self.volume_state, self.snapshot_state = "available", "completed"
            for made in (*self.volumes.values(), *self.snapshots.values()):
                made.state = {"creating": "available", "pending": "completed"}.get(made.state, made.state)

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
            return self._ec2(dict(parse_qsl(request.body.decode(), keep_blank_values=True)))
        return self._s3(request)

    def _credentials(self, event: dict[str, Any]) -> tuple[int, str]:
        with self._lock:
            self.calls["Invoke"] += 1
            if self.throttled["Invoke"] > 0:
                self.throttled["Invoke"] -= 1
                return 429, json.dumps({"Type": "User", "message": "Rate exceeded"})
            if self.refused_credentials or "/sts/aws4_request" not in event["headers"]["authorization"]:
                return 200, json.dumps({"ok": False, "error": "not-running", "problem": "i-1 is shutting-down"})
            return 200, json.dumps({"ok": True, "credentials": CREDENTIALS_OF_THE_RUN})

    def _json(self, action: str, document: dict[str, Any]) -> tuple[int, str]:
        with self._lock:
            self.calls[action] += 1
            if self.throttled[action] > 0:
                self.throttled[action] -= 1
                return 400, json.dumps({"__type": "x#ThrottlingException"})
            if action == "GetItem":
                return 200, json.dumps(self._item(document["Key"]["pk"]["S"]))
            if action == "PutItem":
                if document["ExpressionAttributeValues"][":read"]["N"] != str(self.version):
                    return 400, json.dumps({"__type": "x#ConditionalCheckFailedException"})
                self.record_text = document["Item"]["record"]["S"]
                self.version = int(document["Item"]["version"]["N"])
            if action == "PutEvents":
                self.events += [json.loads(entry["Detail"]) for entry in document["Entries"]]
            if action == "PutLogEvents":
                self.logged += [event["message"] for event in document["logEvents"]]
            return 200, "{}"

    def _item(self, partition: str) -> dict[str, Any]:
        if partition.startswith(FLEET_JOB_PARTITION_PREFIX):
            return {} if self.job is None else {"Item": {"job": {"S": encode_job(self.job)}}}
        item = {"record": {"S": self.record_text}, "version": {"N": str(self.version)}}
        return {"Item": item} if self.record_text else {}

    def _ec2(self, parameters: dict[str, str]) -> tuple[int, str]:
        action = parameters["Action"]
        with self._lock:
            self.calls[action] += 1
            try:
                self._throttle(action)
                return 200, f"<R>{getattr(self, f'_{action}')(parameters)}</R>"
            except RefusedError as error:
                return 400, f"<R><Errors><Error><Code>{error.code}</Code><Message>no</Message></Error></Errors></R>"

    def _throttle(self, action: str) -> None:
        if self.throttled[action] > 0:
            self.throttled[action] -= 1
            raise RefusedError("RequestLimitExceeded")

    def _DescribeVolumes(self, parameters: dict[str, str]) -> str:  # noqa: N802
        filters = _filters(parameters)
        ids = filters.get("volume-id")
        items = "".join(
            f"<item><volumeId>{v.id}</volumeId><size>{v.size}</size><snapshotId>{v.snapshot}</snapshotId>"
            f"<availabilityZone>{v.zone}</availabilityZone><status>{v.state}</status>"
            + (
                f"<attachmentSet><item><instanceId>{v.instance}</instanceId><status>{v.attachment}</status></item>"
                "</attachmentSet>"
                if v.instance
                else ""
            )
            + f"{_tag_set(v.tags)}</item>"
            for v in self.volumes.values()
            if (v.id in ids if ids else _matches(v.tags, filters))
        )
        return f"<volumeSet>{items}</volumeSet>"

    def _DescribeSnapshots(self, parameters: dict[str, str]) -> str:  # noqa: N802
        filters = _filters(parameters)
        ids = filters.get("snapshot-id")
        items = "".join(
            f"<item><snapshotId>{s.id}</snapshotId><status>{s.state}</status><volumeId>{s.volume}</volumeId>"
            f"<volumeSize>{s.size}</volumeSize>{_tag_set(s.tags)}</item>"
            for s in self.snapshots.values()
            if (s.id in ids if ids else _matches(s.tags, filters))
        )
        return f"<snapshotSet>{items}</snapshotSet>"

    def _DescribeInstances(self, parameters: dict[str, str]) -> str:  # noqa: N802
        items = "".join(
            f"<item><instancesSet><item><instanceId>{i.id}</instanceId><instanceState><name>{i.state}</name>"
            "</instanceState></item></instancesSet></item>"
            for i in self.instances.values()
            if i.id in _filters(parameters)["instance-id"]
        )
        return f"<reservationSet>{items}</reservationSet>"

    def _CreateVolume(self, parameters: dict[str, str]) -> str:  # noqa: N802
        token = parameters["ClientToken"]
        if token not in self._tokens:
            id_ = self._tokens[token] = f"vol-{len(self._tokens) + 1:08x}"
            volume = _Volume(
                id=id_,
                zone=parameters["AvailabilityZone"],
                size=int(parameters["Size"]),
                tags=_tags(parameters),
                path=self.folder / id_,
                snapshot=parameters.get("SnapshotId", ""),
                state=self.volume_state,
            )
            volume.path.mkdir()
            if self.volume_bytes is not None:
                options = f"size={self.volume_bytes}"
                subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", volume.path], check=True)
            if volume.snapshot:
                shutil.copytree(self.snapshots[volume.snapshot].path, volume.path, dirs_exist_ok=True)
            self.volumes[id_] = volume
        return f"<volumeId>{self._tokens[token]}</volumeId>"

    def _CreateSnapshot(self, parameters: dict[str, str]) -> str:  # noqa: N802
        volume = self.volumes[parameters["VolumeId"]]
        id_ = f"snap-{self.calls['CreateSnapshot']:08x}"
        shutil.copytree(volume.path, self.folder / id_)
        made = _Snapshot(id_, volume.id, volume.size, _tags(parameters), self.folder / id_, self.snapshot_state)
        self.snapshots[id_] = made
        return f"<snapshotId>{id_}</snapshotId>"

    def _AttachVolume(self, parameters: dict[str, str]) -> str:  # noqa: N802
        volume, instance = self.volumes[parameters["VolumeId"]], self.instances[parameters["InstanceId"]]
        if volume.zone != instance.zone:
            raise RefusedError("InvalidVolume.ZoneMismatch")
        if volume.state != "available":
            raise RefusedError("VolumeInUse")
        volume.instance, volume.attachment, volume.state = instance.id, "attached", "in-use"
        (instance.root / "dev/disk/by-id" / link_name(volume.id)).symlink_to(volume.path)
        return ""

    def _DetachVolume(self, parameters: dict[str, str]) -> str:  # noqa: N802
        volume = self.volumes[parameters["VolumeId"]]
        if volume.instance != parameters["InstanceId"]:
            raise RefusedError("IncorrectState")
        if self.sticking and not parameters.get("Force"):
            volume.attachment = "busy"
        elif self.release_seconds and not parameters.get("Force"):
            volume.attachment = "detaching"
            threading.Timer(self.release_seconds, self.detach_all, [volume.instance]).start()
        else:
            self._release(volume)
        return ""

    def _DeleteVolume(self, parameters: dict[str, str]) -> str:  # noqa: N802
        volume = self.volumes.get(parameters["VolumeId"])
        if volume is None:
            raise RefusedError("InvalidVolume.NotFound")
        if volume.instance:
            raise RefusedError("VolumeInUse")
        self._unmount(volume)
        shutil.rmtree(volume.path)
        del self.volumes[volume.id]
        return ""

    def _DeleteSnapshot(self, parameters: dict[str, str]) -> str:  # noqa: N802
        snapshot = self.snapshots.pop(parameters["SnapshotId"], None)
        if snapshot is None:
            raise RefusedError("InvalidSnapshot.NotFound")
        shutil.rmtree(snapshot.path)
        return ""

    def _release(self, volume: _Volume) -> None:
        link = self.instances[volume.instance].root / "dev/disk/by-id" / link_name(volume.id)
        link.unlink(missing_ok=True)
        volume.instance, volume.attachment, volume.state = "", "", "available"

    def _unmount(self, volume: _Volume) -> None:
        if volume.path.is_mount():
            subprocess.run(["umount", "--lazy", volume.path], check=False)

    def _s3(self, request: _Request) -> tuple[int, str | bytes]:
        bucket, _, key = request.path[1:].partition("/")
        name = f"{bucket}/{key}"
        while any(request.method == method and part in name for method, part in tuple(self.held)):
            time.sleep(0.02)
        if any(part in name for part in self.refusing):
            return 403, "<Error><Code>AccessDenied</Code></Error>"
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


def _filters(parameters: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    number = 1
    while f"Filter.{number}.Name" in parameters:
        values = [value for name, value in parameters.items() if name.startswith(f"Filter.{number}.Value.")]
        found[parameters[f"Filter.{number}.Name"]] = values
        number += 1
    return found


def _matches(tags: Mapping[str, str], filters: Mapping[str, list[str]]) -> bool:
    return all(tags.get(name.removeprefix("tag:")) in values for name, values in filters.items())


def _tags(parameters: Mapping[str, str]) -> dict[str, str]:
    prefix = "TagSpecification.1.Tag."
    return {
        value: parameters[name.removesuffix("Key") + "Value"]
        for name, value in parameters.items()
        if name.startswith(prefix) and name.endswith(".Key")
    }


def _tag_set(tags: Mapping[str, str]) -> str:
    items = "".join(f"<item><key>{name}</key><value>{value}</value></item>" for name, value in tags.items())
    return f"<tagSet>{items}</tagSet>"


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
