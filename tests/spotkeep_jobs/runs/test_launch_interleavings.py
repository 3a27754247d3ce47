"""Any order of launches, resumes, stops, sweeps, crashes and endings leaves one writer to a checkpoint prefix (I1)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from spotkeep_jobs.document.deployment_policy import DeploymentPolicy
from spotkeep_jobs.errors import SpotkeepJobsError
from spotkeep_jobs.progress.job_log import JobLog
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.states import RunState
from spotkeep_jobs.runs.ending import request_of
from spotkeep_jobs.runs.launch_completion import LAUNCH_SETTLES
from spotkeep_jobs.runs.transition import decide
from tests.launching import completed_launch, jobs_of, launcher_on
from tests.models.dynamodb import InMemoryDynamoDb
from tests.models.faults import Fault, Faults, ProcessDiedError
from tests.models.sagemaker import SageMaker

PREFIX = "s3://checkpoints/runs/shared/checkpoints/"

runs = st.sampled_from(["a", "b"])
Strike = tuple[str, Fault] | None
operations = st.sampled_from(
    ["GetItem", "TransactWriteItems", "CreateTrainingJob", "DescribeTrainingJob", "StopTrainingJob"]
)
strikes = st.none() | st.tuples(operations, st.sampled_from(Fault))
"""No fault; or the operation whose first call meets one, and which."""


class World:
    """Two runs on one checkpoint prefix, and everything that can happen to them."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.sagemaker = SageMaker(self.faults)
        self.table = RunTable(client=InMemoryDynamoDb(self.faults), table_name="runs")  # type: ignore[arg-type]
        self.parts = launcher_on(self.table, self.sagemaker)

    def invocation(self, strike: Strike, work: Callable[[], object]) -> None:
        """Runs one invocation of a function: it ends well, with an error, or dies."""
        if strike is not None:
            self.faults.strike(strike[1], operation=strike[0])
        try:
            work()
        except (SpotkeepJobsError, ClientError, ProcessDiedError):
            pass  # Whatever became of it, the invariant below must hold.
        finally:
            self.faults.strike(None)

    def launch(self, run: str, strike: Strike) -> None:
        document = {"name": run, "command": "x", "run": run, "token": run, "checkpoint_prefix": PREFIX}
        self.invocation(strike, lambda: self.parts.launcher.launch(document, default_token="unused"))

    def resume(self, run: str, strike: Strike) -> None:
        self.invocation(strike, lambda: self.parts.runs.resume(run))

    def stop(self, run: str, strike: Strike) -> None:
        self.invocation(strike, lambda: self.parts.runs.stop(run))

    def reconcile_all(self, _run: str, strike: Strike) -> None:
        self.sagemaker.time.time += LAUNCH_SETTLES
        for run in list(self.table.in_flight()):
            complete = lambda run=run: completed_launch(run, table=self.table, sagemaker=self.sagemaker)  # type: ignore[misc]  # noqa: E731
            self.invocation(strike, complete)

    def job_ends(self, run: str, _strike: Strike) -> None:
        known = self.table.get(run)
        job = None if known is None else self.sagemaker.jobs.get(known.job_name)
        if job is not None and job.live:
            self.sagemaker.becomes(job.name, "Stopped" if job.status == "Stopping" else "Failed")

    def reconcile(self, run: str, _strike: Strike) -> None:
        known = self.table.get(run)
        if known is None:
            return
        *earlier, attempt = self.table.attempts(run)
        changes = decide(
            run=known,
            request=request_of(known),
            attempt=attempt,
            earlier=earlier,
            job=jobs_of(self.sagemaker).observe(known.job_name),
            log=JobLog(),
            deployment=DeploymentPolicy(name="spotkeep", prices={}),
            now=self.sagemaker.now(),
        )
        for change in changes:
            self.table.commit(change)

    def at_most_one_live_job_writes_the_checkpoints(self) -> None:
        live = [job.name for job in self.sagemaker.jobs.values() if job.live]
        assert len(live) <= 1, live

    def settles(self) -> None:
        """Once no call meets a fault any more, a reconciliation leaves nothing half done."""
        self.sagemaker.time.time += LAUNCH_SETTLES
        for run in list(self.table.in_flight()):
            completed = completed_launch(run, table=self.table, sagemaker=self.sagemaker)
            assert completed.state.ended or completed.job_arn == self.sagemaker.jobs[completed.job_name].arn
            if completed.state is RunState.STOPPING:
                assert self.sagemaker.jobs[completed.job_name].status != "InProgress"
        self.at_most_one_live_job_writes_the_checkpoints()


HAPPENINGS: dict[str, Callable[[World, str, Strike], None]] = {
    "launch": World.launch,
    "resume": World.resume,
    "stop": World.stop,
    "reconcile all": World.reconcile_all,
    "job ends": World.job_ends,
    "reconcile": World.reconcile,
}
stories = st.lists(st.tuples(st.sampled_from(sorted(HAPPENINGS)), runs, strikes), min_size=1, max_size=25)


@pytest.mark.long
@given(story=stories)
@settings(max_examples=250, deadline=None)
def test_one_writer_whatever_happens_in_whatever_order(story: list[tuple[str, str, Strike]]) -> None:
    world = World()
    for happening, run, strike in story:
        HAPPENINGS[happening](world, run, strike)
        world.at_most_one_live_job_writes_the_checkpoints()
    world.settles()
