"""Copies that are added up: in one pass or in two, with the same result."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotkeep.disk import checksum_copy as module
from spotkeep.disk.checksum_copy import copy_chunks, file_copy
from spotkeep.disk.chunk_checksums import chunk_checksum
from spotkeep.disk.manifest import CHUNK_BYTES
from spotkeep.native.copy_and_add import is_available
from spotkeep.state.arrays import DeviceBytes
from spotkeep.state.encoding import Blob

IN_ONE_PASS = [
    pytest.param(True, id="one pass", marks=pytest.mark.skipif(not is_available(), reason="not compiled for this")),
    pytest.param(False, id="two passes"),
]


class OnDevice(DeviceBytes):
    """Bytes that another copier has copied already."""

    def __init__(self, size):
        self._size = size

    def __len__(self):
        return self._size


@pytest.mark.parametrize("in_one_pass", IN_ONE_PASS)
@given(
    layout=st.lists(
        st.tuples(st.integers(0, 300_000), st.integers(0, 3 * CHUNK_BYTES), st.booleans(), st.booleans()), max_size=12
    ),
    order=st.randoms(use_true_random=False),
)
@settings(max_examples=40)
def test_blobs_of_any_size_at_any_place_are_copied_and_added_up(in_one_pass, layout, order):
    blobs, end, noise = [], 0, np.random.default_rng(0)
    expected, there = bytearray(), bytearray()
    for gap, size, on_device, writable in layout:
        raw = noise.bytes(size)
        blobs.append(Blob(end + gap, OnDevice(size) if on_device else bytearray(raw) if writable else raw))
        expected += bytes(gap) + raw
        # What is not written yet is not zeros: the memory is that of the save before.
        there += b"\xff" * gap + (raw if on_device else b"\xff" * size)
        end += gap + size
    expected += bytes(-len(expected) % 4096)
    there += b"\xff" * (len(expected) - len(there))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "is_available", lambda: in_one_pass)
        content = file_copy(memoryview(there), blobs)
        starts = list(range(0, len(there), 2 * CHUNK_BYTES))
        order.shuffle(starts)
        checksums = {start: content.copy(start, min(start + 2 * CHUNK_BYTES, len(there))) for start in starts}
    assert there == expected
    assert [checksum for start in sorted(checksums) for checksum in checksums[start]] == [
        chunk_checksum(expected[start : start + CHUNK_BYTES]) for start in range(0, len(expected), CHUNK_BYTES)
    ]


@pytest.mark.parametrize("in_one_pass", IN_ONE_PASS)
def test_it_is_what_a_blob_is_when_it_is_copied(in_one_pass, monkeypatch):
    monkeypatch.setattr(module, "is_available", lambda: in_one_pass)
    weights, memory = np.zeros(100_000, dtype="u1"), memoryview(bytearray(102_400))
    content = file_copy(memory, [Blob(0, weights.data)])
    weights += 1
    content.copy(0, len(memory))
    assert memory[:100_000] == weights.tobytes()


@pytest.mark.parametrize("in_one_pass", IN_ONE_PASS)
def test_a_file_without_a_byte_has_no_chunk(in_one_pass, monkeypatch):
    monkeypatch.setattr(module, "is_available", lambda: in_one_pass)
    assert file_copy(memoryview(b""), [Blob(0, b"")]).copy(0, 0) == []


@pytest.mark.parametrize("in_one_pass", IN_ONE_PASS)
@pytest.mark.parametrize("size", [1, 4095, CHUNK_BYTES, 2 * CHUNK_BYTES, 2 * CHUNK_BYTES + 100_000])
def test_chunks_are_copied_and_their_checksums_are_given(in_one_pass, size, monkeypatch):
    monkeypatch.setattr(module, "is_available", lambda: in_one_pass)
    source, around = np.random.default_rng(0).bytes(size), bytearray(size + 2)
    checksums = copy_chunks(memoryview(around)[1 : size + 1], memoryview(source))
    assert checksums == [chunk_checksum(source[start : start + CHUNK_BYTES]) for start in range(0, size, CHUNK_BYTES)]
    assert around == b"\0" + source + b"\0"
