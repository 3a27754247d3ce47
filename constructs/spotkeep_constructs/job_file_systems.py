"""The file systems that SageMaker's jobs may mount as channels, and the permissions on them.

SageMaker mounts them through the job's network interfaces. AWS's page on execution roles names no action for that.

Sources: "Actions, resources, and condition keys for Amazon SageMaker" (service authorization reference).
"How to use SageMaker AI execution roles", section CreateTrainingJob.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import aws_iam as iam

from spotkeep_constructs.statements import allow, allow_regional, arn_for

_FILE_SYSTEM_KEY = "sagemaker:FileSystemId"
"""The ids of the file systems in a request to create a job. Absent where it has none."""
WITHOUT_FILE_SYSTEMS: Mapping[str, Any] = {"Null": {_FILE_SYSTEM_KEY: "true"}}
"""The condition of a job that mounts no file system."""


@dataclass(frozen=True, kw_only=True)
class JobFileSystems:
    """The file systems that the settings name.

    Attributes:
        ids: Their ids, of FSx for Lustre and of Amazon EFS.
    """

    ids: Sequence[str] = ()

    @property
    def condition(self) -> Mapping[str, Any]:
        """The condition of a job that mounts some of them and no other."""
        return {
            "Null": {_FILE_SYSTEM_KEY: "false"},
            "ForAllValues:StringEquals": {_FILE_SYSTEM_KEY: list(self.ids)},
        }

    def let_check(self, grantee: iam.IGrantable) -> None:
        """Let the launcher look whether jobs can mount them.

        Args:
            grantee: The launcher's role.
        """
        if not self.ids:
            return
        allow_regional(
            grantee,
            "ec2:DescribeNetworkInterfaceAttribute",
            "ec2:DescribeNetworkInterfaces",
            "ec2:DescribeSecurityGroups",
            "ec2:DescribeSubnets",
            "fsx:DescribeFileSystems",
        )
        allow(
            grantee,
            actions=["elasticfilesystem:DescribeMountTargetSecurityGroups", "elasticfilesystem:DescribeMountTargets"],
            resources=[arn_for(grantee, "elasticfilesystem", "file-system", each) for each in self.ids],
        )
