"""What trainings may read beside their runs, the same whatever a training runs on: S3 locations, keys, images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from aws_cdk import Aws
from aws_cdk import aws_iam as iam
from constructs import Construct

from spotkeep_constructs.statements import allow, arn_for, divided

LONGEST_POLICY = 6_144
"""Characters of a managed policy, without white space.

Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
"""


@dataclass(frozen=True, kw_only=True)
class DataAccess:
    """Data outside the deployment's bucket. The launcher judges channels by the same locations (`rules.access`).

    Attributes:
        locations: S3 locations, `s3://<bucket>/<prefix>/` or `s3://<bucket>/` each.
        key_arns: KMS keys that they are encrypted with.
    """

    locations: Sequence[str] = ()
    key_arns: Sequence[str] = ()

    def let_read(self, scope: Construct, roles: Sequence[iam.Role]) -> list[iam.ManagedPolicy]:
        """Let trainings list and read what lies below the locations, and nothing beside it.

        The roles share managed policies, as few as hold all locations: in each role's own policy, a long list would not
        have room, and twenty teams' roles would repeat it beyond what a template may hold.

        Args:
            scope: Parent construct of the policies.
            roles: The roles that trainings run with.
        """
        policies: list[iam.ManagedPolicy] = []
        room = 0
        for permission in self._permissions():
            if permission.characters > room:
                policy = iam.ManagedPolicy(
                    scope,
                    f"DataPolicy{len(policies) + 1}",
                    description="Spotkeep's trainings read their data with it",
                    roles=list(roles),
                )
                policies.append(policy)
                room = LONGEST_POLICY - len('{"Statement":[],"Version":"2012-10-17"}')
            room -= permission.characters
            allow(
                policies[-1],
                actions=[permission.action],
                resources=permission.resources,
                conditions={"StringLike": {"s3:prefix": permission.prefixes}} if permission.prefixes else None,
                wildcard="The data set's objects; the setting data_locations names where they lie.",
            )
        return policies

    def _permissions(self) -> Iterator[_Permission]:
        places = sorted({_bucket_and_prefix(location) for location in self.locations})
        for bucket, of_bucket in groupby(places, key=lambda place: place[0]):
            bucket_arn = f"arn:{Aws.PARTITION}:s3:::{bucket}"
            prefixes = [prefix for _, prefix in of_bucket]
            for objects in divided([f"{bucket_arn}/{prefix}*" for prefix in prefixes]):
                yield _Permission("s3:GetObject", objects)
            # A request that lists a whole bucket may leave the prefix out, and then there is none to compare.
            for listed in [[]] if "" in prefixes else divided([f"{prefix}*" for prefix in prefixes]):
                yield _Permission("s3:ListBucket", [bucket_arn], listed)
        if self.key_arns:
            yield _Permission("kms:Decrypt", list(self.key_arns))


class _Permission(NamedTuple):
    action: str
    resources: list[str]
    prefixes: Sequence[str] = ()

    @property
    def characters(self) -> int:
        """Of its statement in a policy, or more: a token is longer than the partition that it stands for."""
        frame = '{"Action":"","Condition":{"StringLike":{"s3:prefix":[]}},"Effect":"Allow","Resource":[]},'
        return len(frame) + len(self.action) + sum(len(text) + len('"",') for text in (*self.resources, *self.prefixes))


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
