"""One account has several deployments: of one name in two regions, and of two names in one region."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from spotkeep_local import cdk

from .conftest import CONTEXT, PROJECT

if TYPE_CHECKING:
    from spotkeep_local.lifecycle import LocalAws

    from .conftest import DeployedApp

pytestmark = pytest.mark.long


def connection_of(local: LocalAws, deployment: str) -> dict[str, Any]:
    parameter = local.session().client("ssm").get_parameter(Name=f"/{deployment}/connection")
    return dict(json.loads(parameter["Parameter"]["Value"]))


def users_policy(local: LocalAws, stack: str) -> str:
    [found] = local.session().client("cloudformation").describe_stacks(StackName=stack)["Stacks"]
    [arn] = [each["OutputValue"] for each in found["Outputs"] if each["OutputKey"] == "UserPolicyArn"]
    return str(arn).rpartition("/")[2]


def test_the_same_app_is_deployed_to_a_second_region_and_under_a_second_name(own_app: DeployedApp) -> None:
    """The local AWS refuses a policy or a dashboard whose name the account has, and a second job queue of a name."""
    here, elsewhere = own_app.local, replace(own_app.local, region="eu-west-1")
    cdk.bootstrap(elsewhere, project_dir=PROJECT)
    # The queues of the local AWS are all in one region.
    cdk.deploy(elsewhere, project_dir=PROJECT, context={**CONTEXT, "queues": ""})
    cdk.deploy(here, project_dir=PROJECT, context={**CONTEXT, "deployment": "spotkeep-lab"})
    found = [connection_of(here, "spotkeep"), connection_of(elsewhere, "spotkeep"), connection_of(here, "spotkeep-lab")]
    assert [(each["deployment"], each["region"]) for each in found] == [
        ("spotkeep", "us-east-1"),
        ("spotkeep", "eu-west-1"),
        ("spotkeep-lab", "us-east-1"),
    ]
    assert len({each["checkpoint_bucket"] for each in found}) == 3
    policies = [
        users_policy(here, "Spotkeep-Jobs"),
        users_policy(elsewhere, "Spotkeep-Jobs"),
        users_policy(here, "Spotkeep-lab-Jobs"),
    ]
    assert policies == ["spotkeep-users-us-east-1", "spotkeep-users-eu-west-1", "spotkeep-lab-users-us-east-1"]
