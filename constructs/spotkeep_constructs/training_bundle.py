"""The one artifact that runs inside a job or on an instance. It is `training/`, packed as a zipapp and uploaded."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from aws_cdk import Fn
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from spotkeep_constructs.archives import keep, python_sources, sha256, zip_bytes
from spotkeep_constructs.checkpoint_bucket import BUNDLES_PREFIX, CheckpointBucket
from spotkeep_constructs.errors import PropertyError
from spotkeep_constructs.statements import allow, together

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
    """Pack the training library and the agent as a zipapp. The same sources give the same bytes.

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


@dataclass(frozen=True, kw_only=True)
class PackedBundle:
    """The zipapp, as a synth keeps it.

    Attributes:
        archive: The path of the file.
        digest: Its hash, and so the asset's.
        content_sha256: The hexadecimal SHA-256, which instances check.
    """

    archive: Path
    digest: str
    content_sha256: str

    @classmethod
    def pack(cls, sources: Path, *, archives: Path) -> Self:
        """Pack it and keep it.

        Args:
            sources: The source root `training/`.
            archives: The directory that keeps built archives, one folder a hash.

        Raises:
            PropertyError: A package is missing there.
        """
        content = bundle_bytes(sources)
        digest = sha256(content)
        return cls(
            archive=keep(archives / digest, BUNDLE_NAME, content),
            digest=digest,
            content_sha256=hashlib.sha256(content).hexdigest(),
        )


class TrainingBundle(Construct):
    """`spotkeep.pyz`, as the file that the deployment uploads and as the copy that runs fetch.

    A run fetches it again each time that capacity comes back, also long after a deployment with another one. `cdk gc`
    deletes the uploaded file by then. The copy stays, under the hash of its content. The functions that launch make it.

    Attributes:
        asset_uri: `s3://` address of the uploaded file.
        uri: `s3://` address of the copy, in the checkpoint bucket.
        content_sha256: The hexadecimal SHA-256, which instances check.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        packed: PackedBundle,
        checkpoints: CheckpointBucket,
    ) -> None:
        """Declare its upload.

        Args:
            scope: Parent construct.
            id: Construct id.
            packed: The bundle, packed once for all stacks.
            checkpoints: The bucket that keeps the copy.
        """
        super().__init__(scope, id)
        self.content_sha256 = packed.content_sha256
        self._asset = s3_assets.Asset(self, "File", path=str(packed.archive), asset_hash=packed.digest)
        self._checkpoints = checkpoints
        self._key = f"{BUNDLES_PREFIX}{self.content_sha256}/{BUNDLE_NAME}"
        self.asset_uri = Fn.join("", ["s3://", self._asset.s3_bucket_name, "/", self._asset.s3_object_key])
        self.uri = Fn.join("", ["s3://", checkpoints.bucket.bucket_name, "/", self._key])

    def grant_keep(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal check for the copy, and make it.

        Args:
            grantee: The role of a function that launches.
        """
        return together(
            allow(
                grantee,
                actions=["s3:GetObject"],
                resources=[self._asset.bucket.arn_for_objects(self._asset.s3_object_key)],
            ),
            self._checkpoints.grant_put_bundle(grantee, key=self._key),
        )
