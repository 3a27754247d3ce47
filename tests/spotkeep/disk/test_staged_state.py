"""The copy of the state: laid out like the files, kept between saves, never half believed."""

from __future__ import annotations

import ctypes
import os
import re
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotkeep.disk import staged_state
from spotkeep.disk.checksum_copy import FileCopy, file_copy
from spotkeep.disk.chunk_checksums import chunk_checksum, chunk_checksums
from spotkeep.disk.manifest import CHUNK_BYTES
from spotkeep.disk.staged_state import AbandonedStagingError, StagedState, pieces_to_copy
from spotkeep.disk.storage import WRITE_BYTES
from spotkeep.state.encoding import Blob, BlobPlaces, StreamPart, encode_state


def large_pages():
    """Whether Linux gives large pages to who asks for them."""
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return setting.exists() and "[never]" not in setting.read_text()


def kilobytes_in_large_pages(address):
    """How much of the mapping at an address lies in large pages."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if mapping := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(mapping[1], 16) <= address < int(mapping[2], 16)
        elif inside and line.startswith("AnonHugePages:"):
            return int(line.split()[1])
    raise AssertionError("no mapping at that address")


def taken(staged, *rows):
    images = staged.arrange([StreamPart.whole(blobs) for blobs in rows])
    staged.copy(images)
    return images


def test_it_holds_every_blob_at_its_place_and_zeros_between():
    staged = StagedState()
    taken(staged, [Blob(offset=0, raw=b"\xff" * 5000)])
    images = taken(staged, [Blob(64, b"abc"), Blob(128, b"de")], [Blob(0, b"f")])
    assert [image.part for image in images] == [0, 1]
    assert bytes(images[0].raw) == b"\0" * 64 + b"abc" + b"\0" * 61 + b"de" + b"\0" * (4096 - 130)
    assert bytes(images[1].raw) == b"f" + b"\0" * 4095


def test_a_stream_goes_on_in_the_next_file_where_one_is_full(monkeypatch):
    monkeypatch.setattr(staged_state, "MAX_FILE_BYTES", 2 * CHUNK_BYTES)
    noise = np.random.default_rng(0).bytes(5 * CHUNK_BYTES)
    images = taken(StagedState(), [Blob(0, noise[:100]), Blob(4096, noise)], [Blob(0, b"x")])
    assert [(image.part, len(image.raw)) for image in images] == [
        *((0, 2 * CHUNK_BYTES), (0, 2 * CHUNK_BYTES), (0, CHUNK_BYTES + 4096), (1, 4096))
    ]
    assert b"".join(bytes(image.raw) for image in images[:3]) == noise[:100].ljust(4096, b"\0") + noise
    assert all(image.checksums == chunk_checksums(image.raw, CHUNK_BYTES) for image in images)


def test_files_are_whole_blocks():
    images = taken(StagedState(), encode_state({"w": np.ones(5000, dtype="u1"), "v": np.ones(9, dtype="u1")}).blobs)
    assert [len(image.raw) for image in images] == [8192]


def test_its_memory_is_kept_and_grows_only_when_it_must():
    staged = StagedState()
    for size in (9000, 5000, 9000):
        taken(staged, [Blob(0, bytes(size))])
        assert staged.capacity_bytes == 12288
    taken(staged, [Blob(0, bytes(20_000))])
    assert staged.capacity_bytes == 20_480


@given(size=st.integers(0, 2**32), threads=st.integers(2, 8))
def test_it_is_copied_in_whole_chunks_that_shrink_towards_the_end(size, threads):
    found = list(pieces_to_copy(size, threads=threads))
    edges = [0, *(end for _, end in found)]
    assert [start for start, _ in found] == edges[:-1]
    assert edges[-1] == size
    for start, end in found:
        assert 0 < end - start <= 16 * CHUNK_BYTES
        assert start % CHUNK_BYTES == 0
        assert end % CHUNK_BYTES == 0 or end == size
        # No copier waits for longer than it takes to copy half of what each thread would have had left, or one chunk.
        assert end - start <= max(CHUNK_BYTES, (size - start) / threads / 2)
    assert not found or found[0][1] <= 4 * CHUNK_BYTES


@pytest.mark.skipif(not large_pages(), reason="this system has no large pages to give")
def test_its_memory_lies_in_large_pages():
    images = taken(StagedState(), [Blob(0, bytes(32 * 2**20))])
    address = ctypes.addressof(ctypes.c_char.from_buffer(images[0].raw))
    # Not all of it: the system may be out of free large pages, and the ends need not fit one.
    assert kilobytes_in_large_pages(address) >= 8 * 1024


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_shares_none_of_its_memory_and_can_take_its_own():
    staged = StagedState()
    parents = taken(staged, [Blob(0, b"parent")])
    child = os.fork()
    if not child:
        images = taken(staged, [Blob(0, b"child")])
        os._exit(0 if bytes(images[0].raw[:5]) == b"child" and images[0].raw is not parents[0].raw else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert bytes(parents[0].raw[:6]) == b"parent"
    assert taken(staged, [Blob(0, b"again")])[0].raw[:5] == b"again"


def test_what_is_there_can_be_written_before_the_rest_is(monkeypatch):
    staged = StagedState()
    images = staged.arrange([StreamPart.whole([Blob(0, bytes(4096))]), StreamPart.whole([Blob(0, b"x")])])
    first_is_written = threading.Event()

    @dataclass
    class SecondWaits:
        raw: memoryview
        content: FileCopy

        def copy(self, start, end):
            if self.raw is images[1].raw:
                assert first_is_written.wait(30)
            return self.content.copy(start, end)

    monkeypatch.setattr(staged_state, "file_copy", lambda raw, blobs: SecondWaits(raw, file_copy(raw, blobs)))
    seen = []

    def write():
        for image in images:
            staged.wait(image.start + len(image.raw))
            seen.append((bytes(image.raw[:1]), *image.checksums))
            first_is_written.set()

    writer = threading.Thread(target=write)
    writer.start()
    staged.copy(images)
    writer.join()
    assert seen == [(image_start, chunk_checksum(image_start.ljust(4096, b"\0"))) for image_start in (b"\0", b"x")]


BLOBS = st.lists(
    st.tuples(
        st.integers(1, 3 * CHUNK_BYTES),  # the length
        st.booleans(),  # whether a part may be copied later
        st.integers(0, 100),  # where that part begins and ends, in percent
        st.integers(0, 100),
    ),
    min_size=1,
    max_size=6,
)


@settings(deadline=None, max_examples=40)
@given(blobs=BLOBS, data=st.data())
def test_what_waits_is_copied_later_and_the_rest_is_there_whatever_changes_since(blobs, data):
    noise = np.random.default_rng(0)
    places, sources, lates = BlobPlaces(), [], {}
    for size, waits, one, other in blobs:
        source = noise.integers(0, 256, size, dtype="u1")
        places.place(source.data)
        sources.append(source)
        if waits and one != other:
            low, high = sorted((size * one // 100, size * other // 100))
            if low < high:
                lates[places.blobs[-1].offset] = (low, high)
    at_once, staged = StagedState(), StagedState()
    expected = taken(at_once, places.blobs)
    images = staged.arrange([StreamPart.whole(places.blobs)])
    rest = staged.copy(images, late=lambda blob: lates.get(blob.offset))
    for blob, source in zip(places.blobs, sources, strict=True):
        low, high = lates.get(blob.offset, (0, 0))
        source[:low] ^= 255
        source[high:] ^= 255
    if data.draw(st.booleans(), label="by two threads"):
        other_thread = threading.Thread(target=rest.copy)
        other_thread.start()
        rest.finish()
        other_thread.join()
    else:
        rest.finish()
    assert [bytes(image.raw) for image in images] == [bytes(image.raw) for image in expected]
    assert [image.checksums for image in images] == [image.checksums for image in expected]


def test_a_late_piece_that_fails_breaks_the_copy_off_for_all():
    staged = StagedState()
    images = staged.arrange([StreamPart.whole([Blob(0, bytes(2 * CHUNK_BYTES))])])
    rest = staged.copy(images, late=lambda blob: (0, len(blob.raw)))
    images[0].checksums.clear()

    class Refusing(list):
        def __setitem__(self, *_):
            raise OSError("the memory is gone")

    object.__setattr__(images[0], "checksums", Refusing())
    with pytest.raises(OSError, match="the memory is gone"):
        rest.finish()
    with pytest.raises(AbandonedStagingError):
        staged.wait_for_all()
    with pytest.raises(AbandonedStagingError):
        rest.finish()


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failure_in_either_thread_breaks_the_copy_off(monkeypatch, failing):
    class Failing:
        def copy(self, start, end):
            if start <= failing * WRITE_BYTES < end:
                raise OSError("the memory is gone")
            return [""] * ((end - start) // CHUNK_BYTES)

    monkeypatch.setattr(staged_state, "file_copy", lambda raw, blobs: Failing())
    staged = StagedState()
    blobs = [Blob(0, bytes(2 * WRITE_BYTES))]
    images = staged.arrange([StreamPart.whole(blobs)])
    with pytest.raises(OSError, match="the memory is gone"):
        staged.copy(images)
    with pytest.raises(AbandonedStagingError):
        staged.wait(2 * WRITE_BYTES)


def test_a_copy_that_is_broken_off_raises_where_it_is_waited_for():
    class Unreadable:
        def __len__(self):
            return 8

    staged = StagedState()
    blobs = [Blob(0, Unreadable())]  # type: ignore[arg-type]
    images = staged.arrange([StreamPart.whole(blobs)])
    with pytest.raises(TypeError):
        staged.copy(images)
    with pytest.raises(AbandonedStagingError):
        staged.wait(1)


def test_more_memory_than_there_is_is_an_error_of_its_own():
    class Endless:
        def __len__(self):
            return 2**60

    with pytest.raises(MemoryError, match="for a copy of the state"):
        StagedState().arrange([StreamPart.whole([Blob(0, Endless())])])  # type: ignore[arg-type]
