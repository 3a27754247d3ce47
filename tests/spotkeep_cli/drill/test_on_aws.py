"""A drill that cannot begin. That a run comes back from one, on the local EC2 and FIS, is shown in tests/end_to_end."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from spotkeep_cli.aws.connection_options import ConnectionOptions
from spotkeep_cli.aws.deployment import DeploymentClient
from spotkeep_cli.drill.on_aws import Drill
from spotkeep_cli.errors import NoConnectionError, RefusedError
from spotkeep_fleet.instance_job import VolumeSpec
from spotkeep_fleet.record import Lease, new_record
from spotkeep_jobs.backends.ec2.fleet_table import FleetTable
from tests.models.dynamodb import InMemoryDynamoDb
from tests.models.ec2 import instance_job
from tests.models.faults import client_error
from tests.spotkeep_cli.conftest import CONNECTION


class Account:
    """EC2 with one running on-demand instance, FIS without the experiment template, and a run table."""

    def __init__(self) -> None:
        self.dynamodb = InMemoryDynamoDb()
        self.tags: list[str] = []

    def get_paginator(self, _operation: str) -> Any:
        instance = {"InstanceId": "i-1", "State": {"Name": "running"}}
        return SimpleNamespace(paginate=lambda **_: [{"Reservations": [{"Instances": [instance]}]}])

    def create_tags(self, *, Resources: list[str], Tags: list[dict[str, str]]) -> None:  # noqa: N803
        assert Resources == ["i-1"]
        self.tags += [tag["Key"] for tag in Tags]

    def delete_tags(self, *, Resources: list[str], Tags: list[dict[str, str]]) -> None:  # noqa: N803
        assert Resources == ["i-1"]
        self.tags = [name for name in self.tags if {"Key": name} not in Tags]

    def start_experiment(self, **_: Any) -> None:
        assert self.tags == ["spotkeep:drill"]
        raise client_error("StartExperiment", "ResourceNotFoundException")

    def drill(self, *, template: str = "EXT1") -> Drill:
        connection = CONNECTION.model_copy(update={"drill_template_id": template})
        clients = {"dynamodb": self.dynamodb, "ec2": self, "fis": self}
        deployment = DeploymentClient(connection=connection, client=clients.__getitem__, options=ConnectionOptions())
        return Drill(deployment, run="digits-1")


def test_what_cannot_be_drilled_is_refused_with_what_to_do() -> None:
    account = Account()
    with pytest.raises(RefusedError) as refused:
        account.drill(template="").target()
    assert "drills=true" in refused.value.hint
    with pytest.raises(RefusedError, match="no instance works on"):
        account.drill().target()
    records = FleetTable(account.dynamodb, table_name=CONNECTION.run_table, retention_days=1)  # type: ignore[arg-type]
    record = replace(new_record(run="digits-1"), lease=Lease(holder="i-1", fence=1, expires_at=0.0))
    job = instance_job(command=("true",), volume=VolumeSpec(size_gb=1))
    records.write_with_job(record, job=job, over=None, now=datetime.now(tz=UTC))
    with pytest.raises(RefusedError, match="i-1 is no spot instance"):
        account.drill().target()


def test_an_experiment_that_does_not_start_leaves_no_tag_behind() -> None:
    account = Account()
    with pytest.raises(NoConnectionError, match="starting the experiment"):
        account.drill().start("i-1", token="token")
    assert account.tags == []
