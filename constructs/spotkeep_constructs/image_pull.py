"""What pulling a container image from Amazon ECR takes: of a training job's role, and of an instance's run.

Source: "Private registry authentication" and "Amazon ECR managed policies" (Amazon ECR user guide)
"""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_iam as iam

from spotkeep_constructs.statements import allow


def allow_image_pull(role: iam.Role) -> None:
    """Let a role pull images in its region.

    Args:
        role: It may read no image that the policy of another account's repository does not let its account read.
    """
    allow(
        role,
        actions=["ecr:GetAuthorizationToken"],
        resources=["*"],
        wildcard="A registry token is no IAM resource; it gives no access to an image.",
    )
    allow(
        role,
        actions=["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
        # AWS's own training images live in AWS's accounts, one a region, so the account stays open.
        resources=[Stack.of(role).format_arn(service="ecr", account="*", resource="repository", resource_name="*")],
        wildcard="Users choose their images, also from AWS's accounts, one a region; reading is all it gives.",
    )
