"""A user spends without a bound: with one document, with many, by a detour around what the document says.

Who: anyone who may invoke the launcher, by mistake or on purpose. With what: large instance types (also far down a
ladder), many instances, long waits, huge volumes, a resume, a fallback, many launches at the same time. Gained before:
any amount, until the account's quotas stop it. Now each ceiling is a setting, and its refusal names it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from spotkeep_constructs.settings import Settings
from spotkeep_jobs.deployment import Deployment
from spotkeep_jobs.document.deployment_facts import DeploymentDefaults, DeploymentPolicy, SpendingLimits
from spotkeep_jobs.document.request import kind_of, validate
from spotkeep_jobs.errors import Problem, RequestRefusedError
from spotkeep_jobs.record.record import Cost, Ending, JobUsage, Run, RunChange
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.states import EndReason
from spotkeep_jobs.runs.ending import close_attempt, request_of
from spotkeep_jobs.runs.launch import Launcher
from spotkeep_jobs.runs.rules import RunFacts
from spotkeep_jobs.runs.run_actions import RunActions
from spotkeep_jobs.settings import LauncherSettings
from spotkeep_jobs.sweeps.document import read_sweep
from spotkeep_jobs.sweeps.trial_documents import first_trials
from tests.models.deployment import end_run, launcher_on
from tests.models.dynamodb import InMemoryDynamoDb
from tests.models.sagemaker import SageMaker

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PRICES = {
    "ml.m5.large": 0.115,
    "ml.m5.xlarge": 0.23,
    "ml.g5.xlarge": 1.41,
    "ml.p4d.24xlarge": 37.7,
    "m5.large": 0.096,
    "m5.xlarge": 0.192,
    "m5a.large": 0.086,
    "m6i.large": 0.096,
    "p4d.24xlarge": 32.8,
}
LIMITS = SpendingLimits(
    allowed_instance_types=("ml.m5.*", "ml.g5.*", "ml.p4d.*", "m5.*", "m5a.*", "m6i.*", "p4d.*"),
    run_cost_limit_usd=1_000.0,
    volume_size_limit_gb=2_048,
    volume_iops_limit=16_000,
    runs_in_flight_limit=100,
)
DEFAULTS = DeploymentDefaults(
    image="123456789012.dkr.ecr.us-east-1.amazonaws.com/training:1",
    instance_type="ml.m5.xlarge",
    checkpoint_bucket="checkpoints",
    max_run_limit_seconds=432_000,
    prices=PRICES,
    fleet_instance_types=("m5.xlarge",),
    limits=LIMITS,
)
DOCUMENT = {"name": "first", "command": "python train.py"}
ON_EC2 = {**DOCUMENT, "backend": "ec2"}


def problems(document: Mapping[str, Any], *, defaults: DeploymentDefaults = DEFAULTS, **fields: Any) -> list[Problem]:
    return list(validate({**document, **fields}, defaults=defaults, now=NOON).problems)


def refused(document: Mapping[str, Any] = DOCUMENT, **fields: Any) -> tuple[str, str]:
    (problem,) = problems(document, **fields)
    return problem.field, problem.fix


# One document


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"instance_type": "ml.p5.48xlarge", "max_cost": 10}, "instance_types"),
        ({"ladder": [{"instance_type": "ml.m5.large"}, {"capacity": "on-demand", "instance_type": "ml.p5.48xlarge"}],
          "max_run": "1h"}, "ladder[1].instance_types"),
        ({"capacity": "auto", "instance_types": ["ml.m5.large", "ml.p5.48xlarge"], "max_run": "1h"}, "instance_types"),
        ({"backend": "ec2", "instance_types": ["m5.large", "p5.48xlarge"], "max_run": "1h", "max_wait": "2h"},
         "instance_types"),
    ],
)  # fmt: skip
def test_a_type_that_is_not_allowed_is_found_wherever_it_stands(document: dict[str, Any], field: str) -> None:
    defaults = replace(DEFAULTS, prices={**PRICES, "ml.p5.48xlarge": 1.0, "p5.48xlarge": 1.0})
    where, fix = refused({**DOCUMENT, **document}, defaults=defaults)
    assert where == field
    assert "allowed_instance_types" in fix


@pytest.mark.parametrize(
    "document",
    [
        {"instance_type": "ml.p4d.24xlarge", "max_run": "2d"},
        {"instance_type": "ml.g5.xlarge", "instance_count": 20, "max_run": "2d"},
        {"instance_type": "ml.g5.xlarge", "max_run": "1d", "max_total_run": "365d", "max_attempts": 100},
        {"ladder": [{"instance_type": "ml.m5.large"}, {"instance_type": "ml.p4d.24xlarge"}], "max_run": "2d"},
        {"instance_type": "ml.p4d.24xlarge", "capacity": "auto", "deadline": "9d", "max_run": "12h"},
        {"instance_type": "ml.p4d.24xlarge", "capacity": "on-demand", "max_run": "2d", "max_cost": 2_000},
        {"backend": "ec2", "instance_type": "p4d.24xlarge", "max_run": "1h", "max_wait": "3d"},
        {"backend": "ec2", "instance_type": "p4d.24xlarge", "max_run": "12h", "capacity": "on-demand"},
        {"backend": "ec2", "instance_type": "m5.large", "max_run": "1h", "max_wait": "3d", "max_price": 900},
        {"backend": "ec2", "instance_type": "p4d.24xlarge", "max_run": "1h", "max_wait": "3d", "max_price": 0.01,
         "runs": 2, "on_demand_base": 1},
    ],
)  # fmt: skip
def test_the_worst_case_of_a_run_is_bounded_however_it_comes_about(document: dict[str, Any]) -> None:
    field, fix = refused({**DOCUMENT, **document})
    assert field in {"max_run", "max_wait", "max_cost"}
    assert "run_cost_limit_usd" in fix


def test_a_run_that_max_cost_ends_is_within_the_limit() -> None:
    dear = {**DOCUMENT, "instance_type": "ml.p4d.24xlarge", "max_run": "5d"}
    assert problems(dear)
    assert not problems(dear, max_cost=900)
    assert refused(dear, max_cost=1_001)[0] == "max_cost"


def test_a_type_without_a_price_is_not_free() -> None:
    defaults = replace(DEFAULTS, limits=replace(LIMITS, allowed_instance_types=("*",)))
    (problem,) = problems(DOCUMENT, defaults=defaults, instance_type="ml.p6-b300.48xlarge")
    assert "ml.p6-b300.48xlarge" in problem.problem
    assert "100 USD an hour" in problem.problem
    assert "prices" in problem.fix
    assert not problems(DOCUMENT, defaults=defaults, instance_type="ml.p6-b300.48xlarge", max_run="9h")


@pytest.mark.parametrize(
    ("document", "field", "setting"),
    [
        ({"volume_size_gb": 16_384}, "volume_size_gb", "volume_size_limit_gb"),
        ({"backend": "ec2", "volume": {"size_gb": 65_536}}, "volume.size_gb", "volume_size_limit_gb"),
        ({"backend": "ec2", "volume": {"size_gb": 500, "type": "io2", "iops": 256_000}}, "volume.iops",
         "volume_iops_limit"),
        ({"backend": "ec2", "max_run": "6d", "max_wait": "7d"}, "max_run", "max_run_limit_seconds"),
        ({"max_run": "6d", "max_wait": "7d"}, "max_run", "max_run_limit_seconds"),
    ],
)  # fmt: skip
def test_storage_and_time_are_bounded_on_both_backends(document: dict[str, Any], field: str, setting: str) -> None:
    found = problems({**DOCUMENT, **document})
    assert (field, True) in [(each.field, setting in each.fix) for each in found]


def test_a_volume_that_the_document_does_not_name_is_judged_too() -> None:
    small = replace(DEFAULTS, limits=replace(LIMITS, volume_size_limit_gb=20))
    assert [each.field for each in problems(DOCUMENT, defaults=small)] == ["volume_size_gb"]
    assert [each.field for each in problems(ON_EC2, defaults=small)] == ["volume.size_gb"]


def test_a_fleet_on_demand_does_not_wait_for_ever() -> None:
    request = validate({**ON_EC2, "capacity": "on-demand", "max_run": "2h"}, defaults=DEFAULTS, now=NOON).accepted()
    assert request.max_wait == 26 * 3_600
    assert not problems(ON_EC2, capacity="on-demand", max_run="2h", max_wait="3h")
    limited = replace(DEFAULTS, max_run_limit_seconds=3_600)
    assert validate(ON_EC2, defaults=limited, now=NOON).accepted().max_run == 3_600


@pytest.mark.parametrize(
    "written",
    [
        'instance_count: "20"',
        'volume_size_gb: "16384"',
        "volume_size_gb: 16384.0",
        'max_cost: "1e9"',
        "max_cost: .inf",
        "max_cost: .nan",
        "max_run: 691200.0",
        'instance_type: "ml.P5.48xlarge"',
        'instance_type: "ml.p5.48xlarge "',
        "max_run: 0x7fffffff",
        'max_run: "5d24h"',
    ],
)
def test_no_way_to_write_a_number_or_a_type_in_yaml_gets_around_a_limit(written: str) -> None:
    document = {**DOCUMENT, "instance_type": "ml.p4d.24xlarge", **yaml.safe_load(written)}
    assert problems(document)


def test_every_problem_is_named_at_once() -> None:
    found = problems(DOCUMENT, instance_type="ml.p5.48xlarge", volume_size_gb=9_999, max_run="6d", keep_alive="10m")
    assert {each.field for each in found} >= {"instance_types", "volume_size_gb", "max_run", "keep_alive"}
    fixes = " ".join(each.fix for each in found)
    for setting in ("allowed_instance_types", "volume_size_limit_gb", "run_cost_limit_usd", "max_run_limit_seconds"):
        assert setting in fixes


def of_one_run(document: dict[str, Any]) -> dict[str, Any]:
    """A job document; of a sweep, its first trial's."""
    if kind_of(document) != "sweep":
        return document
    request, wrong = read_sweep(document, tpe=False)
    assert request is not None
    assert not wrong
    return dict(first_trials(document, request, token="token", owner=None)[0].document)


def test_the_default_ceilings_let_every_example_run_and_stop_the_absurd() -> None:
    settings = Settings()
    limits = SpendingLimits(
        allowed_instance_types=settings.allowed_instance_types,
        run_cost_limit_usd=settings.run_cost_limit_usd,
        volume_size_limit_gb=settings.volume_size_limit_gb,
        volume_iops_limit=settings.volume_iops_limit,
        runs_in_flight_limit=settings.runs_in_flight_limit,
    )
    defaults = replace(DEFAULTS, limits=limits)
    documents = [yaml.safe_load(path.read_text()) for path in sorted(EXAMPLES.glob("*/*.yaml"))]
    assert documents
    for document in documents:
        assert not problems({**of_one_run(document), "source": None}, defaults=defaults), document["name"]
    absurd = {**DOCUMENT, "instance_type": "ml.p4d.24xlarge", "instance_count": 20, "max_run": "5d"}
    assert problems(absurd, defaults=defaults)


# What comes after the launch


class Team:
    """A deployment whose ceilings may change, and its runs."""

    def __init__(self, dynamodb: Any = None) -> None:
        self.table = RunTable.of(client=dynamodb or InMemoryDynamoDb(), table_name="runs")
        self.sagemaker = SageMaker()
        self.limits = LIMITS

    @property
    def launcher(self) -> Deployment[LauncherSettings]:
        defaults = replace(DEFAULTS, limits=self.limits)
        return launcher_on(self.table, self.sagemaker, defaults=defaults, prices=PRICES)

    @property
    def created(self) -> list[str]:
        return [request["TrainingJobName"] for request in self.sagemaker.requests]

    def launch(self, run: str = "first", **fields: Any) -> Run:
        return Launcher(self.launcher).launch({**DOCUMENT, "run": run, **fields}, default_token=f"token-{run}").run

    def end(self, run: str, **fields: Any) -> None:
        end_run(self.table, self.sagemaker, run, **fields)


def settings_named(call: Callable[[], object]) -> str:
    with pytest.raises(RequestRefusedError) as caught:
        call()
    return " ".join(problem.fix for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("lowered", "setting"),
    [
        ({"allowed_instance_types": ("ml.g5.*",)}, "allowed_instance_types"),
        ({"run_cost_limit_usd": 1.0}, "run_cost_limit_usd"),
        ({"volume_size_limit_gb": 10}, "volume_size_limit_gb"),
    ],
)
def test_a_resume_is_held_against_the_ceilings_of_now(lowered: dict[str, Any], setting: str) -> None:
    team = Team()
    team.launch()
    team.end("first")
    team.limits = replace(LIMITS, **lowered)
    assert setting in settings_named(lambda: RunActions(team.launcher).resume("first"))
    assert team.created == ["first-1"]


def bill(usd: float | None) -> Cost:
    seconds = dict.fromkeys(
        ("billed_seconds", "training_seconds", "waited_seconds", "restart_overhead_seconds", "clean_on_demand_seconds",
         "saved_seconds"), 0.0
    )  # fmt: skip
    unknown = dict.fromkeys(("redone_steps", "redone_seconds", "saved_percent", "aws_saved_percent"))
    return Cost.model_validate({**seconds, **unknown, "billed_usd": usd})


def test_what_a_run_has_cost_counts_when_it_is_resumed_and_an_unknown_bill_is_not_nothing() -> None:
    team = Team()
    team.launch(instance_type="ml.p4d.24xlarge", max_run="20h", max_wait="30h")
    team.end("first", cost=bill(300.0))
    assert "run_cost_limit_usd" in settings_named(lambda: RunActions(team.launcher).resume("first"))
    other = Team()
    other.launch(instance_type="ml.p4d.24xlarge", max_run="20h", max_wait="30h")
    other.end("first", cost=bill(None))
    assert "run_cost_limit_usd" in settings_named(lambda: RunActions(other.launcher).resume("first"))


def test_a_fallback_is_held_against_the_ceilings_of_now() -> None:
    team = Team()
    run = team.launch(capacity="auto", instance_types=["ml.m5.large", "ml.g5.xlarge"])
    attempt = team.table.runs.attempt("first", 1)
    assert attempt is not None
    usage = JobUsage(
        instance_count=1,
        billable_seconds=0,
        training_seconds=0,
        waited_seconds=0,
        redone_steps=None,
        redone_seconds=None,
        restart_overhead_seconds=0,
    )
    over = attempt.model_copy(update={"ending": Ending(at=NOON, reason=EndReason.CAPACITY), "usage": usage})

    def after(limits: SpendingLimits) -> RunChange:
        deployment = DeploymentPolicy(name="spotkeep", prices=PRICES, limits=limits)
        return close_attempt(
            RunFacts(
                run=run,
                request=request_of(run),
                attempt=over,
                deployment=deployment,
                now=NOON + timedelta(hours=1),
            )
        )

    assert after(LIMITS).next_attempt is not None
    lowered = after(replace(LIMITS, allowed_instance_types=("ml.m5.*",)))
    assert lowered.next_attempt is None
    assert "ml.g5.xlarge" in str(lowered.run.ending)


# Many runs


class RacingDynamoDb:
    """A table whose first readers all read before anyone writes."""

    def __init__(self, racers: int) -> None:
        self._table = InMemoryDynamoDb()
        self._lock = threading.Lock()
        self._all_have_read = threading.Barrier(racers)
        self._begun = threading.local()

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def call(**parameters: Any) -> Any:
            with self._lock:
                answer = getattr(self._table, operation)(**parameters)
            if operation == "query" and not getattr(self._begun, "has_read", False):
                self._begun.has_read = True
                self._all_have_read.wait(timeout=60)
            return answer

        return call


def test_fifty_launches_at_the_same_time_are_no_more_runs_than_allowed() -> None:
    team = Team(RacingDynamoDb(50))
    team.limits = replace(LIMITS, runs_in_flight_limit=10)

    def attempt(number: int) -> str:
        try:
            return team.launch(f"run-{number}").run
        except RequestRefusedError as error:
            return str(error.problems[0].fix)

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(attempt, range(50)))
    launched = [answer for answer in answers if answer.startswith("run-")]
    assert len(launched) == 10
    assert sum("runs_in_flight_limit" in answer for answer in answers) == 40
    assert sorted(team.created) == sorted(f"{run}-1" for run in launched)


def test_resumes_count_and_an_end_makes_room() -> None:
    team = Team()
    team.limits = replace(LIMITS, runs_in_flight_limit=2)
    team.launch("a")
    team.launch("b")
    assert "runs_in_flight_limit" in settings_named(lambda: team.launch("c"))
    team.end("a")
    team.launch("c")
    assert "runs_in_flight_limit" in settings_named(lambda: RunActions(team.launcher).resume("a"))
    team.end("b")
    assert RunActions(team.launcher).resume("a").run.attempt == 2
    assert "runs_in_flight_limit" in settings_named(lambda: Launcher(team.launcher).validate({**DOCUMENT, "run": "d"}))


def test_a_launch_that_is_repeated_finds_its_run_however_full_it_is() -> None:
    team = Team()
    team.limits = replace(LIMITS, runs_in_flight_limit=1)
    assert team.launch("a") == team.launch("a")
    assert team.table.claims.slots_taken() == 1


def test_runs_above_a_lowered_limit_count_too() -> None:
    team = Team()
    for run in ("a", "b", "c", "d"):
        team.launch(run)
    team.limits = replace(LIMITS, runs_in_flight_limit=3)
    for run in ("a", "b"):
        assert "runs_in_flight_limit" in settings_named(lambda: team.launch("e"))
        team.end(run)
    team.launch("e")
    assert "runs_in_flight_limit" in settings_named(lambda: team.launch("f"))
