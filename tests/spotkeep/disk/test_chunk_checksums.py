"""The checksum of a chunk: fast, the same with and without NumPy, and sensitive to what disks do."""

from __future__ import annotations

import random
import struct
import sys
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotkeep.disk import chunk_checksums
from spotkeep.disk.chunk_checksums import ChunkSums, chunk_checksum

ROW = 511 * 8
LENGTHS = [0, 1, ROW - 1, ROW, ROW + 1, 3 * ROW + 5, 128 * ROW, 129 * ROW + 8, 2**20]


def noise(length, seed=0):
    return random.Random(seed).randbytes(length)  # noqa: S311 - not secret


def by_the_book(raw):
    """The definition of docs/checkpoint-format.md, written down once more."""
    rows = [struct.unpack("<511Q", raw[start : start + ROW]) for start in range(0, len(raw) // ROW * ROW, ROW)]
    columns = [sum(column) % 2**64 for column in zip(*rows, strict=True)]
    return f"{zlib.crc32(struct.pack(f'<{len(columns)}Q', *columns) + raw[len(rows) * ROW :]):08x}"


@pytest.mark.parametrize("length", LENGTHS)
def test_it_is_what_the_format_says_with_and_without_numpy(length, monkeypatch):
    raw = noise(length)
    assert chunk_checksum(raw) == by_the_book(raw)
    monkeypatch.setattr(chunk_checksums, "_numpy", lambda size: None)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert chunk_checksum(raw) == by_the_book(raw)


@pytest.mark.torch
@pytest.mark.parametrize("length", LENGTHS)
def test_torch_adds_up_alike_where_numpy_is_not_there(length, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(chunk_checksums, "_numpy", lambda size: None)
    monkeypatch.setattr(chunk_checksums, "_sums", None)
    raw = bytearray(noise(length))
    assert chunk_checksum(raw) == by_the_book(raw)


@pytest.mark.parametrize("numpy_there", [True, False])
@pytest.mark.parametrize("parts_per_chunk", [1, 2, 4])
@pytest.mark.parametrize("chunk_bytes", [64, ROW, 4 * ROW, 2**14])
@given(data=st.data(), length=st.sampled_from([*LENGTHS[:-1], 5 * 2**14]))
@settings(max_examples=20, deadline=None)
def test_they_are_the_same_when_chunks_arrive_in_parts(numpy_there, parts_per_chunk, chunk_bytes, data, length):
    raw, target = noise(length), memoryview(bytearray(length))
    part_bytes = chunk_bytes // parts_per_chunk
    chunks = data.draw(st.permutations(range(-(-length // chunk_bytes))))
    with pytest.MonkeyPatch.context() as patch:
        if not numpy_there:
            patch.setattr(chunk_checksums, "_numpy", lambda size: None)
        sums = ChunkSums(target, chunk_bytes=chunk_bytes, part_bytes=part_bytes)
        for chunk in chunks:
            for start in range(chunk * chunk_bytes, min((chunk + 1) * chunk_bytes, length), part_bytes):
                end = min(start + part_bytes, (chunk + 1) * chunk_bytes)
                target[start:end] = raw[start:end]
                sums.arrived(start // part_bytes)
        found = [sums.checksums(chunk, chunk + 1)[0] for chunk in range(len(chunks))]
    assert found == [by_the_book(raw[start : start + chunk_bytes]) for start in range(0, length, chunk_bytes)]


@given(data=st.data(), length=st.sampled_from(LENGTHS[1:7]))
@settings(max_examples=200, deadline=None)
def test_any_flipped_bit_is_noticed(data, length):
    raw = bytearray(noise(length))
    before = chunk_checksum(raw)
    bit = data.draw(st.integers(0, length * 8 - 1))
    raw[bit // 8] ^= 1 << bit % 8
    assert chunk_checksum(raw) != before


@given(data=st.data(), length=st.sampled_from(LENGTHS[1:]))
def test_whatever_is_altered_within_a_row_is_noticed(data, length):
    raw = bytearray(noise(length))
    before = chunk_checksum(raw)
    size = data.draw(st.integers(1, min(length, ROW - 7)))
    start = data.draw(st.integers(0, length - size))
    other = noise(size, seed=data.draw(st.integers(1, 5)))
    changed = raw[start : start + size] != other
    raw[start : start + size] = other
    assert (chunk_checksum(raw) != before) == changed


WORDS = st.one_of(
    st.sampled_from([struct.pack("<d", value) for value in (1.0, 2.0, -2.0, 0.5, 2.0**-1022)]),
    st.sampled_from([struct.pack("<ff", value, value) for value in (1.0, 2.0, -2.0)]),
    st.integers(1, 2**64 - 1).map(lambda word: struct.pack("<Q", word)),
    st.integers(0, 63).map(lambda bit: struct.pack("<Q", 2**bit)),
)


@given(word=WORDS, lost=st.integers(1, 256), data=st.data())
def test_blocks_that_read_as_zeros_are_noticed_whatever_equal_words_were_there(word, lost, data):
    raw = bytearray(word * 2**17)
    before = chunk_checksum(raw)
    start = data.draw(st.integers(0, 256 - lost)) * 4096
    raw[start : start + lost * 4096] = bytes(lost * 4096)
    assert chunk_checksum(raw) != before


@given(st.integers(0, 254), st.integers(0, 254))
@settings(max_examples=50, deadline=None)
def test_blocks_that_changed_places_are_noticed(first, second):
    raw = bytearray(noise(2**20))
    before = chunk_checksum(raw)
    one, other = slice(first * 4096, first * 4096 + 4096), slice(second * 4096, second * 4096 + 4096)
    raw[one], raw[other] = raw[other], raw[one]
    assert (chunk_checksum(raw) != before) == (first != second)


def test_what_the_format_says_is_not_noticed_is_not():
    raw = noise(2**20)
    swapped = raw[ROW : 2 * ROW] + raw[:ROW] + raw[2 * ROW :]
    assert chunk_checksum(swapped) == chunk_checksum(raw)
