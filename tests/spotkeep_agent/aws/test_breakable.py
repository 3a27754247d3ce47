"""Calls that a notice breaks off: nobody waits for the network while two minutes run."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from spotkeep_agent.aws.breakable import BreakableTransport
from spotkeep_agent.aws.calls import AwsCalls
from spotkeep_agent.errors import AwsUnavailableError

SECONDS = 10.0


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
    transport = BreakableTransport()
    calls = AwsCalls(
        region="us-east-1",
        environment={"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "S"},
        transport=transport,
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
    transport.break_off()
    fetching.join(SECONDS)
    assert ["broken off" in str(problem) for problem in problems] == [True]
    assert calls.counted == {"s3:GetObject": 2}, "it is not sent again"


def test_what_comes_afterwards_fails_without_asking_anybody() -> None:
    transport = BreakableTransport()
    transport.break_off()
    with pytest.raises(AwsUnavailableError, match="broken off"):
        transport("GET", "http://127.0.0.1:9/", headers={}, body=b"", timeout_s=time.monotonic())
