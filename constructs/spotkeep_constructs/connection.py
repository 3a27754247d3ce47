"""The connection of clients to a deployment, in one SSM parameter with a name that they can guess."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from spotkeep_constructs.statements import allow

VERSION = 1


def parameter_name(deployment: str) -> str:
    """Return the parameter's name.

    Args:
        deployment: Name of the deployment.
    """
    return f"/{deployment}/connection"


def grant_read_connection(scope: Construct, grantee: iam.IGrantable, *, deployment: str) -> iam.Grant:
    """Let a principal read a deployment's connection, which another stack may hold.

    Args:
        scope: A construct of the same account and region.
        grantee: A role, user or managed policy.
        deployment: Name of the deployment.
    """
    arn = Stack.of(scope).format_arn(
        service="ssm", resource="parameter", resource_name=parameter_name(deployment).lstrip("/")
    )
    return allow(grantee, actions=["ssm:GetParameter"], resources=[arn])


class ConnectionParameter(Construct):
    """The parameter `/<deployment>/connection`, a JSON object created last, so that it stands for a whole deployment.

    Attributes:
        parameter: The parameter.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        deployment: str,
        values: Mapping[str, str],
    ) -> None:
        """Place the parameter.

        Args:
            scope: Parent construct.
            id: Construct id.
            deployment: Name of the deployment.
            values: Every field of a connection but its version (`spotkeep_cli.aws.calls.Connection`). A value may hold
                tokens, or be empty for a part that the deployment lacks.
        """
        super().__init__(scope, id)
        self.parameter = ssm.StringParameter(
            self,
            "Parameter",
            parameter_name=parameter_name(deployment),
            description="How clients reach this Spotkeep deployment",
            string_value=Stack.of(self).to_json_string({"version": VERSION, **values}),
        )
