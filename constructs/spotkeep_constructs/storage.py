"""What must outlive everything else: checkpoints and the record of runs."""

from __future__ import annotations

from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from spotkeep_constructs.checkpoint_bucket import CheckpointBucket
from spotkeep_constructs.data_access import DataAccess
from spotkeep_constructs.run_table import RunTable
from spotkeep_constructs.settings import Settings


class Storage(Construct):
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
        bucket: s3.IBucket | None = None,
        key: kms.IKey | None = None,
    ) -> None:
        """Place the storage.

        Args:
            scope: Parent construct.
            id: Construct id.
            settings: The deployment's settings.
            bucket: An existing bucket for checkpoints. Default: one is created.
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
        self.run_table = RunTable(self, "Runs", keep_on_destroy=settings.keep_data_on_destroy)
        self.data = DataAccess(locations=settings.data_locations, key_arns=settings.data_key_arns)
