"""The training source: an archive in the channel `source`, or a commit of a git repository.

Both are pinned by the launcher: what is unpacked is what was launched, whatever was written to S3 or to a branch since.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from spotkeep.errors import MissingToolError, SourceError

from .layout import JobLayout
from .source_archive import ARCHIVES, unpack

GIT_URL_VARIABLE = "SPOTKEEP_SOURCE_GIT_URL"
GIT_COMMIT_VARIABLE = "SPOTKEEP_SOURCE_GIT_COMMIT"
SHA256_VARIABLE = "SPOTKEEP_SOURCE_SHA256"

_READ_BYTES = 2**20
_GIT_URL = re.compile(r"(https?|ssh|git|file)://\S+|[\w.-]+@[\w.-]+:\S+")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def prepare_source(layout: JobLayout, environment: Mapping[str, str]) -> Path | None:
    """Put the source where the command will run.

    Returns:
        The directory, or None when the job has no source of its own (it is in the image).

    Raises:
        SourceError: If the archive or the commit cannot be used.
        MissingToolError: If git is needed and missing.
    """
    url = environment.get(GIT_URL_VARIABLE)
    channel = layout.data / "source"
    try:
        if url:
            _empty(layout.source)
            _clone(url, environment.get(GIT_COMMIT_VARIABLE, ""), layout.source, environment)
        elif channel.is_dir():
            path = _find_archive(channel)
            with path.open("rb") as archive:
                require_sha256(archive, environment.get(SHA256_VARIABLE), name=path.name)
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


def _clone(url: str, commit: str, target: Path, environment: Mapping[str, str]) -> None:
    if not _GIT_URL.fullmatch(url):
        raise SourceError(f"{GIT_URL_VARIABLE} is {url!r}; use an https:// or ssh:// address")
    if not _COMMIT.fullmatch(commit):
        raise SourceError(f"{GIT_COMMIT_VARIABLE} is {commit!r}; use the full 40 hexadecimal digits of a commit")
    if shutil.which("git", path=environment.get("PATH")) is None:
        raise MissingToolError(
            f"git is not in the image, and the source is the git repository {url}: use an image with git, or give the "
            "source as an archive"
        )
    git = ["git", "-C", str(target), "-c", "protocol.ext.allow=never", "-c", "advice.detachedHead=false"]
    quiet = {**environment, "GIT_TERMINAL_PROMPT": "0"}
    _call([*git, "init", "--quiet"], quiet)
    try:
        _call([*git, "fetch", "--quiet", "--depth", "1", url, commit], quiet)
    except SourceError:
        # Not every server gives out a single commit: then its branches and tags, where it must be.
        _call([*git, "fetch", "--quiet", url, "+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"], quiet)
    _call([*git, "checkout", "--quiet", "--detach", commit], quiet)


def _call(command: list[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(command, env=dict(environment), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SourceError(
            f"git could not get the source (exit code {done.returncode}): {done.stderr.strip() or done.stdout.strip()}"
        )


def _empty(directory: Path) -> None:
    if directory.is_dir() and not directory.is_symlink():
        shutil.rmtree(directory)
    directory.mkdir(parents=True)
