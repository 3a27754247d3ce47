"""A model and its optimizers by names, with the parts of all ranks; on real ranks in test_distributed_training."""

from __future__ import annotations

import copy
import json

import pytest

from spotkeep.errors import UsageError
from spotkeep.state.divided import DividedArray
from spotkeep.state.encoding import encode_state

torch = pytest.importorskip("torch")
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper  # noqa: E402

from spotkeep.integrations.sharded import ShardedState  # noqa: E402

pytestmark = pytest.mark.torch


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))


def trained(model, optimizer, steps=2):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(5, 3)).square().mean().backward()
        optimizer.step()


def copied(state):
    return copy.deepcopy(state)


def same(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def test_it_comes_back_by_name():
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    trained(model, optimizer)
    saved = copied(ShardedState(model, optimizer).state_dict())
    assert set(saved["optimizers"][0]["state"]) == {name for name, _ in model.named_parameters()}
    other = net()
    reordered = torch.optim.AdamW([*other.parameters()][::-1], lr=0.5)
    shards = ShardedState(other, reordered)
    shards.load_state_dict(saved)
    assert same(shards.state_dict(), saved)
    assert reordered.param_groups[0]["lr"] == 0.1
    trained(model, optimizer)
    trained(other, reordered)
    assert same(dict(model.state_dict()), dict(other.state_dict()))


def test_an_optimizer_without_a_state_is_left_alone():
    """torch's `get_optimizer_state_dict` lets it do a step, which Adam counts."""
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    assert ShardedState(model, optimizer).state_dict()["optimizers"][0]["state"] == {}
    assert not optimizer.state
    assert all(parameter.grad is None for parameter in model.parameters())


def test_frozen_parameters_and_modes_come_back():
    model, other = net(), net()
    model[0].weight.requires_grad_(False)
    model[1].eval()
    ShardedState(other).load_state_dict(ShardedState(model).state_dict())
    assert not other[0].weight.requires_grad
    assert other[0].bias.requires_grad
    assert [part.training for part in (other, *other)] == [True, True, False, True]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_wrappers_are_in_no_name():
    plain, wrapped = net(), net()
    wrapped[0] = checkpoint_wrapper(wrapped[0])
    compiled = torch.compile(wrapped)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for model in (plain, compiled)]
    trained(plain, optimizers[0])
    saved = ShardedState(plain, optimizers[0]).state_dict()
    shards = ShardedState(compiled, optimizers[1])
    assert list(shards.state_dict()["model"]) == list(saved["model"])
    shards.load_state_dict(copied(saved))
    assert same(shards.state_dict(), saved)


def test_groups_are_put_together_as_their_settings_allow():
    model = net()
    weights = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    optimizer = torch.optim.SGD([{"params": weights}, {"params": others, "lr": 0.2}], lr=0.1)
    saved = copied(ShardedState(model, optimizer).state_dict())
    again = torch.optim.SGD([{"params": others}, {"params": weights}], lr=7.0)
    ShardedState(model, again).load_state_dict(saved)
    assert [group["lr"] for group in again.param_groups] == [0.2, 0.1]
    together = torch.optim.SGD(model.parameters(), lr=7.0)
    with pytest.raises(ValueError, match="were in several with other settings"):
        ShardedState(model, together).load_state_dict(saved)


def test_parameters_of_no_model_and_names_of_two_models_are_refused():
    model = net()
    foreign = torch.optim.SGD([*model.parameters(), torch.nn.Parameter(torch.ones(1))], lr=0.1)
    with pytest.raises(UsageError, match="has 1 parameters that its models do not have"):
        ShardedState(model, foreign).state_dict()
    with pytest.raises(UsageError, match=r"two models of a ShardedState have 0\.bias, 0\.weight"):
        ShardedState([model, net()]).state_dict()


class Stages:
    """Two ranks with a stage each, in one process."""

    def __init__(self):
        self.first = torch.nn.ModuleDict({"a": torch.nn.Linear(3, 4), "norm": torch.nn.BatchNorm1d(4)})
        self.last = torch.nn.ModuleDict({"b": torch.nn.Linear(4, 2)})
        self.models = [self.first, self.last]
        self.optimizers = [torch.optim.AdamW(model.parameters(), lr=0.1) for model in self.models]
        self.shards = [
            ShardedState([model], optimizer) for model, optimizer in zip(self.models, self.optimizers, strict=True)
        ]
        self.meet()

    def step(self):
        for model, optimizer in zip(self.models, self.optimizers, strict=True):
            sum(parameter.square().sum() for parameter in model.parameters()).backward()
            optimizer.step()
        self.meet()

    def meet(self):
        outlines = json.loads(json.dumps([shards.outline() for shards in self.shards]))
        for rank, shards in enumerate(self.shards):
            shards.unite(outlines, rank=rank)


def test_each_stage_has_the_names_of_all():
    stages = Stages()
    stages.first["a"].bias.requires_grad_(False)
    stages.last.eval()
    stages.step()
    states = [shards.state_dict() for shards in stages.shards]
    documents = [encode_state({"shards": state}).document for state in states]
    assert documents[0] == documents[1]
    for state in states:
        assert list(state["model"]) == [
            *("a.weight", "a.bias", "norm.weight", "norm.bias"),
            *("norm.running_mean", "norm.running_var", "norm.num_batches_tracked", "b.weight", "b.bias"),
        ]
        assert state["model"].frozen == ("a.bias",)
        assert state["model"].evaluating == ("", "b")
        (group,) = state["optimizers"][0]["param_groups"]
        assert group["params"] == ["a.bias", "a.weight", "b.bias", "b.weight", "norm.bias", "norm.weight"]
        assert all(isinstance(value, DividedArray) for value in state["model"].values())
    assert [len(state["model"]["b.weight"].parts) for state in states] == [0, 1]
    assert states[0]["model"]["norm.running_mean"].one_writer
    assert not states[0]["model"]["norm.weight"].one_writer


def test_a_new_stage_has_memory_for_its_own_state_alone():
    stages = Stages()
    stages.step()
    document = encode_state({"shards": stages.shards[0].state_dict()}).document["dict"][0][1]
    fresh = Stages()
    filled = fresh.shards[0].state_to_fill(document)["optimizers"][0]["state"]
    assert filled["a.weight"]["exp_avg"] is None, "whatever is read is taken"
    assert filled["b.weight"]["exp_avg"].parts == ()
    assert filled["b.weight"]["exp_avg"].shape == (2, 4)


def test_stages_with_other_settings_keep_them_apart():
    stages = Stages()
    stages.optimizers[1].param_groups[0]["lr"] = 0.5
    stages.meet()
    groups = stages.shards[0].state_dict()["optimizers"][0]["param_groups"]
    assert [(group["lr"], group["params"][0]) for group in groups] == [(0.1, "a.bias"), (0.5, "b.bias")]
