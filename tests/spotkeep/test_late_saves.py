"""Saves that copy while the training goes on. Each change that no optimizer shows comes at the worst moment.

No checkpoint may hold bytes of two moments, whatever the script does (I2), and each one is the state of its step (I9).
"""

from __future__ import annotations

import copy
import logging
import threading

import pytest

from spotkeep import Checkpointer
from spotkeep.disk.late_copy import LateCopy
from spotkeep.disk.staged_state import RestOfCopy
from spotkeep.native.written_pages import WrittenPages
from spotkeep.schedule.late_copying import COMPARED_EVERY, COMPARED_SAVES, TRIED_SAVES, CopyWay, LateCopying

MEDIANS = LateCopying.medians
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

WIDTH = 640
"""A weight and each of its moments have 1.6 MB, enough to be copied late."""
FIRST_LATE = COMPARED_SAVES + 1
STEPS = COMPARED_SAVES + 3


@pytest.fixture(autouse=True)
def _watched():
    try:
        WrittenPages()
    except OSError as error:
        pytest.skip(f"this system notes no written pages, so nothing is copied late: {error}")


@pytest.fixture(autouse=True)
def late_is_faster(monkeypatch):
    """Copy late on every machine."""
    monkeypatch.setattr(LateCopying, "medians", {CopyWay.LATE: 1.0, CopyWay.AT_ONCE: 2.0})


@pytest.fixture(params=["nothing", "some", "as it comes"])
def copied_before(request, monkeypatch):
    """How much of the state is copied when the script changes it. A test that holds the copy needs no clock."""
    if request.param == "nothing":
        monkeypatch.setattr(LateCopy, "_copy_beside", lambda self: None)
    elif request.param == "some":
        really_copy = LateCopy.copy

        def copy_one_piece(self):
            really_copy(self)
            if self._rest._left:
                next(self._rest._left)()

        monkeypatch.setattr(LateCopy, "_copy_beside", lambda self: None)
        monkeypatch.setattr(LateCopy, "copy", copy_one_piece)
    return request.param


class Ways:
    """Takes note of the saves that went on late."""

    def __init__(self, monkeypatch):
        self.late = 0
        self.parts = set()
        really_copy = LateCopy.copy

        def note(one):
            self.late += not one._compares
            self.parts.add(len(one._parts))
            really_copy(one)

        monkeypatch.setattr(LateCopy, "copy", note)


@pytest.fixture
def ways(monkeypatch, copied_before):
    return Ways(monkeypatch)


def made():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.BatchNorm1d(WIDTH), torch.nn.Linear(WIDTH, WIDTH)
    )
    return model, torch.optim.Adam(model.parameters(), 0.01)


def snapshot(state):
    return {
        name: copy.deepcopy(value.state_dict() if hasattr(value, "state_dict") else value)
        for name, value in state.items()
    }


def equal(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other


def train(directory, *, change=None, changing=(), state=None, steps=STEPS, every_steps=1):
    """Train, and change the state in some steps, right after the save before it. Gives the state of each step."""
    model, optimizer = made() if state is None else (state["model"], state["optimizer"])
    state = state or {"model": model, "optimizer": optimizer}
    states = {}
    with Checkpointer(state, directory, every_steps=every_steps, keep_last=steps + 1) as checkpointer:
        for step in checkpointer.steps(steps):
            if step in changing:
                change(model, optimizer)
            loss = model(torch.randn(4, WIDTH)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            states[step + 1] = snapshot(state)
        saved = checkpointer.all_steps()
    return states, saved


def require_true_checkpoints(directory, states, saved, make=made):
    model, optimizer = make()
    state = {"model": model, "optimizer": optimizer}
    for step in saved:
        for name, value in states[step].items():
            if name not in state:
                state[name] = copy.deepcopy(value)
        Checkpointer(state, directory).restore(step)
        assert equal(snapshot(state), states[step]), f"the checkpoint of step {step} is that state"


def test_a_training_that_only_its_optimizer_changes_is_copied_late_and_each_checkpoint_is_true(tmp_path, ways, caplog):
    states, saved = train(tmp_path)
    assert saved == list(range(1, STEPS + 1))
    assert ways.late == STEPS - COMPARED_SAVES - 1, "the last one has no step after it"
    require_true_checkpoints(tmp_path, states, saved)
    assert "at once" not in caplog.text


def by_hand(model, optimizer):
    with torch.no_grad():
        model[2].weight.add_(0.01)


def clipping(model, optimizer):
    model[2].weight.data.clamp_(-0.001, 0.001)


def clipping_one_element(model, optimizer):
    model[2].weight.data[300, 300] = 7.0


def a_view_of_numpy(model, optimizer):
    model[2].weight.detach().numpy()[WIDTH // 2] = 3


def a_target_that_is_swapped_in_and_out(model, optimizer):
    """As an evaluation with averaged weights does. Only what is copied in between is wrong."""
    weight = model[2].weight.data
    kept = weight.clone()
    weight.mul_(0.5)
    for rest in [late._rest for late in LATE]:
        if rest is not None:  # else all is copied
            rest.finish()
    weight.copy_(kept)


def a_moment(model, optimizer):
    optimizer.state[model[0].weight]["exp_avg_sq"].zero_()


def a_step_whose_hooks_do_not_fire(model, optimizer):
    type(optimizer).step.__wrapped__(optimizer)


def stochastic_weight_averaging(model, optimizer):
    averaged = torch.optim.swa_utils.AveragedModel(model)
    averaged.module[2].weight.data.mul_(0.5)
    for parameter, other in zip(model.parameters(), averaged.module.parameters(), strict=True):
        parameter.data.copy_(other.data)


LATE = []
CHANGES = [
    by_hand,
    clipping,
    clipping_one_element,
    a_view_of_numpy,
    a_target_that_is_swapped_in_and_out,
    a_moment,
    a_step_whose_hooks_do_not_fire,
    stochastic_weight_averaging,
]


@pytest.fixture(autouse=True)
def _late(monkeypatch):
    really_copy = LateCopy.copy

    def note(one):
        really_copy(one)
        LATE[:] = [] if one._compares else [one]

    monkeypatch.setattr(LateCopy, "copy", note)
    yield
    LATE.clear()


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_in_a_late_save_leaves_no_checkpoint_of_that_step_and_the_next_one_is_copied_at_once(
    tmp_path, ways, caplog, copied_before, change
):
    caplog.set_level("INFO", "spotkeep")
    states, saved = train(tmp_path, change=change, changing=[FIRST_LATE])
    require_true_checkpoints(tmp_path, states, saved)
    if copied_before == "as it comes":
        return  # it may have been copied before the change
    assert saved == [step for step in range(1, STEPS + 1) if step != FIRST_LATE]
    assert ways.late == 1, "none after it"
    assert f"no checkpoint of step {FIRST_LATE}: its tensors changed" in caplog.text
    assert "each save copies the whole state at once from now on, because state[" in caplog.text


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_in_a_compared_save_turns_late_copies_off_and_costs_no_checkpoint(
    tmp_path, monkeypatch, caplog, change
):
    ways = Ways(monkeypatch)
    caplog.set_level("INFO", "spotkeep")
    states, saved = train(tmp_path, change=change, changing=[2])
    assert saved == list(range(1, STEPS + 1))
    require_true_checkpoints(tmp_path, states, saved)
    assert ways.late == 0
    assert "from now on, because state[" in caplog.text
    assert "no checkpoint" not in caplog.text


def shared_with_a_process(model, optimizer):
    model.share_memory()


def given_back(model, optimizer):
    """As a script that keeps a model elsewhere for a while."""
    storage, kept = model[2].weight.untyped_storage(), model[2].weight.detach().clone()
    size = storage.nbytes()
    storage.resize_(0)
    between = torch.full_like(kept, 5)  # it may get the memory
    storage.resize_(size)
    model[2].weight.data.copy_(kept)
    del between


@pytest.mark.parametrize("change", [shared_with_a_process, given_back], ids=lambda change: change.__name__)
@pytest.mark.parametrize("changing", [2, FIRST_LATE])
def test_memory_that_a_tensor_gives_back_is_not_read_any_more(tmp_path, ways, copied_before, caplog, change, changing):
    caplog.set_level("INFO", "spotkeep")
    states, saved = train(tmp_path, change=change, changing=[changing])
    require_true_checkpoints(tmp_path, states, saved)
    if changing == 2 or copied_before != "as it comes":
        lost = [] if changing == 2 else [FIRST_LATE]
        assert saved == [step for step in range(1, STEPS + 1) if step not in lost]
        assert "changed between two steps of an optimizer" in caplog.text


def test_moments_with_other_memory_cost_no_checkpoint(tmp_path, ways):
    """As a script that keeps them on another device for a while. The copy is that of the memory they had."""

    def moved(model, optimizer):
        for values in optimizer.state.values():
            for value in values.values():
                value.data = value.data.clone()

    states, saved = train(tmp_path, change=moved, changing=[2, FIRST_LATE])
    assert saved == list(range(1, STEPS + 1))
    assert ways.late == STEPS - COMPARED_SAVES - 1
    require_true_checkpoints(tmp_path, states, saved)


@pytest.mark.parametrize("late_takes", [0.5, 2.0])
def test_both_ways_are_tried_and_the_faster_one_stays(tmp_path, monkeypatch, caplog, late_takes):
    caplog.set_level(logging.INFO, "spotkeep")
    monkeypatch.setattr(LateCopying, "medians", MEDIANS)
    ways = Ways(monkeypatch)
    measured = []

    def took(choice, way, seconds):
        assert 0 < seconds < 600
        measured.append(way)
        really_took(choice, way, late_takes if way is CopyWay.LATE else 1.0)

    really_took = LateCopying.took
    monkeypatch.setattr(LateCopying, "took", took)
    tried = COMPARED_SAVES + 2 * TRIED_SAVES
    states, saved = train(tmp_path, steps=tried + 4)
    assert saved == list(range(1, tried + 5))
    in_turn = [CopyWay.LATE, CopyWay.AT_ONCE, CopyWay.AT_ONCE, CopyWay.LATE] * (TRIED_SAVES // 2)
    assert measured == [CopyWay.COMPARED] * COMPARED_SAVES + in_turn
    assert ways.late == TRIED_SAVES + (3 if late_takes < 1 else 0)
    require_true_checkpoints(tmp_path, states, saved)
    assert f"saves copy the state {'beside the next step' if late_takes < 1 else 'at once'} from now on" in caplog.text


def test_one_save_in_a_hundred_is_compared(tmp_path, monkeypatch):
    compared = []
    really_copy = LateCopy.copy

    def note(one):
        compared.append(one._compares)
        really_copy(one)

    monkeypatch.setattr(LateCopy, "copy", note)
    monkeypatch.setattr("spotkeep.schedule.late_copying.COMPARED_EVERY", 4)
    train(tmp_path, steps=COMPARED_SAVES + 9)
    assert compared == [True] * COMPARED_SAVES + [False, False, False, True] * 2
    assert COMPARED_EVERY == 100


def test_buffers_and_plain_tensors_are_copied_at_once(tmp_path, monkeypatch):
    """They change without a step of an optimizer: by a forward pass, an average, the script."""
    monkeypatch.setattr(LateCopy, "_copy_beside", lambda self: None)
    ways = Ways(monkeypatch)
    model, optimizer = made()
    ema = torch.rand(WIDTH, WIDTH)
    model.register_buffer("large", torch.rand(WIDTH, WIDTH))
    state = {"model": model, "optimizer": optimizer, "ema": ema}

    def change(model, optimizer):
        ema.mul_(0.5)
        model.large.add_(1)
        model(torch.randn(4, WIDTH))

    states, saved = train(tmp_path, change=change, changing=range(1, STEPS), state=state)
    assert saved == list(range(1, STEPS + 1))
    assert ways.late == STEPS - COMPARED_SAVES - 1

    def make():
        model, optimizer = made()
        model.register_buffer("large", torch.rand(WIDTH, WIDTH))
        return model, optimizer

    require_true_checkpoints(tmp_path, states, saved, make=make)


def test_spectral_norm_and_optimizers_inside_the_backward_are_true_too(tmp_path, monkeypatch):
    monkeypatch.setattr(LateCopy, "_copy_beside", lambda self: None)
    ways = Ways(monkeypatch)

    def make():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH))
        torch.nn.utils.parametrizations.spectral_norm(model[0])
        return model, [torch.optim.Adam([parameter]) for parameter in model.parameters()]

    model, optimizers = make()
    for optimizer in optimizers:
        (parameter,) = optimizer.param_groups[0]["params"]

        def step(parameter, optimizer=optimizer):
            optimizer.step()
            optimizer.zero_grad()

        parameter.register_post_accumulate_grad_hook(step)
    states = {}
    state = {"model": model, "optimizers": optimizers}
    with Checkpointer(state, tmp_path, every_steps=1, keep_last=STEPS) as checkpointer:
        for step in checkpointer.steps(STEPS):
            model(torch.randn(4, WIDTH)).square().mean().backward()
            states[step + 1] = snapshot({"model": model}), [snapshot({"one": one}) for one in optimizers]
        saved = checkpointer.all_steps()
    assert saved == list(range(1, STEPS + 1))
    assert ways.late == STEPS - COMPARED_SAVES - 1
    for step in saved:
        model, optimizers = make()
        Checkpointer({"model": model, "optimizers": optimizers}, tmp_path).restore(step)
        found = snapshot({"model": model}), [snapshot({"one": one}) for one in optimizers]
        assert equal(found, states[step])


def test_a_loop_that_is_left_has_copied_all_before_the_script_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(LateCopy, "_copy_beside", lambda self: None)
    model, optimizer = made()
    with Checkpointer({"model": model, "optimizer": optimizer}, tmp_path, every_steps=1) as checkpointer:
        for step in checkpointer.steps(STEPS):
            if step == FIRST_LATE:
                break
            model(torch.randn(4, WIDTH)).square().mean().backward()
            optimizer.step()
            expected = snapshot({"model": model})
        by_hand(model, optimizer)
    model, optimizer = made()
    assert Checkpointer({"model": model, "optimizer": optimizer}, tmp_path).restore() == FIRST_LATE
    assert equal(snapshot({"model": model}), expected)


def test_a_save_that_the_script_asks_for_is_copied_when_the_call_returns(tmp_path, monkeypatch):
    ways = Ways(monkeypatch)
    model, optimizer = made()
    with Checkpointer({"model": model, "optimizer": optimizer}, tmp_path, every_steps=10**9) as checkpointer:
        for step in range(1, STEPS):
            model(torch.randn(4, WIDTH)).square().mean().backward()
            optimizer.step()
            checkpointer.save(step, wait=False)
            expected = snapshot({"model": model})
            by_hand(model, optimizer)
    assert ways.late == 0
    model, optimizer = made()
    Checkpointer({"model": model, "optimizer": optimizer}, tmp_path).restore()
    assert equal(snapshot({"model": model}), expected)


def test_where_the_system_watches_nothing_all_is_copied_at_once(tmp_path, caplog, monkeypatch):
    def refuse(self):
        raise PermissionError(1, "userfaultfd: Operation not permitted")

    monkeypatch.setattr(WrittenPages, "__init__", refuse)
    caplog.set_level("INFO", "spotkeep")
    states, saved = train(tmp_path, change=clipping, changing=range(1, STEPS))
    assert saved == list(range(1, STEPS + 1))
    require_true_checkpoints(tmp_path, states, saved)
    assert "at once from now on, because the system does not watch it for changes: [Errno 1] userfaultfd" in caplog.text


def test_memory_that_another_process_may_write_to_is_copied_at_once(tmp_path, monkeypatch):
    ways = Ways(monkeypatch)
    model, optimizer = made()
    model.share_memory()
    train(tmp_path, state={"model": model, "optimizer": optimizer})
    moments = sum(value.numel() == WIDTH**2 for values in optimizer.state.values() for value in values.values())
    assert ways.parts == {moments}, "these are this process's own"


def test_where_no_thread_can_be_started_the_training_copies_when_it_has_to(tmp_path, monkeypatch):
    really_start = threading.Thread.start

    def refuse(thread):
        if thread.name.startswith(("spotkeep-save", "spotkeep-late", "spotkeep-helper")):
            raise RuntimeError("can't start new thread")
        really_start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    states, saved = train(tmp_path)
    assert saved == list(range(1, STEPS + 1))
    require_true_checkpoints(tmp_path, states, saved)


def test_an_interruption_of_the_training_while_it_waits_for_the_copy_is_no_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(LateCopy, "_copy_beside", lambda self: None)
    really_finish = RestOfCopy.finish

    def interrupt(rest):
        if rest._left:
            raise KeyboardInterrupt
        really_finish(rest)

    def from_now_on(*_):
        monkeypatch.setattr(RestOfCopy, "finish", interrupt)

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, change=from_now_on, changing=[FIRST_LATE])
    model, optimizer = made()
    assert Checkpointer({"model": model, "optimizer": optimizer}, tmp_path).restore() == FIRST_LATE - 1
