"""Settings: typed, overridable from the command line, and refused whole."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_constructs.log_retention import LOG_RETENTION_DAYS
from spotkeep_constructs.settings import RESERVED_PREFIXES, Settings, SettingsError

from .conftest import ROOT

OTHER_REGIONS_SECRET = "arn:aws:secretsmanager:us-west-2:111122223333:secret:webhook-Ab12Cd"


def problems_of(**context: Any) -> dict[str, str]:
    with pytest.raises(SettingsError) as refused:
        Settings.from_context(context)
    return {problem.field: str(problem) for problem in refused.value.problems}


def is_reserved(name: str) -> bool:
    return name.startswith(tuple(RESERVED_PREFIXES))


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("keep_data_on_destroy", "false", False),
        ("instance_volume_gb", "200", 200),
        ("notify_emails", "a@example.com, b@example.com", ("a@example.com", "b@example.com")),
        ("notify_emails", '["a@example.com"]', ("a@example.com",)),
        ("notify_emails", "", ()),
        ("prices", "ml.m5.xlarge=0.23,g5.xlarge=1.006", {"ml.m5.xlarge": 0.23, "g5.xlarge": 1.006}),
        ("prices", '{"ml.m5.xlarge": 0.23}', {"ml.m5.xlarge": 0.23}),
        ("checkpoint_retention_days", "500", 500),
        ("checkpoint_retention_days", "none", None),
        ("region", "", None),
        ("account", "111122223333", "111122223333"),
        ("verify_callers", "true", True),
    ],
)
def test_the_command_line_overrides_with_text(name: str, text: str, value: object) -> None:
    settings = Settings.from_context({"spotkeep": {"deployment": "lab"}, name: text})
    assert getattr(settings, name) == value
    assert settings.deployment == "lab"


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"allowed_instance_types": ["ml.g5.*", "m5.*"]}, "default_instance_type"),
        ({"allowed_instance_types": ["ml.*"]}, "spot_instance_types"),
        ({"allowed_instance_types": []}, "allowed_instance_types"),
        ({"allowed_instance_types": ["[a"]}, "allowed_instance_types[0]"),
    ],
)
def test_the_deployments_own_instance_types_are_among_those_it_allows(settings: dict[str, Any], field: str) -> None:
    assert field in problems_of(spotkeep=settings)


def test_context_keys_of_the_cdk_are_not_settings() -> None:
    context = {"@aws-cdk/core:x": True, "aws:cdk:bundling-stacks": [], "cli-telemetry": False}
    assert Settings.from_context(context) == Settings()


def test_an_unknown_setting_is_refused_with_the_nearest_known_one() -> None:
    assert "Did you mean `notify_emails`?" in problems_of(spotkeep={"notify_email": "a@example.com"})["notify_email"]
    assert "Did you mean `orphans`?" in problems_of(orphan="report")["orphan"]
    assert "`spotkeep help settings`" in problems_of(zzz="1")["zzz"]


def test_all_wrong_settings_are_named_at_once_in_order() -> None:
    with pytest.raises(SettingsError) as refused:
        Settings.from_context(
            {
                "spotkeep": {
                    "deployment": "Lab_1",
                    "notify_emails": ["team@example.com", "team"],
                    "keep_data_on_destroy": "perhaps",
                    "log_retention_days": 31,
                    "prices": {"m5 xlarge": -1},
                    "spot_instance_types": ["ml.m5.xlarge"],
                    "deploiment": "x",
                },
            }
        )
    fields = [problem.field for problem in refused.value.problems]
    assert fields == [
        "deployment",
        "notify_emails[1]",
        "keep_data_on_destroy",
        "log_retention_days",
        "prices.m5 xlarge",
        "prices.m5 xlarge",
        "spot_instance_types[0]",
        "deploiment",
    ]
    message = str(refused.value)
    assert message.startswith("8 wrong settings")
    for problem in refused.value.problems:
        assert problem.found in message
        assert problem.fix
        assert problem.fix in message


IN_A_VPC = {"training_subnet_ids": "subnet-12345678", "training_security_group_ids": "sg-12345678"}


def test_in_a_vpc_the_default_image_may_be_in_any_private_registry() -> None:
    image = "registry.example.com/training:1"
    assert Settings.from_context({"default_image": image, **IN_A_VPC}).default_image == image


TWO_SUBNETS = {"vpc_id": "vpc-12345678", "vpc_subnet_ids": "subnet-12345678,subnet-12345679"}


@pytest.mark.parametrize(
    ("context", "field", "says"),
    [
        ({"deployment": "a" * 21}, "deployment", "not a deployment name"),
        ({"region": "Ireland"}, "region", "not an AWS region"),
        ({"account": "12"}, "account", "12 digits"),
        ({"permissions_boundary_arn": "boundary"}, "permissions_boundary_arn", "ARN of an IAM policy"),
        ({"checkpoint_retention_days": "399"}, "checkpoint_retention_days", "400 to 3650 are allowed"),
        ({"log_retention_days": "31"}, "log_retention_days", "The nearest is 30"),
        ({"default_image": "pytorch"}, "default_image", "tag or digest"),
        ({"default_image": "pytorch:latest", **IN_A_VPC}, "default_image", "names no registry"),
        (
            {"region": "cn-north-1", "default_image": "123456789012.dkr.ecr.{region}.amazonaws.com/lab:1"},
            "default_image",
            "dkr.ecr.cn-north-1.amazonaws.com.cn",
        ),
        ({"region": "eu-north-9"}, "default_image", "is not served in eu-north-9"),
        ({"default_image": "public.ecr.aws/docker/library/python:3.12", **IN_A_VPC}, "default_image", "public gallery"),
        ({"default_image": "docker.io/library/python:3.12"}, "training_subnet_ids", "is not in Amazon ECR"),
        ({"default_instance_type": "m5.xlarge"}, "default_instance_type", "not a SageMaker instance type"),
        ({"max_run_limit_seconds": "9999999"}, "max_run_limit_seconds", "2419200"),
        ({"prices": "ml.m5.xlarge"}, "prices", "without '='"),
        ({"prices": "{"}, "prices", "JSON object"),
        ({"notify_emails": "["}, "notify_emails", "JSON list"),
        ({"owner_emails": "ada=a@example.com,ada=b@example.com"}, "owner_emails", "names ada more than once"),
        ({"owner_emails": '{"ada": "a@x.com", "ada": "b@x.com"}'}, "owner_emails", "names ada more than once"),
        ({"prices": "ml.m5.xlarge=1,ml.m5.xlarge=2"}, "prices", "names ml.m5.xlarge more than once"),
        ({"queues": '{"gpu": {}, "gpu": {}}'}, "queues", "names gpu more than once"),
        ({"team_members": "vision=arn:aws:sts::*:assumed-role/V/*"}, "team_members", "means nothing without"),
        ({"verify_callers": "true", "isolated_teams": "vision"}, "team_members", "names no members of vision"),
        (
            {"verify_callers": "true", "administrators": "arn:aws:iam::111122223333:role/Vision"},
            "administrators[0]",
            "assumed-role/<role>/<session>",
        ),
        ({"verify_callers": "true", "administrators": "*"}, "administrators[0]", "not the ARN of users"),
        ({"data_locations": "lab-data/"}, "data_locations[0]", "is not an S3 location"),
        ({"data_locations": "s3://lab-data"}, "data_locations[0]", "does not end with '/'"),
        ({"data_locations": "s3://lab-data/${aws:username}/"}, "data_locations[0]", "holds $, which means something"),
        ({"data_locations": "s3://lab-data/\N{GREEK SMALL LETTER LAMDA}/"}, "data_locations[0]", "no IAM policy takes"),
        ({"data_locations": "s3://lab-data/a)/"}, "data_locations[0]", "holds a bracket"),
        ({"data_locations": "s3://lab-data/{a}/"}, "data_locations[0]", "holds a bracket"),
        ({"data_locations": ["s3://lab-data/a\tb/"]}, "data_locations[0]", "no IAM policy takes"),
        ({"data_key_arns": "alias/lab"}, "data_key_arns[0]", "is not the ARN of a KMS key"),
        (
            {"volume_kms_key_arn": "arn:aws:kms:us-west-2:123456789012:key/1234abcd", "region": "eu-west-1"},
            "volume_kms_key_arn",
            "of another region than eu-west-1",
        ),
        (
            {"data_key_arns": "arn:aws-cn:kms:cn-north-1:123456789012:key/1234abcd", "region": "eu-west-1"},
            "data_key_arns",
            "ARNs in eu-west-1 begin with arn:aws:",
        ),
        (
            {"permissions_boundary_arn": "arn:aws:iam::123456789012:policy/b", "region": "us-gov-west-1"},
            "permissions_boundary_arn",
            "begin with arn:aws-us-gov:",
        ),
        ({"training_subnet_ids": "subnet-0123456789abcdef0"}, "training_security_group_ids", "needs both"),
        ({"vpc_id": "vpc-0123456789abcdef0"}, "vpc_subnet_ids", "needs its id and its subnets"),
        (
            {"vpc_id": "vpc-0123456789abcdef0", "vpc_subnet_ids": "subnet-0123456789abcdef0"},
            "vpc_availability_zones",
            "names 0 zones for 1 subnets",
        ),
        (
            {**TWO_SUBNETS, "vpc_availability_zones": "eu-west-1a,eu-west-1a"},
            "vpc_availability_zones",
            "more than once",
        ),
        (
            {**TWO_SUBNETS, "vpc_availability_zones": "eu-west-1a,eu-west-2b"},
            "vpc_availability_zones",
            "names eu-west-2b, which is not of eu-west-1",
        ),
        (
            {**TWO_SUBNETS, "vpc_availability_zones": "eu-west-2a,eu-west-2b", "region": "eu-west-1"},
            "vpc_availability_zones",
            "names eu-west-2a, eu-west-2b, which is not of eu-west-1",
        ),
        ({"vpc_security_group_id": "sg-0123456789abcdef0"}, "vpc_security_group_id", "going to be created"),
        ({"spot_instance_types": "c5.large,c5.large"}, "spot_instance_types", "more than once"),
        ({"instance_ami": "ubuntu"}, "instance_ami", "neither an AMI id nor an SSM parameter"),
        ({"instance_root_device": "/dev/sda1"}, "instance_root_device", "read from the AMI"),
        ({"webhook_secret_arn": "spotkeep-webhook"}, "webhook_secret_arn", "the ARN of a secret"),
        (
            {"webhook_secret_arn": OTHER_REGIONS_SECRET, "region": "eu-west-1"},
            "webhook_secret_arn",
            "of another region than eu-west-1",
        ),
        ({"secrets": "two words"}, "secrets[0]", "neither the name nor the whole ARN of a secret"),
        ({"secrets": "arn:aws:secretsmanager:eu-west-1:123456789012:secret:hf"}, "secrets[0]", "neither the name nor"),
        (
            {"secrets": f"hf,{OTHER_REGIONS_SECRET}", "region": "eu-west-1"},
            "secrets",
            "of another region than eu-west-1",
        ),
        ({"secrets": "hf,hf"}, "secrets", "more than once"),
        ({"secrets": [f"{place:s>50}" for place in range(40)]}, "secrets", "needs 4,560 characters of a policy"),
        ({"secret_key_arns": "alias/lab", "secrets": "hf"}, "secret_key_arns[0]", "is not the ARN of a KMS key"),
        (
            {"secret_key_arns": "arn:aws:kms:eu-west-1:123456789012:key/1234abcd"},
            "secret_key_arns",
            "secrets names no secret",
        ),
        (
            {"file_systems": "fs-0123456789abcdef0", "ec2_fleets": "false"},
            "file_systems",
            "needs training_subnet_ids or ec2_fleets",
        ),
        ({"file_systems": "fs-12", "training_subnet_ids": "subnet-0123abcd"}, "file_systems[0]", "the id of a file"),
        (
            {"file_systems": "fs-0123abcd,fs-0123abcd", "training_subnet_ids": "subnet-0123abcd"},
            "file_systems",
            "more than once",
        ),
        ({"webhook_url": "https://hooks.example.com/T0/secret"}, "webhook_url", "create-secret"),
        ({"spotkeep": "x"}, "spotkeep", "not an object"),
    ],
)
def test_a_wrong_value_is_refused_with_field_value_and_fix(context: dict[str, str], field: str, says: str) -> None:
    assert says in problems_of(**context)[field]


def test_an_address_that_used_to_be_a_setting_is_refused_without_being_shown() -> None:
    assert "T0/secret" not in problems_of(webhook_url="https://hooks.example.com/T0/secret")["webhook_url"]


def test_an_owner_is_written_as_job_files_write_it_and_an_address_may_have_spaces_around_it() -> None:
    assert "begins or ends with a space" in str(problems_of(owner_emails={"ada ": "a@example.com"}))
    assert Settings.from_context({"notify_emails": [" a@example.com "]}).notify_emails == ("a@example.com",)


def test_a_data_location_is_any_prefix_that_a_channel_may_name_and_a_policy_may_hold() -> None:
    locations = ("s3://lab-data/", "s3://lab-data/two words/", "s3://lab-data/caf\u00e9/a=1&b [2] (x(y))/")
    assert Settings.from_context({"data_locations": ", ".join(locations)}).data_locations == locations


def test_an_address_has_as_many_owners_as_a_filter_takes() -> None:
    shared = {f"owner{number}": "Lab@example.com" for number in range(151)}
    assert "lab@example.com for more than 150 owners" in problems_of(owner_emails=shared)["owner_emails"]
    shared.popitem()
    assert len(Settings.from_context({"owner_emails": shared}).owner_emails) == 150


def test_a_wrong_value_does_not_hide_what_depends_on_it() -> None:
    assert set(problems_of(vpc_id="network", vpc_availability_zones="Dublin")) == {
        "vpc_id",
        "vpc_availability_zones[0]",
    }


@given(name=st.from_regex(r"[a-z][a-z0-9-]{0,19}", fullmatch=True).filter(lambda name: not is_reserved(name)))
def test_a_deployment_name_may_be_any_that_every_aws_name_can_start_with(name: str) -> None:
    assert Settings.from_context({"deployment": name}).deployment == name


@given(prefix=st.sampled_from(sorted(RESERVED_PREFIXES)), rest=st.from_regex(r"[a-z0-9-]{0,7}", fullmatch=True))
def test_a_name_that_aws_reserves_is_refused_with_the_reason(prefix: str, rest: str) -> None:
    assert f"begins with {prefix}, which" in problems_of(deployment=prefix + rest)["deployment"]


@given(name=st.text(max_size=30).filter(lambda text: not re.fullmatch(r"[a-z][a-z0-9-]{0,19}", text)))
def test_any_other_deployment_name_is_refused(name: str) -> None:
    assert set(problems_of(deployment=name)) == {"deployment"}


def test_callers_are_verified_at_a_function_url_which_some_regions_lack() -> None:
    assert not Settings.from_context({"region": "eu-central-2"}).function_urls
    problem = problems_of(region="eu-central-2", verify_callers="true")["verify_callers"]
    assert "function URL" in problem
    assert "eu-central-2" in problem


def test_a_region_without_aws_images_takes_an_image_of_its_own() -> None:
    image = "123456789012.dkr.ecr.{region}.amazonaws.com/lab:1"
    assert Settings.from_context({"region": "eu-north-9", "default_image": image}).default_image == image


@given(days=st.integers(min_value=-10, max_value=5000))
def test_a_log_retention_is_accepted_exactly_when_cloudwatch_accepts_it(days: int) -> None:
    try:
        Settings.from_context({"log_retention_days": str(days)})
    except SettingsError:
        assert days not in LOG_RETENTION_DAYS
    else:
        assert days in LOG_RETENTION_DAYS


def test_settings_cannot_be_changed_after_the_check() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().deployment = "other"  # type: ignore[misc]


def test_every_setting_is_documented() -> None:
    page = Path(ROOT / "docs" / "settings.md").read_text()
    missing = [name for name in Settings.model_fields if f"`{name}`" not in page]
    assert missing == []
