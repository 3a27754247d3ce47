"""The settings that the tracker and the reconciler share."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from spotkeep_jobs.tracking_functions import TrackingSettings

ENVIRONMENT = {
    "SPOTKEEP_DEPLOYMENT": "spotkeep",
    "SPOTKEEP_RUN_TABLE": "runs",
    "SPOTKEEP_NOTICE_TOPIC_ARN": "arn:aws:sns:us-east-1:123456789012:notices",
    "SPOTKEEP_PRICES": '{"ml.m5.xlarge": 0.23}',
    "SPOTKEEP_RUN_RETENTION_DAYS": "30",
    "SPOTKEEP_CHECKPOINT_BUCKET": "not-needed-here",
}


def test_they_are_read_from_the_environment() -> None:
    settings = TrackingSettings.from_environment(ENVIRONMENT)
    assert (settings.deployment, settings.run_retention_days) == ("spotkeep", 30)
    assert settings.prices == {"ml.m5.xlarge": 0.23}


def test_an_empty_variable_counts_as_unset() -> None:
    settings = TrackingSettings.from_environment(
        ENVIRONMENT | {"SPOTKEEP_PRICES": "", "SPOTKEEP_RUN_RETENTION_DAYS": ""}
    )
    assert (settings.prices, settings.run_retention_days) == ({}, 90)


def test_every_wrong_or_missing_one_is_named_at_once() -> None:
    wrong = {"SPOTKEEP_DEPLOYMENT": "Not Me", "SPOTKEEP_PRICES": "cheap", "SPOTKEEP_RUN_RETENTION_DAYS": "0"}
    with pytest.raises(ValidationError) as refused:
        TrackingSettings.from_environment(wrong)
    fields = {error["loc"][0] for error in refused.value.errors()}
    assert fields == {"deployment", "run_table", "notice_topic_arn", "run_retention_days", "prices"}
