"""Queues of AWS Batch: what the setting makes, who may submit to them, and that nothing is there without it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App, Stack
from aws_cdk.assertions import Template

from spotkeep_constructs.queues import JobQueues
from spotkeep_constructs.settings import Settings, SettingsError

from .test_permissions import listed, statements_of

if TYPE_CHECKING:
    from .conftest import Templates

BATCH = "AWS::Batch::"


def problem_of(queues: Any, **settings: Any) -> str:
    with pytest.raises(SettingsError) as refused:
        Settings.from_context({"spotkeep": {"queues": queues, **settings}})
    (problem,) = refused.value.problems
    return str(problem)


def a_queue(**changed: Any) -> dict[str, Any]:
    return {"gpu": {"types": {"ml.g5.xlarge": 4}, "shares": {"vision": {"types": {"ml.g5.xlarge": 4}}}, **changed}}


def test_without_the_setting_there_is_no_queue_and_no_permission_of_batch(templates: Templates) -> None:
    assert not [
        resource["Type"]
        for template in templates.by_stack.values()
        for resource in template["Resources"].values()
        if resource["Type"].startswith(BATCH)
    ]
    assert '"batch:' not in str(templates.by_stack).replace("'", '"')
    assert "aws.batch" not in str(templates.by_stack)


def test_a_queue_is_an_environment_with_its_limits_and_a_job_queue_that_shares_them(
    templates_with_everything: Templates,
) -> None:
    of = templates_with_everything
    environment = of.only(f"{BATCH}ServiceEnvironment")
    assert environment["ServiceEnvironmentType"] == "SAGEMAKER_TRAINING"
    assert environment["CapacityLimits"] == [{"CapacityUnit": "ml.g5.2xlarge", "MaxCapacity": 20}]
    queue = of.only(f"{BATCH}JobQueue")
    assert (queue["JobQueueName"], queue["JobQueueType"]) == ("lab_gpu", "SAGEMAKER_TRAINING")
    assert of.only(f"{BATCH}SchedulingPolicy")["QuotaSharePolicy"] == {"IdleResourceAssignmentStrategy": "FIFO"}
    assert queue["SchedulingPolicyArn"]["Fn::GetAtt"][0].startswith("Queues")
    assert queue["ServiceEnvironmentOrder"][0]["Order"] == 1


def test_nothing_is_ended_at_the_front_of_a_queue_unless_the_settings_ask_for_it(
    templates_with_everything: Templates,
) -> None:
    assert "JobStateTimeLimitActions" not in templates_with_everything.only(f"{BATCH}JobQueue")


@pytest.mark.parametrize(
    ("asked", "reasons"),
    [
        ({}, []),
        (
            {"never_fits_limit": "1h"},
            [
                "MISCONFIGURATION:SERVICE_ENVIRONMENT_MAX_RESOURCE",
                "MISCONFIGURATION:QUOTA_MANAGEMENT_LIMIT_EXCEEDED",
            ],
        ),
        ({"no_capacity_limit": 3600}, ["CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY"]),
    ],
)
def test_a_limit_at_the_front_is_for_its_reason_alone(asked: dict[str, Any], reasons: list[str]) -> None:
    """What waits for capacity is not ended by the limit of what can never have its turn."""
    stack = Stack(App(), "Some")
    JobQueues(
        stack, "Queues", deployment="lab", queues=Settings.from_context({"queues": json.dumps(a_queue(**asked))}).queues
    )
    (queue,) = Template.from_stack(stack).find_resources(f"{BATCH}JobQueue").values()
    actions = queue["Properties"].get("JobStateTimeLimitActions", [])
    assert [each["Reason"] for each in actions] == reasons
    assert all(
        (each["Action"], each["State"], each["MaxTimeSeconds"]) == ("TERMINATE", "RUNNABLE", 3600) for each in actions
    )


def test_a_share_has_its_instances_and_says_what_it_lends_and_borrows(templates_with_everything: Templates) -> None:
    shares = {
        share["Properties"]["QuotaShareName"]: share["Properties"]
        for share in templates_with_everything.resources(f"{BATCH}QuotaShare").values()
    }
    assert shares["vision"]["CapacityLimits"] == [{"CapacityUnit": "ml.g5.2xlarge", "MaxCapacity": 12}]
    assert shares["vision"]["ResourceSharingConfiguration"] == {"Strategy": "LEND_AND_BORROW", "BorrowLimit": 50}
    assert shares["vision"]["PreemptionConfiguration"] == {"InSharePreemption": "ENABLED"}
    assert shares["nlp"]["ResourceSharingConfiguration"] == {"Strategy": "LEND"}
    assert shares["nlp"]["PreemptionConfiguration"] == {"InSharePreemption": "DISABLED"}


def test_the_launcher_alone_changes_priorities_and_users_reach_batch_not_at_all(
    templates_with_everything: Templates,
) -> None:
    def actions(principal: str) -> set[str]:
        statements = statements_of(templates_with_everything, principal)
        return {action for each in statements for action in listed(each["Action"]) if action.startswith("batch:")}

    assert "batch:UpdateServiceJob" in actions("Launcher")
    assert "batch:UpdateServiceJob" not in actions("Controller")
    assert actions("Users") == set()


def test_queues_stay_until_nothing_runs_any_more(templates_with_everything: Templates) -> None:
    """The stack with the queues goes after the one whose custom resource stops the runs."""
    assert templates_with_everything.resources(f"{BATCH}JobQueue", stack="Jobs")
    assert templates_with_everything.resources("Custom::SpotkeepRunShutdown", stack="Events")


@pytest.mark.parametrize(
    ("queues", "said"),
    [
        ({"GPU": a_queue()["gpu"]}, "is not a name"),
        (a_queue(types={"g5.xlarge": 4}), "is not a SageMaker instance type"),
        (a_queue(types={"ml.g5.xlarge": 0}), "is out of range: 1 to 10000 are allowed"),
        (a_queue(types={"ml.g5.xlarge": 3}), "gives its shares 4 of ml.g5.xlarge and has 3"),
        (
            a_queue(types={"ml.m5.xlarge": 4}),
            "has a share vision of ml.g5.xlarge, which is not among the queue's types",
        ),
        (a_queue(shares={}), "queues.gpu.shares"),
        (a_queue(share={}), "Did you mean `shares`?"),
        (
            a_queue(shares={"vision": {"types": {"ml.g5.xlarge": 4}, "lending": "lend", "borrow_limit_percent": 5}}),
            "has a borrow_limit_percent with lending lend, which borrows nothing",
        ),
        (a_queue(never_fits_limit="5m"), "is out of range (5m): 10m to 1d are allowed"),
        (a_queue(no_capacity_limit="2d"), "is out of range (2d): 10m to 1d are allowed"),
        ('{"gpu"', "is not a JSON object"),
    ],
)
def test_a_queue_that_cannot_be_is_refused_with_what_to_do(queues: Any, said: str) -> None:
    assert said in problem_of(queues)


def test_a_queue_has_allowed_instance_types_alone() -> None:
    said = problem_of(a_queue(), allowed_instance_types=["ml.m5.*", "m5*", "m6*", "m7*"])
    assert "names ml.g5.xlarge, which allowed_instance_types does not allow" in said


def test_the_command_line_gives_queues_as_json() -> None:
    settings = Settings.from_context(
        {"queues": '{"gpu": {"types": {"ml.g5.xlarge": 4}, "shares": {"all": {"types": {"ml.g5.xlarge": 4}}}}}'}
    )
    assert settings.queues["gpu"].shares["all"].lending == "lend-and-borrow"
    assert Settings.from_context({"queues": ""}).queues == {}
