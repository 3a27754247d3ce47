"""One-time schedules in a real scheduler: made once, deleted after they fired, refused with a reason."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from spotkeep_jobs.pools.scheduler_api import OneTimeSchedules, ScheduleNotMadeError, ScheduleTarget
from spotkeep_jobs.pools.warm_pool import PlannedSchedule
from tests.models import scheduler as scheduler_model

PLANNED = PlannedSchedule(
    name="spotkeep-expiry-0123456789abcdef01234567",
    at=datetime(2099, 1, 2, 3, 4, 5, tzinfo=UTC),
    payload={"run": "first", "attempt": 1, "firing": "expiry"},
)


def target(group: str) -> ScheduleTarget:
    return ScheduleTarget(
        group=group,
        function_arn="arn:aws:lambda:us-east-1:000000000000:function:spotkeep-controller",
        role_arn="arn:aws:iam::000000000000:role/schedules",
        dead_letter_arn="arn:aws:sqs:us-east-1:000000000000:failures",
    )


def test_a_schedule_is_made_once_in_its_group_fires_once_and_deletes_itself(local_aws: Any) -> None:
    client, group = local_aws.session().client("scheduler"), f"pools-{uuid.uuid4().hex[:8]}"
    client.create_schedule_group(Name=group)
    for _ in range(2):
        OneTimeSchedules(client, target=target(group)).create(PLANNED)
    assert len(client.list_schedules(GroupName=group)["Schedules"]) == 1
    made = client.get_schedule(Name=PLANNED.name, GroupName=group)
    assert made["ScheduleExpression"] == "at(2099-01-02T03:04:05)"
    assert made["ActionAfterCompletion"] == "DELETE"
    assert made["FlexibleTimeWindow"] == {"Mode": "OFF"}
    assert json.loads(made["Target"]["Input"]) == PLANNED.payload
    assert made["Target"]["DeadLetterConfig"] == {"Arn": target(group).dead_letter_arn}


def test_what_could_not_be_made_is_said(make: Any) -> None:
    refusing: Any = scheduler_model.Schedules(now=lambda: make.noon)
    for error in (
        make.error("CreateSchedule", "ThrottlingException"),
        EndpointConnectionError(endpoint_url="https://scheduler"),
    ):
        refusing.refuse(error)
        with pytest.raises(ScheduleNotMadeError, match="The controller reconciles the pool in its next pass"):
            OneTimeSchedules(refusing, target=target("pools")).create(PLANNED)
