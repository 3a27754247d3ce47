"""Requests share connections, are sent again only where that is safe, and can be broken off; answers are bounded."""

from __future__ import annotations

import gc
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from spotkeep.errors import RemoteError
from spotkeep_agent.aws.calls import AwsCalls
from spotkeep_agent.aws.connections import Connections
from spotkeep_agent.aws.object_store import objects_of
from spotkeep_agent.errors import AwsUnavailableError
from tests.forking import environment_of_script

SECONDS = 10.0


class Server(ThreadingHTTPServer):
    """Keeps connections open, unless a test asks it to hang up after an answer without announcing it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.opened = 0
        self.asked: list[str] = []
        self.hangs_up = False
        self.body = b"answer"
        self.chunked = False

    def get_request(self) -> tuple[Any, Any]:
        self.opened += 1
        return super().get_request()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each answer waits 40 ms for the client to acknowledge its headers

    def _answer(self) -> None:
        server: Any = self.server
        self.rfile.read(int(self.headers.get("content-length") or 0))
        server.asked.append(self.command)
        self.send_response(200)
        if server.chunked:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(server.body), server.body))
        else:
            self.send_header("Content-Length", str(len(server.body)))
            self.end_headers()
            self.wfile.write(server.body)
        self.close_connection = server.hangs_up

    do_GET = do_POST = _answer  # noqa: N815

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def ask(
    connections: Connections, url: str, *, method: str = "GET", most_bytes: int = 1000, repeatable: bool = True
) -> bytes:
    status, _, content = connections(
        method,
        f"{url}/a?b=c",
        headers={},
        body=b"",
        timeout_s=SECONDS,
        most_bytes=most_bytes,
        repeatable=repeatable,
    )
    assert status == 200
    return content


@pytest.mark.parametrize("chunked", [False, True])
def test_fifty_requests_of_a_thread_take_one_connection(server: Server, chunked: bool) -> None:
    server.chunked = chunked
    connections = Connections()
    for _ in range(50):
        assert ask(connections, server.url) == b"answer"
    assert (server.opened, len(server.asked)) == (1, 50)


def test_threads_take_a_connection_each_and_no_more(server: Server) -> None:
    connections = Connections()
    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(lambda _: ask(connections, server.url), range(200))) == {b"answer"}
    assert server.opened <= 4


def test_what_may_not_be_sent_twice_gets_a_connection_of_its_own(server: Server) -> None:
    connections = Connections()
    ask(connections, server.url)
    ask(connections, server.url, method="POST", repeatable=False)
    assert server.opened == 2


def test_a_connection_that_the_server_has_closed_costs_no_attempt(server: Server) -> None:
    server.hangs_up = True
    connections = Connections()
    for _ in range(3):
        assert ask(connections, server.url) == b"answer"
    assert (server.opened, len(server.asked)) == (3, 3)


def test_a_connection_that_ends_with_the_request_under_way_is_replaced_once(server: Server) -> None:
    """The server closes what was idle at the moment the request is sent."""
    connections = Connections()
    ask(connections, server.url)
    (kept,) = next(iter(connections._idle.values()))
    socket.socket.shutdown(kept.connection.sock, socket.SHUT_WR)
    assert ask(connections, server.url) == b"answer"
    assert (server.opened, len(server.asked)) == (2, 2)


def test_a_connection_that_was_idle_for_long_is_not_trusted(server: Server) -> None:
    now = [0.0]
    connections = Connections(clock=lambda: now[0])
    ask(connections, server.url)
    now[0] = 61.0
    ask(connections, server.url)
    assert server.opened == 2


@pytest.mark.parametrize("chunked", [False, True])
def test_an_answer_larger_than_expected_is_not_taken_into_memory(server: Server, chunked: bool) -> None:
    server.body, server.chunked = b"x" * 1_000_000, chunked
    connections = Connections()
    with pytest.raises(AwsUnavailableError, match=r"GET 127.* answered at least .* where at most 1,000 are expected"):
        ask(connections, server.url)
    server.body = b"answer"
    assert ask(connections, server.url) == b"answer"
    assert server.opened == 2, "what is left of the large answer is in no later one"


@pytest.fixture
def silent() -> Iterator[tuple[str, threading.Event]]:
    """A server that takes a request and never answers; its address, and an event that is set once it was asked."""
    asked = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        taken: list[socket.socket] = []

        def take() -> None:
            connection, _ = listening.accept()
            taken.append(connection)
            connection.recv(1)
            asked.set()

        threading.Thread(target=take, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", asked
        for connection in taken:
            connection.close()


def test_what_waits_for_an_answer_fails_when_it_is_broken_off(silent: tuple[str, threading.Event]) -> None:
    url, asked = silent
    connections = Connections()
    calls = AwsCalls(
        region="us-east-1",
        environment={"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "S"},
        transport=connections,
        sleep=lambda seconds: None,
    )
    problems: list[Exception] = []

    def fetch() -> None:
        try:
            calls.s3("GetObject", method="GET", bucket="bucket", key="data")
        except AwsUnavailableError as error:
            problems.append(error)

    fetching = threading.Thread(target=fetch, daemon=True)
    fetching.start()
    assert asked.wait(SECONDS)
    connections.break_off()
    fetching.join(SECONDS)
    assert ["broken off" in str(problem) for problem in problems] == [True]
    assert calls.counted == {"s3:GetObject": 2}, "it is not sent again"


def test_what_comes_afterwards_fails_without_asking_anybody() -> None:
    connections = Connections()
    connections.break_off()
    with pytest.raises(AwsUnavailableError, match="broken off"):
        ask(connections, "http://127.0.0.1:9/")


@pytest.mark.parametrize("body", [b"<html>a proxy", b"[1]", b"[" * 100_000])
def test_an_answer_that_is_no_answer_of_aws_is_an_error_that_says_so(server: Server, body: bytes) -> None:
    server.body = body
    calls = AwsCalls(
        region="us-east-1",
        environment={"AWS_ENDPOINT_URL": server.url, "AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "S"},
    )
    with pytest.raises(AwsUnavailableError, match=r"DynamoDB_20120810.GetItem answered no JSON"):
        calls.json("dynamodb", "DynamoDB_20120810.GetItem", {}, version="1.0")
    with pytest.raises(AwsUnavailableError, match="ec2:DescribeVolumes answered no XML"):
        calls.query("ec2", "DescribeVolumes", {}, version="2016-11-15")
    with pytest.raises(RemoteError, match="cannot be listed: S3 answered no XML"):
        list(objects_of(calls, "bucket").listing("prefix"))


def test_connections_that_end_in_a_circle_of_garbage_are_closed(server: Server) -> None:
    """A socket that is collected open is a warning, which is an error here."""

    class Owner:
        connections = None
        itself = None

    owner: Any = Owner()
    owner.connections, owner.itself = Connections(), owner
    ask(owner.connections, server.url)
    (kept,) = next(iter(owner.connections._idle.values()))
    opened = kept.connection.sock
    del owner, kept
    gc.collect()
    assert opened.fileno() == -1


_ASK_AND_END = """\
import http.client, sys
from spotkeep_agent.aws.connections import Connections

connections = Connections()
connections("GET", sys.argv[1], headers={}, body=b"", timeout_s=10, most_bytes=10, repeatable=True)
http.client.HTTPConnection.close = lambda self: print("closed")
"""


def test_a_process_ends_without_closing_what_its_threads_may_still_use(server: Server) -> None:
    """An agent's thread that asks for notices until the process ends once failed there, with a traceback in the log."""
    ended = subprocess.run(
        [sys.executable, "-c", _ASK_AND_END, server.url],
        env=environment_of_script(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert server.asked == ["GET"]
