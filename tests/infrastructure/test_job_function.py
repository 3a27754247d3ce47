"""Functions: their settings, their logs, their failures; nothing of an event is lost."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from aws_cdk import Duration
from aws_cdk.aws_logs import RetentionDays

from spotkeep_constructs.errors import PropertyError
from spotkeep_constructs.job_function import FunctionPlatform, JobFunction
from spotkeep_constructs.training_bundle import bundle_bytes
from spotkeep_jobs.notifications.outbox import STALE_AFTER
from spotkeep_jobs.runs.rules import LAUNCH_SETTLES
from spotkeep_jobs.settings import (
    ControllerSettings,
    CredentialsSettings,
    FunctionSettings,
    LauncherSettings,
    WebhookSettings,
)
from tests.models.control_plane import TIMEOUT_SECONDS
from tests.torture.control.story import LARGEST_SKEW_SECONDS

from .conftest import EVERYTHING_SET, ROOT, Templates
from .test_aws_limits import longest

if TYPE_CHECKING:
    from aws_cdk import Stack

FUNCTIONS = ("Launcher", "Controller")


FLEET_VARIABLES = {
    "SPOTKEEP_LAUNCH_TEMPLATE_ID",
    "SPOTKEEP_FLEET_SUBNETS",
    "SPOTKEEP_FLEET_NODES_SECURITY_GROUP_ID",
    "SPOTKEEP_FLEET_PLACEMENT_GROUPS",
    "SPOTKEEP_FLEET_LOG_GROUP",
    "SPOTKEEP_VOLUME_RETENTION_DAYS",
}
BUNDLE_VARIABLES = {"SPOTKEEP_TRAINING_BUNDLE_URI", "SPOTKEEP_TRAINING_BUNDLE_ASSET_URI"}


def variables_of(templates: Templates, function: str) -> dict[str, Any]:
    variables: dict[str, Any] = templates.only("AWS::Lambda::Function", named=function)["Environment"]["Variables"]
    return variables


def packed_of(templates: Templates, function: str) -> dict[str, Any]:
    """The variables that lie with a function's code."""
    code = templates.only("AWS::Lambda::Function", named=function)["Code"]["S3Key"]
    with zipfile.ZipFile(templates.assets / f"asset.{code}") as archive:
        packed: dict[str, Any] = json.loads(archive.read("variables.json"))
    return packed


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_function_runs_its_handler_on_the_runtime_the_layer_is_built_for(
    templates: Templates, function: str
) -> None:
    properties = templates.only("AWS::Lambda::Function", named=function)
    assert properties["Runtime"] == "python3.13"
    assert properties["Architectures"] == ["x86_64"]
    assert properties["Handler"] == f"{function.lower()}.handler.handler"
    assert properties["TracingConfig"] == {"Mode": "Active"}
    assert len(properties["Layers"]) == 1
    assert "ReservedConcurrentExecutions" not in properties


def test_i1_i4_no_function_outlives_what_others_take_for_its_death(templates: Templates) -> None:
    """Who set out to create a job or to send a notification is taken for dead after a while."""
    timeouts = {name: templates.only("AWS::Lambda::Function", named=name)["Timeout"] for name in FUNCTIONS}
    assert {name.lower(): seconds for name, seconds in timeouts.items()} == TIMEOUT_SECONDS
    longest = max(timeouts.values()) + 2 * LARGEST_SKEW_SECONDS
    assert longest <= LAUNCH_SETTLES.total_seconds()
    assert longest <= STALE_AFTER.total_seconds()
    assert timeouts["Controller"] < 5 * 60, "passes over everything in flight never overlap"


ENVIRONMENTS: dict[str, type[FunctionSettings]] = {
    "launcher": LauncherSettings,
    "controller": ControllerSettings,
    "instance_credentials": CredentialsSettings,
    "webhook": WebhookSettings,
    "search": FunctionSettings,
}


@pytest.mark.parametrize("package", ENVIRONMENTS)
def test_a_function_reads_each_variable_that_is_written_and_each_that_it_reads_is_written(
    templates_with_everything: Templates, package: str
) -> None:
    [function] = [
        each["Properties"]
        for each in templates_with_everything.resources("AWS::Lambda::Function").values()
        if each["Properties"]["Handler"] == f"{package}.handler.handler"
    ]
    environment = {name: longest(value) for name, value in function["Environment"]["Variables"].items()}
    packed = packed_of(templates_with_everything, "Launcher")
    read = ENVIRONMENTS[package].names()
    assert {name for name in environment if name.startswith("SPOTKEEP_")} <= read
    assert read <= environment.keys() | packed.keys()
    assert environment["POWERTOOLS_METRICS_NAMESPACE"] == "Spotkeep"


def test_the_function_that_searches_has_dependencies_of_its_own(templates_with_everything: Templates) -> None:
    def layers(function: str) -> list[dict[str, str]]:
        found: list[dict[str, str]] = templates_with_everything.only("AWS::Lambda::Function", named=function)["Layers"]
        return found

    [search], [launcher] = layers("SearchFunction"), layers("Launcher")
    assert search["Ref"].startswith("SearchDependencies")
    assert search != launcher
    variables = variables_of(templates_with_everything, "Launcher")
    assert variables["SPOTKEEP_TPE_SEARCH_FUNCTION"]["Ref"].startswith("SearchFunction")


def test_settings_arrive_as_they_were_set_and_what_a_team_may_make_long_lies_with_the_code(
    templates_with_everything: Templates, tmp_path: Path
) -> None:
    of = templates_with_everything
    long = packed_of(of, "Launcher")
    (packed := tmp_path / "variables.json").write_text(json.dumps(long))
    assert {"SPOTKEEP_PRICES", "SPOTKEEP_DATA_LOCATIONS", "SPOTKEEP_FLEET_INSTANCE_TYPES"} <= long.keys()
    assert long.keys() <= LauncherSettings.names()

    def read(model: type[FunctionSettings], named: str) -> Any:
        variables = {name: longest(value) for name, value in variables_of(of, named).items()}
        assert not long.keys() & variables.keys()
        return model.from_environment(
            variables | {"SPOTKEEP_TEAM_ROLES": "{}", "SPOTKEEP_DEPLOYMENT": "lab"}, packed=packed
        )

    launcher, controller = read(LauncherSettings, "Launcher"), read(ControllerSettings, "Controller")
    for function in (launcher, controller):
        assert function.prices == EVERYTHING_SET["prices"]
        assert function.fleet_subnets == {
            "subnet-0bbbbbbbbbbbbbbb1": "us-west-1a",
            "subnet-0bbbbbbbbbbbbbbb2": "us-west-1c",
        }
        assert function.fleet_instance_types == ("c5.xlarge", "c6i.xlarge")
        assert function.fleet_log_group == "/spotkeep/lab/instances"
        assert function.fleet_volume_kms_key_arn == EVERYTHING_SET["volume_kms_key_arn"]
        assert function.volume_retention_days == 30
    assert controller.orphans == EVERYTHING_SET["orphans"]
    assert controller.isolated_teams == tuple(EVERYTHING_SET["isolated_teams"])
    assert controller.deployment_metrics is False
    assert (controller.pool_reminder_seconds, controller.pool_idle_limit_seconds) == (300, 1200)
    assert launcher.data_locations == tuple(EVERYTHING_SET["data_locations"])
    assert launcher.subnet_ids == tuple(EVERYTHING_SET["training_subnet_ids"])
    assert (launcher.verify_callers, launcher.max_keep_alive_seconds) == (True, 1800)
    assert launcher.team_members["vision"] == tuple(EVERYTHING_SET["team_members"]["vision"])
    assert launcher.volume_kms_key_arn
    teams = json.dumps(variables_of(of, "Launcher")["SPOTKEEP_TEAM_ROLES"])
    assert "ExecutionRolevisionRole" in teams
    assert "ExecutionRolespeechRole" in teams


def test_a_field_that_no_function_reads_is_refused_at_synth() -> None:
    with pytest.raises(TypeError, match="WebhookSettings has no field secret"):
        WebhookSettings.variables(secret="x")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_that_launch_know_the_bundle_and_where_runs_fetch_it(templates: Templates, function: str) -> None:
    variables = {name: longest(variables_of(templates, function)[name]) for name in BUNDLE_VARIABLES}
    digest = hashlib.sha256(bundle_bytes(ROOT / "training")).hexdigest()
    assert variables["SPOTKEEP_TRAINING_BUNDLE_URI"].endswith(f"/bundles/{digest}/spotkeep.pyz")
    assert re.search(r"^s3://[^/]+/[0-9a-f]{64}\.pyz$", variables["SPOTKEEP_TRAINING_BUNDLE_ASSET_URI"])


def test_the_default_image_is_pulled_from_the_account_that_serves_the_region(
    templates: Templates, templates_with_everything: Templates
) -> None:
    account, *_ = variables_of(templates, "Launcher")["SPOTKEEP_DEFAULT_IMAGE"]["Fn::Join"][1]
    name, region, key = account["Fn::FindInMap"]
    assert (region, key) == ({"Ref": "AWS::Region"}, "account")
    assert templates.by_stack["Jobs"]["Mappings"][name]["af-south-1"] == {"account": "626614931356"}
    image = variables_of(templates_with_everything, "Launcher")["SPOTKEEP_DEFAULT_IMAGE"]["Fn::Join"][1]
    assert image[0] == "763104351884.dkr.ecr.", "a region that is known at synth needs no table"


def test_where_aws_offers_no_function_urls_the_launcher_is_invoked(
    templates: Templates, templates_without_fleets: Templates
) -> None:
    assert templates.resources("AWS::Lambda::Url")
    assert not templates_without_fleets.resources("AWS::Lambda::Url")
    connection = json.dumps(templates_without_fleets.only("AWS::SSM::Parameter")["Value"]).replace("\\", "")
    assert '"launcher_url":""' in connection


def test_an_environment_that_lambda_would_refuse_is_refused_at_synth(stack: Stack) -> None:
    platform = cast("FunctionPlatform", SimpleNamespace(
        code=SimpleNamespace(packages={"launcher"}), log_retention=RetentionDays.ONE_DAY,
    ))  # fmt: skip
    with pytest.raises(PropertyError, match=r"does not fit into Lambda's 4,096 bytes .*SPOTKEEP_LONG the longest"):
        JobFunction(
            stack, "Function", package="launcher", deployment="lab", platform=platform, timeout=Duration.seconds(1),
            environment={"SPOTKEEP_LONG": 4_000 * "x"}, description="",
        )  # fmt: skip


def test_a_package_without_a_handler_is_refused_with_those_that_have_one(stack: Stack) -> None:
    platform = cast("FunctionPlatform", SimpleNamespace(code=SimpleNamespace(packages={"launcher", "webhook"})))
    with pytest.raises(PropertyError, match=r"is no package with a handler .*'spotkeep_jobs'.* launcher, webhook"):
        JobFunction(
            stack, "Function", package="spotkeep_jobs", deployment="lab", platform=platform, environment={},
            timeout=Duration.seconds(1), description="",
        )  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS)
def test_fleets_may_be_in_the_zones_of_the_network_and_without_fleets_nothing_is_said_of_them(
    templates: Templates, templates_without_fleets: Templates, function: str
) -> None:
    created = json.dumps(variables_of(templates, function)["SPOTKEEP_FLEET_SUBNETS"])
    assert created.count("Fn::GetAZs") == 3
    known = variables_of(templates_without_fleets, function) | packed_of(templates_without_fleets, function)
    assert not FLEET_VARIABLES & known.keys()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_logs_end_and_leave_with_the_function(
    templates: Templates, templates_with_everything: Templates, function: str
) -> None:
    group = templates.only("AWS::Logs::LogGroup", named=f"{function}Log")
    assert group["LogGroupName"] == f"/aws/lambda/spotkeep-{function.lower()}"
    assert group["RetentionInDays"] == 90
    assert templates_with_everything.only("AWS::Logs::LogGroup", named=f"{function}Log")["RetentionInDays"] == 30
    used = templates.only("AWS::Lambda::Function", named=function)["LoggingConfig"]["LogGroup"]["Ref"]
    assert used.startswith(f"{function}Log")


def test_what_a_function_fails_at_after_two_retries_waits_encrypted_for_two_weeks_in_its_queue(
    templates: Templates,
) -> None:
    configured = {}
    for resource in templates.resources("AWS::Lambda::EventInvokeConfig").values():
        config = resource["Properties"]
        assert config["MaximumRetryAttempts"] == 2
        assert config["MaximumEventAgeInSeconds"] == 6 * 3600
        [queue, _] = config["DestinationConfig"]["OnFailure"]["Destination"]["Fn::GetAtt"]
        kept = templates.resources("AWS::SQS::Queue")[queue]["Properties"]
        assert kept["SqsManagedSseEnabled"] is True
        assert kept["MessageRetentionPeriod"] == 14 * 24 * 3600
        configured[config["FunctionName"]["Ref"]] = queue
    assert configured.keys() == templates.resources("AWS::Lambda::Function").keys()
    assert all(queue.startswith(name.partition("Function")[0]) for name, queue in configured.items())
    assert len(set(configured.values())) == len(configured)
