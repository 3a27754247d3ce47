"""The random numbers of a process come back, and what is drawn apart leaves them alone."""

# ruff: noqa: S311 - any random numbers will do

from __future__ import annotations

import random

import numpy as np
import pytest

from spotkeep import Checkpointer, RandomStates
from spotkeep.state.random_states import (
    RandomLane,
    capture_random_states,
    restore_random_states,
    seeded_random_numbers,
    seeded_random_states,
)


def draw():
    return random.random(), random.gauss(0, 1), float(np.random.random()), float(np.random.standard_normal())


def test_they_come_back_from_a_checkpoint(tmp_path):
    draw()
    with Checkpointer({"random": RandomStates()}, tmp_path) as checkpointer:
        checkpointer.save(1)
    expected = [draw() for _ in range(700)]
    with Checkpointer({"random": RandomStates()}, tmp_path):
        assert [draw() for _ in range(700)] == expected


def test_a_lane_goes_on_where_it_was_and_leaves_the_others_alone():
    before = capture_random_states()
    lane = RandomLane(seeded_random_states(b"lane"))
    apart = []
    for _ in range(3):
        with lane:
            apart.append(draw())
    with RandomLane(seeded_random_states(b"lane")):
        assert [draw() for _ in range(3)] == apart
    expected = draw()
    restore_random_states(before)
    assert draw() == expected


def test_numbers_follow_from_the_key():
    def drawn(key):
        with seeded_random_numbers(key):
            return draw()

    assert drawn(b"a") == drawn(b"a")
    assert not set(drawn(b"a")) & set(drawn(b"b"))


@pytest.mark.torch
def test_torchs_numbers_come_back_too(tmp_path):
    torch = pytest.importorskip("torch")
    torch.rand(3)
    with Checkpointer({"random": RandomStates()}, tmp_path) as checkpointer:
        checkpointer.save(1)
    expected = torch.rand(9)
    with seeded_random_numbers(b"other"):
        torch.rand(5)
    with Checkpointer({"random": RandomStates()}, tmp_path):
        assert torch.equal(torch.rand(9), expected)


@pytest.mark.torch
@pytest.mark.parametrize("here", [2, 1])
def test_the_numbers_of_each_gpu_come_back_where_there_is_one(monkeypatch, caplog, here):
    torch = pytest.importorskip("torch")
    restored = {}
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: [torch.tensor([0]), torch.tensor([1])])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: here)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: restored.update({device: int(state)}))
    restore_random_states(capture_random_states())
    assert restored == {device: device for device in range(here)}
    assert ("random states of 2 GPUs and there are 1 here" in caplog.text) is (here == 1)
