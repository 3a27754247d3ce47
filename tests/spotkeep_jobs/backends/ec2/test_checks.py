"""What EC2 knows of a request: every problem at once, each with what to do.

Subnets from which instances do not reach what they call are refused before an instance is paid for.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spotkeep_jobs.backends.ec2.checks import (
    REQUIRED_SERVICES,
    WANTED_SERVICES,
    Checked,
    FleetChecks,
    MarketFacts,
    adapter_problems,
    judge,
    network_problems,
    network_warnings,
    training_network_problems,
)
from spotkeep_jobs.backends.ec2.ec2_api import Ec2Api
from spotkeep_jobs.backends.ec2.facts import Ami, InstanceTypeFacts, Snapshot, SpotPrice, Subnet, Volume
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.errors import Problem
from tests.models.clock import NOON, Clock
from tests.models.ec2 import TEMPLATE, Ec2
from tests.models.faults import Faults, client_error

OURS = {"spotkeep:deployment": "spotkeep", "spotkeep:run": "count"}
GIVEN = {"spotkeep:deployment": "spotkeep"}


def price(usd: float, *, zone: str = "us-east-1a", minutes_ago: float = 1) -> SpotPrice:
    since = NOON - timedelta(minutes=minutes_ago)
    return SpotPrice(instance_type="g5.xlarge", zone=zone, since=since, usd_per_hour=usd)


def type_facts(name: str = "g5.xlarge", **fields: Any) -> InstanceTypeFacts:
    return InstanceTypeFacts(name=name, **{"nvme_volumes": True, "spot": True, "architectures": ("x86_64",), **fields})


def checked(facts: MarketFacts | None = None, **fields: Any) -> Checked:
    given = {"name": "count", "command": "true", "backend": "ec2", "instance_types": ["g5.xlarge"], **fields}
    request = JobRequest.model_validate(given)
    return judge(request, facts or MarketFacts(prices=(price(0.5),)), zones=["us-east-1a"], deployment="spotkeep")


def test_a_type_that_no_zone_offers_is_refused() -> None:
    (problem,) = checked(instance_types=["g5.xlarge", "g5.xxlarge"]).problems
    assert (problem.field, problem.found) == ("instance_types", "g5.xxlarge")
    assert "us-east-1a" in problem.problem


def test_a_type_whose_volumes_cannot_be_distinguished_is_refused_before_anything_is_paid() -> None:
    facts = MarketFacts(prices=(price(0.5),), types=(type_facts(nvme_volumes=False),))
    (problem,) = checked(facts).problems
    assert (problem.field, problem.found) == ("instance_types", "g5.xlarge")
    assert "Nitro" in problem.problem
    assert not checked(MarketFacts(prices=(price(0.5),), types=(type_facts(),))).problems


def test_processors_that_the_ami_is_not_for_are_refused_and_an_unknown_ami_is_not() -> None:
    arm = (type_facts(architectures=("arm64",)),)
    (problem,) = checked(MarketFacts(prices=(price(0.5),), types=arm, ami=Ami(architecture="x86_64"))).problems
    assert "arm64" in problem.problem
    assert "instance_ami" in problem.fix
    assert not checked(MarketFacts(prices=(price(0.5),), types=arm, ami=Ami(architecture="arm64"))).problems
    assert not checked(MarketFacts(prices=(price(0.5),), types=arm)).problems


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("al2023-ami-2023.12.20260930.0-kernel-6.12-x86_64", True),
        ("al2023-ami-minimal-2023.12.20260930.0-kernel-6.12-arm64", True),
        ("al2023-ami-ecs-hvm-2023.0.20260930-kernel-6.1-x86_64", False),
        ("Deep Learning OSS Nvidia Driver AMI GPU PyTorch 2.11 (Amazon Linux 2023) 20260905", False),
        (None, False),
    ],
)
def test_an_image_on_an_ami_that_is_known_to_have_no_docker_is_refused(name: str | None, refused: bool) -> None:
    facts = MarketFacts(prices=(price(0.5),), ami=Ami(name=name))
    problems = checked(facts, image="public.ecr.aws/docker/library/python:3.12").problems
    assert [problem.field for problem in problems] == (["image"] if refused else [])
    assert all("instance_ami" in problem.fix for problem in problems)
    assert not checked(facts).problems


DEFAULT_AMI = "Deep Learning OSS Nvidia Driver AMI GPU PyTorch 2.11 (Amazon Linux 2023) 20260905"


@pytest.mark.parametrize(
    ("name", "accelerators", "refused"),
    [
        ("p3dn.24xlarge", ("NVIDIA GPUs",), True),
        ("g4ad.xlarge", ("AMD GPUs",), True),
        ("trn1.2xlarge", ("AWS Neuron devices",), True),
        ("p6-b300.48xlarge", ("NVIDIA GPUs",), True),
        ("p6-b200.48xlarge", ("NVIDIA GPUs",), False),
        ("gr6f.4xlarge", ("NVIDIA GPUs",), False),
        ("g4dn.xlarge", ("NVIDIA GPUs",), False),
        ("m5.large", (), False),
    ],
)
@pytest.mark.parametrize("ami", [DEFAULT_AMI, "ours", None])
def test_accelerators_that_the_default_ami_has_no_driver_for_are_refused_and_an_ami_of_ones_own_is_asked_later(
    name: str, accelerators: tuple[str, ...], refused: bool, ami: str | None
) -> None:
    prices = (replace(price(0.5), instance_type=name),)
    facts = MarketFacts(prices=prices, types=(type_facts(name, accelerators=accelerators),), ami=Ami(name=ami))
    problems = checked(facts, instance_types=[name]).problems
    assert [problem.found for problem in problems] == ([name] if refused and ami == DEFAULT_AMI else [])
    for problem in problems:
        assert accelerators[0] in problem.problem
        assert "g6e" in problem.fix
        assert "instance_ami" in problem.fix


@pytest.mark.parametrize(
    ("efa", "in_clusters", "refused"),
    [
        (True, True, []),
        (None, None, []),
        (False, True, ["network.efa"]),
        (False, False, ["network.efa", "network.placement"]),
    ],
)
def test_a_type_that_cannot_have_the_network_of_its_nodes_is_refused(
    efa: bool | None, in_clusters: bool | None, refused: list[str]
) -> None:
    facts = MarketFacts(prices=(price(0.5),), types=(type_facts(efa=efa, in_clusters=in_clusters),))
    nodes = {"nodes": 2, "distributed": "torchrun"}
    assert [each.field for each in checked(facts, network={"efa": True, "placement": "cluster"}, **nodes).problems] == (
        refused
    )
    assert checked(facts, **nodes).problems == ()


def test_a_type_without_spot_is_refused_on_spot_and_taken_on_demand() -> None:
    facts = MarketFacts(prices=(), types=(type_facts(spot=False),))
    (problem,) = checked(facts).problems
    assert "not sold on spot" in problem.problem
    assert not checked(facts, capacity="on-demand").problems
    assert "not sold on spot" in checked(facts, capacity="auto").problems[0].problem


def test_all_that_is_wrong_with_all_types_is_reported_at_once() -> None:
    facts = MarketFacts(
        prices=(price(0.5),),
        types=(type_facts(nvme_volumes=False, architectures=("arm64",)), type_facts("x9.large", spot=False)),
        ami=Ami(architecture="x86_64"),
    )
    problems = checked(facts, instance_types=["g5.xlarge", "x9.large", "g5.xxlarge"]).problems
    assert [problem.found for problem in problems] == ["g5.xlarge", "g5.xlarge", "x9.large", "g5.xxlarge"]


def test_offers_are_the_newest_prices_the_cheapest_first() -> None:
    prices = (price(0.5), price(0.9, minutes_ago=9), price(0.4, zone="us-east-1b"))
    offers = checked(MarketFacts(prices=prices)).offers
    assert [(offer.zone, offer.spot_usd_per_hour) for offer in offers] == [("us-east-1b", 0.4), ("us-east-1a", 0.5)]


def test_a_price_below_the_market_is_warned_of_and_launched() -> None:
    found = checked(max_price=0.1)
    assert not found.problems
    (warning,) = found.warnings
    assert "below every spot price" in warning
    assert not checked(max_price=0.6).warnings
    assert not checked(max_price=0.1, capacity="on-demand").warnings
    (warning,) = checked(max_price=0.1, capacity="auto").warnings
    assert warning.endswith("The run waits until a price falls, or it goes on demand.")


SNAPSHOT = Snapshot(id="snap-0123456789abcdef0", size_gb=200, state="completed", tags=GIVEN)


def from_snapshot(snapshot: Snapshot | None, *, size_gb: int = 200, **fields: Any) -> list[Problem]:
    """What is wrong with a volume of so many gigabytes that is made from a snapshot of this id."""
    facts = MarketFacts(prices=(price(0.5),), snapshot=snapshot)
    return list(checked(facts, volume={"snapshot": SNAPSHOT.id, "size_gb": size_gb}, **fields).problems)


def test_a_volume_below_its_snapshot_is_refused() -> None:
    (problem,) = from_snapshot(SNAPSHOT, size_gb=100)
    assert problem.field == "volume.size_gb"
    assert "200" in problem.fix
    assert from_snapshot(SNAPSHOT) == []


def test_a_snapshot_that_is_not_there_or_damaged_is_refused() -> None:
    for snapshot in (None, replace(SNAPSHOT, state="error")):
        assert [problem.field for problem in from_snapshot(snapshot)] == ["volume.snapshot"]


@pytest.mark.parametrize("tags", [{}, {"spotkeep:deployment": "other"}])
def test_a_snapshot_without_the_deployments_tag_is_refused_with_the_command_that_tags_it(tags: dict[str, str]) -> None:
    untagged, too_small = from_snapshot(replace(SNAPSHOT, tags=tags), size_gb=100)
    assert untagged.field == "volume.snapshot"
    assert untagged.fix.endswith(
        "aws ec2 create-tags --resources snap-0123456789abcdef0 --tags Key=spotkeep:deployment,Value=spotkeep"
    )
    assert too_small.field == "volume.size_gb"


def test_a_snapshot_of_another_run_is_refused_with_the_command_that_gives_it_free() -> None:
    of_earlier = replace(SNAPSHOT, tags=GIVEN | {"spotkeep:run": "earlier"})
    (problem,) = from_snapshot(of_earlier)
    assert "the run earlier" in problem.problem
    assert problem.fix.endswith("aws ec2 delete-tags --resources snap-0123456789abcdef0 --tags Key=spotkeep:run")
    assert from_snapshot(of_earlier, run="earlier") == []


def test_a_volume_of_ones_own_must_be_free_and_tagged_and_the_refusal_says_the_command() -> None:
    volume = Volume(id="vol-0123456789abcdef0", zone="us-east-1a", size_gb=100, state="in-use", tags={})
    facts = MarketFacts(prices=(price(0.5),), volume=volume)
    problems = checked(facts, run="count", volume={"volume": volume.id}).problems
    assert {problem.field for problem in problems} == {"volume.volume"}
    assert "Key=spotkeep:run,Value=count" in problems[0].fix
    assert "attached to one instance at a time" in problems[1].problem
    unnamed = checked(facts, volume={"volume": volume.id}).problems
    assert [problem.field for problem in unnamed] == ["run", "volume.volume"]
    good = replace(volume, state="available", tags=OURS)
    assert not checked(MarketFacts(prices=(price(0.5),), volume=good), run="count", volume={"volume": good.id}).problems


def checks(*silent: str, adapters: int = 0) -> Checked:
    """Check in a region of one type and one subnet that leads nowhere; EC2 refuses to answer some calls.

    With adapters its subnet has an internet gateway, and nodes have them all.
    """

    def refuse(operation: str) -> None:
        if operation in silent:
            raise client_error(operation, "UnauthorizedOperation", "denied")

    faults = Faults()
    faults.before_call = refuse
    ec2: Any = Ec2(faults)
    ec2.types = [{"InstanceType": "g5.xlarge", "SupportedUsageClasses": ["spot"],
                  "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
                  "NetworkInfo": {"EfaInfo": {"MaximumEfaInterfaces": adapters}}}]  # fmt: skip
    ec2.images = [{"ImageId": "ami-1", "Architecture": "arm64"}]
    ec2.subnets = [{"SubnetId": "subnet-1", "VpcId": "vpc-1", "MapPublicIpOnLaunch": bool(adapters)}]
    ec2.route_tables = [table("rtb-1", route(GatewayId="igw-1"), of="subnet-1")] if adapters else []
    nodes = {"nodes": {"min": 2, "max": 2}, "distributed": "torchrun", "network": {"efa": True}} if adapters else {}
    request = JobRequest.model_validate(
        {"name": "count", "command": "true", "backend": "ec2", "instance_types": ["g5.xlarge"], **nodes}
    )
    bound = FleetChecks(
        ec2=Ec2Api(lambda: ec2), template_id=TEMPLATE, subnets={"subnet-1": "us-east-1a"}, deployment="spotkeep",
        now=Clock(),
    )  # fmt: skip
    return bound.check(request, subnet_ids=("subnet-1",))


def test_what_ec2_does_not_say_stops_no_launch_and_hides_nothing_else_that_is_wrong() -> None:
    found = checks()
    assert [problem.field for problem in found.problems] == ["instance_types", "backend"]
    assert [(offer.zone, offer.spot_usd_per_hour) for offer in found.offers] == [("us-east-1a", 0.3)]
    no_subnets = checks("DescribeSubnets")
    assert [problem.field for problem in no_subnets.problems] == ["instance_types"]
    assert "UnauthorizedOperation" in no_subnets.warnings[0]
    no_market = checks("DescribeSpotPriceHistory")
    assert [problem.field for problem in no_market.problems] == ["backend"]
    assert "types, prices and volumes" in no_market.warnings[0]


@pytest.mark.parametrize(("adapters", "refused"), [(1, []), (4, ["network.efa"])])
def test_nodes_with_several_adapters_need_another_way_than_public_addresses(adapters: int, refused: list[str]) -> None:
    """EC2 gives an instance with several network interfaces no public address, so its agent would never say a word."""
    problems = [each for each in checks(adapters=adapters).problems if each.field != "instance_types"]
    assert [each.field for each in problems] == refused
    assert all("4 adapters" in each.problem and "NAT" in each.fix for each in problems)


def test_a_way_beside_the_internet_gateway_takes_nodes_with_several_adapters() -> None:
    ways = [subnet("igw-1", "nat-1", public=True), subnet("igw-1", endpoints=EVERYTHING, public=True), subnet("tgw-1")]
    assert list(adapter_problems(ways, instance_types=["p4d.24xlarge"], adapters=4)) == []


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
