"""Which pool a job would take: AWS's criteria, each by its name, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spotkeep_jobs.backends.sagemaker.training_job import traits_of
from spotkeep_jobs.pools.matching import differences, match
from spotkeep_jobs.record.record import PoolAskedToEnd
from spotkeep_jobs.record.states import PoolEndReason, PoolState

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
OTHERS: dict[str, dict[str, Any]] = {
    "RoleArn": {"RoleArn": "arn:aws:iam::123456789012:role/team-b"},
    "ResourceConfig.InstanceCount": {"ResourceConfig": {"InstanceCount": 1}},
    "ResourceConfig.InstanceType": {"ResourceConfig": {"InstanceType": "ml.m5.large"}},
    "ResourceConfig.VolumeKmsKeyId": {"ResourceConfig": {"VolumeKmsKeyId": None}},
    "ResourceConfig.VolumeSizeInGB": {"ResourceConfig": {"VolumeSizeInGB": 31}},
    "VpcConfig.SecurityGroupIds": {"VpcConfig": {"SecurityGroupIds": ["sg-2"]}},
    "VpcConfig.Subnets": {"VpcConfig": {"Subnets": ["subnet-1"]}},
    "EnableInterContainerTrafficEncryption": {"EnableInterContainerTrafficEncryption": True},
    "EnableNetworkIsolation": {"EnableNetworkIsolation": True},
    "SessionChainingConfig.EnableSessionTagChaining": {"SessionChainingConfig": {"EnableSessionTagChaining": True}},
}
"""What another job asks for, by the criterion that tells them apart."""


@pytest.fixture(scope="module")
def pooled(make: Any) -> dict[str, Any]:
    """The request whose job left the pool."""
    request: dict[str, Any] = make.pool_request()
    return request


def changed(request: dict[str, Any], *changes: dict[str, Any]) -> dict[str, Any]:
    """The request with other values, of its parts' parts too."""
    for change in changes:
        for part, value in change.items():
            request = request | {part: request.get(part, {}) | value if isinstance(value, dict) else value}
    return request


@pytest.mark.parametrize("criterion", OTHERS)
def test_each_criterion_alone_keeps_a_job_from_a_pool_and_is_named(
    make: Any, pooled: dict[str, Any], criterion: str
) -> None:
    [found] = match(changed(pooled, OTHERS[criterion]), pools=[make.pool()], now=NOON)
    assert not found.fits
    assert [each.criterion for each in found.differences] == [criterion]
    assert found.differences[0].wanted != found.differences[0].offered


def test_every_criterion_that_differs_is_named(make: Any, pooled: dict[str, Any]) -> None:
    [found] = match(changed(pooled, *OTHERS.values()), pools=[make.pool()], now=NOON)
    assert {each.criterion for each in found.differences} == set(OTHERS)


def test_what_does_not_matter_does_not_matter(make: Any, pooled: dict[str, Any]) -> None:
    other = {
        "AlgorithmSpecification": {"TrainingImage": "another"},
        "HyperParameters": {"lr": "0.1"},
        "Environment": {"A": "1"},
        "Tags": [{"Key": "owner", "Value": "grace"}],
        "ResourceConfig": pooled["ResourceConfig"] | {"KeepAlivePeriodInSeconds": 0},
        "VpcConfig": {"Subnets": ["subnet-2", "subnet-1"], "SecurityGroupIds": ["sg-1"]},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
    }
    [found] = match(pooled | other, pools=[make.pool(owner="ada")], now=NOON)
    assert found.fits


def test_a_spot_job_takes_no_pool(make: Any, pooled: dict[str, Any]) -> None:
    [found] = match(pooled | {"EnableManagedSpotTraining": True}, pools=[make.pool()], now=NOON)
    assert [each.criterion for each in found.differences] == ["EnableManagedSpotTraining"]


def test_a_job_that_names_several_types_is_not_taken_for_one_that_names_one(make: Any, pooled: dict[str, Any]) -> None:
    resources = {name: value for name, value in pooled["ResourceConfig"].items() if name != "InstanceType"}
    several = [{"InstanceType": "ml.m5.xlarge"}, {"InstanceType": "ml.m5.2xlarge"}]
    [found] = match(
        pooled | {"ResourceConfig": resources | {"InstancePreferences": several}}, pools=[make.pool()], now=NOON
    )
    [difference] = found.differences
    assert difference.wanted == "ml.m5.xlarge or ml.m5.2xlarge"


def test_a_described_job_that_named_several_has_the_one_it_got(pooled: dict[str, Any]) -> None:
    resources = {"InstancePreferences": [{"InstanceType": "ml.m5.2xlarge"}, {"InstanceType": "ml.m5.xlarge"}]}
    described = pooled | {
        "ResourceConfig": resources
        | {"SelectedInstanceType": "ml.m5.xlarge", "SelectedInstanceCount": 2, "VolumeSizeInGB": 30}
    }
    traits = traits_of(described)
    assert traits is not None
    assert (traits.instance_type, traits.instance_count) == ("ml.m5.xlarge", 2)


def test_a_heterogeneous_cluster_has_no_pool(make: Any, pooled: dict[str, Any]) -> None:
    cluster = {"InstanceGroups": [{"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "InstanceGroupName": "a"}]}
    request = pooled | {"ResourceConfig": cluster}
    assert traits_of(request) is None
    [found] = match(request, pools=[make.pool()], now=NOON)
    assert not found.fits


@pytest.mark.parametrize(
    "gone",
    [
        {"state": PoolState.REUSED},
        {"state": PoolState.ENDED},
        {"kept_until": NOON},
        {"asked_to_end": PoolAskedToEnd(at=NOON, reason=PoolEndReason.STOPPED_BY_USER)},
    ],
)
def test_a_pool_that_is_over_or_ending_is_left_out(make: Any, pooled: dict[str, Any], gone: dict[str, Any]) -> None:
    assert match(pooled, pools=[make.pool(**gone)], now=NOON) == []


def test_those_it_would_take_come_first_and_the_longest_kept_before_others(make: Any, pooled: dict[str, Any]) -> None:
    short = make.pool(job_name="short")
    long = make.pool(job_name="long", kept_until=NOON + timedelta(hours=1))
    near = make.pool(changed(pooled, OTHERS["RoleArn"]), job_name="near")
    found = match(pooled, pools=[near, short, long], now=NOON)
    assert [each.pool.job_name for each in found] == ["long", "short", "near"]


def test_a_difference_reads_as_a_sentence(pooled: dict[str, Any]) -> None:
    traits = traits_of(pooled)
    assert traits is not None
    [difference] = differences(wanted=traits.model_copy(update={"volume_size_gb": 50}), offered=traits)
    assert str(difference) == "ResourceConfig.VolumeSizeInGB: the job asks for 50 GB, the pool has 30 GB"
