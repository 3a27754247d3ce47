"""A run that the account's quota has no room for waits, and has its job when another one ends: deployed, for real."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.states import RunState, TimelineKind

from .conftest import DeployedApp

pytestmark = pytest.mark.long


@pytest.fixture
def room_for_one(deployed_app: DeployedApp) -> Iterator[None]:
    deployed_app.control.training_quota(1)
    yield
    deployed_app.control.training_quota(20)


def launched(app: DeployedApp, command: str) -> Run:
    document = app.counting(command, capacity="on-demand", instance_type="ml.m5.4xlarge", max_wait=None)
    answer = app.invoke("launcher", document)
    assert answer["ok"], answer
    return app.run(str(document["run"]))


@pytest.mark.usefixtures("room_for_one")
def test_the_end_of_one_job_is_the_beginning_of_the_next(deployed_app: DeployedApp) -> None:
    first = launched(deployed_app, "20 --pause 0.1")
    second = launched(deployed_app, "2")
    assert (second.state, second.job_id) == (RunState.WAITING, None)
    assert second.quota_wait is not None
    assert "'ml.m5.4xlarge for training job usage' is 1 Instances" in second.quota_wait.reason
    ended = [deployed_app.wait_until_ended(run.run) for run in (first, second)]
    assert [run.state for run in ended] == [RunState.COMPLETED, RunState.COMPLETED]
    kinds = [entry.kind for entry in deployed_app.table.runs.timeline(second.run)]
    assert kinds.index(TimelineKind.QUOTA_WAIT) < kinds.index(TimelineKind.JOB_CREATED)
    before, after = ended[0].ended_at, ended[1].started_at
    assert before is not None
    assert after is not None
    assert before <= after
