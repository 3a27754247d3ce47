"""Whether a file must come from the disk: asking must not be what brings it into the page cache."""

from __future__ import annotations

import contextlib
import os

import pytest

from spotkeep.disk.storage import LocalStorage, cached_share

SIZE = 8 * 2**20


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(bytes(SIZE))
    return path


@pytest.fixture
def descriptor(path):
    descriptor = os.open(path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def drop(descriptor, offset=0):
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, offset, 0, os.POSIX_FADV_DONTNEED)


def test_what_was_just_written_is_there(descriptor):
    assert cached_share(descriptor, SIZE) == 1


def test_asking_reads_nothing(path, descriptor):
    drop(descriptor)
    with contextlib.closing(LocalStorage().open(path)) as file:
        assert not any(file.is_cached() for _ in range(100))
    assert cached_share(descriptor, SIZE, places=64) == 0


def test_a_part_of_a_file_is_a_part(path, descriptor):
    drop(descriptor, SIZE // 4)
    assert cached_share(descriptor, SIZE) == 1 / 4
    with contextlib.closing(LocalStorage().open(path)) as file:
        assert not file.is_cached()


def test_of_nothing_there_is_nothing(tmp_path):
    (tmp_path / "empty").touch()
    with (tmp_path / "empty").open("rb") as file:
        assert cached_share(file.fileno(), 0) == 0


def test_where_the_system_does_not_tell_the_disk_is_read(descriptor, monkeypatch):
    monkeypatch.setattr("spotkeep.disk.storage.ctypes.CDLL", lambda *_, **__: object())
    assert cached_share(descriptor, SIZE) == 0
