"""Spot instances are interrupted, with a notice before or without."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from spotkeep_local.ec2.market import SpotPoolChange

if TYPE_CHECKING:
    from .conftest import Ec2, Events

pytestmark = pytest.mark.long

WATCH = "until ACTION=$(metadata spot/instance-action); do sleep 0.05; done; echo $ACTION; echo NOTICED\nsleep 600\n"


def watcher(ec2: Ec2) -> str:
    return f"#!/bin/sh\n{ec2.metadata}\necho READY\n{WATCH}"


def test_a_notice_is_in_the_metadata_and_on_the_bus_before_the_end(ec2: Ec2, events: Events) -> None:
    instance = ec2.run(watcher(ec2), spot=True)
    ec2.wait_for_line(instance, "READY")
    gone_at = ec2.control.interrupt(instance, notice_seconds=5.0)
    event = events.wait_for("EC2 Spot Instance Interruption Warning", instance_id=instance)
    assert event["source"] == "aws.ec2"
    assert event["detail"] == {"instance-id": instance, "instance-action": "terminate"}
    assert event["resources"] == [f"arn:aws:ec2:us-east-1a:instance/{instance}"]
    ec2.wait_for_state(instance, "terminated")
    moment = dt.datetime.fromtimestamp(gone_at, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert f'{{"action": "terminate", "time": "{moment}"}}' in ec2.console(instance).splitlines()
    facts = ec2.control.instance_facts(instance)
    assert facts.ended_at is not None
    assert facts.ended_at >= gone_at
    assert facts.reason_code == "Server.SpotInstanceTermination"


def test_without_notice_there_is_no_warning(ec2: Ec2, events: Events) -> None:
    instance = ec2.run(f"#!/bin/sh\ntrap 'echo TERM' TERM\n{ec2.metadata}echo READY\n{WATCH}", spot=True)
    ec2.wait_for_line(instance, "READY")
    ec2.control.interrupt(instance, notice=False)
    ec2.wait_for_state(instance, "terminated")
    assert ec2.console(instance).splitlines()[-1] == "READY"
    events.wait_for("EC2 Instance State-change Notification", instance_id=instance, state="terminated")
    assert "EC2 Spot Instance Interruption Warning" not in {event["detail-type"] for event in events.seen}


def test_a_notice_that_nothing_follows(ec2: Ec2, events: Events) -> None:
    instance = ec2.run(watcher(ec2), spot=True)
    ec2.wait_for_line(instance, "READY")
    ec2.control.interrupt(instance, notice_seconds=5.0, takes_place=False)
    ec2.wait_for_line(instance, "NOTICED")
    events.wait_for("EC2 Spot Instance Interruption Warning", instance_id=instance)
    ec2.wait_until(lambda: ec2.control.instance_facts(instance).interruption is None)
    assert ec2.state(instance) == "running"


def test_a_warning_of_a_foreign_instance(ec2: Ec2, events: Events) -> None:
    ec2.control.warn_of("i-0foreign0")
    events.wait_for("EC2 Spot Instance Interruption Warning", instance_id="i-0foreign0")


def test_a_zone_that_loses_its_capacity_takes_its_instances_away(ec2: Ec2, events: Events) -> None:
    fleet = ec2.fleet(ec2.template())
    first = ec2.running(fleet)
    zone = ec2.instance(first)["Placement"]["AvailabilityZone"]
    ec2.control.change_pool(SpotPoolChange(zone=zone, capacity=0))
    events.wait_for("EC2 Spot Instance Interruption Warning", instance_id=first)
    second = ec2.running(fleet, other_than=[first])
    assert ec2.instance(second)["Placement"]["AvailabilityZone"] != zone
    assert ec2.history(fleet)[:4] == ["submitted", "active", "launched", "termination_notified"]


def test_capacity_that_goes_takes_the_youngest_first_and_no_more_than_it_must(ec2: Ec2) -> None:
    older, younger = ec2.run(spot=True), ec2.run(spot=True)
    ec2.control.change_pool(SpotPoolChange(zone="us-east-1a", instance_type="m5.large", capacity=1, notice=False))
    ec2.wait_for_state(younger, "terminated")
    assert ec2.state(older) == "running"
