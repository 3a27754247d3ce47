"""What a user should know of a packed source: what stays behind, and what goes along and is hardly meant to."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.errors import Problem

if TYPE_CHECKING:
    from spotkeep_cli.launching.source_files import ListedFiles

MAX_NAMED = 3
HEAD_BYTES: Final = 64
"""How much of a file's beginning says what it is."""

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
    """Yield what a user should know.

    Args:
        directory: The source.
        listing: What it has.
        heads: The first HEAD_BYTES of each file that is packed.
        links: Those that are not packed: to directories, or to nothing.
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
            fix=f"git -C {where} lfs pull; or give what is large as a channel",
        )
    yield from _hardly_meant(directory, listing, heads)
    for remark in listing.remarks:
        fix = "mend it if the job needs what could not be read"
        yield Problem(field="source", found=str(directory), problem=f"not all of it could be read: {remark}", fix=fix)


def check_submodules_out(directory: Path) -> str:
    """Return the command for it, as a shell reads it."""
    return f"git -C {shlex.quote(str(directory))} submodule update --init --recursive"


def named(paths: Sequence[PurePosixPath]) -> str:
    """Return the first three of the paths, and how many more there are."""
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
