"""The log adapter: bounded, and an unreadable log is an incomplete one, never an error."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from spotkeep_jobs.progress import training_logs
from spotkeep_jobs.progress.job_log import Extent
from spotkeep_jobs.progress.training_logs import LOG_GROUP, JobLogs
from tests.models.logs import Logs


def logs_of(streams: dict[str, list[str]]) -> Logs:
    """A log group whose answers hold two items each."""
    logs = Logs(page=2)
    logs.streams = {name: [(0.0, line) for line in lines] for name, lines in streams.items()}
    return logs


def read(client: Any, job_name: str = "digits-1", **asked: Any) -> tuple[list[str], Extent]:
    messages: list[str] = []
    return messages, JobLogs(client, **asked).read([job_name], messages.append, launch="feed")


def test_all_pages_of_all_starts_of_the_first_host_are_read(make: Any) -> None:
    client = logs_of({
        "digits-1/algo-1-100": [make.line("progress", minute, step=minute, launch="feed") for minute in range(5)],
        "digits-1/algo-1-200": [make.line("finish", 9, step=9, launch="feed")],
        "digits-1/algo-1-300": ["noise"],
        "digits-1/algo-2-100": [make.line("progress", 1, step=999, launch="feed")],
        "digits-10/algo-1-100": [make.line("progress", 1, step=999, launch="feed")],
    })  # fmt: skip
    messages, extent = read(client)
    assert messages == [line for number in (1, 2) for _, line in client.streams[f"digits-1/algo-1-{number}00"]]
    assert extent is Extent.WHOLE
    assert client.queries[0]["filterPattern"] == '"feed"', "others' lines are left out before they are sent"


def test_what_is_known_already_is_not_asked_for_again(make: Any) -> None:
    client = logs_of({"digits-1/algo-1-100": [make.line("progress", 1, step=1)]})
    reads = JobLogs(client)  # type: ignore[arg-type]
    reads.read(["digits-1"], print, launch="feed")
    reads.read(["digits-1"], print, launch="feed", since=1_000.5)
    first, second = client.queries
    assert "startTime" not in first
    assert second["startTime"] == 940_500, "clocks may differ by a minute"


def test_a_log_beyond_the_bound_is_read_in_part_and_says_so(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_logs, "_MAX_PAGES", 3)
    client = logs_of({"digits-1/algo-1-100": [make.line("progress", minute, step=minute) for minute in range(50)]})
    messages, extent = read(client)
    assert len(messages) == 6
    assert extent is Extent.CUT


def test_pages_without_a_line_have_a_bound_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """CloudWatch Logs answers with empty ones while it searches what another job has written into a stream."""
    client = logs_of({"digits-1/algo-1-100": []})
    monkeypatch.setattr(client, "filter_log_events", lambda **query: client.queries.append(query) or endless())

    def endless() -> dict[str, Any]:
        return {"events": [], "nextToken": str(len(client.queries))}

    assert read(client) == ([], Extent.CUT)
    assert len(client.queries) == 600


def test_a_log_that_takes_too_long_is_read_in_part(make: Any) -> None:
    client = logs_of({"digits-1/algo-1-100": [make.line("progress", minute, step=minute) for minute in range(50)]})
    seconds = iter(range(0, 1_000, 8))
    messages, extent = read(client, elapsed=lambda: float(next(seconds)))
    assert len(messages) == 4
    assert extent is Extent.CUT


@pytest.mark.parametrize("operation", ["describe_log_streams", "filter_log_events"])
def test_a_fault_on_any_call_leaves_an_incomplete_log(
    make: Any, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    client = logs_of({"digits-1/algo-1-100": [make.line("start", 1)]})
    for fault in (make.error(operation, "ThrottlingException"), ReadTimeoutError(endpoint_url="https://logs")):

        def fail(fault: Exception = fault, **query: Any) -> None:
            raise fault

        monkeypatch.setattr(client, operation, fail)
        assert read(client) == ([], Extent.UNREAD)


def test_a_job_that_never_trained_has_an_empty_log_and_that_is_all_of_it(make: Any) -> None:
    assert read(logs_of({})) == ([], Extent.WHOLE)


def test_it_reads_what_the_local_aws_keeps(local_aws: Any, make: Any) -> None:
    client = local_aws.session().client("logs")
    with suppress(client.exceptions.ResourceAlreadyExistsException):
        client.create_log_group(logGroupName=LOG_GROUP)
    assert read(client, "logs-7") == ([], Extent.WHOLE)
    for stream, step in (("logs-7/algo-1-1", 3), ("logs-7/algo-1-2", 5), ("logs-77/algo-1-1", 99)):
        client.create_log_stream(logGroupName=LOG_GROUP, logStreamName=stream)
        at = int(make.noon.timestamp() * 1000) + step
        messages = ["Epoch 1", make.line("progress", step, step=step, launch="feed"), make.line("progress", 1, step=1)]
        client.put_log_events(
            logGroupName=LOG_GROUP,
            logStreamName=stream,
            logEvents=[{"timestamp": at, "message": message} for message in messages],
        )
    messages, extent = read(client, "logs-7")
    assert messages == [make.line("progress", step, step=step, launch="feed") for step in (3, 5)]
    assert extent is Extent.WHOLE
