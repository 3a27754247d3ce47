"""Deploying with the real CDK command line: what is read from its output, and a small app."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spotkeep_constructs.carried import node_folder
from spotkeep_local import cdk, lifecycle
from spotkeep_local.cdk import CdkProgress, CdkStep, read_progress
from spotkeep_local.errors import ToolkitError, ToolMissingError

APP = """
import os

import aws_cdk
from aws_cdk import aws_ssm

app = aws_cdk.App(builtin_cloud_formation_validation=False)
stack = aws_cdk.Stack(app, app.node.get_context("name"))
parameter = aws_ssm.StringParameter(
    stack, "Parameter", parameter_name="/small", string_value=os.environ["AWS_ENDPOINT_URL"]
)
aws_cdk.CfnOutput(stack, "Where", value=parameter.parameter_name)
app.synth()
"""


@pytest.mark.parametrize(
    ("line", "progress"),
    [
        (
            "Spotkeep-Jobs |  4/11 | 3:41:22 AM | CREATE_COMPLETE      | AWS::SNS::Topic | Top (Top8D718F6A) ",
            {
                "stack": "Spotkeep-Jobs",
                "done": 4,
                "total": 11,
                "text": "CREATE_COMPLETE AWS::SNS::Topic Top (Top8D718F6A)",
            },
        ),
        (
            "Spotkeep-Jobs |   2 | 15:41:22 | DELETE_COMPLETE | AWS::IAM::Role | Role (Role1)",
            {"stack": "Spotkeep-Jobs", "done": 2, "text": "DELETE_COMPLETE AWS::IAM::Role Role (Role1)"},
        ),
        ("Spotkeep-Jobs: deploying... [2/4]", {"stack": "Spotkeep-Jobs", "stack_number": 2, "stacks": 4}),
        ("Spotkeep-Jobs: destroying... [1/4]", {"stack": "Spotkeep-Jobs", "stack_number": 1, "stacks": 4}),
        (" ✅  Spotkeep-Jobs", {"stack": "Spotkeep-Jobs", "finished": True}),
        (" ✅  Spotkeep-Jobs (no changes)", {"stack": "Spotkeep-Jobs", "finished": True}),
        (" ✅  Spotkeep-Jobs: destroyed", {"stack": "Spotkeep-Jobs", "finished": True}),
        ("✨  Synthesis time: 3.21s", {}),
        ("Outputs:", {}),
    ],
)
def test_a_line_of_output_is_read(line: str, progress: dict[str, object]) -> None:
    assert read_progress(CdkStep.DEPLOY, line) == CdkProgress(
        **{"step": CdkStep.DEPLOY, "text": line.strip(), **progress}  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("line", ["", "   ", "\n"])
def test_a_line_with_nothing_on_it_is_no_progress(line: str) -> None:
    assert read_progress(CdkStep.DEPLOY, line) is None


def test_the_toolkit_writes_and_reaches_nothing_else(
    local_aws: lifecycle.LocalAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("CDK_DEFAULT_ACCOUNT", "123456789012")
    # Byte code is kept even where the image forbids it.
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    caches = ("JSII_RUNTIME_PACKAGE_CACHE_ROOT", "UV_CACHE_DIR")
    for cache in caches:
        monkeypatch.delenv(cache)
    environment = cdk.toolkit_environment(local_aws, tmp_path)
    assert environment["AWS_ENDPOINT_URL"] == local_aws.endpoint_url
    left_out = {"AWS_PROFILE", "https_proxy", "CDK_DEFAULT_ACCOUNT", "PYTHONDONTWRITEBYTECODE"}
    assert not left_out & environment.keys()
    assert environment["CDK_DISABLE_CLI_TELEMETRY"] == "true"
    assert environment["PATH"].split(os.pathsep)[1] == str(node_folder())
    for place in ("CDK_HOME", "TMPDIR", *caches):
        assert Path(environment[place]).is_relative_to(tmp_path / ".spotkeep")
    assert environment["PATH"].split(os.pathsep)[0] == str(Path(sys.prefix) / "bin")
    # Caches that the caller names are used.
    monkeypatch.setenv("UV_CACHE_DIR", "/shared/uv")
    assert cdk.toolkit_environment(local_aws, tmp_path)["UV_CACHE_DIR"] == "/shared/uv"


@pytest.mark.parametrize("tool", ["cdk", "node"])
def test_a_missing_tool_is_named_with_how_to_get_it(
    local_aws: lifecycle.LocalAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    other = "node" if tool == "cdk" else "cdk"
    (tools / other).symlink_to((Path(sys.prefix) / "bin" / other).resolve())
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(ToolMissingError, match=rf"{tool} is missing .*make setup"):
        cdk.deploy(local_aws, project_dir=tmp_path)


@pytest.mark.long
def test_an_app_is_deployed_and_its_progress_is_seen(local_aws: lifecycle.LocalAws, tmp_path: Path) -> None:
    """That one is destroyed again: `tests/end_to_end/test_destroy.py`."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "cdk.json").write_text(json.dumps({"app": "python3 app.py"}))
    cdk.bootstrap(local_aws, project_dir=tmp_path)
    assert not cdk.bootstrap(local_aws, project_dir=tmp_path), "it is done once"
    stacks = local_aws.session().client("cloudformation").describe_stacks(StackName=cdk.TOOLKIT_STACK)["Stacks"]
    assert [stack["StackStatus"] for stack in stacks] == ["CREATE_COMPLETE"]
    # CloudFormation acts in a role that may do what the CDK gives it.
    role = f"cdk-hnb659fds-cfn-exec-role-{local_aws.account_id}-{local_aws.region}"
    attached = local_aws.session().client("iam").list_attached_role_policies(RoleName=role)["AttachedPolicies"]
    assert [policy["PolicyName"] for policy in attached] == ["AdministratorAccess"]

    seen: list[CdkProgress] = []
    cdk.deploy(local_aws, project_dir=tmp_path, context={"name": "Small"}, on_progress=seen.append)
    outputs = json.loads((local_aws.state_dir / "cdk-outputs.json").read_text())
    assert outputs == {"Small": {"Where": "/small"}}
    ssm = local_aws.session().client("ssm")
    assert ssm.get_parameter(Name="/small")["Parameter"]["Value"] == local_aws.endpoint_url
    of_the_stack = [progress for progress in seen if progress.stack == "Small"]
    assert (of_the_stack[0].stack_number, of_the_stack[0].stacks) == (1, 1)
    assert of_the_stack[-1].finished
    assert max(progress.done or 0 for progress in of_the_stack) > 0

    assert {path.name for path in tmp_path.iterdir()} == {".spotkeep", "app.py", "cdk.json"}


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a shell script in the place of the CDK's command line."""

    def put(script: str) -> None:
        tools = tmp_path / "bin"
        tools.mkdir()
        (tools / "node").touch()
        (tools / "cdk").write_text(f"#!/bin/sh\n{script}\n")
        (tools / "cdk").chmod(0o755)
        monkeypatch.setattr(sys, "prefix", str(tmp_path))

    return put


OF_A_STACK_THAT_FAILS = """\
✨  Synthesis time: 3.21s
Bad:  start: Building template
Bad: deploying... [1/1]
Bad: creating CloudFormation changeset...
Bad | 1/3 | 3:41:22 AM | CREATE_COMPLETE | AWS::SSM::Parameter | Parameter (Parameter9E1B4FBA)
❌  Bad failed: ToolkitError: The stack named Bad failed to deploy: CREATE_FAILED"""


@pytest.mark.parametrize(
    ("printed", "first", "last"),
    [
        (
            "Traceback (most recent call last):\n  File\nValueError: volume_gb must be positive, found -1",
            "Traceback (most recent call last):",
            "ValueError: volume_gb must be positive, found -1",
        ),
        (OF_A_STACK_THAT_FAILS, "Bad:  start: Building template", OF_A_STACK_THAT_FAILS.splitlines()[-1]),
    ],
    ids=["app", "stack"],
)
def test_what_fails_is_quoted_without_the_resources_that_came_to_be(
    local_aws: lifecycle.LocalAws,
    tmp_path: Path,
    toolkit: Callable[[str], None],
    printed: str,
    first: str,
    last: str,
) -> None:
    toolkit(f"cat >&2 << 'END'\n{printed}\nEND\nexit 3")
    with pytest.raises(ToolkitError) as failure:
        cdk.deploy(local_aws, project_dir=tmp_path)
    words = failure.value.last_words
    assert (failure.value.exit_code, words[0], words[-1]) == (3, first, last)
    assert not [line for line in words if "CREATE_COMPLETE" in line]
    assert str(failure.value).startswith(f"`cdk deploy` failed with exit code 3:\n  {first}")


def test_a_toolkit_that_takes_its_time_to_end_has_ended_when_the_caller_gives_up(
    local_aws: lifecycle.LocalAws, tmp_path: Path, toolkit: Callable[[str], None]
) -> None:
    toolkit("trap 'sleep 0.5; touch ended; exit 1' TERM\necho it has begun\nwhile :; do sleep 0.05; done")

    def give_up(progress: CdkProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cdk.deploy(local_aws, project_dir=tmp_path, on_progress=give_up)
    assert (tmp_path / "ended").exists()
