"""An app of another team puts all of Spotkeep into one stack of its own: `examples/own-app`."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Environment, Stack, Validations
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk.assertions import Template

from spotkeep_constructs.checkpoint_bucket import CheckpointBucket
from spotkeep_constructs.control_plane import SpotkeepControlPlane
from spotkeep_constructs.deployment_build import Project
from spotkeep_constructs.errors import PropertyError
from spotkeep_constructs.network import ExistingNetwork, Network
from spotkeep_constructs.settings import Settings

from .conftest import ROOT, rules

EXAMPLE = ROOT / "examples" / "own-app"
CONTEXT = {**json.loads((EXAMPLE / "cdk.json").read_text())["context"], "aws:cdk:bundling-stacks": []}


def project_in(directory: Path) -> Project:
    return replace(Project.at(ROOT), layers=directory / "layers", archives=directory / "archives")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The stack of the example, held to the rules: a finding that is not acknowledged fails the synth."""
    directory = tmp_path_factory.mktemp("own-app")
    spec = importlib.util.spec_from_file_location("own_app", EXAMPLE / "app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    app = App(builtin_cloud_formation_validation=False, context=CONTEXT, outdir=str(directory / "cdk.out"))
    module.ResearchStack(app, "Research", project=project_in(directory))
    Validations.of(app).add_plugins(*rules())
    [stack] = app.synth().stacks
    found: dict[str, Any] = stack.template
    return found


def resources(template: dict[str, Any], kind: str) -> dict[str, Any]:
    return {name: each for name, each in template["Resources"].items() if each["Type"] == kind}


def test_one_stack_holds_the_whole_deployment(template: dict[str, Any]) -> None:
    functions = {
        each["Properties"]["FunctionName"]
        for each in resources(template, "AWS::Lambda::Function").values()
        if "FunctionName" in each["Properties"]
    }
    assert functions == {"research-launcher", "research-controller", "research-instance_credentials"}
    [connection] = resources(template, "AWS::SSM::Parameter").values()
    assert connection["Properties"]["Name"] == "/research/connection"
    assert len(resources(template, "AWS::Lambda::LayerVersion")) == 1


def test_the_apps_own_network_key_and_bucket_are_used_and_none_is_created(template: dict[str, Any]) -> None:
    assert len(resources(template, "AWS::EC2::VPC")) == 1
    assert {name[:-8] for name in resources(template, "AWS::S3::Bucket")} == {"AccessLogs", "Checkpoints"}
    assert {name[:-8] for name in resources(template, "AWS::KMS::Key")} == {
        "Key",
        "SpotkeepEventsNotificationsTopicsKey",
    }
    [launcher] = [
        each["Properties"]
        for each in resources(template, "AWS::Lambda::Function").values()
        if each["Properties"].get("FunctionName") == "research-launcher"
    ]
    variables = launcher["Environment"]["Variables"]
    [bucket] = [name for name in resources(template, "AWS::S3::Bucket") if name.startswith("Checkpoints")]
    assert variables["SPOTKEEP_CHECKPOINT_BUCKET"] == {"Ref": bucket}
    subnets = json.dumps(variables["SPOTKEEP_FLEET_SUBNETS"])
    assert subnets.count("VpcPrivateSubnet") == 2
    assert "VpcPublicSubnet" not in subnets


def test_a_grant_lets_the_apps_role_launch_and_read_and_nothing_else(template: dict[str, Any]) -> None:
    [policy] = [
        each["Properties"]["PolicyDocument"]["Statement"]
        for name, each in resources(template, "AWS::IAM::Policy").items()
        if name.startswith("Pipeline")
    ]
    actions = {
        action
        for statement in policy
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    assert actions == {
        "dynamodb:GetItem",
        "dynamodb:Query",
        "kms:Decrypt",
        "kms:GenerateDataKey",
        "lambda:InvokeFunction",
        "lambda:InvokeFunctionUrl",
        "s3:AbortMultipartUpload",
        "s3:GetObject",
        "s3:ListBucket",
        "s3:PutObject",
        "ssm:GetParameter",
    }
    [writing] = [statement for statement in policy if "s3:PutObject" in statement["Action"]]
    assert json.dumps(writing["Resource"]).endswith('/sources/*"]]}')


def test_where_aws_says_who_calls_a_grant_is_for_the_url_alone(tmp_path: Path) -> None:
    stack = Stack(App(outdir=str(tmp_path / "cdk.out"), context=CONTEXT), "Test")
    spotkeep = SpotkeepControlPlane(
        stack, "Spotkeep", settings=Settings(verify_callers=True, ec2_fleets=False), project=project_in(tmp_path)
    )
    grant = spotkeep.grant_launch(iam.Role(stack, "Caller", assumed_by=iam.AccountRootPrincipal()))
    assert grant.success
    [policy] = [
        each["Properties"]["PolicyDocument"]["Statement"]
        for name, each in Template.from_stack(stack).find_resources("AWS::IAM::Policy").items()
        if name.startswith("Caller")
    ]
    [invoking] = [statement for statement in policy if statement["Action"] == "lambda:InvokeFunction"]
    assert invoking["Condition"] == {"Bool": {"lambda:InvokedViaFunctionUrl": "true"}}


def test_settings_of_another_region_than_the_stacks_are_refused(tmp_path: Path) -> None:
    env = Environment(account="111122223333", region="eu-west-1")
    stack = Stack(App(outdir=str(tmp_path / "cdk.out")), "Test", env=env)
    with pytest.raises(PropertyError, match="another region than the stack's, eu-west-1"):
        SpotkeepControlPlane(stack, "Spotkeep", settings=Settings(region="eu-west-2"))


def test_a_vpc_for_a_deployment_without_fleets_is_refused(stack: Stack) -> None:
    vpc = ec2.Vpc(stack, "Vpc")
    with pytest.raises(PropertyError, match="where no instance runs"):
        SpotkeepControlPlane(stack, "Spotkeep", settings=Settings(ec2_fleets=False), vpc=vpc)


def test_a_network_is_given_once(stack: Stack) -> None:
    named = ExistingNetwork(vpc_id="vpc-0123", subnet_ids=["subnet-0123"], availability_zones=["eu-west-1a"])
    with pytest.raises(PropertyError, match="named by its ids"):
        Network(stack, "Network", existing=named, vpc=ec2.Vpc(stack, "Vpc"))


def test_a_network_has_one_subnet_a_zone(stack: Stack) -> None:
    """EC2 refuses a fleet that names two pools of one type in one zone."""
    vpc = ec2.Vpc(stack, "Vpc", max_azs=2)
    with pytest.raises(PropertyError, match="two subnets of one zone"):
        Network(stack, "Network", vpc=vpc, vpc_subnets=[*vpc.public_subnets, *vpc.private_subnets])
    assert len(Network(stack, "One", vpc=vpc, vpc_subnets=vpc.private_subnets).subnets) == 2


def test_an_existing_bucket_needs_a_known_key(stack: Stack) -> None:
    bucket = s3.Bucket.from_bucket_name(stack, "Imported", "team-data")
    with pytest.raises(PropertyError, match="no KMS key that is known"):
        CheckpointBucket(stack, "Checkpoints", existing=bucket)
    key = kms.Key(stack, "Key")
    found = CheckpointBucket(stack, "Others", existing=bucket, key=key)
    assert (found.bucket, found.key, found.access_logs) == (bucket, key, None)


def test_the_objects_of_an_existing_bucket_expire_by_its_own_rules(stack: Stack) -> None:
    bucket = s3.Bucket(stack, "Bucket", encryption=s3.BucketEncryption.KMS)
    with pytest.raises(PropertyError, match="cannot be set of a bucket that exists"):
        CheckpointBucket(stack, "Checkpoints", retention_days=400, existing=bucket)
