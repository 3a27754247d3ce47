"""Any order of launches, resumes, stops, sweeps, crashes and endings leaves one writer to a checkpoint prefix (I1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spotkeep_jobs.backends.job_view import TrainingJob
from spotkeep_jobs.backends.sagemaker.request import JobPlatform
from spotkeep_jobs.document.deployment import Deployment
from spotkeep_jobs.document.deployment_defaults import DeploymentDefaults
from spotkeep_jobs.errors import AwsBusyError, SpotkeepJobsError, TrainingJobNameTakenError
from spotkeep_jobs.progress.job_log import JobLog
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.states import RunState
from spotkeep_jobs.runs.launch import Launcher
from spotkeep_jobs.runs.launch_completion import LAUNCH_SETTLES, complete_launch
from spotkeep_jobs.runs.transition import decide

PLATFORM = JobPlatform(
    deployment="spotkeep",
    checkpoint_bucket="checkpoints",
    execution_role_arn="arn:aws:iam::123456789012:role/spotkeep-execution",
    training_bundle_uri="s3://assets/0123abcd.pyz",
)
DEFAULTS = DeploymentDefaults(image="image", instance_type="ml.m5.xlarge", checkpoint_bucket="checkpoints")
DEPLOYMENT = Deployment(name="spotkeep", prices={})
LINEAGE = "s3://checkpoints/runs/shared/checkpoints/"

runs = st.sampled_from(["a", "b"])
Strike = tuple[str, bool, bool] | None
operations = st.sampled_from(
    ["get_item", "transact_write_items", "CreateTrainingJob", "DescribeTrainingJob", "StopTrainingJob"]
)
strikes = st.none() | st.tuples(operations, st.booleans(), st.booleans())
"""No trouble; or on the first call of which operation, whether after its effect, and whether the process dies of it."""


class ProcessDiedError(BaseException):
    """The function's process ended here."""


class Aws:
    """SageMaker and DynamoDB, with trouble on one call of the current invocation."""

    def __init__(self, dynamodb: Any) -> None:
        self.time = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
        self.jobs: dict[str, TrainingJob] = {}
        self._dynamodb = dynamodb
        self._strike: Strike = None

    def invocation(self, strike: Strike, work: Callable[[], object]) -> None:
        """One invocation of a function: it ends well, with an error, or dies."""
        self._strike = strike
        try:
            work()
        except (SpotkeepJobsError, ClientError, ProcessDiedError):
            pass  # Whatever became of it, the invariant below must hold.
        finally:
            self._strike = None

    def create(self, request: Mapping[str, Any], /) -> str:
        return str(self._struck("CreateTrainingJob", lambda: self._create(request)))

    def describe(self, job_name: str, /) -> TrainingJob | None:
        found: TrainingJob | None = self._struck("DescribeTrainingJob", lambda: self.jobs.get(job_name))
        return found

    def stop(self, job_name: str, /) -> bool:
        return bool(self._struck("StopTrainingJob", lambda: self.change(job_name, "InProgress", "Stopping")))

    def change(self, job_name: str, before: str, after: str) -> bool:
        job = self.jobs.get(job_name)
        if job is None or job.status != before:
            return False
        self.jobs[job_name] = replace(job, status=after, secondary_status=after)
        return True

    def __getattr__(self, method: str) -> Callable[..., Any]:
        act = getattr(self._dynamodb, method)
        return lambda **parameters: self._struck(method, lambda: act(**parameters))

    def _create(self, request: Mapping[str, Any]) -> str:
        name = str(request["TrainingJobName"])
        if name in self.jobs:
            raise TrainingJobNameTakenError(operation="CreateTrainingJob", code="ResourceInUse", reason="taken")
        self.jobs[name] = TrainingJob(
            name=name,
            arn=f"arn:{name}",
            status="InProgress",
            secondary_status="Training",
            created_at=self.time,
            last_modified_at=self.time,
            environment=request["Environment"],
        )
        return self.jobs[name].arn

    def _struck(self, operation: str, act: Callable[[], Any]) -> Any:
        struck, after_effect, dies = self._strike or ("", False, False)
        if struck != operation:
            return act()
        self._strike = None
        if after_effect:
            act()
        raise self._failure(operation, dies=dies)

    @staticmethod
    def _failure(operation: str, *, dies: bool) -> BaseException:
        if dies:
            return ProcessDiedError()
        if operation.endswith("TrainingJob"):
            return AwsBusyError(operation=operation, code="ThrottlingException", reason="Rate exceeded")
        return ClientError({"Error": {"Code": "ThrottlingException", "Message": "slow down"}}, operation)


class World:
    """Two runs on one checkpoint prefix, and everything that can happen to them."""

    def __init__(self, dynamodb: Any) -> None:
        self.aws = Aws(dynamodb)
        self.table = RunTable(client=self.aws, table_name="runs")  # type: ignore[arg-type]
        self.launcher = Launcher(
            keep_bundle=lambda: None,
            table=self.table,
            jobs=self.aws,
            platform=PLATFORM,
            defaults=DEFAULTS,
            prices={},
            now=lambda: self.aws.time,
            sleep=lambda _seconds: None,
        )

    def launch(self, run: str, strike: Strike) -> None:
        document = {"name": run, "command": "x", "run": run, "token": run, "checkpoint_prefix": LINEAGE}
        self.aws.invocation(strike, lambda: self.launcher.launch(document, default_token="unused"))

    def resume(self, run: str, strike: Strike) -> None:
        self.aws.invocation(strike, lambda: self.launcher.resume(run))

    def stop(self, run: str, strike: Strike) -> None:
        self.aws.invocation(strike, lambda: self.launcher.stop(run))

    def sweep(self, _run: str, strike: Strike) -> None:
        self.aws.time += LAUNCH_SETTLES
        for run in list(self.table.in_flight()):
            self.aws.invocation(strike, lambda run=run: self.complete(run))  # type: ignore[misc]

    def job_ends(self, run: str, _strike: Strike) -> None:
        head = self.table.get(run)
        if head is not None and not self.aws.change(head.job_name, "Stopping", "Stopped"):
            self.aws.change(head.job_name, "InProgress", "Failed")

    def tracker_looks(self, run: str, _strike: Strike) -> None:
        head = self.table.get(run)
        if head is None:
            return
        *earlier, attempt = self.table.attempts(run)
        changes = decide(
            run=head,
            attempt=attempt,
            earlier=earlier,
            job=self.aws.jobs.get(head.job_name),
            log=JobLog(),
            deployment=DEPLOYMENT,
            now=self.aws.time,
        )
        for change in changes:
            self.table.commit(change)

    def at_most_one_live_job_writes_the_checkpoint_prefix(self) -> None:
        live = [job.name for job in self.aws.jobs.values() if not job.ended]
        assert len(live) <= 1, live

    def settles(self) -> None:
        """Once the trouble is over, a sweep leaves nothing half done."""
        self.aws.time += LAUNCH_SETTLES
        for run in list(self.table.in_flight()):
            completed = self.complete(run)
            assert completed.state.ended or completed.job_arn == self.aws.jobs[completed.job_name].arn
            if completed.state is RunState.STOPPING:
                assert self.aws.jobs[completed.job_name].status != "InProgress"
        self.at_most_one_live_job_writes_the_checkpoint_prefix()

    def complete(self, run: str) -> Run:
        return complete_launch(
            run,
            table=self.table,
            jobs=self.aws,
            deployment=DEPLOYMENT,
            keep_bundle=lambda: None,
            now=lambda: self.aws.time,
        )


HAPPENINGS: dict[str, Callable[[World, str, Strike], None]] = {
    "launch": World.launch,
    "resume": World.resume,
    "stop": World.stop,
    "sweep": World.sweep,
    "job ends": World.job_ends,
    "tracker looks": World.tracker_looks,
}
stories = st.lists(st.tuples(st.sampled_from(sorted(HAPPENINGS)), runs, strikes), min_size=1, max_size=25)


@given(story=stories)
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_one_writer_whatever_happens_in_whatever_order(story: list[tuple[str, str, Strike]], dynamodb: Any) -> None:
    world = World(type(dynamodb)())
    for happening, run, strike in story:
        HAPPENINGS[happening](world, run, strike)
        world.at_most_one_live_job_writes_the_checkpoint_prefix()
    world.settles()
