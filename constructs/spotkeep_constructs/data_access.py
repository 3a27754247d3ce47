"""What trainings may read beside their runs, the same whatever a training runs on: S3 locations, keys, images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from aws_cdk import Aws
from aws_cdk import aws_iam as iam

from spotkeep_constructs.statements import allow, arn_for, together


@dataclass(frozen=True, kw_only=True)
class DataAccess:
    """Data outside the deployment's bucket. The launcher judges channels by the same locations (`rules.access`).

    Attributes:
        locations: S3 locations, `s3://<bucket>/<prefix>/` or `s3://<bucket>/` each.
        key_arns: KMS keys that they are encrypted with.
    """

    locations: Sequence[str] = ()
    key_arns: Sequence[str] = ()

    def grant_read(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a training list and read what lies below the locations, and nothing beside it.

        Args:
            grantee: The role that trainings run with.
        """
        grants = [iam.Grant.drop(grantee, "read no data beside the runs")]
        places = sorted({_bucket_and_prefix(location) for location in self.locations})
        for bucket, of_bucket in groupby(places, key=lambda place: place[0]):
            bucket_arn = f"arn:{Aws.PARTITION}:s3:::{bucket}"
            prefixes = [prefix for _, prefix in of_bucket]
            grants.append(
                allow(
                    grantee,
                    actions=["s3:GetObject"],
                    resources=[f"{bucket_arn}/{prefix}*" for prefix in prefixes],
                    wildcard="The data set's objects; the setting data_locations names where they lie.",
                )
            )
            grants.append(
                allow(
                    grantee,
                    actions=["s3:ListBucket"],
                    resources=[bucket_arn],
                    # A request that lists a whole bucket may leave the prefix out, and then there is none to compare.
                    conditions=None
                    if "" in prefixes
                    else {"StringLike": {"s3:prefix": [f"{prefix}*" for prefix in prefixes]}},
                )
            )
        if self.key_arns:
            grants.append(allow(grantee, actions=["kms:Decrypt"], resources=self.key_arns))
        return together(*grants)


def _bucket_and_prefix(location: str) -> tuple[str, str]:
    bucket, _, prefix = location.removeprefix("s3://").partition("/")
    return bucket, prefix


def allow_image_pull(role: iam.Role) -> None:
    """Let a role pull container images from Amazon ECR in its region.

    Source: "Private registry authentication" and "Amazon ECR managed policies" (Amazon ECR user guide)

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
        resources=[arn_for(role, "ecr", "repository", account="*")],
        wildcard="Users choose their images, also from AWS's accounts, one a region; reading is all it gives.",
    )
