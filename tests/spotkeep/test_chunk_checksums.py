"""The checksum of a chunk: fast, the same with and without NumPy, and sensitive to what disks do."""

from __future__ import annotations

import random
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotkeep import chunk_checksums
from spotkeep.chunk_checksums import chunk_checksum

ROW = 511 * 8
LENGTHS = [0, 1, ROW - 1, ROW, ROW + 1, 3 * ROW + 5, 128 * ROW, 129 * ROW + 8, 2**20]


def noise(length, seed=0):
    return random.Random(seed).randbytes(length)  # noqa: S311 - not secret


def by_the_book(raw):
    """The definition of docs/checkpoint-format.md, written down once more."""
    rows = [struct.unpack("<511Q", raw[start : start + ROW]) for start in range(0, len(raw) // ROW * ROW, ROW)]
    columns = [sum(column) % 2**64 for column in zip(*rows, strict=True)]
    across = [sum(row) % 2**64 for row in rows]
    sums = struct.pack(f"<{len(columns) + len(across)}Q", *columns, *across)
    return f"{zlib.crc32(sums + raw[len(rows) * ROW :]):08x}"


@pytest.mark.parametrize("length", LENGTHS)
def test_it_is_what_the_format_says_with_and_without_numpy(length, monkeypatch):
    raw = noise(length)
    assert chunk_checksum(raw) == by_the_book(raw)
    monkeypatch.setattr(chunk_checksums, "_numpy", lambda size: None)
    assert chunk_checksum(raw) == by_the_book(raw)


@given(data=st.data(), length=st.sampled_from(LENGTHS[1:7]))
@settings(max_examples=200, deadline=None)
def test_any_flipped_bit_is_noticed(data, length):
    raw = bytearray(noise(length))
    before = chunk_checksum(raw)
    bit = data.draw(st.integers(0, length * 8 - 1))
    raw[bit // 8] ^= 1 << bit % 8
    assert chunk_checksum(raw) != before


@pytest.mark.parametrize("value", [1.0, 2.0, -2.0, 0.5])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("lost", [512, 4096, 65536, 2**20])
def test_bytes_that_were_lost_are_noticed_in_constant_arrays_too(value, dtype, lost):
    raw = bytearray(np.full(2**20 // np.dtype(dtype).itemsize, value, dtype=dtype).tobytes())
    before = chunk_checksum(raw)
    for start in (0, (2**20 - lost) // 2 // 512 * 512, 2**20 - lost):
        damaged = bytearray(raw)
        damaged[start : start + lost] = bytes(lost)
        assert chunk_checksum(damaged) != before


@given(st.integers(0, 254), st.integers(0, 254))
@settings(max_examples=50, deadline=None)
def test_blocks_that_changed_places_are_noticed(first, second):
    raw = bytearray(noise(2**20))
    before = chunk_checksum(raw)
    one, other = slice(first * 4096, first * 4096 + 4096), slice(second * 4096, second * 4096 + 4096)
    raw[one], raw[other] = raw[other], raw[one]
    assert (chunk_checksum(raw) != before) == (first != second)
