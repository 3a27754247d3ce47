"""What a resume would not find again is said at the first save after it."""

from __future__ import annotations

import copy
from collections import Counter, OrderedDict

import numpy as np
import pytest

from spotkeep import Checkpointer
from spotkeep.saves import Beginning
from spotkeep.state.encoding import encode_state

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def make():
    model = torch.nn.Sequential(torch.nn.Embedding(3, 2), torch.nn.Linear(2, 2))
    return {
        "model": model,
        "optimizer": torch.optim.Adam(model[0].parameters()),
        "history": {"losses": [1.0], "best": np.zeros(2)},
        "sizes": np.zeros(2),
        "best": {**model.state_dict()},
        "labels": Counter("aab"),
    }


@pytest.mark.parametrize("kind", [dict, Counter, OrderedDict, "a state_dict"])
def test_a_dictionary_of_any_kind_may_stand_in_the_state(tmp_path, kind):
    """The best weights so far are kept as a copy of a `state_dict`, which carries the versions of its modules."""
    layer = torch.nn.Linear(2, 1)
    kept = copy.deepcopy(layer.state_dict()) if kind == "a state_dict" else kind({"a": 1})
    with Checkpointer({"best": {"loss": 1.0, "weights": kept}}, directory=tmp_path) as checkpointer:
        for _ in checkpointer.steps(2):
            checkpointer.save(checkpointer.step)
    assert Beginning({"best": kept}).changed_form({"best": kept}, encode_state({"best": kept}).document) == []


def train_on(state):
    """What a training may change, because a resume takes it back."""
    model = state["model"]
    model(torch.tensor([1])).sum().backward()
    state["optimizer"].step()
    model[1].requires_grad_(False).eval()
    state["history"]["losses"].append(0.5)
    state["history"]["recent"] = np.ones(7)
    state["sizes"] += 1
    state["best"] = model.state_dict()  # carries the versions of its modules, and is another kind of dictionary
    state["labels"].update("c")


CHANGES = {
    "add_param_group": (
        lambda state: state["optimizer"].add_param_group({"params": [*state["model"][1].parameters()]}),
        "state['optimizer'] had parameter groups of [1] parameters, and has [1, 2]",
    ),
    "layers": (
        lambda state: state["model"].append(torch.nn.Linear(2, 5)),
        "state['model'] has other entries or shapes: 2.weight, 2.bias",
    ),
    "embeddings": (
        lambda state: state["model"].__setitem__(0, torch.nn.Embedding(4, 2)),
        "state['model'] has other entries or shapes: 0.weight",
    ),
    "another object": (
        lambda state: state["history"].__setitem__("teacher", torch.nn.Linear(1, 1)),
        "state['history']['teacher'] is new",
    ),
    "a larger array": (
        lambda state: state.__setitem__("sizes", np.zeros(3)),
        "state['sizes'] was float64 of shape (2,), and is float64 of shape (3,)",
    ),
    "an array less": (lambda state: state["history"].pop("best"), "state['history']['best'] is gone"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_form_that_changes_is_named_and_what_a_training_does_is_not(change):
    state = make()
    beginning = Beginning(state)
    train_on(state)
    assert beginning.changed_form(state, encode_state(state).document) == []
    act, said = CHANGES[change]
    act(state)
    assert beginning.changed_form(state, encode_state(state).document) == [said]


def test_what_a_state_dict_gave_and_a_counter_may_stand_in_the_state(tmp_path, caplog):
    def trained(*, steps):
        state = make()
        state["best"] = state["model"].state_dict()
        with Checkpointer(state, tmp_path, every_steps=1) as checkpointer:
            for _step in checkpointer.steps(steps):
                train_on(state)
        return state

    there, here = trained(steps=1), trained(steps=1)
    assert here["labels"] == there["labels"]
    assert all(torch.equal(value, there["best"][name]) for name, value in here["best"].items())
    assert not caplog.records


@pytest.mark.parametrize("on_restore", [None, lambda step, epoch: None])
def test_the_first_save_after_a_change_says_what_a_resume_needs(on_restore, tmp_path, caplog):
    state = make()
    with Checkpointer(state, tmp_path, on_restore=on_restore) as checkpointer:
        checkpointer.save(1)
        assert not caplog.records
        CHANGES["add_param_group"][0](state)
        checkpointer.save(2)
        checkpointer.save(3)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == (on_restore is None)
    assert all("had parameter groups of [1]" in said and "on_restore=" in said for said in messages)


class Queue(torch.nn.Module):
    """Keeps tensors that its `state_dict` leaves out, and one that is made anew from what it has."""

    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.zeros(2))
        self.register_buffer("mask", torch.zeros(2), persistent=False)
        self.register_buffer("queue", torch.zeros(2), persistent=False)
        self.seen = torch.zeros(2)
        self.dropout = torch.nn.Dropout(0.5)
        self.calls = 0
        self.normed = torch.nn.utils.weight_norm(torch.nn.Linear(2, 2))


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_tensors_and_numbers_that_no_state_dict_has_are_named_once_they_change(tmp_path, caplog):
    model = torch.nn.Sequential(Queue())
    with Checkpointer({"model": model}, tmp_path) as checkpointer:
        model[0].kept += 1
        model[0].normed(torch.ones(1, 2))
        checkpointer.save(1)
        assert not caplog.records
        model[0].queue += 1
        model[0].dropout.p = 0.1
        model[0].calls += 1
        kept_alive = model[0].seen
        model[0].seen = kept_alive + 1
        checkpointer.save(2)
    (record,) = caplog.records
    names = ("queue", "seen", "calls", "dropout.p")
    assert record.getMessage().startswith(", ".join(f"state['model'].0.{name}" for name in names) + " changed since")


def test_a_metric_inside_of_a_module_is_named_once_it_has_added_something_up(tmp_path, caplog):
    torchmetrics = pytest.importorskip("torchmetrics")
    model = torch.nn.Sequential(torch.nn.Linear(1, 1))
    model.mean, model.all, model.kept = torchmetrics.MeanMetric(), torchmetrics.CatMetric(), torchmetrics.SumMetric()
    model.kept.persistent(True)
    with Checkpointer({"model": model}, tmp_path) as checkpointer:
        for metric in (model.mean, model.all, model.kept):
            metric.update(1.0)
        checkpointer.save(1)
    (record,) = caplog.records
    for name in ("mean.mean_value", "all.value"):
        assert f"state['model'].{name}" in record.getMessage()
    assert "state['model'].kept" not in record.getMessage()


def test_a_wrapper_of_a_metric_is_named_where_its_own_state_dict_is_not_whole(tmp_path, caplog):
    """`findings/torchmetrics-wrappers-forget.sh` shows both. The metric inside is kept in either case."""
    torchmetrics = pytest.importorskip("torchmetrics")
    wrappers = pytest.importorskip("torchmetrics.wrappers")
    state = {
        "extremes": wrappers.MinMaxMetric(torchmetrics.MeanMetric()),
        "recent": wrappers.Running(torchmetrics.MeanMetric(), window=3),
    }
    for metric in state.values():
        for part in metric.modules():
            part.persistent(True)
    with Checkpointer(state, tmp_path) as checkpointer:
        for metric in state.values():
            metric.update(1.0)
            metric.compute()
        checkpointer.save(1)
    (record,) = caplog.records
    names = "state['extremes'].min_val, state['extremes'].max_val, state['recent']._num_vals_seen"
    assert record.getMessage().startswith(names + " changed since")
