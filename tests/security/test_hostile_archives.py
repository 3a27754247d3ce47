"""A downloaded training source is an archive that writes outside its directory, or that fills memory or disk.

Who: the author of an archive that a user launches as `source`. On EC2 the runner unpacks it on the run's volume, as the
training's user; in a container of SageMaker as root.
With what: names, links and headers that Python's `tarfile` and `zipfile` follow. The Python of an image may be 3.9
without extraction filters, and filters themselves have had holes (CVE-2025-4517, CVE-2025-4330, CVE-2025-8194).
What they would gain: a file of the image replaced (an interpreter, a library) before the command that a user reviewed.
"""

from __future__ import annotations

import gzip
import io
import lzma
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotkeep.errors import SourceError
from spotkeep.runner.source_archive import unpack

LINK, HARD_LINK, FILE = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.REGTYPE


@pytest.fixture(autouse=True)
def without_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest Python that jobs may have."""
    monkeypatch.delattr(tarfile, "data_filter", raising=False)  # Python has it since 3.11.4


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Path]:
    inside = tmp_path / "around/source"
    inside.mkdir(parents=True)
    yield inside
    assert [path.name for path in inside.parent.iterdir()] == ["source"], "something was written outside"


def tar(*members: tuple[str, bytes, str], content: bytes = b"evil") -> io.BytesIO:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name, kind, linked in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, linked
            member.size = len(content) if kind == FILE else 0
            archive.addfile(member, io.BytesIO(content))
    raw.seek(0)
    return raw


THROUGH_LINKS = {
    "a file that replaces a link": [
        ("d/e", tarfile.DIRTYPE, ""),
        ("d/up", LINK, ".."),
        ("out", LINK, "d/up/../evil"),
        ("out", FILE, ""),
    ],
    "a link that leads through another": [("d/up", LINK, ".."), ("out", LINK, "d/up/../evil")],
    "a link moved by a hard link": [
        ("d/e/link", LINK, "../../ok"),
        ("d/e/f", FILE, ""),
        ("moved", HARD_LINK, "d/e/link"),
        ("moved/evil", FILE, ""),
    ],
    "a hard link to what is behind a link": [("a", LINK, "."), ("b", HARD_LINK, "a/c")],
    "a file below a file": [("a", FILE, ""), ("a/b", FILE, "")],
    "a name that is two things": [("a", FILE, ""), ("a", tarfile.DIRTYPE, "")],
}


@pytest.mark.parametrize("members", THROUGH_LINKS.values(), ids=THROUGH_LINKS.keys())
def test_nothing_is_written_through_a_link(target: Path, members: list[tuple[str, bytes, str]]) -> None:
    with pytest.raises(SourceError, match="nothing was unpacked"):
        unpack(tar(*members), name="source.tar", target=target)
    assert not list(target.iterdir())


def test_a_size_below_zero_is_no_way_back_to_the_beginning(target: Path) -> None:
    """The archive would be read without end, and its sizes would never add up to too much (CVE-2025-8194)."""
    member = tarfile.TarInfo("a")
    member.size = -1024
    raw = member.tobuf(tarfile.GNU_FORMAT) + bytes(10 * 512)
    with pytest.raises(SourceError, match="cannot be read"):
        unpack(io.BytesIO(raw), name="source.tar", target=target)


def test_a_header_for_a_header_is_not_followed_for_ever(target: Path) -> None:
    header = tarfile.TarInfo("h")
    header.type, header.size = tarfile.XHDTYPE, 0
    with pytest.raises(SourceError, match="cannot be read"):
        unpack(io.BytesIO(header.tobuf() * 5_000 + bytes(1024)), name="source.tar", target=target)


def test_a_sparse_file_takes_no_more_than_it_brings(target: Path) -> None:
    header = tarfile.TarInfo("hole")
    header.type, header.size = tarfile.GNUTYPE_SPARSE, 0
    with pytest.raises(SourceError, match="sparse"):
        unpack(io.BytesIO(header.tobuf() + bytes(10 * 512)), name="source.tar", target=target)
    records = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": "0,0", "GNU.sparse.size": "9" * 12}
    hole = tarfile.TarInfo("hole")
    hole.pax_headers = records
    with pytest.raises(SourceError, match="sparse"):
        unpack(io.BytesIO(hole.tobuf(tarfile.PAX_FORMAT) + bytes(1024)), name="source.tar", target=target)


def test_a_dictionary_of_gigabytes_is_not_made_for_a_few_bytes(target: Path) -> None:
    """xz and LZMA say how much memory they want; gzip wants 32 KiB."""
    with pytest.raises(SourceError, match="cannot be read"):
        unpack(io.BytesIO(lzma.compress(tar(("a", FILE, "")).read())), name="source.tar.gz", target=target)
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a", "content")
    with pytest.raises(SourceError, match="method"):
        unpack(raw, name="source.zip", target=target)


def test_a_link_in_a_zip_archive_and_a_name_twice_are_refused(target: Path) -> None:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        link = zipfile.ZipInfo("a")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "..")
        archive.writestr("b", "file")
        archive.writestr("b/c", "file")
    with pytest.raises(SourceError, match="a link or a device") as refusal:
        unpack(raw, name="source.zip", target=target)
    assert "'b' is a file, and a directory as well" in str(refusal.value)


def test_an_archive_that_is_cut_short_leaves_nothing_that_could_run(target: Path) -> None:
    whole = tar(("train.py", FILE, ""), ("more.py", FILE, ""), content=b"x" * 2000).read()
    with pytest.raises(SourceError, match="cannot be read"):
        unpack(io.BytesIO(gzip.compress(whole)[:-30]), name="source.tar.gz", target=target)
    with pytest.raises(SourceError, match="cannot be read"):
        unpack(io.BytesIO(whole[:3000]), name="source.tar", target=target)
    assert not list(target.iterdir())
