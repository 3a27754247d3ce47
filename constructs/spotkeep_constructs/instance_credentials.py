"""The function that gives an instance the credentials of its own run, and what it needs for it."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from constructs import Construct

from spotkeep_constructs.instance_role import InstanceRole
from spotkeep_constructs.job_function import FunctionPlatform, JobFunction
from spotkeep_constructs.run_role import RunRole
from spotkeep_jobs.settings import CredentialsSettings


class InstanceCredentials(Construct):
    """A function that instances invoke, once when they boot and then about every three quarters of an hour.

    An instance proves which one it is by a request that it has signed for STS, so the function needs no URL that names
    its caller: instances in a network without a way to the internet reach it through Lambda's endpoint.

    Attributes:
        function: The function.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        deployment: str,
        platform: FunctionPlatform,
        instances: InstanceRole,
    ) -> None:
        """Place the function.

        Args:
            scope: Parent construct.
            id: Construct id.
            deployment: Prefix of the function's name, and the tag of the instances that it answers.
            platform: What all functions of the stack share.
            instances: The role of the instances that it answers; no other principal may invoke it.
        """
        super().__init__(scope, id)
        self.function = JobFunction(
            self,
            "Function",
            package="instance_credentials",
            deployment=deployment,
            platform=platform,
            environment=CredentialsSettings.variables(instance_role_arn=instances.role.role_arn),
            timeout=Duration.seconds(20),
            description="Gives an instance the credentials of its own run",
        )
        instances.let_ask(self.function)

    @property
    def role(self) -> iam.Role:
        """What the function runs with."""
        return self.function.role

    def give(self, run_role: RunRole) -> None:
        """Have it give sessions of a role.

        Args:
            run_role: The role, which trusts the function's.
        """
        run_role.let_assume(self.role)
        self.function.add_variables(CredentialsSettings.variables(run_role_arn=run_role.role.role_arn))
