"""What instances may do, and who may do what with fleets: statement by statement, since nothing local enforces it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spotkeep_constructs.settings import MOST_ZONES

from .conftest import EVERYTHING_SET, Templates, synthesize
from .test_permissions import Statement, identity_policies, listed, statement_with, statements_of, text_of

OF_THE_DEPLOYMENT = {"aws:ResourceTag/spotkeep:deployment": "spotkeep"}
ASKED_FOR = {"aws:RequestTag/spotkeep:deployment": "spotkeep"}


def allowed(templates: Templates, principal: str, action: str) -> dict[str, dict[str, Any]]:
    """Conditions of an action by the kinds of resources they are for."""
    found: dict[str, dict[str, Any]] = {}
    for statement in statements_of(templates, principal):
        if statement["Effect"] == "Allow" and action in listed(statement["Action"]):
            for kind in set(kinds(statement)):
                assert kind not in found, f"{action} on {kind} is allowed twice"
                found[kind] = statement.get("Condition", {})
    return found


def kinds(statement: Statement) -> Iterator[str]:
    for resource in listed(statement["Resource"]):
        found = re.search(r":([a-z-]+)/", text_of(resource))
        yield found[1] if found else text_of(resource)


def null(*keys: str) -> dict[str, str]:
    return dict.fromkeys(keys, "false")


def test_users_see_of_iam_whether_fleets_and_drills_can_begin(
    templates: Templates, templates_with_everything: Templates, templates_without_fleets: Templates
) -> None:
    def seen(of: Templates) -> set[str]:
        return {
            text_of(resource).partition(":role/")[2]
            for statement in statements_of(of, "Users")
            if "iam:GetRole" in listed(statement["Action"])
            for resource in listed(statement["Resource"])
        }

    for_fleets = {
        "aws-service-role/ec2fleet.amazonaws.com/AWSServiceRoleForEC2Fleet",
        "aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot",
    }
    assert seen(templates) == for_fleets
    assert seen(templates_with_everything) == {
        *for_fleets,
        "aws-service-role/fis.amazonaws.com/AWSServiceRoleForFIS",
    }
    assert seen(templates_without_fleets) == set()


RUN = "${aws:PrincipalTag/run}"
OF_THE_RUN = {**OF_THE_DEPLOYMENT, "aws:ResourceTag/spotkeep:run": RUN}
ASKED_FOR_THE_RUN = {**ASKED_FOR, "aws:RequestTag/spotkeep:run": RUN}


class TestInstances:
    """What they may do with the credentials of their run; that nothing of another run's is among it: tests/security."""

    def test_no_other_role_deletes_volumes(self, templates_with_everything: Templates) -> None:
        deleting = {
            re.split(r"Role|Policy", name)[0]
            for name, statement in identity_policies(templates_with_everything)
            if {"ec2:DeleteVolume", "ec2:DeleteSnapshot"} & set(listed(statement["Action"]))
        }
        assert deleting == {"Run", "Controller"}

    def test_make_volumes_and_snapshots_that_are_tagged_and_encrypted(self, templates: Templates) -> None:
        tagged = {"StringEquals": ASKED_FOR_THE_RUN, "Null": null("aws:RequestTag/spotkeep:operation")}
        making = [
            (set(kinds(each)), each["Condition"])
            for each in statements_of(templates, "RunRole")
            if "ec2:CreateVolume" in listed(each["Action"])
        ]
        assert making == [
            ({"volume"}, {**tagged, "Bool": {"ec2:Encrypted": "true"}}),
            ({"snapshot"}, {"StringEquals": OF_THE_RUN}),
            (
                {"snapshot"},
                {"StringEquals": OF_THE_DEPLOYMENT, "Null": {"aws:ResourceTag/spotkeep:run": "true"}},
            ),
        ]
        assert allowed(templates, "RunRole", "ec2:CreateSnapshot") == {
            "snapshot": tagged,
            "volume": {"StringEquals": OF_THE_RUN},
        }


class TestDrills:
    def test_take_away_the_instance_that_carries_the_drills_tag(self, templates_with_everything: Templates) -> None:
        template = templates_with_everything.only("AWS::FIS::ExperimentTemplate")
        (target,) = template["Targets"].values()
        assert target == {
            "ResourceType": "aws:ec2:spot-instance",
            "SelectionMode": "COUNT(1)",
            "ResourceTags": {"spotkeep:deployment": "lab", "spotkeep:drill": "now"},
            "Filters": [{"Path": "State.Name", "Values": ["running"]}],
        }
        (action,) = template["Actions"].values()
        assert action["ActionId"] == "aws:ec2:send-spot-instance-interruptions"
        assert action["Parameters"] == {"durationBeforeInterruption": "PT2M"}

    def test_stop_when_no_controller_follows_runs(self, templates_with_everything: Templates) -> None:
        conditions = templates_with_everything.only("AWS::FIS::ExperimentTemplate")["StopConditions"]
        assert {condition["Source"] for condition in conditions} == {"aws:cloudwatch:alarm"}
        alarms = {condition["Value"]["Fn::GetAtt"][0][:-8] for condition in conditions}
        assert alarms == {"MonitoringAlarmsControllerErrors", "MonitoringAlarmsEventsWaiting"}

    def test_act_with_a_role_that_can_nothing_else(self, templates_with_everything: Templates) -> None:
        assert allowed(templates_with_everything, "MonitoringDrill", "ec2:SendSpotInstanceInterruptions") == {
            "instance": {
                "StringEquals": {
                    "aws:ResourceTag/spotkeep:deployment": "lab",
                    "aws:ResourceTag/spotkeep:drill": "now",
                },
                "Null": null("aws:ResourceTag/spotkeep:run"),
            }
        }
        actions = {
            action
            for statement in statements_of(templates_with_everything, "MonitoringDrill")
            for action in listed(statement["Action"])
        }
        assert actions == {"ec2:SendSpotInstanceInterruptions", "ec2:DescribeInstances"}

    def test_are_the_users_where_a_setting_says_so(
        self, templates: Templates, templates_with_everything: Templates
    ) -> None:
        assert not [each for each in statements_of(templates, "Users") if "fis:" in json.dumps(each["Action"])]
        assert templates.resources("AWS::FIS::ExperimentTemplate") == {}
        for kind in ("experiment-template", "experiment"):
            assert kind in allowed(templates_with_everything, "Users", "fis:StartExperiment")
        tagging = statement_with(templates_with_everything, "Users", "ec2:CreateTags")["Condition"]
        assert tagging["ForAllValues:StringEquals"] == {"aws:TagKeys": ["spotkeep:drill"]}
        assert tagging["Null"] == null("aws:ResourceTag/spotkeep:run")


def test_without_fleets_no_role_may_use_ec2(templates_without_fleets: Templates) -> None:
    actions = {
        action
        for _, statement in identity_policies(templates_without_fleets)
        for action in listed(statement["Action"])
        if action.startswith("ec2:")
    }
    # What `spotkeep plan` reads.
    assert actions == {
        "ec2:DescribeAvailabilityZones",
        "ec2:DescribeSpotPriceHistory",
        "ec2:GetSpotPlacementScores",
    }


@pytest.mark.parametrize(
    ("kind", "most_characters"), [("AWS::IAM::ManagedPolicy", 6_144), ("AWS::IAM::Policy", 10_240)]
)
def test_policies_are_short_enough_for_iam(
    templates_with_everything: Templates, kind: str, most_characters: int
) -> None:
    assert all(size < most_characters for size in sizes(templates_with_everything, kind).values())


@pytest.mark.long
def test_policies_are_short_enough_where_a_network_has_a_subnet_in_each_of_the_most_zones(tmp_path: Path) -> None:
    network = {
        "vpc_subnet_ids": [f"subnet-0bbbbbbbbbbbbbbb{number}" for number in range(MOST_ZONES)],
        "vpc_availability_zones": [f"us-west-1{letter}" for letter in "abcdefghijk"[:MOST_ZONES]],
    }
    templates = Templates.read(synthesize(tmp_path, EVERYTHING_SET | network, judged=False))
    found = sizes(templates, "AWS::IAM::ManagedPolicy")
    assert all(size < 6_144 for size in found.values()), found


def sizes(templates: Templates, kind: str) -> dict[str, int]:
    """The characters of policies, by logical id, as IAM counts them."""
    return {
        name: len(json.dumps(spelled_out(found["Properties"]["PolicyDocument"]["Statement"]), separators=(",", ":")))
        for name, found in templates.resources(kind).items()
    }


def spelled_out(value: Any) -> Any:
    """A policy as IAM counts it: what is referred to as long as it ever is."""
    longest = {
        "<AWS::Partition>": "aws-us-gov",
        "<AWS::Region>": "ap-northeast-1",
        "<AWS::AccountId>": "0" * 12,
        "<AWS::URLSuffix>": "amazonaws.com.cn",
    }
    match value:
        case {"Fn::Join": _} | {"Ref": _} | {"Fn::GetAtt": _} | {"Fn::GetStackOutput": _}:
            text = text_of(value)
            for reference, spelling in longest.items():
                text = text.replace(reference, spelling)
            return re.sub(r"<[^>]*>", "r" * 60, text)
        case dict():
            return {key: spelled_out(each) for key, each in value.items()}
        case list():
            return [spelled_out(each) for each in value]
    return value
