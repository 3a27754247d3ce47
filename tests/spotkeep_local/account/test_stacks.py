"""A resource's properties become a request: the model says what is a member, a key of a map, or a number."""

from __future__ import annotations

from typing import Any

import pytest

from spotkeep_local.account.stacks import as_request

SHARE = {"ShareIdentifier": "research", "WeightFactor": "0.5"}
QUEUE = {
    "JobQueueName": "trainings",
    "Priority": "10",
    "ServiceEnvironmentOrder": [{"Order": "1", "ServiceEnvironment": "environment"}],
    "Tags": {"Team": "a", "Year": 2026},
}


@pytest.mark.parametrize(
    ("operation", "properties", "request_"),
    [
        (
            "CreateJobQueue",
            QUEUE,
            {
                "jobQueueName": "trainings",
                "priority": 10,
                "serviceEnvironmentOrder": [{"order": 1, "serviceEnvironment": "environment"}],
                "tags": {"Team": "a", "Year": "2026"},
            },
        ),
        (
            "CreateSchedulingPolicy",
            {"FairsharePolicy": {"ShareDistribution": [SHARE]}},
            {"fairsharePolicy": {"shareDistribution": [{"shareIdentifier": "research", "weightFactor": 0.5}]}},
        ),
        # What the operation does not know is its own to refuse.
        ("CreateJobQueue", {"Colour": {"Of": 1}, "Tags": []}, {"colour": {"Of": 1}, "tags": []}),
    ],
)
def test_names_and_numbers_are_those_of_the_operation(
    operation: str, properties: dict[str, Any], request_: dict[str, Any]
) -> None:
    assert as_request(properties, service="batch", operation=operation) == request_
