"""What holds for every permission, and what settings change: the local AWS enforces none, so the templates show it.

The statements themselves are in the snapshots, one by one; what a user, a script or an instance may not reach is
attacked in tests/security.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk import aws_iam as iam

from spotkeep_constructs.errors import PropertyError
from spotkeep_constructs.statements import allow

from .conftest import EVERYTHING_SET, Templates

Statement = dict[str, Any]

# IAM's access levels Read and List of the actions that AWS grants on `*` alone ("Actions, resources, and condition
# keys for AWS services"). Every other action on `*` needs a condition.
READ_ACTIONS_WITHOUT_RESOURCES = {
    "ec2:DescribeDhcpOptions",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
    "ecr:GetAuthorizationToken",
}

OWN_LOG_AND_TRACES = {
    "logs:CreateLogStream",
    "logs:PutLogEvents",
    "xray:PutTelemetryRecords",
    "xray:PutTraceSegments",
}
CAPPED = {"sagemaker:CreateTrainingJob", "sagemaker:UpdateTrainingJob"}


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def identity_policies(templates: Templates) -> Iterator[tuple[str, Statement]]:
    """Every statement of every role's and user's policy, with the logical id of its policy."""
    for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
        for name, resource in templates.resources(kind).items():
            for statement in resource["Properties"]["PolicyDocument"]["Statement"]:
                yield name, statement
    for name, resource in templates.resources("AWS::IAM::Role").items():
        for policy in resource["Properties"].get("Policies", []):
            for statement in policy["PolicyDocument"]["Statement"]:
                yield name, statement


def statements_of(templates: Templates, principal: str) -> list[Statement]:
    return [
        statement
        for name, statement in identity_policies(templates)
        if re.match(rf"{principal}(Role|Policy)?(DefaultPolicy|Policy)?[0-9A-F]{{8}}", name)
    ]


def statement_with(templates: Templates, principal: str, action: str) -> Statement:
    found = [statement for statement in statements_of(templates, principal) if action in listed(statement["Action"])]
    assert len(found) == 1, f"{principal} has {len(found)} statements with {action}"
    return found[0]


def text_of(value: Any) -> str:
    """An ARN as a person reads it: joined, references in angle brackets."""
    match value:
        case {"Fn::Join": [delimiter, parts]}:
            return str(delimiter).join(map(text_of, parts))
        case {"Ref": name}:
            return f"<{name}>"
        case {"Fn::GetAtt": [name, attribute]}:
            return f"<{name}.{attribute}>"
        case {"Fn::GetStackOutput": {"OutputName": name}}:
            return f"<{name}>"
    return str(value)


@pytest.fixture(params=["as the checkout is", "with every setting"])
def any_templates(
    request: pytest.FixtureRequest, templates: Templates, templates_with_everything: Templates
) -> Templates:
    return templates if request.param == "as the checkout is" else templates_with_everything


def test_the_webhook_reads_its_two_secrets_and_no_more(templates_with_everything: Templates) -> None:
    statements = [
        statement
        for name, statement in identity_policies(templates_with_everything)
        if name.startswith("NotificationsHookWebhookRole")
    ]
    actions = [action for statement in statements for action in listed(statement["Action"])]
    [reading] = [each for each in statements if "secretsmanager:GetSecretValue" in listed(each["Action"])]
    address, signing = reading["Resource"]
    assert address == EVERYTHING_SET["webhook_secret_arn"]
    assert signing["Ref"].startswith("NotificationsHookSecret")
    assert set(actions) == {*OWN_LOG_AND_TRACES, "sqs:SendMessage", "secretsmanager:GetSecretValue"}


def test_the_function_that_searches_may_do_nothing_and_the_launcher_may_invoke_it(
    templates_with_everything: Templates, templates: Templates
) -> None:
    policies = list(identity_policies(templates_with_everything))
    its_own = [statement for name, statement in policies if name.startswith("SearchFunctionRole")]
    actions = {action for statement in its_own for action in listed(statement["Action"])}
    assert actions == {*OWN_LOG_AND_TRACES, "sqs:SendMessage"}
    [(who, invoking)] = [
        (name, statement)
        for name, statement in policies
        if "SearchFunction" in text_of(statement.get("Resource"))
        and "lambda:InvokeFunction" in listed(statement["Action"])
    ]
    assert who.startswith("LauncherRole")
    assert listed(invoking["Action"]) == ["lambda:InvokeFunction"]
    assert not [name for name, _ in identity_policies(templates) if name.startswith("Search")]


def test_no_action_holds_a_wildcard_and_nothing_is_allowed_by_exclusion(any_templates: Templates) -> None:
    for name, statement in identity_policies(any_templates):
        if statement["Effect"] == "Deny":
            assert name.startswith(("Users", "InstanceRole", "RunRole")), name
            continue
        assert "NotAction" not in statement, name
        assert "NotResource" not in statement, name
        assert not [action for action in listed(statement["Action"]) if "*" in action], name


def test_no_write_action_on_everything_without_a_condition(any_templates: Templates) -> None:
    unbound = {
        (name, action)
        for name, statement in identity_policies(any_templates)
        if statement["Effect"] == "Allow" and "*" in listed(statement["Resource"]) and not statement.get("Condition")
        for action in listed(statement["Action"])
        if action not in READ_ACTIONS_WITHOUT_RESOURCES
    }
    assert unbound == set()


def test_names_that_are_an_accounts_hold_the_region(any_templates: Templates) -> None:
    """Of IAM, dashboards and chat configurations: the same deployment in a second region would find them taken."""
    fields = {
        "AWS::CloudWatch::Dashboard": "DashboardName",
        "AWS::Chatbot::MicrosoftTeamsChannelConfiguration": "ConfigurationName",
        "AWS::Chatbot::SlackChannelConfiguration": "ConfigurationName",
        "AWS::IAM::InstanceProfile": "InstanceProfileName",
        "AWS::IAM::ManagedPolicy": "ManagedPolicyName",
        "AWS::IAM::Role": "RoleName",
        "AWS::S3::Bucket": "BucketName",
    }
    names = [
        text_of(resource["Properties"][field])
        for kind, field in fields.items()
        for resource in any_templates.resources(kind).values()
        if field in resource.get("Properties", {})
    ]
    assert names
    assert [name for name in names if "<AWS::Region>" not in name and "us-west-1" not in name] == []


def test_no_aws_managed_policy_is_attached(any_templates: Templates) -> None:
    for role in any_templates.resources("AWS::IAM::Role").values():
        assert "ManagedPolicyArns" not in role["Properties"]


@pytest.mark.parametrize(
    "kind", ["AWS::KMS::Key", "AWS::S3::BucketPolicy", "AWS::SQS::QueuePolicy", "AWS::SNS::TopicPolicy"]
)
def test_no_resource_policy_allows_everybody(any_templates: Templates, kind: str) -> None:
    for name, resource in any_templates.resources(kind).items():
        document = resource["Properties"].get("KeyPolicy") or resource["Properties"]["PolicyDocument"]
        for statement in document["Statement"]:
            if statement["Effect"] == "Deny":
                continue
            assert statement["Principal"] not in ("*", {"AWS": "*"}), name
            service = statement["Principal"].get("Service")
            assert not service or statement.get("Condition"), name


def test_roles_trust_one_service_and_where_aws_offers_it_one_account(any_templates: Templates) -> None:
    without_account = {"lambda.amazonaws.com", "ec2.amazonaws.com", "chatbot.amazonaws.com"}
    for name, role in any_templates.resources("AWS::IAM::Role").items():
        (statement,) = role["Properties"]["AssumeRolePolicyDocument"]["Statement"]
        match statement["Principal"]:
            case {"Service": str(service)}:
                bound = "aws:SourceAccount" in json.dumps(statement.get("Condition", {}))
                assert bound != (service in without_account), name
            case {"AWS": function}:
                assert name.startswith("Run")
                assert text_of(function).startswith("<CredentialsFunctionRole")
            case other:
                pytest.fail(f"{name} trusts {other}")


@pytest.mark.parametrize("principal", ["Launcher", "Controller"])
class TestThoseThatLaunch:
    def test_keep_pools_no_longer_than_the_setting_says(
        self, templates: Templates, templates_with_everything: Templates, principal: str
    ) -> None:
        for found, longest in ((templates, "3600"), (templates_with_everything, "1800")):
            capped = [each for each in statements_of(found, principal) if CAPPED & {*listed(each["Action"])}]
            assert {action for each in capped for action in listed(each["Action"])} == CAPPED
            for each in capped:
                bound = each["Condition"]["NumericLessThanEqualsIfExists"]
                assert bound == {"sagemaker:KeepAlivePeriod": longest}

    def test_pass_the_roles_of_teams_as_well(self, templates_with_everything: Templates, principal: str) -> None:
        (passed,) = [
            statement["Resource"]
            for statement in statements_of(templates_with_everything, principal)
            if (statement.get("Condition") or {}).get("StringEquals", {}).get("iam:PassedToService")
            == "sagemaker.amazonaws.com"
        ]
        assert len(passed) == 3


@pytest.mark.parametrize("principal", ["Launcher", "Controller", "ExecutionRole"])
def test_aws_may_use_the_key_for_volumes_when_they_are_encrypted(
    templates: Templates, templates_with_everything: Templates, principal: str
) -> None:
    statement = statement_with(templates_with_everything, principal, "kms:CreateGrant")
    assert statement["Condition"] == {"Bool": {"kms:GrantIsForAWSResource": "true"}}
    assert not [found for found in statements_of(templates, principal) if "kms:CreateGrant" in listed(found["Action"])]


def object_actions(templates: Templates, principal: str) -> set[str]:
    return {
        action
        for statement in statements_of(templates, principal)
        for action in listed(statement["Action"])
        if action.startswith("s3:")
    }


def test_the_launcher_touches_no_object_but_the_bundle_and_alone_puts_the_specs_of_runs(
    any_templates: Templates,
) -> None:
    def objects(principal: str, action: str) -> list[str]:
        return sorted(
            re.sub("[0-9a-f]{64}", "<hash>", text_of(resource)).partition("/")[2]
            for statement in statements_of(any_templates, principal)
            if action in listed(statement["Action"])
            for resource in listed(statement["Resource"])
        )

    assert object_actions(any_templates, "Launcher") == {"s3:GetObject", "s3:PutObject"}
    assert objects("Launcher", "s3:GetObject") == ["<hash>.pyz", "bundles/*"]
    bundle, *specs = objects("Launcher", "s3:PutObject")
    assert bundle == "bundles/<hash>/spotkeep.pyz"
    assert specs
    assert all(key.endswith("specs/*") for key in specs)
    assert not [key for key in objects("Controller", "s3:PutObject") if "specs" in key]


def test_no_setting_lets_a_function_delete_checkpoints(templates_with_everything: Templates) -> None:
    for function in ("Controller", "Launcher"):
        assert "s3:DeleteObject" not in object_actions(templates_with_everything, function)


def test_training_jobs_have_network_permissions_only_with_a_network_of_their_own(
    templates: Templates, templates_with_everything: Templates
) -> None:
    of_every_job = {each for found in statements_of(templates, "ExecutionRole") for each in listed(found["Action"])}
    assert not [action for action in of_every_job if action.startswith("ec2:")]
    creating = statement_with(templates_with_everything, "ExecutionRole", "ec2:CreateNetworkInterface")
    named = {text_of(resource).rpartition(":")[2] for resource in creating["Resource"]}
    assert named == {
        "network-interface/*",
        "subnet/subnet-0aaaaaaaaaaaaaaa1",
        "subnet/subnet-0aaaaaaaaaaaaaaa2",
        "security-group/sg-0aaaaaaaaaaaaaaa1",
    }
    deleting = statement_with(templates_with_everything, "ExecutionRole", "ec2:DeleteNetworkInterface")
    assert "ec2:Subnet" in deleting["Condition"]["ArnEquals"]


def test_jobs_log_to_the_mlflow_of_sagemakers_that_the_setting_names(
    templates: Templates, templates_with_everything: Templates
) -> None:
    server, app = EVERYTHING_SET["mlflow_arns"]
    for role in ("ExecutionRole", "ExecutionRolevision"):
        logging = statement_with(templates_with_everything, role, "sagemaker-mlflow:LogMetric")
        assert (logging["Resource"], [each for each in logging["Action"] if "Delete" in each]) == (server, [])
        calling = statement_with(templates_with_everything, role, "sagemaker:CallMlflowAppApi")
        assert calling["Resource"] == app
    assert "mlflow" not in json.dumps(statements_of(templates, "ExecutionRole"))


def test_jobs_read_the_secrets_that_the_setting_names_and_the_launcher_describes_them(
    templates: Templates, templates_with_everything: Templates
) -> None:
    name, arn = EVERYTHING_SET["secrets"]
    [key] = EVERYTHING_SET["secret_key_arns"]
    policies = templates_with_everything.resources("AWS::IAM::ManagedPolicy")
    reading = {logical_id: each["Properties"] for logical_id, each in policies.items() if "SecretsPolicy" in logical_id}
    roles = sorted(role["Ref"] for each in reading.values() for role in each["Roles"])
    of_jobs = ["ExecutionRole", "ExecutionRolespeechRole", "ExecutionRolevisionRole", "RunRole"]
    assert [re.sub(r"[0-9A-F]{8}$", "", role) for role in roles] == of_jobs
    for policy in reading.values():
        values, decrypts = policy["PolicyDocument"]["Statement"]
        assert values["Action"] == "secretsmanager:GetSecretValue"
        of_the_name, by_its_arn = values["Resource"]
        assert text_of(of_the_name) == f"arn:aws:secretsmanager:us-west-1:111122223333:secret:{name}-??????"
        assert by_its_arn == arn
        assert (decrypts["Action"], decrypts["Resource"]) == ("kms:Decrypt", key)
        assert "secretsmanager.us-west-1." in json.dumps(decrypts["Condition"]["StringEquals"]["kms:ViaService"])
    describing = statement_with(templates_with_everything, "LauncherRole", "secretsmanager:DescribeSecret")
    assert describing["Resource"][1] == arn
    assert key in statement_with(templates_with_everything, "LauncherRole", "kms:DescribeKey")["Resource"]
    assert "GetSecretValue" not in json.dumps(statements_of(templates_with_everything, "LauncherRole"))
    assert "secretsmanager" not in json.dumps([statement for _name, statement in identity_policies(templates)])


def test_jobs_mount_the_file_systems_that_the_setting_names_and_the_launcher_describes_them(
    templates: Templates, templates_with_everything: Templates
) -> None:
    named, key = EVERYTHING_SET["file_systems"], "sagemaker:FileSystemId"
    for function in ("Launcher", "Controller"):
        creating = [
            [
                each["Condition"]
                for each in statements_of(of, function)
                if each["Action"] == "sagemaker:CreateTrainingJob"
            ]
            for of in (templates, templates_with_everything)
        ]
        [[unset], [without, mounting]] = creating
        assert unset["Null"] == without["Null"] == {key: "true"}
        assert (mounting["Null"], mounting["ForAllValues:StringEquals"]) == ({key: "false"}, {key: named})
        assert mounting["StringEquals"] == without["StringEquals"]
    describing = statement_with(
        templates_with_everything, "LauncherRole", "elasticfilesystem:DescribeMountTargetSecurityGroups"
    )
    assert [text_of(each).rpartition("/")[2] for each in describing["Resource"]] == named
    assert statement_with(templates_with_everything, "LauncherRole", "fsx:DescribeFileSystems")["Resource"] == "*"
    every = json.dumps([statement for _name, statement in identity_policies(templates)])
    assert "fsx:" not in every
    assert "elasticfilesystem:" not in every


class TestShells:
    def test_are_opened_by_the_launcher_in_training_jobs_and_on_instances_of_runs(
        self, templates_with_everything: Templates
    ) -> None:
        found = [
            (text_of(resource).removeprefix("arn:aws:"), each.get("Condition"))
            for each in statements_of(templates_with_everything, "Launcher")
            if "ssm:StartSession" in listed(each["Action"])
            for resource in listed(each["Resource"])
        ]
        assert found == [
            ("*", {"StringLike": {"ssm:resourceTag/aws:ssmmessages:target-id": "sagemaker-training-job:*"}}),
            ("ssm:us-west-1::document/AWS-StartInteractiveCommand", None),
            (
                "ec2:us-west-1:111122223333:instance/*",
                {
                    "StringEquals": {"ssm:resourceTag/spotkeep:deployment": "lab"},
                    "Null": {"ssm:resourceTag/spotkeep:run": "false"},
                },
            ),
        ]

    def test_need_the_setting_and_are_never_a_users(
        self, templates: Templates, templates_with_everything: Templates
    ) -> None:
        def who(found: Templates, action: str) -> set[str]:
            return {name for name, each in identity_policies(found) if action in listed(each["Action"])}

        assert who(templates, "ssm:StartSession") == set()
        assert all(name.startswith("Launcher") for name in who(templates_with_everything, "ssm:StartSession"))
        assert all("Instance" in name for name in who(templates, "ssmmessages:OpenDataChannel"))
        for role in ("ExecutionRole", "ExecutionRolevision", "ExecutionRolespeech"):
            assert statement_with(templates_with_everything, role, "ssmmessages:OpenDataChannel")


def test_every_role_is_bounded_when_the_setting_says_so(
    templates: Templates, templates_with_everything: Templates
) -> None:
    for role in templates.resources("AWS::IAM::Role").values():
        assert "PermissionsBoundary" not in role["Properties"]
    roles = templates_with_everything.resources("AWS::IAM::Role")
    assert len(roles) == 15
    for role in roles.values():
        assert role["Properties"]["PermissionsBoundary"] == "arn:aws:iam::111122223333:policy/boundary"


def test_a_permission_with_a_wildcard_needs_its_reason(stack: Stack) -> None:
    role = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    with pytest.raises(PropertyError, match="hold a wildcard without a reason"):
        allow(role, actions=["s3:GetObject"], resources=["arn:aws:s3:::bucket/*"])
    with pytest.raises(PropertyError, match="Name each action"):
        allow(role, actions=["s3:Get*"], resources=["arn:aws:s3:::bucket/key"])


class TestWarmPools:
    def test_users_are_kept_from_longer_pools_whatever_else_they_may(
        self, templates: Templates, templates_with_everything: Templates
    ) -> None:
        for found, longest in ((templates, "3600"), (templates_with_everything, "1800")):
            (denied,) = [each for each in statements_of(found, "Users") if each["Effect"] == "Deny"]
            assert set(denied["Action"]) == CAPPED
            assert denied["Condition"] == {"NumericGreaterThan": {"sagemaker:KeepAlivePeriod": longest}}

    def test_a_teams_role_may_what_everybodys_may(self, templates_with_everything: Templates) -> None:
        def actions(role: str) -> set[str]:
            return {
                action
                for name, statement in identity_policies(templates_with_everything)
                if name.startswith(f"{role}DefaultPolicy")
                for action in listed(statement["Action"])
            }

        assert actions("ExecutionRolevisionRole") == actions("ExecutionRolespeechRole") == actions("ExecutionRole")
        assert actions("ExecutionRole")
