"""`plan` answers with what is known, says what that is, and refuses what cannot be planned."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion
from typer.testing import Result

from spotkeep_cli.aws.connection_options import ConnectionOptions
from spotkeep_cli.errors import ExitCode
from spotkeep_cli.planning.job_planning import PlannedJobFile, PlanOptions, plan_job
from spotkeep_cli.planning.plan_view import plan_view
from spotkeep_cli.seams import Invocation, Seams
from spotkeep_planner.spot_market import SpotMarket
from spotkeep_planner.traces import CapacityTrace, write_trace
from tests.models.faults import client_error
from tests.models.spot_market import SpotCapacity
from tests.spotkeep_cli.conftest import NOW

Plan = Callable[..., Result]
INSTALLED = {"command": ["python", "train.py"], "install": ["timm==1.0.9"], "setup": ["python", "fetch it.py"]}


def without_figures(text: str) -> str:
    """The layout: the last digit of a forecast depends on how a machine rounds."""
    return re.sub(r"[ ▁▂▃▄▅▆▇█]*[▁▂▃▄▅▆▇█][ ▁▂▃▄▅▆▇█]*", " ▅▅▅ ", re.sub(r"\d", "9", text))


@pytest.fixture
def spot_market(market: SpotMarket) -> Callable[..., SpotMarket]:
    return lambda _options: market


@pytest.fixture
def plan(deployment: Any, spotkeep: Any, job_file: Path) -> Plan:
    """Runs `spotkeep plan` on the job file, in its folder."""
    deployment.answers["validate"] = {
        "ok": True,
        "request": {
            "name": "digits",
            "instance_type": "ml.m5.xlarge",
            "max_run": 4 * 3600,
            "instance_count": 1,
            "capacity": "spot",
        },
        "warnings": [],
        "usd_per_hour": 0.23,
    }

    return partial(spotkeep, "plan", "job.yaml")


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """Two zones that come and go by the clock, for ten days."""
    folder = tmp_path / "traces"
    folder.mkdir()
    hours = np.arange(10 * 24 * 12) / 12
    for zone, available, price in (
        ("zone-a", (hours % 11) < 7, 0.08),
        ("zone-b", (hours % 7) < 2, 0.12),
    ):
        trace = CapacityTrace(
            zone=zone,
            start=NOW - timedelta(days=10),
            tick_s=300.0,
            available=available,
            spot_price=np.full(len(hours), price),
        )
        write_trace(trace, folder / f"{zone}.csv.gz")
    return folder


def test_a_person_reads_the_answer_first(plan: Plan, traces: Path, snapshot: SnapshotAssertion) -> None:
    result = plan("--deadline", "6h", "--traces", "traces", "--compare")
    assert result.exit_code == ExitCode.DONE
    assert without_figures(result.stdout) == snapshot


def test_the_next_command_is_the_same_plan_with_a_comparison_and_the_forecast_is_drawn_where_asked(
    plan: Plan, traces: Path, deployment: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[Path, str]] = []

    def save(planned: PlannedJobFile, path: Path) -> None:
        drawn.append((path, planned.name))

    # What the picture shows has tests of its own.
    monkeypatch.setattr("spotkeep_cli.planning.plan_plots.save_plan_plot", save)
    deployment.answers["validate"]["request"] |= INSTALLED
    given = "--deadline 6h --work 3h --traces traces --on-demand-price 0.3 --zone zone-a"
    shown = plan(*given.split(), "--plot", "plan.png", columns=120).stdout
    assert f"Next: spotkeep plan job.yaml {given} --compare" in shown
    assert "timm==1.0.9; a restart finds it in S3" in shown
    assert "python 'fetch it.py', once a machine" in shown
    assert "is drawn in plan.png" in shown
    assert drawn == [(Path("plan.png"), "digits")]


def test_a_plan_counts_all_nodes(plan: Plan, traces: Path, deployment: Any) -> None:
    nodes = {"backend": "ec2", "instance_type": None, "instance_types": ["m5.xlarge"], "nodes": {"min": 2, "max": 4}}
    deployment.answers["validate"]["request"] |= nodes
    answer = json.loads(plan("--deadline", "6h", "--traces", "traces", "--json").stdout)
    assert (answer["instance_count"], answer["cost_is_of"]) == (4, "one instance")


@pytest.mark.long
def test_a_plan_is_written_as_a_page(plan: Plan, traces: Path) -> None:
    given = "--deadline 6h --work 3h --traces traces --compare"
    result = plan(*given.split(), "--html")
    assert result.exit_code == ExitCode.DONE, result.output
    assert "page: digits-plan.html" in result.output
    page = Path("digits-plan.html").read_text()
    assert "spotkeep launch job.yaml" in page
    assert f"spotkeep plan job.yaml {given} --html" in page
    document = json.loads(plan(*given.split(), "--html", "--json").stdout)
    assert document["page"] == "digits-plan.html"


def test_json_holds_the_forecast_of_what_was_given_and_nothing_else(plan: Plan, traces: Path) -> None:
    arguments = ("--deadline", "6h", "--work", "2h", "--traces", "traces", "--zone", "zone-b", "--json")
    document = json.loads(plan(*arguments, "--on-demand-price", "0.5").stdout)
    assert document["ok"] is True
    assert document["job"] | {"work_s": 7_200.0, "deadline_s": 21_600.0} == document["job"]
    assert document["work_from"] == "--work"
    assert document["knowledge"]["zones"] == ["zone-b"]
    assert document["knowledge"]["on_demand_price"] == 0.5
    (ours,) = document["forecasts"]
    assert ours["policy"] == "spotkeep"
    assert ours["chance_in_time"] == 1.0
    assert ours["cost"]["p10"] <= ours["cost"]["mean"] <= 0.5 * 6


def test_without_traces_the_account_is_asked(plan: Plan, deployment: Any, make: Any, ec2: Any) -> None:
    deployment.answers["validate"]["request"] |= INSTALLED
    deployment.dynamodb.add(make.completed(), timeline=make.timeline())
    deployment.dynamodb.add(make.run("other-1", instance_type="ml.p3.2xlarge"), timeline=make.timeline("other-1"))
    document = json.loads(plan("--deadline", "6h", "--json").stdout)
    assert ec2.asked == ["m5.xlarge"]
    assert document["knowledge"]["zones"] == ["eu-central-1a", "eu-central-1b"]
    assert document["knowledge"]["on_demand_price"] == 0.23
    asked, *_, own_runs = document["knowledge"]["sources"]
    assert asked.startswith("EC2's spot prices of m5.xlarge and placement scores")
    assert own_runs == "this deployment's own runs: 0 h on spot, 1 interruptions"
    assert list(document["installation"]) == ["installs", "setup"]


class CheaperWithAmd(SpotCapacity):
    """A market of two zones, where m5a costs less than m5."""

    def _describe_spot_price_history(self, **asked: Any) -> Iterator[Any]:
        price = "0.05" if asked["InstanceTypes"] == ["m5a.xlarge"] else "0.07"
        self.prices = [("eu-central-1a", price, NOW), ("eu-central-1b", "0.11", NOW)]
        return super()._describe_spot_price_history(**asked)


def test_every_type_the_job_may_run_on_is_planned_and_the_cheapest_comes_first(plan: Plan, deployment: Any) -> None:
    ec2: Any = CheaperWithAmd()
    seams = Seams(connect=lambda _: deployment, spot_market=lambda _: SpotMarket(ec2), now=lambda: NOW)
    deployment.answers["validate"]["request"]["instance_types"] = ["ml.m5.xlarge", "ml.m5a.xlarge"]
    planned = plan_job(
        Path("job.yaml"),
        overrides=(),
        options=PlanOptions(deadline_s=6 * 3600),
        invocation=Invocation(options=ConnectionOptions(), seams=seams),
    )
    assert ec2.asked == ["m5.xlarge", "m5a.xlarge"]
    document = planned.as_document()
    assert document["instance_type"] == "ml.m5a.xlarge"
    assert [other["instance_type"] for other in document["other_types"]] == ["ml.m5.xlarge"]
    for width, fits in ((80, True), (50, False)):
        console = Console(width=width, file=StringIO())
        console.print(plan_view(planned, width=width))
        shown = console.file.getvalue()  # type: ignore[attr-defined]
        assert "CHEAPEST ZONE" in shown
        assert ("80% WITHIN" in shown) is fits, "a narrow window loses columns and no figures"
        assert "taken to be equally fast" in " ".join(shown.split())


def test_an_account_that_does_not_answer_is_said_and_the_plan_goes_on(plan: Plan, ec2: Any) -> None:
    ec2.refuse(client_error("DescribeSpotPriceHistory", "UnauthorizedOperation", "not authorized"))
    document = json.loads(plan("--deadline", "6h", "--json").stdout)
    [remark] = document["remarks"]
    assert remark.startswith("EC2 did not give the spot prices of m5.xlarge: ")
    assert remark.endswith("not authorized.")
    assert document["forecasts"][0]["chance_in_time"] == 1.0


def test_without_a_deployment_it_plans_from_the_published_band(plan: Plan) -> None:
    result = plan("--deadline", "6h", "--json", "--band", "<5%", reachable=False)
    document = json.loads(result.stdout)
    assert document["currency"] == "on-demand hours"
    assert document["knowledge"]["sources"] == [
        "no capacity was ever observed here: a wide prior",
        "interruption band <5% of the Spot Instance Advisor",
    ]
    assert document["remarks"][0].startswith("Planned without a deployment")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "when must it be done?"),
        (("--deadline", "soon"), "--deadline soon is not a duration"),
        (("--deadline", "0h"), "is no time at all"),
        (("--deadline", "4h", "--traces", "traces"), "h are not enough"),
        (("--deadline", "6h", "--zone", "zone-a"), "--zone chooses among traces"),
        (("--deadline", "6h", "--traces", "traces", "--zone", "zone-c"), "no trace of zone-c"),
        (("--deadline", "6h", "--traces", "nowhere"), "cannot be read"),
        (("--deadline", "6h", "--traces", "bad.csv"), "bad.csv:2: spot_price is -0.5, a price is more than 0"),
        (("--deadline", "6h", "--plot", "plan.doc"), "the file's ending says how to draw"),
        (("--deadline", "6h", "--band", "50%"), "is no band"),
        (("--deadline", "6h", "--on-demand-price", "-1"), "a price is more than 0"),
    ],
)
def test_what_cannot_be_planned_is_said(plan: Plan, traces: Path, arguments: Sequence[str], message: str) -> None:
    Path("bad.csv").write_text("time,available,spot_price\n2026-01-01T00:00:00Z,1,-0.5\n")
    result = plan(*arguments)
    assert result.exit_code == ExitCode.USAGE
    assert message in result.stderr


def test_a_job_that_would_be_refused_is_not_planned(plan: Plan, deployment: Any) -> None:
    result = plan("--deadline", "6h", "--set", "max_run=40d", reachable=False)
    assert result.exit_code == ExitCode.REFUSED
    assert "max_run" in result.stderr
