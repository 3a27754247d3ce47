"""What reads the account, on real clients of the local AWS: objects by run, versions, pools."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spotkeep_cli.aws.stored_objects import versions_by_run
from spotkeep_jobs.backends.sagemaker.api import SageMakerTrainingJobs
from spotkeep_jobs.orphans.sources import RunObjects, StoredRun


@pytest.fixture
def bucket(local_aws: Any) -> Iterator[tuple[Any, str]]:
    client, name = local_aws.session().client("s3"), f"runs-{uuid.uuid4().hex[:8]}"
    client.create_bucket(Bucket=name)
    client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    for key, length in (("runs/a/checkpoints/step-1/data", 30), ("sources/a/x.tgz", 5), ("runs/ab/output/m", 7)):
        client.put_object(Bucket=name, Key=key, Body=b"x" * length)
    client.put_object(Bucket=name, Key="elsewhere/runs/c/x", Body=b"x")
    return client, name


def test_objects_are_found_and_measured_by_run(bucket: tuple[Any, str]) -> None:
    client, name = bucket
    objects = RunObjects(client, bucket=name)
    first, other = StoredRun(run="a", prefix="runs/a/"), StoredRun(run="ab", prefix="runs/ab/")
    source = StoredRun(run="a", prefix="sources/a/")
    stored = objects.stored(first)
    assert stored is not None
    assert (stored.stored_bytes, stored.objects) == (30, 1)
    assert abs(datetime.now(UTC) - stored.newest_at) < timedelta(minutes=1)
    assert objects.uri(first) == f"s3://{name}/runs/a/"
    assert objects.uri(source) == f"s3://{name}/sources/a/"
    assert list(objects.runs()) == [first, other, source], "a name that begins the same is another run"


def test_what_isolated_teams_store_is_found_where_it_is_looked_for(bucket: tuple[Any, str]) -> None:
    client, name = bucket
    for team in ("vision", "speech"):
        client.put_object(Bucket=name, Key=f"teams/{team}/runs/a/output/m", Body=b"x" * 11)
    objects = RunObjects(client, bucket=name, isolated_teams=("vision",))
    theirs = StoredRun(run="a", prefix="teams/vision/runs/a/")
    assert list(objects.runs())[-1] == theirs
    assert objects.uri(theirs) == f"s3://{name}/teams/vision/runs/a/"
    stored = objects.stored(theirs)
    assert stored is not None
    assert stored.stored_bytes == 11


def test_what_was_deleted_is_still_stored_until_the_bucket_lets_it_go(bucket: tuple[Any, str]) -> None:
    client, name = bucket
    client.put_object(Bucket=name, Key="runs/ab/output/m", Body=b"x" * 11)
    client.delete_object(Bucket=name, Key="sources/a/x.tgz")
    sizes = sorted((version.run, version.size) for version in versions_by_run(client, bucket=name))
    assert sizes == [("a", 5), ("a", 30), ("ab", 7), ("ab", 11)]


def test_an_account_without_pools_has_none_that_wait(local_aws: Any) -> None:
    jobs = SageMakerTrainingJobs(local_aws.session().client("sagemaker"))
    assert list(jobs.with_waiting_pool(since=datetime.now(UTC) + timedelta(days=1))) == []
