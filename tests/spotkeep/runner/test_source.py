"""The source is what was launched: an archive by its hash, or a commit."""

from __future__ import annotations

import hashlib
import os
import subprocess

import pytest

from spotkeep.errors import MissingToolError, SourceError
from spotkeep.runner.layout import JobLayout
from spotkeep.runner.source import prepare_source


@pytest.fixture
def layout(tmp_path):
    return JobLayout(base=tmp_path / "ml")


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


def test_what_an_earlier_start_left_is_gone(layout, make_tar, put_in_channel):
    layout.source.mkdir(parents=True)
    (layout.source / "old.py").write_text("old")
    put_in_channel(make_tar({"name": "train.py"}))
    prepare_source(layout, {})
    assert everything_in(layout.source) == ["train.py"]


def test_the_archive_that_was_launched_is_unpacked(layout, make_tar, put_in_channel):
    path = make_tar({"name": "train.py"})
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    put_in_channel(path)
    assert prepare_source(layout, {"SPOTKEEP_SOURCE_SHA256": sha256}) == layout.source
    assert everything_in(layout.source) == ["train.py"]


def test_another_archive_is_refused_and_both_hashes_are_named(layout, make_tar, put_in_channel):
    path = make_tar({"name": "train.py"})
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    put_in_channel(path)
    with pytest.raises(SourceError, match=f"expected SHA-256 {'0' * 64}, found {found}") as refusal:
        prepare_source(layout, {"SPOTKEEP_SOURCE_SHA256": "0" * 64})
    assert refusal.value.exit_code == 66
    assert not layout.source.exists()


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


def test_a_commit_that_is_not_there_is_reported_with_gits_words(layout, repository):
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


def test_a_missing_git_is_reported_with_a_way_out(layout, tmp_path):
    environment = {
        "PATH": str(tmp_path),
        "SPOTKEEP_SOURCE_GIT_URL": "https://example.org/x.git",
        "SPOTKEEP_SOURCE_GIT_COMMIT": "0" * 40,
    }
    with pytest.raises(MissingToolError, match="use an image with git, or give the source as an archive") as missing:
        prepare_source(layout, environment)
    assert missing.value.exit_code == 69
