"""The memory that torch's optimizers change in their steps, and the moment before one."""

from __future__ import annotations

import pytest

from spotkeep.state.optimizer_steps import OptimizerSteps, names_of

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def memory_of(tensor):
    return "cpu", tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes


def trained(optimizer):
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def test_it_is_called_before_a_step_changes_anything():
    weight = torch.nn.Parameter(torch.zeros(3))
    seen = []
    steps = OptimizerSteps(before=lambda: seen.append(weight.tolist()))
    trained(torch.optim.SGD([weight], lr=1.0))
    trained(torch.optim.SGD([weight], lr=1.0))
    assert seen == [[0.0] * 3, [-1.0] * 3]
    del steps
    trained(torch.optim.SGD([weight], lr=1.0))
    assert len(seen) == 2, "who is gone is not called"


def test_parameters_and_state_of_an_optimizer_that_did_a_step_are_updated_memory_and_nothing_else():
    stepped, idle, other = (torch.nn.Parameter(torch.zeros(9)) for _ in range(3))
    steps = OptimizerSteps(before=lambda: None)
    optimizer, unused = torch.optim.Adam([stepped]), torch.optim.Adam([idle])
    trained(optimizer)
    updated = steps.take_updated()
    assert updated
    assert updated.holds(memory_of(stepped))
    assert updated.holds(memory_of(optimizer.state[stepped]["exp_avg"]))
    device, start, end = memory_of(stepped)
    assert updated.holds((device, start + 4, end - 4))
    assert not updated.holds((device, start, end + 1))
    assert not updated.holds((device, start - 1, end))
    assert not updated.holds(("cuda:0", start, end))
    assert not any(updated.holds(memory_of(one)) for one in (idle, other))
    assert not steps.take_updated(), "no step since"
    assert not unused.state


def test_a_step_of_a_torch_optimizer_inside_another_object_counts_by_its_own_hook():
    class Wrapper:
        def __init__(self, optimizer):
            self.optimizer = optimizer

        def step(self):
            self.optimizer.step()

    weight = torch.nn.Parameter(torch.zeros(3))
    weight.grad = torch.ones(3)
    steps = OptimizerSteps(before=lambda: None)
    wrapper = Wrapper(torch.optim.SGD([weight], lr=1.0))
    wrapper.step()
    assert steps.take_updated().holds(memory_of(weight))


def test_a_step_that_is_captured_into_a_graph_changes_nothing_and_shows_none(monkeypatch):
    weight = torch.nn.Parameter(torch.zeros(3))
    seen = []
    steps = OptimizerSteps(before=lambda: seen.append(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    trained(optimizer)
    assert not seen
    assert not steps.take_updated()


def test_memory_that_a_gpu_may_write_to_is_left_out(monkeypatch):
    weight = torch.nn.Parameter(torch.zeros(3))
    steps = OptimizerSteps(before=lambda: None)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: tensor is weight)
    trained(optimizer)
    assert not steps.take_updated()


def test_an_update_by_hand_shows_no_step():
    weight = torch.nn.Parameter(torch.zeros(3))
    steps = OptimizerSteps(before=lambda: None)
    with torch.no_grad():
        weight -= 1
    assert not steps.take_updated()


def test_a_changed_tensor_is_named_by_its_place_in_the_state():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    optimizer = torch.optim.Adam(model.parameters())
    trained(optimizer)
    state = {"model": model, "optimizer": optimizer, "plain": torch.zeros(4), "step": 3}
    moment = optimizer.state[model[0].weight]["exp_avg"]
    found = names_of(state, [memory_of(model[1].weight), memory_of(moment), memory_of(state["plain"])])
    assert found == [
        "state['model'].1.weight",
        "state['optimizer'], exp_avg of a parameter of shape (2, 2)",
        "state['plain']",
    ]
