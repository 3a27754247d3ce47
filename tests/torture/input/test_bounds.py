"""The bounds that parsers are held to do hold."""

from __future__ import annotations

import resource

import pytest

from .bounds import MEBIBYTES_FOR_ONE_INPUT, TooSlowError, bounded


def never_ends() -> None:
    while True:
        pass


def test_what_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.torture.input.bounds.SECONDS_FOR_ONE_INPUT", 0.05)
    with pytest.raises(TooSlowError), bounded():
        never_ends()


def test_what_takes_too_much_memory_is_refused_it() -> None:
    with pytest.raises(MemoryError), bounded():
        bytearray(2 * MEBIBYTES_FOR_ONE_INPUT * 2**20)


def test_afterwards_everything_is_as_before() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with bounded():
        bytearray(2**20)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
