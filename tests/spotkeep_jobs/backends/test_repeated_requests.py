"""What a client sends again, where no answer came, carries the token of the first: AWS makes nothing of it twice.

Emulators pass over the tokens of some calls (RunInstances and CreateVolume of moto 5.2.5 and ministack 1.5.33), so the
requests themselves are looked at. Those of instances are in `tests/spotkeep_agent/aws/test_volumes.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs

import boto3
import pytest
from botocore.exceptions import BotoCoreError, ConnectionClosedError

from spotkeep_jobs.backends.batch.api import ServiceJobsApi
from spotkeep_jobs.backends.batch.service_job import submission_of
from spotkeep_jobs.backends.ec2.ec2_api import Ec2Api
from spotkeep_jobs.backends.ec2.launch import create_fleet_request
from spotkeep_jobs.backends.sagemaker.api import CREATE_ATTEMPTS, client_config
from spotkeep_jobs.errors import AwsBusyError
from spotkeep_jobs.pools.scheduler_api import OneTimeSchedules, ScheduleNotMadeError
from spotkeep_jobs.pools.warm_pool import PlannedSchedule
from spotkeep_jobs.record.table_client import TableClient
from tests.models.deployment import TARGET
from tests.spotkeep_jobs.backends.batch.test_attempt_view import PLACE, REQUEST
from tests.spotkeep_jobs.backends.ec2.test_requests import launched

IN_AN_HOUR = PlannedSchedule(name="pool-1", at=datetime(2026, 11, 29, tzinfo=UTC), payload={})


def creates_a_fleet(client: Any) -> None:
    Ec2Api(lambda: client).create_fleet(create_fleet_request(launched(), template_version="7"))


def submits_a_service_job(client: Any) -> None:
    ServiceJobsApi(lambda: client).submit(submission_of(REQUEST, place=PLACE, deployment="spotkeep"))


def makes_a_schedule(client: Any) -> None:
    OneTimeSchedules(client, target=TARGET).create(IN_AN_HOUR)


def writes_a_transaction(client: Any) -> None:
    table = TableClient(client=client, table_name="runs")
    table.transact([table.put({"pk": "run#digits", "sk": "item"})])


@pytest.mark.parametrize(
    ("service", "call", "token"),
    [
        ("ec2", creates_a_fleet, "ClientToken"),
        ("batch", submits_a_service_job, "clientToken"),
        ("scheduler", makes_a_schedule, "ClientToken"),
        ("dynamodb", writes_a_transaction, "ClientRequestToken"),
    ],
)
def test_every_try_of_a_call_that_makes_something_has_the_same_token(
    monkeypatch: pytest.MonkeyPatch, service: str, call: Callable[[Any], None], token: str
) -> None:
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _seconds: None)
    client = boto3.client(  # type: ignore[call-overload]
        service, region_name="us-east-1", config=client_config(),
        aws_access_key_id="test", aws_secret_access_key="test",
    )  # fmt: skip
    sent: list[str] = []

    def no_answer(request: Any, **_event: Any) -> None:
        body = request.body if isinstance(request.body, str) else request.body.decode()
        sent.append(parse_qs(body)[token][0] if service == "ec2" else json.loads(body)[token])
        raise ConnectionClosedError(endpoint_url=request.url)

    client.meta.events.register("before-send", no_answer)
    with pytest.raises((AwsBusyError, ScheduleNotMadeError, BotoCoreError)):
        call(client)
    assert len(sent) == CREATE_ATTEMPTS
    assert len(set(sent)) == 1
    assert sent[0]
