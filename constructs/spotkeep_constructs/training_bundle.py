"""The one artifact that runs inside a job: `training/spotkeep` packed as a zipapp and uploaded as a CDK asset."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import Fn
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from spotkeep_constructs.archives import keep, python_sources, sha256, zip_bytes
from spotkeep_constructs.errors import PropertyError
from spotkeep_constructs.statements import allow

BUNDLE_NAME = "spotkeep.pyz"

# `python3 x.pyz` runs the archive's own __main__; the package's is the command line.
_ENTRY_POINT = b"""import sys

from spotkeep.__main__ import main

sys.exit(main())
"""


def bundle_bytes(package: Path) -> bytes:
    """Packs the training library as a zipapp; the same sources give the same bytes.

    Args:
        package: The directory `training/spotkeep`.

    Returns:
        A zip archive that `python3 spotkeep.pyz` runs.

    Raises:
        PropertyError: There is no package there.
    """
    if not (package / "__init__.py").is_file():
        raise PropertyError(
            name="TrainingBundle.package",
            problem="is not a Python package",
            found=str(package),
            fix="Give the directory that holds spotkeep/__init__.py.",
        )
    return zip_bytes({**python_sources(package), "__main__.py": _ENTRY_POINT})


class TrainingBundle(Construct):
    """`spotkeep.pyz` in the deployment's asset bucket, pinned by its hash.

    Attributes:
        asset: The uploaded file.
        uri: Its `s3://` address.
    """

    def __init__(self, scope: Construct, id: str, *, package: Path, archives: Path) -> None:  # noqa: A002
        """Packs the bundle and declares its upload.

        Args:
            scope: Parent construct.
            id: Construct id.
            package: The directory `training/spotkeep`.
            archives: Directory that keeps built archives.

        Raises:
            PropertyError: There is no package there.
        """
        super().__init__(scope, id)
        content = bundle_bytes(package)
        digest = sha256(content)
        path = keep(archives / digest, BUNDLE_NAME, content)
        self.asset = s3_assets.Asset(self, "File", path=str(path), asset_hash=digest)
        self.uri = Fn.join("", ["s3://", self.asset.s3_bucket_name, "/", self.asset.s3_object_key])

    def grant_read(self, grantee: iam.IGrantable) -> None:
        """Lets a principal read this bundle and earlier ones.

        A job that waits for capacity while a new version is deployed still starts with the bundle it was launched with,
        so the permission covers every `.pyz` of the asset bucket.

        Args:
            grantee: The role jobs run with.
        """
        bucket = self.asset.bucket
        allow(
            grantee,
            actions=["s3:ListBucket"],
            resources=[bucket.bucket_arn],
            conditions={"StringLike": {"s3:prefix": ["*.pyz"]}},
        )
        allow(
            grantee,
            actions=["s3:GetObject"],
            resources=[bucket.arn_for_objects("*.pyz")],
            wildcard="A job that waited through a deployment still starts with its own bundle.",
        )
