"""A run with a deadline is forecast before the user is asked, and sent along with the policy that steers it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

import spotkeep_planner.forecast
from spotkeep_cli.errors import ExitCode
from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
from spotkeep_jobs.document.request import validate
from spotkeep_jobs.record.record import Plan, Progress, Spread, Steered, TimelineEntry
from spotkeep_jobs.record.states import TimelineKind
from spotkeep_planner.replay import replay
from spotkeep_planner.spot_market import SpotMarket
from spotkeep_planner.steering import DecisionTable
from tests.spotkeep_cli.conftest import NOW

RUN = "digits-9f9f5111"
Command = Callable[..., Result]


@pytest.fixture
def spot_market(market: SpotMarket) -> Callable[..., SpotMarket]:
    return lambda _options: market


@pytest.fixture
def command(deployment: Any, spotkeep: Any, make: Any, job_file: Path) -> Command:
    """Runs a command on the job file with a deadline, against a launcher that applies the real rules."""
    deployment.dynamodb.add(make.completed(RUN), timeline=make.timeline(RUN), attempts=[make.attempt(RUN)])
    defaults = DeploymentDefaults(
        image="image",
        checkpoint_bucket=make.bucket,
        prices={"ml.m5.xlarge": 0.23, "m5.xlarge": 0.2},
        fleet_instance_types=("m5.xlarge",),
    )

    def invoke_launcher(payload: Mapping[str, Any]) -> dict[str, Any]:
        document = json.loads(json.dumps(payload))
        deployment.invocations.append(dict(document))
        if document.pop("action", "launch") == "launch":
            return {"ok": True, "run": RUN, "job_name": f"{RUN}-1", "attempt": 1, "replayed": False, "warnings": []}
        judged = validate(document, defaults=defaults, now=NOW)
        problems = [problem.as_document() for problem in judged.problems]
        if judged.request is None:
            return {"ok": False, "error": "refused", "problems": problems, "warnings": []}
        request = judged.request.as_document()
        return {"ok": True, "request": request, "usd_per_hour": 0.23, "warnings": list(judged.warnings)}

    deployment.invoke_launcher = invoke_launcher

    def run(*arguments: str, fields: Sequence[str] = ("deadline=9h",), reachable: bool = True) -> Result:
        given = [word for field in fields for word in ("--set", field)]
        name, *rest = arguments
        result: Result = spotkeep(name, "job.yaml", *given, *rest, columns=100, reachable=reachable)
        return result

    return run


def problems(result: Result) -> str:
    assert result.exit_code == ExitCode.REFUSED
    return " ".join((result.stderr + result.stdout).split())


def test_the_forecast_is_shown_before_anybody_is_asked(command: Command, deployment: Any) -> None:
    result = command("launch", fields=("deadline=9h", "max_cost=5"))
    assert result.exit_code == ExitCode.USAGE, "there is no user to ask"
    assert "add -y" in result.stderr
    shown = " ".join(result.stdout.split())
    assert "Forecast deadline 2026-11-21 21:00 UTC costs $0." in shown
    for fact in ("done after", "on-demand", "goes on demand after an hour without spot, when less than", "rests on"):
        assert fact in shown
    assert "leaves spot at 2026-11-21 16:33 UTC at the latest (in 4h 33m), if nothing was done by then" in shown
    assert "ml.m5.xlarge, spot, 30 GB each, as long as the deadline allows" in shown
    assert "is enough in" not in shown
    assert [call.get("action") for call in deployment.invocations] == ["validate"]


def test_the_policy_that_was_forecast_goes_with_the_request_and_json_holds_the_forecast(
    command: Command, deployment: Any
) -> None:
    document = json.loads(command("launch", "-y", "--json").stdout)
    assert (document["run"], document["state"]) == (RUN, "COMPLETED"), "followed, it is the run as it ended"
    assert document["forecast"]["deadline_at"] == "2026-11-21T21:00:00+00:00"
    assert document["forecast"]["plan"]["job"]["deadline_s"] == 9 * 3600
    sent = deployment.invocations[-1]["plan"]
    plan = Plan.model_validate(sent)
    assert DecisionTable.from_document(plan.table).zones == ("any",)
    assert plan.cost_usd is not None
    assert 0 < plan.cost_usd.p10 <= plan.cost_usd.p50 <= plan.cost_usd.p90 < 9 * 0.23
    assert plan.spot_usd_per_hour == 0.07
    assert len(json.dumps(sent)) < 20_000


def test_a_run_on_a_fleet_is_forecast_and_its_policy_goes_with_it(command: Command, deployment: Any) -> None:
    fields = ("deadline=9h", "backend=ec2", "instance_type=m5.xlarge")
    result = command("launch", "-y", "--detach", fields=fields)
    shown = " ".join(result.stdout.split())
    assert "Forecast deadline 2026-11-21 21:00 UTC costs $0." in shown
    assert "m5.xlarge, spot, an EC2 fleet of one instance, as long as the deadline allows" in shown
    assert "then m5.xlarge, on-demand, an EC2 fleet of one instance" in shown
    assert "leaves spot at 2026-11-21 16:23 UTC at the latest (in 4h 23m)" in shown, "ten minutes before SageMaker's"
    plan = Plan.model_validate(deployment.invocations[-1]["plan"])
    assert DecisionTable.from_document(plan.table).zones == ("any",)


def test_without_a_deadline_there_is_none(command: Command, deployment: Any) -> None:
    assert "Forecast" not in command("launch", "-y", "--detach", fields=()).stdout
    assert "plan" not in deployment.invocations[-1]


def test_without_the_planners_packages_the_guard_is_alone_and_that_is_said(
    command: Command, deployment: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "spotkeep_planner.planning", None)
    monkeypatch.delattr(spotkeep_planner, "planning", raising=False)
    result = command("launch", "-y", "--detach")
    assert result.exit_code == ExitCode.DONE
    assert "The guard alone keeps the deadline." in " ".join(result.stdout.split())
    assert "plan" not in deployment.invocations[-1]


@pytest.mark.parametrize("name", ["launch", "doctor"])
def test_a_max_cost_below_what_anybody_could_do_is_refused_with_figures(command: Command, name: str) -> None:
    said = problems(command(name, fields=("deadline=6h", "max_cost=0.1")))
    assert "is below the $0.30 that the work costs on spot that is never interrupted" in said
    assert "The run is expected to cost $0." in said


def test_a_max_cost_that_is_probably_not_enough_is_warned_of(command: Command) -> None:
    shown = " ".join(command("doctor", fields=("deadline=6h", "max_cost=0.31")).stdout.split())
    assert "is enough in" in shown
    assert "is enough nine times in ten" in shown


def test_doctor_forecasts_without_a_deployment(command: Command) -> None:
    document = json.loads(command("doctor", "--json", fields=("deadline=6h",), reachable=False).stdout)
    assert document["forecast"]["plan"]["currency"] == "on-demand hours"


def test_plan_takes_deadline_work_and_restart_of_the_job_file_and_a_run_that_went_on_demand_is_evidence_of_spot(
    command: Command, deployment: Any, make: Any
) -> None:
    kinds = [
        (1, 50, TimelineKind.TRAINING), (1, 40, TimelineKind.INTERRUPTED), (1, 10, TimelineKind.ATTEMPT_ENDED),
        (2, 8, TimelineKind.TRAINING),
    ]  # fmt: skip
    timeline = [
        TimelineEntry(run="moved", attempt=attempt, at=NOW - timedelta(hours=ago), kind=kind, text="")
        for attempt, ago, kind in kinds
    ]
    attempts = [make.attempt("moved"), make.attempt("moved", attempt=2, capacity="on-demand")]
    moved = make.run("moved", capacity="on-demand", attempt=2)
    deployment.dynamodb.delete_item(TableName="runs", Key={"pk": {"S": f"run#{RUN}"}, "sk": {"S": "item"}})
    deployment.dynamodb.add(moved, timeline=timeline, attempts=attempts)
    fields = ("deadline=2026-11-21T18:00:00Z", "work=3h", "restart=20m")
    document = json.loads(command("plan", "--json", fields=fields).stdout)
    assert document["job"] | {"work_s": 10_800, "deadline_s": 21_600.0, "restart_s": 1_200} == document["job"]
    assert document["work_from"] == "work, as the job file says"
    assert document["knowledge"]["sources"][-1] == "this deployment's own runs: 10 h on spot, 1 interruptions"


def test_describe_shows_deadline_progress_decision_and_plan(deployment: Any, spotkeep: Any, make: Any) -> None:
    request = {"name": "digits", "command": ["train"], "max_run": 14_400, "deadline": 32_400, "capacity": "auto"}
    steered = Steered(choice="spot", reason="spot is there, 4.0 h to spare", decided_at=NOW)
    progress = Progress(step=600, total_steps=1_000, durable_step=500, reported_at=NOW, read_to=1.0)
    deadline = NOW + timedelta(hours=9)
    run = make.run(RUN, request=request, deadline_at=deadline, steered=steered, progress=progress)
    spread = Spread(p10=0.29, p50=0.31, p90=0.5)
    finish = Spread(p10=15_000, p50=16_000, p90=30_000)
    plan = Plan(made_at=NOW, table={}, cost_usd=spread, finish_seconds=finish, chance_of_on_demand=0.12)
    deployment.dynamodb.add(run, plan=plan)
    shown = " ".join(spotkeep("describe", RUN, columns=120).stdout.split())
    assert "Deadline done by 2026-11-21 21:00:00 UTC, in 9h" in shown
    assert "work left 1h 36m: step 600 of 1,000, 500 taken to be durable" in shown
    assert "decided spot: spot is there, 4.0 h to spare" in shown
    assert "forecast $0.29 to $0.50, done after 4h 10m to 8h 20m, on-demand in 12%" in shown


@pytest.mark.parametrize(
    ("deadline", "most_decisions"),
    [("9h", 108), ("30d", 3_000)],
)
def test_a_forecast_far_ahead_has_not_many_more_decisions_and_no_type_or_zone_is_forecast_twice(
    command: Command, monkeypatch: pytest.MonkeyPatch, deadline: str, most_decisions: int
) -> None:
    """Once there was a decision each five minutes, for each type and once more for its one zone: half a minute."""
    decisions: list[int] = []

    def replayed(job: Any, capacity: Any, policy: Any, **options: Any) -> Any:
        decisions.append(capacity.ticks_for(job))
        capacity.ticks_for = lambda _job: 1
        return replay(job, capacity, policy, **options)

    monkeypatch.setattr(spotkeep_planner.forecast, "replay", replayed)
    types = "instance_types=[ml.m5.xlarge, ml.m5.2xlarge]"
    fields = (f"deadline={deadline}", "max_run=1h", "instance_type=null", types)
    command("doctor", fields=fields, reachable=False)
    assert decisions == [most_decisions]
