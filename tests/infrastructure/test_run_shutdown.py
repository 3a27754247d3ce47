"""What CloudFormation deletes first, and what it keeps until that is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .test_permissions import listed, statements_of, text_of

if TYPE_CHECKING:
    from .conftest import Templates


FOR_OPERATORS = ("NotificationsTopicsOperations", "NotificationsUndelivered")
"""What only keeps for a person what went wrong."""


def shutdown_of(templates: Templates) -> dict[str, Any]:
    (resource,) = templates.resources("Custom::SpotkeepRunShutdown").values()
    return resource


def test_the_controller_ends_what_runs_and_cloudformation_waits_for_an_hour(templates: Templates) -> None:
    properties = shutdown_of(templates)["Properties"]
    assert text_of(properties["ServiceToken"]).startswith("<ControllerFunction")
    assert properties["ServiceTimeout"] == "3600"


def test_all_that_stops_reconciles_and_notifies_stays_until_then(templates: Templates) -> None:
    needed = set(shutdown_of(templates)["DependsOn"])
    kinds = {
        "AWS::Lambda::EventSourceMapping",
        "AWS::Scheduler::Schedule",
        "AWS::Scheduler::ScheduleGroup",
        "AWS::Events::Rule",
        "AWS::SQS::QueuePolicy",
        "AWS::IAM::ManagedPolicy",
        "AWS::SNS::Topic",
    }
    for kind in kinds:
        names = {name for name in templates.resources(kind, stack="Events") if not name.startswith(FOR_OPERATORS)}
        assert names, kind
        assert names <= needed, kind
    policies = {
        name for name in templates.resources("AWS::IAM::Policy", stack="Events") if name.startswith("Controller")
    }
    assert policies
    assert policies <= needed


def test_it_may_describe_its_own_stack_alone(templates: Templates) -> None:
    (statement,) = (
        each
        for each in statements_of(templates, "Controller")
        if "cloudformation:DescribeStacks" in listed(each["Action"])
    )
    assert statement["Resource"] == {"Ref": "AWS::StackId"}
