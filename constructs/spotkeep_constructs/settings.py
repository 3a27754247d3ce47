"""The settings of a deployment, as one typed value that is read from the CDK context and checked as a whole.

Defaults live here and in the `spotkeep` object of cdk.json. `-c <setting>=<value>` overrides both. Nothing is looked up
in AWS, so a synth needs no account. Every wrong value is reported at once, each with its field, the value found and a
fix.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from spotkeep_constructs.log_retention import LOG_RETENTION_DAYS
from spotkeep_fleet.ecr_images import ecr_registry, is_in_public_gallery, names_a_registry
from spotkeep_jobs.document.framework_images import ACCOUNTS
from spotkeep_jobs.document.metrics import MLFLOW_ARN
from spotkeep_jobs.document.queue import Queue, Queues
from spotkeep_jobs.document.reading import Wording, problems_of, shown
from spotkeep_jobs.errors import Problem

CONTEXT_KEY = "spotkeep"

LONGEST_RUN_SECONDS = 28 * 24 * 3600
"""SageMaker's limit of MaxRuntimeInSeconds."""

LEAST_CHECKPOINT_RETENTION_DAYS = 400
"""Longer than a run lives.

Its jobs train for at most 365 days in all (`max_total_run`), and SageMaker ends each of them 30 days after it was
created. A checkpoint holds no file that is older than its run. The source that each job begins with is as old as the
run."""

LONGEST_KEEP_ALIVE_SECONDS = 3600
"""SageMaker's limit of KeepAlivePeriodInSeconds."""

IMAGE_ACCOUNTS: Mapping[str, str] = MappingProxyType(
    {region: account for region, account in ACCOUNTS["pytorch"].items() if not region.startswith(("cn-", "us-gov-"))}
)
"""Account of AWS's Deep Learning Containers, by region of the partition `aws`, since each region pulls from its own."""

RESOURCES_OF_A_QUEUE = 3
"""Resources of one queue, which are service environment, scheduling policy and job queue. Each share is one more."""
MOST_QUEUE_RESOURCES = 300
"""Most resources of all queues.

The rest of the 500 resources of a CloudFormation stack is for their stack's other parts.

Source: https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html
"""

MOST_OWNERS = 200
"""Each has a filter policy of its own, and a topic takes 200 of them.

Source: https://docs.aws.amazon.com/general/latest/gr/sns.html (Filter policies, per topic)
"""

MOST_OWNERS_OF_AN_ADDRESS = 150
"""As many values a filter policy may have.

Source: https://docs.aws.amazon.com/sns/latest/dg/subscription-filter-policy-constraints.html
"""

MOST_CHARACTERS_OF_SECRETS = 3_500
"""Most characters of the ARNs of all secrets. They share a managed policy of 6,144 characters with their keys."""
_CHARACTERS_BESIDE_A_NAME = 64
"""The characters of a secret's ARN beside the name of the secret."""

MOST_ZONES = 8
"""More than the availability zones of any region."""

REGIONS_WITHOUT_FUNCTION_URLS = frozenset(
    {
        "ap-east-2",
        "ap-south-2",
        "ap-southeast-4",
        "ap-southeast-5",
        "ap-southeast-6",
        "ap-southeast-7",
        "ca-west-1",
        "eu-central-2",
        "eu-south-2",
        "il-central-1",
        "me-central-1",
    }
)
"""Source: "Creating and managing Lambda function URLs", AWS Lambda developer guide, November 2026."""


_PARTITIONS = {
    "cn-": "aws-cn",
    "us-gov-": "aws-us-gov",
    "us-isob-": "aws-iso-b",
    "us-isof-": "aws-iso-f",
    "us-iso-": "aws-iso",
    "eu-isoe-": "aws-iso-e",
    "eusc-": "aws-eusc",
}
"""Those of regions that are not in the partition `aws`, by the beginning of the region's name.

Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference-arns.html
"""

RESERVED_PREFIXES = {
    "aws": "Parameter Store",
    "ssm": "Parameter Store",
    "amzn-s3-demo-": "S3",
    "sthree-": "S3",
    "xn--": "S3",
}
"""Prefixes that no deployment's name may have. AWS reserves them for its own parameters and buckets.

Sources: https://docs.aws.amazon.com/systems-manager/latest/APIReference/API_PutParameter.html (Name)
    https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
"""


class SettingsError(ValueError):
    """The context holds settings that cannot be deployed.

    Attributes:
        problems: All of them, in the order of the settings.
    """

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        lines = "\n".join(f"  - {problem}" for problem in problems)
        super().__init__(
            f"{len(problems)} wrong setting{'s' if len(problems) != 1 else ''} "
            f"(cdk.json, object {CONTEXT_KEY!r}, or -c on the command line):\n{lines}"
        )


def _refuse(problem: str, fix: str) -> PydanticCustomError:
    return PydanticCustomError("setting", "{problem}", {"problem": problem, "fix": fix})


def _each_named_once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return a mapping, unless a name comes twice, since its first value would be lost silently."""
    twice = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
    if twice:
        raise _refuse(f"names {', '.join(twice)} more than once", "Name each once.")
    return dict(pairs)


def _from_json(text: str, problem: str, fix: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_each_named_once)
    except PydanticCustomError:
        raise
    except ValueError as error:
        raise _refuse(problem, fix) from error


def _list_from_text(value: Any) -> Any:
    """Read a list from a string of `-c`, such as `a,b` or `["a", "b"]`."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return _from_json(value, "starts like a JSON list but is not one", "Write it as a,b or as a JSON list.")
    return [item.strip() for item in value.split(",") if item.strip()]


def _mapping_from_text(value: Any) -> Any:
    """Read a mapping from a string of `-c`, either `k=v,k=v` or a JSON object."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("{"):
        return _from_json(
            value, "starts like a JSON object but is not one", "Write it as name=value,name=value or as JSON."
        )
    pairs = [item.partition("=") for item in value.split(",") if item.strip()]
    if any(not separator for _, separator, _ in pairs):
        raise _refuse("holds an entry without '='", "Write it as name=value,name=value or as JSON.")
    return _each_named_once([(name.strip(), given.strip()) for name, _, given in pairs])


def _object_from_text(value: Any) -> Any:
    """Read an object of objects from a JSON string of `-c`. An empty text is an empty object."""
    if not isinstance(value, str):
        return value
    return _from_json(value or "{}", "is not a JSON object", "Write it as JSON, or set it in cdk.json.")


def _none_from_text(value: Any) -> Any:
    """Return None for an empty value, which on the command line unsets a value of cdk.json."""
    return None if isinstance(value, str) and value.strip().lower() in {"", "none", "null"} else value


def _checked(expression: str, *, problem: str, fix: str) -> Any:
    compiled = re.compile(expression)

    def check(value: str) -> str:
        if not compiled.fullmatch(value):
            raise _refuse(problem, fix)
        return value

    return AfterValidator(check)


RegionName = Annotated[
    str,
    _checked(
        r"[a-z]{2}(-[a-z]+)+-\d",
        problem="is not an AWS region",
        fix="Give a region such as eu-west-1, or leave it out to use the credentials' own.",
    ),
]
AccountId = Annotated[
    str,
    _checked(
        r"\d{12}",
        problem="is not an AWS account id",
        fix="Give its 12 digits in quotes, or leave it out to use the credentials' own.",
    ),
]
PolicyArn = Annotated[
    str,
    _checked(
        r"arn:aws[a-z-]*:iam::(\d{12}|aws):policy/.+",
        problem="is not the ARN of an IAM policy",
        fix="Give one such as arn:aws:iam::123456789012:policy/boundary.",
    ),
]
VpcId = Annotated[
    str,
    _checked(
        r"vpc-[0-9a-f]{8,17}",
        problem="is not a VPC id",
        fix="Give an id such as vpc-0123456789abcdef0, or leave it out and a small network is created.",
    ),
]
_GUID = r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
SlackChannel = Annotated[
    str,
    _checked(
        r"[TE][0-9A-Z]{7,254}/[CG][0-9A-Z]{7,254}",
        problem="is not a Slack workspace and channel",
        fix="Give their ids, workspace first, such as T0123ABCD/C0123ABCD.",
    ),
]
TeamsChannel = Annotated[
    str,
    _checked(
        rf"{_GUID}/{_GUID}/[\w=+/.,-]*%3[aA][\w=+/.,-]*%40[\w=+/.,-]*",
        problem="is not a Teams tenant, team and channel",
        fix="Give their ids from the channel's link: tenant/team/19%3a...%40thread.tacv2.",
    ),
]
SecretArn = Annotated[
    str,
    _checked(
        r"arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:\d{12}:secret:[A-Za-z0-9/_+=.@-]{1,512}-[A-Za-z0-9]{6}",
        problem="is not the ARN of a secret in Secrets Manager",
        fix="Give the whole ARN that create-secret answers, which ends with six characters of AWS's.",
    ),
]
SecretName = Annotated[
    str,
    _checked(
        r"(?!arn:)[A-Za-z0-9/_+=.@-]{1,512}"
        r"|arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:\d{12}:secret:[A-Za-z0-9/_+=.@-]{1,512}-[A-Za-z0-9]{6}",
        problem="is neither the name nor the whole ARN of a secret in Secrets Manager",
        fix="Give the name, or the ARN that create-secret answers, which ends with six characters of AWS's.",
    ),
]
Email = Annotated[
    str,
    Field(max_length=254),
    AfterValidator(str.strip),
    _checked(
        r"[^@\s,]+@[^@\s,]+\.[^@\s,]+",
        problem="is not an e-mail address",
        fix="Give addresses such as team@example.com.",
    ),
]
FileSystemId = Annotated[
    str,
    _checked(
        r"fs-[0-9a-f]{8,18}",
        problem="is not the id of a file system",
        fix="Give ids of FSx for Lustre or Amazon EFS, such as fs-0123456789abcdef0.",
    ),
]
SubnetId = Annotated[
    str,
    _checked(
        r"subnet-[0-9a-f]{8,17}",
        problem="is not a subnet id",
        fix="Give ids such as subnet-0123456789abcdef0.",
    ),
]
SecurityGroupId = Annotated[
    str,
    _checked(
        r"sg-[0-9a-f]{8,17}",
        problem="is not a security group id",
        fix="Give ids such as sg-0123456789abcdef0.",
    ),
]
MlflowArn = Annotated[
    str,
    _checked(
        MLFLOW_ARN,
        problem="is not the ARN of an MLflow tracking server or app of SageMaker",
        fix="Give one such as arn:aws:sagemaker:eu-west-1:123456789012:mlflow-tracking-server/experiments.",
    ),
]


def _data_location(value: str) -> str:
    """Check an S3 location as it will stand in an IAM policy.

    Source: https://docs.aws.amazon.com/IAM/latest/APIReference/API_CreatePolicy.html (PolicyDocument, its pattern)
    """
    fix = "Give a bucket or a prefix of it: s3://my-data/ or s3://my-data/cifar10/."
    found = re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?", value, re.DOTALL)
    if found is None:
        raise _refuse("is not an S3 location: s3:// and the name of a bucket", fix)
    key = found[1] or ""
    if special := sorted({character for character in key if character in "*?$"}):
        raise _refuse(f"holds {' '.join(special)}, which means something else in an IAM policy", fix)
    if not re.fullmatch(r"[\x20-\x7e\xa0-\xff]*", key):
        raise _refuse("holds a character that no IAM policy takes", "Name a folder above it, or rename the folder.")
    if not _brackets_match(key):
        raise _refuse(
            "holds a bracket that the CDK cannot read in the name of a finding: {, } or one without its other half",
            "Name a folder above it, or rename the folder.",
        )
    if not key.endswith("/"):
        raise _refuse("does not end with '/'", fix)
    return value


def _brackets_match(text: str) -> bool:
    """Return True when a text holds no brackets but nested pairs of ( ) and [ ]."""
    brackets = re.sub(r"[^()\[\]{}]", "", text)
    while brackets != (fewer := re.sub(r"\(\)|\[\]", "", brackets)):
        brackets = fewer
    return not brackets


DataLocation = Annotated[str, Field(max_length=256), AfterValidator(_data_location)]
KeyArn = Annotated[
    str,
    _checked(
        r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[A-Za-z0-9-]{1,64}",
        problem="is not the ARN of a KMS key",
        fix="Give one such as arn:aws:kms:eu-west-1:123456789012:key/<key id>; an alias names no key to IAM.",
    ),
]
ZoneName = Annotated[
    str,
    _checked(
        r"[a-z]{2}(-[a-z]+)+-\d[a-z]",
        problem="is not an availability zone",
        fix="Give names such as eu-west-1a.",
    ),
]
Ec2InstanceType = Annotated[
    str,
    _checked(
        r"(?!ml\.)[a-z][a-z0-9-]*\.[a-z0-9-]+",
        problem="is not an EC2 instance type",
        fix="Give EC2's names, such as g5.xlarge (the ml. prefix is SageMaker's).",
    ),
]
TrainingInstanceType = Annotated[
    str,
    _checked(
        r"ml\.[a-z][a-z0-9-]*\.[a-z0-9-]+",
        problem="is not a SageMaker instance type",
        fix="Give SageMaker's names, such as ml.m5.xlarge.",
    ),
]

PricedInstanceType = Annotated[
    str,
    _checked(
        r"(ml\.)?[a-z][a-z0-9-]*\.[a-z0-9-]+",
        problem="is not an instance type",
        fix="Give SageMaker's names, such as ml.m5.xlarge, or EC2's, such as g5.xlarge; their prices differ.",
    ),
]

InstanceTypePattern = Annotated[
    str,
    _checked(
        r"[a-z0-9*?.-]+",
        problem="is not a pattern of instance types",
        fix="Give types or shell patterns of them, such as ml.g5.* for SageMaker's and g5.* for EC2's.",
    ),
]

TeamName = Annotated[
    str,
    _checked(
        r"[a-z][a-z0-9-]{0,19}",
        problem="is not a team",
        fix="Use 1 to 20 of a-z, 0-9 and '-', a letter first, for example vision.",
    ),
]

PrincipalPattern = Annotated[
    str,
    _checked(
        r"arn:aws[a-z-]*:(iam::(\d{12}|\*):(root|user/[\w+=,.@/*-]+)"
        r"|sts::(\d{12}|\*):(assumed-role/[\w+=,.@*-]+/[\w+=,.@*-]+|federated-user/[\w+=,.@*-]+))",
        problem="is not the ARN of users or of sessions of a role",
        fix="Give arn:aws:iam::<account>:user/<name>, or of a role "
        "arn:aws:sts::<account>:assumed-role/<role>/<session>; a * stands for anything but ':' and '/'.",
    ),
]
"""Who calls, as AWS names it: a session of a role, not the role itself."""

OwnerName = Annotated[
    str,
    Field(min_length=1, max_length=128),
    _checked(
        r"\S(.*\S)?", problem="begins or ends with a space, which no owner does", fix="Write it as the job files do."
    ),
]

Listed = BeforeValidator(_list_from_text)
Mapped = BeforeValidator(_mapping_from_text)
Nested = BeforeValidator(_object_from_text)
TeamMembers = Annotated[tuple[PrincipalPattern, ...], Field(max_length=50), Listed]
Unset = BeforeValidator(_none_from_text)
WrittenAsNumber = BeforeValidator(lambda value: str(value) if type(value) is int else value)


class Settings(BaseModel):
    """Everything a team can set. docs/settings.md explains each setting.

    Field order matters in two places, where a check that compares two fields sits on the later one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    deployment: Annotated[
        str,
        _checked(
            r"[a-z][a-z0-9-]{0,19}",
            problem="is not a deployment name",
            fix="Use 1 to 20 of a-z, 0-9 and '-', a letter first, for example spotkeep.",
        ),
    ] = Field(default="spotkeep", description="prefixes every name of the deployment")
    region: Annotated[RegionName | None, Unset] = Field(
        default=None, description="region to deploy to; the credentials' own when left out"
    )
    account: Annotated[AccountId | None, Unset, WrittenAsNumber] = Field(
        default=None, description="account to deploy to; the credentials' own when left out"
    )

    notify_emails: Annotated[tuple[Email, ...], Listed] = Field(
        default=(), max_length=50, description="addresses subscribed to every notification about a run"
    )
    owner_emails: Annotated[dict[OwnerName, Email], Mapped] = Field(
        default={},
        max_length=MOST_OWNERS,
        description="address of each owner of runs, subscribed to the notifications about their own runs",
    )
    operator_emails: Annotated[tuple[Email, ...], Listed] = Field(
        default=(),
        max_length=50,
        description="addresses subscribed to the deployment's own alarms; notify_emails when empty",
    )

    slack_channel: Annotated[SlackChannel | None, Unset] = Field(
        default=None,
        description="Slack workspace and channel that notifications are shown in, as ids: T0123ABCD/C0123ABCD",
    )
    teams_channel: Annotated[TeamsChannel | None, Unset] = Field(
        default=None, description="Microsoft Teams channel that notifications are shown in, as ids: tenant/team/channel"
    )
    webhook_secret_arn: Annotated[SecretArn | None, Unset] = Field(
        default=None, description="secret that holds the https address which every notification is posted to, signed"
    )

    dashboard: bool = Field(
        default=True,
        description="a CloudWatch dashboard, and the metrics it shows (at most about 8 USD a month in all)",
    )

    keep_data_on_destroy: bool = Field(
        default=True, description="keep bucket, key and table when their stack is destroyed"
    )
    checkpoint_retention_days: Annotated[int | None, Unset] = Field(
        default=None,
        ge=LEAST_CHECKPOINT_RETENTION_DAYS,
        le=3650,
        description="days after which S3 expires an object of a run, counted from when it was written; never when "
        "left out",
    )
    log_retention_days: int = Field(default=90, description="days the functions' logs are kept")

    permissions_boundary_arn: Annotated[PolicyArn | None, Unset] = Field(
        default=None, description="managed policy that bounds every role of the deployment"
    )

    default_image: Annotated[
        str,
        # Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_AlgorithmSpecification.html
        Field(max_length=255),
        _checked(
            r"[^\s]*[^\s:/]+[:@][^\s/]+",
            problem="is not an image address with a tag or digest",
            fix="Give <account id>.dkr.ecr.{region}.amazonaws.com/<repository>:<tag>; {region} is filled in, and "
            "{account} by the account of AWS's own images there.",
        ),
    ] = Field(
        default="{account}.dkr.ecr.{region}.amazonaws.com/pytorch-training:2.10.0-{processor}-py313",
        description="image of jobs that name none; {region} stands for the region deployed to, {account} for AWS's "
        "images there, {processor} for cpu or gpu by a job's instance types",
    )
    prices: Annotated[dict[PricedInstanceType, Annotated[float, Field(gt=0)]], Mapped] = Field(
        default={},
        max_length=2_000,
        description="on-demand USD per hour by instance type, ml.g5.xlarge for SageMaker, g5.xlarge for EC2",
    )
    max_run_limit_seconds: int = Field(
        default=432_000,
        ge=60,
        le=LONGEST_RUN_SECONDS,
        description="the longest that one job of a run may train; at most the account's quota",
    )
    allowed_instance_types: Annotated[tuple[InstanceTypePattern, ...], Listed] = Field(
        default=("*",),
        max_length=100,
        description="instance types that runs may use, as shell patterns: ml.m5.*,ml.g5.*,m5.*; every type with *",
    )
    default_instance_type: TrainingInstanceType = Field(
        default="ml.m5.xlarge", description="instance type of jobs that name none"
    )
    run_cost_limit_usd: Annotated[float | None, Unset] = Field(
        default=1_000.0,
        gt=0,
        description="USD of instance time that a run may come to in the worst case; no limit when unset",
    )
    volume_size_limit_gb: Annotated[int | None, Unset] = Field(
        default=2_048,
        ge=1,
        le=65_536,
        description="the largest storage of an instance, or volume of a run on EC2, in GB; AWS's own limits when unset",
    )
    volume_iops_limit: Annotated[int | None, Unset] = Field(
        default=16_000,
        ge=3_000,
        le=256_000,
        description="the most IOPS a run on EC2 may have provisioned for its volume; AWS's own limits when unset",
    )
    runs_in_flight_limit: int = Field(
        default=100, ge=1, le=1_000, description="how many runs may be under way at a time, waiting ones included"
    )
    max_keep_alive_seconds: int = Field(
        default=LONGEST_KEEP_ALIVE_SECONDS,
        ge=0,
        le=LONGEST_KEEP_ALIVE_SECONDS,
        description="the longest a warm pool may be kept after a job; 0 allows none",
    )
    pool_reminder_seconds: int = Field(
        default=600,
        ge=0,
        lt=LONGEST_KEEP_ALIVE_SECONDS,
        description="how long before its end users are reminded of a warm pool; 0 sends no reminder",
    )
    pool_idle_limit_seconds: Annotated[int | None, Unset] = Field(
        default=None,
        ge=60,
        le=LONGEST_KEEP_ALIVE_SECONDS,
        description="a warm pool that was idle for longer is ended; never when left out",
    )
    orphans: Literal["remove", "report"] = Field(
        default="remove",
        description="whether what belongs to no live run is removed by rule (remove), or only reported (report)",
    )
    isolated_teams: Annotated[tuple[TeamName, ...], Listed] = Field(
        default=(),
        max_length=20,
        description="teams with an execution role, and so with warm pools and stored data, of their own",
    )
    verify_callers: bool = Field(
        default=False,
        description="users reach the launcher by its URL alone, where AWS says who calls; owner and team are checked",
    )
    team_members: Annotated[dict[TeamName, TeamMembers], Mapped] = Field(
        default={}, max_length=50, description="with verify_callers, who belongs to each team: ARNs, * for any name"
    )
    administrators: Annotated[tuple[PrincipalPattern, ...], Listed] = Field(
        default=(), max_length=50, description="with verify_callers, who may act on every run: ARNs, * for any name"
    )
    shells: bool = Field(
        default=False,
        description="users may open a shell in their runs (`spotkeep shell`), through Session Manager",
    )
    tpe_search: bool = Field(
        default=False,
        description="sweeps may search by tpe: a function of its own, with Optuna, chooses their trials",
    )
    queues: Annotated[Queues, Nested] = Field(
        default={},
        description="AWS Batch queues for training jobs: by name, how many instances of each type may run at a time, "
        "and its shares",
    )
    encrypt_training_volumes: bool = Field(
        default=False,
        description="encrypt jobs' storage volumes with the deployment's key (not possible on types with local disks)",
    )
    data_locations: Annotated[tuple[DataLocation, ...], Listed] = Field(
        default=(), max_length=50, description="S3 locations outside the deployment's bucket that jobs may read"
    )
    data_key_arns: Annotated[tuple[KeyArn, ...], Listed] = Field(
        default=(), max_length=20, description="KMS keys that the data_locations are encrypted with"
    )
    mlflow_arns: Annotated[tuple[MlflowArn, ...], Listed] = Field(
        default=(), max_length=20, description="MLflow tracking servers and apps of SageMaker that jobs may log to"
    )
    secrets: Annotated[tuple[SecretName, ...], Listed] = Field(
        default=(), max_length=50, description="secrets of Secrets Manager that jobs may read, by name or ARN"
    )
    secret_key_arns: Annotated[tuple[KeyArn, ...], Listed] = Field(
        default=(), max_length=10, description="KMS keys that the secrets are encrypted with, where not with AWS's own"
    )
    training_subnet_ids: Annotated[tuple[SubnetId, ...], Listed] = Field(
        default=(), max_length=16, description="subnets training jobs run in; SageMaker's own network when empty"
    )
    training_security_group_ids: Annotated[tuple[SecurityGroupId, ...], Listed] = Field(
        default=(), max_length=5, description="security groups of training jobs, with training_subnet_ids"
    )

    ec2_fleets: bool = Field(
        default=True, description="deploy what runs on EC2 spot fleets need; without runs it costs nothing"
    )
    file_systems: Annotated[tuple[FileSystemId, ...], Listed] = Field(
        default=(),
        max_length=10,
        description="file systems of FSx for Lustre and Amazon EFS that jobs may mount, on SageMaker with "
        "training_subnet_ids",
    )
    volume_retention_days: Annotated[int | None, Unset] = Field(
        default=14, ge=1, le=3650, description="days the volume of an ended run stays; for ever when unset"
    )
    drills: bool = Field(
        default=False, description="deploy the experiment with which `spotkeep drill` takes real instances away"
    )
    vpc_id: Annotated[VpcId | None, Unset] = Field(
        default=None, description="existing network for EC2 instances; created when left out"
    )
    vpc_subnet_ids: Annotated[tuple[SubnetId, ...], Listed] = Field(
        default=(), max_length=MOST_ZONES, description="the existing network's subnets, one a zone"
    )
    vpc_availability_zones: Annotated[tuple[ZoneName, ...], Listed] = Field(
        default=(), max_length=MOST_ZONES, description="the zones of vpc_subnet_ids, in the same order"
    )
    vpc_security_group_id: Annotated[SecurityGroupId | None, Unset] = Field(
        default=None, description="existing security group for instances; one without ingress is created when left out"
    )

    spot_instance_types: Annotated[tuple[Ec2InstanceType, ...], Listed] = Field(
        default=("m5.xlarge", "m5a.xlarge", "m6i.xlarge", "m6a.xlarge", "m7i.xlarge"),
        max_length=20,
        description="EC2 types a spot fleet may choose from, in every zone",
    )
    instance_ami: Annotated[
        str,
        _checked(
            r"ami-[0-9a-f]{8,17}|(/[A-Za-z0-9_.-]+)+",
            problem="is neither an AMI id nor an SSM parameter name",
            fix="Give ami-0123456789abcdef0 or a parameter such as /aws/service/.../ami-id.",
        ),
    ] = Field(
        # Source: https://docs.aws.amazon.com/dlami/latest/devguide/find-dlami-id.html
        default="/aws/service/deeplearning/ami/x86_64/oss-nvidia-driver-gpu-pytorch-2.11-amazon-linux-2023/latest/ami-id",
        description="AMI of EC2 instances, or the SSM parameter that holds its id",
    )
    instance_volume_gb: int = Field(
        default=100, ge=8, le=65_536, description="least size of an instance's root volume in GiB; an AMI may need more"
    )
    volume_kms_key_arn: Annotated[KeyArn | None, Unset] = Field(
        default=None,
        description="a KMS key of your own for the volumes of EC2 instances, and their snapshots; "
        "the account's EBS key when left out",
    )

    @field_validator("deployment")
    @classmethod
    def _not_reserved(cls, value: str) -> str:
        for prefix, by in RESERVED_PREFIXES.items():
            if value.startswith(prefix):
                raise _refuse(
                    f"begins with {prefix}, which {by} reserves: the deployment would fail half-way",
                    "Choose another beginning, for example team-" + value.removeprefix(prefix).strip("-") + ".",
                )
        return value

    @field_validator("owner_emails")
    @classmethod
    def _within_one_filter(cls, value: dict[str, str]) -> dict[str, str]:
        shared = Counter(address.casefold() for address in value.values())
        crowded = [address for address, owners in shared.items() if owners > MOST_OWNERS_OF_AN_ADDRESS]
        if crowded:
            raise _refuse(
                f"names {', '.join(crowded)} for more than {MOST_OWNERS_OF_AN_ADDRESS} owners: SNS takes no longer "
                "filter",
                "Put the address into notify_emails, where it hears of every run, or give some of them another one.",
            )
        return value

    @field_validator("log_retention_days")
    @classmethod
    def _accepted_by_cloudwatch(cls, value: int) -> int:
        if value not in LOG_RETENTION_DAYS:
            nearest = min(LOG_RETENTION_DAYS, key=lambda days: abs(days - value))
            raise _refuse(
                "is not a retention CloudWatch Logs accepts",
                f"The nearest is {nearest}; all: {', '.join(map(str, LOG_RETENTION_DAYS))}.",
            )
        return value

    @field_validator("default_image")
    @classmethod
    def _served_in_the_region(cls, value: str, info: ValidationInfo) -> str:
        region = info.data.get("region")
        if "{account}" in value and region is not None and region not in IMAGE_ACCOUNTS:
            raise _refuse(
                f"is not served in {region}: AWS has no account for its images there that we know of",
                "Set default_image to an image in a repository of that region, with its account id.",
            )
        known = value.replace("{account}", 12 * "0").replace("{region}", region or "us-east-1")
        if not names_a_registry(known):
            raise _refuse(
                "names no registry, and SageMaker pulls an image from the registry that its name begins with",
                "Give <account id>.dkr.ecr.{region}.amazonaws.com/<repository>:<tag>.",
            )
        registry = ecr_registry(known)
        if registry is not None and registry.host != registry.right_host:
            raise _refuse(
                f"names no registry that there is: in {registry.region} its host ends like {registry.right_host}",
                f"Give <account id>{registry.right_host[12:]}/<repository>:<tag>.",
            )
        if is_in_public_gallery(value):
            raise _refuse(
                "is in Amazon ECR's public gallery, from which SageMaker pulls no image",
                "Copy it to a private repository of Amazon ECR in the deployment's region, and name the copy.",
            )
        return value

    @field_validator("team_members", "administrators")
    @classmethod
    def _of_verified_callers(cls, value: Any, info: ValidationInfo) -> Any:
        if value and info.data.get("verify_callers") is False:
            raise _refuse(
                "means nothing without verify_callers: who may invoke the launcher directly can name any caller",
                "Set verify_callers as well, or leave it out.",
            )
        return value

    @field_validator("team_members")
    @classmethod
    def _of_every_isolated_team(
        cls, value: dict[str, tuple[str, ...]], info: ValidationInfo
    ) -> dict[str, tuple[str, ...]]:
        without = sorted({*info.data.get("isolated_teams", ())} - {team for team, members in value.items() if members})
        if without and info.data.get("verify_callers"):
            raise _refuse(
                f"names no members of {', '.join(without)}, so only administrators could launch for them",
                "Name them for each of isolated_teams.",
            )
        return value

    @field_validator("training_subnet_ids")
    @classmethod
    def _for_an_image_elsewhere(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        image = str(info.data.get("default_image", "")).replace("{account}", 12 * "0").replace("{region}", "us-east-1")
        if image and not value and ecr_registry(image) is None:
            raise _refuse(
                f"is empty, and default_image ({info.data['default_image']}) is not in Amazon ECR: SageMaker pulls "
                "from another registry only through a VPC",
                "Name subnets and training_security_group_ids, or copy the image to Amazon ECR.",
            )
        return value

    @field_validator("training_security_group_ids")
    @classmethod
    def _with_training_subnets(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        subnets = info.data.get("training_subnet_ids")
        if subnets is not None and bool(subnets) != bool(value):
            raise _refuse(
                "does not go with training_subnet_ids: a network for jobs needs both",
                "Set both, or leave both empty.",
            )
        return value

    @field_validator("file_systems")
    @classmethod
    def _in_a_network(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if value and info.data.get("training_subnet_ids") == () and info.data.get("ec2_fleets") is False:
            raise _refuse(
                "needs training_subnet_ids or ec2_fleets: a file system is reached in a VPC alone",
                "Set training_subnet_ids and training_security_group_ids as well, or ec2_fleets, or leave it out.",
            )
        return value

    @field_validator("drills")
    @classmethod
    def _with_fleets(cls, value: bool, info: ValidationInfo) -> bool:  # noqa: FBT001 - pydantic's signature
        if value and info.data.get("ec2_fleets") is False:
            raise _refuse("needs ec2_fleets: a drill takes an EC2 instance away", "Set both, or leave drills out.")
        return value

    @field_validator("verify_callers")
    @classmethod
    def _where_functions_have_urls(cls, value: bool, info: ValidationInfo) -> bool:  # noqa: FBT001 - pydantic's signature
        region = info.data.get("region")
        if value and region in REGIONS_WITHOUT_FUNCTION_URLS:
            raise _refuse(
                f"needs a Lambda function URL, at which AWS says who calls, and AWS offers none in {region}",
                "Set it to false, or deploy to another region.",
            )
        return value

    @field_validator("volume_kms_key_arn", "webhook_secret_arn", "secrets", "secret_key_arns")
    @classmethod
    def _in_the_region(cls, value: Any, info: ValidationInfo) -> Any:
        region = info.data.get("region")
        arns = [each for each in ([value] if isinstance(value, str) else value or ()) if each.startswith("arn:")]
        elsewhere = [arn for arn in arns if region is not None and arn.split(":")[3] != region]
        if elsewhere:
            named = "" if isinstance(value, str) else f"names {', '.join(elsewhere)}, which "
            raise _refuse(
                f"{named}is of another region than {region}, where the deployment is",
                "Give one of that region, or its replica there.",
            )
        return value

    @field_validator("secrets")
    @classmethod
    def _with_room_in_a_policy(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        needed = sum(len(each) + (0 if each.startswith("arn:") else _CHARACTERS_BESIDE_A_NAME) for each in value)
        if needed > MOST_CHARACTERS_OF_SECRETS:
            raise _refuse(
                f"needs {needed:,} characters of a policy, which has room for {MOST_CHARACTERS_OF_SECRETS:,}",
                "Name fewer, or put several values into one secret as a JSON object.",
            )
        return value

    @field_validator("secret_key_arns")
    @classmethod
    def _of_secrets(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if value and info.data.get("secrets") == ():
            raise _refuse("names keys, and secrets names no secret", "Name the secrets as well, or leave it out.")
        return value

    @field_validator("permissions_boundary_arn", "data_key_arns", "mlflow_arns")
    @classmethod
    def _in_the_partition(cls, value: Any, info: ValidationInfo) -> Any:
        region = info.data.get("region")
        if region is None or not value:
            return value
        partition = next((name for prefix, name in _PARTITIONS.items() if region.startswith(prefix)), "aws")
        elsewhere = [arn for arn in ([value] if isinstance(value, str) else value) if arn.split(":")[1] != partition]
        if elsewhere:
            raise _refuse(
                f"names {', '.join(elsewhere)}: ARNs in {region} begin with arn:{partition}:",
                "Give one of that region.",
            )
        return value

    @field_validator("vpc_subnet_ids")
    @classmethod
    def _with_vpc(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if "vpc_id" in info.data and bool(info.data["vpc_id"]) != bool(value):
            raise _refuse(
                "does not go with vpc_id: an existing network needs its id and its subnets",
                "Set vpc_id, vpc_subnet_ids and vpc_availability_zones, or none of them.",
            )
        return value

    @field_validator("vpc_availability_zones")
    @classmethod
    def _one_zone_a_subnet(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        subnets = info.data.get("vpc_subnet_ids")
        if subnets is not None and len(subnets) != len(value):
            raise _refuse(
                f"names {len(value)} zones for {len(subnets)} subnets",
                "Name the zone of each entry of vpc_subnet_ids, in the same order.",
            )
        elsewhere = [zone for zone in value if zone[:-1] != (info.data.get("region") or value[0][:-1])]
        if elsewhere:
            raise _refuse(
                f"names {', '.join(elsewhere)}, which is not of {info.data.get('region') or value[0][:-1]}",
                "Name zones of the deployment's region, where the subnets are.",
            )
        return value

    @field_validator("vpc_security_group_id")
    @classmethod
    def _inside_an_existing_network(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value and "vpc_id" in info.data and not info.data["vpc_id"]:
            raise _refuse(
                "cannot belong to the network that is going to be created",
                "Set vpc_id as well, or leave it out.",
            )
        return value

    @field_validator(
        "isolated_teams",
        "secrets",
        "file_systems",
        "training_subnet_ids",
        "training_security_group_ids",
        "vpc_subnet_ids",
        "vpc_availability_zones",
        "spot_instance_types",
    )
    @classmethod
    def _named_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        repeated = sorted({item for item in value if value.count(item) > 1})
        if repeated:
            raise _refuse(f"names {', '.join(repeated)} more than once", "Name each once.")
        return value

    @field_validator("default_instance_type", "spot_instance_types")
    @classmethod
    def _of_allowed_types(cls, value: str | tuple[str, ...], info: ValidationInfo) -> str | tuple[str, ...]:
        patterns = info.data.get("allowed_instance_types")
        types = (value,) if isinstance(value, str) else value
        forbidden = [each for each in types if not any(fnmatch.fnmatchcase(each, one) for one in patterns or ("*",))]
        if forbidden:
            raise _refuse(
                f"names {', '.join(forbidden)}, which allowed_instance_types does not allow",
                "Name allowed types, or add it to allowed_instance_types.",
            )
        return value

    @field_validator("queues")
    @classmethod
    def _of_allowed_types_too(cls, value: dict[str, Queue], info: ValidationInfo) -> dict[str, Queue]:
        for queue in value.values():
            cls._of_allowed_types(tuple(queue.types), info)
        return value

    @field_validator("queues")
    @classmethod
    def _with_room_in_a_stack(cls, value: dict[str, Queue]) -> dict[str, Queue]:
        needed = sum(RESOURCES_OF_A_QUEUE + len(queue.shares) for queue in value.values())
        if needed > MOST_QUEUE_RESOURCES:
            raise _refuse(
                f"needs {needed} resources, {RESOURCES_OF_A_QUEUE} a queue and one a share, and its stack has room for "
                f"{MOST_QUEUE_RESOURCES}",
                f"With {len(value)} queues, name {MOST_QUEUE_RESOURCES - RESOURCES_OF_A_QUEUE * len(value)} shares at "
                "most in all, or make a second deployment.",
            )
        return value

    @field_validator("allowed_instance_types")
    @classmethod
    def _some_types(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise _refuse("allows no instance type", "Give patterns such as ml.g5.*,g5.*, or * for every type.")
        return value

    @field_validator("spot_instance_types")
    @classmethod
    def _at_least_one(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise _refuse("names no instance type", "Name one or more, for example m5.xlarge,m6i.xlarge.")
        return value

    @property
    def function_urls(self) -> bool:
        """True when AWS offers Lambda function URLs in the deployment's region, or no region is named."""
        return self.region not in REGIONS_WITHOUT_FUNCTION_URLS

    @property
    def stack_prefix(self) -> str:
        """The deployment's name as stack ids spell it, with the first letter in upper case."""
        return self.deployment[0].upper() + self.deployment[1:]

    @classmethod
    def from_context(cls, context: Mapping[str, Any]) -> Settings:
        """Read the settings from a CDK context.

        Args:
            context: The app's whole context, with the object `spotkeep` of cdk.json and the values of `-c name=value`
                beside it.

        Raises:
            SettingsError: Settings are wrong, all of which the error names.
        """
        defaults = context.get(CONTEXT_KEY, {})
        if not isinstance(defaults, Mapping):
            raise SettingsError(
                (
                    Problem(
                        field=CONTEXT_KEY,
                        found=shown(defaults),
                        problem="is not an object",
                        fix="Write the settings as a JSON object, or give one alone with -c <setting>=<value>.",
                    ),
                )
            )
        # The CDK's own context keys hold a colon, a slash or a hyphen; a plain name can only be meant for us.
        overrides = {
            name: value
            for name, value in context.items()
            if name != CONTEXT_KEY and re.fullmatch(r"[a-z][a-z0-9_]*", name)
        }
        values = {**defaults, **overrides}
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            problems = problems_of(error, cls, document=values, wording=_WORDING)
            order = {name: index for index, name in enumerate(cls.model_fields)}
            problems.sort(key=lambda problem: order.get(re.split(r"[.[]", problem.field)[0], len(order)))
            raise SettingsError(tuple(problems)) from error


_WORDING = Wording(
    # Of earlier versions. What they hold is not shown: it may be secret.
    gone={
        "instance_root_device": "Remove it: the root device is read from the AMI, at each launch.",
        "webhook_url": "Keep the address in a secret: aws secretsmanager create-secret --name spotkeep-webhook "
        "--secret-string https://..., and set webhook_secret_arn to the ARN that it answers.",
    },
    listed_in="`spotkeep help settings`",
)
