"""The client of EC2's control plane, and the operations that it calls."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from spotkeep_local import lifecycle
from spotkeep_local.control_connection import ControlError
from spotkeep_local.ec2.market import SpotPoolChange
from spotkeep_local.fleet_control import FleetControl

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotkeep_local.lifecycle import LocalAws


@pytest.mark.parametrize(
    ("act", "complaint"),
    [
        (lambda control: control.interrupt("i-0"), r"refused InterruptInstance: The instance ID 'i-0' does not exist"),
        (lambda control: control.interrupt(""), "must contain the parameter instance_id"),
        (lambda control: control.instance_facts("i-0"), "does not exist"),
        (lambda control: control._connection.call("Explode", {}), "has no Explode"),
    ],
)
def test_what_is_refused_says_why(local_aws: LocalAws, act: Callable[[FleetControl], object], complaint: str) -> None:
    with pytest.raises(ControlError, match=complaint):
        act(FleetControl(local_aws))


def test_without_a_local_aws_there_is_a_way_to_get_one(local_aws: LocalAws) -> None:
    control = FleetControl(replace(local_aws, endpoint_url=f"http://127.0.0.1:{lifecycle.free_port()}"))
    with pytest.raises(ControlError, match="spotkeep local up"):
        control.change_pool(SpotPoolChange(zone="us-east-1a", capacity=0))


def test_the_platform_says_what_instances_are(local_aws: LocalAws) -> None:
    platform = FleetControl(local_aws).platform()
    assert (platform.isolation, platform.reason is None) in {("namespace", True), ("relocated", False)}
