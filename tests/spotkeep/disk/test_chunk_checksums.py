"""The checksum of a chunk: fast, the same however it is added up, and sensitive to what disks do."""

from __future__ import annotations

import random
import struct
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.disk import chunk_checksums
from spotkeep.disk.chunk_checksums import chunk_checksum
from spotkeep.native.copy_and_add import is_available

ROW = 511 * 8
LENGTHS = [0, 1, ROW - 1, ROW, ROW + 1, 3 * ROW + 5, 128 * ROW, 129 * ROW + 8, 2**20]


def noise(length, seed=0):
    return random.Random(seed).randbytes(length)  # noqa: S311 - not secret


def by_the_book(raw):
    """The definition of docs/checkpoint-format.md, written down once more."""
    rows = [struct.unpack("<511Q", raw[start : start + ROW]) for start in range(0, len(raw) // ROW * ROW, ROW)]
    columns = [sum(column) % 2**64 for column in zip(*rows, strict=True)]
    return f"{zlib.crc32(struct.pack(f'<{len(columns)}Q', *columns) + raw[len(rows) * ROW :]):08x}"


WAYS = [
    pytest.param("compiled", marks=pytest.mark.skipif(not is_available(), reason="not compiled for this machine")),
    "numpy",
    pytest.param("torch", marks=pytest.mark.torch),
    "python",
]


@pytest.fixture
def only(monkeypatch):
    """Leave one of the ways to add up."""

    def leave(way):
        if way == "torch":
            pytest.importorskip("torch")
        else:
            monkeypatch.delitem(sys.modules, "torch", raising=False)
        monkeypatch.setattr(chunk_checksums, "is_available", lambda: way == "compiled")
        if way != "numpy":
            monkeypatch.setattr(chunk_checksums, "_numpy", lambda size: None)
        if way != "python":
            monkeypatch.setattr(chunk_checksums, "_sums", None)

    return leave


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("length", LENGTHS)
def test_it_is_what_the_format_says_however_it_is_added_up(way, length, only):
    only(way)
    raw = bytearray(noise(length))
    assert chunk_checksum(raw) == by_the_book(raw)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("chunk_bytes", [64, ROW, 4 * ROW, 2**14])
@pytest.mark.parametrize("length", [0, 1, ROW, 12_269, 5 * 2**14])
def test_those_of_many_chunks_are_those_of_each(way, chunk_bytes, length, only):
    only(way)
    raw = bytearray(noise(length))
    expected = [by_the_book(raw[start : start + chunk_bytes]) for start in range(0, length, chunk_bytes)]
    assert chunk_checksums.chunk_checksums(raw, chunk_bytes) == expected


@given(data=st.data(), length=st.sampled_from(LENGTHS[1:7]))
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
