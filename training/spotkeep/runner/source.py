"""The training source: an archive in the channel `source`, or a commit of a git repository.

An archive is looked through whole before anything of it is written, and nothing it holds may land outside the
directory it is unpacked to.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import stat
import subprocess
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spotkeep.errors import MissingToolError, SourceError

from .layout import JobLayout

GIT_URL_VARIABLE = "SPOTKEEP_SOURCE_GIT_URL"
GIT_COMMIT_VARIABLE = "SPOTKEEP_SOURCE_GIT_COMMIT"

_MAX_UNPACKED_BYTES = 20 * 2**30
_MAX_MEMBERS = 500_000
_MAX_HEADER_BYTES = 2**20
_MAX_PROBLEMS_TOLD = 5
_ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")
_GIT_URL = re.compile(r"(https?|ssh|git|file)://\S+|[\w.-]+@[\w.-]+:\S+")
_COMMIT = re.compile(r"[0-9a-f]{40}")


class _BoundedMember(tarfile.TarInfo):
    """A member with a header of a bounded size. `tarfile` reads long names and PAX records into memory whole."""

    _HEADERS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, *tarfile.GNU_TYPES[:2])

    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        if self.type in self._HEADERS and self.size > _MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {self.size:,} bytes, more than {_MAX_HEADER_BYTES:,}")
        return super()._proc_member(archive)  # type: ignore[misc]


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
            _empty(layout.source)
            unpack(_find_archive(channel), layout.source)
        else:
            return None
    except OSError as error:
        raise SourceError(f"the source cannot be put into {layout.source}: {error}") from error
    return layout.source


def unpack(archive: Path, target: Path) -> None:
    """Unpack a tar or zip archive into an empty directory.

    Raises:
        SourceError: If it cannot be read, or holds anything that would land outside the directory, or anything that
            is no file, directory or link; then nothing is written.
        OSError: If the disk refuses.
    """
    try:
        if archive.name.endswith(".zip"):
            with zipfile.ZipFile(archive) as opened_zip:
                _unpack_zip(opened_zip, target)
        else:
            with tarfile.open(archive, tarinfo=_BoundedMember) as opened_tar:
                _unpack_tar(opened_tar, target)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zipfile.LargeZipFile) as error:
        raise SourceError(f"the source archive {archive.name} cannot be read: {error}") from error


def _find_archive(channel: Path) -> Path:
    found = sorted(path for path in channel.rglob("*") if path.is_file() and path.name.endswith(_ARCHIVES))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise SourceError(
            f"the channel `source` must hold one archive ({', '.join(_ARCHIVES)}), found {names}; "
            "name the archive itself in the job's `source`"
        )
    return found[0]


def _unpack_tar(archive: tarfile.TarFile, target: Path) -> None:
    members, size = [], 0
    for member in archive:  # no further than it may go: few bytes may unpack to members without end
        members.append(member)
        size += member.size
        if len(members) > _MAX_MEMBERS or size > _MAX_UNPACKED_BYTES:
            break
    links = {posixpath.normpath(member.name) for member in members if member.issym()}
    problems = [problem for member in members for problem in _tar_problems(member, links)]
    _refuse(problems, count=len(members), size=size)
    for member in members:
        member.mode = (member.mode & 0o755) | (0o700 if member.isdir() else 0o600)
        # As root, tarfile would give the files to whoever packed them.
        member.uid, member.gid = os.getuid(), os.getgid()
        member.uname = member.gname = ""
    if hasattr(tarfile, "data_filter"):
        archive.extractall(target, members=members, filter="data")
    else:
        archive.extractall(target, members=members)  # noqa: S202 - every member was checked above


def _tar_problems(member: tarfile.TarInfo, links: set[str]) -> list[str]:
    name = member.name
    problems = _name_problems(name, links)
    if member.issym():
        destination = posixpath.normpath(posixpath.join(posixpath.dirname(name), member.linkname))
        if member.linkname.startswith("/") or _escapes(destination):
            problems.append(f"{name!r} is a link to {member.linkname!r}, outside the archive")
    elif member.islnk():
        if _name_problems(member.linkname, links):
            problems.append(f"{name!r} is a hard link to {member.linkname!r}, outside the archive")
    elif not (member.isfile() or member.isdir()):
        problems.append(f"{name!r} is a device or a pipe")
    return problems


def _unpack_zip(archive: zipfile.ZipFile, target: Path) -> None:
    members = archive.infolist()
    problems = [problem for member in members for problem in _name_problems(member.filename, set())]
    problems += [
        f"{member.filename!r} is a link or a device"
        for member in members
        if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR)
    ]
    _refuse(problems, count=len(members), size=sum(member.file_size for member in members))
    for member in members:
        try:
            written = Path(archive.extract(member, target))
        except RuntimeError as error:
            raise SourceError(f"the source archive cannot be read: {error}") from error
        if not member.is_dir() and (member.external_attr >> 16) & stat.S_IXUSR:
            written.chmod(0o755)


def _name_problems(name: str, links: set[str]) -> list[str]:
    clean = posixpath.normpath(name)
    if name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/") or _escapes(clean) or "\0" in name:
        return [f"{name!r} lies outside the archive"]
    parents = clean.split("/")[:-1]
    if any("/".join(parents[: depth + 1]) in links for depth in range(len(parents))):
        return [f"{name!r} lies behind a link"]
    return []


def _escapes(path: str) -> bool:
    return path == ".." or path.startswith(("../", "/"))


def _refuse(problems: list[str], *, count: int, size: int) -> None:
    if count > _MAX_MEMBERS:
        problems.append(f"it has more than {_MAX_MEMBERS:,} members")
    if size > _MAX_UNPACKED_BYTES:
        problems.append(f"it unpacks to more than {_MAX_UNPACKED_BYTES:,} bytes")
    if problems:
        told = problems[:_MAX_PROBLEMS_TOLD]
        if len(problems) > len(told):
            told.append(f"and {len(problems) - len(told)} more")
        raise SourceError(
            "the source archive is refused, nothing was unpacked:\n" + "\n".join(f"  - {problem}" for problem in told)
        )


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
