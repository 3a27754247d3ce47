"""The seam between the format and a disk: an old file is written over only where nobody else has it."""

from __future__ import annotations

import contextlib
import os

import pytest

from spotkeep.disk.storage import LocalStorage

OLD, NEW = b"old" * 4096, b"new" * 4096


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(OLD)
    return path


def write_over(path, content=NEW):
    with LocalStorage().write_over(path, size=len(content)) as descriptor:
        LocalStorage().write_at(descriptor, memoryview(content), 0)


def test_an_old_file_is_written_over(old):
    with old.open("rb") as same_file:
        write_over(old)
        assert same_file.read() == NEW


def test_nothing_of_a_longer_one_is_left(old):
    write_over(old, b"short")
    assert old.read_bytes() == b"short"


def test_a_shorter_one_grows(old):
    write_over(old, NEW + NEW)
    assert old.read_bytes() == NEW + NEW


def test_where_there_is_none_one_is_made(tmp_path):
    write_over(tmp_path / "data")
    assert (tmp_path / "data").read_bytes() == NEW


def test_who_reads_the_old_one_reads_it_to_its_end(old):
    with contextlib.closing(LocalStorage().open(old)) as reading:
        write_over(old)
        found = bytearray(len(OLD))
        reading.read_into(memoryview(found), 0)
    assert found == OLD
    assert old.read_bytes() == NEW


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_worker_forked_while_it_is_open_stands_in_nobodys_way(old):
    worker_ends, end_worker = os.pipe()
    workers = []

    def fork():
        workers.append(os.fork())
        if not workers[-1]:
            os.close(end_worker)
            os.read(worker_ends, 1)
            os._exit(0)

    try:
        with old.open("rb") as same_file:
            with contextlib.closing(LocalStorage().open(old)):
                fork()
            with LocalStorage().write_over(old, size=len(OLD)):
                fork()
            write_over(old)
            assert same_file.read() == NEW
    finally:
        os.close(end_worker)
        for worker in workers:
            os.waitpid(worker, 0)
        os.close(worker_ends)


def test_who_has_the_old_one_under_another_name_keeps_it(tmp_path, old):
    os.link(old, tmp_path / "kept")
    write_over(old)
    assert (tmp_path / "kept").read_bytes() == OLD
    assert old.read_bytes() == NEW


def test_a_link_is_replaced_and_not_followed(tmp_path, old):
    link = tmp_path / "link"
    link.symlink_to(old)
    write_over(link)
    assert old.read_bytes() == OLD
    assert link.read_bytes() == NEW
    assert not link.is_symlink()


def test_where_the_system_has_no_locks_a_new_one_is_made(old, monkeypatch):
    import fcntl

    def refuse(descriptor, operation):
        raise OSError("no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with old.open("rb") as old_file:
        write_over(old)
        assert old_file.read() == OLD
    assert old.read_bytes() == NEW
