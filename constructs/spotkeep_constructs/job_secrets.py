"""The secrets of AWS Secrets Manager that jobs may read, and the permissions on them.

Source: "Permissions policy examples for AWS Secrets Manager" (AWS Secrets Manager user guide).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import Aws, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from spotkeep_constructs.statements import allow, allow_regional, arn_for

_SUFFIX = "-??????"
"""AWS adds a hyphen and six characters to the name of a secret in its ARN. The name is known, they are not."""


@dataclass(frozen=True, kw_only=True)
class JobSecrets:
    """The secrets that the settings name.

    Attributes:
        secrets: Names or whole ARNs.
        key_arns: The KMS keys that they are encrypted with, where it is not the account's own for Secrets Manager.
    """

    secrets: Sequence[str] = ()
    key_arns: Sequence[str] = ()

    def let_read(self, scope: Construct, roles: Sequence[iam.Role]) -> None:
        """Let jobs read the values of the secrets, by one policy that their roles share.

        Args:
            scope: Parent construct of the policy.
            roles: The roles with which values are read.
        """
        if not self.secrets:
            return
        policy = iam.ManagedPolicy(
            scope, "SecretsPolicy", description="Spotkeep's trainings read their secrets with it", roles=list(roles)
        )
        allow(policy, actions=["secretsmanager:GetSecretValue"], resources=self._arns(policy))
        if self.key_arns:
            via = {"kms:ViaService": f"secretsmanager.{Stack.of(scope).region}.{Aws.URL_SUFFIX}"}
            allow(policy, actions=["kms:Decrypt"], resources=list(self.key_arns), conditions={"StringEquals": via})

    def let_check(self, grantee: iam.IGrantable, *, network: bool) -> None:
        """Let the launcher look whether jobs can read the secrets. It reads no value.

        Args:
            grantee: The launcher's role.
            network: True where SageMaker's jobs run in subnets of their own.
        """
        if not self.secrets:
            return
        allow(grantee, actions=["secretsmanager:DescribeSecret"], resources=self._arns(grantee))
        if self.key_arns:
            allow(grantee, actions=["kms:DescribeKey"], resources=list(self.key_arns))
        if network:
            allow_regional(grantee, "ec2:DescribeRouteTables", "ec2:DescribeSubnets", "ec2:DescribeVpcEndpoints")

    def _arns(self, grantee: iam.IGrantable) -> list[str]:
        return [
            each
            if each.startswith("arn:")
            else arn_for(grantee, "secretsmanager", "secret", f"{each}{_SUFFIX}", colon=True)
            for each in self.secrets
        ]
