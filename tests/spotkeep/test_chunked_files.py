"""Data files: written and read by two threads, verified before a byte reaches its target."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import threading

import numpy as np
import pytest

from spotkeep import storage as storage_module
from spotkeep.chunk_checksums import chunk_checksum
from spotkeep.chunked_files import AlteredChunkError, read_file, read_part, write_file
from spotkeep.manifest import CHUNK_BYTES
from spotkeep.storage import LocalStorage

WRITE = 4 * CHUNK_BYTES
SIZE = 2 * WRITE + 4096


@pytest.fixture(scope="module")
def content():
    memory = mmap.mmap(-1, SIZE)
    memory[:] = np.random.default_rng(0).bytes(SIZE)
    return memoryview(memory)


@pytest.fixture
def written(tmp_path, content):
    path = tmp_path / "data"
    return path, write_file(LocalStorage(), path, content)


def opened(path):
    return contextlib.closing(LocalStorage().open(path))


def test_a_file_is_its_bytes_and_a_checksum_for_each_chunk(written, content):
    path, checksums = written
    assert path.read_bytes() == content
    chunks = [content[start : start + CHUNK_BYTES] for start in range(0, SIZE, CHUNK_BYTES)]
    assert checksums == tuple(map(chunk_checksum, chunks))


def test_an_empty_file_has_no_chunks(tmp_path):
    assert write_file(LocalStorage(), tmp_path / "data", memoryview(b"")) == ()
    with opened(tmp_path / "data") as file:
        read_file(file, ())


def test_targets_get_their_bytes_across_chunks_and_in_any_alignment(written, content):
    path, checksums = written
    places = [(3, 5), (8, 0), (4096, CHUNK_BYTES), (CHUNK_BYTES + 5000, CHUNK_BYTES - 1000), (SIZE - 1, 1)]
    targets = [(offset, memoryview(bytearray(size + 1))[1:]) for offset, size in places]
    with opened(path) as file:
        read_file(file, checksums, targets)
        for offset, target in targets:
            assert target == content[offset : offset + len(target)]
            assert read_part(file, checksums, offset, len(target)) == content[offset : offset + len(target)]


def test_a_damaged_chunk_is_named_and_reaches_no_target(written, content):
    path, checksums = written
    with path.open("r+b") as file:
        file.seek(CHUNK_BYTES + 9)
        file.write(bytes([content[CHUNK_BYTES + 9] ^ 1]))
    target = bytearray(CHUNK_BYTES)
    with opened(path) as file:
        for read in (
            lambda: read_file(file, checksums, [(CHUNK_BYTES, memoryview(target))]),
            lambda: read_part(file, checksums, CHUNK_BYTES + 100, 1),
        ):
            with pytest.raises(AlteredChunkError, match="chunk 1 has checksum") as damage:
                read()
            assert damage.value.offsets == (CHUNK_BYTES, 2 * CHUNK_BYTES)
    assert not any(target)


def test_a_file_that_shrinks_while_it_is_read_is_noticed(written):
    path, checksums = written
    with opened(path) as file:
        os.truncate(path, CHUNK_BYTES + 7)
        with pytest.raises(AlteredChunkError, match="cut short"):
            read_file(file, checksums)


def test_a_chunk_is_written_when_it_is_there_and_not_before(tmp_path, content):
    waited = []
    lock = threading.Lock()

    def wait(end):
        with lock:
            waited.append(end)

    write_file(LocalStorage(), tmp_path / "data", content, wait=wait)
    assert sorted(waited) == [WRITE, 2 * WRITE, SIZE]


@pytest.mark.parametrize("failing", [0, WRITE, 2 * WRITE])
def test_an_error_of_either_thread_reaches_who_asked(tmp_path, content, failing):
    class Disk(LocalStorage):
        def write_some(self, descriptor, raw, offset):
            if offset == failing:
                raise OSError(errno.EIO, "Input/output error")
            return super().write_some(descriptor, raw, offset)

    with pytest.raises(OSError, match="Input/output error"):
        write_file(Disk(), tmp_path / "data", content)


@pytest.mark.parametrize("piece", [1000, 4096, 100_000])
def test_short_writes_are_continued_where_they_stopped(tmp_path, content, piece):
    class Disk(LocalStorage):
        def write_some(self, descriptor, raw, offset):
            return super().write_some(
                descriptor, raw[: max(piece, len(raw) // 3)] if piece < 5000 else raw[:piece], offset
            )

    write_file(Disk(), tmp_path / "data", content)
    assert (tmp_path / "data").read_bytes() == content


def test_a_file_system_without_direct_io_is_used_through_the_page_cache(tmp_path, content, monkeypatch):
    really_open = os.open

    def refuse_direct(path, flags, *rest, **options):
        if flags & storage_module._DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return really_open(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", refuse_direct)
    checksums = write_file(LocalStorage(), tmp_path / "data", content)
    target = memoryview(bytearray(SIZE))
    with opened(tmp_path / "data") as file:
        read_file(file, checksums, [(0, target)])
    assert target == content


def test_a_write_that_is_not_aligned_enough_for_direct_io_goes_through_the_page_cache(tmp_path, content):
    checksums = write_file(LocalStorage(), tmp_path / "data", content[1 : CHUNK_BYTES + 3])
    assert (tmp_path / "data").read_bytes() == content[1 : CHUNK_BYTES + 3]
    assert len(checksums) == 2
