"""What must outlive everything else: checkpoints and the record of runs."""

from __future__ import annotations

from aws_cdk import Environment, PermissionsBoundary, Stack
from constructs import Construct

from spotkeep_constructs.checkpoint_bucket import CheckpointBucket
from spotkeep_constructs.data_access import DataAccess
from spotkeep_constructs.run_table import RunTable
from stacks.settings import Settings


class StorageStack(Stack):
    """The checkpoint bucket and the run table.

    Attributes:
        checkpoints: The bucket, with its key.
        run_table: The table.
        data: What every role that trains may read besides.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        settings: Settings,
        env: Environment,
        permissions_boundary: PermissionsBoundary | None,
    ) -> None:
        """Places the stack.

        Args:
            scope: The app.
            id: Stack id.
            settings: The deployment's settings.
            env: Account and region.
            permissions_boundary: Bounds every role of the stack.
        """
        super().__init__(
            scope,
            id,
            env=env,
            permissions_boundary=permissions_boundary,
            description="Spotkeep: checkpoints and the record of runs",
        )
        self.checkpoints = CheckpointBucket(
            self,
            "Checkpoints",
            noncurrent_version_days=settings.noncurrent_version_days,
            retention_days=settings.checkpoint_retention_days,
            keep_on_destroy=settings.keep_data_on_destroy,
        )
        self.run_table = RunTable(self, "Runs", keep_on_destroy=settings.keep_data_on_destroy)
        self.data = DataAccess(locations=settings.data_locations, key_arns=settings.data_key_arns)
