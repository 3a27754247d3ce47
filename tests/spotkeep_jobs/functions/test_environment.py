"""What a function reads from its environment, shown with the controller's."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from spotkeep_jobs.document.deployment_facts import PoolRules
from spotkeep_jobs.functions.environment import ControllerEnvironment

ENVIRONMENT = {
    "SPOTKEEP_DEPLOYMENT": "spotkeep",
    "SPOTKEEP_RUN_TABLE": "runs",
    "SPOTKEEP_TRAINING_BUNDLE_URI": "s3://checkpoints/bundles/0123/spotkeep.pyz",
    "SPOTKEEP_TRAINING_BUNDLE_ASSET_URI": "s3://assets/4567.pyz",
    "SPOTKEEP_NOTIFICATION_TOPIC_ARN": "arn:aws:sns:us-east-1:123456789012:notifications",
    "SPOTKEEP_DEAD_NOTIFICATION_QUEUE_URL": "https://sqs.us-east-1.amazonaws.com/123456789012/dead-notifications",
    "SPOTKEEP_SCHEDULE_GROUP": "spotkeep-pools",
    "SPOTKEEP_SCHEDULE_ROLE_ARN": "arn:aws:iam::123456789012:role/schedules",
    "SPOTKEEP_SCHEDULE_DEAD_LETTER_ARN": "arn:aws:sqs:us-east-1:123456789012:failures",
    "SPOTKEEP_LAUNCHER_FUNCTION": "spotkeep-launcher",
    "SPOTKEEP_SCHEDULE_FUNCTION_ARN": "arn:aws:lambda:us-east-1:123456789012:function:spotkeep-controller",
    "SPOTKEEP_CHECKPOINT_BUCKET": "checkpoints",
}


@pytest.mark.parametrize(
    ("written", "prices"), [('{"ml.m5.xlarge": 0.23}', {"ml.m5.xlarge": 0.23}), ("", {})], ids=["set", "empty"]
)
def test_they_are_read_from_the_environment_and_an_empty_one_counts_as_unset(
    written: str, prices: dict[str, float]
) -> None:
    settings = ControllerEnvironment.from_environment(ENVIRONMENT | {"SPOTKEEP_PRICES": written})
    assert (settings.deployment, settings.prices) == ("spotkeep", prices)


def test_the_rules_for_pools_are_settings() -> None:
    assert ControllerEnvironment.from_environment(ENVIRONMENT).pool_rules == PoolRules(reminder_lead_seconds=600)
    rules = {"SPOTKEEP_POOL_REMINDER_SECONDS": "0", "SPOTKEEP_POOL_IDLE_LIMIT_SECONDS": "1800"}
    assert ControllerEnvironment.from_environment(ENVIRONMENT | rules).pool_rules == PoolRules(
        reminder_lead_seconds=0, idle_limit_seconds=1800
    )


def test_every_wrong_or_missing_one_is_named_at_once() -> None:
    wrong = {"SPOTKEEP_DEPLOYMENT": "Not Me", "SPOTKEEP_PRICES": "cheap", "SPOTKEEP_ORPHANS": "no"}
    with pytest.raises(ValidationError) as refused:
        ControllerEnvironment.from_environment(wrong)
    fields = {error["loc"][0] for error in refused.value.errors()}
    required = {name.removeprefix("SPOTKEEP_").lower() for name in ENVIRONMENT}
    assert fields == {*required, "prices", "orphans"}
