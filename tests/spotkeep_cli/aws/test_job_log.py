"""The last lines of a log are those of its newest stream, and cost one call once that stream is known."""

from __future__ import annotations

from typing import Any

from spotkeep_cli.aws.connection_options import ConnectionOptions
from spotkeep_cli.aws.job_log import AttemptLog
from tests.models.logs import Logs


class CountedLogs(Logs):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def describe_log_streams(self, **query: Any) -> Any:
        self.asked.append("DescribeLogStreams")
        return super().describe_log_streams(**query)

    def get_log_events(self, **query: Any) -> Any:
        self.asked.append("GetLogEvents")
        return super().get_log_events(**query)


def test_the_last_lines_are_those_of_the_newest_stream() -> None:
    logs = CountedLogs()
    logs.streams = {
        "job-1/algo-1-1": [(1_000.0, "before")],
        "job-1/algo-1-2": [(1_000.0 * second, f"line {second}") for second in range(2, 9)],
    }
    log = AttemptLog(logs, job_names=["job-1"], options=ConnectionOptions())  # type: ignore[arg-type]
    assert [(line.stream, line.text) for line in log.last_lines(2)] == [("algo-1", "line 7"), ("algo-1", "line 8")]
    logs.streams["job-1/algo-1-2"].append((9_000.0, "line 9"))
    assert [line.text for line in log.last_lines(1)] == ["line 9"]
    assert logs.asked == ["DescribeLogStreams", "GetLogEvents", "GetLogEvents"]


def test_of_several_hosts_the_first_one_has_the_last_lines_because_its_first_rank_reports_the_steps() -> None:
    logs = CountedLogs()
    logs.streams = {
        "job-1/algo-i-0123-ec2": [(1_000.0, "node i-0456 is there")],
        "job-1/algo-1-ec2": [(2_000.0, "step 8")],
        "job-1/algo-2-ec2": [(9_000.0, "a warning")],
        "job-1/algo-10-ec2": [(9_500.0, "another one")],
    }
    log = AttemptLog(logs, job_names=["job-1"], options=ConnectionOptions())  # type: ignore[arg-type]
    assert [line.text for line in log.last_lines(2)] == ["step 8"]
    assert [line.stream for line in log.read()] == ["i-0123", "algo-1", "algo-2", "algo-10"]


def test_a_job_that_has_printed_nothing_has_no_last_line() -> None:
    log = AttemptLog(Logs(), job_names=["job-1"], options=ConnectionOptions())  # type: ignore[arg-type]
    assert log.last_lines() == []
