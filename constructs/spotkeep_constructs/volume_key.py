"""A customer's own KMS key for what EC2 instances store on, and who has to be allowed to use it.

The key is the customer's, and so is its policy: nothing here changes it. The run role gets what IAM can give;
for EC2's service-linked roles, whose policies no account can change, the key's policy has to say it. The statements
for it are an output, ready to be put in.

Sources: "Requirements for Amazon EBS encryption", EBS user guide; "Grant access to customer managed keys", EC2
Fleet prerequisites. The policy of `aws/ebs` lets the same roles in by the same `kms:ViaService`.
"""

from __future__ import annotations

from typing import Any, Final

from aws_cdk import Aws, CfnOutput, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from spotkeep_constructs.fleets import service_role_arns
from spotkeep_constructs.statements import allow
from spotkeep_fleet.service_roles import FLEET_SERVICE_ROLES

_USE: Final = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)


class VolumeKey(Construct):
    """The key of root volumes, of the runs' volumes and of their snapshots.

    Attributes:
        key_arn: Its ARN.
    """

    def __init__(self, scope: Construct, id: str, *, key_arn: str, run_role: iam.IRole) -> None:  # noqa: A002
        """Let the instances use the key, and say what its policy needs.

        Args:
            scope: Parent construct.
            id: Construct id.
            key_arn: The key; of this account or of another one.
            run_role: What instances make volumes and attach them with.
        """
        super().__init__(scope, id)
        self.key_arn = key_arn
        via_ec2 = {"kms:ViaService": f"ec2.{Stack.of(self).region}.{Aws.URL_SUFFIX}"}
        for_ec2 = {"StringEquals": via_ec2, "Bool": {"kms:GrantIsForAWSResource": "true"}}
        allow(run_role, actions=_USE, resources=[key_arn], conditions={"StringEquals": via_ec2})
        allow(run_role, actions=["kms:CreateGrant"], resources=[key_arn], conditions=for_ec2)
        principals = {"AWS": [*service_role_arns(run_role, FLEET_SERVICE_ROLES), run_role.role_arn]}

        def statement(sid: str, actions: tuple[str, ...], conditions: dict[str, Any]) -> dict[str, Any]:
            return {
                "Sid": sid,
                "Effect": "Allow",
                "Principal": principals,
                "Action": list(actions),
                "Resource": "*",
                "Condition": conditions,
            }

        CfnOutput(
            self,
            "KeyPolicy",
            description="Statements that the policy of volume_kms_key_arn needs before the first fleet",
            value=Stack.of(self).to_json_string(
                [
                    statement("SpotkeepVolumes", _USE, {"StringEquals": via_ec2}),
                    statement("SpotkeepVolumesInUse", ("kms:CreateGrant",), for_ec2),
                ]
            ),
        ).override_logical_id("VolumeKeyPolicy")
