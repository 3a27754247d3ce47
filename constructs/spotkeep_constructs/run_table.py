"""The record of every run: one table, the source of truth for state, lease, deduplication and cost."""

from __future__ import annotations

from aws_cdk import RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from constructs import Construct

from spotkeep_constructs.statements import allow, together

BY_CREATED_INDEX = "by-created"
IN_FLIGHT_INDEX = "in-flight"
EXPIRY_ATTRIBUTE = "expires_at"


class RunTable(Construct):
    """A DynamoDB table, paid by use, that can be restored to any second and forgets old runs by itself.

    Two indexes: `by-created` lists all runs by time; `in-flight` is sparse and holds runs that have not ended.

    Attributes:
        table: The table.
    """

    def __init__(self, scope: Construct, id: str, *, keep_on_destroy: bool = True) -> None:  # noqa: A002
        """Place the table.

        Args:
            scope: Parent construct.
            id: Construct id.
            keep_on_destroy: Whether the table outlives its stack and refuses to be deleted.
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
