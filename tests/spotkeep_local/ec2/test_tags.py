"""Tags of our resources and of ministack's, by one API."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError

from spotkeep_local.ec2.errors import Ec2Error
from spotkeep_local.ec2.tags import check_tags

if TYPE_CHECKING:
    from .conftest import Ec2


def test_one_api_tags_a_volume_and_a_vpc(ec2: Ec2) -> None:
    volume, vpc = ec2.volume(), ec2.client.describe_vpcs()["Vpcs"][0]["VpcId"]
    for resource in (volume, vpc):
        tags = [{"Key": "run", "Value": "7"}, {"Key": "zone", "Value": "a"}]
        ec2.client.create_tags(Resources=[resource], Tags=tags)
    ec2.client.create_tags(Resources=[volume], Tags=[{"Key": "run", "Value": "8"}])
    assert {"Key": "run", "Value": "8"} in ec2.describe_volume(volume)["Tags"]
    assert {"Key": "run", "Value": "7"} in ec2.client.describe_vpcs(VpcIds=[vpc])["Vpcs"][0]["Tags"]
    for resource in (volume, vpc):
        ec2.client.delete_tags(Resources=[resource], Tags=[{"Key": "run"}, {"Key": "zone", "Value": "other"}])
    assert ec2.describe_volume(volume)["Tags"] == [{"Key": "zone", "Value": "a"}]


def test_a_tag_of_a_running_instance_shows_in_its_metadata_and_fifty_besides_those_of_aws_are_the_most(
    ec2: Ec2,
) -> None:
    look = f"#!/bin/sh\n{ec2.metadata}\nuntil metadata tags/instance/run; do sleep 0.1; done\nsleep 60"
    instance = ec2.run(look)
    ec2.client.create_tags(Resources=[instance], Tags=[{"Key": "run", "Value": "digits-7"}])
    ec2.wait_for_line(instance, "digits-7")
    more = [{"Key": f"t{number}", "Value": ""} for number in range(50)]
    ec2.client.create_tags(Resources=[instance], Tags=more[:49])
    assert len(ec2.instance(instance)["Tags"]) > 50
    with pytest.raises(ClientError, match="TagLimitExceeded"):
        ec2.client.create_tags(Resources=[instance], Tags=more[49:])


def test_what_does_not_exist_is_not_tagged(ec2: Ec2) -> None:
    for resource, code in (("vol-0", "InvalidVolume.NotFound"), ("i-0", "InvalidInstanceID.NotFound")):
        with pytest.raises(ClientError) as refused:
            ec2.client.create_tags(Resources=[resource], Tags=[{"Key": "a", "Value": "b"}])
        assert refused.value.response["Error"]["Code"] == code


def test_keys_of_aws_are_reserved(ec2: Ec2) -> None:
    with pytest.raises(ClientError, match="reserved for internal use"):
        ec2.client.create_tags(Resources=[ec2.volume()], Tags=[{"Key": "aws:mine", "Value": "b"}])


@pytest.mark.parametrize("key", ["cost/center", "cost center", "_index", ".."])
def test_keys_that_the_metadata_cannot_show_are_refused_where_it_shows_tags(key: str) -> None:
    check_tags({key: "vision"}, in_metadata=False)
    with pytest.raises(Ec2Error, match="is not a valid tag key"):
        check_tags({key: "vision"}, in_metadata=True)
    check_tags({"cost:center": "vision"}, in_metadata=True)


def test_a_fleet_whose_instances_cannot_have_their_tags_launches_none_and_says_why(ec2: Ec2) -> None:
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "cost/center", "Value": "vision"}]}]
    fleet = ec2.fleet(ec2.template(TagSpecifications=tags))

    def why() -> str:
        records = ec2.client.describe_fleet_history(FleetId=fleet, StartTime="2020-01-01T00:00:00Z")["HistoryRecords"]
        return " ".join(record["EventInformation"].get("EventDescription", "") for record in records)

    ec2.wait_until(lambda: "'cost/center' is not a valid tag key" in why())
    assert ec2.active(fleet) == []
    ec2.client.delete_fleets(FleetIds=[fleet], TerminateInstances=True)
