"""Fleets, by boto3: they launch, keep their capacity, and end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_local.control import ControlError
from spotkeep_local.ec2.fleets import SPOT_STRATEGIES, CandidatePool, choose_on_demand, choose_pool
from spotkeep_local.ec2.market import SpotPoolChange
from spotkeep_local.ec2.surroundings import LocalSubnet

if TYPE_CHECKING:
    from .conftest import Ec2, Events

pytestmark = pytest.mark.long


def test_a_fleet_of_type_maintain_launches_and_replaces(ec2: Ec2, events: Events) -> None:
    fleet = ec2.fleet(ec2.template())
    first = ec2.running(fleet)
    described = ec2.client.describe_fleets(FleetIds=[fleet])["Fleets"][0]
    assert (described["FleetState"], described["ActivityStatus"]) == ("active", "fulfilled")
    assert described["FulfilledCapacity"] == 1.0
    assert described["TargetCapacitySpecification"]["SpotTargetCapacity"] == 1
    ec2.control.interrupt(first, notice=False)
    second = ec2.running(fleet, other_than=[first])
    assert ec2.instance(first)["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    arn = f"arn:aws:ec2:us-east-1:000000000000:fleet/{fleet}"
    for sub_type, instance in (("launched", first), ("terminated", first), ("launched", second)):
        event = events.wait_for("EC2 Fleet Instance Change", sub_type=sub_type, instance_id=instance)
        assert (event["source"], event["resources"]) == ("aws.ec2fleet", [arn])
    assert ec2.history(fleet)[:3] == ["submitted", "active", "launched"]
    assert sorted(ec2.history(fleet)[3:]) == ["launched", "terminated"]
    # The trap of a training that ends with `shutdown`: what ends by itself is replaced too, and for ever.
    ec2.client.terminate_instances(InstanceIds=[second])
    ec2.running(fleet, other_than=[first, second])


def test_a_fleet_of_several_launches_them_all_and_replaces_one_by_one(ec2: Ec2) -> None:
    fleet = ec2.fleet(ec2.template(), zones=ec2.zones[:1], target=3)
    ec2.wait_until(lambda: len(ec2.active(fleet)) == 3)
    first = ec2.active(fleet)
    described = ec2.client.describe_fleets(FleetIds=[fleet])["Fleets"][0]
    assert (described["FulfilledCapacity"], described["ActivityStatus"]) == (3.0, "fulfilled")
    assert described["TargetCapacitySpecification"]["TotalTargetCapacity"] == 3
    assert len({ec2.instance(instance)["PrivateIpAddress"] for instance in first}) == 3
    for instance in first:
        ec2.wait_for_state(instance, "running")
    taken, *stay = first
    ec2.control.interrupt(taken, notice_seconds=0.1)
    replacement = ec2.running(fleet, other_than=first)
    assert sorted(ec2.active(fleet)) == sorted([*stay, replacement])
    assert ec2.state(taken) == "terminated"
    assert [ec2.state(instance) for instance in stay] == ["running", "running"]
    assert ec2.history(fleet).count("launched") == 4
    assert ec2.history(fleet).count("termination_notified") == 1


def test_a_fleet_of_several_has_what_its_zone_has_room_for(ec2: Ec2) -> None:
    zone = ec2.zones[0]
    ec2.control.change_pool(SpotPoolChange(zone=zone, capacity=2))
    fleet = ec2.fleet(ec2.template(), zones=[zone], target=3)
    ec2.wait_until(lambda: "allLaunchSpecsTemporarilyBlacklisted" in ec2.history(fleet))
    assert len(ec2.active(fleet)) == 2
    described = ec2.client.describe_fleets(FleetIds=[fleet])["Fleets"][0]
    assert (described["FulfilledCapacity"], described["ActivityStatus"]) == (2.0, "error")
    ec2.control.change_pool(SpotPoolChange(zone=zone, capacity=3))
    ec2.wait_until(lambda: len(ec2.active(fleet)) == 3)
    # Less room takes those away that have no place any more, and no other.
    all_of_them = ec2.active(fleet)
    ec2.control.change_pool(SpotPoolChange(zone=zone, capacity=1, notice=False))
    ec2.wait_until(lambda: len(ec2.active(fleet)) == 1)
    assert ec2.active(fleet)[0] in all_of_them


def test_a_deleted_fleet_ends_its_instances_and_launches_no_more(ec2: Ec2, events: Events) -> None:
    fleet = ec2.fleet(ec2.template())
    instance = ec2.running(fleet)
    answer = ec2.client.delete_fleets(FleetIds=[fleet], TerminateInstances=True)["SuccessfulFleetDeletions"][0]
    assert answer["CurrentFleetState"] == "deleted_terminating"

    def is_deleted() -> bool:
        return bool(ec2.client.describe_fleets(FleetIds=[fleet])["Fleets"][0]["FleetState"] == "deleted")

    ec2.wait_until(is_deleted)
    assert ec2.state(instance) == "terminated"
    assert ec2.active(fleet) == []
    events.wait_for("EC2 Fleet State Change", sub_type="deleted")
    again = ec2.client.delete_fleets(FleetIds=[fleet, "fleet-0"], TerminateInstances=True)
    assert [item["Error"]["Code"] for item in again["UnsuccessfulFleetDeletions"]] == [
        "fleetNotInDeletableState",
        "fleetIdDoesNotExist",
    ]


def test_a_fleet_goes_where_capacity_is(ec2: Ec2, events: Events) -> None:
    ec2.control.script_market(
        [SpotPoolChange(zone="us-east-1a", capacity=0), SpotPoolChange(zone="us-east-1b", capacity=0)]
    )
    fleet = ec2.fleet(ec2.template())
    events.wait_for("EC2 Fleet Error", sub_type="allLaunchSpecsTemporarilyBlacklisted")
    assert ec2.client.describe_fleets(FleetIds=[fleet])["Fleets"][0]["ActivityStatus"] == "error"
    ec2.control.change_pool(SpotPoolChange(zone="us-east-1b", capacity=1))
    assert ec2.instance(ec2.running(fleet))["Placement"]["AvailabilityZone"] == "us-east-1b"
    # Written once, however often it was tried.
    assert ec2.history(fleet).count("allLaunchSpecsTemporarilyBlacklisted") == 1


def test_a_fleet_pays_no_more_than_its_max_price(ec2: Ec2, events: Events) -> None:
    ec2.control.script_market([SpotPoolChange(zone=zone, price_usd=0.5) for zone in ec2.zones])
    fleet = ec2.fleet(ec2.template(), overrides={"MaxPrice": "0.2"})
    events.wait_for("EC2 Fleet Information", sub_type="fleetProgressHalted")
    ec2.control.change_pool(SpotPoolChange(zone="us-east-1a", price_usd=0.19))
    assert ec2.instance(ec2.running(fleet))["Placement"]["AvailabilityZone"] == "us-east-1a"


def test_the_same_client_token_is_the_same_fleet(ec2: Ec2) -> None:
    template = ec2.template()
    fleet = ec2.fleet(template, ClientToken="digits-7-1")
    assert ec2.fleet(template, ClientToken="digits-7-1") == fleet
    with pytest.raises(ClientError, match="IdempotentParameterMismatch"):
        ec2.fleet(template, ClientToken="digits-7-1", target=2)


def test_on_demand_capacity_is_always_there_and_outlives_a_fleet_that_is_deleted_alone(ec2: Ec2) -> None:
    ec2.control.script_market([SpotPoolChange(zone=zone, capacity=0) for zone in ec2.zones])
    fleet = ec2.fleet(ec2.template(), spot=False)
    instance = ec2.running(fleet)
    assert "InstanceLifecycle" not in ec2.instance(instance)
    with pytest.raises(ControlError, match="is not a Spot Instance"):
        ec2.control.interrupt(instance)
    ec2.client.delete_fleets(FleetIds=[fleet], TerminateInstances=False)
    assert ec2.client.describe_fleets(FleetIds=[fleet])["Fleets"][0]["FleetState"] == "deleted_running"
    assert ec2.state(instance) == "running"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            {"TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "a", "Value": "b"}]}]},
            "tag the instances of this fleet through its launch template",
        ),
        ({"Type": "instant"}, "Type instant is not supported by the local AWS"),
        ({"LaunchTemplateConfigs": []}, "must contain the parameter LaunchTemplateConfigs"),
        (
            {"SpotOptions": {"MaintenanceStrategies": {"CapacityRebalance": {"ReplacementStrategy": "launch"}}}},
            "SpotOptions.MaintenanceStrategies .* is not supported by the local AWS",
        ),
        ({"SpotOptions": {"AllocationStrategy": "priceCapacityOptimized"}}, "Member must satisfy enum value set"),
    ],
)
def test_a_fleet_that_cannot_be(ec2: Ec2, change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ClientError, match=complaint):
        ec2.client.create_fleet(
            **{
                "LaunchTemplateConfigs": [
                    {"LaunchTemplateSpecification": {"LaunchTemplateId": ec2.template(), "Version": "1"}}
                ],
                "TargetCapacitySpecification": {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "spot"},
                **change,
            }
        )


def test_a_fleet_whose_launch_template_is_gone_has_an_error_event(ec2: Ec2, events: Events) -> None:
    template = ec2.template()
    fleet = ec2.fleet(template)
    first = ec2.running(fleet)
    ec2.client.delete_launch_template(LaunchTemplateId=template)
    ec2.control.interrupt(first, notice=False)
    event = events.wait_for("EC2 Fleet Error", sub_type="spotFleetRequestConfigurationInvalid")
    assert template in event["detail"]["description"]


def pool(place: int, **fields: Any) -> CandidatePool:
    subnet = LocalSubnet(subnet_id="subnet-1", vpc_id="vpc-1", zone="a", cidr="10.0.0.0/24")
    known = {"config": 0, "instance_type": "m5.large", "subnet": subnet, "price_usd": 0.1}
    return CandidatePool(place=place, **(known | fields))


@pytest.mark.parametrize(
    ("strategy", "chosen"),
    [
        ("lowest-price", 1),
        ("price-capacity-optimized", 2),
    ],
)
def test_each_strategy_has_its_own_favourite(strategy: str, chosen: int) -> None:
    pools = [
        pool(0, price_usd=0.01, room=0),
        pool(1, price_usd=0.1, room=2),
        pool(2, price_usd=0.3, room=9),
        pool(3, price_usd=0.4, room=3),
    ]
    found = choose_pool(pools, strategy=strategy)
    assert found is not None
    assert found.place == chosen


def test_of_pools_that_are_alike_price_capacity_optimized_takes_the_cheapest() -> None:
    pools = [pool(0, price_usd=0.3), pool(1, price_usd=0.2), pool(2, price_usd=0.25)]
    found = choose_pool(pools, strategy="price-capacity-optimized")
    assert found is not None
    assert found.place == 1


@given(
    st.sampled_from(SPOT_STRATEGIES),
    st.lists(
        st.builds(
            lambda place, room, price, most: pool(place, room=room, price_usd=price, max_price_usd=most),
            st.integers(0, 9),
            st.one_of(st.none(), st.integers(0, 2)),
            st.sampled_from([0.1, 0.2, 0.3]),
            st.one_of(st.none(), st.just(0.2)),
        ),
        max_size=6,
    ),
)
def test_a_pool_without_room_or_above_the_price_is_never_chosen(strategy: str, pools: list[CandidatePool]) -> None:
    found = choose_pool(pools, strategy=strategy)
    possible = [item for item in pools if item.room != 0 and item.price_usd <= (item.max_price_usd or 9)]
    assert (found is None) == (not possible)
    assert found is None or found in possible


def test_why_a_pool_is_not_chosen() -> None:
    for refused, code in (
        (pool(0, room=0), "InsufficientInstanceCapacity"),
        (pool(0, price_usd=0.3, max_price_usd=0.2), "SpotMaxPriceTooLow"),
    ):
        assert refused.refusal is not None
        assert refused.refusal[0] == code


def test_on_demand_takes_the_cheapest_and_needs_no_room() -> None:
    assert choose_on_demand([pool(0, price_usd=0.1, room=0), pool(1, price_usd=0.2)]).place == 0
