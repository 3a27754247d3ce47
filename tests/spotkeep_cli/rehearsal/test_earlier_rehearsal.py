"""A rehearsal removes what the one before left, so that the state that every start restores does not grow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spotkeep_cli.rehearsal.earlier_rehearsal import replace_earlier
from spotkeep_jobs.progress.training_logs import LOG_GROUP
from spotkeep_jobs.record.states import RunState, SweepState
from spotkeep_local.lifecycle import LocalAws

BUCKET = "checkpoints-of-rehearsals"


class Table:
    """The run table: the runs of this test, each with one attempt."""

    def __init__(self, **states: RunState) -> None:
        self.states = states
        self.sweep_state = SweepState.COMPLETED

    def get(self, run: str) -> Any:
        state = self.states.get(run)
        return state and SimpleNamespace(run=run, state=state, output_prefix=f"s3://{BUCKET}/runs/{run}/output")

    def sweep_and_trials(self, sweep: str) -> Any:
        runs = [run for run in self.states if run.startswith(f"{sweep}-")]
        item = SimpleNamespace(sweep=sweep, state=self.sweep_state)
        return (item, [SimpleNamespace(run=run) for run in runs]) if runs else (None, [])

    def attempts(self, run: str) -> Any:
        return [SimpleNamespace(job_name=f"{run}-1")]


@pytest.fixture
def bucket(local_aws: LocalAws) -> Any:
    bucket = local_aws.session().resource("s3").Bucket(BUCKET)
    bucket.create()
    bucket.Versioning().enable()
    return bucket


def leave(local: LocalAws, bucket: Any, run: str) -> None:
    for _ in range(2):
        bucket.put_object(Key=f"runs/{run}/checkpoints/step-1/manifest.json", Body=b"{}")
    bucket.Object(f"runs/{run}/checkpoints/step-1/manifest.json").delete()
    bucket.put_object(Key=f"runs/{run}/output/model.tar.gz", Body=b"model")
    logs = local.session().client("logs")
    if not logs.describe_log_groups(logGroupNamePrefix=LOG_GROUP)["logGroups"]:
        logs.create_log_group(logGroupName=LOG_GROUP)
    logs.create_log_stream(logGroupName=LOG_GROUP, logStreamName=f"{run}-1/algo-1-0")


def left_of(local: LocalAws, bucket: Any, run: str) -> tuple[int, int]:
    streams = (
        local.session().client("logs").describe_log_streams(logGroupName=LOG_GROUP, logStreamNamePrefix=f"{run}-1/")
    )
    return len(list(bucket.object_versions.filter(Prefix=f"runs/{run}/"))), len(streams["logStreams"])


def test_the_next_rehearsal_removes_what_the_one_before_left(local_aws: LocalAws, bucket: Any) -> None:
    runs = Table(first=RunState.COMPLETED, alive=RunState.TRAINING, own=RunState.COMPLETED)
    replace_earlier(local_aws, runs, names=["first", "alive", "of-another-deployment"])
    for run in ("first", "alive", "own"):
        leave(local_aws, bucket, run)
    replace_earlier(local_aws, runs, names=["second"])
    assert left_of(local_aws, bucket, "first") == (0, 0)
    # What still trains, and what its user launched, stay.
    assert left_of(local_aws, bucket, "alive") == (4, 1)
    assert left_of(local_aws, bucket, "own") == (4, 1)

    runs.states["alive"] = RunState.STOPPED
    replace_earlier(local_aws, runs, names=["third"])
    assert left_of(local_aws, bucket, "alive") == (0, 0)
    assert left_of(local_aws, bucket, "own") == (4, 1)


def test_a_sweep_that_goes_on_keeps_what_its_paused_trials_go_on_from(local_aws: LocalAws, bucket: Any) -> None:
    runs = Table(**{"search-1": RunState.STOPPED})
    runs.sweep_state = SweepState.RUNNING
    replace_earlier(local_aws, runs, names=["search"])
    leave(local_aws, bucket, "search-1")
    replace_earlier(local_aws, runs, names=["second"])
    assert left_of(local_aws, bucket, "search-1") == (4, 1)

    runs.sweep_state = SweepState.STOPPED
    replace_earlier(local_aws, runs, names=["third"])
    assert left_of(local_aws, bucket, "search-1") == (0, 0)


def test_of_a_sweep_what_its_trials_left_is_removed_when_all_have_ended(local_aws: LocalAws, bucket: Any) -> None:
    runs = Table(**{"sweep-1": RunState.COMPLETED, "sweep-2": RunState.TRAINING})
    replace_earlier(local_aws, runs, names=["sweep"])
    for run in runs.states:
        leave(local_aws, bucket, run)
    replace_earlier(local_aws, runs, names=["second"])
    assert [left_of(local_aws, bucket, run) for run in runs.states] == [(4, 1), (4, 1)]

    runs.states["sweep-2"] = RunState.STOPPED
    replace_earlier(local_aws, runs, names=["third"])
    assert [left_of(local_aws, bucket, run) for run in runs.states] == [(0, 0), (0, 0)]
