"""A source archive is unpacked whole and inside its directory, or not at all."""

from __future__ import annotations

import os
import stat
import tarfile
import zipfile

import pytest

from spotkeep.errors import SourceError
from spotkeep.runner import source_archive as module


def unpack(path, target):
    with path.open("rb") as archive:
        module.unpack(archive, name=path.name, target=target)


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "out"
    path.mkdir()
    return path


def everything_in(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


@pytest.mark.parametrize("kind", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_a_tar_archive_is_unpacked(target, make_tar, kind):
    long = f"{'d' * 90}/{'f' * 90}.py"
    unpack(
        make_tar(
            {"name": "./train.py", "content": b"print(1)"},
            {"name": "run.sh", "content": b"#!/bin/sh", "mode": 0o6777},
            {"name": "lib", "type": tarfile.DIRTYPE, "mode": 0},
            {"name": "lib/link.py", "type": tarfile.SYMTYPE, "linkname": "../train.py"},
            {"name": "lib/hard.py", "type": tarfile.LNKTYPE, "linkname": "train.py"},
            {"name": long, "content": b"of two the last"},
            {"name": long, "content": b"counts"},
            kind=kind,
        ),
        target,
    )
    assert (target / long).read_text() == "counts"
    (target / long).unlink()
    (target / long).parent.rmdir()
    assert everything_in(target) == ["lib", "lib/hard.py", "lib/link.py", "run.sh", "train.py"]
    assert (target / "lib" / "link.py").read_text() == "print(1)"
    found = (target / "run.sh").stat()
    assert stat.S_IMODE(found.st_mode) == 0o755, "no set-uid bit, not writable by others"
    assert found.st_uid == os.getuid(), "not the user who packed it"


def test_a_zip_archive_is_unpacked_with_its_executables(tmp_path, target):
    path = tmp_path / "source.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("train.py", "print(1)")
        script = zipfile.ZipInfo("bin/run.sh")
        script.external_attr = (stat.S_IFREG | 0o755) << 16
        archive.writestr(script, "#!/bin/sh")
    unpack(path, target)
    assert everything_in(target) == ["bin", "bin/run.sh", "train.py"]
    assert os.access(target / "bin" / "run.sh", os.X_OK)


HOSTILE = {
    "a parent": [{"name": "../evil"}],
    "a hidden parent": [{"name": "a/../../evil"}],
    "an absolute path": [{"name": "/etc/evil"}],
    "a link outside": [{"name": "a", "type": tarfile.SYMTYPE, "linkname": "../.."}],
    "an absolute link": [{"name": "a", "type": tarfile.SYMTYPE, "linkname": "/etc"}],
    "behind a link": [{"name": "a", "type": tarfile.SYMTYPE, "linkname": "."}, {"name": "a/evil"}],
    "a hard link outside": [{"name": "a", "type": tarfile.LNKTYPE, "linkname": "../../etc/passwd"}],
    "a device": [{"name": "a", "type": tarfile.CHRTYPE}],
    "a pipe": [{"name": "a", "type": tarfile.FIFOTYPE}],
}


@pytest.mark.parametrize("members", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_tar_archive_that_reaches_outside_is_refused_before_anything_is_written(target, make_tar, members):
    with pytest.raises(SourceError, match="nothing was unpacked") as refusal:
        unpack(make_tar({"name": "fine.py"}, *members), target)
    assert refusal.value.exit_code == 66
    assert everything_in(target) == []


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "..\\evil"])
def test_a_zip_archive_that_reaches_outside_is_refused(tmp_path, target, name):
    path = tmp_path / "source.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, "evil")
    with pytest.raises(SourceError, match="lies outside the archive"):
        unpack(path, target)


def test_a_link_in_a_zip_archive_is_refused(tmp_path, target):
    path = tmp_path / "source.zip"
    with zipfile.ZipFile(path, "w") as archive:
        link = zipfile.ZipInfo("link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(SourceError, match="a link or a device"):
        unpack(path, target)


def test_problems_are_reported_at_once_and_in_number(target, make_tar):
    path = make_tar(*({"name": f"../evil{number}"} for number in range(8)))
    with pytest.raises(SourceError, match="and 3 more"):
        unpack(path, target)


def test_an_archive_that_unpacks_to_too_much_is_refused(target, make_tar, monkeypatch):
    monkeypatch.setattr(module, "_MAX_UNPACKED_BYTES", 10)
    with pytest.raises(SourceError, match="unpacks to more than 10 bytes"):
        unpack(make_tar({"name": "a", "content": b"12345678901"}), target)
    monkeypatch.setattr(module, "_MAX_MEMBERS", 1)
    with pytest.raises(SourceError, match="more than 1 members"):
        unpack(make_tar({"name": "a"}, {"name": "b"}), target)


def test_members_without_end_are_not_read_to_the_end(target, make_tar, monkeypatch):
    monkeypatch.setattr(module, "_MAX_MEMBERS", 10)
    path = make_tar(*({"name": str(number)} for number in range(100)))
    met = []
    parts = module._parts
    monkeypatch.setattr(module, "_parts", lambda name: met.append(name) or parts(name))
    with pytest.raises(SourceError, match="more than 10 members"):
        unpack(path, target)
    assert len(met) == 10


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize("first", [True, False])
def test_a_header_that_would_fill_the_memory_is_not_read(target, make_tar, monkeypatch, kind, first):
    monkeypatch.setattr(module, "_MAX_HEADER_BYTES", 1000)
    large = {"name": "long", "type": kind, "content": b"x" * 1001}
    path = make_tar(*([] if first else [{"name": "a"}]), large, {"name": "b"})
    with pytest.raises(SourceError, match=r"a header of 1,001 bytes, more than 1,000"):
        unpack(path, target)


@pytest.mark.parametrize("name", ["source.tar.gz", "source.zip"])
def test_a_file_that_is_no_archive_is_reported(tmp_path, target, name):
    path = tmp_path / name
    path.write_bytes(b"not an archive")
    with pytest.raises(SourceError, match="cannot be read"):
        unpack(path, target)


def test_a_tar_archive_without_compression_is_unpacked_whatever_its_name_says(tmp_path, target, make_tar):
    plain = make_tar({"name": "train.py", "content": b"x" * 5000}, name="source.tar")
    unpack(plain.rename(tmp_path / "source.tar.gz"), target)
    assert (target / "train.py").stat().st_size == 5000


def test_what_is_there_already_is_not_written_over(target, make_tar):
    (target / "train.py").symlink_to("/dev/null")
    with pytest.raises(FileExistsError):
        unpack(make_tar({"name": "a"}, {"name": "train.py"}), target)
    assert everything_in(target) == ["train.py"]
