"""Hashes a model archive by content, so that two runs' models compare whatever the archive's timestamps."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Mapping
from typing import BinaryIO

from spotkeep_rehearsal.evidence import ModelFile

_BLOCK_BYTES = 1 << 20


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
