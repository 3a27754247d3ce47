"""The training source, which is an archive in the channel `source`, or a commit of a git repository.

The launcher pins both. So the job unpacks the launched source, even if S3 or a branch has changed since.

The token of a private repository is in the environment of git alone. A credential helper on git's command line reads it
there. The helper answers for the scheme and the host of the repository, so no other host gets the token. Its submodules
on that host do. Nothing of it is in an argument, in `.git/config` or in a message.

Source: https://git-scm.com/docs/gitcredentials
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import urlsplit

from spotkeep.errors import MissingToolError, SourceError
from spotkeep_fleet.secret_references import without_values
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


_USER_VARIABLE, _TOKEN_VARIABLE = "SPOTKEEP_GIT_USER", "SPOTKEEP_GIT_TOKEN"
_HELPER = (
    f"!f() {{ test \"$1\" = get && printf 'username=%s\\npassword=%s\\n' "
    f'"${_USER_VARIABLE}" "${_TOKEN_VARIABLE}"; }}; f'
)
"""A credential helper that a shell runs. It answers from git's environment."""
_ANY_USER = "x-access-token"
"""The user of a token that names none. GitHub, GitLab and Azure Repos take any user with a token."""


def prepare_source(
    source: JobSource | None, *, layout: JobLayout, environment: Mapping[str, str], token: str | None = None
) -> Path | None:
    """Put the source where the command will run.

    Args:
        source: The spec's, or None to unpack the archive in the channel `source` as it is.
        layout: The places of the channel and of the command.
        environment: git's variables.
        token: The token for a private repository, or `<user>:<token>`. None without one.

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
            check_out(source.git_url, source.git_commit or "", layout.source, environment, token=token)
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


@dataclass(frozen=True)
class _Git:
    """The command git with its variables and its settings.

    Attributes:
        environment: The variables.
        settings: Its options `-c`.
        token: The token of the repository, which no message shows. None for none.
    """

    environment: Mapping[str, str]
    settings: tuple[str, ...] = ()
    token: str | None = None

    def with_variable(self, name: str, value: str) -> _Git:
        """Return it with one more variable."""
        return replace(self, environment={**self.environment, name: value})

    def run(self, directory: Path, *words: str) -> str:
        """Return git's answer.

        Raises:
            SourceError: If it fails. Has its own words.
        """
        safe = ["-c", "protocol.ext.allow=never", "-c", "advice.detachedHead=false", *self.settings]
        command = ["git", "-C", str(directory), *safe, *words]
        done = subprocess.run(command, env=dict(self.environment), capture_output=True, check=False)
        if done.returncode:
            lines = (done.stderr.strip() or done.stdout.strip()).decode(errors="replace").splitlines()
            # git says the same of each try; and it leaves passwords out of most sentences, but not of all.
            said = _PASSWORD.sub("", " ".join(" ".join(dict.fromkeys(lines)).split()))
            said = without_values(said, [] if self.token is None else [self.token])
            said = said[:_MOST_WORDS_OF_GIT].rstrip(".")
            raise SourceError(f"git could not get the source (exit code {done.returncode}): {said}")
        return done.stdout.decode(errors="surrogateescape")


def _git_with(token: str | None, *, url: str, environment: Mapping[str, str]) -> _Git:
    """Return git for a repository.

    Raises:
        SourceError: The token cannot be given to the repository's address.
    """
    kept = {name: value for name, value in environment.items() if name not in _OF_ANOTHER_REPOSITORY}
    quiet = {**kept, "GIT_TERMINAL_PROMPT": "0"}
    if token is None:
        return _Git(quiet)
    address = urlsplit(url)
    if address.scheme not in ("http", "https"):
        raise SourceError(f"the source's git is {url!r}, and a token goes to an https:// address alone")
    user, colon, password = token.strip().partition(":")
    if not colon:
        user, password = _ANY_USER, user
    if not password or any(character.isspace() for character in token.strip()):
        raise SourceError("the secret of the source holds no token of one word, or <user>:<token>; store one there")
    helper = f"credential.{address.scheme}://{address.netloc}.helper"
    # The empty one makes git forget helpers of the image, which could keep the token.
    return _Git(
        {**quiet, _USER_VARIABLE: user, _TOKEN_VARIABLE: password},
        settings=("-c", f"{helper}=", "-c", f"{helper}={_HELPER}"),
        token=password,
    )


def check_out(url: str, commit: str, target: Path, environment: Mapping[str, str], *, token: str | None = None) -> None:
    """Check a commit out with its submodules, as `git clone --recurse-submodules` does.

    A submodule may be private, or no longer there, and a script may not need it. The job goes on without it, and names
    it on standard error.

    Args:
        url: The repository's address.
        commit: 40 hexadecimal digits.
        target: An empty directory.
        environment: git's variables. Without a token the credentials are git's own.
        token: The token for the repository, or `<user>:<token>`.

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
    git = _git_with(token, url=url, environment=environment)
    git.run(target, "init", "--quiet")
    # A submodule's address may be relative to that of `origin`, and Git LFS fetches from there.
    git.run(target, "remote", "add", "origin", url)
    try:
        git.run(target, "fetch", "--quiet", "--depth", "1", "origin", commit)
    except SourceError:
        # Not every server gives out a single commit: then its branches and tags, where it must be.
        git.run(target, "fetch", "--quiet", "origin", *_ALL_BRANCHES_AND_TAGS)
    git.run(target, "checkout", "--quiet", "--detach", commit)
    for problem in _left_behind(target, PurePosixPath(), git):
        sys.stderr.write(f"spotkeep: {problem}\n")
    sys.stderr.flush()


def _left_behind(top: Path, folder: PurePosixPath, git: _Git) -> Iterator[str]:
    """Fetch the submodules of a repository, and theirs. Give a sentence for each thing that is not there."""
    here = top / folder
    entries = [entry.partition("\t") for entry in git.run(here, "ls-files", "-z", "--stage").split("\0")]
    modes = {name: mode for mode, _, name in entries if name}
    if pointers := list(_lfs_pointers(here, modes)):
        shown = ", ".join(str(folder / name) for name in pointers[:_MAX_NAMED])
        more = f" and {len(pointers) - _MAX_NAMED} more" if len(pointers) > _MAX_NAMED else ""
        yield (
            f"{shown}{more}: a pointer of Git LFS without its content. Use an image in which git-lfs is set "
            "up (git lfs install --system), or give the source as an archive"
        )
    for name in (name for name, mode in modes.items() if mode.startswith(_SUBMODULE)):
        if problem := _fetch_submodule(here, name, git):
            yield (
                f"the submodule {folder / name} stays behind, and the script starts without it: {problem}. If the "
                "script needs it, give the job access to it, or give the source as an archive"
            )
        else:
            yield from _left_behind(top, folder / name, git)


def _fetch_submodule(repository: Path, name: str, git: _Git) -> SourceError | None:
    """Fetch a submodule. Return why it cannot be had."""
    literally = git.with_variable("GIT_LITERAL_PATHSPECS", "1")
    update = ("submodule", "--quiet", "update", "--init")
    with suppress(SourceError):
        literally.run(repository, *update, "--depth", "1", "--", name)
        if (repository / name / ".git").exists():
            return None
    try:
        if (repository / name / ".git").exists():
            # As above. So far only the newest commit of one branch was fetched.
            whole = ("fetch", "--quiet", "--depth", _WHOLE_HISTORY, "origin", *_ALL_BRANCHES_AND_TAGS)
            git.run(repository / name, *whole)
        literally.run(repository, *update, "--", name)
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
