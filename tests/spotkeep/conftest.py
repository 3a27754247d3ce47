"""What the library's tests share: job events as they were printed, a disk with faults, a script to interrupt."""

from __future__ import annotations

import contextlib
import errno
import http.client
import http.server
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from spotkeep import events
from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.storage import LocalStorage
from spotkeep.disk.upload_markers import UploadWatch
from spotkeep.disk.writers import ATTEMPT_VARIABLE, LEASE_VARIABLE
from spotkeep.errors import RankLostError
from spotkeep.training_folder import TRAININGS_HERE, TrainingsHere
from tests.spotkeep.ranks.trainings import RankServer

if TYPE_CHECKING:
    from spotkeep_local.lifecycle import LocalAws

Event = dict[str, Any]

LOCK_VARIABLES = (ATTEMPT_VARIABLE, LEASE_VARIABLE)


class Crash(BaseException):
    """The process dies here: nothing after it runs, no cleanup either."""


class FaultyStorage(LocalStorage):
    """A disk that can crash the process before any change, run full, or take bytes in small pieces."""

    def __init__(
        self, *, crash_before: int | None = None, free_bytes: int | None = None, piece_bytes: int | None = None
    ) -> None:
        self.log: list[str] = []
        self._crash_before = crash_before
        self._free_bytes = free_bytes
        self._piece_bytes = piece_bytes

    def make_directory(self, path: Path) -> None:
        self._change("make_directory", path)
        super().make_directory(path)

    def create(self, path: Path, *, direct: bool = False) -> Any:
        self._change("create", path)
        return super().create(path, direct=direct)

    def write_some(self, descriptor: int, raw: memoryview, offset: int) -> int:
        self._change("write_some", Path())
        if self._piece_bytes is not None:
            raw = raw[: self._piece_bytes]
        if self._free_bytes is not None:
            if self._free_bytes == 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            raw = raw[: self._free_bytes]
            self._free_bytes -= len(raw)
        return super().write_some(descriptor, raw, offset)

    def sync(self, descriptor: int) -> None:
        self._change("sync", Path())
        super().sync(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        self._change("rename", target)
        super().rename(source, target)

    def sync_directory(self, path: Path) -> None:
        self._change("sync_directory", path)
        super().sync_directory(path)

    def remove_file(self, path: Path) -> None:
        self._change("remove_file", path)
        super().remove_file(path)

    def remove_tree(self, path: Path) -> None:
        if path.is_dir():
            for child in sorted(path.iterdir()):
                self._change("remove_tree", child)
                child.unlink()
        self._change("remove_tree", path)
        super().remove_tree(path)

    def _change(self, operation: str, path: Path) -> None:
        if self._crash_before is not None and len(self.log) >= self._crash_before:
            raise Crash
        self.log.append(f"{operation} {path.name}".strip())


@pytest.fixture
def crash() -> type[BaseException]:
    return Crash


@pytest.fixture
def only_so_many_threads_start(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets a number of threads start, and then no more, as a system that has no room for another."""

    def allow(there_are: int) -> None:
        really_start = threading.Thread.start
        started: list[threading.Thread] = []

        def start(thread: threading.Thread) -> None:
            if len(started) == there_are:
                raise RuntimeError("can't start new thread")
            started.append(thread)
            really_start(thread)

        monkeypatch.setattr(threading.Thread, "start", start)

    return allow


class HeldDisk:
    """Holds every write back from the moment a test asks for it until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.let_go = threading.Event()
        self.let_go.set()
        self.waited_for = threading.Event()
        really_write = LocalStorage.write_some

        def write_some(storage: LocalStorage, descriptor: int, raw: memoryview, offset: int) -> int:
            if not self.let_go.is_set():
                self.waited_for.set()
                self.let_go.wait(30)
            return really_write(storage, descriptor, raw, offset)

        monkeypatch.setattr(LocalStorage, "write_some", write_some)


@pytest.fixture
def held_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldDisk]:
    held = HeldDisk(monkeypatch)
    yield held
    held.let_go.set()


@pytest.fixture
def faulty_storage() -> type[FaultyStorage]:
    return FaultyStorage


@pytest.fixture
def checkpoints(tmp_path: Path) -> Callable[..., CheckpointDirectory]:
    def make(*, storage: LocalStorage | None = None, platform_copies: bool = False) -> CheckpointDirectory:
        return CheckpointDirectory(
            tmp_path / "checkpoints", storage=storage, uploads=UploadWatch(platform_copies=platform_copies)
        )

    return make


@pytest.fixture
def job_events(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[], list[Event]]:
    """Switch job events on (each step's progress too) and give those printed so far."""
    monkeypatch.setenv("SPOTKEEP_EVENTS", "stdout")
    monkeypatch.setenv("SPOTKEEP_PROGRESS_SECONDS", "0")
    printed: list[Event] = []

    def read() -> list[Event]:
        lines = capsys.readouterr().out.splitlines()
        printed.extend(
            json.loads(line[len(events.EVENT_PREFIX) :]) for line in lines if line.startswith(events.EVENT_PREFIX)
        )
        return printed

    return read


class FaultyNetwork:
    """A proxy between the SDK and the local AWS. `fault` sees each request and may spoil its answer.

    Attributes:
        requests: `METHOD path?query` of each request, in order.
        fault: Given such a text, gives None (pass on), a status to answer with, `cut` (take the request, then end the
            connection), `half` (end the connection in the middle of the answer), or bytes to answer instead.
    """

    def __init__(self, target: str) -> None:
        self.requests: list[str] = []
        self.fault: Callable[[str], int | str | bytes | None] = lambda request: None
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 0)
        network = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # or each answer waits 40 ms for the client to acknowledge its headers

            def log_message(self, *arguments: Any) -> None:
                pass

            def handle_one_request(self) -> None:
                with contextlib.suppress(OSError):
                    super().handle_one_request()
                    return
                self.close_connection = True

            def _pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = f"{self.command} {self.path}"
                network.requests.append(request)
                fault = network.fault(request)
                if fault == "cut":
                    self.close_connection = True
                    return
                if isinstance(fault, int):
                    code = "SlowDown" if fault == 503 else "AccessDenied" if fault == 403 else "InternalError"
                    text = f"<Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
                    self._answer(fault, [("Content-Type", "application/xml")], text)
                    return
                status, headers, answer = network._ask(self.command, self.path, dict(self.headers), body)
                if isinstance(fault, bytes):
                    answer = fault
                if fault == "half":
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer[: len(answer) // 2])
                    self.close_connection = True
                    return
                self._answer(status, headers, answer)

            def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
                self.send_response(status)
                for name, value in headers:
                    ours = ("transfer-encoding", "connection", "date", "server", "content-length")
                    if name.lower() not in ours or (name.lower() == "content-length" and self.command == "HEAD"):
                        self.send_header(name, value)
                if self.command != "HEAD":
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on  # noqa: N815 - the names are the base's

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _ask(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        headers.pop("Expect", None)
        # Clients name this network's port, and the local AWS answers requests to its own only.
        headers["Host"] = "{}:{}".format(*self._target)
        connection = http.client.HTTPConnection(*self._target, timeout=30)
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


@pytest.fixture(scope="session")
def _network(local_aws: LocalAws) -> Iterator[FaultyNetwork]:
    between = FaultyNetwork(local_aws.endpoint_url)
    yield between
    between.stop()


@pytest.fixture
def network(_network: FaultyNetwork, local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> FaultyNetwork:
    """The way to the local AWS, which every SDK client of this process and its children takes."""
    for name, value in {**local_aws.environment(), "AWS_ENDPOINT_URL": _network.url}.items():
        monkeypatch.setenv(name, value)
    # Throttling is retried with pauses; these are the SDK's business.
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.0)
    _network.fault = lambda request: None
    _network.requests = []
    return _network


@pytest.fixture(scope="session")
def _buckets(local_aws: LocalAws) -> Any:
    return local_aws.session().resource("s3")


@pytest.fixture
def bucket(_buckets: Any) -> Any:
    """A bucket of one's own (boto3's resource), reached without detours."""
    made = _buckets.Bucket(f"checkpoints-{uuid.uuid4().hex[:12]}")
    made.create()
    return made


class MetadataService:
    """EC2's instance metadata service on loopback, and every way in which it may go wrong.

    Attributes:
        url: Where it is.
        requests: `METHOD path` of each request.
        tokens: Those it accepts.
        token: What it answers who asks for a token; None for a token.
        action: What it answers about `spot/instance-action`; None for 404.
        rebalance: The same about the rebalance recommendation.
        date: Its clock, as HTTP writes it; None for the right time.

    An answer is a status, a body, `cut`, `hang` (until the service stops) or `garbage`.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.tokens: set[str] = set()
        self.token: int | bytes | str | None = None
        self.action: int | bytes | str | None = None
        self.rebalance: int | bytes | str | None = None
        self.date: str | None = None
        self._ended = threading.Event()
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *arguments: Any) -> None:
                pass

            def date_time_string(self, timestamp: float | None = None) -> str:
                return service.date or super().date_time_string(timestamp)

            def do_PUT(self) -> None:
                service.requests.append(f"PUT {self.path}")
                lifetime = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
                if service.token is not None:
                    self._answer(service.token)
                elif self.path != "/latest/api/token" or not 1 <= int(lifetime or 0) <= 21_600:
                    self._answer(400)
                else:
                    service.tokens.add(f"token-{len(service.requests)}==")
                    self._answer(f"token-{len(service.requests)}==".encode())

            def do_GET(self) -> None:
                service.requests.append(f"GET {self.path}")
                if self.headers.get("X-aws-ec2-metadata-token") not in service.tokens:
                    self._answer(401)
                elif self.path == "/latest/meta-data/spot/instance-action":
                    self._answer(404 if service.action is None else service.action)
                elif self.path == "/latest/meta-data/events/recommendations/rebalance":
                    self._answer(404 if service.rebalance is None else service.rebalance)
                else:
                    self._answer(404)

            def _answer(self, answer: int | bytes | str) -> None:
                if answer == "hang":
                    service._ended.wait()
                elif answer == "garbage":
                    self.wfile.write(b"\x00\xff" * 50)
                elif answer != "cut":
                    body = answer if isinstance(answer, bytes) else b"<html>" if isinstance(answer, int) else b""
                    with contextlib.suppress(OSError):
                        self.send_response(answer if isinstance(answer, int) else 200)
                        self.send_header("Content-Length", str(len(body)))
                        self.end_headers()
                        self.wfile.write(body)

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture(scope="module")
def rank_server() -> Iterator[RankServer]:
    server = RankServer()
    yield server
    server.close()


@pytest.fixture
def metadata_service() -> Iterator[MetadataService]:
    service = MetadataService()
    yield service
    service.stop()


@pytest.fixture(autouse=True)
def _no_job_around_us(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRAINING_JOB_NAME", "SPOTKEEP_NOTICE_FILE", "SPOTKEEP_NOTICE_SECONDS", "SPOTKEEP_CHECKPOINT_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("SPOTKEEP_CHECKPOINT_URI", "SPOTKEEP_UPLOAD_MB_PER_SECOND", "SPOTKEEP_REBALANCE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("SPOTKEEP_EVENTS", "SAGEMAKER_BASE_DIR", "SM_USER_ARGS", "SM_MODEL_DIR", *LOCK_VARIABLES):
        monkeypatch.delenv(name, raising=False)


class Killed(BaseException):
    """This rank is gone."""


class ThreadRanks:
    """A rank that is a thread of this process; see `spotkeep.ranks.distributed.Ranks`."""

    def __init__(self, world: World, rank: int) -> None:
        self.world = world
        self.world_size = world.size
        self.rank = rank

    def exchange(self, message: Any) -> list[Any]:
        self.world.messages[self.rank] = message
        try:
            self.world.barrier.wait(300)
            messages = list(self.world.messages)
            self.world.barrier.wait(300)
        except threading.BrokenBarrierError:
            raise RankLostError("gone") from None
        return messages

    def largest(self, numbers: list[int]) -> list[int]:
        return [max(column) for column in zip(*self.exchange(list(numbers)), strict=True)]


class World:
    """Ranks that meet in one process, in any order, and may die at any point by raising `World.Killed`."""

    Killed = Killed

    def __init__(self, size: int) -> None:
        self.size = size
        self.messages: list[Any] = [None] * size
        self.barrier = threading.Barrier(size)

    def run(self, act: Callable[[ThreadRanks], Any]) -> list[Any]:
        """Let every rank do something at the same time; gives what it gave, or raised, on each."""

        def one(rank: int) -> Any:
            try:
                return act(ThreadRanks(self, rank))
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                if isinstance(error, Killed):
                    self.barrier.abort()
                return error

        with ThreadPoolExecutor(self.size) as threads:
            return list(threads.map(one, range(self.size)))


@pytest.fixture
def world() -> type[World]:
    return World


@pytest.fixture
def new_process() -> Callable[[], None]:
    """Call it where another process would begin: what this one has trained is forgotten."""
    return TRAININGS_HERE.forget


@pytest.fixture(autouse=True)
def _each_training_has_a_process_of_its_own(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests start a training again where another process would, but for those that say when one begins."""
    TRAININGS_HERE.forget()
    if "new_process" not in request.fixturenames:
        monkeypatch.setattr(TrainingsHere, "enter", lambda *_: [])
