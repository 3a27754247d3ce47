"""Source archives of strangers, tar and zip: nothing is ever written outside the target, or refused halfway.

The runner unpacks on SageMaker and on EC2 alike; there is no other unpacker of what strangers write. (The agent's own
bundle is unpacked after its hash has been checked against the one in user data.)
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import stat
import struct
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.errors import SourceError
from spotkeep.runner.source_archive import unpack

from .bounds import bounded, fed_by_strangers
from .mutations import CUTS, FLIPS, damaged

_LONG = "d" * 120
_MOST_BYTES = 2**20
"""An archive here brings a few hundred bytes; none may become more than this on the disk."""

_PARTS = st.sampled_from(["a", "b", "c", "..", ".", "", "a b", "\\..\\", "\u00e9", "\udcff", "x" * 256, _LONG])
_NAMES = st.one_of(
    st.sampled_from(
        ["a", "b", "a/b", "a/b/c", "../a", "/etc/passwd", "a/../../b", "a/..", ".", "", "a/", "a//b", "a/./b"]
    ),
    st.lists(_PARTS, min_size=1, max_size=6).map("/".join),
    st.sampled_from(["a/" * 70 + "b", "\0", "a\0b", "..\\a", "C:\\a", "n" * 2000]),
)
_KINDS = st.sampled_from([
    *(tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE) * 3,
    *(tarfile.AREGTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.CONTTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.GNUTYPE_SPARSE),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, b"Z", b"\xff"),
])  # fmt: skip
_SIZES = st.sampled_from([0, 1, 511, 512, 513, 2**33 - 1, 2**40, 2**62, -1, -512, -1024, -(2**40)])
_CONTENTS = st.one_of(
    st.sampled_from([
        b"", b"print()", b"x" * 600, b"\0" * 1024, b"../../evil\0", b"12 path=../evil\n", b"14 size=-1024\n",
        b"19 linkpath=/etc/a\n", b"22 GNU.sparse.map=0,9\n", b"30 GNU.sparse.size=9999999999\n", b"99999999999 a=b\n",
        b"28 GNU.sparse.realsize=1234\n", b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n", b"13 size=1e99\n",
        b"9\n" * 300, b"0 =\n", b"11 path=\xff\n",
    ]),
    st.binary(max_size=40),
)  # fmt: skip
_RECORDS = st.dictionaries(
    st.sampled_from(
        ["path", "linkpath", "size", "mtime", "GNU.sparse.map", "GNU.sparse.name", "hdrcharset", "comment"]
    ),
    st.sampled_from(["../evil", "/evil", "a", "-1", "9" * 30, "0,1,2", "BINARY", "x" * 300]),
    max_size=2,
)


def _tar_member(drawn: tuple[str, bytes, str, bytes, int | None, int, dict[str, str]]) -> bytes:
    name, kind, linked, content, claimed, mode, records = drawn
    member = tarfile.TarInfo(name.replace("\0", "_"))
    member.type, member.linkname, member.mode = kind, linked.replace("\0", "_"), mode
    member.size = len(content) if claimed is None else claimed
    member.pax_headers = records
    how = tarfile.PAX_FORMAT if records else tarfile.GNU_FORMAT
    raw = member.tobuf(how, "utf-8", "surrogateescape")
    return raw + content + bytes(-len(content) % tarfile.BLOCKSIZE)


_TAR_MEMBERS = st.tuples(
    _NAMES,
    _KINDS,
    _NAMES,
    _CONTENTS,
    st.none() | _SIZES,
    st.sampled_from([0o644, 0o755, 0o7777, 0]),
    st.just({}) | _RECORDS,
).map(_tar_member)
_ZIP_MEMBERS = st.tuples(
    _NAMES,
    st.sampled_from([0, 0o644, 0o755, stat.S_IFLNK | 0o777, stat.S_IFIFO, stat.S_IFREG | 0o6777, stat.S_IFDIR]),
    st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2]),
    _CONTENTS,
)


def _zip(members: list[tuple[str, int, int, bytes]]) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        for name, mode, method, content in members:
            entry = zipfile.ZipInfo(name.encode("utf-8", "replace").decode())
            entry.external_attr, entry.compress_type = mode << 16, method
            archive.writestr(entry, content)
    return raw.getvalue()


def _everything(around: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(around):
        yield from (Path(folder, name) for name in (*folders, *names))


@pytest.fixture(scope="module")
def around(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("around")


def _unpack(raw: bytes, *, name: str, around: Path) -> None:
    """Unpack within bounds, and judge everything that is there afterwards."""
    target = around / "folder/source"
    target.mkdir(parents=True)
    try:
        try:
            with bounded():
                unpack(io.BytesIO(raw), name=name, target=target)
        except (SourceError, OSError):  # of the disk: a name that is too long for it
            assert not list(target.iterdir()), "it was refused, and left something behind"
        inside, size = str(target), 0
        for path in _everything(around):
            if path == target or path == target.parent:
                continue
            assert str(path).startswith(inside + "/"), f"{path} is outside"
            found = path.lstat()
            size += found.st_size
            assert stat.S_IFMT(found.st_mode) in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
            if path.is_symlink():
                real = os.path.realpath(path)
                assert real == inside or real.startswith(inside + "/"), f"{path} leads to {real}"
            else:
                assert not found.st_mode & 0o7022, f"{path} has mode {found.st_mode:o}"
        assert size < _MOST_BYTES
    finally:
        shutil.rmtree(target.parent)


@fed_by_strangers(share=0.4)
@given(st.lists(_TAR_MEMBERS, max_size=6), st.booleans(), FLIPS, CUTS)
def test_tar_archives(
    around: Path,
    members: list[bytes],
    packed: bool,
    flips: list[tuple[int, int]],
    cut: int | None,
) -> None:
    raw = b"".join([*members, bytes(2 * tarfile.BLOCKSIZE)])
    if packed:
        raw = gzip.compress(raw, compresslevel=1)
    _unpack(damaged(raw, flips, cut), name="source.tar.gz", around=around)


@fed_by_strangers(share=0.4)
@given(st.lists(_ZIP_MEMBERS, max_size=6), FLIPS, CUTS, st.none() | _SIZES)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_zip_archives(
    around: Path,
    members: list[tuple[str, int, int, bytes]],
    flips: list[tuple[int, int]],
    cut: int | None,
    claimed: int | None,
) -> None:
    raw = bytearray(_zip(members))
    directory = raw.rfind(b"PK\x01\x02")
    if claimed is not None and directory >= 0:
        struct.pack_into("<L", raw, directory + 24, claimed % 2**32)  # the uncompressed size that it claims
    _unpack(damaged(bytes(raw), flips, cut), name="source.zip", around=around)


@fed_by_strangers(share=0.2)
@given(st.binary(max_size=2048), st.sampled_from(["source.zip", "source.tar", "source.tar.gz", "source.tgz"]))
def test_anything(around: Path, raw: bytes, name: str) -> None:
    _unpack(raw, name=name, around=around)
