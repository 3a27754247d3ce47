"""Unpacks a source archive, tar or zip, that may come from anywhere.

The whole archive is checked before anything of it is written. Its members become a plan of names, in which every link
stays inside the directory without passing through another one. Files are then made new, in directories that are made
here. Links come last, so nothing is ever written through one.

Python's own extraction is not used. Its filters are missing before 3.9.17, and have let archives out of their directory
since (CVE-2025-4517, CVE-2025-4330).
"""

from __future__ import annotations

import gzip
import lzma
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Callable

from spotkeep.errors import SourceError

ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")
"""The name endings of an archive."""

_MAX_UNPACKED_BYTES = 20 * 2**30
_MAX_MEMBERS = 500_000
_MAX_NAME_BYTES = 1024
_MAX_DEPTH = 64
_MAX_HEADER_BYTES = 2**20
_MAX_HEADERS_OF_A_MEMBER = 8
_MAX_GLOBAL_HEADER_BYTES = 4096
_MAX_PROBLEMS_SHOWN = 5
_COPY_BYTES = 2**20
_GZIP_MAGIC = b"\x1f\x8b"
_UNREADABLE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    NotImplementedError,  # a compression, or a feature of zip, that Python does not know
    OverflowError,
    RecursionError,
    RuntimeError,  # zipfile's word for an encrypted member
    ValueError,  # of numbers that are none, and of seeks before the beginning
)
"""The exceptions of `tarfile` and `zipfile` for unreadable content. The disk's errors are not among them."""

FILE, DIRECTORY, LINK, HARD_LINK, OTHER = "file", "directory", "link", "hard link", "other"


@dataclass(frozen=True)
class Member:
    """The archive's entry for one of its members.

    Attributes:
        name: The name in the archive.
        kind: FILE, DIRECTORY, LINK, HARD_LINK or OTHER.
        size: The size of a file, in bytes.
        executable: True if its owner may execute it.
        linked: The target of a link.
        found_at: The place of its content in the archive, as an offset or as the entry of a zip archive.
    """

    name: str
    kind: str
    size: int = 0
    executable: bool = False
    linked: str = ""
    found_at: Any = None


@dataclass(frozen=True)
class UnpackingPlan:
    """The files, directories and links to write, by clean names relative to the target.

    Each directory comes before its content.
    """

    directories: tuple[str, ...]
    files: dict[str, Member]
    hard_links: dict[str, str]
    links: dict[str, str]


def unpack(archive: IO[bytes], *, name: str, target: Path) -> None:
    """Unpack a tar or zip archive into an empty directory.

    Args:
        archive: The open archive, at any position. It is read from the beginning.
        name: The name of the archive. `.zip` marks a zip archive.
        target: An existing, empty directory.

    Raises:
        SourceError: If it cannot be read, or holds a member outside the directory, or one that is no file, directory or
            link. Then nothing is written. If its content is damaged, the written files are removed.
        OSError: If the disk refuses.
    """
    archive.seek(0)
    try:
        if name.endswith(".zip"):
            with zipfile.ZipFile(archive) as opened_zip:
                _write(
                    plan_unpacking(_zip_members(opened_zip)), target, lambda member: opened_zip.open(member.found_at)
                )
        else:
            compressed = archive.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            archive.seek(0)
            with _BoundedTar.open(fileobj=archive, mode="r:gz" if compressed else "r:") as opened_tar:
                _write(plan_unpacking(_tar_members(opened_tar)), target, lambda member: _content(opened_tar, member))
    except _UNREADABLE as error:
        raise SourceError(f"the source archive {name} cannot be read: {str(error) or type(error).__name__}") from error


def plan_unpacking(members: Iterable[Member]) -> UnpackingPlan:
    """Decide the names and kinds to write for an archive.

    Args:
        members: The archive's members. They are read no further than the limits of an archive allow.

    Raises:
        SourceError: If any member is refused. Names up to five problems.
    """
    kept: dict[str, Member] = {}
    directories: dict[str, None] = {}
    problems: list[str] = []
    size = 0
    for count, member in enumerate(members, start=1):
        size += member.size
        if count + len(directories) > _MAX_MEMBERS or size > _MAX_UNPACKED_BYTES:
            problems.append(
                f"it unpacks to more than {_MAX_UNPACKED_BYTES:,} bytes"
                if size > _MAX_UNPACKED_BYTES
                else f"it has more than {_MAX_MEMBERS:,} members"
            )
            break
        parts = _parts(member.name)
        if parts is None:
            problems.append(f"{member.name!r} lies outside the archive, or is no name")
            continue
        if member.kind == OTHER:
            problems.append(f"{member.name!r} is a link or a device that cannot be unpacked")
        for depth in range(1, len(parts)):
            directories["/".join(parts[:depth])] = None
        clean = "/".join(parts)
        if member.kind == DIRECTORY:
            directories[clean] = None
        elif clean:
            earlier = kept.get(clean)
            if earlier is not None and earlier.kind != member.kind:
                problems.append(f"{member.name!r} is there twice, as a {earlier.kind} and as a {member.kind}")
            kept[clean] = member  # of two files of one name the last one counts, as tar has it
        else:
            problems.append(f"{member.name!r} is no name for a {member.kind}")
    directories.pop("", None)
    problems += [f"{name!r} is a {kept[name].kind}, and a directory as well" for name in directories if name in kept]
    files = {name: member for name, member in kept.items() if member.kind == FILE}
    links = {name: member.linked for name, member in kept.items() if member.kind == LINK}
    problems += [
        f"{name!r} is a link to {linked!r}, outside the archive or through another link"
        for name, linked in links.items()
        if not _stays_inside(name, linked, links)
    ]
    hard_links = {}
    for name, member in kept.items():
        if member.kind == HARD_LINK:
            linked = "/".join(_parts(member.linked) or ())
            hard_links[name] = linked
            if linked not in files:
                problems.append(f"{name!r} is a hard link to {member.linked!r}, which is no file of the archive")
    _refuse(problems)
    return UnpackingPlan(tuple(sorted(directories)), files, hard_links, links)


def _parts(name: str) -> list[str] | None:
    """Give the parts of a relative name. None of one that leads outside, or that no file may have."""
    slashed = name.replace("\\", "/")
    if not name or slashed.startswith("/") or "\0" in name or len(os.fsencode(name)) > _MAX_NAME_BYTES:
        return None
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return None if ".." in slashed.split("/") or len(parts) > _MAX_DEPTH else parts


def _stays_inside(name: str, linked: str, links: dict[str, str]) -> bool:
    """Tell if a link names a place inside, with no other link on the way. Behind another, `..` is somewhere else."""
    parts = linked.split("/")
    if not linked or linked.startswith("/") or "\0" in linked or len(parts) > 2 * _MAX_DEPTH:
        return False
    place = name.split("/")[:-1]
    for part in parts:
        if "/".join(place) in links:
            return False
        if part == "..":
            if not place:
                return False
            place.pop()
        elif part not in ("", "."):
            place.append(part)
    return True


def _refuse(problems: list[str]) -> None:
    if problems:
        shown = problems[:_MAX_PROBLEMS_SHOWN]
        if len(problems) > len(shown):
            shown.append(f"and {len(problems) - len(shown)} more")
        raise SourceError(
            "the source archive is refused, nothing was unpacked:\n" + "\n".join(f"  - {problem}" for problem in shown)
        )


def _write(
    planned: UnpackingPlan, target: Path, content_of: Callable[[Member], AbstractContextManager[IO[bytes]]]
) -> None:
    made: list[Path] = []
    try:
        for name in planned.directories:
            path = target / name
            path.mkdir(mode=0o755)
            made.append(path)
        for name, member in planned.files.items():
            path = target / name
            # New: whatever were there, a link too, would be refused.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(path, flags, 0o755 if member.executable else 0o644)
            made.append(path)
            with os.fdopen(descriptor, "wb") as file, content_of(member) as content:
                _copy(content, file, size=member.size, name=member.name)
        for name, linked in planned.hard_links.items():
            os.link(target / linked, target / name)
            made.append(target / name)
        for name, linked in planned.links.items():
            (target / name).symlink_to(linked)
            made.append(target / name)
    except BaseException:
        for path in reversed(made):
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink()
        raise


def _copy(content: IO[bytes], file: IO[bytes], *, size: int, name: str) -> None:
    while size:
        piece = content.read(min(size, _COPY_BYTES))
        if not piece:
            raise EOFError(f"{name!r} is cut short, {size:,} bytes are missing")
        file.write(piece)
        size -= len(piece)


class _BoundedMember(tarfile.TarInfo):
    """A member with headers of a bounded number and size. `tarfile` reads long names and PAX records whole."""

    _HEADERS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, *tarfile.GNU_TYPES[:2])

    def _proc_member(self, archive: _BoundedTar) -> Any:
        if self.size < 0:
            raise tarfile.ReadError(f"a size of {self.size:,} bytes")
        if self.type == tarfile.GNUTYPE_SPARSE:
            self._refuse_sparse()
        if self.type not in self._HEADERS:
            archive.headers = 0
            return super()._proc_member(archive)  # type: ignore[misc]
        archive.headers += 1
        archive.global_bytes += self.size if self.type == tarfile.XGLTYPE else 0
        if self.size > _MAX_HEADER_BYTES or archive.global_bytes > _MAX_GLOBAL_HEADER_BYTES:
            most = _MAX_HEADER_BYTES if self.size > _MAX_HEADER_BYTES else _MAX_GLOBAL_HEADER_BYTES
            raise tarfile.ReadError(f"a header of {self.size:,} bytes, more than {most:,}")
        if archive.headers > _MAX_HEADERS_OF_A_MEMBER:
            raise tarfile.ReadError(f"more than {_MAX_HEADERS_OF_A_MEMBER} headers for one member")
        return super()._proc_member(archive)  # type: ignore[misc]

    def _refuse_sparse(self, *_: object) -> None:
        """Few bytes say how a sparse file of any size is read, in lists of any length."""
        raise tarfile.ReadError("a sparse file: pack it without --sparse")

    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _refuse_sparse


class _BoundedTar(tarfile.TarFile):
    """A tar archive that is read member by member.

    Attributes:
        headers: Number of headers since the last member. Reading a header needs one more level of recursion.
        global_bytes: The bytes of the headers that apply to every member.
    """

    tarinfo = _BoundedMember
    members: list[tarfile.TarInfo]
    headers = 0
    global_bytes = 0


def _tar_members(archive: _BoundedTar) -> Iterator[Member]:
    """Give the members one by one. None is kept, few bytes may unpack to very many of them."""
    before = -1
    while True:
        member = archive.next()
        archive.members.clear()
        if member is None:
            _require_end(archive)
            return
        if member.size < 0 or archive.offset <= before:
            raise tarfile.ReadError(f"{member.name!r} has a size of {member.size:,} bytes")
        before = archive.offset
        kind = (
            DIRECTORY if member.isdir()
            else LINK if member.issym()
            else HARD_LINK if member.islnk()
            else FILE if member.isfile()
            else OTHER
        )  # fmt: skip
        yield Member(
            name=member.name,
            kind=kind,
            size=member.size if kind == FILE else 0,
            executable=bool(member.mode & stat.S_IXUSR),
            linked=member.linkname,
            found_at=member.offset_data,
        )


def _require_end(archive: _BoundedTar) -> None:
    """`tarfile` takes a header that is damaged or cut short for the end, and would leave out the rest."""
    file: Any = archive.fileobj
    file.seek(archive.offset)
    block = file.read(tarfile.BLOCKSIZE)
    if block.strip(b"\0"):
        raise tarfile.ReadError(f"the header at byte {archive.offset:,} is damaged, or cut short")


def _content(archive: _BoundedTar, member: Member) -> AbstractContextManager[IO[bytes]]:
    """Give the archive's own file, at the member's content. The caller that opened the archive closes it."""
    file: Any = archive.fileobj
    file.seek(member.found_at)
    return nullcontext(file)


def _zip_members(archive: zipfile.ZipFile) -> Iterator[Member]:
    for entry in archive.infolist():
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise zipfile.BadZipFile(f"{entry.filename!r} is packed by method {entry.compress_type}; use deflate")
        mode = entry.external_attr >> 16
        kind = OTHER if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR) else FILE
        yield Member(
            name=entry.filename,
            kind=DIRECTORY if entry.filename.endswith("/") and kind == FILE else kind,
            size=entry.file_size,
            executable=bool(mode & stat.S_IXUSR),
            found_at=entry,
        )
