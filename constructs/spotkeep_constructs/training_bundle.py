"""The one artifact that runs inside a job or on an instance: `training/` packed as a zipapp and uploaded."""

from __future__ import annotations

import hashlib
from pathlib import Path

from aws_cdk import Fn
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from spotkeep_constructs.archives import keep, python_sources, sha256, zip_bytes
from spotkeep_constructs.errors import PropertyError
from spotkeep_constructs.statements import allow

BUNDLE_NAME = "spotkeep.pyz"

PACKAGES = ("spotkeep", "spotkeep_agent", "spotkeep_fleet")

# `python3 x.pyz` runs the archive's own __main__. The library knows nothing of the agent, so the choice is made here.
_ENTRY_POINT = b"""import sys

if sys.argv[1:2] == ["agent"]:
    from spotkeep_agent.__main__ import main
else:
    from spotkeep.__main__ import main

sys.exit(main())
"""


def bundle_bytes(sources: Path) -> bytes:
    """Packs the training library and the agent as a zipapp; the same sources give the same bytes.

    Args:
        sources: The source root `training/`.

    Returns:
        A zip archive: `python3 spotkeep.pyz run -- COMMAND` in a job, `python3 spotkeep.pyz agent` on an instance.

    Raises:
        PropertyError: A package is missing there.
    """
    files = {"__main__.py": _ENTRY_POINT}
    for name in PACKAGES:
        if not (sources / name / "__init__.py").is_file():
            raise PropertyError(
                name="TrainingBundle.sources",
                problem=f"holds no Python package {name}",
                found=str(sources),
                fix=f"Give the directory that holds {name}/__init__.py.",
            )
        files |= python_sources(sources / name)
    return zip_bytes(files)


class TrainingBundle(Construct):
    """`spotkeep.pyz` in the deployment's asset bucket, pinned by its hash.

    Attributes:
        asset: The uploaded file.
        uri: Its `s3://` address.
        content_sha256: What an instance checks it against, hexadecimal.
    """

    def __init__(self, scope: Construct, id: str, *, sources: Path, archives: Path) -> None:  # noqa: A002
        """Packs the bundle and declares its upload.

        Args:
            scope: Parent construct.
            id: Construct id.
            sources: The source root `training/`.
            archives: Directory that keeps built archives.

        Raises:
            PropertyError: A package is missing there.
        """
        super().__init__(scope, id)
        content = bundle_bytes(sources)
        digest = sha256(content)
        self.content_sha256 = hashlib.sha256(content).hexdigest()
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
        allow(
            grantee,
            actions=["s3:ListBucket"],
            resources=[self.asset.bucket.bucket_arn],
            conditions={"StringLike": {"s3:prefix": ["*.pyz"]}},
        )
        self.grant_fetch(grantee)

    def grant_fetch(self, grantee: iam.IGrantable) -> None:
        """Lets a principal that knows its address fetch this bundle or an earlier one.

        Args:
            grantee: The role instances run with.
        """
        allow(
            grantee,
            actions=["s3:GetObject"],
            resources=[self.asset.bucket.arn_for_objects("*.pyz")],
            wildcard="A job that waited through a deployment still starts with its own bundle.",
        )
