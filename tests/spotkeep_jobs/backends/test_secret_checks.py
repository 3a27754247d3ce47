"""A launch finds secrets that no start of its job could read, all at once, and reads no value."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spotkeep_jobs.backends.ec2.checks import Checked
from spotkeep_jobs.backends.ec2.ec2_api import Ec2Api
from spotkeep_jobs.backends.secret_checks import SecretChecks
from spotkeep_jobs.document.request import JobRequest
from tests.models.ec2 import Ec2
from tests.models.faults import client_error
from tests.models.secrets_manager import SecretsManager

KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
OTHER_KEY = "arn:aws:kms:us-east-1:123456789012:key/0000abcd-12ab-34cd-56ef-1234567890ab"


class Kms:
    """KMS, which knows aliases, and lets its caller describe one key."""

    def describe_key(self, *, KeyId: str) -> dict[str, Any]:  # noqa: N803
        arns = {"alias/ours": KEY, "alias/theirs": OTHER_KEY}
        if (arn := arns[KeyId.rpartition(":")[2]]) != KEY:
            raise client_error("DescribeKey", "AccessDeniedException")
        return {"KeyMetadata": {"Arn": arn}}


@pytest.fixture
def aws() -> SecretsManager:
    made = SecretsManager()
    made.put("hf", "MARKER")
    made.put("github", "MARKER")
    return made


def checked(
    aws: SecretsManager,
    *,
    keys: tuple[str, ...] = (),
    subnets: tuple[str, ...] = (),
    ec2: Ec2 | None = None,
    **fields: Any,
) -> Checked:
    checks = SecretChecks(
        secrets_manager=lambda: aws,
        kms=lambda: Kms(),  # type: ignore[arg-type, return-value]
        ec2=Ec2Api(lambda: ec2, bundle_uri="s3://bundle"),  # type: ignore[arg-type, return-value]
        secrets=("hf", "github", "gone"),
        key_arns=keys,
        training_subnet_ids=subnets,
        region="us-east-1",
    )
    given = {"name": "count", "command": "true", "secrets": {"HF_TOKEN": "hf", "AGAIN": "hf:key::"}, **fields}
    return checks.check(JobRequest.model_validate(given))


def test_a_request_without_secrets_asks_nothing() -> None:
    nothing: Any = SimpleNamespace()
    assert checked(nothing, secrets={}, subnets=("subnet-1",)) == Checked()


def test_what_can_be_read_is_no_problem_and_no_value_is_read(aws: SecretsManager) -> None:
    source = {"git": "https://h/a/b.git", "commit": 40 * "0", "secret": aws.secrets["github"].arn}
    assert checked(aws, source=source) == Checked()
    assert not aws.read


def test_all_problems_come_at_once(aws: SecretsManager) -> None:
    aws.put("github", "MARKER", deleted=True, key=KEY)
    source = {"git": "https://h/a/b.git", "commit": 40 * "0", "secret": "github"}
    missing, deleted, key = checked(aws, secrets={"A": "gone", "B": "hf", "C": "unnamed"}, source=source).problems
    assert (missing.field, missing.problem) == ("secrets.A", "is a secret that is not in us-east-1")
    assert "create-secret --region us-east-1 --name gone" in missing.fix
    assert (deleted.field, "scheduled for deletion" in deleted.problem) == ("source.secret", True)
    assert (key.field, key.problem) == ("source.secret", "is encrypted with a KMS key that jobs may not use")
    assert "secret_key_arns" in key.fix


@pytest.mark.parametrize(
    ("key", "may_use"),
    [
        (None, True),
        ("alias/aws/secretsmanager", True),
        ("arn:aws:kms:us-east-1:123456789012:alias/aws/secretsmanager", True),
        (KEY, True),
        (KEY.rpartition("/")[2], True),
        ("alias/ours", True),
        ("arn:aws:kms:us-east-1:123456789012:alias/ours", True),
        (OTHER_KEY, False),
        (OTHER_KEY.rpartition("/")[2], False),
        ("alias/theirs", False),
    ],
)
def test_the_key_is_one_that_the_setting_names_however_aws_calls_it(
    aws: SecretsManager, key: str | None, may_use: bool
) -> None:
    aws.put("hf", "MARKER", key=key)
    assert (not checked(aws, keys=(KEY,)).problems) == may_use


def test_what_cannot_be_asked_stops_no_launch(aws: SecretsManager) -> None:
    aws.throttled = 1
    assert checked(aws).warnings == ("AWS Secrets Manager could not be asked about secrets (ThrottlingException).",)
    aws.describe_secret = lambda **_: _denied()  # type: ignore[method-assign]
    (warning,) = checked(aws).warnings
    assert warning == "secrets.HF_TOKEN could not be looked at: AccessDeniedException. The job needs to read it."


def _denied() -> Any:
    raise client_error("DescribeSecret", "AccessDeniedException")


def test_subnets_of_training_jobs_need_a_way_and_interfaces_have_no_public_addresses(aws: SecretsManager) -> None:
    ec2 = Ec2()
    ec2.subnets = [{"SubnetId": "subnet-1", "VpcId": "vpc-1", "MapPublicIpOnLaunch": True}]
    routes = [{"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": "igw-1", "State": "active"}]
    ec2.route_tables = [
        {"RouteTableId": "rtb-1", "VpcId": "vpc-1", "Associations": [{"SubnetId": "subnet-1"}], "Routes": routes}
    ]
    (problem,) = checked(aws, subnets=("subnet-1",), ec2=ec2).problems
    assert problem.field == "secrets"
    assert "subnet-1" in problem.problem
    # `FleetChecks` judges the subnets of instances.
    assert not checked(aws, subnets=("subnet-1",), ec2=ec2, backend="ec2", instance_types=["m5.large"]).problems
    ec2.vpc_endpoints = [
        {
            "ServiceName": "com.amazonaws.us-east-1.secretsmanager",
            "VpcId": "vpc-1",
            "State": "available",
            "PrivateDnsEnabled": True,
        }
    ]
    assert not checked(aws, subnets=("subnet-1",), ec2=ec2).problems
