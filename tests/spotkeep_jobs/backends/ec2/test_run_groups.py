"""Several runs of one document: all of them or none, one live fleet each (I1), whichever process dies wherever."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from spotkeep_jobs.backends.ec2.ec2_api import Ec2Api
from spotkeep_jobs.backends.ec2.fleet_table import FleetTable
from spotkeep_jobs.backends.ec2.jobs import FleetJobs, NoFleets
from spotkeep_jobs.backends.ec2.launch import FleetPlatform, launch_of
from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
from spotkeep_jobs.document.fleet import MAX_RUNS
from spotkeep_jobs.document.request import validate
from spotkeep_jobs.errors import RequestRefusedError, SpotkeepJobsError
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.states import EndReason, RunState
from spotkeep_jobs.runs.acceptance import members_of
from spotkeep_jobs.runs.launch import Launcher
from spotkeep_jobs.runs.launch_completion import Launched
from spotkeep_jobs.runs.rules import LAUNCH_SETTLES
from spotkeep_jobs.runs.run_actions import RunActions
from tests.models.clock import Clock
from tests.models.deployment import completion_on, launcher_on
from tests.models.dynamodb import InMemoryDynamoDb
from tests.models.ec2 import TEMPLATE, Ec2
from tests.models.faults import Fault, Faults, ProcessDiedError
from tests.models.sagemaker import SageMaker

DEFAULTS = DeploymentDefaults(checkpoint_bucket="bucket", fleet_instance_types=("g5.xlarge",))
REFUSAL = ("InvalidParameter", "no such subnet")
DOCUMENT = {"name": "seeds", "command": "python train.py", "backend": "ec2", "run": "seeds", "token": "token-1"}


class Aws:
    """EC2 and DynamoDB, and a launcher; one call of the current invocation may meet a fault."""

    def __init__(self) -> None:
        self.clock, self.faults = Clock(), Faults()
        self.ec2 = Ec2(self.faults, time=self.clock)
        dynamodb: Any = InMemoryDynamoDb(self.faults)
        ec2: Any = self.ec2
        self.table = RunTable.of(client=dynamodb, table_name="runs")
        records = FleetTable(dynamodb, table_name="runs", retention_days=90)
        self.jobs = FleetJobs(
            ec2=Ec2Api(lambda: ec2), records=records, deployment="spotkeep", prices={}, now=self.clock,
            launches=lambda *_: None, zones={},
        )  # fmt: skip
        platform = FleetPlatform(launch_template_id=TEMPLATE, subnets={"subnet-a": "us-east-1a"})
        self.launcher = launcher_on(
            self.table, SageMaker(), defaults=DEFAULTS, prices={}, now=self.clock,
            fleet_platform=platform, fleet_checks=None, fleets=self.jobs,
        )  # fmt: skip

    def launch(self, **fields: Any) -> Launched:
        return Launcher(self.launcher).launch({**DOCUMENT, "runs": 3, **fields}, default_token="unused")

    def reconcile(self) -> None:
        """What the controller does with the runs that are being launched, once the launcher that began them is over."""
        self.clock.time += LAUNCH_SETTLES
        for run in list(self.table.runs.in_flight()):
            completion_on(self.table, NoFleets(), fleets=self.jobs, now=self.clock, prices={}).complete(run)

    def recorded(self) -> list[Run]:
        return [run for number in range(1, MAX_RUNS + 1) if (run := self.table.runs.get(f"seeds-{number}")) is not None]


@pytest.fixture
def aws() -> Aws:
    return Aws()


def test_three_runs_have_an_id_a_record_a_checkpoint_prefix_a_fleet_and_a_number_each(aws: Aws) -> None:
    launch = aws.launch()
    assert [run.run for run in launch.runs] == ["seeds-1", "seeds-2", "seeds-3"]
    assert len({run.checkpoint_uri for run in launch.runs}) == 3
    assert [run.job_id for run in launch.runs] == ["fleet-1", "fleet-2", "fleet-3"]
    for number, run in enumerate(launch.runs, start=1):
        attempt = aws.table.runs.attempt(run.run, 1)
        assert attempt.job_request is not None
        environment = launch_of(attempt.job_request).instance_job.training.script_variables(run=None)
        assert (environment["SPOTKEEP_RUN_INDEX"], environment["SPOTKEEP_RUN_COUNT"]) == (str(number), "3")


def test_the_first_are_on_demand_the_others_spot(aws: Aws) -> None:
    launch = aws.launch(on_demand_base=1, max_price=0.5, max_wait="3d")
    assert [run.place.capacity for run in launch.runs] == ["on-demand", "spot", "spot"]
    assert [run.request.get("max_price") for run in launch.runs] == [None, 0.5, 0.5]
    alone = Launcher(aws.launcher).launch(
        {**DOCUMENT, "run": "one", "token": "t2", "on_demand_base": 1}, default_token="x"
    )
    assert (alone.run.run, alone.run.place.capacity, alone.others) == ("one", "on-demand", ())


def test_the_same_token_again_finds_all_or_refuses_another_number_of_runs_and_launches_nothing(aws: Aws) -> None:
    first = aws.launch()
    again = aws.launch()
    assert (again.replayed, again.runs) == (True, first.runs)
    for runs in (1, 2, 4):
        with pytest.raises(RequestRefusedError, match="they differ in runs"):
            aws.launch(runs=runs)
    assert len(aws.ec2.fleets) == 3


def test_every_id_that_is_taken_is_named_and_nothing_is_launched(aws: Aws) -> None:
    for taken in ("seeds-1", "seeds-3"):
        Launcher(aws.launcher).launch({**DOCUMENT, "run": taken, "token": taken}, default_token="x")
    with pytest.raises(RequestRefusedError) as refused:
        aws.launch(on_demand_base=4)
    assert [problem.field for problem in refused.value.problems] == ["on_demand_base", "run", "run"]
    with pytest.raises(RequestRefusedError, match="seeds-3"):
        aws.launch()
    assert [run.run for run in aws.recorded()] == ["seeds-1", "seeds-3"]


def test_what_ec2_refuses_to_all_is_refused_whole(aws: Aws) -> None:
    aws.ec2.refuses = REFUSAL
    with pytest.raises(RequestRefusedError) as refused:
        aws.launch()
    assert len(refused.value.problems) == 3
    assert {run.end_reason for run in aws.recorded()} == {EndReason.LAUNCH_REFUSED}


def test_what_ec2_refuses_to_one_is_reported_beside_the_others(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    create = aws.ec2.create_fleet

    def refuses_the_second(**request: Any) -> dict[str, Any]:
        aws.ec2.refuses = REFUSAL if len(aws.ec2.fleets) == 1 and not aws.ec2.refuses else None
        return create(**request)

    monkeypatch.setattr(aws.ec2, "create_fleet", refuses_the_second)
    launch = aws.launch()
    assert [run.end_reason for run in launch.runs] == [None, EndReason.LAUNCH_REFUSED, None]
    [warning] = [text for text in launch.warnings if "refused" in text]
    assert warning.startswith("seeds-2 was refused by EC2")


def test_one_is_stopped_and_resumed_with_its_own_number_and_the_others_go_on(aws: Aws) -> None:
    aws.launch()
    assert RunActions(aws.launcher).stop("seeds-2").state is RunState.STOPPING
    assert [run.state.ended for run in aws.recorded()] == [False] * 3
    run_item = aws.table.runs.get("seeds-3")
    assert run_item.group is not None
    again = validate(run_item.request, defaults=DEFAULTS).accepted()
    [member] = members_of(again)
    assert member.request == again, "a run's own document asks for it alone"


strikes = st.none() | st.tuples(st.integers(0, 90), st.sampled_from(Fault))


@pytest.mark.long
@settings(max_examples=150)
@given(trouble=st.lists(strikes, max_size=3), by_hand=st.booleans(), runs=st.integers(1, 4), base=st.integers(0, 4))
def test_wherever_a_launch_is_cut_short_there_is_one_fleet_a_run_or_nothing_at_all(
    trouble: list[tuple[int, Fault] | None], by_hand: bool, runs: int, base: int
) -> None:
    aws = Aws()
    fields = {"runs": runs, "on_demand_base": min(base, runs)}
    for strike in trouble:
        call, fault = strike or (0, None)
        aws.faults.strike(fault, call=call)
        # Whatever became of it, the invariant below must hold.
        with contextlib.suppress(SpotkeepJobsError, ClientError, ProcessDiedError):
            aws.launch(**fields)
        aws.clock.pass_by(minutes=1)
        if strike is None:
            assert all(aws.table.runs.get(name) is not None for name in names_of(runs))
    aws.faults.strike(None)
    recorded = [run for name in names_of(runs) if (run := aws.table.runs.get(name)) is not None]
    assert len(recorded) in (0, runs), "all or none"
    if by_hand:
        launch = aws.launch(**fields)
        assert len(launch.runs) == runs
    else:
        aws.reconcile()
    recorded = [run for name in names_of(runs) if (run := aws.table.runs.get(name)) is not None]
    fleets = [run.job_id for run in recorded]
    assert None not in fleets
    assert sorted(aws.ec2.fleets) == sorted(arn for arn in fleets if arn), "no fleet that no run knows, and none twice"
    expected = ["on-demand"] * min(base, runs) + ["spot"] * runs
    assert [run.place.capacity for run in recorded] == expected[: len(recorded)]


def names_of(runs: int) -> list[str]:
    return ["seeds"] if runs == 1 else [f"seeds-{number}" for number in range(1, runs + 1)]


@given(
    runs=st.integers(1, MAX_RUNS),
    base=st.integers(0, MAX_RUNS),
    token=st.text("abcdef0123456789-", min_size=1, max_size=128),
)
def test_members_are_documents_that_are_accepted_alone(runs: int, base: int, token: str) -> None:
    document = {**DOCUMENT, "runs": runs, "on_demand_base": min(base, runs), "token": token, "max_price": 1}
    members = members_of(validate(document, defaults=DEFAULTS).accepted())
    assert len(members) == runs
    assert len({member.request.run for member in members}) == len({member.request.token for member in members}) == runs
    assert members[0].request.token == token
    assert sum(member.request.capacity == "on-demand" for member in members) == min(base, runs)
    for member in members:
        again = validate(member.request.as_document(), defaults=DEFAULTS).accepted()
        assert again == member.request
