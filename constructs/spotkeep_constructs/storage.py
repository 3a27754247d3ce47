"""The storage that outlives everything else, with checkpoints, the record of runs and the data of trainings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from aws_cdk import Aws, RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from spotkeep_constructs.checkpoint_bucket import CheckpointBucket
from spotkeep_constructs.settings import Settings
from spotkeep_constructs.statements import allow, arn_for, divided, together

BY_CREATED_INDEX = "by-created"
IN_FLIGHT_INDEX = "in-flight"
EXPIRY_ATTRIBUTE = "expires_at"


class RecordTable(Construct):
    """A DynamoDB table, paid by use, that can be restored to any second and forgets old runs by itself.

    It has two indexes. `by-created` lists all runs by time. `in-flight` is sparse and holds runs that have not ended.

    Attributes:
        table: The table.
    """

    def __init__(self, scope: Construct, id: str, *, keep_on_destroy: bool = True) -> None:  # noqa: A002
        """Place the table.

        Args:
            scope: Parent construct.
            id: Construct id.
            keep_on_destroy: True when the table outlives its stack and refuses to be deleted.
        """
        super().__init__(scope, id)
        self.table = dynamodb.Table(
            self,
            "Table",
            partition_key=_text("pk"),
            sort_key=_text("sk"),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            time_to_live_attribute=EXPIRY_ATTRIBUTE,
            deletion_protection=keep_on_destroy,
            removal_policy=RemovalPolicy.RETAIN if keep_on_destroy else RemovalPolicy.DESTROY,
        )
        self.table.add_global_secondary_index(
            index_name=BY_CREATED_INDEX,
            partition_key=_text("listing"),
            sort_key=_text("created_at"),
            projection_type=dynamodb.ProjectionType.ALL,
        )
        self.table.add_global_secondary_index(
            index_name=IN_FLIGHT_INDEX,
            partition_key=_text("in_flight"),
            sort_key=_text("updated_at"),
            projection_type=dynamodb.ProjectionType.ALL,
        )

    def grant_read(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal read runs, one by one or listed.

        Args:
            grantee: A role, user or managed policy.
        """
        return allow(
            grantee,
            actions=["dynamodb:GetItem", "dynamodb:Query"],
            resources=[self.table.table_arn, *self._index_arns()],
        )

    def grant_read_write(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal read and write runs, in transactions too (they need the actions of their parts).

        Args:
            grantee: A function's role.
        """
        return together(
            self.grant_read(grantee),
            allow(
                grantee,
                actions=["dynamodb:ConditionCheckItem", "dynamodb:DeleteItem", "dynamodb:PutItem"],
                resources=[self.table.table_arn],
            ),
        )

    def grant_scan(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal read the whole table, which no index shows without delay.

        Args:
            grantee: A function's role.
        """
        return allow(grantee, actions=["dynamodb:Scan"], resources=[self.table.table_arn])

    def _index_arns(self) -> list[str]:
        return [f"{self.table.table_arn}/index/{name}" for name in (BY_CREATED_INDEX, IN_FLIGHT_INDEX)]


def _text(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)


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
        """Let trainings list and read the data below the locations, and nothing else.

        The roles share managed policies, as few as hold all locations. A long list would not fit into each role's own
        policy. Repeated for twenty teams' roles it would exceed the size of a template.

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
        """Characters of its statement in a policy, or more. A token is longer than the partition that it stands for."""
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


class Storage(Construct):
    """The checkpoint bucket and the run table.

    Attributes:
        checkpoints: The bucket, with its key.
        run_table: The table.
        data: The further data that every role that trains may read.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        settings: Settings,
        bucket: s3.IBucket | None = None,
        key: kms.IKey | None = None,
    ) -> None:
        """Place the storage.

        Args:
            scope: Parent construct.
            id: Construct id.
            settings: The deployment's settings.
            bucket: An existing bucket for checkpoints, by default a new one.
            key: An existing key that encrypts the bucket. Default: the existing bucket's own, or one is created.
        """
        super().__init__(scope, id)
        self.checkpoints = CheckpointBucket(
            self,
            "Checkpoints",
            retention_days=settings.checkpoint_retention_days,
            keep_on_destroy=settings.keep_data_on_destroy,
            existing=bucket,
            key=key,
        )
        self.run_table = RecordTable(self, "Runs", keep_on_destroy=settings.keep_data_on_destroy)
        self.data = DataAccess(locations=settings.data_locations, key_arns=settings.data_key_arns)
