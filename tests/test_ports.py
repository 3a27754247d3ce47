"""The ports of tests, which run beside each other."""

from __future__ import annotations

import random

import pytest

from tests.ports import free_ports


def test_ports_that_a_test_has_got_and_does_not_listen_at_yet_are_given_to_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = free_ports(2)
    tried = iter(range(first, first + 1000))
    monkeypatch.setattr(random, "randrange", lambda *_: next(tried))
    assert free_ports(2) > first + 1
