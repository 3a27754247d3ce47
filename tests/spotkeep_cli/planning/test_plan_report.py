"""A plan as pictures and as a page: the forecast, its spread and the alternatives, for readers of any sight."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rich.console import Console

from spotkeep_cli.planning import plan_report
from spotkeep_cli.planning.plan_plots import (
    Alternative,
    costs_picture,
    course_pictures,
    ends_picture,
    on_demand_cost,
    save_plan_plot,
    spread_pictures,
)
from spotkeep_cli.planning.plan_report import plan_html
from spotkeep_cli.planning.plan_view import histogram, plan_view
from spotkeep_cli.rendering.pictures import Picture
from spotkeep_cli.terminal import NextStep
from tests.spotkeep_cli.planning.example_plans import NOW, planned

if TYPE_CHECKING:
    from spotkeep_cli.planning.job_planning import PlannedJobFile
    from tests.browser import Browser

STEPS = [NextStep(command="spotkeep launch job.yaml", what="launch it")]


@pytest.fixture(scope="module")
def plain() -> PlannedJobFile:
    return planned()


@pytest.fixture(scope="module")
def compared() -> PlannedJobFile:
    return planned(compare=True, zones=2, types=2, instances=4)


def html(plan: PlannedJobFile) -> str:
    return plan_html(plan, steps=STEPS, made_by="spotkeep plan job.yaml --html", now=NOW)


def texts(picture: Picture) -> list[str]:
    return [text for each in picture.element().iter("text") if (text := "".join(each.itertext()))]


def test_a_histogram_is_as_wide_as_asked_and_highest_where_most_is() -> None:
    drawn = histogram(np.array([0.0] * 9 + [1.0] * 3 + [2.0]), width=3)
    assert drawn == "█▃▁"


def test_the_fan_goes_from_nothing_to_all_of_the_work(plain: PlannedJobFile) -> None:
    work, spending = course_pictures(plain)
    (median,) = [line for line in work.figure.axes[0].lines if line.get_gid() == "median"]
    done = [float(value) for value in median.get_ydata()]
    assert (done[0], done[-1]) == (0, 100)
    assert done == sorted(done)
    assert {"deadline", "time since the start (h)", "work that is done (%)"} <= set(texts(work))
    (spent,) = [line for line in spending.figure.axes[0].lines if line.get_gid() == "median"]
    best = plain.plan.forecasts[0]
    assert float(spent.get_ydata()[-1]) == pytest.approx(best.cost_usd.p50, rel=0.01)
    assert "on demand" in texts(spending)


def test_the_line_of_the_guard_ends_at_the_deadline(plain: PlannedJobFile) -> None:
    work, _ = course_pictures(plain)
    (line,) = [line for line in work.figure.axes[0].lines if line.get_gid() == "latest"]
    assert list(line.get_ydata()) == [0, 100]
    assert list(line.get_xdata()) == pytest.approx([plain.plan.latest_on_demand_s / 3600, 18])


def test_money_is_that_of_all_instances(compared: PlannedJobFile) -> None:
    _, spending = course_pictures(compared)
    (spent,) = [line for line in spending.figure.axes[0].lines if line.get_gid() == "median"]
    assert float(spent.get_ydata()[-1]) == pytest.approx(4 * compared.plan.forecasts[0].cost_usd.p50, rel=0.01)
    assert on_demand_cost(compared) == pytest.approx(4 * 3.0 * compared.plan.job.uninterrupted_s / 3600)


def test_several_instances_are_counted_and_forecast_as_one(compared: PlannedJobFile, plain: PlannedJobFile) -> None:
    def shown(plan: PlannedJobFile) -> str:
        console = Console(width=140)
        with console.capture() as captured:
            console.print(plan_view(plan, width=140))
        return " ".join(captured.get().split())

    assert f", on 4 x {compared.types[0].instance_type} in time" in shown(compared)
    often = "instances forecast as one: 4 that are taken at different times are interrupted more often"
    assert often in shown(compared)
    assert "forecast as one" in html(compared)
    assert " x " not in shown(plain).partition("in time")[0]
    assert "forecast as one" not in shown(plain)


def test_bars_of_all_futures_are_a_hundred_percent(plain: PlannedJobFile) -> None:
    for picture in spread_pictures(plain):
        heights = [bar.get_height() for bar in picture.figure.axes[0].patches]
        assert sum(heights) == pytest.approx(100)
        assert "8 in 10" in texts(picture)


def test_policies_have_a_row_each_by_cost_and_by_end(compared: PlannedJobFile) -> None:
    policies = [each.policy for each in compared.plan.forecasts]
    ends = [Alternative(name=each.policy, spread=each.finish_s) for each in compared.plan.forecasts]
    picture = ends_picture(ends, name="ends", title="Ends")
    assert len(policies) == 4
    assert set(policies) <= set(texts(picture))
    for policy in policies:
        assert f"{policy} is done after " in picture.description
    assert "Policies by end" in html(compared)


def test_futures_that_are_all_alike_are_one_bar(plain: PlannedJobFile) -> None:
    best = plain.plan.forecasts[0]
    alike = replace(best.outcomes, cost_usd=np.full(400, 12.5), finish_s=np.full(400, 43_200.0))
    plan = replace(plain.plan, forecasts=(replace(best, outcomes=alike),))
    for picture in spread_pictures(replace(plain, types=(replace(plain.types[0], plan=plan),))):
        assert [bar.get_height() for bar in picture.figure.axes[0].patches] == [100]
        picture.element()


def test_alternatives_have_a_row_each_with_its_cost(compared: PlannedJobFile) -> None:
    rows = [Alternative(name=zone.zone, spread=zone.cost) for zone in compared.plan.zones]
    picture = costs_picture(rows, name="zones", title="Zones", planned=compared)
    assert {"eu-central-1a", "eu-central-1b"} <= set(texts(picture))
    for zone in compared.plan.zones:
        assert f"${4 * zone.cost.mean:,.2f}" in texts(picture)
        assert f"{zone.zone} costs ${4 * zone.cost.mean:,.2f}" in picture.description
    assert "Zones alone" not in html(planned())


def test_without_prices_costs_are_in_on_demand_hours() -> None:
    plan = planned(in_usd=False)
    _, spending = course_pictures(plan)
    assert "cost so far (on-demand hours)" in texts(spending)
    assert " od-h" in spending.description


@pytest.mark.long
@pytest.mark.parametrize("ending", [".png", ".svg", ".pdf"])
def test_the_spread_is_drawn_into_a_file(
    ending: str, plain: PlannedJobFile, compared: PlannedJobFile, tmp_path: Path
) -> None:
    for name, plan in (("plain", plain), ("compared", compared)):
        path = tmp_path / f"{name}{ending}"
        save_plan_plot(plan, path)
        assert path.read_bytes()[:5] in {b"\x89PNG\r", b"<?xml", b"%PDF-"}


HOSTILE = "</title><script>document.title='owned'</script>"
PAGES: dict[str, dict[str, Any]] = {
    "one-zone": {},
    "compared": {"compare": True, "zones": 3, "types": 2, "instances": 4},
    "minutes": {"hours": 0.2, "deadline_hours": 1},
    "days": {"hours": 40, "deadline_hours": 120},
    "tight": {"hours": 12, "deadline_hours": 12.8},
    "without-prices": {"in_usd": False, "remarks": ("No on-demand price is known.",)},
    "hostile": {"name": HOSTILE, "remarks": (HOSTILE,)},
}


@pytest.mark.long
@pytest.mark.parametrize("kind", PAGES)
def test_everybody_can_read_the_page_of_any_plan(kind: str, browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / f"{kind}.html"
    plan = planned(**PAGES[kind])
    path.write_text(html(plan), encoding="utf-8")
    for seen in browser.check(path, name=f"plan-{kind}"):
        assert seen.requests == []
        assert plan.name in seen.text
        assert "spotkeep launch job.yaml" in seen.text


def test_the_page_has_the_tables_of_the_terminal(compared: PlannedJobFile) -> None:
    page = html(compared)
    for heading in ("Policies in figures", "Zones alone in figures", "Instance types in figures"):
        assert heading in page
    assert "ml.g5.4xlarge" in page
    assert "timm==1.0.9" in page


def test_without_matplotlib_the_page_has_its_tables(compared: PlannedJobFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_report, "can_draw", lambda: False)
    page = html(compared)
    assert "<svg" not in page
    assert "Pictures need matplotlib." in page
    assert "Policies in figures" in page


def test_no_text_of_a_plan_is_markup(plain: PlannedJobFile) -> None:
    page = html(replace(plain, name=HOSTILE, remarks=(HOSTILE,)))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
