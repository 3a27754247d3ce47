"""The training source: an archive in the channel `source`, or a commit of a git repository.

Both are pinned by the launcher: what is unpacked is what was launched, whatever was written to S3 or to a branch since.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from spotkeep.errors import SourceError
from spotkeep_fleet.training_spec import JobSource

from .git_source import check_out
from .layout import JobLayout
from .source_archive import ARCHIVES, unpack

_READ_BYTES = 2**20


def prepare_source(source: JobSource | None, *, layout: JobLayout, environment: Mapping[str, str]) -> Path | None:
    """Put the source where the command will run.

    Args:
        source: The spec's. Without one, the archive in the channel `source` is unpacked as it is.
        layout: The places of the channel and of the command.
        environment: git's variables.

    Returns:
        The directory, or None when the job has no source of its own (it is in the image).

    Raises:
        SourceError: If the archive or the commit cannot be used.
        MissingToolError: If git is needed and missing.
    """
    source = source or JobSource()
    channel = layout.data / "source"
    try:
        if source.git_url is not None:
            _empty(layout.source)
            check_out(source.git_url, source.git_commit or "", layout.source, environment)
        elif channel.is_dir():
            path = _find_archive(channel)
            with path.open("rb") as archive:
                require_sha256(archive, source.sha256, name=path.name)
                _empty(layout.source)
                unpack(archive, name=path.name, target=layout.source)
        else:
            return None
    except OSError as error:
        raise SourceError(f"the source cannot be put into {layout.source}: {error}") from error
    return layout.source


def require_sha256(archive: IO[bytes], expected: str | None, *, name: str) -> None:
    """Make sure that an archive is the one that was launched.

    Args:
        archive: Its bytes, from anywhere; read from the beginning to the end.
        expected: Its SHA-256, hexadecimal; None of a job that no launcher made, whose source is not pinned.
        name: The name of the archive.

    Raises:
        SourceError: If it is another one; names both.
    """
    if expected is None:
        return
    digest = hashlib.sha256()
    archive.seek(0)
    for piece in iter(lambda: archive.read(_READ_BYTES), b""):
        digest.update(piece)
    if digest.hexdigest() != expected:
        raise SourceError(
            f"the source archive {name} is not the one that was launched, and is not unpacked: expected SHA-256 "
            f"{expected}, found {digest.hexdigest()}. It was replaced in S3; find out by whom, then launch again"
        )


def _find_archive(channel: Path) -> Path:
    found = sorted(path for path in channel.rglob("*") if path.is_file() and path.name.endswith(ARCHIVES))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise SourceError(
            f"the channel `source` must hold one archive ({', '.join(ARCHIVES)}), found {names}; "
            "name the archive itself in the job's `source`"
        )
    return found[0]


def _empty(directory: Path) -> None:
    if directory.is_dir() and not directory.is_symlink():
        shutil.rmtree(directory)
    directory.mkdir(parents=True)
