"""The quotas of EC2 that count the vCPUs of all nodes of a run."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from spotkeep_cli.account.vcpu_quotas import NodesQuota, nodes_quotas, read_nodes_quotas, vcpus_of
from spotkeep_jobs.record.record import Run

NAMES = (
    "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", "All G and VT Spot Instance Requests",
    "All P4, P3 and P2 Spot Instance Requests", "All P5 Spot Instance Requests", "All Trn Spot Instance Requests",
    "All DL Spot Instance Requests", "All Inf Spot Instance Requests",
    "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", "Running On-Demand G and VT instances",
    "Running On-Demand P instances", "Running Dedicated g5 Hosts",
)  # fmt: skip
ENTRIES = [{"QuotaName": name, "QuotaCode": f"L-{number}", "Value": 64.0} for number, name in enumerate(NAMES)]


def run_of(make: Any, *types: str, capacity: str = "spot", most: int = 4) -> Run:
    request = {"backend": "ec2", "instance_types": list(types), "nodes": {"min": 1, "max": most}}
    run: Run = make.run(
        "a", backend="ec2", capacity=capacity, instance_type=types[0], instance_count=most, request=request
    )
    return run


@pytest.mark.parametrize(
    ("instance_type", "vcpus"),
    [
        ("g5.xlarge", 4), ("g5.12xlarge", 48), ("p4d.24xlarge", 96), ("p5en.48xlarge", 192), ("m5.large", 2),
        ("p6-b200.48xlarge", 192), ("trn1.32xlarge", 128), ("t3.medium", None), ("c5.metal", None), ("no type", None),
    ],
)  # fmt: skip
def test_the_size_of_a_type_says_its_vcpus(instance_type: str, vcpus: int | None) -> None:
    assert vcpus_of(instance_type) == vcpus


@pytest.mark.parametrize(
    ("instance_type", "capacity", "name"),
    [
        ("m5.large", "spot", NAMES[0]), ("g6e.xlarge", "spot", NAMES[1]), ("vt1.3xlarge", "spot", NAMES[1]),
        ("p4de.24xlarge", "spot", NAMES[2]), ("p5en.48xlarge", "spot", NAMES[3]), ("trn2.48xlarge", "spot", NAMES[4]),
        ("dl1.24xlarge", "spot", NAMES[5]), ("inf2.48xlarge", "spot", NAMES[6]),
        ("c6i.large", "on-demand", NAMES[7]), ("g5.xlarge", "on-demand", NAMES[8]),
        ("p5.48xlarge", "on-demand", NAMES[9]),
    ],
)  # fmt: skip
def test_each_family_has_its_quota(make: Any, instance_type: str, capacity: str, name: str) -> None:
    [quota] = nodes_quotas(ENTRIES, runs=[run_of(make, instance_type, capacity=capacity)])
    assert quota.name == name
    assert quota.needed == 4 * (vcpus_of(instance_type) or 0)


def test_the_run_that_needs_most_counts(make: Any) -> None:
    runs = [run_of(make, "g5.xlarge"), run_of(make, "g5.12xlarge", "g6.xlarge"), make.run("b")]
    [quota] = nodes_quotas(ENTRIES, runs=runs)
    assert quota == NodesQuota(
        name=NAMES[1], vcpus=64, needed=192, nodes="4 x g5.12xlarge", quota_code=ENTRIES[1]["QuotaCode"]
    )
    assert quota.is_missing
    assert quota.request.endswith("--service-code ec2 --quota-code L-1 --desired-value 192")
    [enough] = nodes_quotas(ENTRIES, runs=[run_of(make, "g5.4xlarge")])
    assert not enough.is_missing


def test_service_quotas_is_asked_only_for_nodes(make: Any) -> None:
    client = boto3.client(
        "service-quotas", region_name="eu-central-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    with Stubber(client) as stub:
        assert read_nodes_quotas(client, runs=[make.run("b"), run_of(make, "g5.xlarge", most=1)]) == ()
        stub.add_response("list_service_quotas", {"Quotas": ENTRIES}, {"ServiceCode": "ec2"})
        assert len(read_nodes_quotas(client, runs=[run_of(make, "g5.xlarge")])) == 1
