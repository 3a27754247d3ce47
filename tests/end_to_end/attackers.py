"""Who attacks a deployed app: clients with each attacker's credentials, and the denial that each must get."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from instance_credentials.handler import Boto3Aws
from spotkeep_cli.account.local_people import let_developer_train
from spotkeep_fleet.run_session import RunSession
from spotkeep_local.principals import AccessKey, Principal
from spotkeep_local.service_base.clients import LocalSession

if TYPE_CHECKING:
    from .conftest import DeployedApp

OURS, THEIRS = "ours", "theirs"
INSTANCE = "i-0aaaaaaaaaaaaaaa1"
_STACKS = ("Spotkeep-Storage", "Spotkeep-Compute", "Spotkeep-Jobs", "Spotkeep-Events")
_CODES = {"ec2": "UnauthorizedOperation", "iam": "AccessDenied", "s3": "AccessDenied", "sts": "AccessDenied"}


@contextmanager
def denied(action: str, *, of: str | None = None, because: str = "") -> Iterator[None]:
    """Hold what is called within to AWS's denial of an action.

    Args:
        action: As the message names it.
        of: The service that answers; the action's own when left out.
        because: What else the message says.
    """
    try:
        yield
    except ClientError as refused:
        error = refused.response["Error"]
    else:
        pytest.fail(f"{action} was allowed")
    assert error["Code"] == _CODES.get(of or action.partition(":")[0], "AccessDeniedException"), error
    assert f"is not authorized to perform: {action} " in error["Message"]
    # A denial of what the judge does not know says nothing about the policies.
    assert "does not know" not in error["Message"]
    assert because in error["Message"]


def session_with(app: DeployedApp, credentials: dict[str, Any]) -> LocalSession:
    """Return the clients of who has credentials, as STS hands them out."""
    key = AccessKey(
        access_key_id=credentials["AccessKeyId"],
        secret_access_key=credentials["SecretAccessKey"],
        session_token=credentials["SessionToken"],
        principal=Principal(arn="", user_id="", account_id=app.local.account_id),
    )
    return app.local.session(key=key)


class Attackers:
    """The principals of one deployment, with the sessions that they have there."""

    def __init__(self, app: DeployedApp) -> None:
        self.app = app
        self.bucket: str = app.connection["checkpoint_bucket"]
        self.table: str = app.connection["run_table"]
        self._clients: dict[tuple[str, str], Any] = {}
        found = app.client("cloudformation")
        self._resources = {
            each["LogicalResourceId"]: each["PhysicalResourceId"]
            for stack in _STACKS
            for each in found.describe_stack_resources(StackName=stack)["StackResources"]
        }

    def resource(self, logical_id: str) -> str:
        """Return the physical id of the one resource whose logical id is a name and a hash."""
        (found,) = {
            physical
            for name, physical in self._resources.items()
            if name.startswith(logical_id) and len(name) == len(logical_id) + 8
        }
        return str(found)

    def role_arn(self, logical_id: str) -> str:
        return f"arn:aws:iam::{self.app.local.account_id}:role/{self.resource(logical_id)}"

    def with_role(self, logical_id: str, *, session: str) -> LocalSession:
        """Return a session of a role with its permissions.

        Its trust policy lets a service alone assume it, so it lets the administrator for this one call.
        """
        iam, name = self.app.client("iam"), self.resource(logical_id)
        trust = iam.get_role(RoleName=name)["Role"]["AssumeRolePolicyDocument"]
        administrator = {"AWS": self.app.local.keys.administrator.principal.arn}
        also = {"Effect": "Allow", "Principal": administrator, "Action": "sts:AssumeRole"}
        opened = {**trust, "Statement": [*trust["Statement"], also]}
        iam.update_assume_role_policy(RoleName=name, PolicyDocument=json.dumps(opened))
        try:
            answer = self.app.client("sts").assume_role(RoleArn=self.role_arn(logical_id), RoleSessionName=session)
        finally:
            iam.update_assume_role_policy(RoleName=name, PolicyDocument=json.dumps(trust))
        return session_with(self.app, answer["Credentials"])

    @cached_property
    def job(self) -> LocalSession:
        return self.with_role("ExecutionRole", session="SageMaker")

    @cached_property
    def launcher(self) -> LocalSession:
        return self.with_role("LauncherRole", session="spotkeep-launcher")

    @cached_property
    def controller(self) -> LocalSession:
        return self.with_role("ControllerRole", session="spotkeep-controller")

    @cached_property
    def credentials_function(self) -> LocalSession:
        return self.with_role("CredentialsFunctionRole", session="spotkeep-instance_credentials")

    @cached_property
    def instance(self) -> LocalSession:
        """An instance of the run `ours`, with what the function `instance_credentials` gives it."""
        function = self.credentials_function
        aws = Boto3Aws(ec2=function.client("ec2"), sts=function.client("sts"), run_role_arn=self.role_arn("RunRole"))
        given = aws.assume(
            RunSession(run=OURS, attempt="1", instance=INSTANCE, runs="runs", checkpoints=f"runs/{OURS}/checkpoints")
        )
        return session_with(self.app, {**given, "SessionToken": given["Token"]})

    @cached_property
    def user(self) -> LocalSession:
        """The developer, with the users' policy and nothing else."""
        let_developer_train(self.app.local, deployment="spotkeep")
        return self.app.local.session(key=self.app.local.keys.developer)

    def clients_of(self, principal: str) -> Callable[[str], Any]:
        """Return what makes the clients of a principal, each once, by the name of its property here and the service."""

        def client(service: str) -> Any:
            if (principal, service) not in self._clients:
                self._clients[principal, service] = getattr(self, principal).client(service)
            return self._clients[principal, service]

        return client

    def put(self, key: str) -> str:
        """Put an object into the checkpoint bucket as its administrator, and return its key."""
        self.app.client("s3").put_object(Bucket=self.bucket, Key=key, Body=b"theirs")
        return key

    def item(self, partition: str) -> dict[str, Any]:
        """Return what names an item of the run table."""
        return {"TableName": self.table, "Key": {"pk": {"S": partition}, "sk": {"S": "item"}}}

    def job_request(self, *, role: str, tagged: bool = True, keep_alive_seconds: int = 60) -> dict[str, Any]:
        """Return a request for a training job, as who starts one directly writes it."""
        return {
            "TrainingJobName": "attack-1",
            "RoleArn": role,
            "AlgorithmSpecification": {
                "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/image:1",
                "TrainingInputMode": "File",
            },
            "OutputDataConfig": {"S3OutputPath": f"s3://{self.bucket}/runs/{OURS}/output/"},
            "ResourceConfig": {
                "InstanceType": "ml.m5.xlarge",
                "InstanceCount": 1,
                "VolumeSizeInGB": 5,
                "KeepAlivePeriodInSeconds": keep_alive_seconds,
            },
            "StoppingCondition": {"MaxRuntimeInSeconds": 600},
            "Tags": [{"Key": "spotkeep:deployment", "Value": "spotkeep"}] if tagged else [],
        }
