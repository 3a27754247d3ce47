"""Packs a local source directory into the archive that a job unpacks.

The same files always give the same bytes. The archive's name is the hash of its content. So an unchanged directory is
uploaded only once, for any number of launches. `source_files` selects the files. Files that are left out, or may be
secret, are a warning.

The directory may be a stranger's work. A link is packed as the file that it names, if that file is in the source. A
link to any other file would take the user's own files along. git reads the settings of a repository, and starts no
program that they name.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import shlex
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from spotkeep_cli.bounded_reading import read_file
from spotkeep_cli.launching.source_files import MAX_SOURCE_FILES, LocalSourceError, list_files
from spotkeep_fleet.run_prefixes import source_prefix
from spotkeep_jobs.errors import Problem

if TYPE_CHECKING:
    from spotkeep_cli.launching.source_files import ListedFiles

MAX_SOURCE_BYTES = 100 * 1024 * 1024
"""The most bytes of the files before packing. Code is small. Larger files are data and belong in a channel."""

MAX_LINKS_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class SourceArchive:
    """A packed source directory (or a ready archive).

    Attributes:
        origin: The directory or file it was made from.
        content: The archive's bytes.
        suffix: `.tar.gz` or `.zip`.
        files: The files inside, relative and sorted. Empty for a ready archive.
        warnings: Warnings about it for the user.
    """

    origin: Path
    content: bytes
    suffix: str
    files: tuple[PurePosixPath, ...]
    warnings: tuple[Problem, ...] = ()

    @property
    def sha256(self) -> str:
        """The hash of the content. It names the object in S3."""
        return hashlib.sha256(self.content).hexdigest()

    def key(self, *, run: str, team: str | None = None) -> str:
        """Return the object's key in the checkpoint bucket.

        Args:
            run: The run it is for.
            team: The run's team, where that is isolated.
        """
        return f"{source_prefix(run, team=team)}{self.sha256}{self.suffix}"


def pack_source(origin: Path) -> SourceArchive:
    """Pack a directory, or take a `.tar.gz` or `.zip` as it is.

    Raises:
        LocalSourceError: There is nothing to pack, it is not a directory or archive, or it is too large. The error
            names the excess.
    """
    if origin.is_file():
        return _ready_archive(origin)
    if not origin.is_dir():
        raise LocalSourceError(
            f"there is no directory {origin}",
            hint="`source` is relative to the job file; `source: .` packs the directory the job file is in",
        )
    listing = list_files(origin)
    files = sorted(path for path in listing.names if _is_packable(origin / path))
    _require_inside(origin, files)
    if not files:
        hint = "git-ignored files and caches are left out; is the training script committed or at least not ignored?"
        if listing.missing_submodules:
            hint = f"a submodule is not checked out: {check_submodules_out(origin)}"
        raise LocalSourceError(f"{origin} has no files to pack", hint=hint)
    _check_size(origin, files)
    content, heads = _tar_gz(origin, files)
    links = sorted(path for path in listing.names.difference(files) if (origin / path).is_symlink())
    warnings = tuple(source_warnings(origin, listing, heads=heads, links=links))
    return SourceArchive(origin=origin, content=content, suffix=".tar.gz", files=tuple(files), warnings=warnings)


def _require_inside(directory: Path, files: list[PurePosixPath]) -> None:
    """Refuse links, and files behind links, to places outside the source.

    Raises:
        LocalSourceError: There are some. The error names up to three.
    """
    root = Path(os.path.realpath(directory))
    real = {path: Path(os.path.realpath(root / path)) for path in files}
    own = {root / path for path in files if real[path] == root / path}
    others = [path for path in files if real[path] not in own]
    if not others:
        return
    shown = "; ".join(f"{str(path)!r} leads to {str(real[path])!r}" for path in others[:MAX_LINKS_NAMED])
    more = f" (and {len(others) - MAX_LINKS_NAMED} more)" if len(others) > MAX_LINKS_NAMED else ""
    raise LocalSourceError(
        f"{directory} would take files along that are not its own: {shown}{more}",
        hint="if they are meant, put copies of them in the links' place; otherwise remove the links, or name them in "
        ".gitignore",
    )


def _is_packable(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)  # a link is packed as the file it points to
    except OSError:
        return False


def _check_size(origin: Path, files: list[PurePosixPath]) -> None:
    sizes = {path: (origin / path).stat().st_size for path in files}
    total = sum(sizes.values())
    if total <= MAX_SOURCE_BYTES and len(files) <= MAX_SOURCE_FILES:
        return
    largest = sorted(sizes, key=lambda path: sizes[path], reverse=True)[:3]
    named = ", ".join(f"{path} ({sizes[path] / 1e6:,.1f} MB)" for path in largest)
    raise LocalSourceError(
        f"{origin} has {len(files):,} files of {total / 1e6:,.1f} MB, more than a source may have "
        f"({MAX_SOURCE_FILES:,} files, {MAX_SOURCE_BYTES / 1e6:,.1f} MB); the largest: {named}",
        hint="data belongs in a channel (`channels:` in the job file); leave files out with .gitignore, or with "
        "ignore_patterns where a trainer of the SageMaker SDK names the source",
    )


def _tar_gz(origin: Path, files: list[PurePosixPath]) -> tuple[bytes, dict[PurePosixPath, bytes]]:
    """Return the archive, and the first bytes of each file in it."""
    packed = io.BytesIO()
    heads = dict[PurePosixPath, bytes]()
    # No name, no time and one fixed owner in the headers: the bytes depend on the files' names and content alone.
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0, compresslevel=6) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in files:
            try:
                content = read_file(origin / path, most_bytes=MAX_SOURCE_BYTES)
            except OSError as error:
                hint = "make it readable, or leave it out: remove it, or name it in .gitignore"
                raise LocalSourceError(
                    f"{origin / path} cannot be read: {error.strerror or error}", hint=hint
                ) from error
            heads[path] = content[:HEAD_BYTES]
            entry = tarfile.TarInfo(str(path))
            entry.size = len(content)
            entry.mode = 0o755 if (origin / path).stat().st_mode & stat.S_IXUSR else 0o644
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue(), heads


def _ready_archive(origin: Path) -> SourceArchive:
    for suffix in (".tar.gz", ".tgz", ".zip"):
        if origin.name.endswith(suffix):
            if origin.stat().st_size > MAX_SOURCE_BYTES:
                raise LocalSourceError(
                    f"{origin} is {origin.stat().st_size / 1e6:,.1f} MB, more than a source may have "
                    f"({MAX_SOURCE_BYTES / 1e6:,.1f} MB)",
                    hint="upload it yourself and give its address: source: s3://bucket/key.tar.gz",
                )
            return SourceArchive(
                origin=origin, content=read_file(origin, most_bytes=MAX_SOURCE_BYTES), suffix=suffix, files=()
            )
    raise LocalSourceError(
        f"{origin} is neither a directory nor a .tar.gz or .zip archive",
        hint="give the directory the training script is in: source: .",
    )


MAX_NAMED = 3
HEAD_BYTES: Final = 64
"""The beginning of a file that shows its kind."""

_LFS_POINTER: Final = b"version https://git-lfs.github.com/spec/"
"""Source: https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md"""
_PRIVATE_KEY: Final = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_OF_SECRETS: Final = re.compile(
    r"\.env(\.(?!example$|sample$|template$|dist$|defaults$).+)?|\.netrc|\.pypirc|\.git-credentials|credentials\.json"
    r"|kaggle\.json|id_(rsa|dsa|ecdsa|ed25519)"
)
_FOLDERS_OF_SECRETS: Final = frozenset({".aws", ".azure", ".gnupg", ".kube", ".ssh"})


def source_warnings(
    directory: Path, listing: ListedFiles, *, heads: Mapping[PurePosixPath, bytes], links: Sequence[PurePosixPath]
) -> Iterator[Problem]:
    """Yield the warnings about a packed source.

    Args:
        directory: The source.
        listing: Its files.
        heads: The first HEAD_BYTES of each file that is packed.
        links: Links that are not packed, because they lead to directories or to nothing.
    """
    where = shlex.quote(str(directory))
    if listing.missing_submodules:
        yield Problem(
            field="source",
            found=named(listing.missing_submodules),
            problem=f"stays behind: {_counted(listing.missing_submodules, 'submodule')} not checked out",
            fix=f"{check_submodules_out(directory)}; or leave it so, if the job needs none of it",
        )
    if listing.worktrees:
        yield Problem(
            field="source",
            found=named(listing.worktrees),
            problem="stays behind: another worktree of the same repository",
            fix="name it in .gitignore, or move it elsewhere: git worktree move",
        )
    if links:
        yield Problem(
            field="source",
            found=named(links),
            problem=f"stays behind: {_counted(links, 'link')} to a directory or to nothing",
            fix="put a copy in the link's place if the job needs it; data belongs in a channel",
        )
    pointers = sorted(path for path, head in heads.items() if head.startswith(_LFS_POINTER))
    if pointers:
        yield Problem(
            field="source",
            found=named(pointers),
            problem=f"{_counted(pointers, 'file')} in Git LFS and not fetched: the job gets a pointer of three lines",
            fix=f"git -C {where} lfs pull; or give large files as a channel",
        )
    yield from _hardly_meant(directory, listing, heads)
    for remark in listing.remarks:
        fix = "mend it if the job needs those files"
        yield Problem(field="source", found=str(directory), problem=f"not all of it could be read: {remark}", fix=fix)


def check_submodules_out(directory: Path) -> str:
    """Return the command for it, as a shell reads it."""
    return f"git -C {shlex.quote(str(directory))} submodule update --init --recursive"


def named(paths: Sequence[PurePosixPath]) -> str:
    """Return the first three of the paths, and the number of the others."""
    shown = ", ".join(map(str, paths[:MAX_NAMED]))
    return f"{shown} (and {len(paths) - MAX_NAMED} more)" if len(paths) > MAX_NAMED else shown


def _hardly_meant(directory: Path, listing: ListedFiles, heads: Mapping[PurePosixPath, bytes]) -> Iterator[Problem]:
    if listing.checkout is None and PurePosixPath(".gitignore") in heads:
        yield Problem(
            field="source",
            found=".gitignore",
            problem=f"does not count: {directory} is no git checkout, and all that is in it is packed",
            fix=f"to let it count: git init {shlex.quote(str(directory))}; no commit is needed",
        )
    secret = sorted(_secret(path for path in heads if path not in listing.tracked) | _keys(heads, listing.tracked))
    if secret:
        here = "name it in .gitignore" if listing.checkout else "move it out of the directory"
        yield Problem(
            field="source",
            found=named(secret),
            problem="is packed, and may be a secret: people who may read the deployment's bucket can read it",
            fix=f"{here}, if the job does not need it",
        )


def _secret(paths: Iterable[PurePosixPath]) -> set[PurePosixPath]:
    return {
        path for path in paths if _OF_SECRETS.fullmatch(path.name) or not _FOLDERS_OF_SECRETS.isdisjoint(path.parts)
    }


def _keys(heads: Mapping[PurePosixPath, bytes], tracked: frozenset[PurePosixPath]) -> set[PurePosixPath]:
    return {path for path, head in heads.items() if path not in tracked and _PRIVATE_KEY.match(head)}


def _counted(paths: Sequence[PurePosixPath], what: str) -> str:
    return f"a {what} that is" if len(paths) == 1 else f"{len(paths)} {what}s that are"
