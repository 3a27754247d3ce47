"""What the engine does when a rehearsal ends early: nothing that it launched trains on."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from spotkeep_cli.launching.job_file import read_job_file
from spotkeep_cli.rehearsal.deployment import RehearsedDeployment
from spotkeep_cli.rehearsal.engine import Rehearsal, Subscriber, replace_earlier
from spotkeep_cli.rehearsal.evidence import RehearsalTimeoutError
from spotkeep_cli.rehearsal.view import RehearsalView
from spotkeep_jobs.progress.training_logs import LOG_GROUP
from spotkeep_jobs.record.states import RunState, SweepState
from spotkeep_local.lifecycle import LocalAws
from tests.spotkeep_cli.conftest import FakeDeployment, make_completed, make_run

LIVE, OVER, NEVER_LAUNCHED = "digits-1", "digits-1-untouched", "digits-1-again"


BUCKET = "checkpoints-of-rehearsals"


def rehearsal_of(deployment: FakeDeployment, job_file: Path, shown: io.StringIO) -> Rehearsal:
    """A rehearsal of three runs: one trains, one has completed, one was never launched."""
    deployment.dynamodb.add(make_run(LIVE))
    deployment.dynamodb.add(make_completed(OVER))
    local: Any = SimpleNamespace(session=lambda: None)
    no_subscriber: Any = None
    return Rehearsal(
        *(LIVE, OVER, NEVER_LAUNCHED),
        local=local,
        deployment=RehearsedDeployment(deployment, document=read_job_file(job_file), new_token=lambda: "token"),
        subscriber=no_subscriber,
        view=RehearsalView(Console(file=shown, width=120)),
        timeout_seconds=0,
    )


def test_when_it_ends_early_each_run_that_has_not_ended_is_stopped(deployment: FakeDeployment, job_file: Path) -> None:
    deployment.answers["stop"] = {"ok": True}
    shown = io.StringIO()
    rehearsal = rehearsal_of(deployment, job_file, shown)
    with (
        pytest.raises(RehearsalTimeoutError, match=f"{LIVE} is training, {OVER} is completed"),
        rehearsal.none_left_running(),
    ):
        rehearsal.follow(LIVE, OVER)
    assert deployment.invocations == [{"action": "stop", "run": LIVE}]
    assert f"stopping {LIVE}" in shown.getvalue()


def test_what_ended_it_is_reported_though_a_run_could_not_be_stopped(
    deployment: FakeDeployment, job_file: Path
) -> None:
    shown = io.StringIO()
    with pytest.raises(KeyboardInterrupt), rehearsal_of(deployment, job_file, shown).none_left_running():
        raise KeyboardInterrupt
    assert f"{LIVE} could not be stopped" in shown.getvalue()


class Table:
    """The run table, with the runs of this test, each with one attempt, and the sweeps.

    Attributes:
        states: The state of each run.
        states_of_sweeps: The state of each sweep. Its trials are the runs whose names begin with its name.
        others: Runs that are called like trials, and are none.
    """

    def __init__(self) -> None:
        self.states = {
            "first": RunState.COMPLETED,
            "alive": RunState.TRAINING,
            "own": RunState.COMPLETED,
            "searching-1": RunState.STOPPED,
            "over-1": RunState.COMPLETED,
        }
        self.runs, self.sweeps = self, SimpleNamespace(with_trials=self.with_trials)
        self.states_of_sweeps = {"searching": SweepState.RUNNING, "over": SweepState.COMPLETED}
        self.others: set[str] = set()

    def get(self, run: str) -> Any:
        state = self.states.get(run)
        return state and SimpleNamespace(run=run, state=state, output_prefix=f"s3://{BUCKET}/runs/{run}/output")

    def with_trials(self, name: str) -> Any:
        runs = [run for run in self.states if run.startswith(f"{name}-")]
        sweep = SimpleNamespace(state=self.states_of_sweeps[name]) if name in self.states_of_sweeps else None
        return sweep, [SimpleNamespace(sweep=name, number=int(run.removeprefix(f"{name}-"))) for run in runs]

    def trial_run(self, sweep: str, number: int) -> Any:
        run = f"{sweep}-{number}"
        return None if run in self.others else self.get(run)

    def attempts(self, run: str) -> Any:
        return [SimpleNamespace(job_name=f"{run}-1")]


class Site:
    """What runs leave: versions of their objects, and a stream of their logs."""

    def __init__(self, local: LocalAws) -> None:
        self._bucket = local.session().resource("s3").Bucket(BUCKET)
        self._bucket.create()
        self._bucket.Versioning().enable()
        self._logs = local.session().client("logs")
        if not self._logs.describe_log_groups(logGroupNamePrefix=LOG_GROUP)["logGroups"]:
            self._logs.create_log_group(logGroupName=LOG_GROUP)

    def leave(self, run: str) -> None:
        manifest = f"runs/{run}/checkpoints/step-1/manifest.json"
        for _ in range(2):
            self._bucket.put_object(Key=manifest, Body=b"{}")
        self._bucket.Object(manifest).delete()
        self._logs.create_log_stream(logGroupName=LOG_GROUP, logStreamName=f"{run}-1/algo-1-0")

    def of(self, run: str) -> tuple[int, int]:
        streams = self._logs.describe_log_streams(logGroupName=LOG_GROUP, logStreamNamePrefix=f"{run}-1/")
        return len(list(self._bucket.object_versions.filter(Prefix=f"runs/{run}/"))), len(streams["logStreams"])


def test_the_next_rehearsal_removes_what_the_ones_before_left_once_all_of_it_has_ended(local_aws: LocalAws) -> None:
    table, site = Table(), Site(local_aws)
    # The third is of another deployment; `own` is what the user launched.
    replace_earlier(local_aws, table, names=["first", "alive", "elsewhere", "searching", "over"])
    for run in table.states:
        site.leave(run)
    replace_earlier(local_aws, table, names=["second"])
    kept, removed = (3, 1), (0, 0)
    found = {run: site.of(run) for run in table.states}
    # A sweep that goes on resumes its trials that have paused.
    assert found == {"first": removed, "alive": kept, "own": kept, "searching-1": kept, "over-1": removed}

    table.states["alive"], table.states_of_sweeps["searching"] = RunState.STOPPED, SweepState.STOPPED
    replace_earlier(local_aws, table, names=["third"])
    assert {run for run in table.states if site.of(run) != removed} == {"own"}


def test_a_run_of_a_rehearsal_under_way_keeps_everything_though_it_has_ended(local_aws: LocalAws) -> None:
    table, site = Table(), Site(local_aws)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        (local_aws.state_dir / "rehearsed-runs").write_text(f"first {other.pid}\n")
        site.leave("first")
        replace_earlier(local_aws, table, names=["second"])
        assert site.of("first") == (3, 1)
        other.communicate(b"\n")
    replace_earlier(local_aws, table, names=["third"])
    assert site.of("first") == (0, 0)


def test_a_run_that_is_called_like_a_trial_keeps_everything(local_aws: LocalAws) -> None:
    table, site = Table(), Site(local_aws)
    table.states["over-3"] = RunState.COMPLETED
    table.others.add("over-3")
    replace_earlier(local_aws, table, names=["over"])
    site.leave("over-3")
    replace_earlier(local_aws, table, names=["second"])
    assert site.of("over-3") == (3, 1)


def test_a_sweep_keeps_everything_until_its_last_trial_has_ended(local_aws: LocalAws) -> None:
    table, site = Table(), Site(local_aws)
    table.states["over-2"] = RunState.TRAINING
    replace_earlier(local_aws, table, names=["over"])
    site.leave("over-1")
    replace_earlier(local_aws, table, names=["second"])
    assert site.of("over-1") == (3, 1)


@pytest.mark.parametrize("about", ["run", "sweep"])
def test_a_subscriber_gets_subject_text_and_attributes(local_aws: LocalAws, about: str) -> None:
    session = local_aws.session()
    sns, sqs = session.client("sns"), session.client("sqs")
    topic = sns.create_topic(Name="notifications")["TopicArn"]
    subscriber = Subscriber.subscribe(sns=sns, sqs=sqs, topic_arn=topic, queue_name="mailbox")
    sns.publish(
        TopicArn=topic,
        Subject="digits-1 completed",
        Message=json.dumps({"text": "It is done."}),
        MessageAttributes={
            about: {"DataType": "String", "StringValue": "digits-1"},
            "status": {"DataType": "String", "StringValue": "completed"},
        },
    )
    (notification,) = subscriber.receive(wait_seconds=5)
    assert (notification.run, notification.status, notification.subject, notification.body) == (
        "digits-1",
        "completed",
        "digits-1 completed",
        "It is done.",
    )
    assert subscriber.receive(wait_seconds=0) == []
    subscriber.close()
    assert sqs.list_queues(QueueNamePrefix="mailbox").get("QueueUrls", []) == []
