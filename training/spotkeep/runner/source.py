"""The training source, which is an archive in the channel `source`, or a commit of a git repository.

The launcher pins both. So the job unpacks the launched source, even if S3 or a branch has changed since.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO

from spotkeep.errors import MissingToolError, SourceError
from spotkeep_fleet.training_spec import JobSource

from .layout import JobLayout
from .source_archive import ARCHIVES, unpack

_READ_BYTES = 2**20
_GIT_URL = re.compile(r"(https?|ssh|git|file)://\S+|[\w.-]+@[\w.-]+:\S+")
_PASSWORD = re.compile(r"(?<=://)[^/@\s]+@")
"""The user and the password that an address may have before its host."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SUBMODULE = "160000"
_ALL_BRANCHES_AND_TAGS = ("+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*")
_WHOLE_HISTORY = str(2**31 - 1)
"""The `--depth` of the whole history. Source: https://git-scm.com/docs/shallow"""
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""Source: https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md"""
_BEGINNING_BYTES = 2**14
_MAX_NAMED = 3
_MOST_WORDS_OF_GIT = 500
_OF_ANOTHER_REPOSITORY = frozenset(
    {"GIT_COMMON_DIR", "GIT_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_WORK_TREE"}
)
"""Variables that a hook of git has. Source: https://git-scm.com/docs/git-rev-parse (--local-env-vars)"""


def prepare_source(source: JobSource | None, *, layout: JobLayout, environment: Mapping[str, str]) -> Path | None:
    """Put the source where the command will run.

    Args:
        source: The spec's, or None to unpack the archive in the channel `source` as it is.
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
        archive: The open archive, at any position. It is read from the beginning to the end.
        expected: Its SHA-256, hexadecimal. None where no launcher made the job, so its source is not pinned.
        name: The name of the archive.

    Raises:
        SourceError: If it is another one. Names both.
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


def check_out(url: str, commit: str, target: Path, environment: Mapping[str, str]) -> None:
    """Check a commit out with its submodules, as `git clone --recurse-submodules` does.

    A submodule may be private, or no longer there, and a script may not need it. The job goes on without it, and names
    it on standard error.

    Args:
        url: The repository's address.
        commit: 40 hexadecimal digits.
        target: An empty directory.
        environment: git's variables. The credentials are git's own.

    Raises:
        SourceError: If the commit cannot be used.
        MissingToolError: If there is no git.
    """
    if not _GIT_URL.fullmatch(url):
        raise SourceError(f"the source's git is {url!r}; use an https:// or ssh:// address")
    if not _COMMIT.fullmatch(commit):
        raise SourceError(f"the source's commit is {commit!r}; use the full 40 hexadecimal digits of a commit")
    if shutil.which("git", path=environment.get("PATH")) is None:
        raise MissingToolError(
            f"git is not in the image, and the source is the git repository {url}: use an image with git, or give the "
            "source as an archive"
        )
    kept = {name: value for name, value in environment.items() if name not in _OF_ANOTHER_REPOSITORY}
    quiet = {**kept, "GIT_TERMINAL_PROMPT": "0"}
    _git(target, quiet, "init", "--quiet")
    # A submodule's address may be relative to that of `origin`, and Git LFS fetches from there.
    _git(target, quiet, "remote", "add", "origin", url)
    try:
        _git(target, quiet, "fetch", "--quiet", "--depth", "1", "origin", commit)
    except SourceError:
        # Not every server gives out a single commit: then its branches and tags, where it must be.
        _git(target, quiet, "fetch", "--quiet", "origin", *_ALL_BRANCHES_AND_TAGS)
    _git(target, quiet, "checkout", "--quiet", "--detach", commit)
    for problem in _left_behind(target, PurePosixPath(), quiet):
        sys.stderr.write(f"spotkeep: {problem}\n")
    sys.stderr.flush()


def _left_behind(top: Path, folder: PurePosixPath, environment: Mapping[str, str]) -> Iterator[str]:
    """Fetch the submodules of a repository, and theirs. Give a sentence for each thing that is not there."""
    here = top / folder
    entries = [entry.partition("\t") for entry in _git(here, environment, "ls-files", "-z", "--stage").split("\0")]
    modes = {name: mode for mode, _, name in entries if name}
    if pointers := list(_lfs_pointers(here, modes)):
        shown = ", ".join(str(folder / name) for name in pointers[:_MAX_NAMED])
        more = f" and {len(pointers) - _MAX_NAMED} more" if len(pointers) > _MAX_NAMED else ""
        yield (
            f"{shown}{more}: a pointer of Git LFS without its content. Use an image in which git-lfs is set "
            "up (git lfs install --system), or give the source as an archive"
        )
    for name in (name for name, mode in modes.items() if mode.startswith(_SUBMODULE)):
        if problem := _fetch_submodule(here, name, environment):
            yield (
                f"the submodule {folder / name} stays behind, and the script starts without it: {problem}. If the "
                "script needs it, give the job access to it, or give the source as an archive"
            )
        else:
            yield from _left_behind(top, folder / name, environment)


def _fetch_submodule(repository: Path, name: str, environment: Mapping[str, str]) -> SourceError | None:
    """Fetch a submodule. Return why it cannot be had."""
    literally = {**environment, "GIT_LITERAL_PATHSPECS": "1"}
    update = ("submodule", "--quiet", "update", "--init")
    with suppress(SourceError):
        _git(repository, literally, *update, "--depth", "1", "--", name)
        if (repository / name / ".git").exists():
            return None
    try:
        if (repository / name / ".git").exists():
            # As above. So far only the newest commit of one branch was fetched.
            whole = ("fetch", "--quiet", "--depth", _WHOLE_HISTORY, "origin", *_ALL_BRANCHES_AND_TAGS)
            _git(repository / name, environment, *whole)
        _git(repository, literally, *update, "--", name)
    except SourceError as error:
        return error
    return None if (repository / name / ".git").exists() else SourceError("its update in .gitmodules is none")


def _lfs_pointers(repository: Path, names: Iterable[str]) -> Iterator[str]:
    rules = [name for name in names if PurePosixPath(name).name == ".gitattributes"]
    if any(b"filter=lfs" in _beginning(repository / name) for name in rules):
        yield from (name for name in names if _beginning(repository / name).startswith(_LFS_POINTER))


def _beginning(path: Path) -> bytes:
    """Return the beginning of a file. Nothing of a submodule or a link to nothing."""
    try:
        with path.open("rb") as file:
            return file.read(_BEGINNING_BYTES)
    except OSError:
        return b""


def _git(directory: Path, environment: Mapping[str, str], *words: str) -> str:
    """Return git's answer.

    Raises:
        SourceError: If it fails. Has its own words.
    """
    command = ["git", "-C", str(directory), "-c", "protocol.ext.allow=never", "-c", "advice.detachedHead=false", *words]
    done = subprocess.run(command, env=dict(environment), capture_output=True, check=False)
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).decode(errors="replace").splitlines()
        # git says the same of each try; and it leaves passwords out of most sentences, but not of all.
        said = _PASSWORD.sub("", " ".join(" ".join(dict.fromkeys(lines)).split()))
        said = said[:_MOST_WORDS_OF_GIT].rstrip(".")
        raise SourceError(f"git could not get the source (exit code {done.returncode}): {said}")
    return done.stdout.decode(errors="surrogateescape")
