"""The source is unpacked whole and inside its directory, or not at all."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import tarfile
import zipfile

import pytest

from spotkeep.errors import MissingToolError, SourceError
from spotkeep.runner import source as module
from spotkeep.runner.layout import JobLayout
from spotkeep.runner.source import prepare_source, unpack


@pytest.fixture
def layout(tmp_path):
    return JobLayout(base=tmp_path / "ml")


@pytest.fixture
def make_tar(tmp_path):
    def make(*members, name="source.tar.gz"):
        path = tmp_path / name
        with tarfile.open(path, "w:gz") as archive:
            for member in members:
                info = tarfile.TarInfo(member["name"])
                content = member.get("content", b"")
                info.size = len(content)
                info.type = member.get("type", tarfile.REGTYPE)
                info.linkname = member.get("linkname", "")
                info.mode = member.get("mode", 0o644)
                info.uid = 12345
                archive.addfile(info, io.BytesIO(content))
        return path

    return make


@pytest.fixture
def put_in_channel(layout):
    def put(path):
        channel = layout.data / "source"
        channel.mkdir(parents=True, exist_ok=True)
        path.rename(channel / path.name)

    return put


def everything_in(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def test_a_job_without_a_source_has_none(layout):
    assert prepare_source(layout, {}) is None


def test_a_tar_archive_is_unpacked(layout, make_tar, put_in_channel):
    put_in_channel(
        make_tar(
            {"name": "./train.py", "content": b"print(1)"},
            {"name": "run.sh", "content": b"#!/bin/sh", "mode": 0o6777},
            {"name": "lib", "type": tarfile.DIRTYPE, "mode": 0},
            {"name": "lib/link.py", "type": tarfile.SYMTYPE, "linkname": "../train.py"},
            {"name": "lib/hard.py", "type": tarfile.LNKTYPE, "linkname": "train.py"},
        )
    )
    target = prepare_source(layout, {})
    assert target == layout.source
    assert everything_in(target) == ["lib", "lib/hard.py", "lib/link.py", "run.sh", "train.py"]
    assert (target / "lib" / "link.py").read_text() == "print(1)"
    found = (target / "run.sh").stat()
    assert stat.S_IMODE(found.st_mode) == 0o755, "no set-uid bit, not writable by others"
    assert found.st_uid == os.getuid(), "not whoever packed it"


def test_a_zip_archive_is_unpacked_with_its_executables(tmp_path):
    path = tmp_path / "source.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("train.py", "print(1)")
        script = zipfile.ZipInfo("bin/run.sh")
        script.external_attr = (stat.S_IFREG | 0o755) << 16
        archive.writestr(script, "#!/bin/sh")
    unpack(path, tmp_path / "out")
    assert everything_in(tmp_path / "out") == ["bin", "bin/run.sh", "train.py"]
    assert os.access(tmp_path / "out" / "bin" / "run.sh", os.X_OK)


def test_what_an_earlier_start_left_is_gone(layout, make_tar, put_in_channel):
    layout.source.mkdir(parents=True)
    (layout.source / "old.py").write_text("old")
    put_in_channel(make_tar({"name": "train.py"}))
    prepare_source(layout, {})
    assert everything_in(layout.source) == ["train.py"]


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
def test_a_tar_archive_that_reaches_outside_is_refused_before_anything_is_written(
    layout, make_tar, put_in_channel, members
):
    put_in_channel(make_tar({"name": "fine.py"}, *members))
    with pytest.raises(SourceError, match="nothing was unpacked") as refusal:
        prepare_source(layout, {})
    assert refusal.value.exit_code == 66
    assert everything_in(layout.source) == []


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "..\\evil"])
def test_a_zip_archive_that_reaches_outside_is_refused(tmp_path, name):
    path = tmp_path / "source.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, "evil")
    with pytest.raises(SourceError, match="lies outside the archive"):
        unpack(path, tmp_path / "out")


def test_a_link_in_a_zip_archive_is_refused(tmp_path):
    path = tmp_path / "source.zip"
    with zipfile.ZipFile(path, "w") as archive:
        link = zipfile.ZipInfo("link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(SourceError, match="a link or a device"):
        unpack(path, tmp_path / "out")


def test_problems_are_told_at_once_and_in_number(tmp_path, make_tar):
    path = make_tar(*({"name": f"../evil{number}"} for number in range(8)))
    with pytest.raises(SourceError, match="and 3 more"):
        unpack(path, tmp_path / "out")


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path, make_tar, monkeypatch):
    monkeypatch.setattr(module, "_MAX_UNPACKED_BYTES", 10)
    with pytest.raises(SourceError, match="unpacks to more than 10 bytes"):
        unpack(make_tar({"name": "a", "content": b"12345678901"}), tmp_path / "out")
    monkeypatch.setattr(module, "_MAX_MEMBERS", 1)
    with pytest.raises(SourceError, match="more than 1 members"):
        unpack(make_tar({"name": "a"}, {"name": "b"}), tmp_path / "out")


def test_members_without_end_are_not_looked_through_to_the_end(tmp_path, make_tar, monkeypatch):
    monkeypatch.setattr(module, "_MAX_MEMBERS", 10)
    path = make_tar(*({"name": str(number)} for number in range(100)))
    met = []
    judge = module._tar_problems
    monkeypatch.setattr(module, "_tar_problems", lambda *given: met.append(given) or judge(*given))
    with pytest.raises(SourceError, match="more than 10 members"):
        unpack(path, tmp_path / "out")
    assert len(met) == 11


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize("first", [True, False])
def test_a_header_that_would_fill_the_memory_is_not_read(tmp_path, make_tar, monkeypatch, kind, first):
    monkeypatch.setattr(module, "_MAX_HEADER_BYTES", 1000)
    large = {"name": "long", "type": kind, "content": b"x" * 1001}
    path = make_tar(*([] if first else [{"name": "a"}]), large, {"name": "b"})
    with pytest.raises(SourceError, match=r"a header of 1,001 bytes, more than 1,000"):
        unpack(path, tmp_path / "out")


@pytest.mark.parametrize("name", ["source.tar.gz", "source.zip"])
def test_a_file_that_is_no_archive_is_told(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"not an archive")
    with pytest.raises(SourceError, match="cannot be read"):
        unpack(path, tmp_path / "out")


@pytest.mark.parametrize("names", [[], ["a.zip", "b.tar.gz"], ["train.py"]], ids=str)
def test_the_channel_holds_one_archive(layout, names):
    channel = layout.data / "source"
    channel.mkdir(parents=True)
    for name in names:
        (channel / name).write_bytes(b"")
    with pytest.raises(SourceError, match="must hold one archive"):
        prepare_source(layout, {})


@pytest.fixture
def repository(tmp_path):
    path = tmp_path / "repository"
    path.mkdir()

    def git(*arguments):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
        done = subprocess.run(["git", *identity, *arguments], cwd=path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    git("init", "--quiet")
    commits = []
    for number in (1, 2):
        (path / "train.py").write_text(f"print({number})")
        git("add", ".")
        git("commit", "--quiet", "-m", f"change {number}")
        commits.append(git("rev-parse", "HEAD"))
    return f"file://{path}", commits


@pytest.mark.parametrize("index", [0, 1])
def test_a_commit_of_a_repository_is_checked_out(layout, repository, index):
    url, commits = repository
    environment = {
        **os.environ,
        "SPOTKEEP_SOURCE_GIT_URL": url,
        "SPOTKEEP_SOURCE_GIT_COMMIT": commits[index],
    }
    target = prepare_source(layout, environment)
    assert (target / "train.py").read_text() == f"print({index + 1})"


def test_a_commit_that_is_not_there_is_told_with_gits_words(layout, repository):
    url, _ = repository
    environment = {**os.environ, "SPOTKEEP_SOURCE_GIT_URL": url, "SPOTKEEP_SOURCE_GIT_COMMIT": "0" * 40}
    with pytest.raises(SourceError, match="git could not get the source"):
        prepare_source(layout, environment)


@pytest.mark.parametrize(
    ("url", "commit"),
    [("ext::sh -c evil", "0" * 40), ("--upload-pack=evil", "0" * 40), ("https://example.org/x.git", "main")],
)
def test_an_address_or_commit_that_git_might_misunderstand_never_reaches_it(layout, url, commit):
    with pytest.raises(SourceError, match="SPOTKEEP_SOURCE_GIT"):
        prepare_source(layout, {"SPOTKEEP_SOURCE_GIT_URL": url, "SPOTKEEP_SOURCE_GIT_COMMIT": commit})


def test_a_missing_git_is_told_with_a_way_out(layout, tmp_path):
    environment = {
        "PATH": str(tmp_path),
        "SPOTKEEP_SOURCE_GIT_URL": "https://example.org/x.git",
        "SPOTKEEP_SOURCE_GIT_COMMIT": "0" * 40,
    }
    with pytest.raises(MissingToolError, match="use an image with git, or give the source as an archive") as missing:
        prepare_source(layout, environment)
    assert missing.value.exit_code == 69
