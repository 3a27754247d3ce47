"""Objects become files in parts: side by side, whole or not at all, and never in memory whole."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from spotkeep.errors import RemoteError
from spotkeep.remote.transfer import TransferCancelledError
from spotkeep_agent.as_user.files import UserFiles
from spotkeep_agent.aws.calls import AwsCalls
from spotkeep_agent.aws.object_files import PART_BYTES, WantedFile, draft_path, fetch_files, send_file
from spotkeep_agent.aws.object_store import objects_of

SOURCES = Path(__file__).parents[3] / "training"
LARGE = 256 * 2**20
BLOCK = bytes(range(256)) * 256


class Server(ThreadingHTTPServer):
    """One large object at every address, and what is put there; counts connections."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.opened = 0
        self.requests: list[str] = []
        self.together = 0
        self.most_together = 0
        self.lock = threading.Lock()
        self.cut_after = LARGE

    def get_request(self) -> tuple[Any, Any]:
        self.opened += 1
        return super().get_request()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each answer waits 40 ms for the client to acknowledge its headers

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(LARGE))
        self.end_headers()

    def do_GET(self) -> None:
        server: Any = self.server
        first, last = map(int, re.findall(r"\d+", self.headers["range"]))
        size = min(last + 1, server.cut_after) - first
        with server.lock:
            server.requests.append(self.headers["range"])
            server.together += 1
            server.most_together = max(server.most_together, server.together)
        self.send_response(206)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        for start in range(0, size, len(BLOCK)):
            self.wfile.write(BLOCK[: size - start])
        with server.lock:
            server.together -= 1

    def do_PUT(self) -> None:
        server: Any = self.server
        server.requests.append(self.path)
        self.rfile.read(int(self.headers["content-length"]))
        self._empty(200)

    def do_POST(self) -> None:
        server: Any = self.server
        server.requests.append(self.path)
        self.rfile.read(int(self.headers["content-length"]))
        self._empty(200, b"<R><UploadId>u</UploadId></R>")

    def do_DELETE(self) -> None:
        server: Any = self.server
        server.requests.append(f"DELETE {self.path}")
        self._empty(204)

    def _empty(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"e"')
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def environment(server: Server) -> dict[str, str]:
    return {"AWS_ENDPOINT_URL": server.url, "AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "S"}


def wanted(server: Server, path: Path, size: int, **changes: Any) -> WantedFile:
    calls = AwsCalls(region="us-east-1", environment=environment(server), sleep=lambda seconds: None)
    return WantedFile(objects_of(calls, "bucket"), path.name, size, UserFiles(path.parent), path.name, **changes)


@pytest.mark.long
def test_a_source_of_256_mib_takes_less_than_half_of_that(server: Server, tmp_path: Path) -> None:
    script = """
import sys, threading
from pathlib import Path
from spotkeep_agent.as_user.files import UserFiles
from spotkeep_agent.aws.calls import AwsCalls
from spotkeep_agent.training.supplies import Supplies
from spotkeep_fleet.instance_job import InstanceJob, VolumeSpec
from spotkeep_fleet.training_spec import JobSource, TrainingSpec

environment = {"AWS_ENDPOINT_URL": sys.argv[1], "AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "S"}
base, calls = Path(sys.argv[2]), AwsCalls(region="us-east-1", environment=environment)
supplies = Supplies(calls, files=UserFiles(base), kept=base, cancelled=threading.Event())
training = TrainingSpec(("x",), source=JobSource("s3://bucket/source.tar.gz", sys.argv[3]))
supplies.bring(InstanceJob(training, VolumeSpec(size_gb=8)))
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
    sha256 = hashlib.sha256()
    for _ in range(LARGE // len(BLOCK)):
        sha256.update(BLOCK)
    done = subprocess.run(
        [sys.executable, "-c", script, server.url, str(tmp_path), sha256.hexdigest()],
        env={"PYTHONPATH": str(SOURCES), "PATH": os.defpath},
        check=True,
        capture_output=True,
        text=True,
    )
    assert int(done.stdout) < LARGE // 1024 // 2, f"{int(done.stdout):,} KiB"
    brought = tmp_path / "input/data/source/source.tar.gz"
    assert brought.stat().st_size == LARGE
    with brought.open("rb") as file:
        for place in (0, LARGE // 2, LARGE - len(BLOCK)):
            file.seek(place)
            assert file.read(len(BLOCK)) == BLOCK
    assert server.opened <= 9, f"{server.opened} connections for {len(server.requests)} requests"


def test_the_files_of_all_channels_are_fetched_side_by_side(server: Server, tmp_path: Path) -> None:
    for channel in "ab":
        (tmp_path / channel).mkdir()
    files = [wanted(server, tmp_path / f"{channel}/{n}", 2**20) for channel in "ab" for n in range(20)]
    fetch_files(iter(files), cancelled=threading.Event())
    assert {(file.files.base / file.path).read_bytes() for file in files} == {BLOCK * 16}
    assert server.most_together > 1


def test_an_empty_object_is_an_empty_file_of_its_time(server: Server, tmp_path: Path) -> None:
    fetch_files([wanted(server, tmp_path / "empty", 0, modified_ns=10**18)], cancelled=threading.Event())
    assert (tmp_path / "empty").stat().st_mtime_ns == 10**18
    assert not server.requests


def test_an_object_that_became_smaller_is_no_file(server: Server, tmp_path: Path) -> None:
    server.cut_after = PART_BYTES + 10
    with pytest.raises(RemoteError, match="now, not 9,000,000"):
        fetch_files([wanted(server, tmp_path / "data", 9_000_000)], cancelled=threading.Event())
    assert [path.name for path in tmp_path.iterdir()] == [draft_path("data")]


def test_what_is_cancelled_begins_nothing(server: Server, tmp_path: Path) -> None:
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(TransferCancelledError):
        fetch_files([wanted(server, tmp_path / "data", 10)], cancelled=cancelled)
    assert not server.requests


def test_a_file_that_is_found_unwhole_at_the_end_is_not_sent(server: Server, tmp_path: Path) -> None:
    def refuse() -> None:
        raise OSError("it has changed")

    path = tmp_path / "file"
    path.write_bytes(b"x" * (PART_BYTES + 1))
    objects = wanted(server, path, 0).objects
    with path.open("rb") as file, pytest.raises(OSError, match="it has changed"):
        send_file(objects, "k", file.fileno(), labels={}, cancelled=threading.Event(), require_whole=refuse)
    assert [request for request in server.requests if "partNumber" not in request] == [
        "/bucket/k?uploads=",
        "DELETE /bucket/k?uploadId=u",
    ]
