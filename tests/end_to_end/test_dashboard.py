"""The deployed dashboard, with what the deployed functions really wrote, as a picture."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spotkeep_cli.rendering.dashboard_picture import save_dashboard_picture
from spotkeep_jobs.facts.states import RunState
from spotkeep_local.dashboard.reading import NoDashboardError, read_dashboard
from spotkeep_local.dashboard.values import total


def test_what_a_run_did_is_on_the_picture(own_app: Any, tmp_path: Path) -> None:
    began = datetime.now(UTC) - timedelta(seconds=1)
    run = "dashboard-run"
    own_app.launch(
        name="seen", run=run, command="true", capacity="spot", max_run="1h", max_wait="2h",
        source=own_app.upload_source(run, {"train.py": ""}),
    )  # fmt: skip
    own_app.invoke("reconciler", {})
    assert own_app.wait_until_ended(run, sweep=True).state is RunState.COMPLETED
    view = read_dashboard(own_app.local, "spotkeep", since=began)
    values = {
        each.metric.name: total(each, widget.shown, view.recorded)
        for widget in view.widgets
        for each in widget.shown
        if each.metric is not None and each.metric.namespace == "Spotkeep"
    }
    assert values["RunsCompleted"] == 1
    assert values["LaunchAccepted"] == 1
    assert values["RunsWaiting"] is not None
    assert [alarm.name for alarm in view.alarms if alarm.ringing] == []
    assert len(view.alarms) > 10
    picture = tmp_path / "dashboard.svg"
    save_dashboard_picture(view, picture)
    drawn = picture.read_text()
    assert "Runs in flight" in drawn
    assert "launcher errors: OK" in drawn


def test_without_a_dashboard_it_says_how_to_get_one(deployed_app: Any) -> None:
    with pytest.raises(NoDashboardError, match="dashboard=true"):
        read_dashboard(deployed_app.local, "nobody", since=datetime.now(UTC))
