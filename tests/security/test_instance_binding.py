"""One run's instance reaches for another run's things.

Who: code of run `ours`, on the instance `i-0aaaaaaaaaaaaaaa1`, that has become root there and holds every credential
that the instance gets: those of the instance's role from the metadata service, and those that the function
`instance_credentials` gives.

With what: it calls AWS itself, and invokes the function with whatever it likes.

What it would gain: the fleet record of run `theirs` decides what that run's next instance does and whether functions
can stop it; its checkpoints, volumes and snapshots are its model; its log is its bill. An instance that is taken for
another run's has all of it.
"""

from __future__ import annotations

from typing import Any

import pytest

from .policies import ACCOUNT, REGION, Context, Policies

OURS, THEIRS = "ours", "theirs"
OUR_INSTANCE, OTHER_INSTANCE = "i-0aaaaaaaaaaaaaaa1", "i-0bbbbbbbbbbbbbbb2"
SESSION: Context = {
    "aws:PrincipalTag/run": OURS,
    "aws:PrincipalTag/attempt": "1",
    "aws:PrincipalTag/instance": OUR_INSTANCE,
    "aws:PrincipalTag/runs": "runs",
    "aws:PrincipalTag/checkpoints": "runs/ours/checkpoints",
    "aws:RequestedRegion": REGION,
    "kms:ViaService": f"s3.{REGION}.amazonaws.com",
}
INSTANCE: Context = {
    "ec2:SourceInstanceARN": f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/{OUR_INSTANCE}",
    "ec2:InstanceID": OUR_INSTANCE,
    "aws:RequestedRegion": REGION,
    "kms:ViaService": f"s3.{REGION}.amazonaws.com",
}
PRINCIPALS = {"RunRole": SESSION, "InstanceRole": INSTANCE}
"""All credentials that the attacker has."""


def arn(kind: str, name: str = "0123456789abcdef0") -> str:
    return f"arn:aws:ec2:{REGION}:{'' if kind == 'snapshot' else ACCOUNT}:{kind}/{name}"


def tags(run: str | None, *, key: str = "aws:ResourceTag", operation: bool = True) -> dict[str, str]:
    found = {f"{key}/spotkeep:deployment": "lab"}
    if run is not None:
        found[f"{key}/spotkeep:run"] = run
    return {**found, **({f"{key}/spotkeep:operation": "3"} if operation else {})}


@pytest.fixture
def may(policies_with_everything: Policies) -> Any:
    """Whether any of the attacker's credentials allows a call."""

    def may(action: str, resource: str, **context: Any) -> bool:
        more = {name.replace("__", ":", 1): value for name, value in context.items()}
        return any(
            policies_with_everything.allows(role, action, resource, {**has, **more, **context.get("tags", {})})
            for role, has in PRINCIPALS.items()
        )

    return may


@pytest.fixture
def bucket(policies_with_everything: Policies) -> str:
    found: str = policies_with_everything.arn("AWS::S3::Bucket", named="CheckpointsBucket")
    return found


@pytest.fixture
def table(policies_with_everything: Policies) -> str:
    return policies_with_everything.arn("AWS::DynamoDB::Table")


@pytest.mark.parametrize("action", ["dynamodb:GetItem", "dynamodb:PutItem"])
def test_the_record_of_another_run(may: Any, table: str, action: str) -> None:
    assert may(action, table, dynamodb__LeadingKeys=["fleet#ours"])
    for partition in ("fleet#theirs", "fleet#ours-2", "fleet-job#theirs", "run#ours", "run#theirs", "fleet#*"):
        assert not may(action, table, dynamodb__LeadingKeys=[partition]), partition


def test_what_an_instance_executes(may: Any, table: str) -> None:
    assert may("dynamodb:GetItem", table, dynamodb__LeadingKeys=["fleet-job#ours"])
    for partition in ("fleet-job#ours", "fleet-job#theirs"):
        assert not may("dynamodb:PutItem", table, dynamodb__LeadingKeys=[partition]), partition


def test_what_the_functions_keep_is_out_of_reach_by_other_calls_as_well(may: Any, table: str) -> None:
    for action in ("DeleteItem", "UpdateItem", "BatchWriteItem", "Query", "Scan", "PartiQLUpdate", "BatchGetItem"):
        assert not may(f"dynamodb:{action}", table, dynamodb__LeadingKeys=["fleet#ours"]), action


@pytest.mark.parametrize("action", ["s3:PutObject", "s3:DeleteObject"])
def test_the_checkpoints_the_model_and_the_source_of_another_run(may: Any, bucket: str, action: str) -> None:
    for key in ("runs/ours/checkpoints/step-1/manifest.json", "runs/ours/output/ours-1/output/model.tar.gz"):
        assert may(action, f"{bucket}/{key}"), key
    for key in (
        "runs/theirs/checkpoints/step-1/manifest.json",
        "runs/theirs/output/theirs-1/output/model.tar.gz",
        "sources/theirs/source.tar.gz",
        "sources/ours/source.tar.gz",
        "runs/ours-2/checkpoints/step-1/manifest.json",
        "bundles/0123/spotkeep.pyz",
        "teams/vision/runs/ours/checkpoints/step-1/manifest.json",
    ):
        assert not may(action, f"{bucket}/{key}"), key


def test_the_runs_of_an_isolated_team(may: Any, bucket: str) -> None:
    assert may("s3:GetObject", f"{bucket}/runs/theirs/output/theirs-1/output/model.tar.gz"), "a channel may name it"
    assert not may("s3:GetObject", f"{bucket}/teams/vision/runs/theirs/checkpoints/step-1/manifest.json")
    assert may("s3:ListBucket", bucket, s3__prefix="runs/ours/")
    for prefix in ("", "teams/", "teams/vision/runs/"):
        assert not may("s3:ListBucket", bucket, s3__prefix=prefix), prefix


@pytest.mark.parametrize("action", ["AttachVolume", "DetachVolume", "DeleteVolume", "CreateSnapshot"])
def test_the_volume_of_another_run(may: Any, action: str) -> None:
    assert may(f"ec2:{action}", arn("volume"), tags=tags(OURS))
    for other in (tags(THEIRS), tags(None), {}):
        assert not may(f"ec2:{action}", arn("volume"), tags=other)


def test_a_volume_that_a_user_brought_is_never_deleted(may: Any) -> None:
    assert not may("ec2:DeleteVolume", arn("volume"), tags=tags(OURS, operation=False))


def test_another_instance(may: Any) -> None:
    """Attached there, a volume holds what its next boot may read; detached, its training stops."""
    assert may("ec2:AttachVolume", arn("instance", OUR_INSTANCE), tags=tags(OURS, operation=False))
    for instance, run in ((OTHER_INSTANCE, THEIRS), (OTHER_INSTANCE, OURS), (OUR_INSTANCE, THEIRS)):
        assert not may("ec2:AttachVolume", arn("instance", instance), tags=tags(run, operation=False)), (instance, run)
    assert may("ec2:DetachVolume", arn("instance", OTHER_INSTANCE), tags=tags(OURS, operation=False)), "it may be gone"
    assert not may("ec2:DetachVolume", arn("instance", OTHER_INSTANCE), tags=tags(THEIRS, operation=False))


def test_the_snapshot_of_another_run(may: Any) -> None:
    for action in ("CreateVolume", "DeleteSnapshot"):
        assert may(f"ec2:{action}", arn("snapshot"), tags=tags(OURS)), action
        assert not may(f"ec2:{action}", arn("snapshot"), tags=tags(THEIRS)), action
        assert not may(f"ec2:{action}", arn("snapshot"), tags={}), action
    given = tags(None, operation=False)
    assert may("ec2:CreateVolume", arn("snapshot"), tags=given), "a user gave it to the deployment"
    assert not may("ec2:DeleteSnapshot", arn("snapshot"), tags=given)


@pytest.mark.parametrize(("action", "kind"), [("CreateVolume", "volume"), ("CreateSnapshot", "snapshot")])
def test_something_made_in_the_name_of_another_run(may: Any, action: str, kind: str) -> None:
    """What carries a run's tags is that run's: its next instance would mount it."""
    for run, expected in ((OURS, True), (THEIRS, False), (None, False)):
        asked = {**tags(run, key="aws:RequestTag"), "ec2:Encrypted": "true"}
        assert may(f"ec2:{action}", arn(kind), tags=asked) is expected, run
        names = [key.partition("/")[2] for key in asked if "/" in key]
        tagged = {**asked, "ec2:CreateAction": action, "aws:TagKeys": names}
        assert may("ec2:CreateTags", arn(kind), tags=tagged) is expected, run


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("team", True), ("Name", True), ("spotkeep:owner", True),
        ("spotkeep:checkpoints", False), ("spotkeep:attempt", False), ("spotkeep:drill", False),
    ],
)  # fmt: skip
def test_a_users_tag_on_what_a_run_makes_and_none_that_means_something_on_an_instance(
    may: Any, key: str, expected: bool
) -> None:
    asked = tags(OURS, key="aws:RequestTag")
    names = [*(name.partition("/")[2] for name in asked), key]
    tagged = {**asked, f"aws:RequestTag/{key}": "x", "ec2:CreateAction": "CreateVolume", "aws:TagKeys": names}
    assert may("ec2:CreateTags", arn("volume"), tags=tagged) is expected


def test_the_tags_that_say_whose_an_instance_is(may: Any) -> None:
    asked = {**tags(THEIRS, key="aws:RequestTag", operation=False), "aws:TagKeys": ["spotkeep:run"]}
    for action in ("ec2:CreateTags", "ec2:DeleteTags"):
        for kind in ("instance", "volume", "snapshot"):
            assert not may(action, arn(kind), tags={**asked, **tags(OURS)}), (action, kind)


def test_the_log_of_another_run(may: Any) -> None:
    group = f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:/spotkeep/lab/instances"
    for action in ("logs:PutLogEvents", "logs:CreateLogStream"):
        for stream in ("ours-1/algo-1-ec2", "ours-1/algo-64-ec2"):
            assert may(action, f"{group}:log-stream:{stream}"), (action, stream)
        for stream in ("theirs-1/algo-1-ec2", "ours-2/algo-1-ec2", "ours-1-1/algo-1-ec2", "ours-1/other"):
            assert not may(action, f"{group}:log-stream:{stream}"), (action, stream)


def test_an_event_in_the_name_of_aws(may: Any) -> None:
    bus = f"arn:aws:events:{REGION}:{ACCOUNT}:event-bus/default"
    of_the_agent = {"events:source": "spotkeep.agent", "events:detail-type": "Spotkeep Instance Change"}
    assert may("events:PutEvents", bus, tags=of_the_agent)
    assert not may("events:PutEvents", bus, tags={**of_the_agent, "events:source": "aws.ec2"})


def test_a_session_without_tags_reaches_no_run(policies_with_everything: Policies, bucket: str, table: str) -> None:
    untagged = {key: value for key, value in SESSION.items() if not key.startswith("aws:PrincipalTag")}
    allows = policies_with_everything.allows
    assert not allows("RunRole", "s3:PutObject", f"{bucket}/runs/ours/checkpoints/step-1/x", untagged)
    assert not allows("RunRole", "dynamodb:PutItem", table, {**untagged, "dynamodb:LeadingKeys": ["fleet#"]})
    assert not allows("RunRole", "ec2:AttachVolume", arn("volume"), {**untagged, **tags(OURS)})


def test_another_principal_in_the_run_role(policies_with_everything: Policies, may: Any) -> None:
    """A session of the run role that names a run of its choice would have that run's permissions."""
    role = policies_with_everything.arn("AWS::IAM::Role", named="RunRole")
    for action in ("sts:AssumeRole", "sts:TagSession"):
        assert not may(action, role), action
        for principal in ("Launcher", "Controller", "Users", "ExecutionRole"):
            assert not policies_with_everything.allows(principal, action, role), (action, principal)
    resources = policies_with_everything.templates.resources("AWS::IAM::Role")
    trusted = next(each["Properties"] for name, each in resources.items() if name.startswith("RunRole"))
    (statement,) = trusted["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Principal"]["AWS"]["Fn::GetAtt"][0].startswith("CredentialsFunctionRole")
    assert statement["Condition"]["Null"]["aws:RequestTag/run"] == "false"


def test_other_functions(policies_with_everything: Policies, may: Any) -> None:
    credentials = policies_with_everything.arn("AWS::Lambda::Function", named="CredentialsFunction")
    launcher = policies_with_everything.arn("AWS::Lambda::Function", named="Launcher")
    assert may("lambda:InvokeFunction", credentials)
    for action in ("lambda:InvokeFunction", "lambda:InvokeFunctionUrl"):
        assert not may(action, launcher), action
    for principal in ("Users", "Launcher", "Controller", "ExecutionRole", "RunRole"):
        assert not policies_with_everything.allows(principal, "lambda:InvokeFunction", credentials), principal


def test_the_function_itself_assumes_only_the_role_of_a_run(policies_with_everything: Policies) -> None:
    role = policies_with_everything.arn("AWS::IAM::Role", named="RunRole")
    other = policies_with_everything.arn("AWS::IAM::Role", named="InstanceRole")
    assert policies_with_everything.allows("CredentialsFunctionRole", "sts:AssumeRole", role)
    assert not policies_with_everything.allows("CredentialsFunctionRole", "sts:AssumeRole", other)
