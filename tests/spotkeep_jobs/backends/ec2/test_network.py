"""Subnets from which instances do not reach what they call are refused before an instance is paid for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from spotkeep_jobs.backends.ec2.ec2_api import Ec2Api
from spotkeep_jobs.backends.ec2.facts import Subnet
from spotkeep_jobs.backends.ec2.network import (
    REQUIRED_SERVICES,
    WANTED_SERVICES,
    network_problems,
    network_warnings,
    training_network_problems,
)
from tests.models.ec2 import Ec2

AGENT = Path(__file__).parents[4] / "training" / "spotkeep_agent"
EVERYTHING = frozenset({*REQUIRED_SERVICES, *WANTED_SERVICES})


def subnet(*targets: str, endpoints: frozenset[str] = frozenset(), public: bool = False) -> Subnet:
    return Subnet(id="subnet-1", public_addresses=public, targets=targets, endpoints=endpoints)


def test_the_list_is_all_that_the_agent_calls() -> None:
    called = {
        service
        for path in AGENT.rglob("*.py")
        for service in re.findall(r'calls\.(?:json|query)\(\s*"(\w+)"', path.read_text(encoding="utf-8"))
    }
    # The two that have a method of their own: `AwsCalls.s3` and `AwsCalls.invoke`. ECR is for images alone, and Secrets
    # Manager for secrets.
    assert called | {"s3", "lambda"} == EVERYTHING | {"ecr", "secretsmanager"}


@pytest.mark.parametrize(
    "reached",
    [subnet("igw-1", public=True), subnet("tgw-1"), subnet("igw-1", "nat-1"), subnet(endpoints=EVERYTHING)],
)
def test_what_may_lead_to_aws_is_believed(reached: Subnet) -> None:
    assert list(network_problems([reached], image=None)) == []
    assert list(network_warnings([reached])) == []


@pytest.mark.parametrize("cut_off", [subnet(), subnet("igw-1"), subnet("eigw-1"), subnet("eigw-1", public=True)])
def test_what_leads_nowhere_is_refused_with_each_service_and_the_setting(cut_off: Subnet) -> None:
    (problem,) = network_problems([subnet("nat-1"), cut_off], image=None)
    assert problem.field == "backend"
    for service in REQUIRED_SERVICES:
        assert f"{service} (" in problem.problem
    assert f"endpoints of {', '.join(REQUIRED_SERVICES)} (" in problem.fix
    assert "vpc_subnet_ids" in problem.fix
    assert ("public addresses" in problem.fix) == ("igw-1" in cut_off.targets)


def test_a_job_with_secrets_needs_a_way_to_secrets_manager() -> None:
    without = subnet(endpoints=EVERYTHING)
    (problem,) = network_problems([without], image=None, secrets=True)
    assert "nothing leads from it to secretsmanager (the values of secrets)" in problem.problem
    assert "give its VPC endpoints of secretsmanager (" in problem.fix
    reached = [subnet("nat-1"), subnet(endpoints=EVERYTHING | {"secretsmanager"})]
    assert list(network_problems(reached, image=None, secrets=True)) == []


def test_a_training_job_with_secrets_needs_a_way_to_secrets_manager_from_its_subnets() -> None:
    (problem,) = training_network_problems(
        [subnet("nat-1"), subnet("igw-1"), subnet(endpoints=frozenset({"secretsmanager"}))]
    )
    assert (problem.field, problem.found) == ("secrets", "training_subnet_ids with subnet-1")
    assert "an interface endpoint of secretsmanager" in problem.fix


def test_endpoints_that_are_missing_are_named_and_no_others() -> None:
    (problem,) = network_problems([subnet(endpoints=EVERYTHING - {"dynamodb"})], image=None)
    assert "endpoints of dynamodb (" in problem.fix
    assert "leads from it to dynamodb (the run's fleet record)" in problem.problem


IN_ECR = "123456789012.dkr.ecr.eu-central-1.amazonaws.com/team/training:7"


def test_an_image_in_ecr_needs_its_endpoints_where_nothing_leads_out() -> None:
    private = subnet(endpoints=EVERYTHING)
    (problem,) = network_problems([private, subnet("nat-1")], image=IN_ECR)
    assert "endpoints of ecr.api, ecr.dkr (" in problem.fix
    assert list(network_problems([subnet(endpoints=EVERYTHING | {"ecr.api", "ecr.dkr"})], image=IN_ECR)) == []


def test_an_image_of_any_other_registry_needs_a_way_out() -> None:
    (problem,) = network_problems([subnet(endpoints=EVERYTHING), subnet("nat-1")], image="python:3.12")
    assert (problem.field, problem.found) == ("image", "python:3.12")
    assert "nothing leads from it to the image's registry" in problem.problem


def test_a_run_goes_on_without_log_and_events_and_the_user_reads_what_it_misses() -> None:
    private = subnet(endpoints=frozenset(REQUIRED_SERVICES))
    assert list(network_problems([private], image=None)) == []
    events, logs = network_warnings([private, subnet("nat-1")])
    assert events.startswith("Nothing leads from subnet-1 to events")
    assert "spotkeep logs" in logs


def described(*, tables: list[Any], endpoints: list[Any]) -> Subnet:
    ec2: Any = Ec2()
    ec2.subnets = [{"SubnetId": "subnet-1", "VpcId": "vpc-1", "MapPublicIpOnLaunch": False}]
    ec2.route_tables, ec2.vpc_endpoints = tables, endpoints
    (subnet,) = Ec2Api(lambda: ec2).subnets(["subnet-1"])
    return subnet


def table(table_id: str, *targets: dict[str, str], main: bool = False, of: str = "subnet-2") -> dict[str, Any]:
    association = {"Main": True} if main else {"Main": False, "SubnetId": of}
    local = {"GatewayId": "local", "DestinationCidrBlock": "10.0.0.0/16", "State": "active"}
    return {"RouteTableId": table_id, "VpcId": "vpc-1", "Associations": [association], "Routes": [local, *targets]}


def route(**target: str) -> dict[str, str]:
    return {"DestinationCidrBlock": "0.0.0.0/0", "Origin": "CreateRoute", "State": "active", **target}


def test_a_subnets_own_table_holds_and_the_main_one_where_it_has_none() -> None:
    main = table("rtb-main", route(NatGatewayId="nat-1"), main=True)
    assert described(tables=[table("rtb-2", route(GatewayId="igw-1")), main], endpoints=[]).targets == ("nat-1",)
    own = table("rtb-1", route(TransitGatewayId="tgw-1"), of="subnet-1")
    assert described(tables=[main, own], endpoints=[]).targets == ("tgw-1",)


def test_routes_that_lead_nowhere_and_those_of_endpoints_are_no_way_out() -> None:
    own = table(
        "rtb-1",
        route(NatGatewayId="nat-gone", State="blackhole"),
        {"DestinationPrefixListId": "pl-1", "GatewayId": "vpce-1", "State": "active"},
        of="subnet-1",
    )
    assert described(tables=[own], endpoints=[]).targets == ()


def test_endpoints_count_where_instances_use_them_without_a_setting() -> None:
    def endpoint(service: str, **fields: Any) -> dict[str, Any]:
        name = f"com.amazonaws.eu-central-1.{service}"
        return {"VpcId": "vpc-1", "ServiceName": name, "State": "available", **fields}

    found = described(
        tables=[table("rtb-1", of="subnet-1")],
        endpoints=[
            endpoint("s3", RouteTableIds=["rtb-1"]),
            endpoint("dynamodb", RouteTableIds=["rtb-other"]),
            endpoint("ec2", PrivateDnsEnabled=True),
            endpoint("ecr.api", PrivateDnsEnabled=True),
            endpoint("logs", PrivateDnsEnabled=False),
            endpoint("events", PrivateDnsEnabled=True, State="pendingAcceptance"),
        ],
    )
    assert found.endpoints == {"s3", "ec2", "ecr.api"}
