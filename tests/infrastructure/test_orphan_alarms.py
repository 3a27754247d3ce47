"""What belongs to no live run does not go on so unseen: three alarms, with thresholds of the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import Templates

HOUR = 3_600


@pytest.mark.parametrize(
    ("alarm", "metric", "threshold", "periods", "of_last"),
    [
        ("Found", "OrphansFound", 21, 3, 4),
        ("Cost", "OrphansUsdPerHour", 1, 3, 4),
        ("NotRemoved", "OrphansNotRemoved", 1, 2, 3),
    ],
)
def test_what_is_orphaned_for_hours_alarms_the_operators(
    templates_with_everything: Templates, alarm: str, metric: str, threshold: float, periods: int, of_last: int
) -> None:
    found = templates_with_everything.only("AWS::CloudWatch::Alarm", named=f"MonitoringOrphanAlarms{alarm}")
    assert (found["Namespace"], found["MetricName"], found["Statistic"]) == ("Spotkeep", metric, "Maximum")
    [dimension] = found["Dimensions"]
    assert dimension["Name"] == "service"
    assert dimension["Value"]["Ref"].startswith("ControllerFunction")
    assert (found["Threshold"], found["Period"]) == (threshold, HOUR)
    # A value comes a little less often than once an hour: an hour may be without one.
    assert (found["DatapointsToAlarm"], found["EvaluationPeriods"]) == (periods, of_last)
    for actions in ("AlarmActions", "OKActions"):
        [action] = found[actions]
        assert action["Ref"].startswith("NotificationsTopicsOperations")
