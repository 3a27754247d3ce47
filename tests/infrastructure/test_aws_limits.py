"""Settings at their own limits make a deployment that AWS takes: every policy, template, environment and name fits.

What settings allow beyond AWS's limits would fail half-way through a deployment, or not be synthesized at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from spotkeep_constructs.settings import MOST_QUEUE_RESOURCES, RESOURCES_OF_A_QUEUE, Settings, SettingsError

from .conftest import EVERYTHING_SET, SharedDirectory, Templates, synthesize

_ARN = "arn:aws:{}:ap-southeast-1:111122223333:{}"
_TYPES = [f"ml.p6e-gb{number}.48xlarge" for number in range(200, 205)]
_TEAMS = [f"{team:t>20}" for team in range(50)]
_CALLERS = ["arn:aws:sts::111122223333:assumed-role/" + f"{caller:R<64}/{64 * 's'}" for caller in range(50)]


def _shares(number: int) -> dict[str, Any]:
    share = {"types": dict.fromkeys(_TYPES, 10), "borrow_limit_percent": 1_000}
    return {f"{share_number:s>20}": share for share_number in range(number)}


def _queues(number: int, *, shares: int) -> dict[str, Any]:
    queue = {"types": dict.fromkeys(_TYPES, 10_000), "shares": _shares(shares)}
    return {f"{queue_number:q>20}": queue for queue_number in range(number)}


LARGEST: dict[str, Any] = EVERYTHING_SET | {
    "deployment": 20 * "d",
    "region": "ap-southeast-1",
    "dashboard": True,
    "notify_emails": [f"{mail:m>242}@example.com" for mail in range(50)],
    "operator_emails": [f"{mail:o>242}@example.com" for mail in range(50)],
    "owner_emails": {f"{owner:w>128}": f"{owner:w>242}@example.com" for owner in range(200)},
    "permissions_boundary_arn": f"arn:aws:iam::111122223333:policy/{128 * 'b'}",
    "default_image": f"123456789012.dkr.ecr.{{region}}.amazonaws.com/{101 * 'i'}:{104 * 't'}",
    "prices": {f"ml.p{kind}.24xlarge": 12.3456 for kind in range(2_000)},
    "allowed_instance_types": ["*", *(f"ml.p{kind}.*" for kind in range(99))],
    "isolated_teams": _TEAMS[:20],
    # Without it, users may invoke the launcher directly as well.
    "verify_callers": False,
    "team_members": {},
    "administrators": [],
    "webhook_secret_arn": _ARN.format("secretsmanager", f"secret:{505 * 's'}-AbCd12"),
    "queues": _queues(50, shares=(MOST_QUEUE_RESOURCES // 50) - RESOURCES_OF_A_QUEUE),
    "data_locations": [f"s3://{place:b>63}/{185 * 'p'}/" for place in range(50)],
    "data_key_arns": [f"arn:aws:kms:ap-southeast-1:123456789012:key/{key:k>64}" for key in range(20)],
    "mlflow_arns": [
        *(_ARN.format("sagemaker", f"mlflow-tracking-server/{server:m>256}") for server in range(10)),
        *(_ARN.format("sagemaker", f"mlflow-app/{server:m>256}") for server in range(10)),
    ],
    "secrets": [f"{secret:s>6}" for secret in range(50)],
    "secret_key_arns": [_ARN.format("kms", f"key/{key:k>64}") for key in range(10)],
    "training_subnet_ids": [f"subnet-{subnet:017x}" for subnet in range(16)],
    "training_security_group_ids": [f"sg-{group:017x}" for group in range(5)],
    "file_systems": [f"fs-{system:018x}" for system in range(10)],
    "vpc_subnet_ids": [f"subnet-{subnet:017x}" for subnet in range(8)],
    "vpc_availability_zones": [f"ap-southeast-1{zone}" for zone in "abcdefgh"],
    "spot_instance_types": [f"p{kind}gn.24xlarge" for kind in range(20)],
    "volume_kms_key_arn": _ARN.format("kms", "key/1234abcd-12ab-34cd-56ef-1234567890ab"),
}
OF_ONE_BUCKET = LARGEST | {
    "verify_callers": True,
    "team_members": dict.fromkeys(_TEAMS, _CALLERS),
    "administrators": _CALLERS,
    "queues": _queues(12, shares=20),
    "data_locations": [f"s3://{63 * 'b'}/{place:p>185}/" for place in range(50)],
}


@pytest.fixture(params=["each kind of data apart", "data of one bucket"])
def largest(request: pytest.FixtureRequest, shared_directory: SharedDirectory) -> Templates:
    name, settings = ("largest", LARGEST) if request.param_index == 0 else ("largest-of-one-bucket", OF_ONE_BUCKET)
    return Templates.read(shared_directory(name, lambda directory: synthesize(directory, settings)) / "cdk.out")


def longest(value: Any) -> str:
    """What CloudFormation would make of a value in the region and with the names that are the longest."""
    match value:
        case {"Fn::Join": [separator, parts]}:
            return str(separator).join(longest(part) for part in parts)
        case {"Ref": "AWS::Region"}:
            return "ap-southeast-1"
        case {"Ref": "AWS::AccountId"}:
            return "111122223333"
        case {"Ref": "AWS::Partition"}:
            return "aws"
        case {"Ref": "AWS::URLSuffix"}:
            return "amazonaws.com"
        case {"Fn::Select": [_, {"Fn::GetAZs": _}]}:
            return "ap-southeast-1a"
        case {"Fn::GetAtt": [name, "Arn"]} if "Role" in name:
            return "arn:aws:iam::123456789012:role/" + 64 * "r"
        case {"Fn::GetAtt": [_, "Arn"]}:
            return "arn:aws:sqs:ap-southeast-1:123456789012:" + 60 * "q"
        case {"Fn::GetStackOutput": {"OutputName": name}} if "Subnet" in name or "Template" in name:
            return "subnet-0123456789abcdef0"
        case {"Fn::GetStackOutput": {"OutputName": name}} if "Role" in name and "Arn" in name:
            return "arn:aws:iam::123456789012:role/" + 64 * "r"
        case {"Fn::GetStackOutput": {"OutputName": name}} if "Arn" in name:
            return "arn:aws:kms:ap-southeast-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
        case {"Ref": name} if name.startswith("DeadLetters"):
            return "https://sqs.ap-southeast-1.amazonaws.com/123456789012/" + 60 * "q"
        case {"Ref": name} if name.startswith("Topics"):
            return "arn:aws:sns:ap-southeast-1:123456789012:" + 60 * "t"
        case dict():
            return 64 * "n"
    return str(value)


def deployed(value: Any) -> Any:
    """A part of a template as CloudFormation hands it to AWS: each reference is replaced by the longest text."""
    match value:
        case dict() if len(value) == 1 and next(iter(value)).startswith(("Fn::", "Ref")):
            return longest(value)
        case dict():
            return {name: deployed(each) for name, each in value.items()}
        case list():
            return [deployed(each) for each in value]
    return value


def characters(value: Any) -> int:
    """The length of what is written as JSON, without white space, as IAM counts it."""
    return len(re.sub(r"\s", "", json.dumps(deployed(value))))


def properties_of(templates: Templates, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, resource in templates.resources(kind).items():
        yield name, resource.get("Properties", {})


# ---- Every list has a limit, and the largest deployment reaches it.


def lists_in(schema: dict[str, Any], definitions: dict[str, Any], path: str) -> Iterator[tuple[str, int | None]]:
    """Each list and each mapping that a schema allows, with the most that it may hold."""
    if reference := schema.get("$ref"):
        yield from lists_in(definitions[reference.rpartition("/")[2]], definitions, path)
    for each in (*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else ())):
        yield from lists_in(each, definitions, path)
    if schema.get("type") == "array":
        yield path, schema.get("maxItems")
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        yield path, schema.get("maxProperties")
        yield from lists_in(values, definitions, f"{path}.*")
    for name, each in schema.get("properties", {}).items():
        yield from lists_in(each, definitions, f"{path}.{name}".lstrip("."))


_SCHEMA = Settings.model_json_schema()
LISTS = list(lists_in(_SCHEMA, _SCHEMA["$defs"], ""))


def test_every_list_of_the_settings_has_a_limit() -> None:
    assert len(LISTS) > 20
    assert [path for path, most in LISTS if most is None] == []


def test_the_largest_deployment_has_each_list_at_its_limit() -> None:
    """But for the shares of all queues together, which a limit of their own bounds."""
    for path, most in LISTS:
        name, *inside = path.split(".")
        if not inside:
            sizes = [len(settings[name]) for settings in (LARGEST, OF_ONE_BUCKET)]
            assert max(sizes) == most, path
    assert len(LARGEST["queues"]) * (RESOURCES_OF_A_QUEUE + 3) == MOST_QUEUE_RESOURCES


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("notify_emails", [f"m{mail}@example.com" for mail in range(51)], "at most 50"),
        ("owner_emails", {f"o{owner}": "o@example.com" for owner in range(201)}, "at most 200"),
        ("data_locations", [f"s3://bucket/{250 * 'p'}/"], "has 263 characters; 256 are allowed"),
        ("queues", _queues(50, shares=20), "needs 1150 resources, 3 a queue and one a share, and its stack has room"),
        ("queues", _queues(50, shares=20), "With 50 queues, name 150 shares at most in all"),
        ("queues", _queues(51, shares=1), "at most 50"),
        ("queues", _queues(1, shares=21), "at most 20"),
    ],
)
def test_what_would_not_fit_is_refused_with_the_largest_number_that_does(setting: str, value: Any, said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        Settings.from_context({"spotkeep": {setting: value, "drills": "many"}})
    first, second = (str(problem) for problem in refused.value.problems)
    assert said in (first if first.startswith(setting) else second)


# ---- CloudFormation: https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html


@pytest.mark.long
def test_every_template_fits_into_cloudformations_limits(largest: Templates) -> None:
    for name, template in largest.by_stack.items():
        [path] = largest.assets.glob(f"*-{name}.template.json")
        assert path.stat().st_size <= 1_000_000, name
        assert len(template["Resources"]) <= 500, name
        assert len(template.get("Outputs", {})) <= 200, name
        assert len(template.get("Parameters", {})) <= 200, name
        assert len(template["Description"].encode()) <= 1_024, name
        for mapping in template.get("Mappings", {}).values():
            assert len(mapping) <= 200, name


# ---- IAM: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html


@pytest.mark.long
def test_every_policy_fits_into_iams_limits(largest: Templates) -> None:
    inline: dict[str, int] = {}
    attached: dict[str, int] = {}
    for name, policy in properties_of(largest, "AWS::IAM::Policy"):
        for role in policy["Roles"]:
            inline[role["Ref"]] = inline.get(role["Ref"], 0) + characters(policy["PolicyDocument"])
        assert policy["PolicyDocument"]["Statement"], name
    for name, policy in properties_of(largest, "AWS::IAM::ManagedPolicy"):
        assert characters(policy["PolicyDocument"]) <= 6_144, name
        for role in policy.get("Roles", []):
            attached[role["Ref"]] = attached.get(role["Ref"], 0) + 1
    for name, role in properties_of(largest, "AWS::IAM::Role"):
        assert characters(role["AssumeRolePolicyDocument"]) <= 2_048, name
        own = sum(characters(each["PolicyDocument"]) for each in role.get("Policies", []))
        assert own + inline.get(name, 0) <= 10_240, name
        assert attached.get(name, 0) <= 10, name
    assert max(attached.values()) > 5, "the data locations alone need that many"


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "document", "most"),
    [
        # https://docs.aws.amazon.com/kms/latest/developerguide/resource-limits.html
        ("AWS::KMS::Key", "KeyPolicy", 32_768),
        # https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucket-policies.html
        ("AWS::S3::BucketPolicy", "PolicyDocument", 20_480),
        # https://docs.aws.amazon.com/general/latest/gr/sns.html
        ("AWS::SNS::TopicPolicy", "PolicyDocument", 30_720),
        # https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-quota.html
        ("AWS::Events::Rule", "EventPattern", 2_048),
        # https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
        ("AWS::Lambda::Function", "Environment", 4_096),
    ],
)
def test_every_document_fits_into_the_limit_of_its_service(
    largest: Templates, kind: str, document: str, most: int
) -> None:
    measured = {name: characters(each[document]) for name, each in properties_of(largest, kind) if document in each}
    assert measured
    assert not {name: size for name, size in measured.items() if size > most}


# ---- Names and texts, each by the page of its resource in the CloudFormation template reference.

NAMES = {
    ("AWS::Batch::JobQueue", "JobQueueName"): 128,
    ("AWS::Batch::QuotaShare", "QuotaShareName"): 128,
    ("AWS::Batch::SchedulingPolicy", "Name"): 128,
    ("AWS::Batch::ServiceEnvironment", "ServiceEnvironmentName"): 128,
    ("AWS::Chatbot::MicrosoftTeamsChannelConfiguration", "ConfigurationName"): 128,
    ("AWS::Chatbot::SlackChannelConfiguration", "ConfigurationName"): 128,
    ("AWS::CloudWatch::Dashboard", "DashboardName"): 255,
    ("AWS::IAM::ManagedPolicy", "ManagedPolicyName"): 128,
    ("AWS::IAM::Policy", "PolicyName"): 128,
    ("AWS::Lambda::Function", "FunctionName"): 64,
    ("AWS::Logs::LogGroup", "LogGroupName"): 512,
    ("AWS::SNS::Topic", "TopicName"): 256,
    ("AWS::SSM::Parameter", "Name"): 1_011,
    ("AWS::Scheduler::ScheduleGroup", "Name"): 64,
}
TEXTS = {
    ("AWS::CloudWatch::Alarm", "AlarmDescription"): 1_024,
    ("AWS::Events::Rule", "Description"): 512,
    ("AWS::FIS::ExperimentTemplate", "Description"): 512,
    ("AWS::IAM::ManagedPolicy", "Description"): 1_000,
    ("AWS::IAM::Role", "Description"): 1_000,
    ("AWS::Lambda::Function", "Description"): 256,
    ("AWS::SNS::Topic", "DisplayName"): 100,
    ("AWS::SSM::Parameter", "Value"): 4_096,
}
# Not what a resource is called: a metric's name and the like, and references to other resources.
OF_OTHERS = {"MetricName", "TableName", "FunctionName", "InstanceProfileName"}


@pytest.mark.long
def test_every_name_and_text_is_as_short_as_aws_wants_it(largest: Templates) -> None:
    seen = set()
    for template in largest.by_stack.values():
        for name, resource in template["Resources"].items():
            for field, value in resource.get("Properties", {}).items():
                kind = (resource["Type"], field)
                most = (NAMES | TEXTS).get(kind)
                if most is not None:
                    seen.add(kind)
                    assert len(longest(value)) <= most, (name, field)
                elif field.endswith("Name") and field not in OF_OTHERS:
                    pytest.fail(f"{name}: the limit of {kind} is in no table")
    assert seen == NAMES.keys() | TEXTS.keys()


@pytest.mark.long
def test_the_dashboard_the_user_data_and_the_filters_of_topics_fit(largest: Templates) -> None:
    # https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/cloudwatch_limits.html
    body = json.loads(longest(largest.only("AWS::CloudWatch::Dashboard")["DashboardBody"]))
    assert len(body["widgets"]) <= 500
    assert all(len(widget["properties"].get("metrics", [])) <= 500 for widget in body["widgets"])
    # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-add-user-data.html: before it is encoded.
    user_data = largest.only("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]["UserData"]["Fn::Base64"]
    assert len(longest(user_data)) <= 16_384
    filters = [each for _, each in properties_of(largest, "AWS::SNS::Subscription") if each.get("FilterPolicy")]
    assert len(filters) == 200
