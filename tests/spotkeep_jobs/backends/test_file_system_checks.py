"""A launch finds file systems that its job could not mount, all at once, and the subnets from which it can."""

from __future__ import annotations

from typing import Any

import pytest

from spotkeep_jobs.backends.ec2.checks import Checked
from spotkeep_jobs.backends.ec2.ec2_api import Ec2Api
from spotkeep_jobs.backends.file_system_checks import FileSystemChecks, JobNetwork
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.errors import AwsCallError, RequestRefusedError
from tests.models.faults import client_error
from tests.models.file_systems import FileSystemSite

LUSTRE, SHARED, OTHER = "fs-0123456789abcdef0", "fs-0fedcba9876543210", "fs-0aaaaaaaaaaaaaaaa"
TRAIN = {"fsx": LUSTRE, "path": "/abcdefgh/cifar10"}
MORE = {"efs": SHARED, "path": "/cifar10"}


@pytest.fixture
def site() -> FileSystemSite:
    made = FileSystemSite.made()
    made.add_lustre(LUSTRE)
    made.add_efs(SHARED, "subnet-a", "subnet-b")
    return made


def checks_of(site: FileSystemSite, *subnets: str) -> FileSystemChecks:
    return FileSystemChecks(
        fsx=lambda: site.fsx,
        efs=lambda: site.efs,
        ec2=Ec2Api(lambda: site.ec2),  # type: ignore[arg-type, return-value]
        file_systems=(LUSTRE, SHARED, OTHER),
        networks={
            "sagemaker": JobNetwork(
                jobs="training jobs",
                subnet_ids=subnets or ("subnet-c", "subnet-b", "subnet-a"),
                group_ids=lambda: ("sg-ours",),
                subnets_setting="training_subnet_ids",
                groups_setting="training_security_group_ids",
            ),
            "ec2": JobNetwork(
                jobs="instances",
                subnet_ids=subnets or ("subnet-b", "subnet-a"),
                group_ids=lambda: ("sg-instances",),
                subnets_setting="vpc_subnet_ids",
                groups_setting="vpc_security_group_id",
            ),
        },
        region="us-east-1",
    )


def request(**channels: Any) -> JobRequest:
    return JobRequest.model_validate({"name": "first", "command": "true", "channels": channels})


def checked(site: FileSystemSite, *subnets: str, **channels: Any) -> Checked:
    return checks_of(site, *subnets).check(request(**channels))


def the_problem(site: FileSystemSite, *subnets: str, **channels: Any) -> tuple[str, str]:
    (problem,) = checked(site, *subnets, **channels).problems
    return problem.field, f"{problem.found} {problem.problem}. {problem.fix}"


def rule(*ports: int, group: str = "", network: str = "", protocol: str = "tcp", prefix_list: str = "") -> Any:
    return {
        "IpProtocol": protocol,
        **({"FromPort": ports[0], "ToPort": ports[-1]} if ports else {}),
        "UserIdGroupPairs": [{"GroupId": group}] if group else [],
        "IpRanges": [{"CidrIp": network}] if network else [],
        "PrefixListIds": [{"PrefixListId": prefix_list}] if prefix_list else [],
    }


def test_what_can_be_mounted_is_no_problem(site: FileSystemSite) -> None:
    assert checked(site, train=TRAIN, more=MORE) == Checked()
    assert checks_of(site).subnet_ids_for(request(train=TRAIN, more=MORE)) == ("subnet-a",)
    assert checks_of(site).subnet_ids_for(request(more=MORE)) == ("subnet-b", "subnet-a")


def test_a_subnet_of_ipv6_alone_breaks_no_check_and_no_launch(site: FileSystemSite) -> None:
    """EC2 describes it without an address range of IPv4, and EFS can have a mount target in it."""
    site.add_subnet("subnet-6", zone="us-east-1b", network="")
    del site.ec2.subnets[-1]["CidrBlock"]
    site.add_efs(SHARED, "subnet-6")
    site.add_group("sg-theirs", inbound=[rule(2049, group="sg-other")], outbound=[])
    assert checked(site, more=MORE) == Checked()
    assert checks_of(site, "subnet-6", "subnet-a").subnet_ids_for(request(more=MORE)) == ("subnet-6",)


def test_a_mount_target_in_a_zone_that_the_job_does_not_use_may_be_closed(site: FileSystemSite) -> None:
    site.add_group("sg-closed", inbound=[], outbound=[])
    site.efs.groups[f"fsmt-{SHARED}-subnet-b"] = ["sg-closed"]
    assert checked(site, train=TRAIN, more=MORE) == Checked()
    assert "lets no TCP in" in the_problem(site, more=MORE)[1]


def test_a_request_without_file_systems_asks_nothing() -> None:
    nothing: Any = None
    assert checked(nothing, test="s3://data/") == Checked()
    assert checks_of(nothing).subnet_ids_for(request(test="s3://data/")) == ("subnet-c", "subnet-b", "subnet-a")


def test_what_the_document_alone_refuses_is_not_asked_for() -> None:
    nothing: Any = None
    unnamed = {"fsx": "fs-0bbbbbbbbbbbbbbbb", "path": "/a"}
    assert checked(nothing, a=unnamed, b={"fsx": LUSTRE, "efs": SHARED, "path": "/a"}) == Checked()


def test_all_problems_come_at_once(site: FileSystemSite) -> None:
    site.add_lustre(LUSTRE, Lifecycle="CREATING")
    site.add_efs(SHARED)
    missing = {"fsx": OTHER, "path": "/m/a"}
    creating, without_target, gone = checked(site, train=TRAIN, more=MORE, gone=missing).problems
    assert (creating.field, creating.found) == ("channels.train.fsx", f"{LUSTRE}, CREATING")
    assert without_target.field == "channels.more.efs"
    assert "aws efs create-mount-target" in without_target.fix
    assert (gone.field, gone.problem) == ("channels.gone.fsx", "is no file system of FSx in us-east-1")
    assert f"efs: {OTHER}" in gone.fix


@pytest.mark.parametrize(
    ("changes", "place", "words"),
    [
        ({"FileSystemType": "ONTAP"}, "fsx", "ONTAP is not a file system of FSx for Lustre"),
        ({"Lifecycle": "MISCONFIGURED_UNAVAILABLE"}, "fsx", "is not available"),
        ({"LustreConfiguration": {"MountName": "fsx"}}, "path", "Write /fsx/abcdefgh/cifar10"),
        ({"SubnetIds": ["subnet-c"]}, "fsx", "Deploy with a subnet of us-east-1c in training_subnet_ids"),
        ({"SubnetIds": ["subnet-x"]}, "fsx", "in vpc-2 is in another VPC than training jobs, which are in vpc-1"),
    ],
)
def test_a_file_system_of_lustre_that_no_job_could_mount(
    site: FileSystemSite, changes: Any, place: str, words: str
) -> None:
    site.add_subnet("subnet-x", zone="us-east-1a", network="10.1.0.0/24", vpc="vpc-2")
    site.add_lustre(LUSTRE, **changes)
    field, said = the_problem(site, "subnet-a", "subnet-b", train=TRAIN)
    assert field == f"channels.train.{place}"
    assert words in said


def test_one_that_is_updated_is_mounted(site: FileSystemSite) -> None:
    site.add_lustre(LUSTRE, Lifecycle="UPDATING")
    assert checked(site, train=TRAIN) == Checked()


def test_a_file_system_of_efs_without_a_mount_target_in_a_zone_of_the_jobs(site: FileSystemSite) -> None:
    site.add_efs(SHARED, "subnet-b", "subnet-c", "subnet-a")
    assert checked(site, "subnet-a", more=MORE) == Checked()
    site.add_efs(SHARED, "subnet-b")
    field, said = the_problem(site, "subnet-a", "subnet-c", more=MORE)
    assert field == "channels.more.efs"
    assert "has its mount targets in another Availability Zone than each subnet of training jobs" in said
    assert "subnet-a (us-east-1a), subnet-c (us-east-1c)" in said
    site.add_efs(SHARED, "subnet-a", state="creating")
    assert "has no mount target that is available" in the_problem(site, more=MORE)[1]
    del site.efs.mount_targets[SHARED]
    assert "is no file system of Amazon EFS in us-east-1" in the_problem(site, more=MORE)[1]


def test_an_id_under_the_other_services_field_is_named_beside_the_right_one(site: FileSystemSite) -> None:
    field, said = the_problem(site, train=TRAIN, more={"efs": LUSTRE, "path": "/"})
    assert field == "channels.more.efs"
    assert f"fsx: {LUSTRE}" in said


def test_two_file_systems_of_different_zones_share_no_job(site: FileSystemSite) -> None:
    site.add_lustre(OTHER, subnet="subnet-b")
    field, said = the_problem(site, train=TRAIN, other={"fsx": OTHER, "path": "/abcdefgh"})
    assert field == "channels"
    assert f"{LUSTRE} in us-east-1a; {OTHER} in us-east-1b" in said


@pytest.mark.parametrize(
    "inbound",
    [
        [rule(988, group="sg-ours"), rule(1018, 1023, group="sg-ours")],
        [rule(988, 1023, network="10.0.0.0/16")],
        [rule(0, 65_535, network="10.0.0.128/25")],
        [rule(protocol="-1", group="sg-ours")],
        [rule(988, group="sg-ours"), rule(1018, 1020, group="sg-ours"), rule(1021, 1023, network="0.0.0.0/0")],
        [rule(988, 1023, prefix_list="pl-1")],
    ],
)
def test_rules_that_let_lustre_through(site: FileSystemSite, inbound: list[Any]) -> None:
    site.add_group("sg-theirs", inbound=inbound, outbound=[])
    assert checked(site, train=TRAIN) == Checked()


@pytest.mark.parametrize(
    ("inbound", "ports"),
    [
        ([], "988 and 1018-1023"),
        ([rule(988, group="sg-ours")], "1018-1023"),
        ([rule(1018, 1022, group="sg-ours"), rule(988, group="sg-ours")], "1018-1023"),
        ([rule(988, 1023, group="sg-other")], "988 and 1018-1023"),
        ([rule(988, 1023, network="10.0.1.0/24")], "988 and 1018-1023"),
        ([rule(988, 1023, network="10.0.0.0/24", protocol="udp")], "988 and 1018-1023"),
    ],
)
def test_a_security_group_that_keeps_lustre_closed_is_refused_with_the_command(
    site: FileSystemSite, inbound: list[Any], ports: str
) -> None:
    site.add_group("sg-theirs", inbound=inbound, outbound=[])
    field, said = the_problem(site, train=TRAIN)
    assert field == "channels.train.fsx"
    assert f"at port {ports}, so that a mount would hang" in said
    assert "aws ec2 authorize-security-group-ingress --group-id sg-theirs" in said
    assert "FromPort=1018,ToPort=1023,UserIdGroupPairs=[{GroupId=sg-ours}]" in said


def test_the_groups_of_jobs_are_judged_too(site: FileSystemSite) -> None:
    site.add_group("sg-ours", inbound=[], outbound=[rule(443, network="0.0.0.0/0")])
    result = checked(site, train=TRAIN, more=MORE)
    lustre, shared = result.problems
    assert "lets no TCP out to" in lustre.problem
    assert "authorize-security-group-egress --group-id sg-ours" in lustre.fix
    assert "at port 2049" in shared.problem
    (warning,) = result.warnings
    assert "let TCP in at port 988 and 1018-1023" in warning


def test_efs_is_reached_at_one_port(site: FileSystemSite) -> None:
    site.add_group("sg-theirs", inbound=[rule(2049, group="sg-ours")], outbound=[])
    assert checked(site, more=MORE) == Checked()
    site.add_group("sg-theirs", inbound=[rule(988, 1023, group="sg-ours")], outbound=[])
    assert "at port 2049, so that a mount would hang" in the_problem(site, more=MORE)[1]


@pytest.mark.parametrize("code", ["AccessDeniedException", "ThrottlingException"])
def test_what_cannot_be_asked_stops_no_launch(site: FileSystemSite, code: str) -> None:
    def refused(**_: Any) -> Any:
        raise client_error("DescribeFileSystems", code)

    site.fsx.describe_file_systems = refused  # type: ignore[method-assign]
    result = checked(site, train=TRAIN)
    assert not result.problems
    assert f"DescribeFileSystems ({code})" in result.warnings[0]
    assert checks_of(site).subnet_ids_for(request(train=TRAIN)) == ("subnet-c", "subnet-b", "subnet-a")


def on_ec2(**channels: Any) -> JobRequest:
    return JobRequest.model_validate({"name": "first", "command": "true", "backend": "ec2", "channels": channels})


def test_instances_are_judged_in_their_own_network(site: FileSystemSite) -> None:
    site.add_group("sg-instances", inbound=[], outbound=[rule(protocol="-1", network="0.0.0.0/0")])
    site.add_group("sg-theirs", inbound=[rule(988, 1023, group="sg-ours")], outbound=[])
    checks = checks_of(site)
    assert checks.check(request(train=TRAIN)) == Checked()
    result = checks.check(on_ec2(train=TRAIN))
    (problem,), (warning,) = result.problems, result.warnings
    assert "lets no TCP in from instances (sg-instances) at port 988 and 1018-1023" in problem.problem
    assert "sg-instances does not" in warning
    site.add_lustre(LUSTRE, subnet="subnet-c")
    (away,) = checks.check(on_ec2(train=TRAIN)).problems
    assert "than each subnet of instances: subnet-b (us-east-1b), subnet-a (us-east-1a)" in away.problem
    assert "in vpc_subnet_ids" in away.fix


def test_instances_are_launched_in_the_zones_of_all_file_systems_and_mount_them_by_name(site: FileSystemSite) -> None:
    site.add_lustre(LUSTRE, DNSName=f"{LUSTRE}.fsx.us-east-1.amazonaws.com")
    reached = checks_of(site).reached(on_ec2(train=TRAIN, more=MORE))
    assert reached.subnet_ids == ("subnet-a",)
    assert reached.names == {
        LUSTRE: f"{LUSTRE}.fsx.us-east-1.amazonaws.com",
        SHARED: f"{SHARED}.efs.us-east-1.amazonaws.com",
    }
    assert checks_of(site).reached(on_ec2(more=MORE)).subnet_ids == ("subnet-b", "subnet-a")


def test_no_instance_is_launched_for_a_file_system_that_it_cannot_mount(site: FileSystemSite) -> None:
    site.add_lustre(LUSTRE, Lifecycle="DELETING")
    with pytest.raises(RequestRefusedError) as refused:
        checks_of(site).reached(on_ec2(train=TRAIN))
    assert "is not available" in refused.value.problems[0].problem
    site.fsx.describe_file_systems = lambda **_: _raise("ThrottlingException")  # type: ignore[method-assign]
    with pytest.raises(AwsCallError):
        checks_of(site).reached(on_ec2(train=TRAIN))


def _raise(code: str) -> Any:
    raise client_error("DescribeFileSystems", code)
