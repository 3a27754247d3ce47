"""The launcher's environment: every variable that the construct sets is read, every wrong one is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from launcher.settings import LauncherSettings
from spotkeep_jobs.document.deployment_facts import SpendingLimits

REQUIRED = {
    "SPOTKEEP_DEPLOYMENT": "spotkeep",
    "SPOTKEEP_RUN_TABLE": "runs",
    "SPOTKEEP_CHECKPOINT_BUCKET": "checkpoints",
    "SPOTKEEP_EXECUTION_ROLE_ARN": "arn:aws:iam::123456789012:role/execution",
    "SPOTKEEP_TRAINING_BUNDLE_URI": "s3://checkpoints/bundles/0123/spotkeep.pyz",
    "SPOTKEEP_TRAINING_BUNDLE_ASSET_URI": "s3://assets/4567.pyz",
    "SPOTKEEP_SCHEDULE_GROUP": "spotkeep-launches",
    "SPOTKEEP_SCHEDULE_ROLE_ARN": "arn:aws:iam::123456789012:role/schedules",
    "SPOTKEEP_SCHEDULE_DEAD_LETTER_ARN": "arn:aws:sqs:us-east-1:123456789012:failures",
    "SPOTKEEP_SCHEDULE_FUNCTION_ARN": "arn:aws:lambda:us-east-1:123456789012:function:spotkeep-launcher",
}


def test_what_is_required_is_enough() -> None:
    settings = LauncherSettings.from_environment(REQUIRED)
    assert settings.platform.checkpoint_bucket == "checkpoints"
    assert settings.platform.subnet_ids == ()
    assert settings.defaults.image is None
    assert settings.defaults.data_locations == ()
    assert settings.prices == {}
    assert settings.schedule_target.group == "spotkeep-launches"


def test_everything_is_read() -> None:
    settings = LauncherSettings.from_environment(
        REQUIRED
        | {
            "SPOTKEEP_DEFAULT_IMAGE": "image",
            "SPOTKEEP_DEFAULT_INSTANCE_TYPE": "ml.g5.xlarge",
            "SPOTKEEP_VOLUME_KMS_KEY_ARN": "key",
            "SPOTKEEP_SUBNET_IDS": '["subnet-1", "subnet-2"]',
            "SPOTKEEP_SECURITY_GROUP_IDS": '["sg-1"]',
            "SPOTKEEP_MAX_RUN_LIMIT_SECONDS": "432000",
            "SPOTKEEP_PRICES": '{"ml.m5.xlarge": 0.23}',
            "SPOTKEEP_DATA_LOCATIONS": '["s3://lab-data/"]',
            "SPOTKEEP_SPENDING_LIMITS": '{"allowed_instance_types": ["ml.g5.*"], "run_cost_limit_usd": null}',
        }
    )
    assert settings.platform.subnet_ids == ("subnet-1", "subnet-2")
    assert settings.platform.security_group_ids == ("sg-1",)
    assert settings.platform.volume_kms_key_arn == "key"
    assert (settings.defaults.image, settings.defaults.instance_type) == ("image", "ml.g5.xlarge")
    assert settings.defaults.max_run_limit_seconds == 432_000
    assert settings.defaults.data_locations == ("s3://lab-data/",)
    assert settings.prices == {"ml.m5.xlarge": 0.23}
    assert settings.defaults.limits == SpendingLimits(allowed_instance_types=("ml.g5.*",))


def test_what_a_team_may_make_long_lies_beside_the_code(tmp_path: Path) -> None:
    packed = tmp_path / "variables.json"
    packed.write_text(json.dumps({"SPOTKEEP_PRICES": '{"ml.m5.xlarge": 0.23}', "SPOTKEEP_RUN_TABLE": "another"}))
    settings = LauncherSettings.from_environment(REQUIRED, packed=packed)
    assert settings.prices == {"ml.m5.xlarge": 0.23}
    assert settings.run_table == "runs", "the environment goes before the file"


def test_a_teams_role_is_named_beside_the_execution_role() -> None:
    settings = LauncherSettings.from_environment(REQUIRED | {"SPOTKEEP_TEAM_ROLES": '{"vision": "its-role"}'})
    assert settings.platform.team_role_arns == {"vision": "arn:aws:iam::123456789012:role/its-role"}
    assert settings.defaults.teams == ("vision",)


def test_every_wrong_variable_is_named() -> None:
    wrong = REQUIRED | {"SPOTKEEP_PRICES": "{", "SPOTKEEP_TRAINING_BUNDLE_URI": "bundle.pyz"}
    del wrong["SPOTKEEP_RUN_TABLE"]
    with pytest.raises(ValidationError) as caught:
        LauncherSettings.from_environment(wrong)
    assert {error["loc"][0] for error in caught.value.errors()} == {"run_table", "training_bundle_uri", "prices"}
