"""Lines before the loop over the batches run twice in an interrupted epoch, and the log names what they change."""

from __future__ import annotations

import logging
from contextlib import suppress
from types import SimpleNamespace

import pytest

from spotkeep import ResumableTraining
from spotkeep.loops.replayed_start import ReplayedStart


class Killed(BaseException):
    """The process is gone."""


class Schedule:
    """As a schedule of a learning rate, which counts its steps."""

    def __init__(self):
        self.last_epoch = 0

    def step(self):
        self.last_epoch += 1

    def state_dict(self):
        return {"last_epoch": self.last_epoch}

    def load_state_dict(self, state):
        self.last_epoch = state["last_epoch"]


def trained(directory, before_loop, *, stop_after=None):
    """One process, which is gone after so many batches. `before_loop` is done at the start of each epoch."""
    schedule, counts = Schedule(), {"batches": 0, "epochs": [0]}
    training = ResumableTraining({"schedule": schedule, "counts": counts}, directory=directory, every_steps=1)
    loader, done = training.loader([1, 2, 3]), 0
    with suppress(Killed):
        for epoch in training.epochs(2):
            before_loop(epoch, schedule, counts, loader)
            for _ in loader:
                counts["batches"] += 1
                done += 1
                if done == stop_after:
                    raise Killed
    return schedule.last_epoch, counts


def step_of_schedule(epoch, schedule, counts, loader):
    schedule.step()


def reset(epoch, schedule, counts, loader):
    counts["batches"] = 0


def same_twice(epoch, schedule, counts, loader):
    counts["epochs"][0] = epoch


def only_at_its_start(epoch, schedule, counts, loader):
    if loader.start == 0:
        schedule.step()
        counts["batches"] = 0


@pytest.mark.parametrize(
    ("before_loop", "named"),
    [
        (step_of_schedule, "state['schedule']['last_epoch'] from 1 to 2"),
        (reset, "state['counts']['batches'] from 1 to 0"),
    ],
)
def test_a_change_that_is_made_twice_is_named(tmp_path, caplog, before_loop, named):
    trained(tmp_path, before_loop, stop_after=2)
    caplog.set_level(logging.WARNING, logger="spotkeep")
    trained(tmp_path, before_loop)
    (said,) = (record.getMessage() for record in caplog.records if "have run twice" in record.getMessage())
    assert named in said


@pytest.mark.parametrize("before_loop", [same_twice, only_at_its_start])
def test_changes_that_may_be_made_twice_are_silent_and_the_run_ends_as_one_left_alone(tmp_path, caplog, before_loop):
    caplog.set_level(logging.WARNING, logger="spotkeep")
    trained(tmp_path / "cut", before_loop, stop_after=2)
    assert trained(tmp_path / "cut", before_loop) == trained(tmp_path / "alone", before_loop)
    assert "have run twice" not in caplog.text


def test_an_epoch_that_begins_at_its_start_is_silent(tmp_path, caplog):
    caplog.set_level(logging.WARNING, logger="spotkeep")
    trained(tmp_path, step_of_schedule, stop_after=4)
    assert trained(tmp_path, step_of_schedule) == (2, {"batches": 6, "epochs": [0]})
    assert "have run twice" not in caplog.text


def test_a_value_that_equals_nothing_is_no_change(caplog):
    given = {"step": lambda: None, "load_state_dict": lambda _: None}
    best = SimpleNamespace(state_dict=lambda: {"best": float("nan")}, **given)
    ReplayedStart({"schedule": best, "loss": float("nan")}).is_over()
    assert caplog.text == ""


def test_options_of_an_optimizer_count_and_its_parameters_and_loaders_do_not(caplog):
    groups = [{"params": [1], "lr": 0.1, "betas": (0.9, 0.99)}]
    optimizer = SimpleNamespace(step=lambda: None, param_groups=groups)
    loader = SimpleNamespace(state_dict=lambda: {"place": loader.place}, load_state_dict=None, place=0)
    start = ReplayedStart({"optimizer": optimizer, "loader": loader})
    groups[0]["params"], loader.place = [2], 1
    start.is_over()
    assert caplog.text == ""
    groups[0].update(lr=0.2, betas=(0.5, 0.99))
    start.is_over()
    assert "state['optimizer'].param_groups[0]['lr'] from 0.1 to 0.2 and 1 more" in caplog.text
