"""Hashes a model archive by content, so that two runs' models compare whatever the archive's timestamps."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Mapping
from typing import BinaryIO

_BLOCK_BYTES = 1 << 20


def hash_model_files(archive: BinaryIO) -> dict[str, str]:
    """Return the SHA-256 of every regular file of a ``model.tar.gz``, by its path in the archive.

    Args:
        archive: The archive, open for reading in binary.

    Raises:
        tarfile.TarError: It is not a gzip-compressed tar archive.
    """
    hashes: dict[str, str] = {}
    with tarfile.open(fileobj=archive, mode="r:gz") as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is not None:
                digest = hashlib.sha256()
                while block := content.read(_BLOCK_BYTES):
                    digest.update(block)
                hashes[member.name.removeprefix("./")] = digest.hexdigest()
    return hashes


def hash_of_hashes(model_files: Mapping[str, str]) -> str | None:
    """Return one SHA-256 for a whole model, ``None`` when there is no model."""
    if not model_files:
        return None
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(model_files.items()))
    return hashlib.sha256(lines.encode()).hexdigest()
