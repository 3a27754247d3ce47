"""Data files: written and read by two threads, verified whatever way the bytes come."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from spotkeep.disk import checksum_copy
from spotkeep.disk import storage as storage_module
from spotkeep.disk.chunk_checksums import chunk_checksum
from spotkeep.disk.chunked_files import AlteredChunkError, altered_memory, read_data_file, read_part, write_file
from spotkeep.disk.manifest import CHUNK_BYTES
from spotkeep.disk.storage import LocalStorage, ReadableFile
from spotkeep.native.copy_and_add import is_available

WRITE = storage_module.WRITE_BYTES
SIZE = 2 * WRITE + 4096


@pytest.fixture(scope="module")
def content():
    memory = mmap.mmap(-1, SIZE)
    memory[:] = np.random.default_rng(0).bytes(SIZE)
    return memoryview(memory)


@pytest.fixture
def written(tmp_path, content):
    path = tmp_path / "data"
    write_file(LocalStorage(), path, content)
    return path, checksums_of(content)


@pytest.fixture(params=["page cache", "disk"])
def cached(request, monkeypatch):
    """Where the bytes are found, whatever the file system of the test does."""
    monkeypatch.setattr(ReadableFile, "is_cached", lambda self: request.param == "page cache")


def checksums_of(content):
    return tuple(chunk_checksum(content[start : start + CHUNK_BYTES]) for start in range(0, len(content), CHUNK_BYTES))


def opened(path):
    return contextlib.closing(LocalStorage().open(path))


def test_a_file_is_its_bytes(written, content):
    assert written[0].read_bytes() == content


def test_an_empty_file_has_no_chunks(tmp_path):
    write_file(LocalStorage(), tmp_path / "data", memoryview(b""))
    with opened(tmp_path / "data") as file:
        read_data_file(file, ())


@pytest.mark.usefixtures("cached")
def test_targets_get_their_bytes_across_chunks_and_in_any_alignment(written, content):
    path, checksums = written
    places = [(3, 5), (8, 0), (4096, CHUNK_BYTES), (CHUNK_BYTES + 5000, CHUNK_BYTES - 1000), (SIZE - 1, 1)]
    targets = [(offset, memoryview(bytearray(size + 1))[1:]) for offset, size in places]
    with opened(path) as file:
        read_data_file(file, checksums, targets)
        for offset, target in targets:
            assert target == content[offset : offset + len(target)]
            assert read_part(file, checksums, offset, len(target)) == content[offset : offset + len(target)]


@pytest.mark.usefixtures("cached")
def test_a_damaged_chunk_is_named(written, content):
    path, checksums = written
    with path.open("r+b") as file:
        file.seek(CHUNK_BYTES + 9)
        file.write(bytes([content[CHUNK_BYTES + 9] ^ 1]))
    target = bytearray(CHUNK_BYTES)
    with opened(path) as file:
        for read in (
            lambda: read_data_file(file, checksums, [(CHUNK_BYTES, memoryview(target))]),
            lambda: read_part(file, checksums, CHUNK_BYTES + 100, 1),
        ):
            with pytest.raises(AlteredChunkError, match="chunk 1 has checksum") as damage:
                read()
            assert damage.value.offsets == (CHUNK_BYTES, 2 * CHUNK_BYTES)


@pytest.mark.usefixtures("cached")
def test_a_file_that_shrinks_while_it_is_read_is_noticed(written):
    path, checksums = written
    with opened(path) as file:
        os.truncate(path, CHUNK_BYTES + 7)
        with pytest.raises(AlteredChunkError, match="cut short"):
            read_data_file(file, checksums)


def test_a_piece_is_written_when_it_is_there_and_not_before(tmp_path, content):
    there, written = set(), []

    class Disk(LocalStorage):
        def write_at(self, descriptor, raw, offset):
            assert offset + len(raw) in there
            written.append((offset, offset + len(raw)))
            super().write_at(descriptor, raw, offset)

    write_file(Disk(), tmp_path / "data", content, wait=there.add)
    starts, ends = zip(*sorted(written), strict=True)
    assert starts == (0, *ends[:-1])
    assert ends[-1] == SIZE
    assert ends[0] < WRITE, "the disk does not wait for much"
    assert max(end - start for start, end in written) == WRITE


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
    write_file(LocalStorage(), tmp_path / "data", content)
    target = memoryview(bytearray(SIZE))
    with opened(tmp_path / "data") as file:
        read_data_file(file, checksums_of(content), [(0, target)])
    assert target == content


def test_a_write_that_is_not_aligned_enough_for_direct_io_goes_through_the_page_cache(tmp_path, content):
    write_file(LocalStorage(), tmp_path / "data", content[1 : CHUNK_BYTES + 3])
    assert (tmp_path / "data").read_bytes() == content[1 : CHUNK_BYTES + 3]


@pytest.mark.parametrize("piece", [0, 1, 2])
def test_a_read_that_fails_in_either_thread_reaches_who_asked(written, monkeypatch, piece):
    path, checksums = written
    really_read = ReadableFile.read_into

    def read_into(self, target, offset, *, cached=True):
        if offset == piece * WRITE:
            raise OSError(errno.EIO, "Input/output error")
        return really_read(self, target, offset, cached=cached)

    monkeypatch.setattr(ReadableFile, "read_into", read_into)
    with opened(path) as file, pytest.raises(OSError, match="Input/output error"):
        read_data_file(file, checksums)


@pytest.mark.usefixtures("cached")
def test_short_reads_are_continued_where_they_stopped(written, content, monkeypatch):
    path, checksums = written
    really_read = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, *rest: really_read(fd, [buffers[0][:100_001]], *rest))
    target = memoryview(bytearray(SIZE))
    with opened(path) as file:
        read_data_file(file, checksums, [(0, target)])
    assert target == content


def test_what_the_page_cache_has_is_known(written):
    path, _ = written
    path.read_bytes()
    with opened(path) as file:
        assert file.is_cached()


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "without a compiled routine"])
@given(
    edges=st.lists(st.integers(0, 3 * CHUNK_BYTES + 4096), min_size=2, max_size=12, unique=True).map(sorted),
    changed=st.sets(st.integers(0, 11)),
    data=st.data(),
)
@example(edges=[0, 3 * CHUNK_BYTES + 4096], changed={0}, data=None)
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_memory_that_does_not_hold_what_the_file_has_is_found(tmp_path, compiled, edges, changed, data, monkeypatch):
    """Whatever lies between the memory: zeros, or what nothing was compared with."""
    monkeypatch.setattr(checksum_copy, "is_available", is_available if compiled else lambda: False)
    raw = bytearray(3 * CHUNK_BYTES + 4096)
    runs = [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=False)]
    for start, end in runs:
        raw[start:end] = np.random.default_rng(start).bytes(end - start)
    raw[:1] = b"?"
    path = tmp_path / "data"
    path.write_bytes(raw)
    memory = [bytearray(raw[start:end]) for start, end in runs]
    changed = {index for index in changed if index < len(runs)}
    for index in changed:
        place = len(memory[index]) - 1 if data is None else data.draw(st.integers(0, len(memory[index]) - 1))
        memory[index][place] ^= 1
    held = [(start, memoryview(part)) for (start, _), part in zip(runs, memory, strict=True)]
    with opened(path) as file:
        assert altered_memory(file, checksums_of(memoryview(raw)), held) == sorted(changed)


def test_a_comparison_reads_no_chunk_that_holds_none_of_the_memory(written, content):
    path, checksums = written
    start, end = 4 * CHUNK_BYTES + 100, 9 * CHUNK_BYTES - 100
    read = []

    class Counted(ReadableFile):
        def read_into(self, target, offset, **options):
            read.append(offset // CHUNK_BYTES)
            return super().read_into(target, offset, **options)

    with contextlib.closing(Counted(path)) as file:
        assert altered_memory(file, checksums, [(start, content[start:end])]) == []
    assert sorted(read) == [4, 8], "the chunks of which the memory has a part"


@pytest.mark.parametrize("changed", [None, 0, 700_000, -1])
def test_a_comparison_knows_the_ends_that_were_read(written, content, cached, changed):
    """A chunk of which a rank needs a part is read once."""
    path, checksums = written
    spans = [(100, 5000), (CHUNK_BYTES - 100_000, 3 * CHUNK_BYTES + 5), (4 * CHUNK_BYTES + 70_000, 5 * CHUNK_BYTES)]
    memory = [bytearray(end - start) for start, end in spans]
    targets = [(start, memoryview(held)) for (start, _), held in zip(spans, memory, strict=True)]
    cut = {}
    with opened(path) as file:
        read_data_file(file, checksums, targets, cut=cut)
    assert {low // CHUNK_BYTES for low, _ in cut} == {0, 3, 4}
    read = []

    class Counted(ReadableFile):
        def read_into(self, target, offset, **options):
            read.append(offset)
            return super().read_into(target, offset, **options)

    if changed is not None:
        memory[2][changed] ^= 1
    with contextlib.closing(Counted(path)) as file:
        assert altered_memory(file, checksums, targets, cut=cut) == ([] if changed is None else [2])
    assert read == []
