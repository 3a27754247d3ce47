"""The files of a model archive, hashed by content.

Two runs' models compare equal despite the archive's timestamps.
"""

from __future__ import annotations

import hashlib
import tarfile
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import urlsplit

from spotkeep_cli.rehearsal.evidence import ModelFile

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_BLOCK_BYTES = 1 << 20


def model_files_of(output_uri: str | None, s3: S3Client) -> dict[str, ModelFile]:
    """Return every file of a run's model archive. Empty when there is none."""
    if output_uri is None:
        return {}
    address = urlsplit(output_uri)
    # To a file: a model has any size.
    with tempfile.TemporaryFile() as archive:
        s3.download_fileobj(address.netloc, address.path.lstrip("/"), archive)
        archive.seek(0)
        return hash_model_files(archive)


def hash_model_files(archive: BinaryIO) -> dict[str, ModelFile]:
    """Return hash and size of every regular file of a ``model.tar.gz``, by its path in the archive.

    Args:
        archive: The archive, open for reading in binary.

    Raises:
        tarfile.TarError: It is not a gzip-compressed tar archive.
    """
    hashes: dict[str, ModelFile] = {}
    with tarfile.open(fileobj=archive, mode="r:gz") as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is not None:
                digest = hashlib.sha256()
                while block := content.read(_BLOCK_BYTES):
                    digest.update(block)
                name = member.name.removeprefix("./")
                hashes[name] = ModelFile(sha256=digest.hexdigest(), size_bytes=content.tell())
    return hashes


def hash_of_hashes(model_files: Mapping[str, ModelFile]) -> str | None:
    """Return one SHA-256 for a whole model, ``None`` when there is no model."""
    if not model_files:
        return None
    lines = "".join(f"{file.sha256}  {name}\n" for name, file in sorted(model_files.items()))
    return hashlib.sha256(lines.encode()).hexdigest()
