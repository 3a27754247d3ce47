"""Which pool a job would take: AWS's criteria, each by its name, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.decisions.pool_matching import differences, match, traits_of
from spotkeep_jobs.facts.states import PoolState

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
REQUEST: dict[str, Any] = {
    "RoleArn": "arn:aws:iam::123456789012:role/team-a",
    "ResourceConfig": {
        "InstanceType": "ml.m5.xlarge",
        "InstanceCount": 2,
        "VolumeSizeInGB": 30,
        "VolumeKmsKeyId": "arn:aws:kms:us-east-1:123456789012:key/one",
        "KeepAlivePeriodInSeconds": 1800,
    },
    "VpcConfig": {"Subnets": ["subnet-1", "subnet-2"], "SecurityGroupIds": ["sg-1"]},
    "EnableInterContainerTrafficEncryption": False,
    "EnableNetworkIsolation": False,
    "EnableManagedSpotTraining": False,
}
OTHERS: dict[str, dict[str, Any]] = {
    "RoleArn": {"RoleArn": "arn:aws:iam::123456789012:role/team-b"},
    "ResourceConfig.InstanceCount": {"ResourceConfig": REQUEST["ResourceConfig"] | {"InstanceCount": 1}},
    "ResourceConfig.InstanceType": {"ResourceConfig": REQUEST["ResourceConfig"] | {"InstanceType": "ml.m5.large"}},
    "ResourceConfig.VolumeKmsKeyId": {"ResourceConfig": REQUEST["ResourceConfig"] | {"VolumeKmsKeyId": None}},
    "ResourceConfig.VolumeSizeInGB": {"ResourceConfig": REQUEST["ResourceConfig"] | {"VolumeSizeInGB": 31}},
    "VpcConfig.SecurityGroupIds": {"VpcConfig": REQUEST["VpcConfig"] | {"SecurityGroupIds": ["sg-2"]}},
    "VpcConfig.Subnets": {"VpcConfig": REQUEST["VpcConfig"] | {"Subnets": ["subnet-1"]}},
    "EnableInterContainerTrafficEncryption": {"EnableInterContainerTrafficEncryption": True},
    "EnableNetworkIsolation": {"EnableNetworkIsolation": True},
    "SessionChainingConfig.EnableSessionTagChaining": {"SessionChainingConfig": {"EnableSessionTagChaining": True}},
}


@pytest.mark.parametrize("criterion", OTHERS)
def test_each_criterion_alone_keeps_a_job_from_a_pool_and_is_named(make: Any, criterion: str) -> None:
    [found] = match(REQUEST | OTHERS[criterion], pools=[make.pool()], now=NOON)
    assert not found.fits
    assert [each.criterion for each in found.differences] == [criterion]
    assert found.differences[0].wanted != found.differences[0].offered


@given(st.sets(st.sampled_from(sorted(OTHERS))))
def test_every_criterion_that_differs_is_named(make: Any, differing: set[str]) -> None:
    request: dict[str, Any] = dict(REQUEST)
    for criterion in differing:
        for part, value in OTHERS[criterion].items():
            if not isinstance(value, dict):
                request[part] = value
                continue
            base = REQUEST.get(part, {})
            changed = {name: each for name, each in value.items() if base.get(name) != each}
            request[part] = {**request.get(part, {}), **changed}
    [found] = match(request, pools=[make.pool()], now=NOON)
    assert {each.criterion for each in found.differences} == differing
    assert found.fits == (not differing)


def test_what_does_not_matter_does_not_matter(make: Any) -> None:
    other = {
        "AlgorithmSpecification": {"TrainingImage": "another"},
        "HyperParameters": {"lr": "0.1"},
        "Environment": {"A": "1"},
        "Tags": [{"Key": "owner", "Value": "grace"}],
        "ResourceConfig": REQUEST["ResourceConfig"] | {"KeepAlivePeriodInSeconds": 0},
        "VpcConfig": {"Subnets": ["subnet-2", "subnet-1"], "SecurityGroupIds": ["sg-1"]},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
    }
    [found] = match(REQUEST | other, pools=[make.pool(owner="ada")], now=NOON)
    assert found.fits


def test_a_spot_job_takes_no_pool(make: Any) -> None:
    [found] = match(REQUEST | {"EnableManagedSpotTraining": True}, pools=[make.pool()], now=NOON)
    assert [each.criterion for each in found.differences] == ["EnableManagedSpotTraining"]


def test_a_job_that_names_several_types_is_not_taken_for_one_that_names_one(make: Any) -> None:
    resources = {name: value for name, value in REQUEST["ResourceConfig"].items() if name != "InstanceType"}
    several = [{"InstanceType": "ml.m5.xlarge"}, {"InstanceType": "ml.m5.2xlarge"}]
    [found] = match(
        REQUEST | {"ResourceConfig": resources | {"InstancePreferences": several}}, pools=[make.pool()], now=NOON
    )
    [difference] = found.differences
    assert difference.wanted == "ml.m5.xlarge or ml.m5.2xlarge"


def test_a_described_job_that_named_several_has_the_one_it_got() -> None:
    resources = {"InstancePreferences": [{"InstanceType": "ml.m5.2xlarge"}, {"InstanceType": "ml.m5.xlarge"}]}
    described = REQUEST | {
        "ResourceConfig": resources
        | {"SelectedInstanceType": "ml.m5.xlarge", "SelectedInstanceCount": 2, "VolumeSizeInGB": 30}
    }
    traits = traits_of(described)
    assert traits is not None
    assert (traits.instance_type, traits.instance_count) == ("ml.m5.xlarge", 2)


def test_a_heterogeneous_cluster_has_no_pool(make: Any) -> None:
    cluster = {"InstanceGroups": [{"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "InstanceGroupName": "a"}]}
    request = REQUEST | {"ResourceConfig": cluster}
    assert traits_of(request) is None
    [found] = match(request, pools=[make.pool()], now=NOON)
    assert not found.fits


@pytest.mark.parametrize(
    "gone",
    [
        {"state": PoolState.REUSED},
        {"state": PoolState.ENDED},
        {"kept_until": NOON},
        {"stop_requested_at": NOON - timedelta(seconds=1)},
    ],
)
def test_a_pool_that_is_over_or_ending_is_left_out(make: Any, gone: dict[str, Any]) -> None:
    assert match(REQUEST, pools=[make.pool(**gone)], now=NOON) == []


def test_those_it_would_take_come_first_and_the_longest_kept_before_others(make: Any) -> None:
    short = make.pool(job_name="short")
    long = make.pool(job_name="long", kept_until=NOON + timedelta(hours=1))
    near = make.pool(REQUEST | OTHERS["RoleArn"], job_name="near")
    found = match(REQUEST, pools=[near, short, long], now=NOON)
    assert [each.pool.job_name for each in found] == ["long", "short", "near"]


def test_a_difference_reads_as_a_sentence() -> None:
    traits = traits_of(REQUEST)
    assert traits is not None
    [difference] = differences(wanted=traits.model_copy(update={"volume_size_gb": 50}), offered=traits)
    assert str(difference) == "ResourceConfig.VolumeSizeInGB: the job asks for 50 GB, the pool has 30 GB"
