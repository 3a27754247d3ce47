"""The rules a deployment is held to: AwsSolutions, the template validation, cfn-lint, and where packages may be."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
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
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from cloudformation_validate import ValidationError
from constructs import IConstruct

from spotkeep_constructs import acknowledgements
from spotkeep_constructs.acknowledgements import flattened
from spotkeep_constructs.statements import allow
from spotkeep_stacks import rules as stack_rules
from spotkeep_stacks.rules import LEFT_OUT, LEFT_OUT_OF_SERVICES, TemplateValidation

from .conftest import EVERYTHING_SET, ROOT, Templates, context_of_checkout, rules, synthesize


def strict_app(directory: Path) -> App:
    app = App(
        builtin_cloud_formation_validation=False, context=context_of_checkout(), outdir=str(directory / "cdk.out")
    )
    Validations.of(app).add_plugins(*rules())
    return app


def rules_broken(app: App) -> list[str]:
    """Synthesize an app that has to fail, and name the rules that its report says were broken."""
    with pytest.raises(RuntimeError, match=r"(?i)validation|synthesis"):
        app.synth()
    report = json.loads(Path(app.outdir, "validation-report.json").read_text())
    return [violation["ruleName"] for plugin in report["pluginReports"] for violation in plugin["violations"]]


@pytest.mark.parametrize("which", ["templates", "templates_with_everything", "templates_without_fleets"])
def test_a_deployment_passes_awssolutions_and_strict_validation(which: str, request: pytest.FixtureRequest) -> None:
    # Synthesis itself raises on a finding; the next test shows that it does.
    deployed: Templates = request.getfixturevalue(which)
    with_fleets = set() if which == "templates_without_fleets" else {"Compute"}
    assert set(deployed.by_stack) == {"Storage", "Jobs", "Events"} | with_fleets


def test_a_finding_of_cdk_nag_without_a_reason_fails_the_synth(tmp_path: Path) -> None:
    app = strict_app(tmp_path)
    sqs.Queue(Stack(app, "Test"), "Queue")
    assert rules_broken(app) == ["AwsSolutions-SQS3", "AwsSolutions-SQS4"]


def test_a_template_that_cloudformation_would_refuse_fails_the_synth(tmp_path: Path) -> None:
    app = strict_app(tmp_path)
    CfnResource(Stack(app, "Test"), "Parameter", type="AWS::SSM::Parameter", properties={"Typ": "String", "Value": "1"})
    assert set(rules_broken(app)) == {"F3002", "F3003"}


def test_the_rules_that_the_cdk_adds_to_cfn_lints_are_about_gamelift_alone() -> None:
    rules()
    libraries = Path(os.environ["JSII_RUNTIME_PACKAGE_CACHE_ROOT"], "aws-cdk-lib", version("aws-cdk-lib"))
    assert {path.name for path in libraries.glob("*/core/lib/validation/rules/*")} == {"gamelift-fleet.rego"}


def test_a_reason_covers_the_wildcard_it_is_given_for_and_no_other(tmp_path: Path) -> None:
    app = strict_app(tmp_path)
    stack = Stack(app, "Test")
    role = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    bucket = s3.Bucket.from_bucket_name(stack, "Bucket", "bucket")
    named = [bucket.arn_for_objects("runs/*"), "arn:aws:s3:::bucket/two words/caf\u00e9 [2] (x)/*"]
    allow(role, actions=["s3:GetObject"], resources=named, wildcard="Named later.")
    app.synth()

    other = strict_app(tmp_path / "other")
    stack = Stack(other, "Test")
    role = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    allow(role, actions=["s3:GetObject"], resources=["arn:aws:s3:::bucket/runs/*"], wildcard="Named later.")
    role.add_to_policy(iam.PolicyStatement(actions=["s3:GetObject"], resources=["arn:aws:s3:::bucket/*"]))
    assert rules_broken(other) == ["AwsSolutions-IAM5[Resource::arn:aws:s3:::bucket/*]"]


@pytest.mark.long
def test_every_finding_that_is_accepted_is_one_that_cdk_nag_makes_and_has_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cdk-nag 3 is silent about an acknowledgement without a finding, of a rule that it does not know, or of no reason.

    One that is left behind would accept what comes later. So the deployment is judged with nothing accepted: what would
    have been is held against what was found. An acknowledgement that several constructs share needs one finding.
    """
    accepted: list[tuple[str, str, str]] = []

    class Recorded:
        def __init__(self, scope: IConstruct) -> None:
            self._path = scope.node.path

        of = classmethod(lambda cls, scope: cls(scope))

        def acknowledge(self, *acknowledgments: Acknowledgment) -> None:
            accepted.extend(
                (self._path, each.id.removeprefix("AwsSolutions::"), each.reason) for each in acknowledgments
            )

    monkeypatch.setattr(acknowledgements, "Validations", Recorded)
    with pytest.raises(RuntimeError, match=r"(?i)validation|synthesis"):
        synthesize(tmp_path, EVERYTHING_SET)
    report = json.loads((tmp_path / "cdk.out" / "validation-report.json").read_text())
    found = {
        (violation["ruleName"], construct["constructPath"])
        for plugin in report["pluginReports"]
        for violation in plugin["violations"]
        for construct in violation["violatingConstructs"]
    }
    needed = {
        (rule, reason)
        for path, rule, reason in accepted
        if any(rule == of_rule and f"{where}/".startswith(f"{path}/") for of_rule, where in found)
    }
    assert {(rule, reason) for _, rule, reason in accepted} - needed == set()
    assert [reason for _, _, reason in accepted if not re.fullmatch(r"[A-Z].{20,}\.", reason)] == []


def test_nothing_is_changed_behind_the_back_of_the_rules() -> None:
    """cdk-nag judges the properties of constructs, and not what an override makes of them in the template.

    Source: https://github.com/cdklabs/cdk-nag (README, Rules and Property Overrides)
    """
    change = re.compile(r"\.add_(property_)?(deletion_)?override\(")
    sources = [*(ROOT / "constructs").rglob("*.py"), *(ROOT / "stacks").rglob("*.py"), ROOT / "app.py"]
    assert [str(source) for source in sources if change.search(source.read_text())] == []


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        ("arn:${AWS::Partition}:s3", "arn:<AWS::Partition>:s3"),
        ({"Ref": "AWS::Region"}, "<AWS::Region>"),
        ({"Fn::GetAtt": ["Bucket", "Arn"]}, "<Bucket.Arn>"),
        ({"Fn::Join": ["", [{"Fn::GetAtt": ["Bucket", "Arn"]}, "/runs/*"]]}, "<Bucket.Arn>/runs/*"),
        ({"Fn::ImportValue": "Stack:Export"}, "Stack:Export"),
        ({"Fn::GetStackOutput": {"OutputName": "A"}}, '{"Fn::GetStackOutput":{"OutputName":"A"}}'),
    ],
)
def test_findings_are_named_as_cdk_nag_names_them(reference: object, text: str) -> None:
    assert flattened(reference) == text


def test_every_feature_flag_that_matters_is_on() -> None:
    context = context_of_checkout()
    assert context["@aws-cdk/core:validateAgainstDefaultRules"] is True
    assert context["@aws-cdk/core:defaultCrossStackReferences"] == "weak"


@pytest.mark.long
def test_cfn_lint_is_clean(templates: Templates, templates_with_everything: Templates, tmp_path: Path) -> None:
    files = [
        each for deployed in (templates, templates_with_everything) for each in deployed.assets.glob("*.template.json")
    ]
    assert files
    ended = subprocess.run(
        [
            str(Path(sys.executable).parent / "cfn-lint"),
            *("--config-file", str(ROOT / ".cfnlintrc"), "--format", "parseable"),
            *map(str, files),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.parametrize("source_root", ["stacks", "constructs", "lambda", "training", "cli", "local"])
def test_source_roots_are_not_packages(source_root: str) -> None:
    # One would shadow the library `constructs` for `python app.py`, which pytest alone does not notice.
    assert not (ROOT / source_root / "__init__.py").exists()


def test_stacks_need_only_those_before_them(templates: Templates) -> None:
    order = ["Storage", "Compute", "Jobs", "Events"]
    for part, template in templates.by_stack.items():
        text = json.dumps(template)
        needed = {other for other in order if f'"StackName": "Spotkeep-{other}"' in text}
        assert all(order.index(other) < order.index(part) for other in needed)
        assert "Fn::ImportValue" not in text


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

    monkeypatch.setattr(stack_rules, "CompositeEngine", broken)
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
