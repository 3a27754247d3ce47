"""Event lines: what a stranger's job prints, read by the functions that follow every run."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spotkeep_jobs.progress.job_events import LATEST_TIME, MARKER, MOST, JobEvent, JobEventKind, read_line
from spotkeep_jobs.progress.job_log import MOST_RESUMES, LogAccount
from spotkeep_jobs.runs.ending import request_of
from tests.spotkeep_jobs.conftest import NOON, Make, World

from .bounds import INPUTS, bounded, fed_by_strangers

LAUNCH = "launch of digits-1a2b3c4d-1"
make = Make()
REQUEST = {
    "name": "digits", "command": ["python", "train.py"], "deadline": "9h", "work": "2h", "checkpoint_stale": "15m",
}  # fmt: skip

numbers = st.one_of(
    st.integers(0, 100), st.integers(), st.floats(), st.sampled_from([10**50, -(10**50), 2**53, 2**53 - 1, 1e308])
)
scalars = st.none() | st.booleans() | numbers | st.text(max_size=20)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=3,
)  # fmt: skip
known_fields = st.sampled_from(
    ["step", "total_steps", "seconds", "bytes", "reason", "metrics", "phases", "launch", "x"]
)
times = st.one_of(st.floats(0, LATEST_TIME * 1.001), st.floats(NOON.timestamp(), NOON.timestamp() + 1e5), numbers)
events = st.builds(
    lambda kind, at, launch, more: {**more, "event": kind, "time": at, **launch},
    st.sampled_from([*map(str, JobEventKind), "unheard-of"]),
    times,
    st.sampled_from([{"launch": LAUNCH}, {"launch": LAUNCH}, {"launch": LAUNCH}, {"launch": "other"}, {}]),
    st.dictionaries(known_fields, scalars | values, max_size=3),
)


def damaged(draw: st.DrawFn, line: str) -> str:
    """The line, cut, nested, repeated or with some of its characters replaced."""
    match draw(st.integers(0, 5)):
        case 0:
            return line[: draw(st.integers(0, len(line)))]
        case 1:
            at = draw(st.integers(0, len(line)))
            return line[:at] + draw(st.text(max_size=8)) + line[at:]
        case 2:
            return line.replace("{", "{" * draw(st.integers(1, 3_000)), 1)
        case 3:
            return line.replace("1", "1" * draw(st.integers(1, 6_000)), 1)
        case _:
            return line


@st.composite
def lines(draw: st.DrawFn) -> str:
    if draw(st.integers(0, 9)) == 0:
        return draw(st.text(max_size=60))
    return damaged(draw, f"{MARKER} {json.dumps(draw(events))}")


@fed_by_strangers()
@given(line=lines())
def test_a_line_is_an_event_within_bounds_or_none(line: str) -> None:
    with bounded():
        event = read_line(line, launch=LAUNCH)
    if isinstance(event, JobEvent):
        assert 0 <= event.at < LATEST_TIME
        assert event.step is None or 0 <= event.step < MOST
        assert len(json.dumps(dict(event.fields))) < 64_000


@settings(max_examples=max(50, INPUTS // 50), deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(said=st.lists(lines(), max_size=6))
def test_whatever_a_jobs_log_says_its_run_ends_and_its_bill_is_bounded(said: list[str]) -> None:
    account = LogAccount(launch=LAUNCH)
    for line in said:
        account.take(line)
    log = account.log()
    assert len(log.resumes) <= MOST_RESUMES
    world = World()
    run = world.launch(make.run(deadline_at=NOON + timedelta(hours=9), request=REQUEST), make.attempt())
    assert request_of(run) is not None, "or its deadline would steer nothing"
    world.logs.lines[run.job_name] = said
    with bounded():
        world.sagemaker.has_job(run.job_name, ("Starting", 0.0), ("Training", 1.0))
        world.runs.reconcile(run.run)
        world.clock.pass_by(minutes=40)
        world.runs.reconcile(run.run)
        world.sagemaker.has_job(
            run.job_name,
            ("Starting", 0.0), ("Training", 1.0), ("Interrupted", 9.0), ("Training", 20.0), ("Completed", 31.0),
            TrainingTimeInSeconds=1_800, BillableTimeInSeconds=600,
        )  # fmt: skip
        observed = world.runs.reconcile(run.run)
    assert observed is not None
    assert observed.run.state.ended
    cost: Any = observed.run.cost
    assert cost.billed_seconds == 600
    assert 0 <= cost.clean_on_demand_seconds <= 1_800
