"""Any order of launches, resumes, stops, sweeps, crashes and endings leaves one writer to a lineage (I1)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from spotkeep_jobs.errors import SageMakerBusyError, SpotkeepJobsError, TrainingJobNameTakenError
from spotkeep_jobs.job_events import parse_log
from spotkeep_jobs.launch import LAUNCH_SETTLES, Launcher, complete_launch
from spotkeep_jobs.run_table import RunTable
from spotkeep_jobs.sagemaker_api import TrainingJob
from spotkeep_jobs.states import RunState
from spotkeep_jobs.tracking import Deployment, decide
from spotkeep_jobs.training_job_request import JobPlatform
from spotkeep_jobs.validation import DeploymentDefaults

PLATFORM = JobPlatform(
    deployment="spotkeep",
    checkpoint_bucket="checkpoints",
    execution_role_arn="arn:aws:iam::123456789012:role/spotkeep-execution",
    training_bundle_uri="s3://assets/0123abcd.pyz",
)
DEFAULTS = DeploymentDefaults(image="image", instance_type="ml.m5.xlarge", checkpoint_bucket="checkpoints")
DEPLOYMENT = Deployment(name="spotkeep", prices={})
SHARED_PREFIX = "s3://checkpoints/runs/shared/checkpoints/"

runs = st.sampled_from(["a", "b"])
strikes = st.none() | st.tuples(st.integers(0, 11), st.booleans(), st.booleans())
"""No trouble; or at which call, whether after its effect, and whether the process dies of it."""


class ProcessDiedError(BaseException):
    """The function's process ended here."""


class Aws:
    """SageMaker and DynamoDB, with trouble on one call of the current invocation."""

    def __init__(self, dynamodb: Any) -> None:
        self.time = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
        self.jobs: dict[str, TrainingJob] = {}
        self.prefixes: dict[str, str] = {}
        self._dynamodb = dynamodb
        self._strike: tuple[int, bool, bool] | None = None
        self._calls = 0
        self._lock = threading.Lock()

    def invocation(self, strike: tuple[int, bool, bool] | None, work: Callable[[], object]) -> None:
        """One invocation of a function: it ends well, with an error, or dies."""
        self._strike, self._calls = strike, 0
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
        self.prefixes[name] = request["CheckpointConfig"]["S3Uri"]
        self.jobs[name] = TrainingJob(
            name=name,
            arn=f"arn:{name}",
            status="InProgress",
            secondary_status="Training",
            created_at=self.time,
            last_modified_at=self.time,
            output_prefix=request["OutputDataConfig"]["S3OutputPath"],
            environment=request["Environment"],
        )
        return self.jobs[name].arn

    def _struck(self, operation: str, act: Callable[[], Any]) -> Any:
        at, after_effect, dies = self._strike or (-1, False, False)
        struck = self._calls == at
        self._calls += 1
        if struck and not after_effect:
            raise self._failure(operation, dies=dies)
        answer = act()
        if struck:
            raise self._failure(operation, dies=dies)
        return answer

    @staticmethod
    def _failure(operation: str, *, dies: bool) -> BaseException:
        if dies:
            return ProcessDiedError()
        if operation.endswith("TrainingJob"):
            return SageMakerBusyError(operation=operation, code="ThrottlingException", reason="Rate exceeded")
        return ClientError({"Error": {"Code": "ThrottlingException", "Message": "slow down"}}, operation)


class Interleavings(RuleBasedStateMachine):
    """Two runs that may share one lineage, in any order of everything that can happen to them."""

    make_dynamodb: Callable[[], Any]

    def __init__(self) -> None:
        super().__init__()
        self.aws = Aws(type(self).make_dynamodb())
        self.table = RunTable(client=self.aws, table_name="runs")  # type: ignore[arg-type]
        self.launcher = Launcher(
            table=self.table,
            jobs=self.aws,
            platform=PLATFORM,
            defaults=DEFAULTS,
            prices={},
            now=lambda: self.aws.time,
            sleep=lambda _seconds: None,
        )

    @rule(run=runs, shared=st.booleans(), strike=strikes)
    def launch(self, run: str, shared: bool, strike: Any) -> None:
        document = {"name": run, "command": "x", "run": run, "token": f"token-{run}"}
        if shared:
            document["checkpoint_prefix"] = SHARED_PREFIX
        self.aws.invocation(strike, lambda: self.launcher.launch(document, default_token="unused"))

    @rule(run=runs, strike=strikes)
    def resume(self, run: str, strike: Any) -> None:
        self.aws.invocation(strike, lambda: self.launcher.resume(run))

    @rule(run=runs, strike=strikes)
    def stop(self, run: str, strike: Any) -> None:
        self.aws.invocation(strike, lambda: self.launcher.stop(run))

    @rule(run=runs, strike=strikes)
    def complete(self, run: str, strike: Any) -> None:
        self.aws.invocation(
            strike,
            lambda: complete_launch(
                run, table=self.table, jobs=self.aws, deployment=DEPLOYMENT, now=lambda: self.aws.time
            ),
        )

    @rule(run=runs)
    def job_ends(self, run: str) -> None:
        head = self.table.get(run)
        if head is not None and not self.aws.change(head.job_name, "Stopping", "Stopped"):
            self.aws.change(head.job_name, "InProgress", "Failed")

    @rule(run=runs)
    def tracker_looks(self, run: str) -> None:
        head = self.table.get(run)
        if head is None:
            return
        *earlier, attempt = self.table.attempts(run)
        changes = decide(
            run=head,
            attempt=attempt,
            earlier=earlier,
            job=self.aws.jobs.get(head.job_name),
            log=parse_log([]),
            deployment=DEPLOYMENT,
            now=self.aws.time,
        )
        for change in changes:
            self.table.commit(change)

    @rule()
    def time_passes(self) -> None:
        self.aws.time += LAUNCH_SETTLES / 2 + timedelta(seconds=1)

    @invariant()
    def at_most_one_live_job_writes_a_lineage(self) -> None:
        live = Counter(self.aws.prefixes[job.name] for job in self.aws.jobs.values() if not job.ended)
        assert max(live.values(), default=0) <= 1, live

    def teardown(self) -> None:
        """Once the trouble is over, a sweep leaves nothing half done."""
        for run in list(self.table.in_flight()):
            self.aws.time += LAUNCH_SETTLES
            completed = complete_launch(
                run, table=self.table, jobs=self.aws, deployment=DEPLOYMENT, now=lambda: self.aws.time
            )
            assert completed.state.ended or completed.job_arn == self.aws.jobs[completed.job_name].arn
            if completed.state is RunState.STOPPING:
                assert self.aws.jobs[completed.job_name].status != "InProgress"
        self.at_most_one_live_job_writes_a_lineage()


def test_one_writer_whatever_happens_in_whatever_order(dynamodb: Any) -> None:
    Interleavings.make_dynamodb = staticmethod(type(dynamodb))
    run_state_machine_as_test(Interleavings, settings=settings(max_examples=150, stateful_step_count=25, deadline=None))
