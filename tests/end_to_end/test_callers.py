"""Two people on one deployment with `verify_callers`, through the local AWS: each acts on their own runs alone."""

from __future__ import annotations

import urllib.error
import urllib.request
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from botocore.credentials import Credentials

from spotkeep_cli.aws.calls import Connection
from spotkeep_cli.aws.connection_options import ConnectionOptions
from spotkeep_cli.aws.deployment import DeploymentClient
from spotkeep_cli.aws.launcher_calls import LauncherUrl
from spotkeep_local import cdk

from .conftest import CONTEXT, PROJECT

if TYPE_CHECKING:
    from .conftest import DeployedApp

pytestmark = pytest.mark.long


def role_of_people(app: DeployedApp) -> str:
    """A role that people assume, as AWS IAM Identity Center makes one for a permission set."""
    trust = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, '
    role = app.client("iam").create_role(
        RoleName="People", AssumeRolePolicyDocument=trust + '"Action": "sts:AssumeRole"}]}'
    )
    users = f"arn:aws:iam::{app.local.account_id}:policy/spotkeep-users-{app.local.region}"
    app.client("iam").attach_role_policy(RoleName="People", PolicyArn=users)
    return str(role["Role"]["Arn"])


def deployment_as(app: DeployedApp, role: str, session: str) -> DeploymentClient:
    """The deployment as a user's command line reaches it."""
    connection = Connection.model_validate(app.connection)
    answer = app.client("sts").assume_role(RoleArn=role, RoleSessionName=session)["Credentials"]
    credentials = Credentials(answer["AccessKeyId"], answer["SecretAccessKey"], answer["SessionToken"])
    address = app.local.on_this_port(connection.launcher_url)
    url = LauncherUrl(url=address, region=connection.region, credentials=lambda: credentials, proxies={})
    return DeploymentClient(
        connection=connection, client=app.local.session().client, options=ConnectionOptions(), launcher_url=url
    )


def refused_fields(answer: dict[str, Any]) -> list[str]:
    assert not answer["ok"], answer
    return [problem["field"] for problem in answer["problems"]]


def test_two_people_act_on_their_own_runs_alone(own_app: DeployedApp) -> None:
    cdk.deploy(own_app.local, project_dir=PROJECT, context={**CONTEXT, "verify_callers": "true"})
    people = role_of_people(own_app)
    ada, grace = (deployment_as(own_app, people, name) for name in ("ada", "grace"))
    run = f"hers-{uuid.uuid4().hex[:8]}"
    document = {
        "name": "hers",
        "run": run,
        "command": "python train.py",
        "source": own_app.upload_source(run, {"train.py": "import time\ntime.sleep(600)\n"}),
        "instance_type": "ml.m5.xlarge",
        "max_run": "1h",
        "token": uuid.uuid4().hex,
    }
    assert refused_fields(grace.invoke_launcher({**document, "owner": "ada"})) == ["owner"]
    launched = ada.invoke_launcher(document)
    assert launched["ok"], launched
    run_item = own_app.run(run)
    assert run_item.owner == "ada"
    assert run_item.launched_by is not None
    assert run_item.launched_by.arn == f"arn:aws:sts::{own_app.local.account_id}:assumed-role/People/ada"
    assert run_item.launched_by.verified

    assert refused_fields(grace.invoke_launcher({"action": "stop", "run": run})) == ["run"]
    # A direct invocation names no caller, and an unsigned request does not reach the function.
    assert refused_fields(own_app.invoke("launcher", {"action": "stop", "run": run})) == ["(caller)"]
    address = own_app.local.on_this_port(own_app.connection["launcher_url"])
    request = urllib.request.Request(address, data=b"{}", method="POST")  # noqa: S310
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30)
    refused.value.close()
    assert refused.value.code == 403
    assert own_app.run(run).asked_to_end is None

    assert ada.invoke_launcher({"action": "stop", "run": run})["ok"]
    own_app.wait_until_ended(run, passes=True)
