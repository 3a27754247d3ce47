"""The template validation finds what the CDK's own finds: the same engine, of the same version, asked the same way."""

from __future__ import annotations

import json
import os
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import (
    Acknowledgment,
    App,
    CfnCondition,
    CfnParameter,
    CfnResource,
    CloudFormationValidatePlugin,
    Environment,
    Fn,
    IPolicyValidationPlugin,
    Stack,
    Validations,
)
from cloudformation_validate import ValidationError

from spotkeep_stacks import template_validation
from spotkeep_stacks.template_validation import LEFT_OUT, LEFT_OUT_OF_SERVICES, TemplateValidation

from .conftest import context_of_checkout, rules


def resource(stack: Stack, name: str, kind: str, **properties: Any) -> CfnResource:
    return CfnResource(stack, name, type=kind, properties=properties)


def report(directory: Path, plugin: IPolicyValidationPlugin) -> dict[str, Any]:
    """Synthesize stacks that break a rule of each family, and return what the plugin reports of them."""
    app = App(builtin_cloud_formation_validation=False, context=context_of_checkout(), outdir=str(directory))
    Validations.of(app).add_plugins(plugin)
    stack = Stack(app, "Known", env=Environment(account="111122223333", region="us-west-1"))
    bucket = resource(stack, "Bucket", "AWS::S3::Bucket", VersioningConfiguration={"Status": "On"})
    # Both depend and refer: W3005, which is left out, as is W3697 for a launch configuration.
    resource(stack, "Queue", "AWS::SQS::Queue", QueueName={"Ref": "Bucket"}).add_dependency(bucket)
    resource(stack, "Capacity", "AWS::AutoScaling::LaunchConfiguration", InstanceType="t2.nano")
    resource(stack, "Dangling", "AWS::SQS::Queue", QueueName={"Ref": "Nothing"})
    resource(stack, "Unknown", "AWS::Nothing::AtAll")
    code = {"ZipFile": "pass"}
    resource(
        stack, "Old", "AWS::Lambda::Function", Runtime="python2.7", Handler="a.b", Role="r", Code=code, MemorySize=1
    )
    resource(stack, "Subnet", "AWS::EC2::Subnet", VpcId="vpc-1", CidrBlock="10.0.0.0/24", AvailabilityZone="us-west-1a")
    resource(stack, "Database", "AWS::RDS::DBInstance", DBInstanceClass="db.t3.micro", MasterUserPassword="secret-1")
    CfnParameter(stack, "Unused")
    CfnCondition(stack, "Never", expression=Fn.condition_equals("a", "b"))
    for name in ("Known", "Other"):
        # One finding of both.
        resource(stack, f"Parameter{name}", "AWS::SSM::Parameter", Typ="String", Value="1")
    resource(Stack(app, "Agnostic"), "Parameter", "AWS::SSM::Parameter", Typ="String", Value="1")
    with pytest.raises(RuntimeError, match="ValidationFailed"):
        app.synth()
    (found,) = json.loads((directory / "validation-report.json").read_text())["pluginReports"]
    return dict(found)


def library_of_the_cdk() -> Path:
    rules()
    (library,) = Path(os.environ["JSII_RUNTIME_PACKAGE_CACHE_ROOT"], "aws-cdk-lib", version("aws-cdk-lib")).iterdir()
    return library


def test_an_acknowledgement_is_for_the_name_that_the_cdk_gives_the_validation(tmp_path: Path) -> None:
    app = App(builtin_cloud_formation_validation=False, context=context_of_checkout(), outdir=str(tmp_path))
    Validations.of(app).add_plugins(TemplateValidation())
    broken = resource(Stack(app, "Known"), "Queue", "AWS::SQS::Queue", Name="jobs")
    Validations.of(broken).acknowledge(
        Acknowledgment(id="CloudFormation-Validate::F3002", reason="A property of next year.")
    )
    app.synth()


def test_a_validation_that_cannot_run_fails_the_synth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ValidationError.Engine("no engine")

    monkeypatch.setattr(template_validation, "CompositeEngine", broken)
    found = report(tmp_path, TemplateValidation())
    assert "no engine" in json.dumps(found)


def test_the_engine_is_of_the_version_that_the_cdk_brings() -> None:
    brought = library_of_the_cdk() / "node_modules/@aws/cloudformation-validate/package.json"
    assert TemplateValidation().version == json.loads(brought.read_text())["version"]


def test_no_rule_is_left_out_that_the_cdk_does_not_leave_out() -> None:
    plugin = (library_of_the_cdk() / "core/lib/validation/cloudformation-validate-plugin.js").read_text()
    (left_out,) = re.findall(r"IGNORE_RULES=new Set\((\[.*?\])\)", plugin)
    (of_services,) = re.findall(r"services:\[(.*?)\]", plugin)
    assert json.loads(left_out) == list(LEFT_OUT)
    assert re.findall(r'ruleId:"(\w+)",service:"([\w:]+)"', of_services) == list(LEFT_OUT_OF_SERVICES)


@pytest.mark.long
def test_the_report_is_that_of_the_cdks_own_validation(tmp_path: Path) -> None:
    cdks = report(tmp_path / "cdk", CloudFormationValidatePlugin(include_default_rules=False))
    assert report(tmp_path / "ours", TemplateValidation()) == cdks
