"""A stack has security groups with rules that are resources of their own, placement groups, and a network in use."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from .conftest import wait_until

if TYPE_CHECKING:
    from spotkeep_local.lifecycle import LocalAws

    from .conftest import Ec2

ITSELF = {"Fn::GetAtt": ["Group", "GroupId"]}
ALL_TRAFFIC = {"GroupId": ITSELF, "IpProtocol": "-1"}
STACK: dict[str, Any] = {
    "Parameters": {"Strategy": {"Type": "String", "Default": "cluster"}, "Words": {"Type": "String", "Default": "a"}},
    "Resources": {
        "Group": {
            "Type": "AWS::EC2::SecurityGroup",
            "Properties": {
                "GroupDescription": "nodes",
                "SecurityGroupEgress": [{"CidrIp": "255.255.255.255/32", "IpProtocol": "icmp"}],
            },
        },
        "In": {
            "Type": "AWS::EC2::SecurityGroupIngress",
            "Properties": {**ALL_TRAFFIC, "SourceSecurityGroupId": ITSELF, "Description": {"Ref": "Words"}},
        },
        "Out": {
            "Type": "AWS::EC2::SecurityGroupEgress",
            "Properties": {**ALL_TRAFFIC, "DestinationSecurityGroupId": ITSELF},
        },
        "Close": {
            "Type": "AWS::EC2::PlacementGroup",
            "Properties": {"Strategy": {"Ref": "Strategy"}, "Tags": [{"Key": "of", "Value": "nodes"}]},
        },
    },
    "Outputs": {"Group": {"Value": ITSELF}, "Close": {"Value": {"Ref": "Close"}}},
}


def test_rules_and_placement_groups_come_change_and_go_with_their_stack(local_aws: LocalAws) -> None:
    cloudformation, ec2 = (local_aws.session().client(name) for name in ("cloudformation", "ec2"))
    stack = f"groups-{uuid.uuid4().hex[:8]}"

    def settled(status: str) -> tuple[dict[str, Any], dict[str, Any]]:
        def now() -> dict[str, Any]:
            described: dict[str, Any] = cloudformation.describe_stacks(StackName=stack)["Stacks"][0]
            assert "ROLLBACK" not in described["StackStatus"], cloudformation.describe_stack_events(StackName=stack)
            return described

        wait_until(lambda: now()["StackStatus"] == status)
        outputs = {each["OutputKey"]: each["OutputValue"] for each in now()["Outputs"]}
        [group] = ec2.describe_security_groups(GroupIds=[outputs["Group"]])["SecurityGroups"]
        [placement] = [
            each
            for each in ec2.describe_placement_groups()["PlacementGroups"]
            if each["GroupName"].startswith(f"{stack}-")
        ]
        assert placement["GroupName"] == outputs["Close"]
        return group, placement

    def change(**parameters: str) -> None:
        given = [{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()]
        cloudformation.update_stack(StackName=stack, UsePreviousTemplate=True, Parameters=given)

    cloudformation.create_stack(StackName=stack, TemplateBody=json.dumps(STACK))
    group, placement = settled("CREATE_COMPLETE")
    [inward] = group["IpPermissions"]
    outward = [rule for rule in group["IpPermissionsEgress"] if rule["IpProtocol"] == "-1"]
    assert [[pair["GroupId"] for pair in rule["UserIdGroupPairs"]] for rule in (inward, *outward)] == [
        [group["GroupId"]],
        [group["GroupId"]],
    ]
    assert inward["UserIdGroupPairs"][0]["Description"] == "a"
    assert (placement["Strategy"], placement["Tags"]) == ("cluster", [{"Key": "of", "Value": "nodes"}])

    change(Words="b", Strategy="cluster")
    changed, same = settled("UPDATE_COMPLETE")
    assert [rule["UserIdGroupPairs"][0]["Description"] for rule in changed["IpPermissions"]] == ["b"]
    assert changed["IpPermissionsEgress"] == group["IpPermissionsEgress"]
    assert same == placement, "an unchanged resource is left alone"

    change(Words="b", Strategy="spread")
    _, another = settled("UPDATE_COMPLETE")
    assert another["Strategy"] == "spread"
    assert another["GroupName"] != placement["GroupName"]

    cloudformation.delete_stack(StackName=stack)
    wait_until(
        lambda: (
            not [
                each
                for each in ec2.describe_placement_groups()["PlacementGroups"]
                if each["GroupName"].startswith(f"{stack}-")
            ]
        )
    )


NETWORK: dict[str, Any] = {
    "Resources": {
        "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.9.0.0/16"}},
        "Subnet": {
            "Type": "AWS::EC2::Subnet",
            "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "10.9.0.0/24", "AvailabilityZone": "us-east-1a"},
        },
    },
    "Outputs": {"Subnet": {"Value": {"Ref": "Subnet"}}},
}


@pytest.mark.long
def test_a_network_is_deleted_when_no_instance_is_in_it(local_aws: LocalAws, ec2: Ec2) -> None:
    cloudformation = local_aws.session().client("cloudformation")
    stack = f"network-{uuid.uuid4().hex[:8]}"

    def described() -> dict[str, Any]:
        found: dict[str, Any] = cloudformation.describe_stacks(StackName=stack_id)["Stacks"][0]
        return found

    stack_id = cloudformation.create_stack(StackName=stack, TemplateBody=json.dumps(NETWORK))["StackId"]
    wait_until(lambda: described()["StackStatus"] == "CREATE_COMPLETE")
    subnet = described()["Outputs"][0]["OutputValue"]
    override = {"InstanceType": "m5.large", "SubnetId": subnet}
    specification = {"LaunchTemplateId": ec2.template(), "Version": "$Latest"}
    fleet = ec2.client.create_fleet(
        Type="maintain",
        LaunchTemplateConfigs=[{"LaunchTemplateSpecification": specification, "Overrides": [override]}],
        TargetCapacitySpecification={"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "spot"},
    )["FleetId"]
    [instance] = wait_until(lambda: ec2.active(fleet))
    cloudformation.delete_stack(StackName=stack)
    assert wait_until(lambda: described()["StackStatus"]) == "DELETE_IN_PROGRESS"
    ec2.client.delete_fleets(FleetIds=[fleet], TerminateInstances=True)
    wait_until(lambda: described()["StackStatus"] == "DELETE_COMPLETE")
    assert ec2.state(instance) == "terminated"
