"""A module takes the items that it still has, and keeps its own values of the others."""

from __future__ import annotations

import pytest

from spotkeep import Checkpointer
from spotkeep.state.partial import fitting_part

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def network(*, classes):
    torch.manual_seed(classes)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, classes))


def test_a_model_with_another_last_layer_takes_the_rest(tmp_path):
    saved = network(classes=2)
    optimizer = torch.optim.AdamW(saved.parameters())
    Checkpointer({"model": saved, "optimizer": optimizer}, tmp_path).save(5)

    model = network(classes=7)
    model[0].weight.requires_grad_(False)
    own_last = model[2].weight.clone()
    checkpointer = Checkpointer({"model": model}, tmp_path)
    assert checkpointer.restore(strict=False) == 5
    assert torch.equal(model[0].weight, saved[0].weight)
    assert torch.equal(model[1].running_var, saved[1].running_var)
    assert torch.equal(model[2].weight, own_last)
    assert not model[0].weight.requires_grad
    assert set(checkpointer.left_out) == {
        "state['optimizer'] of the checkpoint",
        *(f"state['model']['2.{name}'] of the checkpoint" for name in ("weight", "bias")),
        *(f"state['model']['2.{name}'] of the script" for name in ("weight", "bias")),
    }


def test_a_model_that_has_gained_and_lost_layers_takes_those_in_common(tmp_path):
    saved = torch.nn.ModuleDict({"body": torch.nn.Linear(3, 3), "old": torch.nn.Linear(3, 1)})
    Checkpointer({"model": saved}, tmp_path).save(1)
    model = torch.nn.ModuleDict({"body": torch.nn.Linear(3, 3), "new": torch.nn.Linear(3, 2)})
    own_new = model["new"].weight.clone()
    checkpointer = Checkpointer({"model": model}, tmp_path)
    checkpointer.restore(strict=False)
    assert torch.equal(model["body"].weight, saved["body"].weight)
    assert torch.equal(model["new"].weight, own_new)
    assert "state['model']['old.weight'] of the checkpoint" in checkpointer.left_out
    assert "state['model']['new.weight'] of the script" in checkpointer.left_out


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {"dict": 3},
        {"dict": [1, [2], [[], {}]]},
        {"dict": [["model", {"state_dict": {"items": [[{}, 1], 2]}}]]},
    ],
)
def test_a_hostile_document_raises_nothing(document):
    fitting_part(document, {"model": network(classes=2)})
