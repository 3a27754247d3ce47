"""A rehearsal removes what the one before left, so that the state that every start restores does not grow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from spotkeep_cli.rehearsal.earlier_rehearsal import replace_earlier
from spotkeep_jobs.progress.training_logs import LOG_GROUP
from spotkeep_jobs.record.states import RunState, SweepState
from spotkeep_local.lifecycle import LocalAws

BUCKET = "checkpoints-of-rehearsals"


class Table:
    """The run table: the runs of this test, each with one attempt, and the sweeps.

    Attributes:
        states: Of each run.
        sweeps: The state of each sweep; its trials are the runs whose names begin with its name.
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
        self.sweeps = {"searching": SweepState.RUNNING, "over": SweepState.COMPLETED}
        self.others: set[str] = set()

    def get(self, run: str) -> Any:
        state = self.states.get(run)
        return state and SimpleNamespace(run=run, state=state, output_prefix=f"s3://{BUCKET}/runs/{run}/output")

    def sweep_and_trials(self, name: str) -> Any:
        runs = [run for run in self.states if run.startswith(f"{name}-")]
        sweep = SimpleNamespace(state=self.sweeps[name]) if name in self.sweeps else None
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
    runs, site = Table(), Site(local_aws)
    # The third is of another deployment; `own` is what the user launched.
    replace_earlier(local_aws, runs, names=["first", "alive", "elsewhere", "searching", "over"])
    for run in runs.states:
        site.leave(run)
    replace_earlier(local_aws, runs, names=["second"])
    kept, removed = (3, 1), (0, 0)
    found = {run: site.of(run) for run in runs.states}
    # A sweep that goes on resumes its trials that have paused.
    assert found == {"first": removed, "alive": kept, "own": kept, "searching-1": kept, "over-1": removed}

    runs.states["alive"], runs.sweeps["searching"] = RunState.STOPPED, SweepState.STOPPED
    replace_earlier(local_aws, runs, names=["third"])
    assert {run for run in runs.states if site.of(run) != removed} == {"own"}


def test_a_run_that_is_called_like_a_trial_keeps_everything(local_aws: LocalAws) -> None:
    runs, site = Table(), Site(local_aws)
    runs.states["over-3"] = RunState.COMPLETED
    runs.others.add("over-3")
    replace_earlier(local_aws, runs, names=["over"])
    site.leave("over-3")
    replace_earlier(local_aws, runs, names=["second"])
    assert site.of("over-3") == (3, 1)


def test_a_sweep_keeps_everything_until_its_last_trial_has_ended(local_aws: LocalAws) -> None:
    runs, site = Table(), Site(local_aws)
    runs.states["over-2"] = RunState.TRAINING
    replace_earlier(local_aws, runs, names=["over"])
    site.leave("over-1")
    replace_earlier(local_aws, runs, names=["second"])
    assert site.of("over-1") == (3, 1)
