"""The CRC-32 of the compiled routine is zlib's, of any bytes and of any kind of memory."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.native import crc32 as module
from spotkeep.native.copy_and_add import is_available
from spotkeep.native.crc32 import crc32


@given(st.binary(max_size=300), st.integers(0, 3 * 4096), st.integers(0, 70))
def test_it_is_that_of_zlib(piece, size, shift):
    raw = (piece * (size // max(len(piece), 1) + 1))[:size] + piece
    assert crc32(raw) == zlib.crc32(raw)
    view = memoryview(bytes(shift) + raw)[shift:]
    assert crc32(view) == zlib.crc32(raw)


@given(st.integers(0, 2**32 - 1), st.integers(0, 9000))
def test_it_goes_on_from_the_bytes_before(before, size):
    raw = bytes(range(251)) * 40
    assert crc32(raw[:size], before) == zlib.crc32(raw[:size], before)
    assert crc32(raw[size:], crc32(raw[:size])) == zlib.crc32(raw)


@pytest.mark.parametrize("size", [4095, 4096, 4097, 4159, 4160, 2**20, 2**20 + 63])
def test_at_the_edges_of_blocks(size):
    raw = np.random.default_rng(size).integers(0, 256, size, dtype="u1")
    for form in (raw, raw.tobytes(), bytearray(raw), memoryview(raw)):
        assert crc32(form) == zlib.crc32(raw)


def test_arrays_of_wider_numbers_count_by_their_bytes():
    raw = np.arange(5000, dtype="<u4").reshape(50, 100)
    assert crc32(raw) == zlib.crc32(raw.tobytes())


def test_a_changed_bit_is_noticed_wherever_it_is():
    raw = bytearray(8192)
    crcs = {crc32(raw)}
    for position in range(0, 8192, 41):
        raw[position] ^= 1 << position % 8
        crcs.add(crc32(raw))
        raw[position] ^= 1 << position % 8
    assert len(crcs) == 1 + len(range(0, 8192, 41))


def test_without_the_routine_it_is_the_same(monkeypatch):
    raw = bytes(range(256)) * 100
    expected = crc32(raw)
    monkeypatch.setattr(module, "_routine", lambda: None)
    assert crc32(raw) == expected == zlib.crc32(raw)


def test_a_processor_that_cannot_leaves_it_to_zlib(monkeypatch):
    raw = bytes(range(256)) * 100
    monkeypatch.setattr(module, "_routine", lambda: lambda *_: 0)
    assert crc32(raw) == zlib.crc32(raw)


def test_the_routine_is_taken_where_there_is_one(monkeypatch):
    calls = []
    monkeypatch.setattr(module, "_routine", lambda: lambda *arguments: calls.append(arguments) or 0)
    crc32(bytes(4096))
    crc32(bytes(63))
    assert [size for _, size, _, _ in calls] == [4096]
    assert is_available() == (module.library() is not None)
