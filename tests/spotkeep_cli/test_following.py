"""Following gives everything once, in order, and only what belongs to the attempt that is followed."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from spotkeep_cli.aws.job_log import LogLine
from spotkeep_cli.errors import NoConnectionError, RunNotFoundError
from spotkeep_cli.following import LOST_CONNECTION_TRIES, FollowView, Reported, SparseProgress, Unreachable, follow
from spotkeep_cli.rendering.job_event import event_text
from spotkeep_jobs.progress.job_events import JobEvent, JobEventKind
from spotkeep_jobs.record.record import Run, TimelineEntry
from spotkeep_jobs.record.states import RunState

RUN = "digits-1a2b3c4d"


def followed(deployment: Any, **options: Any) -> list[Any]:
    return list(follow(deployment, RUN, pause=lambda: None, **options))


def test_lines_and_events_are_distinguished(deployment: Any, make: Any) -> None:
    event = "spotkeep-event: " + json.dumps({"event": "resume", "time": 1.0, "step": 3})
    deployment.dynamodb.add(make.completed())
    deployment.logs.later[f"{RUN}-1"] = [["plain", event, "spotkeep-event: {broken"]]
    kinds = [type(update) for update in followed(deployment)]
    assert kinds == [LogLine, Reported, LogLine, Run]


@pytest.mark.parametrize(("hosts", "begins"), [(1, ""), (2, "algo-1 ")])
def test_with_several_hosts_each_line_and_event_says_which_wrote_it(
    deployment: Any, make: Any, hosts: int, begins: str
) -> None:
    """Also the lines of the first poll, which are the whole log where a run was followed late."""
    deployment.dynamodb.add(make.completed(instance_count=hosts))
    resumed = {"event": "resume", "time": 1.0, "step": 3}
    deployment.logs.later[f"{RUN}-1"] = [["loss 0.1", f"spotkeep-event: {json.dumps(resumed)}"]]
    console = Console(file=StringIO(), width=80)
    with FollowView(console, now=lambda: make.now) as view:
        for update in follow(deployment, RUN, pause=lambda: None):
            view.show(update)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    said = event_text(JobEvent(kind=JobEventKind.RESUME, at=1.0, step=3, fields={}))
    assert printed.splitlines()[:2] == [f"           {begins}loss 0.1", f"           {begins}{said}"]


def test_it_ends_with_the_run_as_it_ended(deployment: Any, make: Any) -> None:
    deployment.dynamodb.add(make.run(version=1), make.run(version=1), make.completed(version=2))
    states = [update.state for update in followed(deployment) if isinstance(update, Run)]
    assert states == [RunState.TRAINING, RunState.COMPLETED]


def test_the_timeline_comes_once_however_often_it_is_read(deployment: Any, make: Any) -> None:
    versions = [make.run(version=number) for number in range(1, 6)]
    deployment.dynamodb.add(*versions, make.completed(version=6), timeline=make.timeline())
    entries = [update for update in followed(deployment) if isinstance(update, TimelineEntry)]
    assert entries == make.timeline()


def test_what_earlier_attempts_did_is_left_out(deployment: Any, make: Any) -> None:
    timeline = make.timeline()
    second = [entry.model_copy(update={"attempt": 2}) for entry in timeline]
    deployment.dynamodb.add(make.completed(attempt=2), timeline=[*timeline, *second])
    entries = [update for update in followed(deployment, from_attempt=2) if isinstance(update, TimelineEntry)]
    assert entries == second


def measured(step: int, *names: str, kind: str = "metrics") -> JobEvent:
    """What a job says of metrics, four times a second."""
    fields = {"metrics": dict.fromkeys(names, 1.0)}
    return JobEvent(kind=JobEventKind(kind), at=100.0 + step / 4, step=step, fields=fields)


def test_of_the_values_that_a_job_reports_at_once_one_in_ten_seconds_has_a_line() -> None:
    sparse = SparseProgress()
    reported = [measured(step, "loss") for step in range(100)]
    assert [event.step for event in reported if sparse.worth_a_line(event)] == [0, 40, 80]


def test_a_metric_that_no_line_has_shown_has_one_and_one_of_a_line_just_before_has_none() -> None:
    sparse = SparseProgress()
    assert sparse.worth_a_line(measured(1, "loss", kind="progress"))
    assert not sparse.worth_a_line(measured(2, "loss"))
    assert sparse.worth_a_line(measured(3, "loss", "validation_loss"))
    assert not sparse.worth_a_line(measured(4, "validation_loss"))


def test_a_record_that_is_gone_is_said(deployment: Any) -> None:
    with pytest.raises(RunNotFoundError):
        followed(deployment)


@given(failures=st.integers(min_value=0, max_value=2 * LOST_CONNECTION_TRIES))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_it_waits_out_a_lost_connection_but_not_for_ever(deployment: Any, make: Any, failures: int) -> None:
    deployment.dynamodb.add(make.completed())
    deployment.dynamodb.lost_connections = failures
    if failures >= LOST_CONNECTION_TRIES:
        with pytest.raises(NoConnectionError):
            followed(deployment)
        return
    updates = followed(deployment)
    assert sum(isinstance(update, Unreachable) for update in updates) == failures
    assert isinstance(updates[-1], Run)
