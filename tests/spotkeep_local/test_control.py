"""The clients of the control plane, of training and of EC2, against a real local AWS and against none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from spotkeep_local.capacity import EventFaults
from spotkeep_local.control import ControlError, FleetControl, LocalControl
from spotkeep_local.lifecycle import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotkeep_local.lifecycle import LocalAws


@pytest.mark.parametrize(
    ("act", "complaint"),
    [
        (lambda local: LocalControl(local).job_facts("no-job"), r"refused JobFacts: Requested resource not found\."),
        (lambda local: FleetControl(local).interrupt("i-0"), "refused InterruptInstance: .* 'i-0' does not exist"),
        (lambda local: FleetControl(local).freeze("i-0"), "refused Freeze: .* 'i-0' does not exist"),
        (lambda local: FleetControl(local).set_clock(0.5), "seconds_ahead must be a whole number of seconds"),
        (lambda local: FleetControl(local).first_worlds_wait(-1.0), "wait_seconds must be a number of seconds from 0"),
        (lambda local: FleetControl(local).interrupt(""), "must contain the parameter instance_id"),
        (lambda local: FleetControl(local)._connection.call("Explode", {}), "has no Explode"),
    ],
)
def test_what_is_refused_says_why(local_aws: LocalAws, act: Callable[[LocalAws], object], complaint: str) -> None:
    with pytest.raises(ControlError, match=complaint):
        act(local_aws)


def test_without_a_local_aws_it_says_how_to_start_one(local_aws: LocalAws) -> None:
    with pytest.raises(ControlError, match="spotkeep local up"):
        LocalControl(replace(local_aws, endpoint_url=f"http://127.0.0.1:{free_port()}")).job_facts("any")


def test_a_proxy_in_the_environment_is_ignored(local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    LocalControl(local_aws).event_faults(EventFaults())


def test_the_platform_says_what_instances_are(local_aws: LocalAws) -> None:
    platform = FleetControl(local_aws).platform()
    assert (platform.isolation, platform.reason is None) in {("namespace", True), ("relocated", False)}
