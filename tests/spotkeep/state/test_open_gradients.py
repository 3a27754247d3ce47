"""Gradients that are added up for a later step: a loop over batches saves them, one that counts steps warns."""

from __future__ import annotations

import os
import signal

import pytest

from spotkeep import Checkpointer, ResumableTraining
from spotkeep.state import open_gradients
from spotkeep.state.open_gradients import OpenGradients

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch

BATCHES = 5
WARNING = "an optimizer adds up gradients over several steps of this loop"


def trained(directory, *, batches_per_step, zeroed="after", every=3, stop_after=None):
    """Train two epochs of five batches, a step of the optimizer each `every` batches; gives None if it left."""
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    state = {"model": model, "optimizers": [optimizer]}
    training = ResumableTraining(state, directory=directory, every_steps=1, batches_per_step=batches_per_step)
    loader = training.loader([torch.full((2,), float(number)) for number in range(BATCHES)])
    done = 0
    try:
        for _epoch in training.epochs(2):
            for number, batch in enumerate(loader, loader.start):
                if zeroed == "before" and number % every == 0:
                    optimizer.zero_grad()
                (model(batch) - batch).pow(2).sum().backward()
                if (number + 1) % every == 0:
                    optimizer.step()
                    if zeroed == "after":
                        optimizer.zero_grad()
                done += 1
                if done == stop_after:
                    os.kill(os.getpid(), signal.SIGTERM)
    except SystemExit:
        return None
    return model.weight.tolist()


@pytest.mark.parametrize(("batches_per_step", "zeroed"), [(3, "after"), (1, "after"), (1, "before")])
def test_gradients_that_are_open_come_back(tmp_path, batches_per_step, zeroed):
    expected = trained(tmp_path / "undisturbed", batches_per_step=batches_per_step, zeroed=zeroed)
    for stop_after in (1, BATCHES):
        options = {"batches_per_step": batches_per_step, "zeroed": zeroed}
        directory = tmp_path / str(stop_after)
        assert trained(directory, stop_after=stop_after, **options) is None
        assert trained(directory, **options) == expected, f"interrupted after {stop_after} batches"


def test_after_a_step_of_the_optimizer_no_gradient_is_saved():
    """It is there still: a loop may set it to zero before the next batch."""
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    gradients = OpenGradients({"optimizer": optimizer})
    saved = []
    for steps in (False, True):
        gradients.begin_batch()
        model(torch.ones(2)).sum().backward()
        if steps:
            optimizer.step()
        saved.append(gradients.state_dict()["optimizers"][0] is not None)
    assert saved == [True, False]


def counted_steps(directory, *, every):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Checkpointer({"model": model, "optimizer": optimizer}, directory=directory, every_steps=1) as checkpointer:
        for step in checkpointer.steps(6):
            model(torch.ones(2)).sum().backward()
            if (step + 1) % every == 0:
                optimizer.step()


@pytest.mark.parametrize(("every", "warnings"), [(1, 0), (2, 1)])
def test_a_loop_that_counts_batches_as_steps_is_warned_of_once(tmp_path, caplog, every, warnings):
    counted_steps(tmp_path, every=every)
    assert caplog.text.count(WARNING) == warnings


def loop(directory, *, steps_of, zeroes, every_steps, total=24):
    """Train with an optimizer for each list of batches in which it does its step."""
    parts = [torch.nn.Linear(2, 2) for _ in steps_of]
    optimizers = [torch.optim.SGD(part.parameters(), 0.1) for part in parts]
    state = {"parts": torch.nn.ModuleList(parts), "optimizers": optimizers}
    with Checkpointer(state, directory=directory, every_steps=every_steps) as checkpointer:
        for step in checkpointer.steps(total):
            for optimizer, mine in zip(optimizers, steps_of, strict=True):
                if zeroes(step, mine):
                    optimizer.zero_grad()
            sum(part(torch.ones(2)).sum() for part in parts).backward()
            for optimizer, mine in zip(optimizers, steps_of, strict=True):
                if step in mine:
                    optimizer.step()


EACH, EACH_FOURTH = range(24), range(3, 24, 4)


def after_a_step(step, mine):
    return step - 1 in mine


def before_each_batch(step, mine):
    return True


@pytest.mark.parametrize(
    ("steps_of", "zeroes", "every_steps", "warnings"),
    [
        ([EACH_FOURTH], after_a_step, 20, 1),
        ([EACH_FOURTH, EACH], after_a_step, 20, 1),
        ([EACH_FOURTH, EACH], after_a_step, 2, 1),
        ([EACH], before_each_batch, 20, 0),
        ([EACH_FOURTH, EACH], before_each_batch, 20, 0),
        # A gradient scaler skips the steps of two batches.
        ([[number for number in EACH if number not in (6, 15)]], before_each_batch, 20, 0),
    ],
)
def test_gradients_that_are_added_up_are_warned_of_before_any_interruption(
    tmp_path, caplog, steps_of, zeroes, every_steps, warnings
):
    loop(tmp_path, steps_of=steps_of, zeroes=zeroes, every_steps=every_steps)
    assert caplog.text.count(WARNING) == warnings


def test_a_loop_of_ones_own_that_steps_before_each_save_is_not_warned(tmp_path, caplog):
    while open_gradients._counting:  # as in a new process
        open_gradients._counting.pop().remove()
    open_gradients._steps.clear()
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Checkpointer({"model": model, "optimizer": optimizer}, tmp_path) as checkpointer:
        for step in range(4):
            model(torch.ones(2)).sum().backward()
            optimizer.step()
            checkpointer.save(step + 1)
    assert not caplog.records


def test_gradients_that_a_checkpoint_cannot_hold_are_warned_of_and_left_out(tmp_path, caplog):
    model = torch.nn.Embedding(4, 2, sparse=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    training = ResumableTraining({"model": model, "optimizer": optimizer}, directory=tmp_path, every_steps=1)
    loader = training.loader([1, 2, 3])
    for _epoch in training.epochs(1):
        for number in loader:
            model(torch.tensor([number])).sum().backward()
    assert caplog.text.count("sparse or distributed gradients") == 1
