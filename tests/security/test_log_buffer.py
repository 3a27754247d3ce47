"""A script prints more than CloudWatch takes, so that the agent's lines fill the instance's memory.

Who: a training script on an instance.
With what: lines as long as the agent reads them, while CloudWatch Logs is away, throttles or has lost the group.
What they would gain: the kernel ends the agent or the training of an instance that bills on; 50,000 such lines are
10 GB.
"""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_agent.aws import log_stream
from spotkeep_agent.aws.log_stream import LogStream
from spotkeep_agent.errors import AgentError

MOST_BYTES = 2**20


class CloudWatch:
    """CloudWatch Logs, as far as the agent calls it: away at first.

    Attributes:
        away: Whether calls fail.
        messages: What was put.
    """

    def __init__(self) -> None:
        self.away = True
        self.messages: list[str] = []

    def json(self, _service: str, _target: str, request: dict[str, Any], *, version: str) -> dict[str, Any]:
        assert version == "1.1"
        if self.away:
            raise AgentError("CloudWatch Logs is away")
        self.messages += [event["message"] for event in request["logEvents"]]
        return {}


@pytest.fixture(autouse=True, scope="module")
def a_small_bound() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_stream, "_MAX_BYTES", MOST_BYTES)
        yield


def stream_to(cloudwatch: CloudWatch) -> LogStream:
    return LogStream(cloudwatch, group="group", stream="stream", seconds=3600)  # type: ignore[arg-type]


@pytest.mark.parametrize("character", ["x", "\xe9", "\U0001f600", "\udfff"])
def test_lines_that_wait_have_a_bound_in_bytes_of_memory(character: str) -> None:
    stream, line = stream_to(CloudWatch()), character * 200_000
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(40):
            stream.add(line)
            stream.flush()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept - before < 2 * MOST_BYTES


@given(lengths=st.lists(st.integers(1, 300_000), max_size=12), flushes=st.sets(st.integers(0, 12)))
def test_what_is_sent_later_is_the_first_lines_in_order_and_how_many_are_left_out(
    lengths: list[int], flushes: set[int]
) -> None:
    cloudwatch = CloudWatch()
    stream = stream_to(cloudwatch)
    for number, length in enumerate(lengths):
        stream.add(f"{number:02}" * length)
        if number in flushes:
            stream.flush()
    cloudwatch.away = False
    stream.close()
    lines = [message for message in cloudwatch.messages if not message.startswith("spotkeep: ")]
    notes = [message for message in cloudwatch.messages if message.startswith("spotkeep: ")]
    numbers = [int(line[:2]) for line in lines]
    assert numbers == sorted(set(numbers))
    assert sum(int(note.split()[1]) for note in notes) == len(lengths) - len(lines)
    assert len(lines) == len(lengths) or sum(map(len, lines)) > MOST_BYTES // 2
