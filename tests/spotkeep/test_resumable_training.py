"""Loops over epochs and batches: interrupted after any step, the run ends where one that was left alone ends."""

from __future__ import annotations

import os
import random
import signal

import numpy as np
import pytest

from spotkeep import ResumableTraining, UsageError

EPOCHS = 3


class Killed(BaseException):
    """The process is gone."""


class Shuffled:
    """Batches in a new order each time, by the global random numbers, some of them drawn late."""

    def __init__(self, count=5):
        self.count = count

    def __iter__(self):
        order = random.sample(range(self.count), self.count)
        for index in order:
            yield index + random.random()


def run(directory, *, stop_after=None, notice=False, body=None, **options):
    """One process: gone, or told to go, after so many batches of its own. Gives what it had learned, None if it ended."""
    random.seed(1)
    np.random.seed(2)  # noqa: NPY002
    learned = {"values": []}
    seen = 0

    def batch_done():
        nonlocal seen
        seen += 1
        if seen == stop_after:
            if not notice:
                raise Killed
            os.kill(os.getpid(), signal.SIGTERM)

    training = ResumableTraining({"learned": learned}, directory=directory, **{"every_steps": 1, **options})
    try:
        (body or one_loop)(training, learned["values"], batch_done)
    except (Killed, SystemExit) as ending:
        assert notice == (isinstance(ending, SystemExit) and ending.code == 75)
        return None
    return learned["values"], random.random(), float(np.random.random())  # noqa: NPY002


def one_loop(training, values, batch_done):
    loader = training.loader(Shuffled())
    for epoch in training.epochs(range(10, 10 + EPOCHS)):
        scale = random.random()
        for number, batch in enumerate(loader, loader.start):
            values.append((epoch, number, batch * scale + random.random() + float(np.random.random())))  # noqa: NPY002
            batch_done()
        values.append(("validated", random.random()))


def two_at_once(training, values, batch_done):
    first, second = training.loader(Shuffled(4)), training.loader(Shuffled(6))
    for epoch in training.epochs(EPOCHS):
        for pair in zip(first, second):
            values.append((epoch, pair, random.random()))
            batch_done()


def two_in_turn(training, values, batch_done):
    first, second = training.loader(Shuffled(3)), training.loader([1, 2])
    for epoch in training.epochs(EPOCHS):
        for batch in first:
            values.append((epoch, batch, random.random()))
            batch_done()
        for batch in second:
            values.append((epoch, batch, random.random()))
            batch_done()


def made_in_each_epoch(training, values, batch_done):
    for epoch in training.epochs(EPOCHS):
        for _ in range(2):
            for batch in training.loader(Shuffled(3)):
                values.append((epoch, batch, random.random()))
                batch_done()


def the_same_twice(training, values, batch_done):
    loader = training.loader(Shuffled(3))
    for epoch in training.epochs(EPOCHS):
        for _ in range(2):
            for batch in loader:
                values.append((epoch, batch, random.random()))
                batch_done()


def left_early(training, values, batch_done):
    loader = training.loader(Shuffled(9))
    for _epoch in training.epochs(EPOCHS):
        for number, batch in enumerate(loader, loader.start):
            values.append((batch, random.random()))
            batch_done()
            if number == 2:
                break


BODIES = [one_loop, two_at_once, two_in_turn, made_in_each_epoch, the_same_twice, left_early]


@pytest.mark.parametrize("notice", [False, True], ids=["killed", "noticed"])
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_interrupted_after_any_batch_it_ends_where_an_undisturbed_run_ends(tmp_path, body, notice):
    expected = run(tmp_path / "undisturbed", body=body)
    for stop_after in range(1, len(expected[0])):
        directory = tmp_path / str(stop_after)
        if run(directory, stop_after=stop_after, notice=notice, body=body) is None:
            assert run(directory, body=body) == expected, f"stopped after batch {stop_after}"


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_interrupted_again_and_again(tmp_path, body):
    expected = run(tmp_path / "undisturbed", body=body)
    for attempt in range(40):
        result = run(tmp_path / "run", body=body, stop_after=2, notice=attempt % 3 == 0)
        if result is not None:
            break
    assert result == expected


def test_a_save_each_few_steps_loses_only_those_after_it(tmp_path):
    expected = run(tmp_path / "undisturbed")
    for stop_after in range(1, 15):
        assert run(tmp_path / str(stop_after), stop_after=stop_after, every_steps=4) is None
        assert run(tmp_path / str(stop_after), every_steps=4) == expected
