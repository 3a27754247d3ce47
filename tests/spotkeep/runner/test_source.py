"""The source is what was launched: an archive by its hash."""

from __future__ import annotations

import hashlib

import pytest

from spotkeep.errors import SourceError
from spotkeep.runner.layout import JobLayout
from spotkeep.runner.source import prepare_source
from spotkeep_fleet.training_spec import JobSource


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
    assert prepare_source(None, layout=layout, environment={}) is None


def test_what_an_earlier_start_left_is_gone(layout, make_tar, put_in_channel):
    layout.source.mkdir(parents=True)
    (layout.source / "old.py").write_text("old")
    put_in_channel(make_tar({"name": "train.py"}))
    prepare_source(None, layout=layout, environment={})
    assert everything_in(layout.source) == ["train.py"]


def test_the_archive_that_was_launched_is_unpacked(layout, make_tar, put_in_channel):
    path = make_tar({"name": "train.py"})
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    put_in_channel(path)
    assert prepare_source(JobSource(sha256=sha256), layout=layout, environment={}) == layout.source
    assert everything_in(layout.source) == ["train.py"]


def test_another_archive_is_refused_and_both_hashes_are_named(layout, make_tar, put_in_channel):
    path = make_tar({"name": "train.py"})
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    put_in_channel(path)
    with pytest.raises(SourceError, match=f"expected SHA-256 {'0' * 64}, found {found}") as refusal:
        prepare_source(JobSource(sha256="0" * 64), layout=layout, environment={})
    assert refusal.value.exit_code == 66
    assert not layout.source.exists()


@pytest.mark.parametrize("names", [[], ["a.zip", "b.tar.gz"], ["train.py"]], ids=str)
def test_the_channel_holds_one_archive(layout, names):
    channel = layout.data / "source"
    channel.mkdir(parents=True)
    for name in names:
        (channel / name).write_bytes(b"")
    with pytest.raises(SourceError, match="must hold one archive"):
        prepare_source(None, layout=layout, environment={})
