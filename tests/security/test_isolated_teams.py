"""A user, or a training, of one team reaches what an isolated team stores.

Who: a member of another team (or of none) with the users' policy, and the code of a training they launch. With what:
S3 calls on the isolated team's sources, checkpoints and models, or a job document that names them as a channel, a
source or a checkpoint prefix. Gained before: everything that any team stores, and sources that another team executes.

What stays shared is on docs/settings.md: the run table (documents, records), logs, and with EC2 nothing is isolated,
so a run there takes no team.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from spotkeep_fleet.run_prefixes import run_prefix, source_prefix
from spotkeep_jobs.backends.sagemaker.training_job import (
    JobPlatform,
    build_training_job_request,
    checkpoint_uri_for,
    output_prefix_for,
)
from spotkeep_jobs.deployment import Deployment
from spotkeep_jobs.document.capacity import first_job
from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
from spotkeep_jobs.document.request import validate
from spotkeep_jobs.errors import Problem, RequestRefusedError
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.runs.launch import Launcher
from spotkeep_jobs.runs.run_actions import RunActions
from spotkeep_jobs.settings import LauncherSettings
from tests.models.deployment import end_run, launcher_on
from tests.models.dynamodb import InMemoryDynamoDb
from tests.models.sagemaker import SageMaker

from .policies import ACCOUNT, REGION, Policies

COMMON, VISION, SPEECH = "runs/", "teams/vision/runs/", "teams/speech/runs/"
NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
SESSION = {f"aws:PrincipalTag/{name}": value for name, value in {
    "run": "first", "attempt": "1", "runs": "runs", "checkpoints": "runs/first/checkpoints",
}.items()}  # fmt: skip
"""Of an instance's run role, as every run on EC2 has it."""
HERE = {"aws:RequestedRegion": REGION, **SESSION}
OWN_OBJECTS = {
    "ExecutionRoleDefaultPolicy": COMMON,
    "ExecutionRolevision": VISION,
    "ExecutionRolespeech": SPEECH,
    "RunRole": COMMON,
    "UsersPolicy": COMMON,
    "UsersvisionPolicy": VISION,
    "UsersspeechPolicy": SPEECH,
}
"""What each principal that people or trainings act with reaches."""


@pytest.fixture
def bucket(policies_with_everything: Policies) -> str:
    return policies_with_everything.arn("AWS::S3::Bucket", named="CheckpointsBucket")


@pytest.mark.parametrize("principal", OWN_OBJECTS)
def test_each_reads_lists_and_writes_its_own_runs_and_no_others(
    policies_with_everything: Policies, bucket: str, principal: str
) -> None:
    user = principal.startswith("Users")

    def may(action: str, key: str, **context: str) -> bool:
        named = {f"s3:{name}": value for name, value in context.items()}
        return policies_with_everything.allows(principal, action, f"{bucket}{key}", {**HERE, **named})

    for prefix in (COMMON, VISION, SPEECH):
        own = OWN_OBJECTS[principal] == prefix
        sources = prefix.replace("runs/", "sources/")
        source, result = f"/{sources}first/0.tar.gz", f"/{prefix}first/checkpoints/step-1/data"
        for key in (source, result, f"/{prefix}first/output/first-1/output/model.tar.gz"):
            assert may("s3:GetObject", key) is own
        assert may("s3:ListBucket", "", prefix=f"{prefix}first/") is own
        if user:
            assert may("s3:ListBucketVersions", "", prefix=prefix) is own
        assert may("s3:PutObject", source) is (own and user)
        assert may("s3:PutObject", result) is (own and not user)
        assert may("s3:DeleteObject", result) is (own and not user)
    for prefix in ("", "teams/", "teams", "teams/vision", "r", "runs"):
        assert not may("s3:ListBucket", "", prefix=prefix), "the whole bucket, or the teams"
    assert not may("s3:ListBucket", "")


def test_a_team_whose_name_begins_alike_is_another(policies_with_everything: Policies, bucket: str) -> None:
    other = f"{bucket}/teams/vision-2/runs/first/output/model.tar.gz"
    for principal in ("ExecutionRolevision", "UsersvisionPolicy"):
        assert not policies_with_everything.allows(principal, "s3:GetObject", other, HERE)


def test_a_teams_users_may_all_else_that_users_may(policies_with_everything: Policies) -> None:
    launcher = policies_with_everything.arn("AWS::Lambda::Function", named="LauncherFunction")
    context = {**HERE, "lambda:FunctionUrlAuthType": "AWS_IAM", "lambda:InvokedViaFunctionUrl": "true"}
    for principal in ("UsersPolicy", "UsersvisionPolicy"):
        assert policies_with_everything.allows(principal, "lambda:InvokeFunctionUrl", launcher, context)


@pytest.mark.parametrize("principal", OWN_OBJECTS)
def test_none_starts_a_job_with_a_teams_role_or_takes_over_its_pool(
    policies_with_everything: Policies, principal: str
) -> None:
    """SageMaker gives a pool to jobs of its own role alone, so the role is what binds it."""
    allows = policies_with_everything.allows
    role = policies_with_everything.arn("AWS::IAM::Role", named="ExecutionRolespeech")
    job = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-job/speech-1"
    to_sagemaker = {**HERE, "iam:PassedToService": "sagemaker.amazonaws.com"}
    assert allows("LauncherRole", "iam:PassRole", role, to_sagemaker)
    assert not allows(principal, "iam:PassRole", role, to_sagemaker)
    tags = {**HERE, "aws:ResourceTag/spotkeep:deployment": "lab", "sagemaker:KeepAlivePeriod": "60"}
    assert allows("LauncherRole", "sagemaker:UpdateTrainingJob", job, tags)
    assert not allows(principal, "sagemaker:UpdateTrainingJob", job, tags)


# What a document names

PLATFORM = JobPlatform(
    deployment="lab",
    checkpoint_bucket="checkpoints",
    execution_role_arn="arn:aws:iam::123456789012:role/common",
    training_bundle_uri="s3://checkpoints/bundles/0/spotkeep.pyz",
    team_role_arns={"vision": "arn:aws:iam::123456789012:role/vision"},
)
DEFAULTS = DeploymentDefaults(
    image="some/image:1",
    instance_type="ml.m5.xlarge",
    checkpoint_bucket="checkpoints",
    data_locations=(),
    teams=("audio", "speech", "vision"),
    isolated_teams=("speech", "vision"),
    fleet_instance_types=("m5.xlarge",),
)
DOCUMENT = {"name": "first", "command": "python train.py"}


def problems(**fields: Any) -> tuple[Problem, ...]:
    return validate({**DOCUMENT, **fields}, defaults=DEFAULTS).problems


def test_the_runs_of_an_isolated_team_live_below_its_prefix_and_all_others_beside() -> None:
    places = {None: "runs/a/", "audio": "runs/a/", "vision": "teams/vision/runs/a/"}
    for team, place in places.items():
        request = validate({**DOCUMENT, "team": team}, defaults=DEFAULTS).accepted()
        assert (
            checkpoint_uri_for(request=request, run="a", platform=PLATFORM) == f"s3://checkpoints/{place}checkpoints/"
        )
        job = build_training_job_request(
            request=request, job=first_job(request, prices={}), platform=PLATFORM, run="a", attempt=1, launch_id="1"
        )
        assert job["CheckpointConfig"]["S3Uri"] == f"s3://checkpoints/{place}checkpoints/"
        assert job["OutputDataConfig"]["S3OutputPath"] == f"s3://checkpoints/{place}output/"
        assert output_prefix_for(request=request, run="a", platform=PLATFORM) == f"s3://checkpoints/{place}output/"
        assert job["RoleArn"].endswith("vision") is (team == "vision")


@pytest.mark.parametrize("team", [None, "audio", "vision", "speech"])
@pytest.mark.parametrize("owner", [None, "vision", "speech"])
def test_a_document_names_what_its_own_team_stores_and_nothing_of_another(team: str | None, owner: str | None) -> None:
    own = (team if team in {"vision", "speech"} else None) == owner
    place = f"s3://checkpoints/{run_prefix('old', team=owner)}"
    source = f"s3://checkpoints/{source_prefix('old', team=owner)}{'0' * 64}.tar.gz"
    named: dict[str, Any] = {
        "checkpoint_prefix": f"{place}checkpoints/",
        "channels": {"train": f"{place}output/"},
        "source": {"uri": source, "sha256": "0" * 64},
    }
    for field, value in named.items():
        found = problems(team=team, **{field: value})
        assert (not found) is own, (field, found)


@pytest.mark.parametrize(
    "prefix",
    [
        "teams/vision/runs/a/../../../runs/b/checkpoints/",
        "teams/vision/runs/a/checkpoints/deeper/checkpoints/",
        "teams/vision/runs/checkpoints/",
        "teams/vision/a/checkpoints/",
        "teams/visionruns/a/checkpoints/",
        "teams/VISION/runs/a/checkpoints/",
    ],
)
def test_a_prefix_has_one_shape(prefix: str) -> None:
    assert problems(team="vision", checkpoint_prefix=f"s3://checkpoints/{prefix}")


def test_a_resume_does_not_begin_anew_where_its_team_lives_now() -> None:
    """The lock (I1) is on the prefix that the run was launched with."""
    sagemaker = SageMaker()
    table = RunTable.of(client=InMemoryDynamoDb(), table_name="runs")  # type: ignore[arg-type]

    def deployment(*, isolated: bool) -> Deployment[LauncherSettings]:
        return launcher_on(
            table,
            sagemaker,
            platform=PLATFORM if isolated else replace(PLATFORM, team_role_arns={}),
            defaults=DEFAULTS if isolated else replace(DEFAULTS, isolated_teams=()),
        )

    Launcher(deployment(isolated=False)).launch({**DOCUMENT, "run": "a", "team": "vision"}, default_token="1")
    end_run(table, sagemaker, "a")
    with pytest.raises(RequestRefusedError, match="isolated_teams was changed"):
        RunActions(deployment(isolated=True)).resume("a")
    assert RunActions(deployment(isolated=False)).resume("a").run.attempt == 2


def test_a_run_on_ec2_takes_no_team_so_an_isolated_one_never_trains_beside_others() -> None:
    (problem,) = problems(team="vision", backend="ec2")
    assert problem.field == "team"
    assert "isolated" in problem.fix
